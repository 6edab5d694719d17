"""Figures of mixture components and latent classes: profiles, and ellipses on pairs of columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Self

import numpy as np

from dpem.display.base import COLOURS, Display, dots, name_rows, panels, summary_of, wrap_label
from dpem.fitting.sequence import PrivateFit
from dpem.query import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class MixtureDisplay(Display):
    """The centre and spread of each component: a panel for each component, a line for each column.

    Attributes
    ----------
    axes_, figure_ : list of Axes, Figure
        Where it was drawn.
    """

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
            raise ValueError(f"estimator must be a fitted model with components, got {type(estimator).__name__}.")
        places = np.arange(len(profile.columns))[::-1]
        axes = panels(axes, len(profile.labels), 3.4, 1.4 + 0.3 * len(places), sharey=True)
        width = np.where(profile.high > profile.low, profile.high - profile.low, 1.0)
        centre = (profile.centre - profile.low) / width
        spread = np.zeros_like(centre) if profile.spread is None else profile.spread / width
        low, high = (centre - spread).min(), (centre + spread).max()
        pad = 0.06 * (high - low) or 0.1
        for k, (ax, colour) in enumerate(zip(axes, COLOURS * len(axes), strict=False)):
            if profile.bars:
                ax.barh(places, centre[k], color=colour, height=0.6)
            else:
                dots(ax, centre[k], places, None if profile.spread is None else spread[k], colour)
            ax.set_xlim(*((0, 1) if profile.bars else (low - pad, high + pad)))
            name_rows(ax, places, profile.columns, 28)
            ax.set_title(f"{profile.labels[k]}: {100 * profile.share[k]:.0f} %", fontsize="medium")
            ax.set_xlabel("probability" if profile.bars else wrap_label("position between the bounds (0 to 1)", 24))
        return cls(axes)


class EllipseDisplay(Display):
    """Gaussian components in pairs of columns: ellipses of one and two standard deviations, and crosses of the 95 %
    intervals of their centres.

    Attributes
    ----------
    axes_, figure_ : list of Axes, Figure
        Where it was drawn, a panel for each pair.
    """

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
            Pairs of columns; if not given, the pairs of the three columns in which the components differ most.
        axes : sequence of Axes, optional
            One for each pair; new ones if not given.
        """
        from matplotlib.patches import Ellipse

        profile, estimates = (summary := summary_of(estimator)).profile, summary.estimates
        if profile is None or not hasattr(estimator, "covariances_"):
            raise ValueError(f"estimator must be a fitted Gaussian mixture, got {type(estimator).__name__}.")
        unknown = [name for pair in pairs or () for name in pair if name not in profile.columns]
        if unknown:
            raise ValueError(f"pairs must name columns of the model, but {unknown[0]!r} is not one.")
        covariances = covariance_matrices(estimator, *profile.centre.shape)
        errors = {} if estimates is None else dict(zip(estimates.names, estimates.total, strict=True))
        differing = [profile.columns[j] for j in _most_different(profile.centre, covariances)]
        column_pairs = list(pairs or combinations(differing, 2))
        axes = panels(axes, len(column_pairs), 4.2, 3.8)
        for ax, names in zip(axes, column_pairs, strict=True):
            pair = [profile.columns.index(name) for name in names]
            for k, (label, colour) in enumerate(zip(profile.labels, COLOURS * len(profile.labels), strict=False)):
                x, y = profile.centre[k, pair].tolist()
                values, vectors = np.linalg.eigh(covariances[k][np.ix_(pair, pair)])
                angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
                for size, alpha in ((1, 0.35), (2, 0.15)):
                    minor, major = 2 * size * np.sqrt(np.maximum(values, 0.0))
                    ax.add_patch(Ellipse((x, y), major, minor, angle=angle, color=colour, alpha=alpha, lw=0))
                x_error, y_error = (1.96 * errors.get(f"{label}: mean of {name}", 0.0) for name in names)
                ax.errorbar(x, y, y_error, x_error, fmt="o", color=colour, capsize=3, ms=3, label=label)
            ax.autoscale_view()
            ax.set_xlabel(wrap_label(names[0]))
            ax.set_ylabel(wrap_label(names[1]))
        axes[0].legend(fontsize="small", loc="best")
        return cls(axes)


def _most_different(means: FloatArray, covariances: FloatArray) -> list[int]:
    """The three columns in which the centres differ most, in standard deviations."""
    spread = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2)).mean(axis=0)
    difference = np.ptp(means, axis=0) / np.where(spread > 0, spread, 1.0)
    return sorted(np.argsort(-difference, kind="stable")[:3].tolist())


def covariance_matrices(estimator: PrivateFit, K: int, d: int) -> FloatArray:
    """The covariance of each component of a Gaussian mixture as a matrix, whatever its covariance type.

    >>> from types import SimpleNamespace
    >>> mixture = SimpleNamespace(covariance_type="spherical", covariances_=np.array([1.0, 4.0]))
    >>> covariance_matrices(mixture, 2, 2).tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[4.0, 0.0], [0.0, 4.0]]]
    """
    covariances, kind = np.asarray(estimator.covariances_), estimator.covariance_type
    if kind in ("spherical", "diag"):
        return np.asarray(covariances.reshape(K, -1, 1) * np.eye(d))
    return np.broadcast_to(covariances, (K, d, d))
