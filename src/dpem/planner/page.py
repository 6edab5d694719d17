"""The planner as one page of HTML: a table of plans, a script that interpolates it, nothing fetched from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dpem._files import write_text
from dpem._html import text
from dpem._version import __version__
from dpem.planner import grid as tables
from dpem.report.style import STYLE

_SCRIPT = Path(__file__).with_name("planner.js")
_RULES = """
.controls { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .6rem 1.5rem;
  margin-top: 1rem; }
.control { display: grid; grid-template-columns: 1fr 7.5rem; gap: .1rem .6rem; align-items: center; }
.control[hidden] { display: none; }
.control label { grid-column: 1 / -1; font-size: .9rem; color: var(--muted); }
input, select, button { font: inherit; color: var(--text); background: var(--page); border: 1px solid var(--muted);
  border-radius: .25rem; padding: .25rem .5rem; min-width: 0; }
input[type=range] { padding: 0; width: 100%; accent-color: var(--measure); }
select { width: 100%; grid-column: 1 / -1; }
button { cursor: pointer; padding: .4rem .9rem; }
:is(input, select, button):focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
#answer { background: var(--panel); border-left: 5px solid var(--measure); padding: .8rem 1.1rem; border-radius: .25rem;
  margin: 1.25rem 0; }
#answer p { margin: 0 0 .2rem; }
#median { font-size: 1.9rem; font-weight: 700; }
#remarks, #wrong { color: var(--threshold); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1rem; }
.charts svg { height: auto; }
svg .band { fill: var(--measure); opacity: .22; }
svg .curve { fill: none; stroke: var(--measure); stroke-width: 2.5; }
svg .limit-label { fill: var(--threshold); }
tr.here { background: var(--panel); font-weight: 600; }
.sign { display: none; }
@media print {
  .controls input[type=range], button, .screen { display: none; }
  .sign { display: grid; grid-template-columns: 1fr 1fr 1fr; gap: 2rem; margin-top: 3rem; }
  .sign div { border-top: 1px solid var(--text); padding-top: .3rem; }
}
"""


def page(*, grid: dict[str, Any] | None = None, start: dict[str, Any] | None = None) -> str:
    """The planner's page.

    Parameters
    ----------
    grid : dict, optional
        The table of plans; the one that comes with the package if not given.
    start : dict, optional
        What the fields hold at first: ``model``, ``n``, ``d``, ``epsilon``, ``delta``, ``groups``, ``effect``,
        ``fits``.

    Returns
    -------
    str
        HTML that loads nothing: the script is in it, and no other may run.

    Examples
    --------
    >>> made = page(start={"epsilon": 2})
    >>> "http://" in made or "https://" in made
    False
    """
    shown = tables.stored() if grid is None else grid
    if not shown["models"]:
        raise ValueError("grid must hold a model that makes predictions.")
    known = {"model": next(iter(shown["models"])), "n": 20_000, "d": 10, "epsilon": 1, "delta": 1e-6, "groups": 3}
    first = {**known, "fits": 3, "effect": "", **(start or {})}
    if first["model"] not in shown["models"]:
        raise ValueError(f"model must be one of {', '.join(shown['models'])}; got {first['model']!r}.")
    script = _SCRIPT.read_text(encoding="utf-8")
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'; img-src data:; base-uri 'none'"
    )
    data = json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c")
    choices = "".join(
        f'<option value="{text(name)}"{" selected" if name == first["model"] else ""}>{text(name.replace("-", " "))}'
        "</option>"
        for name in shown["models"]
    )
    fields = [
        ("n", "rows", 100, 10_000_000, 1),
        ("d", "columns (without the response)", 1, 1000, 1),
        ("epsilon", "ε, the privacy loss of one person", 0.05, 20, "any"),
        ("delta", "δ, well below one over the rows", 1e-12, 1e-2, "any"),
        ("groups", "groups", 2, 8, 1),
        ("effect", "how strong the effects are", 0, 100, "any"),
    ]
    controls = "\n".join(_control(*field, first[field[0]]) for field in fields)
    fits = _control("fits", "fits that share ε and δ", 1, 10, 1, first["fits"])
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>Plan a private fit</title>\n<style>\n{STYLE}{_RULES}</style>\n</head>\n<body>\n<main>\n"
        f"{_BODY.format(choices=choices, controls=controls, fits=fits, version=text(__version__))}\n</main>\n"
        f'<script type="application/json" id="grid">{data}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def write_page(path: str | os.PathLike[str], *, start: dict[str, Any] | None = None) -> None:
    """Write the planner to ``path``, whole or not at all; see :func:`page`."""
    write_text(path, page(start=start))


def _control(name: str, label: str, low: float, high: float, step: object, value: object) -> str:
    return (
        f'<div class="control" id="{name}-row"><label for="{name}">{label}</label>'
        f'<input type="range" id="{name}-slider" min="0" max="1000" value="0" aria-label="{label}, slider">'
        f'<input type="number" id="{name}" min="{low:g}" max="{high:.12g}" step="{step}" value="{value}"></div>'
    )


_BODY = """<header><h1>Plan a private fit</h1>
<p class="kind">What to expect, from public numbers alone. No data are read, nothing is sent, nothing is spent.</p>
</header>
<div class="controls" role="group" aria-label="What is known">
<div class="control"><label for="model">model</label><select id="model">{choices}</select></div>
{controls}
</div>
<p id="wrong" role="alert"></p>
<ul id="remarks" aria-live="polite"></ul>
<div id="answer" role="status">
<p id="quantity"></p>
<p><span id="median"></span> <span id="interval"></span></p>
<p id="words"></p>
<p id="failure"></p>
<p class="note" id="promise"></p>
</div>
<p class="note"><span id="assumed"></span> Predictions are read off a table of plans; the command below plans
exactly and says what happened on public tables, few of which are as assumed: it was more there. If what is assumed is
wrong, so is the prediction, and the guarantee still holds. The paper's models are not
here: each of their plans rehearses fits on invented rows, for seconds; <code>dpem plan symmetric-mixture</code> and its
like make one.</p>
<section><h2>Against ε and against rows</h2>
<div class="charts">
<svg id="by-epsilon" viewBox="0 0 460 250" role="img" aria-label="The prediction against ε."></svg>
<svg id="by-rows" viewBox="0 0 460 250" role="img" aria-label="The prediction against the number of rows."></svg>
</div>
<p class="note">The line is the median, the band holds nine fits of ten. <span id="bend"></span></p></section>
<section><h2>What ε means</h2>
<div class="wide"><table><caption>Someone who knows every row but one, and has two candidates for it.</caption>
<thead><tr><th scope="col">ε</th><th scope="col">more likely by at most</th>
<th scope="col">a guess is right in</th></tr></thead><tbody id="odds"></tbody></table></div></section>
<section><h2>Several fits on one budget</h2>
<div class="controls">{fits}</div>
<div class="wide"><table><caption>ε and δ above are the total of all fits; prices add up in zCDP.</caption>
<thead><tr><th scope="col">fits</th><th scope="col">ε of each</th><th scope="col">predicted for each</th></tr></thead>
<tbody id="split"></tbody></table></div></section>
<section><h2>Take it along</h2>
<h3>The command</h3><pre id="command"></pre>
<p class="screen"><button type="button" data-copies="command">Copy the command</button></p>
<h3>Python</h3><pre id="python"></pre>
<p class="screen"><button type="button" data-copies="python">Copy the Python</button>
<button type="button" id="print">Print the page to sign</button></p>
<div class="sign"><div>name</div><div>date</div><div>signature</div></div></section>
<footer><p>dpem {version}. This page loads nothing and sends nothing.</p></footer>"""
