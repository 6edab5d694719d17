"""The planner: an HTML page for choosing ε, rows and columns before there are data.

Its script interpolates a table of plans; to compute the table takes minutes, so it comes with the package. The page
loads no other file, reads no data and spends nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from dpem import _html
from dpem._files import write_text
from dpem._validation import ArgumentError
from dpem._version import __version__

#: Predictions on a grid of public numbers, computed by ``python -m studies.planner_grid``.
GRID = Path(__file__).with_name("grid.json")
#: The fields: name, label, minimum, maximum, step.
FIELDS = (
    ("n", "rows", 100, 10_000_000, "1"),
    ("d", "columns (without the response)", 1, 1000, "1"),
    ("epsilon", "ε, the privacy loss of one person", 0.05, 20, "any"),
    ("delta", "δ, well below one over the rows", 1e-12, 1e-2, "any"),
    ("groups", "components", 2, 8, "1"),
    ("effect", "how strong the effects are", 0, 100, "any"),
    ("fits", "fits that share ε and δ", 1, 10, "1"),
)


def page(*, grid: dict[str, dict[str, object]] | None = None, start: dict[str, object] | None = None) -> str:
    """The planner's page.

    Parameters
    ----------
    grid : dict, optional
        The table of plans; by default the package's.
    start : dict, optional
        Initial values of the fields: ``model``, ``n``, ``d``, ``epsilon``, ``delta``, ``groups``, ``effect``,
        ``fits``.

    Returns
    -------
    str
        HTML that loads no other file and allows no script but its own.

    Examples
    --------
    >>> html = page(start={"epsilon": 2})
    >>> "http://" in html or "https://" in html
    False
    """
    plans = json.loads(GRID.read_text(encoding="utf-8")) if grid is None else grid
    if not plans["models"]:
        raise ArgumentError("grid", "must have at least one model that makes predictions.")
    model = "linear-regression" if "linear-regression" in plans["models"] else next(iter(plans["models"]))
    defaults = {"model": model, "n": 20_000, "d": 10, "epsilon": 1, "delta": 1e-6, "groups": 3}
    first = {**defaults, "fits": 3, "effect": "", **(start or {})}
    if first["model"] not in plans["models"]:
        raise ArgumentError("model", f"must be one of {', '.join(plans['models'])}; got {first['model']!r}.")
    names = ("name", "label", "low", "high", "step", "value")
    rows = [(name, label, f"{low:g}", f"{high:.12g}", step, first[name]) for name, label, low, high, step in FIELDS]
    *fields, fits = [dict(zip(names, row, strict=True)) for row in rows]
    return _html.page(
        "planner.html",
        style=_html.source("style.css"),
        script=_html.source("planner.js"),
        metas=[],
        title="Plan a private fit",
        grid=json.dumps(plans, separators=(",", ":")).replace("<", "\\u003c"),
        models=list(plans["models"]),
        first=first,
        fields=fields,
        fits=fits,
        version=__version__,
    )


def write_page(path: str | os.PathLike[str]) -> None:
    """Write the planner to ``path``, as a whole or not at all; see :func:`page`."""
    write_text(path, page())
