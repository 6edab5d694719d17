"""A figure of parameters with their intervals, of one fit or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from dpem.display.axes import COLOURS, GREY, stacked, summary_of, wrapped
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import Estimates
from dpem.query import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Parameters whose sizes differ by a larger factor are drawn in separate panels.
APART = 50.0


@dataclass(kw_only=True)
class CoefficientDisplay:
    """Parameters with their 95 % intervals, in panels of similar size, so that no scale hides another.

    Parameters
    ----------
    estimates : mapping of str to Estimates
        The parameters of each fit, by the label of the fit.

    Attributes
    ----------
    axes_ : list of Axes
        The panels, those of large parameters first.
    ax_, figure_ : Axes, Figure
        The first panel and the figure.
    """

    estimates: Mapping[str, Estimates]

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
        """Draw the parameters of several fits side by side, such as fits at several ε.

        Parameters
        ----------
        estimators : mapping of str to fitted estimator
            The fits, by their labels. A parameter that a fit does not have is left out for it.
        ax : Axes, optional
            Where to draw, on one scale; new axes, one for each scale, if not given.
        names : sequence of str, optional
            Draw these parameters only.
        """
        by_label: dict[str, Estimates] = {}
        for label, estimator in estimators.items():
            estimates = summary_of(estimator).estimates
            if estimates is None:
                raise ValueError(f"estimator released no parameters to draw; it is a {type(estimator).__name__}.")
            by_label[label] = estimates
        return cls(estimates=by_label).plot(ax, names=names)

    def plot(self, ax: Axes | None = None, *, names: Sequence[str] | None = None) -> Self:
        """Draw, on given axes or new ones; ``names`` picks parameters."""
        all_names = list(dict.fromkeys(name for estimates in self.estimates.values() for name in estimates.names))
        unknown = [name for name in names or () if name not in all_names]
        if unknown:
            raise ValueError(f"names must be parameters of the model; {unknown[0]!r} is none.")
        rows = list(names or all_names)
        ends = {label: _ends(estimates, rows) for label, estimates in self.estimates.items()}
        reach = np.nanmax([np.nanmax(np.abs(part), axis=1) for part in ends.values()], axis=0)
        groups = [list(range(len(rows)))] if ax is not None else by_size(reach)
        self.axes_ = [ax] if ax is not None else stacked([len(group) for group in groups], 6.8, 0.3)
        for panel, group in zip(self.axes_, groups, strict=True):
            self._panel(panel, [rows[j] for j in group], {label: part[group] for label, part in ends.items()})
        first = next(iter(self.estimates.values()))
        self.axes_[-1].set_xlabel(wrapped(first.scaled or f"{first.what}, with its 95 % interval", 60))
        if len(self.estimates) > 1:
            self.axes_[0].legend(fontsize="small", loc="best")
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        return self

    def _panel(self, ax: Axes, names: Sequence[str], ends: Mapping[str, FloatArray]) -> None:
        places = np.arange(len(names), dtype=float)[::-1]
        shifts = np.linspace(0.22, -0.22, len(ends)) if len(ends) > 1 else [0.0]
        ax.axvline(0.0, color=GREY, linewidth=1)
        for k, ((label, part), shift) in enumerate(zip(ends.items(), shifts, strict=True)):
            low, value, high = part.T
            error, colour = [value - low, high - value], COLOURS[k % len(COLOURS)]
            ax.errorbar(value, places + shift, xerr=error, fmt="o", color=colour, capsize=3, markersize=4, label=label)
        for estimates in self.estimates.values():
            for side in () if estimates.limit is None else (-estimates.limit, estimates.limit):
                ax.axvline(side, color=COLOURS[2], linestyle="--", linewidth=1)
        ax.set_yticks(places, [wrapped(name) for name in names])
        ax.set_ylim(-0.6, len(names) - 0.4)


def _ends(estimates: Estimates, rows: Sequence[str]) -> FloatArray:
    """Lower end, estimate and upper end of each row on the figure's scale; NaN where the fit lacks it."""
    scale = np.ones(len(estimates.names)) if estimates.scale is None else estimates.scale
    ends = np.full((len(rows), 3), np.nan)
    for i, name in enumerate(rows):
        if name in estimates.names:
            j = estimates.names.index(name)
            ends[i] = np.array([estimates.low[j], estimates.value[j], estimates.high[j]]) * scale[j]
    return ends


def by_size(reach: FloatArray) -> list[list[int]]:
    """Rows in panels of similar size, large ones first, each in the order of the rows.

    >>> by_size(np.array([60.0, 0.5, 0.7, 50.0]))
    [[0, 3], [1, 2]]
    """
    order = np.argsort(-reach, kind="stable")
    groups: list[list[int]] = [[int(order[0])]]
    for j in order[1:].tolist():
        if reach[groups[-1][0]] > APART * max(reach[j], 1e-300) and len(groups) < 3:
            groups.append([])
        groups[-1].append(j)
    return [sorted(group) for group in groups]
