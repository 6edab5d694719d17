"""Where a picture is drawn: given axes or new ones, and labels that are never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import FitSummary

BLUE, BROWN, GREY = "#0b5cad", "#8a5000", "#525c68"
COLOURS = (BLUE, BROWN, "#a3123a", "#2e7d32", "#6a3d9a", "#00838f", "#b8860b", "#5d4037")


def axes(ax: Any, width: float, height: float) -> Any:
    """The axes given, or new ones of that size in inches."""
    return panels(1, width, height)[0] if ax is None else ax


def panels(columns: int, width: float, height: float, *, share: bool = True) -> list[Any]:
    """New axes of that size each, side by side."""
    size = (width * columns, height)
    return _subplots(1, columns, figsize=size, sharey=share)


def stacked(counts: Sequence[int], width: float, each: float) -> list[Any]:
    """New axes below one another, as high as the numbers of rows they hold."""
    size = (width, sum(0.9 + each * count for count in counts))
    return _subplots(len(counts), 1, figsize=size, height_ratios=[0.9 + each * count for count in counts])


def _subplots(rows: int, columns: int, **given: Any) -> list[Any]:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise RuntimeError("drawing needs matplotlib: pip install matplotlib.") from None
    return list(pyplot.subplots(rows, columns, layout="constrained", squeeze=False, **given)[1].ravel())


def wrapped(label: str, width: int = 34) -> str:
    """A label on as many lines as it needs.

    >>> print(wrapped("share of rows put into another class than without privacy"))
    share of rows put into another
    class than without privacy
    """
    return "\n".join(textwrap.wrap(label, width)) or label


def summary_of(estimator: PrivateFit) -> FitSummary:
    """The summary of a fitted estimator, or a refusal that names what came."""
    if not hasattr(estimator, "_fit_summary"):
        raise ValueError(f"estimator must be a fitted model of dpem, got {type(estimator).__name__}.")
    found: FitSummary = estimator._fit_summary()
    return found
