"""Fit a mixture's characteristic function to a released sketch: post-processing, so tries are free.

The mixture Σ_k α_k N(μ_k, diag v_k) has the characteristic function Σ_k α_k exp(i w·μ_k − ½Σ_j v_kj·w_j²). Its squared
distance from the released values, in units of their errors, is minimised over shares, centres and variances: components
are put one by one where the residual is largest and moved by Levenberg–Marquardt steps. Diagonal covariances are enough
for a start of any type: EM on the surrogate rows finds correlations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.query import FloatArray

ComplexArray = NDArray[np.complex128]

#: How far, in log variance, all components may be from the expected size, one from the others, a column from the rest.
LEVEL, SIZE, COLUMN = 1.5, 0.5, 0.35
#: What a step must bring, in units of half the misfit, for the descent to go on.
LEAST_GAIN = 1e-3
#: Steps of a descent that is tried and of one that is kept; steps uphill to where a component may be put, and how many
#: points with components put elsewhere are tried.
SHORT, LONG, UPHILL, TRIES = 8, 40, 8, 3


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

    @cached_property
    def _narrowness(self) -> FloatArray:
        """The precision with which what is held of a component falls around its centre."""
        weight = (self._atom / self.errors) ** 2
        return np.asarray((self.frequencies.T * (weight / weight.sum())) @ self.frequencies)

    def best_place(self, residual: ComplexArray, among: slice | NDArray[np.bool_] = slice(None)) -> FloatArray:
        """Where the residual holds most of a component: the best of the places, and from there uphill, by steps that
        reach the centre of a component that stands alone.
        """
        cos, sin = self._waves
        held = cos @ residual.real + sin @ residual.imag
        place = best = self.places[among][int(np.argmax(held[among]))]
        weighted, height = self._atom / self.errors**2 * residual, 0.0
        for _ in range(UPHILL):
            turned = weighted * np.exp(-1j * (self.frequencies @ place))
            now = float(turned.real.sum())
            if now <= max(height, 1e-3 * float(np.abs(turned).sum())):
                break
            best, height = place, now
            place = best + np.linalg.solve(self._narrowness, self.frequencies.T @ turned.imag) / now
        return best

    def halves(self, residual: ComplexArray, mean: FloatArray) -> FloatArray:
        """Two centres instead of one. Where one component shows the precision A around its centre m, two halves at
        m ± s show H = A − A s sᵀA to second order in s: s follows from the least eigenvalue of A^(−½)HA^(−½).
        """
        turned = self._atom / self.errors**2 * np.exp(-1j * (self.frequencies @ mean)) * residual
        held = max(float(turned.real.sum()), 1e-3 * float(np.abs(turned).sum()))
        seen = (self.frequencies.T * turned.real) @ self.frequencies / held
        back = np.linalg.inv(np.linalg.cholesky(self._narrowness)).T
        values, axes = np.linalg.eigh(back.T @ seen @ back)
        away = back @ axes[:, 0] * math.sqrt(min(max(1 - values[0], 0.0), 9.0))
        return np.array([mean + away, mean - away])

    def shares(self, heights: ComplexArray) -> tuple[FloatArray, ComplexArray]:
        """The shares with which components of these characteristic functions (F × K) fit best, and the residual."""
        scaled = heights / self.errors[:, None]
        gram, right = (scaled.conj().T @ scaled).real, (scaled.conj().T @ (self.values / self.errors)).real
        ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
        share = np.maximum(np.linalg.solve(gram + ridge, right), 0.02)
        return share, self.values - heights @ share

    def split(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Shares, centres (K × q) and log variances (K × c)."""
        q, c = self.frequencies.shape[1], self.damping.shape[1]
        K = len(point) // (1 + q + c)
        share = np.exp(point[:K] - point[:K].max())
        return share / share.sum(), point[K : K + K * q].reshape(K, q), point[K + K * q :].reshape(K, c)

    def heights(self, means: FloatArray, sizes: FloatArray) -> ComplexArray:
        """The characteristic functions of components (F × K)."""
        heights = np.exp(1j * (self.frequencies @ means.T) - self.damping @ np.exp(sizes).T)
        return np.asarray(heights)

    def model(self, point: FloatArray) -> ComplexArray:
        share, means, sizes = self.split(point)
        return np.asarray(self.heights(means, sizes) @ share)

    def misfit(self, point: FloatArray) -> float:
        """The squared distance from the released values in units of their errors, without penalties."""
        return float(np.sum(np.abs((self.model(point) - self.values) / self.errors) ** 2))

    def loss(self, point: FloatArray) -> Expansion:
        """Half the misfit, and the penalties: normal priors of centres and sizes, Dirichlet's of the shares."""
        share, means, sizes = self.split(point)
        K, q = means.shape
        each = self.heights(means, sizes) * share / self.errors[:, None]
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
    """The best point found for K components: the best of some starts, of which components are put elsewhere as long as
    that helps. Of eight components starts alone lose one in a fifth of the fits.
    """
    pool = [descend(target.loss, _greedy(target, K, turn), SHORT) for turn in range(restarts)]
    best = min((descend(target.loss, own, LONG) for _, own in sorted(pool, key=_loss)[:2]), key=_loss)
    for _ in range(K):
        moved = min((descend(target.loss, own, SHORT) for own in _elsewhere(target, best[1])), key=_loss)
        moved = descend(target.loss, moved[1], LONG)
        if moved[0] > best[0] - 1:
            break
        best = moved
    return best[1]


def _loss(own: tuple[float, FloatArray]) -> float:
    return own[0]


def _elsewhere(target: Target, point: FloatArray) -> list[FloatArray]:
    """The point with one component put where the others leave most of one, or beside another that is split: those with
    the least misfit before any component has moved further.
    """
    share, means, sizes = target.split(point)
    heights, found, K = target.heights(means, sizes), [], len(share)
    for out, split in product(range(K), range(K)):
        kept, moved, level = ~np.isin(np.arange(K), (out, split)), means.copy(), sizes.copy()
        residual = target.values - heights[:, kept] @ share[kept]
        if out == split:
            moved[out] = target.best_place(residual)
        else:
            moved[out], moved[split] = target.halves(residual, means[split])
        level[~kept], each = target.level, heights.copy()
        each[:, ~kept] = target.heights(moved[~kept], level[~kept])
        shares, residual = target.shares(each)
        misfit = float(np.sum(np.abs(residual / target.errors) ** 2))
        found.append((misfit, _point(shares, moved, level)))
    return [own for _, own in sorted(found, key=_loss)[:TRIES]]


def _greedy(target: Target, K: int, turn: int) -> FloatArray:
    """Components put one by one where the residual holds most of one; later turns look at a part of the places."""
    number = np.arange(len(target.places))
    part = number % 8 != turn - 1 if turn < 4 else (number + turn) % 3 == 0
    share, residual, means = np.ones(1), target.values, np.zeros((0, target.frequencies.shape[1]))
    for _ in range(K):
        means = np.vstack([means, target.best_place(residual, part)])
        share, residual = target.shares(target._atom[:, None] * np.exp(1j * (target.frequencies @ means.T)))
    return _point(share, means, np.full((K, target.damping.shape[1]), target.level))


def _point(share: FloatArray, means: FloatArray, sizes: FloatArray) -> FloatArray:
    return np.concatenate([np.log(share / share.sum()), means.ravel(), sizes.ravel()])
