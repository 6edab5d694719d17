"""Fit a mixture's characteristic function to a released sketch: post-processing, so tries are free.

The mixture Σ_k α_k N(μ_k, diag v_k) has the characteristic function Σ_k α_k exp(i w·μ_k − ½Σ_j v_kj·w_j²). Its squared
distance from the released values, in units of their errors, is minimised over shares, centres and variances: components
are put one by one where the residual is largest and moved by Levenberg–Marquardt steps. Diagonal covariances are enough
for a start of any type: EM on the surrogate rows finds correlations.

Many components describe one correlated Gaussian, or independent columns of any shape, better than one of them does. So
a number of components is believed only where neither of these describes the sketch as well at fewer parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.query import FloatArray

ComplexArray = NDArray[np.complex128]

#: The most components that are tried where their number is to be found.
MOST = 8
#: How far, in log variance, all components may be from the expected size, one from the others, a column from the rest.
LEVEL, SIZE, COLUMN = 1.5, 0.5, 0.35
#: What a step must bring, in units of half the misfit, for the descent to go on.
LEAST_GAIN = 1e-3


class Expansion(NamedTuple):
    """A loss, its gradient and its Hessian, that of the misfit as Gauss and Newton have it."""

    loss: float
    gradient: FloatArray
    hessian: FloatArray


def descend(function: Callable[[FloatArray], Expansion], point: FloatArray, steps: int) -> tuple[float, FloatArray]:
    """The point after at most so many Levenberg–Marquardt steps, and its loss."""
    damping, now = 1e-2, function(point)
    for _ in range(steps):
        scale = damping * np.diag(now.hessian) + 1e-9
        new = point - np.linalg.solve(now.hessian + np.diag(scale), now.gradient)
        with np.errstate(all="ignore"):  # a trial point that overflows is a poor one, and is left
            tried = function(new)
        if not tried.loss < now.loss:
            damping *= 5
            if damping > 1e6:
                break
            continue
        gain, damping = now.loss - tried.loss, max(damping / 5, 1e-6)
        point, now = new, tried
        if gain < LEAST_GAIN:
            break
    return now.loss, point


def expansion(residual: ComplexArray, jacobian: ComplexArray) -> Expansion:
    """Of half the squared norm of complex residuals."""
    J, r = np.concatenate([jacobian.real, jacobian.imag]), np.concatenate([residual.real, residual.imag])
    return Expansion(0.5 * float(r @ r), J.T @ r, J.T @ J)


@dataclass(frozen=True)
class Target:
    """Released values of the characteristic function, with the errors they have.

    ``frequencies`` (F × q) are along the q directions in which centres may differ, ``damping`` (F × c) is by how much
    each of a component's c variances damps them: ½w_j² for every column, or their sum if a component has one variance.
    ``precision`` (q) is of the centres, whose prior mean is 0, ``level`` the log variance that is expected, and
    ``places`` (m × q) are where a component may be tried first.
    """

    values: ComplexArray
    frequencies: FloatArray
    damping: FloatArray
    errors: FloatArray
    precision: FloatArray
    level: float
    places: FloatArray

    @cached_property
    def _atom(self) -> FloatArray:
        return np.asarray(np.exp(-math.exp(self.level) * self.damping.sum(axis=1)))

    @cached_property
    def _waves(self) -> tuple[FloatArray, FloatArray]:
        """cos and sin of the frequencies at the places, damped as a component is and in units of the errors."""
        phase = self.places @ self.frequencies.T
        weight = self._atom / self.errors**2
        return weight * np.cos(phase), weight * np.sin(phase)

    def filtered(self, residual: ComplexArray) -> FloatArray:
        """How much of a component the residual holds at each of the places."""
        cos, sin = self._waves
        return np.asarray(cos @ residual.real + sin @ residual.imag)

    def split(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Shares, centres (K × q) and log variances (K × c)."""
        q, c = self.frequencies.shape[1], self.damping.shape[1]
        K = len(point) // (1 + q + c)
        share = np.exp(point[:K] - point[:K].max())
        return share / share.sum(), point[K : K + K * q].reshape(K, q), point[K + K * q :].reshape(K, c)

    def _heights(self, means: FloatArray, sizes: FloatArray) -> ComplexArray:
        heights = np.exp(1j * (self.frequencies @ means.T) - self.damping @ np.exp(sizes).T)
        return np.asarray(heights)

    def model(self, point: FloatArray) -> ComplexArray:
        share, means, sizes = self.split(point)
        return np.asarray(self._heights(means, sizes) @ share)

    def misfit(self, point: FloatArray) -> float:
        """The squared distance from the released values in units of their errors, without penalties."""
        return float(np.sum(np.abs((self.model(point) - self.values) / self.errors) ** 2))

    def loss(self, point: FloatArray) -> Expansion:
        """Half the misfit, and the penalties: normal priors of centres and sizes, Dirichlet's of the shares."""
        share, means, sizes = self.split(point)
        K, q = means.shape
        each = self._heights(means, sizes) * share / self.errors[:, None]
        whole = each.sum(axis=1)
        by_mean = (1j * each)[:, :, None] * self.frequencies[:, None, :]
        by_size = each[:, :, None] * (-self.damping[:, None, :] * np.exp(sizes))
        by = [each - np.outer(whole, share), by_mean.reshape(len(each), -1), by_size.reshape(len(each), -1)]
        loss, gradient, hessian = expansion(whole - self.values / self.errors, np.concatenate(by, axis=1))
        prior = np.tile(self.precision, K)
        of_sizes, away = _size_precision(K, sizes.shape[1]), sizes.ravel() - self.level
        loss += 0.5 * float(prior @ point[K : K + K * q] ** 2) + 0.5 * float(away @ of_sizes @ away)
        loss -= float(np.sum(np.log(share + 1e-12)))
        gradient += np.concatenate([K * share - 1, prior * point[K : K + K * q], of_sizes @ away])
        hessian[:K, :K] += K * (np.diag(share) - np.outer(share, share))
        hessian[np.arange(K, K + K * q), np.arange(K, K + K * q)] += prior
        hessian[K + K * q :, K + K * q :] += of_sizes
        return Expansion(loss, gradient, hessian)


