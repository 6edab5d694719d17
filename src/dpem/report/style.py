"""The look of a report: two palettes, one stylesheet. Nothing is loaded from anywhere."""

from __future__ import annotations

#: Colours by what they are for. ``on_*`` is text on that colour.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f3f5f8",
    "rule": "#c9d0d8",
    "text": "#1a1f26",
    "muted": "#525c68",
    "accent": "#0b4f94",
    "measure": "#0b5cad",
    "on_measure": "#ffffff",
    "select": "#8a5000",
    "on_select": "#ffffff",
    "threshold": "#a3123a",
    "alarm": "#8b1020",
    "on_alarm": "#ffffff",
}
DARK = {
    "page": "#14171c",
    "panel": "#1e232b",
    "rule": "#3d4652",
    "text": "#e8ebef",
    "muted": "#a9b3c0",
    "accent": "#8cc0ff",
    "measure": "#7db4f5",
    "on_measure": "#10141a",
    "select": "#e3a857",
    "on_select": "#10141a",
    "threshold": "#ff92ab",
    "alarm": "#ffb3ab",
    "on_alarm": "#3a0508",
}

#: (foreground, background) of all text in a report, which needs a contrast of 4.5; and of lines and marks, 3.
TEXT_PAIRS = [
    ("text", "page"),
    ("text", "panel"),
    ("muted", "page"),
    ("muted", "panel"),
    ("accent", "page"),
    ("accent", "panel"),
    ("on_measure", "measure"),
    ("on_select", "select"),
    ("on_alarm", "alarm"),
]
MARK_PAIRS = [("measure", "page"), ("select", "page"), ("threshold", "page"), ("muted", "page"), ("alarm", "page")]


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{name.replace('_', '-')}: {colour}; " for name, colour in palette.items())


_RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 56rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
a { color: var(--accent); }
.whole { white-space: nowrap; }
p, ul, dl, figure { margin: 0 0 1rem; }
figure { margin-inline: 0; }
figcaption { margin-top: .5rem; }
figcaption, .note, caption { color: var(--muted); font-size: .9rem; }
.kind { color: var(--muted); margin: 0; }
.verdict { font-size: 1.15rem; margin: 1rem 0 1.25rem; }
.banner { background: var(--alarm); color: var(--on-alarm); font-size: 1.2rem; font-weight: 700; padding: 1rem 1.25rem;
  margin: 0 0 1.5rem; border-radius: .25rem; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.4rem, 1fr)); gap: .75rem; }
.figures div { background: var(--panel); padding: .7rem .9rem; border-radius: .25rem; }
.figures dt { color: var(--muted); font-size: .85rem; }
.figures dd { margin: 0; font-size: 1.15rem; font-weight: 600; }
.formula, blockquote, pre { background: var(--panel); border-radius: .25rem; margin: 0 0 1rem; padding: .8rem 1rem; }
.formula { font-family: "STIX Two Text", Cambria, "Noto Serif", "DejaVu Serif", Georgia, serif; font-size: 1.15rem;
  text-align: center; }
blockquote { border-left: 4px solid var(--accent); }
pre { white-space: pre-wrap; overflow-wrap: anywhere;
  font: .82rem/1.5 ui-monospace, Consolas, "DejaVu Sans Mono", monospace; }
code { font: .9em ui-monospace, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 0 0 1rem; }
.wide:focus-visible, summary:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; padding: 0 0 .4rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--rule);
  overflow-wrap: break-word; }
thead th { border-bottom: 2px solid var(--muted); vertical-align: bottom; }
tbody th { font-weight: 500; }
td:nth-child(2):not(.number) { min-width: 11rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th:last-child, td:last-child { padding-right: 0; }
.key { display: inline-block; min-width: 1.6em; padding: 0 .35em; border-radius: .2rem; text-align: center;
  font-weight: 600; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.key.measure { background: var(--measure); color: var(--on-measure); }
.key.select { background: var(--select); color: var(--on-select); }
summary { cursor: pointer; color: var(--accent); font-weight: 600; margin: 0 0 .75rem; }
svg { display: block; width: 100%; font-size: .85rem; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
svg text { fill: var(--text); }
svg .quiet { fill: var(--muted); }
svg .part { stroke: var(--page); stroke-width: 2; }
svg .measure { fill: var(--measure); }
svg .select { fill: var(--select); }
svg .on-measure { fill: var(--on-measure); font-weight: 600; }
svg .on-select { fill: var(--on-select); font-weight: 600; }
svg .grid { stroke: var(--rule); }
svg .zero { stroke: var(--muted); stroke-width: 1.5; }
svg .bar { stroke: var(--measure); stroke-width: 2; }
svg .limit { stroke: var(--threshold); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .other { stroke: var(--muted); stroke-width: 1.5; }
.lane { display: grid; grid-template-columns: minmax(7rem, 14rem) 1fr minmax(9rem, 15.5rem); gap: 0 .9rem;
  align-items: center; font-size: .88rem; }
.lane .name { overflow-wrap: anywhere; }
.lane .value { text-align: right; font-variant-numeric: tabular-nums; }
.lane small { color: var(--muted); font-size: .92em; }
.lane svg { overflow: visible; }
.group { margin: 0 0 1.25rem; break-inside: avoid; }
.check { border-left: 5px solid var(--measure); background: var(--panel); padding: .7rem 1rem; border-radius: .25rem; }
.check.poor { border-color: var(--threshold); }
.about { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; }
.about div { display: flex; gap: .4rem; }
.about dt { color: var(--muted); }
.about dd { margin: 0; overflow-wrap: anywhere; }
footer { margin-top: 3rem; padding-top: .75rem; border-top: 1px solid var(--rule); color: var(--muted);
  font-size: .9rem; }
@media screen and (max-width: 34rem) {
  main { padding: 1.25rem .9rem 3rem; }
  h1 { font-size: 1.4rem; }
  .formula { font-size: 1rem; padding-inline: .5rem; }
  .lane { grid-template-columns: 1fr auto; margin-bottom: .35rem; }
  .lane svg { grid-row: 2; grid-column: 1 / -1; }
  thead { position: absolute; clip-path: inset(50%); height: 1px; width: 1px; overflow: hidden; }
  table, tbody, caption { display: block; }
  tr { display: block; padding: .45rem 0; border-bottom: 1px solid var(--rule); }
  tbody th, td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .1rem 0; }
  tbody th { font-weight: 600; }
  td, .number { text-align: right; white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-label); color: var(--muted); text-align: left; flex: 0 0 auto; max-width: 50%; }
  td:nth-child(2):not(.number) { min-width: 0; }
}
@media print {
  @page { margin: 14mm; }
  html { font-size: 13px; }
  main { max-width: none; padding: 0; }
  h2 { margin-top: 1.5rem; }
  th, td { padding-block: .2rem; }
  h2, h3, caption, summary { break-after: avoid; }
  figure, tr, blockquote, .formula, .figures { break-inside: avoid; }
  thead { display: table-header-group; break-after: avoid; }
  tbody tr:first-child { break-before: avoid; }
  .wide { overflow: visible; }
  details::details-content { content-visibility: visible; block-size: auto; }
  summary { list-style: none; color: var(--text); }
}
"""

STYLE = (
    f":root {{ color-scheme: light dark; {_variables(LIGHT)}}}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)}}} }}\n{_RULES}"
)
