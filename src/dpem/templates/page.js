"use strict";
// Sorts, filters and copies tables, switches units and shows values under the pointer. It sends no request.
(() => {
  const make = (tag, values = {}, ...inside) => {
    const element = Object.assign(document.createElement(tag), values);
    element.append(...inside);
    return element;
  };

  // --- switch units --------------------------------------------------------------------------------------------------
  const unitWords = document.querySelector("[data-units-words]");
  const tableUnits = unitWords && unitWords.textContent;
  document.querySelectorAll(".switch").forEach((set) => {
    const show = (units) => document.querySelectorAll("figure[data-units]").forEach((figure) => { figure.hidden = figure.dataset.units !== units; });
    set.hidden = false;
    show(set.querySelector("input:checked").value);
    set.addEventListener("change", (event) => {
      const standardised = event.target.value === "standardised";
      show(event.target.value);
      document.querySelectorAll("[data-other]").forEach((cell) => {
        cell.dataset.original ??= cell.textContent;
        cell.textContent = standardised ? cell.dataset.other : cell.dataset.original;
      });
      unitWords.textContent = standardised ? event.target.parentElement.textContent.trim() : tableUnits;
    });
  });

  // --- tables --------------------------------------------------------------------------------------------------------
  const cells = (row) => [...row.cells];
  const words = (cell) => (cell.querySelector("svg title") || cell).textContent.trim();
  const plain = (text) => text.replaceAll("−", "-").replaceAll("\u00a0", " ");
  const visible = (table) => [...table.rows].filter((row) => !row.hidden);
  function csv(table) {
    const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    return visible(table).map((row) => cells(row).map((cell) => quoted(plain(words(cell)))).join(",")).join("\n") + "\n";
  }
  function latex(table) {
    const escaped = (text) => text.replace(/[\\&%$#_{}~^]/g, (c) => (c === "\\" ? "\\textbackslash{}" : c === "~" || c === "^" ? `\\${c}{}` : `\\${c}`)).replaceAll("−", "$-$").replaceAll("×", "$\\times$");
    const rows = visible(table).map((row) => cells(row).map((cell) => escaped(words(cell))).join(" & ") + " \\\\");
    const columns = cells(table.rows[0]).map((cell) => (cell.classList.contains("number") ? "r" : "l")).join("");
    return `\\begin{tabular}{${columns}}\n\\hline\n${rows[0]}\n\\hline\n${rows.slice(1).join("\n")}\n\\hline\n\\end{tabular}\n`;
  }
  async function copy(text, status) {
    try { await navigator.clipboard.writeText(text); }
    catch {
      const area = make("textarea", { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    status.textContent = "copied";
    setTimeout(() => { status.textContent = ""; }, 1500);
  }
  const value = (cell) => {
    const raw = cell.dataset.sort ?? plain(cell.textContent).replaceAll(",", "");
    const found = Number.parseFloat(raw);
    return Number.isNaN(found) ? raw.toLowerCase() : found;
  };
  function sort(table, column, heading) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0], before = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
    const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * before(value(a.cells[column]), value(b.cells[column])));
    body.append(...rows);
  }
  document.querySelectorAll("table[data-tools]").forEach((table) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 2) return;
    table.querySelectorAll("thead th").forEach((heading, column) => {
      const button = make("button", { type: "button" }, heading.textContent || "name");
      button.addEventListener("click", () => sort(table, column, heading));
      heading.replaceChildren(button);
    });
    const status = make("span", { role: "status" });
    const label = table.caption.textContent.replace(/\.$/, "");
    const tools = make("div", { className: "tools" });
    if (rows.length > 8) {
      const filter = make("input", { type: "search", placeholder: "filter", ariaLabel: `Filter: ${label}` });
      filter.addEventListener("input", () => {
        const wanted = filter.value.toLowerCase();
        rows.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
        status.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
      });
      tools.append(filter);
    }
    for (const [name, form] of [["CSV", csv], ["LaTeX", latex]]) {
      const button = make("button", { type: "button", ariaLabel: `Copy as ${name}: ${label}` }, `Copy as ${name}`);
      button.addEventListener("click", () => copy(form(table), status));
      tools.append(button);
    }
    tools.append(status);
    table.parentElement.before(tools);
  });

  // --- values under the pointer --------------------------------------------------------------------------------------
  const tip = make("div", { id: "tip", hidden: true, role: "tooltip" });
  document.body.append(tip);
  document.querySelectorAll("[data-tip]").forEach((part) => {
    part.querySelectorAll(":scope > title").forEach((title) => title.remove());
    part.addEventListener("pointermove", (event) => {
      tip.textContent = part.dataset.tip;
      tip.hidden = false;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(4, Math.min(event.pageX + 12, room))}px`;
      tip.style.top = `${event.pageY + 14}px`;
    });
    part.addEventListener("pointerleave", () => { tip.hidden = true; });
  });
})();
