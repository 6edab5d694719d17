"use strict";
// A button on every example that copies it, without the prompts and the output of an interactive session.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this example");
    button.addEventListener("click", async () => {
      const lines = block.textContent.replace(/\n$/, "").split("\n");
      const typed = lines.filter((line) => /^(>>>|\.\.\.|\$) ?/.test(line));
      const text = (typed.length ? typed : lines).map((line) => line.replace(/^(>>>|\.\.\.|\$) ?/, "")).join("\n");
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1200);
    });
    const box = block.parentElement;
    box.style.position = "relative";
    box.append(button);
  }
});
