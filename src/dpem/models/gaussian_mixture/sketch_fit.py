"""Fit a mixture's characteristic function to a released sketch: post-processing, so tries are free.

The mixture Σ_k α_k N(μ_k, Σ_k) has the characteristic function Σ_k α_k exp(i w·μ_k − ½ wᵀΣ_k w). Its squared distance
from the released values, in units of their errors, is minimised over all parameters: components are placed one by one
where the residual is largest, moved by L-BFGS, and exchanged for better ones while that helps.

Frequencies are the multiples 1 … L of a base frequency w on each of M lines. At the multiple f a component has the
phase f·w·μ and the damping f²·½wᵀΣw, so powers of two numbers for each line and component give all values.
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

#: A descent ends when a step lowers the loss, in units of χ²/2, by less than that: while starts are compared, and for
#: the best of them. Larger values cost up to 46 of loss on public tables.
ROUGH, FINE = 0.01, 0.001


@dataclass(frozen=True)
class Target:
    """Released values of the characteristic function (L × M) at multiples 1 … L of the base frequencies (M × d), and
    the error at each multiple (L).

    ``precision`` is of the centres, whose prior mean is 0; ``places`` (m × d) are where a component may be tried first,
    ``spread2`` the variance that a component is expected to have.
    """

    values: ComplexArray
    base: FloatArray
    errors: FloatArray
    family: SketchShape
    precision: FloatArray
    places: FloatArray
    spread2: float

    @cached_property
    def multiples(self) -> FloatArray:
        return np.arange(1.0, len(self.values) + 1)

    @cached_property
    def frequencies(self) -> FloatArray:
        """All frequencies (LM × d), in the order of the values."""
        return np.asarray((self.multiples[:, None, None] * self.base).reshape(-1, self.base.shape[1]))

    @cached_property
    def _multiplied(self) -> ComplexArray:
        """1, f and f² for the multiples f: what a sum over them is weighted by."""
        return np.vstack([np.ones_like(self.multiples), self.multiples, self.multiples**2]).astype(complex)

    @cached_property
    def _atoms(self) -> FloatArray:
        """A component of the expected size at each of the places (m × 2LM), in units of the errors, the real parts of
        the values first.
        """
        damping = 0.5 * self.spread2 * np.sum(self.base**2, axis=1)[:, None]
        waves = self._powers(self.base @ self.places.T, damping) / self.errors[:, None, None]
        waves = waves.reshape(-1, len(self.places)).T
        return np.hstack([waves.real, waves.imag])

    @cached_property
    def _overlaps(self) -> dict[int, FloatArray]:
        """Inner products of all atoms with those that were chosen."""
        return {}

    def overlap(self, place: int) -> FloatArray:
        """Inner products of the atom at a place with all atoms (m)."""
        if place not in self._overlaps:
            self._overlaps[place] = self._atoms @ self._atoms[place]
        return self._overlaps[place]

    def _powers(self, phase: FloatArray, damping: FloatArray) -> ComplexArray:
        """exp(i·f·phase − f²·damping) for f = 1 … L (L × M × K); from f to f + 1 the factor is multiplied by
        exp(−2·damping).
        """
        step = np.exp(1j * phase - damping)
        ratio = np.exp(-2 * damping)
        found = np.empty((len(self.values), *step.shape), dtype=complex)
        found[0] = step
        for f in range(1, len(found)):
            step = step * ratio
            np.multiply(found[f - 1], step, out=found[f])
        return found

    def correlations(self, residual: ComplexArray) -> FloatArray:
        """How much of a component the residual (L × M) holds at each of the places."""
        scaled = (residual / self.errors[:, None]).ravel()
        return np.asarray(self._atoms @ np.concatenate([scaled.real, scaled.imag]))

    @cached_property
    def first_correlations(self) -> FloatArray:
        return self.correlations(self.values)

    def loss(self, point: FloatArray, K: int) -> tuple[float, FloatArray]:
        """Half the misfit plus penalties, and its gradient, at (log shares, means, covariances' parameters)."""
        logits, means, free = self.split(point, K)
        share = _shares(logits)
        damping = self.family.damping(free, K)
        waves = self._powers(self.base @ means.T, damping)
        residual = (waves @ share - self.values) / self.errors[:, None]
        # of the loss by each wave's log height (real part) and, with the sign turned, by its phase (imaginary part)
        back = (np.conj(residual) / self.errors[:, None])[:, :, None] * waves
        alone, once, twice = (self._multiplied @ back.reshape(len(back), -1)).reshape(3, *damping.shape)
        by_share = alone.real.sum(axis=0)
        by_logit = share * (by_share - share @ by_share)
        by_phase, by_damping = -once.imag * share, -twice.real * share
        by_free = self.family.pulled(by_damping, damping, free, K)
        drawn = means @ self.precision
        priced, by_prior = self.family.penalty(free, K)
        value = 0.5 * float(np.vdot(residual, residual).real) + 0.5 * float(np.sum(drawn * means)) + priced
        value -= float(np.sum(np.log(share + 1e-12)))
        by_mean = (by_phase.T @ self.base + drawn).ravel()
        return value, np.concatenate([by_logit - 1 + K * share, by_mean, by_free + by_prior])

    def split(self, point: FloatArray, K: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        d = self.base.shape[1]
        return point[:K], point[K : K + K * d].reshape(K, d), point[K + K * d :]

    def model(self, point: FloatArray, K: int) -> ComplexArray:
        """The characteristic function of the mixture (L × M)."""
        logits, means, free = self.split(point, K)
        return np.asarray(self._powers(self.base @ means.T, self.family.damping(free, K)) @ _shares(logits))

    def misfit(self, point: FloatArray, K: int) -> float:
        """The squared distance from the released values in units of their errors, without penalties."""
        return float(np.sum(np.abs((self.model(point, K) - self.values) / self.errors[:, None]) ** 2))

    def descend(self, point: FloatArray, K: int, steps: int, least: float = FINE) -> tuple[float, FloatArray]:
        """At most so many steps of L-BFGS, until one of them lowers the loss by less than ``least``."""
        scale = max(self.loss(point, K)[0], 1.0)
        with np.errstate(all="ignore"):  # a trial point that overflows is a poor one, and is left
            options = {"maxiter": steps, "maxcor": 20, "ftol": least / scale}
            found = minimize(self.loss, point, (K,), jac=True, method="L-BFGS-B", options=options)
        return float(found.fun), np.asarray(found.x)


def fitted(target: Target, K: int, *, restarts: int = 8, exchanges: int = 6) -> tuple[float, FloatArray]:
    """The best point found for K components, and its loss."""
    pool = [target.descend(_greedy(target, K, r), K, 40, ROUGH) for r in range(restarts)]
    pool.sort(key=lambda own: own[0])
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
    first = target.first_correlations
    held, chosen, share = first, [], np.ones(1)
    for _ in range(K):
        chosen.append(int(allowed[int(np.argmax(held[allowed]))]))
        overlaps = np.array([target.overlap(place) for place in chosen])
        gram = overlaps[:, chosen]
        ridge = 1e-6 * np.trace(gram) / len(chosen) * np.eye(len(chosen))
        share = np.maximum(np.linalg.solve(gram + ridge, first[chosen]), 0.02)
        held = first - share @ overlaps
    return np.concatenate([np.log(share / share.sum()), target.places[chosen].ravel(), target.family.start(K)])


def _exchanged(target: Target, point: FloatArray, K: int, turn: int) -> FloatArray:
    """The same with one component moved: to where the residual is largest, or beside the largest component."""
    logits, means, free = target.split(point, K)
    share = _shares(logits)
    moved = int(np.argsort(share)[turn // 2 % K]) if turn % 2 == 0 else turn % K
    means = means.copy()
    if turn % 3 == 2:
        step = target.places[(37 * turn + 11) % len(target.places)]
        step = step / max(float(np.linalg.norm(step)), 1e-9)
        means[moved] = means[int(np.argmax(share))] + math.sqrt(target.spread2) * step
    else:
        means[moved] = target.places[int(np.argmax(target.correlations(target.values - target.model(point, K))))]
    again = target.family.start(K) if turn % 2 else free
    return np.concatenate([np.log(np.maximum(share, 0.05)), means.ravel(), again])


def _shares(logits: FloatArray) -> FloatArray:
    share = np.exp(logits - logits.max())
    return np.asarray(share / share.sum())