@lru_cache(maxsize=32)
def _size_precision(K: int, c: int) -> FloatArray:
    """Of K·c log variances: a column's from the component's mean, this from the mean of all, this from the level."""
    mean = np.full((c, c), 1 / c)
    of_means = np.eye(K) / SIZE**2 + (1 / LEVEL**2 - K / SIZE**2) / K**2
    return np.kron(np.eye(K), (np.eye(c) - mean) / COLUMN**2) + np.kron(of_means, mean / c)


def fitted(target: Target, K: int, *, restarts: int = 6) -> FloatArray:
    """The best point found for K components."""
    pool = sorted((descend(target.loss, _greedy(target, K, r), 8) for r in range(restarts)), key=lambda own: own[0])
    return min((descend(target.loss, point, 40) for _, point in pool[:3]), key=lambda own: own[0])[1]


def _greedy(target: Target, K: int, turn: int) -> FloatArray:
    """Components put one by one where the residual holds most of one; later turns look at a part of the places."""
    number = np.arange(len(target.places))
    part = number % 8 != turn - 1 if turn < 4 else (number + turn) % 3 == 0
    allowed = np.flatnonzero(part)
    residual, chosen, share = target.values, [], np.ones(1)
    for _ in range(K):
        chosen.append(allowed[int(np.argmax(target.filtered(residual)[allowed]))])
        atoms = target._atom[:, None] * np.exp(1j * (target.frequencies @ target.places[chosen].T))
        scaled = atoms / target.errors[:, None]
        gram, right = (scaled.conj().T @ scaled).real, (scaled.conj().T @ (target.values / target.errors)).real
        ridge = 1e-6 * np.trace(gram) / len(chosen) * np.eye(len(chosen))
        share = np.maximum(np.linalg.solve(gram + ridge, right), 0.02)
        residual = target.values - atoms @ share
    return np.concatenate(
        [np.log(share / share.sum()), target.places[chosen].ravel(), np.full(K * target.damping.shape[1], target.level)]
    )


