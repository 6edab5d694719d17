"use strict";
// The planner: it interpolates a table of plans. It reads no data and sends no request.
const grid = JSON.parse(document.getElementById("grid").textContent);
const $ = (id) => document.getElementById(id);
const FIELDS = ["n", "d", "epsilon", "delta", "groups", "effect", "fits"];
const LOG = { n: true, d: true, epsilon: true, delta: true, groups: false, effect: false, fits: false };
const DIGITS = { epsilon: 2, delta: 2, effect: 2 }; // significant digits of a slider's values; others are whole
// A node of the table has median, low and high in hundredths of logarithms, and the share of failures if it is above 0.
for (const table of Object.values(grid.models)) {
  table.values = table.values.map((node) => node && [...node.slice(0, 3).map((log) => Math.exp(log / 100)), node[3] ?? 0]);
  table.least = Math.min(...table.values.flatMap((node) => (node ? node.slice(0, 3) : [])));
}
const ODDS = [0.1, 0.5, 1, 2, 4, 8];

// --- numbers ---------------------------------------------------------------------------------------------------------
function shown(value, digits = 3) {
  if (!Number.isFinite(value)) return "∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [head, tail] = value.toExponential(digits - 1).split("e");
    const power = "10" + [...String(Number(tail))].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
    const short = String(Number(head));
    return short === "1" ? power : short + " × " + power;
  }
  return String(Number(value.toPrecision(digits)));
}
// A prediction as text: shares in percent.
const figure = (table, value, digits = 2) => (/^(share|R²)/.test(table.quantity) ? `${shown(100 * value, digits)} %` : shown(value));
// A number as code: 1e-6, not 0.000001.
const typed = (value) => (Math.abs(value) < 1e-3 ? value.toExponential() : String(value));
const whole = (value) => Math.round(value).toLocaleString("en-US");

// The index of the node below a value among increasing nodes, and the fraction of the way to the next, in logarithms.
function place(nodes, value, log = true) {
  const f = log ? Math.log : (v) => v;
  const x = Math.min(Math.max(value, nodes[0]), nodes[nodes.length - 1]);
  let i = 0;
  while (i < nodes.length - 2 && x > nodes[i + 1]) i++;
  if (nodes.length === 1) return [0, 0];
  return [i, (f(x) - f(nodes[i])) / (f(nodes[i + 1]) - f(nodes[i]))];
}

// --- privacy ---------------------------------------------------------------------------------------------------------
function rho(epsilon, delta, gaussian) {
  const prices = grid.prices[gaussian ? "gaussian" : "any"];
  const [i, s] = place(grid.epsilon_table, epsilon);
  const [j, t] = place(grid.delta_table, delta);
  const at = (a, b) => Math.log(prices[a][b]);
  const low = at(i, j) * (1 - t) + at(i, j + 1) * t;
  const high = at(i + 1, j) * (1 - t) + at(i + 1, j + 1) * t;
  return Math.exp(low * (1 - s) + high * s);
}
function epsilonOf(price, delta, gaussian) {
  let low = Math.log(grid.epsilon_table[0]), high = Math.log(grid.epsilon_table.at(-1));
  for (let k = 0; k < 50; k++) {
    const middle = (low + high) / 2;
    if (rho(Math.exp(middle), delta, gaussian) > price) high = middle;
    else low = middle;
  }
  return Math.exp(low);
}
const bestGuess = (epsilon, delta) => Math.min(1, (1 + delta * Math.exp(-epsilon)) / (1 + Math.exp(-epsilon)));
// The ε of each of several fits whose prices add up to that of the total, lowered by 1 % against errors of the table.
function eachOf(state, fits) {
  if (fits === 1) return state.epsilon;
  return 0.99 * epsilonOf(rho(state.epsilon, state.delta, false) / fits, state.delta, model(state).gaussian);
}

