"""Fit a mixture's characteristic function to a released sketch: post-processing, so tries are free.

The mixture Σ_k α_k N(μ_k, Σ_k) has the characteristic function Σ_k α_k exp(i w·μ_k − ½ wᵀΣ_k w). Its squared distance
from the released values, in units of their errors, is minimised over all parameters: components are put one by one
where the residual is largest, moved by L-BFGS, and exchanged for better ones while that helps.

Each shape of covariances has free parameters t, draws them to what is expected (a penalty in units of misfit) and gives
the covariances back. A mixture with several components describes one correlated Gaussian, or independent columns of any
shape, better than one round Gaussian does, so a number of components is believed only where neither of these describes
the sketch as well at fewer parameters.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpem.query import FloatArray

#: How far, in log variance, all components may be from the expected size, one from the others, a column from the rest.
LEVEL, SIZE, COLUMN = 1.5, 0.5, 0.35


@dataclass(frozen=True)
class SketchShape(ABC):
    """``frequencies`` (F × d), and the log variance ``level`` that a component is expected to have."""

    frequencies: FloatArray
    level: float

    @abstractmethod
    def start(self, K: int) -> FloatArray:
        """Parameters of K components as they are expected."""

    @abstractmethod
    def damping(self, t: FloatArray, K: int) -> FloatArray:
        """½ wᵀΣ_k w (F × K)."""

    @abstractmethod
    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        """The gradient by t of a loss whose gradient by the damping is ``by``."""

    @abstractmethod
    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]: ...

    @abstractmethod
    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        """K × d, or K × d × d."""


@dataclass(frozen=True)
class Spherical(SketchShape):
    """Σ_k = e^{t_k}·diag(shape): one size each, columns in the proportion that the table's units dictate."""

    shape: FloatArray

    def start(self, K: int) -> FloatArray:
        return np.full(K, self.level)

    def damping(self, t: FloatArray, K: int) -> FloatArray:
        return np.outer(0.5 * (self.frequencies**2 @ self.shape), np.exp(t))

    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        return np.asarray((by * damping).sum(axis=0))

    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]:
        return _penalty(t, self.level)

    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        return np.outer(np.exp(t), self.shape)


@dataclass(frozen=True)
class Diagonal(SketchShape):
    """Σ_k = diag(e^{t_k1}, …, e^{t_kd})."""

    def start(self, K: int) -> FloatArray:
        return np.full(K * self.frequencies.shape[1], self.level)

    def damping(self, t: FloatArray, K: int) -> FloatArray:
        return np.asarray(0.5 * self.frequencies**2 @ np.exp(t.reshape(K, -1)).T)

    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        return np.asarray((0.5 * (by.T @ self.frequencies**2) * np.exp(t.reshape(K, -1))).ravel())

    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]:
        own = t.reshape(K, -1)
        size = own.mean(axis=1, keepdims=True)
        column = (own - size) / COLUMN
        value, by_size = _penalty(size[:, 0], self.level)
        return value + 0.5 * float(np.sum(column**2)), (column / COLUMN + by_size[:, None] / own.shape[1]).ravel()

    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        return np.asarray(np.exp(t.reshape(K, -1)))


