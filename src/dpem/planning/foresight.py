"""What to expect at any (n, ρ), from rehearsals at the corners of a lattice.

A rehearsal is a small simulation, so what it tells scatters by some percent. Read off at the sizes asked for, two plans
that hardly differ could be told in the wrong order. So rehearsals are made only where n is a power of 2 and ρ one of 4,
where each step makes the answer better by far more than that scatter; between these, logarithms are interpolated over
triangles. Each point has random numbers of its own, so that the corners' errors average. What was rehearsed is
remembered: a sweep over ε needs few more corners than one plan.

*Lemma.* If the values fall along both axes of the lattice, the interpolated ones fall with n and with ρ everywhere.
*Proof.* On the triangle (i, j), (i+1, j), (i+1, j+1) the interpolant is linear with the slopes v(i+1, j) − v(i, j) and
v(i+1, j+1) − v(i+1, j), both ≤ 0; on the other one likewise; and it is continuous. ∎
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

import numpy as np

from dpem.planning.model import Sizes
from dpem.query import FloatArray

#: Values below this count as this.
LEAST = 1e-15
#: How many corners are remembered.
MOST = 20_000

_known: dict[Hashable, FloatArray] = {}


class Corner(NamedTuple):
    """A point of the lattice: n = 2^i, ρ = 4^j, its part in what is told, and a seed of its own."""

    i: int
    j: int
    part: float

    @property
    def seed(self) -> int:
        return 1_000_000 + 10_000 * (self.i + 100) + 20 * (self.j + 100)


def corners(n: int, rho: float) -> Iterator[Corner]:
    """The corners of the triangle in which (n, ρ) lies.

    >>> [(corner.i, corner.j, corner.part) for corner in corners(1024, 0.25)]
    [(10, -1, 1.0)]
    >>> round(sum(corner.part for corner in corners(1500, 0.03)), 12)
    1.0
    """
    a, b = math.log2(n), math.log2(rho) / 2
    i, j = math.floor(a), math.floor(b)
    f, g = a - i, b - j
    between = (i + 1, j, f - g) if f >= g else (i, j + 1, g - f)
    for corner in ((i, j, 1 - max(f, g)), between, (i + 1, j + 1, min(f, g))):
        if corner[2] > 1e-9:
            yield Corner(*corner)


def foreseen(key: Hashable, sizes: Sizes, rehearse: Callable[[Sizes, int], FloatArray]) -> FloatArray:
    """Positive numbers at these sizes, of which ``rehearse(sizes, seed)`` gives those of a corner. ``key`` holds all
    else that they depend on.
    """
    total: FloatArray | float = 0.0
    for corner in corners(sizes.n, sizes.rho):
        name = (key, sizes.rows_per_person, sizes.check, sizes.effect, corner.i, corner.j)
        if name not in _known:
            while len(_known) >= MOST:
                _known.pop(next(iter(_known)))
            there = sizes._replace(n=max(1, round(2.0**corner.i)), rho=4.0**corner.j)
            _known[name] = np.asarray(rehearse(there, corner.seed))
        total = total + corner.part * np.log(np.maximum(_known[name], LEAST))
    return np.asarray(np.exp(total))
