"""Samplers. The only module of the package that draws privacy noise.

:class:`PrivateNoise` draws from OpenDP's exact samplers: the released floats carry no trace of how they were computed.
For selection it asks OpenDP's privacy map for the price and draws by :mod:`dpem.privacy.gumbel`, which has the same
law: OpenDP 0.16 takes tens of seconds for a million scores when few of them stand out, a time that depends on them.
:class:`SeededNoise` is numpy's generator, repeatable and **not private** (the low bits of a float sum of data and
noise give the data away, and whoever knows the seed can subtract the noise). It exists for simulations.

Each method takes the sensitivity and the price along with the scale: ``PrivateNoise`` asks OpenDP's own privacy map
whether the noise it is about to draw costs no more than the price that was charged, and refuses otherwise.
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
    """What a mechanism needs of a sampler."""

    private: bool

    def top_k(self, scores: FloatArray, k: int, sensitivity: float, rho: float) -> NDArray[np.intp]:
        """Indices of the k largest of score + Gumbel(1), best first."""

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
        _check(mechanism, sensitivity, rho)
        return gumbel.top_k(scores, k)

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        # On the default grid, 2⁻¹⁰⁷⁴, exact arithmetic takes four times as long. Values are rounded to this grid, too,
        # which the privacy map counts.
        grid = max(math.frexp(scale)[1] - 100, -1074)
        mechanism = measurements.make_gaussian(_sized(len(values)), _L2, scale=scale, k=grid)
        _check(mechanism, sensitivity, rho)
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


def _check(mechanism: Any, sensitivity: float, rho: float) -> None:
    if mechanism.map(sensitivity) > rho * (1 + 1e-9):
        raise RuntimeError("the noise about to be drawn would cost more than was charged; nothing was released.")
