"""Gaussian mixtures as a :class:`~dpem.fitting.surrogate.Family`: draws, scores, and the two halves of an EM step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.cluster import kmeans_plusplus

from dpem.fitting.surrogate import Family
from dpem.models.gaussian_mixture.covariance_types import CovarianceType
from dpem.models.gaussian_mixture.gaussians import LOG_2PI, Gaussians, Whitened, log_sum, responsibilities
from dpem.queries.block_loop import over_rows
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

#: The least share of a component that EM empties.
LEAST_SHARE = 1e-6
#: The longest step of the logarithm of a share.
LONGEST_STEP = 3.0


@dataclass(frozen=True)
class GaussianFamily(Family[Gaussians]):
    """K Gaussians with covariances of one type, at least ``floor`` (d variances).

    ``proportions`` are those of the variances of a component that is round in the table's units. ``patterns`` (P × d, 1
    where a value is seen) are the patterns of missing values of drawn rows, in turn; None: no value is missing.
    """

    K: int
    kind: CovarianceType
    floor: FloatArray = field(repr=False)
    proportions: FloatArray = field(repr=False)
    patterns: FloatArray | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """The number of parameters, and of coordinates of a score."""
        return self.K - 1 + self.K * len(self.floor) + self.kind.free(self.K, len(self.floor))

    def draw(self, theta: Gaussians, m: int, rng: np.random.Generator) -> FloatArray:
        return with_missing(inside(theta, m, rng), self.patterns)

    def joint(self, xp: Namespace, theta: Gaussians, x: Array) -> Array:
        return theta.joint(xp, x)

    def scores(self, xp: Namespace, theta: Gaussians, x: Array) -> Array:
        """(r_k − α_k for all but the last component; r_k·v_k; r_k times the type's part of w_k − I), r_k the
        responsibilities.
        """
        return theta.by_row(xp, x, lambda rows: self._scores(xp, theta, rows))

    def _scores(self, xp: Namespace, theta: Gaussians, rows: list[Whitened]) -> Array:
        share = responsibilities(xp, rows)
        of_shares = xp.matrix_transpose(share[:-1, :]) - like(xp, theta.weights[:-1], share)
        of_means = [share[k, :, None] * own.v for k, own in enumerate(rows)]
        return xp.concat([of_shares, *of_means, *self.kind.scores(xp, share, rows)], axis=1)

    def moved(self, theta: Gaussians, step: FloatArray) -> Gaussians:
        K, d = theta.means.shape
        logits = np.log(theta.weights)
        logits[:-1] += np.clip(step[: K - 1], -LONGEST_STEP, LONGEST_STEP)
        weights = np.exp(logits - logits.max())
        shift = step[K - 1 : K - 1 + K * d].reshape(K, d)
        covariances = self.kind.moved(theta, step[K - 1 + K * d :])
        return Gaussians(weights / weights.sum(), theta.shifted(shift), covariances)

    def statistics(self, xp: Namespace, theta: Gaussians, x: Array, weights: Array) -> Array:
        total: Array = None
        for mask, places, rows in theta.parts(xp, x):
            row_weights = mask
            if weights is not None:
                row_weights = mask * (weights if places is None else xp.take(weights, places, axis=0))
            share = responsibilities(xp, rows) * row_weights
            first = [over_rows(xp, share[k, :], own.v) for k, own in enumerate(rows)]
            likelihood = xp.reshape(xp.sum(row_weights * log_sum(xp, [own.log_joint for own in rows])), (1,))
            part = xp.concat([xp.sum(share, axis=1), *first, *self.kind.sums(xp, share, rows), likelihood])
            total = part if total is None else total + part
        return total

    def e_step(self, x: FloatArray, weights: FloatArray) -> Callable[[Gaussians], FloatArray]:
        """The statistics of weighted rows in memory, as a function of θ.

        Where covariances are diagonal and no value is missing, log-densities and moments are matrix products with
        (1, x, x²), which is prepared once.
        """
        if self.kind.full or not np.isfinite(x).all():
            return super().e_step(x, weights)
        centre = weights @ x / weights.sum()
        away = x - centre
        powers = np.vstack([np.ones(len(x)), away.T, (away * away).T])
        return lambda theta: self._diagonal_statistics(theta, powers, centre, weights)

    def _diagonal_statistics(
        self, theta: Gaussians, powers: FloatArray, centre: FloatArray, weights: FloatArray
    ) -> FloatArray:
        K, d = theta.means.shape
        mean, precision = theta.means - centre, 1 / theta.covariances
        level = np.log(theta.weights) - 0.5 * np.sum(mean**2 * precision - np.log(precision) + LOG_2PI, axis=1)
        logs = np.hstack([level[:, None], mean * precision, -0.5 * precision]) @ powers
        top = logs.max(axis=0)
        np.exp(np.subtract(logs, top, out=logs), out=logs)
        total = logs.sum(axis=0)
        likelihood = float(weights @ (np.log(total) + top))
        logs *= weights / total
        sums = logs @ powers.T
        counts, first, second = sums[:, :1], sums[:, 1 : d + 1], sums[:, d + 1 :]
        root = np.sqrt(precision)
        whitened = (second - 2 * mean * first + counts * mean**2) * precision
        part = whitened.sum(axis=1) if self.kind.free(K, d) == K else whitened.ravel()
        return np.concatenate([counts[:, 0], ((first - counts * mean) * root).ravel(), part, [likelihood]])

    def m_step(self, theta: Gaussians, statistics: FloatArray) -> Gaussians:
        K, d = theta.means.shape
        counts = np.maximum(statistics[:K], LEAST_SHARE)
        shift = statistics[K : K + K * d].reshape(K, d) / counts[:, None]
        covariances = self.kind.updated(theta, counts, shift, statistics[K + K * d : -1])
        return Gaussians(counts / counts.sum(), theta.shifted(shift), self.kind.floored(covariances, self.floor))

    def random_start(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> Gaussians:
        """Means at rows that are far from each other (k-means++), variances a third of all rows'."""
        seen = np.isfinite(x)
        filled = np.where(seen, x, 0.0)
        mean = weights @ filled / np.maximum(weights @ seen, 1e-9)
        filled = np.where(seen, x, mean)
        variance = np.maximum(weights @ (filled - mean) ** 2, self.floor)
        scaled, seed = filled / np.sqrt(variance), int(rng.integers(2**31))
        _, chosen = kmeans_plusplus(scaled, self.K, sample_weight=weights, random_state=seed, n_local_trials=1)
        covariances = self.kind.start(np.maximum(variance / 3, self.floor), self.proportions, self.K)
        return Gaussians(np.full(self.K, 1 / self.K), filled[chosen], covariances)


def sample(mixture: Gaussians, n: int, rng: np.random.Generator) -> tuple[FloatArray, NDArray[np.intp]]:
    """n rows in unit coordinates, and the component of each."""
    label = rng.choice(len(mixture.weights), size=n, p=mixture.weights / mixture.weights.sum())
    return _rows(mixture, label, rng.standard_normal((n, mixture.means.shape[1]))), label


def _rows(mixture: Gaussians, label: NDArray[np.intp], noise: FloatArray) -> FloatArray:
    """μ + L·noise of each row's component."""
    root = mixture.roots[label]
    return mixture.means[label] + (np.einsum("nij,nj->ni", root, noise) if mixture.full else root * noise)


def inside(mixture: Gaussians, n: int, rng: np.random.Generator, even: bool = False, tries: int = 4) -> FloatArray:
    """n rows within the bounds: rows beyond are drawn again, a few times, and then clipped.

    ``even`` rows are quasi-random, so that their moments are nearer to the mixture's.
    """
    if even:
        points = normal_points(n, mixture.means.shape[1] + 1, int(rng.integers(1, 10**6)))
        label = np.searchsorted(np.cumsum(mixture.weights)[:-1], ndtr(points[:, 0]))
        rows = _rows(mixture, label, points[:, 1:])
    else:
        rows, _ = sample(mixture, n, rng)
    for _ in range(tries):
        beyond = np.flatnonzero(np.any(np.abs(rows) > 1, axis=1))
        if not len(beyond):
            break
        rows[beyond] = sample(mixture, len(beyond), rng)[0]
    return np.clip(rows, -1.0, 1.0)


def with_missing(rows: FloatArray, patterns: FloatArray | None) -> FloatArray:
    """The rows with values missing by the patterns (1 where one is seen) in turn; as they are without patterns."""
    if patterns is None:
        return rows
    return np.where(patterns[np.arange(len(rows)) % len(patterns)] < 0.5, np.nan, rows)


def normal_points(m: int, d: int, first: int = 1) -> FloatArray:
    """m quasi-random points of N(0, I_d), by Richtmyer's sequence: multiples of √primes, modulo 1."""
    primes: list[int] = []
    number = 2
    while len(primes) < d:
        if all(number % p for p in primes):
            primes.append(number)
        number += 1
    parts = np.outer(np.arange(first, first + m), np.sqrt(primes)) % 1.0
    return np.asarray(ndtri(np.clip(parts, 1e-9, 1 - 1e-9)))
