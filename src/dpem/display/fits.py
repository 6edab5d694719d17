"""Pictures of a fit: its parameters, its groups, its price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from dpem.display.axes import BLUE, BROWN, COLOURS, GREY, axes, panels, summary_of
from dpem.fitting.summary import Estimates, Profile


class CoefficientDisplay:
    """Parameters with their 95 % intervals.

    Parameters
    ----------
    estimates : Estimates
        What the estimator tells of its parameters.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.
    """

    def __init__(self, *, estimates: Estimates) -> None:
        self.estimates = estimates

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, names: Sequence[str] | None = None) -> Self:
        """Draw the parameters of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            Any model of this package.
        ax : Axes, optional
            Where to draw; new axes if not given.
        names : sequence of str, optional
            Draw these parameters only, as ``summary()`` names them.

        Returns
        -------
        CoefficientDisplay
        """
        summary = summary_of(estimator)
        if summary.estimates is None:
            raise ValueError(f"estimator released no parameters to draw; it is a {type(estimator).__name__}.")
        return cls(estimates=summary.estimates).plot(ax, names=names)

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> Self:
        """Draw, on given axes or new ones; ``names`` picks parameters.

        Returns
        -------
        self
        """
        own = self.estimates
        unknown = [name for name in names or () if name not in own.names]
        if unknown:
            raise ValueError(f"names must be parameters of the model; {unknown[0]!r} is none.")
        rows = [own.names.index(name) for name in names] if names else list(range(len(own.names)))
        scale = np.ones(len(own.names)) if own.scale is None else own.scale
        value, low, high = ((part * scale)[rows] for part in (own.value, own.low, own.high))
        ax = axes(ax, 6.4, 1.2 + 0.28 * len(rows))
        places = np.arange(len(rows))[::-1]
        ax.axvline(0.0, color=GREY, linewidth=1)
        ax.errorbar(value, places, xerr=[value - low, high - value], fmt="o", color=BLUE, capsize=3, markersize=4)
        if own.limit is not None:
            for side in (-own.limit, own.limit):
                ax.axvline(side, color=COLOURS[2], linestyle="--", linewidth=1)
        ax.set_yticks(places, [own.names[j] for j in rows])
        ax.set_xlabel(own.scaled or f"{own.what}, with its 95 % interval")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class MixtureDisplay:
    """What is typical of each group: a panel a group, a line a column, over the column's public bounds.

    Parameters
    ----------
    profile : Profile
        What the estimator tells of its groups.

    Attributes
    ----------
    axes_, figure_ : list of Axes, Figure
        Where it was drawn.
    """

    def __init__(self, *, profile: Profile) -> None:
        self.profile = profile

    @classmethod
    def from_estimator(cls, estimator: Any, *, axes: Sequence[Any] | None = None) -> Self:
        """Draw the groups of a fitted mixture or latent-class model.

        Parameters
        ----------
        estimator : fitted estimator
            A model that finds groups.
        axes : sequence of Axes, optional
            One for each group; new ones if not given.

        Returns
        -------
        MixtureDisplay
        """
        profile = summary_of(estimator).profile
        if profile is None:
            raise ValueError(f"estimator must be a model that finds groups, got {type(estimator).__name__}.")
        return cls(profile=profile).plot(axes)

    def plot(self, axes: Sequence[Any] | None = None) -> Self:
        """Draw, on given axes (one a group) or new ones.

        Returns
        -------
        self
        """
        own = self.profile
        K, d = len(own.groups), len(own.columns)
        if axes is not None and len(axes) != K:
            raise ValueError(f"axes must be one for each of {K} groups, got {len(axes)}.")
        self.axes_ = list(axes) if axes is not None else panels(K, 3.4, 1.2 + 0.28 * d)
        places = np.arange(d)[::-1]
        middle, width = own.low, np.where(own.high > own.low, own.high - own.low, 1.0)
        for k, ax in enumerate(self.axes_):
            value = (own.centre[k] - middle) / width
            if own.bars:
                ax.barh(places, value, color=COLOURS[k % len(COLOURS)], height=0.6)
            else:
                spread = None if own.spread is None else own.spread[k] / width
                ax.errorbar(value, places, xerr=spread, fmt="o", color=COLOURS[k % len(COLOURS)], capsize=3)
            ax.set_xlim(0, 1)
            ax.set_yticks(places, own.columns)
            ax.set_title(f"{own.groups[k]}: {100 * own.share[k]:.0f} %", fontsize="medium")
            ax.set_xlabel("probability" if own.bars else "between the bounds")
        self.figure_ = self.axes_[0].figure
        return self


class PriceDisplay:
    """What each question cost, as a part of the price that was charged.

    Parameters
    ----------
    questions : sequence of str
        What was asked, in order.
    shares : sequence of float
        The part of the price of each.
    values : sequence of bool
        Whether it measured values (else it chose places).

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.
    """

    def __init__(self, *, questions: Sequence[str], shares: Sequence[float], values: Sequence[bool]) -> None:
        self.questions, self.shares, self.values = list(questions), list(shares), list(values)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw what a fitted estimator asked and paid.

        Parameters
        ----------
        estimator : fitted estimator
            Any estimator of this package; the non-private reference has no price.
        ax : Axes, optional
            Where to draw; new axes if not given.

        Returns
        -------
        PriceDisplay
        """
        summary_of(estimator)
        whole = estimator.guarantee_.price.rho
        if not 0 < whole < np.inf:
            raise ValueError("estimator must be a private fit: one without noise has no price.")
        asked = estimator.releases_
        return cls(
            questions=[f"{i}. {release.query}" for i, release in enumerate(asked, start=1)],
            shares=[release.price.rho / whole for release in asked],
            values=[release.price.gaussian for release in asked],
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw, on given axes or new ones.

        Returns
        -------
        self
        """
        ax = axes(ax, 6.4, 1.0 + 0.3 * len(self.shares))
        places = np.arange(len(self.shares))[::-1]
        colours = [BLUE if value else BROWN for value in self.values]
        ax.barh(places, [100 * share for share in self.shares], color=colours, height=0.6)
        ax.set_yticks(places, self.questions)
        ax.set_xlabel("part of the price, in %")
        self.ax_, self.figure_ = ax, ax.figure
        return self
