"""Axes for the displays, and labels that are wrapped."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import FitSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, BROWN, GREY = "#0b5cad", "#8a5000", "#525c68"
COLOURS = (BLUE, BROWN, "#a3123a", "#2e7d32", "#6a3d9a", "#00838f", "#b8860b", "#5d4037")


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes ``ax``, or new ones of this size in inches."""
    return panels(1, width, height)[0] if ax is None else ax


def panels(columns: int, width: float, height: float, *, share: bool = True) -> list[Axes]:
    """New axes side by side, each of this size in inches."""
    size = (width * columns, height)
    return _subplots(1, columns, figsize=size, sharey=share)


def stacked(counts: Sequence[int], width: float, each: float) -> list[Axes]:
    """New axes below one another, with heights in proportion to their numbers of rows."""
    heights = [0.9 + each * count for count in counts]
    return _subplots(len(counts), 1, figsize=(width, sum(heights)), height_ratios=heights)


def _subplots(rows: int, columns: int, **options: Any) -> list[Axes]:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise RuntimeError("drawing needs matplotlib: pip install matplotlib.") from None
    return list(pyplot.subplots(rows, columns, layout="constrained", squeeze=False, **options)[1].ravel())


def wrapped(label: str, width: int = 34) -> str:
    """A label, wrapped to lines of this width.

    >>> print(wrapped("share of rows put into another class than without privacy"))
    share of rows put into another
    class than without privacy
    """
    return "\n".join(textwrap.wrap(label, width)) or label


def summary_of(estimator: PrivateFit) -> FitSummary:
    """The summary of a fitted estimator; a ValueError for anything else."""
    if not hasattr(estimator, "_fit_summary"):
        raise ValueError(f"estimator must be a fitted model of dpem, got {type(estimator).__name__}.")
    return estimator._fit_summary()