def price(target: Target) -> float:
    """What a parameter must bring, in units of misfit, to be believed."""
    return math.log(2 * len(target.values))


def number_of_components(target: Target, lines: FloatArray, q: int) -> tuple[FloatArray, FloatArray]:
    """The point of the number of components with the least score, and the path of scores; ``q`` directions count, and
    ``lines`` (F × d) are the frequencies of the columns.

    Two scores stand before those of 1, 2, …: one correlated Gaussian, and independent columns. If either is the
    least there is no sign of components, and the number is 1.
    """
    points: list[FloatArray] = []
    path = [score_of_one(target, q), score_of_independent(target, lines, q)]
    for K in range(1, MOST + 1):
        points.append(fitted(target, K, restarts=3))
        path.append(target.misfit(points[-1]) + price(target) * K * (q + 1.5))
        if int(np.argmin(path[2:])) + 2 < K:
            break
    return points[max(int(np.argmin(path)) - 2, 0)], np.array(path)


def score_of_one(target: Target, q: int) -> float:
    """The score of one Gaussian with any correlation, of q coordinates that matter."""
    w = target.frequencies
    a, b = np.triu_indices(w.shape[1])
    features: ComplexArray = np.hstack([1j * w, -w[:, a] * w[:, b]])
    start = np.concatenate([np.zeros(w.shape[1]), 0.5 * (a == b)])

    def loss(point: FloatArray) -> Expansion:
        wave = np.exp(features @ point) / target.errors
        found = expansion(wave - target.values / target.errors, wave[:, None] * features)
        return _drawn(found, point - start, 1e-3)

    return 2 * descend(loss, start, 60)[0] + price(target) * (q + q * (q + 1) / 2)


def score_of_independent(target: Target, lines: FloatArray, q: int) -> float:
    """The score of independent columns, each a mixture of two, priced as one component is: shapes of columns are free,
    as only what columns say together is a sign of components.
    """
    w, d = lines, lines.shape[1]

    def loss(point: FloatArray) -> Expansion:
        """Of Π_j φ_j(w_j), φ_j the characteristic function of a mixture of two."""
        logit, first, second, size1, size2 = np.clip(point.reshape(5, d), -8.0, 8.0)
        share = 1 / (1 + np.exp(-logit))
        one = share * np.exp(1j * w * first - 0.5 * w**2 * np.exp(size1))
        two = (1 - share) * np.exp(1j * w * second - 0.5 * w**2 * np.exp(size2))
        each = one + two
        each = np.where(np.abs(each) < 1e-12, 1e-12 + 0j, each)
        whole = np.prod(each, axis=1) / target.errors
        by = [one * (1 - share) - two * share, 1j * w * one, 1j * w * two]
        by += [-0.5 * w**2 * np.exp(size1) * one, -0.5 * w**2 * np.exp(size2) * two]
        J = whole[:, None] * np.hstack([own / each for own in by], dtype=complex)
        return _drawn(expansion(whole - target.values / target.errors, J), point, 1e-3)

    start = np.tile(np.array([0.0, -0.5, 0.5, math.log(0.75), math.log(0.75)])[:, None], d)
    found = []
    for tilt in (0.0, -1.5, 1.5):
        start[0] = tilt
        found.append(descend(loss, start.ravel(), 60)[0])
    return 2 * min(found) + price(target) * (q + 1.5)


def _drawn(own: Expansion, away: FloatArray, weight: float) -> Expansion:
    """With a weak penalty, left out of scores by being small."""
    hessian = own.hessian + weight * np.eye(len(away))
    return Expansion(own.loss + 0.5 * weight * float(away @ away), own.gradient + weight * away, hessian)