@dataclass(frozen=True)
class Shared(SketchShape):
    """Σ_k = e^{t_k}·LLᵀ: one shape for all, and sizes of their own unless ``tied``; EM finds the shape of each."""

    tied: bool

    def _sizes(self, K: int) -> int:
        return 1 if self.tied else K

    def _expected(self) -> FloatArray:
        d = self.frequencies.shape[1]
        return np.asarray(math.exp(0.5 * self.level) * np.eye(d)[np.tril_indices(d)])

    def _root(self, t: FloatArray, K: int) -> FloatArray:
        d = self.frequencies.shape[1]
        L = np.zeros((d, d))
        L[np.tril_indices(d)] = t[self._sizes(K) :]
        return L

    def _scales(self, t: FloatArray, K: int) -> FloatArray:
        return np.broadcast_to(np.exp(t[: self._sizes(K)]), (K,))

    def start(self, K: int) -> FloatArray:
        return np.concatenate([np.zeros(self._sizes(K)), self._expected()])

    def damping(self, t: FloatArray, K: int) -> FloatArray:
        whole = np.sum((self.frequencies @ self._root(t, K)) ** 2, axis=1)
        return np.outer(0.5 * whole, self._scales(t, K))

    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        d = self.frequencies.shape[1]
        by_size = (by * damping).sum(axis=0)
        weight = by @ self._scales(t, K)
        by_root = (self.frequencies * weight[:, None]).T @ (self.frequencies @ self._root(t, K))
        sizes = np.array([by_size.sum()]) if self.tied else by_size
        return np.concatenate([sizes, by_root[np.tril_indices(d)]])

    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]:
        sizes = t[: self._sizes(K)] / SIZE
        root = t[self._sizes(K) :] - self._expected()
        return 0.5 * float(sizes @ sizes) + 0.5 * float(root @ root), np.concatenate([sizes / SIZE, root])

    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        L = self._root(t, K)
        return np.asarray(self._scales(t, K)[:, None, None] * (L @ L.T)[None])


def _penalty(sizes: FloatArray, level: float) -> tuple[float, FloatArray]:
    """Of log sizes that are drawn to each other and, all together, to the level; and its gradient."""
    mean = float(sizes.mean())
    apart, away = (sizes - mean) / SIZE, (mean - level) / LEVEL
    return 0.5 * float(apart @ apart) + 0.5 * away**2, apart / SIZE + away / LEVEL / len(sizes)


ComplexArray = NDArray[np.complex128]


@dataclass(frozen=True)
class Target:
    """Released values of the characteristic function at frequencies (F × d), with the errors they have.

    ``precision`` is of the centres, whose prior mean is 0; ``places`` (m × d) are where a component may be tried first,
    ``spread2`` the variance that a component is expected to have.
    """

    values: ComplexArray
    frequencies: FloatArray
    errors: FloatArray
    family: SketchShape
    precision: FloatArray
    places: FloatArray
    spread2: float

    @cached_property
    def _waves(self) -> tuple[FloatArray, FloatArray]:
        """cos and sin of the frequencies at the places, damped as a component is and in units of the errors."""
        damp = self._damp / self.errors**2
        phase = self.frequencies @ self.places.T
        return (damp[:, None] * np.cos(phase)).T.copy(), (damp[:, None] * np.sin(phase)).T.copy()

    @cached_property
    def _damp(self) -> FloatArray:
        return np.asarray(np.exp(-0.5 * self.spread2 * np.sum(self.frequencies**2, axis=1)))

    def filtered(self, residual: ComplexArray) -> FloatArray:
        """How much of a component the residual holds at each of the places."""
        cos, sin = self._waves
        return np.asarray(cos @ residual.real + sin @ residual.imag)

    def loss(self, point: FloatArray, K: int) -> tuple[float, FloatArray]:
        """Half the misfit plus penalties, and its gradient, at (log shares, means, covariances' parameters)."""
        logits, means, free = self.split(point, K)
        share = np.exp(logits - logits.max())
        share /= share.sum()
        phase = self.frequencies @ means.T
        damping = self.family.damping(free, K)
        height = np.exp(-damping)
        re, im = height * np.cos(phase), height * np.sin(phase)
        scale = 1.0 / self.errors
        res_re, res_im = (re @ share - self.values.real) * scale, (im @ share - self.values.imag) * scale
        a, b = (res_re * scale)[:, None], (res_im * scale)[:, None]
        along = a * re + b * im  # of the loss by log height, before the shares
        turn = b * re - a * im  # and by the phase
        by_share = along.sum(axis=0)
        by_logit = share * (by_share - share @ by_share)
        by_mean = (turn * share).T @ self.frequencies
        by_free = self.family.pulled(-along * share, damping, free, K)
        drawn = means @ self.precision
        priced, by_prior = self.family.penalty(free, K)
        value = 0.5 * float(res_re @ res_re + res_im @ res_im) + 0.5 * float(np.sum(drawn * means)) + priced
        value -= float(np.sum(np.log(share + 1e-12)))
        return value, np.concatenate([by_logit - 1 + K * share, (by_mean + drawn).ravel(), by_free + by_prior])

    def split(self, point: FloatArray, K: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        d = self.frequencies.shape[1]
        return point[:K], point[K : K + K * d].reshape(K, d), point[K + K * d :]

    def model(self, point: FloatArray, K: int) -> ComplexArray:
        logits, means, free = self.split(point, K)
        share = np.exp(logits - logits.max())
        heights = np.exp(-self.family.damping(free, K) + 1j * (self.frequencies @ means.T))
        return np.asarray(heights @ (share / share.sum()))

    def misfit(self, point: FloatArray, K: int) -> float:
        """The squared distance from the released values in units of their errors, without penalties."""
        return float(np.sum(np.abs((self.model(point, K) - self.values) / self.errors) ** 2))

    def descend(self, point: FloatArray, K: int, steps: int) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):  # a trial point that overflows is a poor one, and is left
            options = {"maxiter": steps, "maxcor": 20}
            found = minimize(self.loss, point, (K,), jac=True, method="L-BFGS-B", options=options)
        return float(found.fun), np.asarray(found.x)


