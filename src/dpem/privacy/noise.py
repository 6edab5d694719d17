"""Samplers, the only module that draws privacy noise (random bits for selection: :mod:`dpem.privacy.gumbel`).

:class:`PrivateNoise` draws from OpenDP's exact samplers, so that the low bits of released floats reveal nothing about
the data. For selection it takes the price from OpenDP's privacy map and draws with :mod:`dpem.privacy.gumbel`, which
has the same distribution: OpenDP 0.16 needs tens of seconds for a million scores of similar size, a time that depends
on the scores. :class:`SeededNoise` uses NumPy's generator for simulations. It is repeatable and **not private**: the
low bits of a float sum of data and noise reveal the data, and whoever knows the seed can subtract the noise.

Methods take the sensitivity and the price beside the scale. ``PrivateNoise`` checks with OpenDP's privacy map that the
noise costs no more than the price that was charged.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from opendp import measurements
from opendp.domains import atom_domain, vector_domain  # opendp.prelude would load scikit-learn and more
from opendp.measures import zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features

from dpem._validation import ArgumentError
from dpem.privacy import gumbel
from dpem.query import FloatArray

enable_features("contrib")

_VECTOR = vector_domain(atom_domain(T=float, nan=False))
_L1, _L2, _LINF = l1_distance(T=float), l2_distance(T=float), linf_distance(T=float)


class Noise(Protocol):
    """The samplers that mechanisms use."""

    private: bool

    def top_k(self, scores: FloatArray, k: int, sensitivity: float, rho: float) -> NDArray[np.intp]:
        """Indices of the k largest of score + Gumbel(1), largest first."""

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        """values + N(0, scale²)."""

    def laplace(self, values: FloatArray, scale: float, grid: float | None = None) -> FloatArray:
        """values + Laplace(scale); with a ``grid``, a power of two, values and noise are whole multiples of it."""


class PrivateNoise:
    """Noise from OpenDP's samplers.

    >>> float(PrivateNoise().gaussian(np.zeros(1), scale=1e-9, sensitivity=1e-9, rho=0.51)[0]) != 0
    True
    """

    private = True

    def top_k(self, scores: FloatArray, k: int, sensitivity: float, rho: float) -> NDArray[np.intp]:
        mechanism = measurements.make_noisy_top_k(_VECTOR, _LINF, zero_concentrated_divergence(), k=k, scale=1.0)
        _check_price(mechanism, sensitivity, rho)
        return gumbel.top_k(scores, k)

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        # The default grid, 2⁻¹⁰⁷⁴, takes four times as long. The privacy map includes the rounding to the grid.
        grid = max(math.frexp(scale)[1] - 100, -1074)
        mechanism = measurements.make_gaussian(_sized(len(values)), _L2, scale=scale, k=grid)
        _check_price(mechanism, sensitivity, rho)
        return np.asarray(mechanism(np.ascontiguousarray(values)), dtype=float)

    def laplace(self, values: FloatArray, scale: float, grid: float | None = None) -> FloatArray:
        domain, k = (_VECTOR, None) if grid is None else (_sized(len(values)), round(math.log2(grid)))
        mechanism = measurements.make_laplace(domain, _L1, scale=scale, k=k)
        return np.asarray(mechanism(np.ascontiguousarray(values)), dtype=float)


class SeededNoise:
    """Repeatable numpy noise for simulations. Not private."""

    private = False

    def __init__(self, seed: int | np.random.RandomState | np.random.Generator | None) -> None:
        if isinstance(seed, np.random.RandomState):
            seed = int(seed.randint(2**31 - 1))
        try:
            self._rng = np.random.default_rng(seed)
        except (TypeError, ValueError):
            raise ArgumentError("random_state", "must be a whole number that is not negative, or None.") from None

    def top_k(self, scores: FloatArray, k: int, sensitivity: float, rho: float) -> NDArray[np.intp]:
        noisy = scores + self._rng.gumbel(size=scores.shape)
        best = np.argpartition(-noisy, k - 1)[:k]
        return best[np.argsort(-noisy[best], kind="stable")]

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        return np.asarray(values + scale * self._rng.standard_normal(values.shape))

    def laplace(self, values: FloatArray, scale: float, grid: float | None = None) -> FloatArray:
        return np.asarray(values + self._rng.laplace(scale=scale, size=values.shape))


@functools.lru_cache(maxsize=64)
def _sized(size: int) -> Any:
    return vector_domain(atom_domain(T=float, nan=False), size=size)


def _check_price(mechanism: Any, sensitivity: float, rho: float) -> None:
    if mechanism.map(sensitivity) > rho * (1 + 1e-9):
        raise RuntimeError("the noise about to be drawn would cost more than was charged; nothing was released.")
