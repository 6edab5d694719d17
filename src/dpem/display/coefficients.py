"""A figure of parameters with their intervals, for one fit or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpem.display.base import COLOURS, GREY, RED, Display, dots, name_rows, subplots, summary_of, wrap_label
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import Estimates
from dpem.query import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Parameters without a common unit are drawn in separate panels if their sizes differ by a larger factor.
SIZE_RATIO = 50.0


class CoefficientDisplay(Display):
    """Parameters with their 95 % intervals; without a common unit, large and small ones have separate panels.

    Attributes
    ----------
    axes_ : list of Axes
        The panels, those of large parameters first.
    ax_, figure_ : Axes, Figure
        The first panel and the figure.
    """

    @classmethod
    def from_estimator(
        cls, estimator: PrivateFit, *, ax: Axes | None = None, names: Sequence[str] | None = None
    ) -> Self:
        """Draw the parameters of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            Any model of this package.
        ax : Axes, optional
            Where to draw; new axes if not given.
        names : sequence of str, optional
            Draw only these parameters, by their names in ``summary()``.
        """
        return cls.from_estimators({"": estimator}, ax=ax, names=names)

    @classmethod
    def from_estimators(
        cls, estimators: Mapping[str, PrivateFit], *, ax: Axes | None = None, names: Sequence[str] | None = None
    ) -> Self:
        """Draw the parameters of several fits, given by their labels. A fit may lack some of the parameters."""
        fits: dict[str, Estimates] = {}
        for label, estimator in estimators.items():
            if (estimates := summary_of(estimator).estimates) is None:
                raise ValueError(
                    f"estimator must have released parameters to draw; {type(estimator).__name__} has not."
                )
            fits[label] = estimates
        return cls(draw_estimates(fits, ax, names))


def draw_estimates(fits: Mapping[str, Estimates], ax: Axes | None, names: Sequence[str] | None) -> list[Axes]:
    """Draw the parameters of fits in the axes, or in new panels."""
    all_names = list(dict.fromkeys(name for estimates in fits.values() for name in estimates.names))
    unknown = [name for name in names or () if name not in all_names]
    if unknown:
        raise ValueError(f"names must be parameters of the model, but {unknown[0]!r} is not.")
    rows = list(names or all_names)
    ends = {label: _ends(estimates, rows) for label, estimates in fits.items()}
    groups = [list(range(len(rows)))]
    if ax is None and any(estimates.scale is None for estimates in fits.values()):
        groups = group_by_size(np.nanmax([np.nanmax(np.abs(part), axis=1) for part in ends.values()], axis=0))
    heights = [0.9 + 0.3 * len(group) for group in groups]
    size: dict[str, Any] = {"figsize": (6.8, sum(heights)), "height_ratios": heights}
    axes = subplots(len(groups), 1, **size) if ax is None else [ax]
    limits = {limit for estimates in fits.values() if (limit := estimates.limit) is not None}
    shifts = np.linspace(0.22, -0.22, len(fits)) if len(fits) > 1 else [0.0]
    for panel, group in zip(axes, groups, strict=True):
        places = np.arange(len(group), dtype=float)[::-1]
        panel.axvline(0.0, color=GREY, linewidth=1)
        for (label, part), shift, colour in zip(ends.items(), shifts, COLOURS * len(ends), strict=False):
            low, value, high = part[group].T
            dots(panel, value, places + shift, [value - low, high - value], colour, label=label)
        for limit in limits:
            for side in (-limit, limit):
                panel.axvline(side, color=RED, linestyle="--", linewidth=1)
        name_rows(panel, places, [rows[j] for j in group])
    first = next(iter(fits.values()))
    axes[-1].set_xlabel(wrap_label(first.scaled or f"{first.what}, with its 95 % interval", 60))
    if len(fits) > 1:
        axes[0].legend(fontsize="small", loc="best")
    return axes


def _ends(estimates: Estimates, rows: Sequence[str]) -> FloatArray:
    """The lower end, estimate and upper end of each row in the figure's unit; NaN where the fit lacks it."""
    scale = 1.0 if estimates.scale is None else estimates.scale
    low, high = estimates.ends
    table = np.column_stack([scale * part for part in (low, estimates.estimate, high)])
    by_name = dict(zip(estimates.names, table, strict=True))
    return np.array([by_name.get(name, np.full(3, np.nan)) for name in rows])


def group_by_size(sizes: FloatArray) -> list[list[int]]:
    """The rows of at most three panels of similar sizes, large ones first, each in the order of the rows.

    >>> group_by_size(np.array([60.0, 0.5, 0.7, 50.0]))
    [[0, 3], [1, 2]]
    """
    order = np.argsort(-sizes, kind="stable")
    groups: list[list[int]] = [[int(order[0])]]
    for j in order[1:].tolist():
        if sizes[groups[-1][0]] > SIZE_RATIO * max(sizes[j], 1e-300) and len(groups) < 3:
            groups.append([])
        groups[-1].append(j)
    return [sorted(group) for group in groups]