def fitted(target: Target, K: int, *, restarts: int = 8, exchanges: int = 6) -> tuple[float, FloatArray]:
    """The best point found for K components, and its loss."""
    pool = sorted((target.descend(_greedy(target, K, r), K, 40) for r in range(restarts)), key=lambda own: own[0])
    best = min((target.descend(point, K, 200) for _, point in pool[:3]), key=lambda own: own[0])
    for turn in range(exchanges if K > 1 else 0):
        new = target.descend(_exchanged(target, best[1], K, turn), K, 120)
        if new[0] < best[0] - 1e-3:
            best = new
    return best


def _greedy(target: Target, K: int, turn: int) -> FloatArray:
    """Components put one by one where the residual holds most of one; later turns look at a part of the places."""
    number = np.arange(len(target.places))
    part = number % 8 != turn - 1 if turn < 4 else (number + turn) % 3 == 0
    allowed = np.flatnonzero(part)
    residual, chosen, share = target.values, [], np.ones(1)
    for _ in range(K):
        chosen.append(allowed[int(np.argmax(target.filtered(residual)[allowed]))])
        atoms = target._damp[:, None] * np.exp(1j * (target.frequencies @ target.places[chosen].T))
        scaled = atoms / target.errors[:, None]
        gram, right = (scaled.conj().T @ scaled).real, (scaled.conj().T @ (target.values / target.errors)).real
        ridge = 1e-6 * np.trace(gram) / len(chosen) * np.eye(len(chosen))
        share = np.maximum(np.linalg.solve(gram + ridge, right), 0.02)
        residual = target.values - atoms @ share
    return np.concatenate([np.log(share / share.sum()), target.places[chosen].ravel(), target.family.start(K)])


