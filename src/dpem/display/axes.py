"""Where a picture is drawn: given axes, or new ones."""

from __future__ import annotations

from typing import Any

BLUE, BROWN, GREY = "#0b5cad", "#8a5000", "#525c68"
COLOURS = (BLUE, BROWN, "#a3123a", "#2e7d32", "#6a3d9a", "#00838f", "#b8860b", "#5d4037")


def axes(ax: Any, width: float, height: float) -> Any:
    """The axes given, or new ones of that size in inches."""
    return panels(1, width, height)[0] if ax is None else ax


def panels(count: int, width: float, height: float) -> list[Any]:
    """New axes, side by side."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise RuntimeError("drawing needs matplotlib: pip install matplotlib.") from None
    made = pyplot.subplots(1, count, figsize=(width * count, height), sharey=True, layout="constrained", squeeze=False)
    return list(made[1][0])


def summary_of(estimator: Any) -> Any:
    """What a fitted estimator tells, or a refusal that names what came."""
    if not hasattr(estimator, "_fit_summary"):
        raise ValueError(f"estimator must be a fitted model of dpem, got {type(estimator).__name__}.")
    return estimator._fit_summary()
