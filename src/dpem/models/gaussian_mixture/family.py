"""Gaussian mixtures as the engine of surrogate rows wants them: draws, scores, and the two halves of an EM step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.cluster import kmeans_plusplus

from dpem.fitting.surrogate import Family
from dpem.models.gaussian_mixture.covariance_types import CovarianceType
from dpem.models.gaussian_mixture.gaussians import LOG_2PI, Gaussians, Seen, log_sum, responsibilities
from dpem.queries.block_loop import over_rows
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

#: The least share of a component: one that EM empties keeps this much.
LEAST = 1e-6


@dataclass(frozen=True)
class GaussianFamily(Family[Gaussians]):
    """K Gaussians with covariances of one type, at least ``floor`` (d variances).

    ``proportions`` are those of a round component's variances. ``patterns`` (P × d, 1 where a value is seen) are the
    patterns of missing values that drawn rows have, all equally often; None: no value is missing.
    """

    K: int
    kind: CovarianceType
    floor: FloatArray = field(repr=False)
    proportions: FloatArray = field(repr=False)
    patterns: FloatArray | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """How many parameters there are, and coordinates of a score."""
        return self.K - 1 + self.K * len(self.floor) + self.kind.free(self.K, len(self.floor))

    def draw(self, theta: Gaussians, m: int, rng: np.random.Generator) -> FloatArray:
        return with_missing(inside(theta, m, rng), self.patterns)

    def joint(self, xp: Namespace, theta: Gaussians, x: Array) -> Array:
        return theta.joint(xp, x)

    def scores(self, xp: Namespace, theta: Gaussians, x: Array) -> Array:
        """r_k − α_k for all but the last component, r_k·v_k, and r_k times the type's part of w_k − I."""
        return theta.by_row(xp, x, lambda seen: self._scores(xp, theta, seen))

    def _scores(self, xp: Namespace, theta: Gaussians, seen: list[Seen]) -> Array:
        share = responsibilities(xp, seen)
        first = [share[k, :, None] * own.v for k, own in enumerate(seen)]
        alone = xp.matrix_transpose(share[:-1, :]) - like(xp, theta.weights[:-1], share)
        return xp.concat([alone, *first, *self.kind.scores(xp, share, seen)], axis=1)

    def moved(self, theta: Gaussians, step: FloatArray) -> Gaussians:
        K, d = theta.means.shape
        logits = np.log(theta.weights)
        logits[:-1] += np.clip(step[: K - 1], -3.0, 3.0)
        weights = np.exp(logits - logits.max())
        shift = step[K - 1 : K - 1 + K * d].reshape(K, d)
        covariances = self.kind.moved(theta, step[K - 1 + K * d :])
        return Gaussians(weights / weights.sum(), theta.shifted(shift), covariances)

    def statistics(self, xp: Namespace, theta: Gaussians, x: Array, weights: Array) -> Array:
        total: Array = None
        for present, rows, seen in theta.parts(xp, x):
            own = (
                present if weights is None else present * (weights if rows is None else xp.take(weights, rows, axis=0))
            )
            share = responsibilities(xp, seen) * own
            first = [over_rows(xp, share[k, :], each.v) for k, each in enumerate(seen)]
            likelihood = xp.reshape(xp.sum(own * log_sum(xp, [each.log_joint for each in seen])), (1,))
            part = xp.concat([xp.sum(share, axis=1), *first, *self.kind.sums(xp, share, seen), likelihood])
            total = part if total is None else total + part
        return total

    def e_step(self, x: FloatArray, weights: FloatArray) -> Callable[[Gaussians], FloatArray]:
        """The statistics of weighted rows in memory. Where covariances are diagonal and no value is missing,
        log-densities and moments are products with (1, x, x²), prepared once.
        """
        if self.kind.full or not np.isfinite(x).all():
            return super().e_step(x, weights)
        middle = weights @ x / weights.sum()
        away = x - middle
        lifted = np.vstack([np.ones(len(x)), away.T, (away * away).T])
        return lambda theta: self._diagonal(theta, lifted, middle, weights)

    def _diagonal(self, theta: Gaussians, lifted: FloatArray, middle: FloatArray, weights: FloatArray) -> FloatArray:
        K, d = theta.means.shape
        mean, precision = theta.means - middle, 1 / theta.covariances
        level = np.log(theta.weights) - 0.5 * np.sum(mean**2 * precision - np.log(precision) + LOG_2PI, axis=1)
        logs = np.hstack([level[:, None], mean * precision, -0.5 * precision]) @ lifted
        top = logs.max(axis=0)
        np.exp(np.subtract(logs, top, out=logs), out=logs)
        total = logs.sum(axis=0)
        likelihood = float(weights @ (np.log(total) + top))
        logs *= weights / total
        sums = logs @ lifted.T
        counts, first, second = sums[:, :1], sums[:, 1 : d + 1], sums[:, d + 1 :]
        root = np.sqrt(precision)
        whitened = (second - 2 * mean * first + counts * mean**2) * precision
        part = whitened.sum(axis=1) if self.kind.free(K, d) == K else whitened.ravel()
        return np.concatenate([counts[:, 0], ((first - counts * mean) * root).ravel(), part, [likelihood]])

    def m_step(self, theta: Gaussians, statistics: FloatArray) -> Gaussians:
        K, d = theta.means.shape
        counts = np.maximum(statistics[:K], LEAST)
        shift = statistics[K : K + K * d].reshape(K, d) / counts[:, None]
        covariances = self.kind.updated(theta, counts, shift, statistics[K + K * d : -1])
        return Gaussians(counts / counts.sum(), theta.shifted(shift), self.kind.floored(covariances, self.floor))

    def random_start(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> Gaussians:
        """Means at rows that are far from each other (k-means++), variances a third of all rows'."""
        seen = np.isfinite(x)
        filled = np.where(seen, x, 0.0)
        middle = weights @ filled / np.maximum(weights @ seen, 1e-9)
        filled = np.where(seen, x, middle)
        variance = np.maximum(weights @ (filled - middle) ** 2, self.floor)
        scaled, seed = filled / np.sqrt(variance), int(rng.integers(2**31))
        _, chosen = kmeans_plusplus(scaled, self.K, sample_weight=weights, random_state=seed, n_local_trials=1)
        shapes = self.kind.start(np.maximum(variance / 3, self.floor), self.proportions, self.K)
        return Gaussians(np.full(self.K, 1 / self.K), filled[chosen], shapes)


def sample(mixture: Gaussians, n: int, rng: np.random.Generator) -> tuple[FloatArray, NDArray[np.intp]]:
    """n rows in unit coordinates, and the component of each."""
    label = rng.choice(len(mixture.weights), size=n, p=mixture.weights / mixture.weights.sum())
    return _placed(mixture, label, rng.standard_normal((n, mixture.means.shape[1]))), label


def _placed(mixture: Gaussians, label: NDArray[np.intp], noise: FloatArray) -> FloatArray:
    root = mixture.roots[label]
    return mixture.means[label] + (np.einsum("nij,nj->ni", root, noise) if mixture.full else root * noise)


def inside(mixture: Gaussians, n: int, rng: np.random.Generator, even: bool = False, tries: int = 4) -> FloatArray:
    """n rows within the bounds: those beyond are drawn again, a few times, and then put at the bound.

    ``even``: the rows are not drawn but placed evenly, so that their moments are nearer to the mixture's.
    """
    if even:
        points = normal_points(n, mixture.means.shape[1] + 1, int(rng.integers(1, 10**6)))
        label = np.searchsorted(np.cumsum(mixture.weights)[:-1], ndtr(points[:, 0]))
        rows = _placed(mixture, label, points[:, 1:])
    else:
        rows, _ = sample(mixture, n, rng)
    for _ in range(tries):
        beyond = np.flatnonzero(np.any(np.abs(rows) > 1, axis=1))
        if not len(beyond):
            break
        rows[beyond] = sample(mixture, len(beyond), rng)[0]
    return np.clip(rows, -1.0, 1.0)


def with_missing(rows: FloatArray, patterns: FloatArray | None) -> FloatArray:
    """The rows with values missing by the patterns (1 where one is seen) in turn; None: as they are."""
    if patterns is None:
        return rows
    return np.where(patterns[np.arange(len(rows)) % len(patterns)] < 0.5, np.nan, rows)


def normal_points(m: int, d: int, first: int = 1) -> FloatArray:
    """m points of a fixed sequence that fill space as draws of N(0, I_d) would: multiples of √primes, modulo 1."""
    primes: list[int] = []
    number = 2
    while len(primes) < d:
        if all(number % p for p in primes):
            primes.append(number)
        number += 1
    parts = np.outer(np.arange(first, first + m), np.sqrt(primes)) % 1.0
    return np.asarray(ndtri(np.clip(parts, 1e-9, 1 - 1e-9)))
