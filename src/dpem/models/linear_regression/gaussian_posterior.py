"""What noisy answers say about coefficients: a normal belief, updated by one linear measurement after another.

All of it is post-processing of released numbers. A belief is about the estimate that the same rows would give without
noise; what the rows themselves leave open is added at the end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpem.query import FloatArray


class Belief(NamedTuple):
    """The coefficients are normal with this mean and covariance, given what was released."""

    mean: FloatArray
    covariance: FloatArray

    def told(self, answer: FloatArray, slope: FloatArray, noise: FloatArray, unsure: FloatArray) -> Belief:
        """After an answer ≈ (slope + E)·(truth − mean) + noise, where ``noise`` is a covariance and E a symmetric
        matrix of independent errors with the variances ``unsure``.

        With δ = truth − mean ~ N(0, V), E·δ has the covariance U∘V off the diagonal and Σ_j U_ij·V_jj on it; it is
        added to the noise, and the rest is the usual conditional law. So nothing diverges: along directions where the
        slope is not known better than its errors, the mean hardly moves and the covariance stays.
        """
        V = self.covariance
        if not noise.any() and not unsure.any():
            return Belief(self.mean + np.linalg.lstsq(slope, answer, rcond=1e-10)[0], np.zeros_like(V))
        blurred = unsure * V
        np.fill_diagonal(blurred, unsure @ np.diag(V))
        spread = slope @ V @ slope.T + noise + blurred
        gain = np.linalg.solve(spread, slope @ V).T
        left = V - gain @ spread @ gain.T
        return Belief(self.mean + gain @ answer, positive((left + left.T) / 2, 0.0))

    def told_one(self, answer: float, row: FloatArray, variance: float) -> Belief:
        """After an answer ≈ row·(truth − mean) + noise of that variance."""
        across = self.covariance @ row
        spread = float(row @ across) + variance
        return Belief(self.mean + across * (answer / spread), self.covariance - np.outer(across, across) / spread)

    def wider(self, covariance: FloatArray) -> Belief:
        """The belief, less sure."""
        return Belief(self.mean, self.covariance + covariance)


def positive(matrix: FloatArray, least: float) -> FloatArray:
    """The symmetric matrix with eigenvalues below ``least`` set to it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


#: Correlations are supposed to have at least this mean square.
LEAST_SIGNAL = 0.01


def shrunk(correlations: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Noisy correlations, each times t²/(t² + its noise variance), with t² their mean square beyond the noise; how
    unsure they still are; and about half the largest eigenvalue of the noise that is left in them.

    >>> shrunk(np.array([[1.0, 0.1], [0.1, 1.0]]), np.full((2, 2), 0.04))[0].round(2).tolist()
    [[1.0, 0.02], [0.02, 1.0]]
    """
    p = len(correlations)
    if p < 2 or not variances.any():
        return correlations, variances, noise_edge(variances)
    apart = ~np.eye(p, dtype=bool)
    c, u = correlations[apart], variances[apart]
    weights = 1 / (u + 0.02) ** 2
    signal = max(LEAST_SIGNAL, float(np.sum(weights * (c * c - u)) / np.sum(weights)))
    kept = signal / (signal + variances)
    out = np.where(apart, np.clip(kept * correlations, -1.0, 1.0), correlations)
    return out, np.where(apart, kept * variances, variances), noise_edge(np.where(apart, kept**2 * variances, 0.0))


def combined(
    first: FloatArray, first_variance: FloatArray, second: FloatArray, second_variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Two measurements of the same matrix averaged entry by entry, and the variances of the average."""
    weight = second_variance / (first_variance + second_variance)
    return weight * first + (1 - weight) * second, weight * first_variance


def noise_edge(variances: FloatArray) -> float:
    """About half the largest eigenvalue of a symmetric matrix of noise with these variances."""
    return math.sqrt(float(np.mean(variances)) * len(variances))