// --- predictions -----------------------------------------------------------------------------------------------------
const model = (state) => grid.models[state.model];
function predicted(state) {
  const table = model(state);
  const sizes = [table.groups.length || 1, table.columns.length, table.rows.length, table.rho.length];
  const axes = [
    table.effect ? place(table.effect.others, state.effect, false) : [0, 0],
    table.groups.length ? place(table.groups, state.groups, false) : [0, 0],
    place(table.columns, state.d),
    place(table.rows, state.n),
    place(table.rho, rho(state.epsilon, state.delta, table.gaussian)),
  ];
  const sum = [0, 0, 0, 0];
  for (let corner = 0; corner < 32; corner++) {
    let weight = 1, index = 0;
    axes.forEach(([i, part], axis) => {
      const up = (corner >> axis) & 1;
      weight *= up ? part : 1 - part;
      index = index * (axis ? sizes[axis - 1] : 1) + i + (part > 0 ? up : 0);
    });
    if (weight === 0) continue;
    const node = table.values[index];
    if (!node) return null;
    for (let k = 0; k < 3; k++) sum[k] += weight * Math.log(node[k]);
    sum[3] += weight * node[3];
  }
  return { median: Math.exp(sum[0]), low: Math.exp(sum[1]), high: Math.exp(sum[2]), failure: sum[3] };
}
// The ends of the ε for which the table has plans at this δ.
function covered(state) {
  const table = model(state), ends = [table.rho[0], table.rho.at(-1)].map((price) => epsilonOf(price, state.delta, table.gaussian));
  return [Math.max(0.05, ends[0]), Math.min(10, ends[1])];
}
// The smallest ε from which doubling it lowers the prediction by less than a quarter; null if that holds for the first.
function bend(state) {
  const [first, last] = covered(state), gains = predicted({ ...state, epsilon: first });
  const twice = predicted({ ...state, epsilon: 2 * first });
  if (gains && twice && twice.median > 0.75 * gains.median) return null;
  for (let e = first; e <= last / 2; e *= 1.05) {
    const one = predicted({ ...state, epsilon: e }), two = predicted({ ...state, epsilon: 2 * e });
    if (one && two && two.median > 0.75 * one.median) return e;
  }
  return null;
}
function remarks(state) {
  const messages = [];
  if (state.delta >= 1 / state.n) messages.push("δ is not below one over the number of rows, so it would allow publishing a row outright. Choose a smaller δ.");
  if (state.epsilon > 10) messages.push("An ε above 10 guarantees next to nothing.");
  const table = model(state);
  if (state.n < table.rows[0] || state.n > table.rows.at(-1) || state.d > table.columns.at(-1) || state.d < table.columns[0])
    messages.push("The table of plans ends before these rows or columns: its last plans are shown. The command plans exactly.");
  return messages;
}

