"""The base class of displays, and their axes, colours and row labels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import FitSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, BROWN, RED, GREY = "#0b5cad", "#8a5000", "#a3123a", "#525c68"
COLOURS = (BLUE, BROWN, RED, "#2e7d32", "#6a3d9a", "#00838f", "#b8860b", "#5d4037")


class Display:
    """A drawn figure ``figure_``; ``axes_`` are its panels, ``ax_`` the first one."""

    def __init__(self, axes: Sequence[Axes]) -> None:
        self.axes_ = list(axes)
        self.ax_ = self.axes_[0]
        self.figure_ = self.ax_.figure


def panels(axes: Sequence[Axes] | None, count: int, width: float, height: float, **options: Any) -> list[Axes]:
    """The given axes, or new ones side by side, each of the given size in inches."""
    if axes is None:
        return subplots(1, count, figsize=(width * count, height), **options)
    if len(axes) != count:
        raise ValueError(f"axes must have length {count}, one entry for each panel; got {len(axes)}.")
    return list(axes)


def subplots(rows: int, columns: int, **options: Any) -> list[Axes]:
    """The axes of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise RuntimeError("figures need matplotlib; install it with: pip install matplotlib.") from None
    return list(pyplot.subplots(rows, columns, layout="constrained", squeeze=False, **options)[1].ravel())


def dots(ax: Axes, x: ArrayLike, y: ArrayLike, error: Any, colour: str, label: str | None = None) -> None:
    """Dots with horizontal error bars."""
    ax.errorbar(x, y, xerr=error, fmt="o", color=colour, capsize=3, markersize=4, label=label)


def name_rows(ax: Axes, places: ArrayLike, labels: Sequence[str], width: int = 34) -> None:
    """Label the rows of a panel."""
    ax.set_yticks(places, [wrap_label(label, width) for label in labels])
    ax.set_ylim(-0.6, len(labels) - 0.4)


def wrap_label(label: str, width: int = 34) -> str:
    """A label in lines of at most ``width`` letters.

    >>> print(wrap_label("share of rows put into another class than without privacy"))
    share of rows put into another
    class than without privacy
    """
    return "\n".join(textwrap.wrap(label, width)) or label


def summary_of(estimator: PrivateFit) -> FitSummary:
    """The summary of a fitted estimator; a ValueError for anything else."""
    if not hasattr(estimator, "_fit_summary"):
        raise ValueError(f"estimator must be a fitted model of dpem, got {type(estimator).__name__}.")
    return estimator._fit_summary()
