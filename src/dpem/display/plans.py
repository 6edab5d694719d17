"""Figures of what is predicted of plans against ε or the number of rows, and of what the queries of a fit cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from dpem.display.axes import BLUE, BROWN, axes, summary_of, wrapped
from dpem.fitting.sequence import PrivateFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(kw_only=True)
class PlanDisplay:
    """The predictions of plans: the median, and the interval of 90 % of fits.

    Parameters
    ----------
    x : array
        ε, or numbers of rows.
    median, low, high : arrays
        The prediction at each.
    quantity, along : str
        The predicted quantity, and the quantity on the horizontal axis.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.
    """

    x: ArrayLike
    median: ArrayLike
    low: ArrayLike
    high: ArrayLike
    quantity: str
    along: str

    @classmethod
    def from_estimator(
        cls,
        estimator: PrivateFit,
        n: int | Sequence[int],
        d: int | None = None,
        *,
        epsilon: Sequence[float] = EPSILONS,
        ax: Axes | None = None,
    ) -> Self:
        """Plan an estimator, fitted or not, over several ε, or over several numbers of rows.

        Parameters
        ----------
        estimator : estimator
            With its constructor's arguments; its own ε is used where ``n`` is a sequence.
        n : int or sequence of int
            Rows. A sequence draws the prediction against the number of rows.
        d : int, optional
            Columns, where the estimator's bounds and levels do not name them.
        epsilon : sequence of float
            Where ``n`` is one number: the ε to plan for.
        ax : Axes, optional
            Where to draw; new axes if not given.
        """
        if not hasattr(estimator, "plan"):
            raise ValueError(f"estimator must have a plan method, got {type(estimator).__name__}.")
        rows = isinstance(n, Sequence | np.ndarray)
        points: list[float] = [float(value) for value in (n if rows else epsilon)]  # type: ignore[union-attr]
        plans = [
            estimator.plan(int(value), d) if rows else clone(estimator).set_params(epsilon=value).plan(n, d)
            for value in points
        ]
        found = [(x, p.median, p.low, p.high) for x, plan in zip(points, plans, strict=True) if (p := plan.prediction)]
        if not found:
            raise ValueError(f"{type(estimator).__name__} makes no prediction of this kind: there is nothing to draw.")
        x, median, low, high = np.array(found).T
        quantity = next(plan.prediction.quantity for plan in plans if plan.prediction)
        along = "rows" if rows else "ε"
        return cls(x=x, median=median, low=low, high=high, quantity=quantity, along=along).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw, on given axes or new ones."""
        ax = axes(ax, 5.2, 3.4)
        ax.fill_between(self.x, self.low, self.high, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(self.x, self.median, "o-", color=BLUE, markersize=4)
        ax.set_xscale("log")
        if np.asarray(self.low).min() > 0:
            ax.set_yscale("log")
        ax.set_xlabel(self.along)
        ax.set_title(wrapped(self.quantity, 52), fontsize="medium", loc="left")
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(kw_only=True)
class PriceDisplay:
    """The prices of the queries, as shares of the charged price; queries of one kind are one bar.

    Parameters
    ----------
    queries : sequence of str
        The kinds of queries, in order.
    shares : sequence of float
        The share of the price of each.
    values : sequence of bool
        Whether it measured values (otherwise it selected among candidates).

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.
    """

    queries: Sequence[str]
    shares: Sequence[float]
    values: Sequence[bool]

    @classmethod
    def from_estimator(cls, estimator: PrivateFit, *, ax: Axes | None = None) -> Self:
        """Draw the prices of a fitted estimator's queries.

        Parameters
        ----------
        estimator : fitted estimator
            Any estimator of this package; the non-private reference has no price.
        ax : Axes, optional
            Where to draw; new axes if not given.
        """
        summary_of(estimator)
        total = estimator.guarantee_.price.rho
        if not 0 < total < np.inf:
            raise ValueError("estimator must be a private fit: one without noise has no price.")
        groups: dict[tuple[str, bool], list[float]] = {}
        for release in estimator.releases_:
            groups.setdefault((release.query, release.price.gaussian), []).append(release.price.rho / total)
        return cls(
            queries=[f"{query} (×{len(s)})" if len(s) > 1 else query for (query, _), s in groups.items()],
            shares=[sum(shares) for shares in groups.values()],
            values=[gaussian for _, gaussian in groups],
        ).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw, on given axes or new ones."""
        labels = [wrapped(words, 44) for words in self.queries]
        ax = axes(ax, 7.0, 0.9 + sum(0.25 + 0.17 * label.count("\n") for label in labels))
        places = np.arange(len(self.shares))[::-1]
        colours = [BLUE if value else BROWN for value in self.values]
        ax.barh(places, [100 * share for share in self.shares], color=colours, height=0.6)
        ax.set_yticks(places, labels)
        ax.set_xlabel("share of the price, in %")
        self.ax_, self.figure_ = ax, ax.figure
        return self
