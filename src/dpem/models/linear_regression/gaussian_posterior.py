"""A normal law of the coefficients given noisy releases, updated by one linear measurement after another.

All of it is post-processing of released numbers. The law is of the estimate that the same rows would give without
noise; sampling error is added at the end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray


class Posterior(NamedTuple):
    """The coefficients are normal with this mean and covariance, given what was released."""

    mean: FloatArray
    covariance: FloatArray

    def given_number(self, value: float, row: FloatArray, variance: float) -> Posterior:
        """After a release ≈ row·(truth − mean) + noise of that variance."""
        across = self.covariance @ row
        spread = float(row @ across) + variance
        return Posterior(self.mean + across * (value / spread), self.covariance - np.outer(across, across) / spread)

    def wider(self, covariance: FloatArray) -> Posterior:
        """The law with this covariance added."""
        return Posterior(self.mean, self.covariance + covariance)


def positive(matrix: FloatArray, least: float) -> FloatArray:
    """The symmetric matrix with eigenvalues below ``least`` set to it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def shrunk(
    correlations: FloatArray, variances: FloatArray, known: NDArray[np.bool_] | None = None
) -> tuple[FloatArray, FloatArray, float]:
    """Noisy correlations, each times t²/(t² + its noise variance), with t² their mean square beyond the noise; how
    unsure they still are; and about half the largest eigenvalue of the noise that is left in them. Entries that are
    ``known`` otherwise stay as they are.

    >>> shrunk(np.array([[1.0, 0.1], [0.1, 1.0]]), np.full((2, 2), 0.04))[0].round(2).tolist()
    [[1.0, 0.02], [0.02, 1.0]]
    """
    p = len(correlations)
    apart = ~np.eye(p, dtype=bool) if known is None else ~(np.eye(p, dtype=bool) | known)
    if not apart.any() or not variances.any():
        return correlations, variances, noise_edge(np.where(apart, variances, 0.0))
    c, u = correlations[apart], variances[apart]
    weights = 1 / (u + 0.02) ** 2
    signal = max(TUNING.least_correlation, float(np.sum(weights * (c * c - u)) / np.sum(weights)))
    kept = signal / (signal + variances)
    out = np.where(apart, np.clip(kept * correlations, -1.0, 1.0), correlations)
    return out, np.where(apart, kept * variances, variances), noise_edge(np.where(apart, kept**2 * variances, 0.0))


def averaged(
    first: FloatArray, first_variance: FloatArray, second: FloatArray, second_variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Two measurements of the same matrix averaged entry by entry, and the variances of the average."""
    weight = second_variance / np.maximum(first_variance + second_variance, 1e-300)
    return weight * first + (1 - weight) * second, weight * first_variance


def noise_edge(variances: FloatArray) -> float:
    """About half the largest eigenvalue of a symmetric matrix of noise with these variances."""
    return math.sqrt(float(np.mean(variances)) * len(variances)) if len(variances) else 0.0


def product_covariance(variances: FloatArray, square: FloatArray) -> FloatArray:
    """The covariance of E·d for a symmetric E of independent entries with these variances, ``square`` = E[d·dᵀ]:
    U∘square off the diagonal and Σ_l U_il·square_ll on it.
    """
    out = variances * square
    np.fill_diagonal(out, variances @ np.diag(square))
    return np.asarray(out)
