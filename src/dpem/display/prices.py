"""A figure of the price of each kind of query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from dpem.display.axes import BLUE, BROWN, axes, summary_of, wrapped
from dpem.fitting.sequence import PrivateFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def __init__(self, *, queries: Sequence[str], shares: Sequence[float], values: Sequence[bool]) -> None:
        self.queries, self.shares, self.values = list(queries), list(shares), list(values)

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