// --- the page --------------------------------------------------------------------------------------------------------
function read() {
  const state = { model: $("model").value };
  for (const name of FIELDS) state[name] = Number($(name).value);
  return state;
}
function limits(name) {
  const field = $(name);
  return [Number(field.min), Number(field.max)];
}
function toSlider(name) {
  const [low, high] = limits(name), value = Math.min(Math.max(Number($(name).value), low), high);
  const f = LOG[name] ? Math.log : (v) => v;
  $(name + "-slider").value = String(Math.round((1000 * (f(value) - f(low))) / (f(high) - f(low))));
}
function fromSlider(name) {
  const [low, high] = limits(name), part = Number($(name + "-slider").value) / 1000;
  let value = LOG[name] ? low * (high / low) ** part : low + (high - low) * part;
  if (LOG[name] || DIGITS[name]) value = Number(value.toPrecision(DIGITS[name] || 2));
  $(name).value = String(DIGITS[name] ? Math.min(Math.max(value, low), high) : Math.max(low, Math.round(value)));
}
function chart(id, along, values, state, mark) {
  const points = values.map((x) => [x, predicted({ ...state, [along]: x })]).filter(([, p]) => p);
  const svg = $(id);
  if (points.length < 2) { svg.innerHTML = ""; return; }
  const W = 460, H = 250, L = 62, R = 26, T = 22, B = 40, table = model(state);
  const f = Math.log, xs = [f(values[0]), f(values.at(-1))];
  const low = f(Math.min(...points.map(([, p]) => p.low))), high = f(Math.max(...points.map(([, p]) => p.high)));
  const x = (v) => L + ((f(v) - xs[0]) / (xs[1] - xs[0])) * (W - L - R);
  const y = (v) => H - B - ((f(v) - low) / (high - low || 1)) * (H - T - B);
  const path = (list) => list.map(([a, b], i) => (i ? "L" : "M") + x(a).toFixed(1) + " " + y(b).toFixed(1)).join("");
  const band = path(points.map(([v, p]) => [v, p.high])) + path(points.map(([v, p]) => [v, p.low]).reverse()).replace("M", "L") + "Z";
  const parts = [];
  const decades = (a, b) => { const out = []; for (let k = Math.floor(a / Math.LN10); k <= Math.ceil(b / Math.LN10); k++) for (const m of b - a > 6 ? [1] : [1, 2, 5]) { const v = m * 10 ** k; if (f(v) >= a - 1e-9 && f(v) <= b + 1e-9) out.push(v); } return out; };
  for (const v of decades(low, high)) parts.push(`<line class="grid" x1="${L}" x2="${W - R}" y1="${y(v)}" y2="${y(v)}"/><text class="quiet" x="${L - 6}" y="${y(v)}" text-anchor="end" dominant-baseline="central">${figure(table, v)}</text>`);
  for (const v of decades(...xs)) parts.push(`<line class="grid" x1="${x(v)}" x2="${x(v)}" y1="${T}" y2="${H - B}"/><text class="quiet" x="${x(v)}" y="${H - B + 16}" text-anchor="middle">${along === "n" && v < 1e6 ? whole(v) : shown(v)}</text>`);
  parts.push(`<path class="band" d="${band}"/><path class="curve" d="${path(points.map(([v, p]) => [v, p.median]))}"/>`);
  if (mark) parts.push(`<line class="limit" x1="${x(mark)}" x2="${x(mark)}" y1="${T}" y2="${H - B}"/><text class="limit-label" x="${Math.min(Math.max(x(mark), L + 45), W - R - 45)}" y="${T - 8}" text-anchor="middle">bend, ε ≈ ${shown(mark, 2)}</text>`);
  const here = predicted(state);
  if (here && state[along] >= values[0] && state[along] <= values.at(-1)) parts.push(`<circle class="measure" cx="${x(state[along])}" cy="${y(here.median)}" r="5"/>`);
  parts.push(`<text class="quiet" x="${(L + W - R) / 2}" y="${H - 6}" text-anchor="middle">${along === "n" ? "rows" : "ε"}</text>`);
  svg.innerHTML = parts.join("");
}
function command(state) {
  const table = model(state), count = table.count ? ` --${table.count.replaceAll("_", "-")} ${state.groups}` : "";
  const known = table.bounds ? "" : " --levels levels.json";
  return `dpem plan ${state.model} --n ${state.n} --d ${state.d} --epsilon ${typed(state.epsilon)} --delta ${typed(state.delta)}${count}${unusual(state) ? ` --effect ${state.effect}` : ""}${known}`;
}
function python(state) {
  const table = model(state), count = table.count ? `${table.count}=${state.groups}, ` : "";
  const known = table.bounds ? "bounds=bounds, " + (table.needs_y ? "y_bounds=y_bounds, " : "") : "levels=levels, ";
  const fit = table.needs_y ? "X, y" : "X";
  return `from dpem import ${table.estimator}\n\n# ${table.bounds ? "bounds" : "levels"}: the possible values of each column, from a codebook, never from the rows\nmodel = ${table.estimator}(${count}${known}epsilon=${typed(state.epsilon)}, delta=${typed(state.delta)})\nprint(model.plan(n=${state.n}, d=${state.d}${unusual(state) ? `, effect=${state.effect}` : ""}))\nmodel.fit(${fit})`;
}
const unusual = (state) => model(state).effect && state.effect !== model(state).effect.usual;
// The field of the effect size: with the limits of the model, and its usual value after a change of the model.
function effectField(fresh) {
  const known = model(read()).effect;
  $("effect-row").hidden = !known;
  if (!known) { $("effect").min = "0"; $("effect").max = "1"; $("effect").value = "0"; return; }
  $("effect").min = String(known.others[0]);
  $("effect").max = String(known.others.at(-1));
  document.querySelector("label[for=effect]").textContent = known.words;
  if (fresh || $("effect").value === "") $("effect").value = String(known.usual);
  toSlider("effect");
}
// The meaning of a prediction in a sentence.
function inWords(table, state, p) {
  if (table.quantity.startsWith("share of rows")) {
    const of = p.median >= 0.01 ? 100 : p.median >= 0.001 ? 1000 : 10000;
    const many = p.median * of < 0.5 ? "less than one is" : `about ${Math.max(1, Math.round(p.median * of))} ${Math.round(p.median * of) > 1 ? "are" : "is"}`;
    return `Of ${whole(of)} people ${many} assigned to another component than without privacy.`;
  }
  if (table.quantity.startsWith("R²") && table.effect) {
    const whole = 100 * state.effect, rest = Math.max(0, whole - 100 * p.median);
    return `Columns that explain ${shown(whole)} % of the variance without privacy explain about ${whole - rest < 0.05 ? "as much" : rest.toFixed(1) + " %"} with it.`;
  }
  return p.median <= 1 ? `That is about ${shown(100 * p.median, 2)} %.` : "";
}
function odds(state) {
  const rows = [...new Set([...ODDS, state.epsilon])].sort((a, b) => a - b).map((e) => {
    const miss = 1 - bestGuess(e, state.delta);
    const guess = miss < 0.001 ? `all but 1 in ${shown(1 / miss, 2)}` : (100 - Math.floor(1000 * miss) / 10).toFixed(1) + " of 100";
    return `<tr${e === state.epsilon ? ' class="here" aria-current="true"' : ""}><th scope="row">${shown(e)}</th><td data-label="largest change of odds">${shown(Math.exp(e))} times</td><td data-label="a guess is right in">${guess}</td></tr>`;
  });
  $("odds").innerHTML = rows.join("");
}
function split(state) {
  const rows = [];
  for (let m = 1; m <= state.fits; m++) {
    const e = eachOf(state, m), p = predicted({ ...state, epsilon: e });
    rows.push(`<tr${m === state.fits ? ' class="here"' : ""}><th scope="row">${m}</th><td data-label="ε of each">${shown(e)}</td><td data-label="predicted for each">${p ? `${figure(model(state), p.median)} (${figure(model(state), p.low)} to ${figure(model(state), p.high)})` : "not possible"}</td></tr>`);
  }
  $("split").innerHTML = rows.join("");
}
function draw() {
  const state = read(), table = model(state);
  $("groups-row").hidden = !table.count;
  const valid = FIELDS.every((name) => $(name).value !== "" && $(name).checkValidity());
  $("wrong").textContent = valid ? "" : "A field has no number within its limits.";
  if (!valid) return;
  const p = predicted(state);
  $("quantity").textContent = table.quantity[0].toUpperCase() + table.quantity.slice(1);
  const tiny = p && p.median <= 1.001 * table.least;
  $("median").textContent = p ? (tiny ? "below " : "") + figure(table, p.median) : "not possible";
  $("interval").textContent = p ? `nine fits of ten: ${figure(table, p.low)} to ${figure(table, p.high)}` : "too few rows for so many columns or components";
  $("words").textContent = p ? inWords(table, state, p) : "";
  $("failure").textContent = p && p.failure >= 0.005 ? `About ${Math.round(100 * p.failure)} of 100 such fits find no structure at all.` : "";
  const nearest = table.groups.reduce((best, K, i) => (Math.abs(K - state.groups) < Math.abs(table.groups[best] - state.groups) ? i : best), 0);
  const strength = table.effect ? shown((table.effect.percent ? 100 : 1) * state.effect) : "";
  $("assumed").textContent = table.assumed[nearest].replace("{groups}", state.groups).replace("{effect}", strength);
  $("setting").textContent = `ε = ${shown(state.epsilon)}, δ = ${shown(state.delta)}, ${whole(state.n)} rows, ${whole(state.d)} columns`;
  $("remarks").innerHTML = "";
  for (const messages of remarks(state)) { const item = document.createElement("li"); item.textContent = messages; $("remarks").append(item); }
  const steps = (a, b) => Array.from({ length: 41 }, (_, k) => a * (b / a) ** (k / 40));
  const doubling = bend(state);
  $("bend").textContent = doubling ? "From the bend on, doubling ε gains less than a quarter." : "";
  chart("by-epsilon", "epsilon", steps(...covered(state)), state, doubling);
  chart("by-rows", "n", steps(table.rows[0], table.rows.at(-1)), state, null);
  odds(state);
  split(state);
  $("command").textContent = command(state);
  $("python").textContent = python(state);
}
async function copied(button) {
  const text = $(button.dataset.copies).textContent;
  try { await navigator.clipboard.writeText(text); }
  catch {
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  const before = button.textContent;
  button.textContent = "copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}
for (const name of FIELDS) {
  $(name).addEventListener("input", () => { toSlider(name); draw(); });
  $(name + "-slider").addEventListener("input", () => { fromSlider(name); draw(); });
  toSlider(name);
}
$("model").addEventListener("change", () => { effectField(true); draw(); });
effectField(false);
document.querySelectorAll("button[data-copies]").forEach((button) => button.addEventListener("click", () => copied(button)));
$("print").addEventListener("click", () => window.print());
draw();
