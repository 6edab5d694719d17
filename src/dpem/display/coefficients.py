"""A figure of parameters with their intervals, of one fit or of several."""

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

#: Parameters whose sizes differ by a larger factor are drawn in separate panels.
SIZE_RATIO = 50.0


class CoefficientDisplay(Display):
    """Parameters with their 95 % intervals, in panels of similar size, so that no scale hides another.

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
            Where to draw, on one scale; new axes, one for each scale, if not given.
        names : sequence of str, optional
            Draw these parameters only, as ``summary()`` names them.
        """
        return cls.from_estimators({"": estimator}, ax=ax, names=names)

    @classmethod
    def from_estimators(
        cls, estimators: Mapping[str, PrivateFit], *, ax: Axes | None = None, names: Sequence[str] | None = None
    ) -> Self:
        """Draw the parameters of several fits, by their labels, side by side. A fit may lack some of them."""
        fits: dict[str, Estimates] = {}
        for label, estimator in estimators.items():
            if (estimates := summary_of(estimator).estimates) is None:
                raise ValueError(f"estimator released no parameters to draw; it is a {type(estimator).__name__}.")
            fits[label] = estimates
        return cls(draw_estimates(fits, ax, names))


def draw_estimates(fits: Mapping[str, Estimates], ax: Axes | None, names: Sequence[str] | None) -> list[Axes]:
    """The parameters of fits, in the axes or in a panel for each order of magnitude."""
    all_names = list(dict.fromkeys(name for estimates in fits.values() for name in estimates.names))
    unknown = [name for name in names or () if name not in all_names]
    if unknown:
        raise ValueError(f"names must be parameters of the model; {unknown[0]!r} is none.")
    rows = list(names or all_names)
    ends = {label: _ends(estimates, rows) for label, estimates in fits.items()}
    reach = np.nanmax([np.nanmax(np.abs(part), axis=1) for part in ends.values()], axis=0)
    groups = group_by_size(reach) if ax is None else [list(range(len(rows)))]
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
    """Lower end, estimate and upper end of each row on the figure's scale; NaN where the fit lacks it."""
    scale = 1.0 if estimates.scale is None else estimates.scale
    low, high = estimates.ends
    table = np.column_stack([scale * part for part in (low, estimates.estimate, high)])
    by_name = dict(zip(estimates.names, table, strict=True))
    return np.array([by_name.get(name, np.full(3, np.nan)) for name in rows])


def group_by_size(reach: FloatArray) -> list[list[int]]:
    """Rows in panels of similar size, large ones first, each in the order of the rows.

    >>> group_by_size(np.array([60.0, 0.5, 0.7, 50.0]))
    [[0, 3], [1, 2]]
    """
    order = np.argsort(-reach, kind="stable")
    groups: list[list[int]] = [[int(order[0])]]
    for j in order[1:].tolist():
        if reach[groups[-1][0]] > SIZE_RATIO * max(reach[j], 1e-300) and len(groups) < 3:
            groups.append([])
        groups[-1].append(j)
    return [sorted(group) for group in groups]
