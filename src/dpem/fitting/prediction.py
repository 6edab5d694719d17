"""The predicted error at any (n, ρ), interpolated between rehearsals at the corners of a lattice.

A rehearsal is a small simulation, so its result varies by some percent, and two nearly equal plans could come out in
the wrong order. Rehearsals are therefore made only at the corners of a lattice, along each side of which the predicted
error about halves: for an error that falls like n⁻¹, n is a power of 2 and ρ a power of 4; for one that falls like n⁻²,
n is a power of √2 and ρ a power of 2. Between corners, logarithms are interpolated over triangles. Each corner has its
own random numbers, so that errors average out, and is cached: a sweep over ε needs few more corners than one plan.
Where an approximate formula is known, the ratio to it is interpolated, which varies less.

*Lemma.* If the values fall along both axes of the lattice, the interpolated ones fall with n and with ρ everywhere.
*Proof.* On the triangle (i, j), (i+1, j), (i+1, j+1) the interpolant is linear with the slopes v(i+1, j) − v(i, j) and
v(i+1, j+1) − v(i+1, j), both ≤ 0; on the other one likewise; and it is continuous. ∎
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

import numpy as np

from dpem.fitting.model import Sizes
from dpem.query import FloatArray

#: Smaller values are raised to this one before their logarithm is taken.
LEAST = 1e-15
#: The size of the cache of corners.
MOST = 20_000

_cache: dict[Hashable, FloatArray] = {}


class Corner(NamedTuple):
    """A point of the lattice, n = 2^(i/power) and ρ = 4^(j/power), its weight ``part``, and its seed."""

    i: int
    j: int
    part: float
    power: int = 1

    @property
    def n(self) -> int:
        return max(1, round(2.0 ** (self.i / self.power)))

    @property
    def rho(self) -> float:
        return float(4.0 ** (self.j / self.power))

    @property
    def seed(self) -> int:
        return 1_000_000 + 100_000 * (self.i + 200) + 100 * (self.j + 200)


def corners(n: int, rho: float, power: int = 1) -> Iterator[Corner]:
    """The corners of the triangle in which (n, ρ) lies, for a quantity that falls like n^−power.

    >>> [(corner.i, corner.j, corner.part) for corner in corners(1024, 0.25)]
    [(10, -1, 1.0)]
    >>> round(sum(corner.part for corner in corners(1500, 0.03)), 12)
    1.0
    """
    a, b = power * math.log2(n), power * math.log2(rho) / 2
    i, j = math.floor(a), math.floor(b)
    f, g = a - i, b - j
    between = (i + 1, j, f - g) if f >= g else (i, j + 1, g - f)
    for corner in ((i, j, 1 - max(f, g)), between, (i + 1, j + 1, min(f, g))):
        if corner[2] > 1e-9:
            yield Corner(*corner, power)


def interpolated_prediction(
    key: Hashable,
    sizes: Sizes,
    rehearse: Callable[[Sizes, int], FloatArray],
    formula: Callable[[Sizes], float] = lambda sizes: 1.0,
    power: int = 1,
) -> FloatArray:
    """The interpolation, at these sizes, of positive numbers that fall like n^−power.

    ``rehearse(sizes, seed)`` returns the numbers at a corner, ``formula(sizes)`` an approximation of their size.
    ``key`` identifies everything else that they depend on.
    """
    logarithm: FloatArray | float = math.log(formula(sizes))
    for corner in corners(sizes.n, sizes.rho, power):
        entry = (key, sizes.rows_per_person, sizes.check, sizes.effect, corner.i, corner.j)
        if entry not in _cache:
            while len(_cache) >= MOST:
                _cache.pop(next(iter(_cache)))
            corner_sizes = sizes._replace(n=corner.n, rho=corner.rho)
            _cache[entry] = np.asarray(rehearse(corner_sizes, corner.seed)) / formula(corner_sizes)
        logarithm = logarithm + corner.part * np.log(np.maximum(_cache[entry], LEAST))
    return np.asarray(np.exp(logarithm))
