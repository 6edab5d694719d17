"""Figures of mixture components and latent classes: profiles, and ellipses on pairs of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Self

import numpy as np

from dpem.display.axes import COLOURS, panels, summary_of, wrapped
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import Profile
from dpem.query import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(kw_only=True)
class MixtureDisplay:
    """The centre and spread of each component: a panel for each component, a line for each column.

    Parameters
    ----------
    profile : Profile
        The components, as the estimator's summary has them.

    Attributes
    ----------
    axes_, figure_ : list of Axes, Figure
        Where it was drawn.
    """

    profile: Profile

    @classmethod
    def from_estimator(cls, estimator: PrivateFit, *, axes: Sequence[Axes] | None = None) -> Self:
        """Draw the components of a fitted mixture or latent-class model.

        Parameters
        ----------
        estimator : fitted estimator
            A model with components or classes.
        axes : sequence of Axes, optional
            One for each component; new ones if not given.
        """
        profile = summary_of(estimator).profile
        if profile is None:
            raise ValueError(f"estimator must be a model with components, got {type(estimator).__name__}.")
        return cls(profile=profile).plot(axes)

    def plot(self, axes: Sequence[Axes] | None = None) -> Self:
        """Draw, on given axes (one for each component) or new ones."""
        profile = self.profile
        K, d = len(profile.labels), len(profile.columns)
        if axes is not None and len(axes) != K:
            raise ValueError(f"axes must be one for each of {K} components, got {len(axes)}.")
        self.axes_ = list(axes) if axes is not None else panels(K, 3.4, 1.4 + 0.3 * d)
        places = np.arange(d)[::-1]
        width = np.where(profile.high > profile.low, profile.high - profile.low, 1.0)
        centre = (profile.centre - profile.low) / width
        spread = np.zeros_like(centre) if profile.spread is None else profile.spread / width
        low, high = (centre - spread).min(), (centre + spread).max()
        pad = 0.06 * (high - low) or 0.1
        for k, ax in enumerate(self.axes_):
            colour = COLOURS[k % len(COLOURS)]
            if profile.bars:
                ax.barh(places, centre[k], color=colour, height=0.6)
                ax.set_xlim(0, 1)
            else:
                error = None if profile.spread is None else spread[k]
                ax.errorbar(centre[k], places, xerr=error, fmt="o", color=colour, capsize=3)
                ax.set_xlim(low - pad, high + pad)
            ax.set_yticks(places, [wrapped(name, 28) for name in profile.columns])
            ax.set_ylim(-0.6, d - 0.4)
            ax.set_title(f"{profile.labels[k]}: {100 * profile.share[k]:.0f} %", fontsize="medium")
            ax.set_xlabel("probability" if profile.bars else wrapped("place between the bounds (0 to 1)", 24))
        self.figure_ = self.axes_[0].figure
        return self


@dataclass(kw_only=True)
class EllipseDisplay:
    """Gaussian components on pairs of columns: ellipses of one and two standard deviations, and crosses that show how
    far each centre may be off (95 %).

    Parameters
    ----------
    columns : sequence of str
        Names of the columns.
    means, errors : arrays of shape (K, d)
        Centres, and the standard errors of them (NaN where unknown).
    covariances : array of shape (K, d, d)
        Covariances of the components.
    labels : sequence of str
        Names of the components.

    Attributes
    ----------
    axes_, figure_ : list of Axes, Figure
        Where it was drawn, a panel for each pair.
    """

    columns: Sequence[str]
    means: FloatArray
    errors: FloatArray
    covariances: FloatArray
    labels: Sequence[str]

    @classmethod
    def from_estimator(
        cls,
        estimator: PrivateFit,
        *,
        pairs: Sequence[tuple[str, str]] | None = None,
        axes: Sequence[Axes] | None = None,
    ) -> Self:
        """Draw the components of a fitted Gaussian mixture.

        Parameters
        ----------
        estimator : fitted DPGaussianMixture
            The mixture.
        pairs : sequence of (str, str), optional
            Pairs of columns; if not given, those of the three columns in which the components differ most.
        axes : sequence of Axes, optional
            One for each pair; new ones if not given.
        """
        summary = summary_of(estimator)
        if summary.profile is None or not hasattr(estimator, "covariances_"):
            raise ValueError(f"estimator must be a fitted Gaussian mixture, got {type(estimator).__name__}.")
        profile, estimates = summary.profile, summary.estimates
        means = np.asarray(profile.centre)
        errors = np.full(means.shape, np.nan)
        for k, label in enumerate(profile.labels):
            for j, column in enumerate(profile.columns):
                name = f"{label}: mean of {column}"
                if estimates is not None and name in estimates.names:
                    errors[k, j] = estimates.error[estimates.names.index(name)]
        full = matrices(np.asarray(estimator.covariances_), *means.shape)
        display = cls(columns=profile.columns, means=means, errors=errors, covariances=full, labels=profile.labels)
        return display.plot(pairs, axes)

    def plot(self, pairs: Sequence[tuple[str, str]] | None = None, axes: Sequence[Axes] | None = None) -> Self:
        """Draw, on given axes (one for each pair) or new ones."""
        for name in (name for pair in pairs or () for name in pair):
            if name not in self.columns:
                raise ValueError(f"pairs must hold columns of the model; {name!r} is none.")
        chosen = list(pairs or combinations([self.columns[j] for j in self._most_different()], 2))
        if axes is not None and len(axes) != len(chosen):
            raise ValueError(f"axes must be one for each of {len(chosen)} pairs, got {len(axes)}.")
        self.axes_ = list(axes) if axes is not None else panels(len(chosen), 4.2, 3.8, share=False)
        for ax, pair in zip(self.axes_, chosen, strict=True):
            self._draw(ax, *(self.columns.index(name) for name in pair))
            ax.set_xlabel(wrapped(pair[0]))
            ax.set_ylabel(wrapped(pair[1]))
        self.axes_[0].legend(fontsize="small", loc="best")
        self.figure_ = self.axes_[0].figure
        return self

    def _most_different(self) -> list[int]:
        """The three columns in which the centres lie furthest apart, in standard deviations."""
        spread = np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2)).mean(axis=0)
        apart = (self.means.max(axis=0) - self.means.min(axis=0)) / np.where(spread > 0, spread, 1.0)
        return sorted(np.argsort(-apart, kind="stable")[:3].tolist())

    def _draw(self, ax: Axes, i: int, j: int) -> None:
        from matplotlib.patches import Ellipse

        for k, label in enumerate(self.labels):
            colour, at = COLOURS[k % len(COLOURS)], [i, j]
            centre = (float(self.means[k, i]), float(self.means[k, j]))
            values, vectors = np.linalg.eigh(self.covariances[k][np.ix_(at, at)])
            angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
            for size, alpha in ((1, 0.35), (2, 0.15)):
                axis = 2 * size * np.sqrt(np.maximum(values, 0.0))
                ax.add_patch(Ellipse(centre, axis[1], axis[0], angle=angle, color=colour, alpha=alpha, lw=0))
            reach = 1.96 * np.nan_to_num(self.errors[k, at])
            ax.errorbar(*centre, reach[1], reach[0], fmt="o", color=colour, capsize=3, ms=3, label=label)
        ax.autoscale_view()


def matrices(covariances: FloatArray, K: int, d: int) -> FloatArray:
    """Covariances of any type as one matrix for each component.

    >>> matrices(np.array([1.0, 4.0]), 2, 2).tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[4.0, 0.0], [0.0, 4.0]]]
    """
    if covariances.shape == (K, d, d):
        return covariances
    if covariances.shape == (K,):
        return np.asarray(covariances[:, None, None] * np.eye(d))
    if covariances.shape == (K, d) and not (d == K and np.allclose(covariances, covariances.T)):
        return np.asarray(covariances[:, :, None] * np.eye(d))
    return np.broadcast_to(covariances, (K, d, d)).copy()
