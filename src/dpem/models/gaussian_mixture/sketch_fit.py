"""Fit a mixture's characteristic function to a released sketch: post-processing, so tries are free.

The mixture Σ_k α_k N(μ_k, Σ_k) has the characteristic function Σ_k α_k exp(i w·μ_k − ½ wᵀΣ_k w). Its squared distance
from the released values, in units of their errors, is minimised over all parameters: components are put one by one
where the residual is largest, moved by L-BFGS, and exchanged for better ones while that helps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpem.models.gaussian_mixture.sketch_shapes import SketchShape
from dpem.query import FloatArray

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