def _exchanged(target: Target, point: FloatArray, K: int, turn: int) -> FloatArray:
    """The same with one component moved: to where the residual is largest, or beside the largest component."""
    logits, means, free = target.split(point, K)
    share = np.exp(logits - logits.max())
    share /= share.sum()
    moved = int(np.argsort(share)[turn // 2 % K]) if turn % 2 == 0 else turn % K
    means = means.copy()
    if turn % 3 == 2:
        step = target.places[(37 * turn + 11) % len(target.places)]
        step = step / max(float(np.linalg.norm(step)), 1e-9)
        means[moved] = means[int(np.argmax(share))] + math.sqrt(target.spread2) * step
    else:
        means[moved] = target.places[int(np.argmax(target.filtered(target.values - target.model(point, K))))]
    again = target.family.start(K) if turn % 2 else free
    return np.concatenate([np.log(np.maximum(share, 0.05)), means.ravel(), again])


def score_of_one(target: Target, q: int) -> float:
    """The score of one Gaussian with any correlation, of q coordinates that matter."""
    family = Shared(target.frequencies, math.log(target.spread2), True)
    one = replace(target, family=family)
    _, point = fitted(one, 1)
    return one.misfit(point, 1) + weight(target) * (q + q * (q + 1) / 2)


def score_of_independent(target: Target, q: int) -> float:
    """The score of independent columns, each a mixture of two, priced as one component is: shapes of columns are free,
    as only what columns say together is a sign of components.
    """
    d = target.frequencies.shape[1]
    start = np.tile([0.0, -0.5, 0.5, math.log(0.75), math.log(0.75)], (d, 1))
    best = math.inf
    for tilt in (0.0, -1.5, 1.5):
        start[:, 0] = tilt
        found = minimize(
            _loss, start.ravel(), (target,), jac=True, method="L-BFGS-B", options={"maxiter": 150, "maxcor": 20}
        )
        best = min(best, 2 * float(found.fun))
    return best + weight(target) * (q + 1.5)


def weight(target: Target) -> float:
    """What a parameter must bring, in units of misfit, to be believed."""
    return math.log(2 * len(target.values))


def _loss(point: FloatArray, target: Target) -> tuple[float, FloatArray]:
    """Half the misfit of Π_j φ_j(w_j), φ_j the characteristic function of a mixture of two, and its gradient (of weak
    penalties on the logarithms too, left out of the score by being small).
    """
    w = target.frequencies
    logit, first, second, size1, size2 = np.clip(point.reshape(-1, 5).T, -8.0, 8.0)
    share = 1 / (1 + np.exp(-logit))
    one = np.exp(1j * w * first - 0.5 * w**2 * np.exp(size1))
    two = np.exp(1j * w * second - 0.5 * w**2 * np.exp(size2))
    each = share * one + (1 - share) * two
    each = np.where(np.abs(each) < 1e-12, 1e-12, each)
    whole = np.prod(each, axis=1)
    residual = (whole - target.values) / target.errors
    back = (np.conj(residual) / target.errors * whole)[:, None] / each
    by = np.stack(
        [
            back * share * (1 - share) * (one - two),
            back * share * one * 1j * w,
            back * (1 - share) * two * 1j * w,
            back * share * one * -0.5 * w**2 * np.exp(size1),
            back * (1 - share) * two * -0.5 * w**2 * np.exp(size2),
        ]
    ).real.sum(axis=1)
    drawn = 1e-3 * point
    value = 0.5 * float(np.sum(np.abs(residual) ** 2)) + 0.5e-3 * float(point @ point)
    return value, by.T.ravel() + drawn


#: The most components that are tried where their number is to be found.
MOST = 8


def chosen(target: Target, q: int) -> tuple[int, FloatArray, FloatArray]:
    """The number of components with the least score, its point and the path of scores; ``q`` directions count.

    Two scores stand before those of 1, 2, …: one correlated Gaussian, and independent columns. If either is the
    least there is no sign of components, and the number is 1.
    """
    points: list[FloatArray] = []
    path = [score_of_one(target, q), score_of_independent(target, q)]
    for K in range(1, MOST + 1):
        points.append(fitted(target, K, restarts=3, exchanges=3)[1])
        path.append(target.misfit(points[-1], K) + weight(target) * K * (q + 1.5))
        if int(np.argmin(path[2:])) + 2 < K:
            break
    best = max(int(np.argmin(path)) - 2, 0)
    return best + 1, points[best], np.array(path)
