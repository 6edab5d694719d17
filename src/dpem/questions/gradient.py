"""A gradient over all columns, or on a few: one weight per record times the record, clipped."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpem.engines import engine_of
from dpem.query import Bound, Chunk, FloatArray

IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class CoordinateQuery:
    """All d coordinates of a gradient, each clipped: the question asked before selecting coordinates.

    A record adds clamp(a, ±residual)·Π_T(x_j), T = ``entry``; where x_j is missing and ``bracket`` is given, it adds
    clamp(c, −1, bracket)·β_j. ``kind`` and ``constants`` say which weights a and c are meant.
    """

    label: str
    bound: Bound
    kind: int = field(repr=False)
    beta: FloatArray = field(repr=False)
    constants: FloatArray = field(repr=False)
    entry: float = field(repr=False)
    residual: float = field(repr=False)
    bracket: float | None = field(default=None, repr=False)
    blocked: bool = True

    def sum(self, chunk: Chunk) -> FloatArray:
        return engine_of(chunk.X).coordinate(self, chunk)


@dataclass(frozen=True)
class SupportQuery:
    """The gradient on a support, each record's contribution centred and scaled into an ℓ2 ball of radius C.

    *Lemma.* Replacing a record moves the sum by at most 2C in ℓ2. *Proof.* Both contributions lie in a ball of radius
    C around 0; ``centre`` is public (it was released before), so it is the same for both neighbours. ∎ The norm is
    computed in float64, from a sum of s squares: the ball that is really enforced is wider by at most s + 8 roundings.
    """

    label: str
    kind: int = field(repr=False)
    beta: FloatArray = field(repr=False)
    constants: FloatArray = field(repr=False)
    support: IntArray = field(repr=False)
    centre: FloatArray = field(repr=False)
    radius: float
    blocked: bool = False

    def __post_init__(self) -> None:
        off = np.ones(self.beta.shape[0], dtype=bool)
        off[self.support] = False
        if np.any(self.beta[off]):
            raise ValueError("support must contain every non-zero coefficient of beta.")

    @property
    def reads(self) -> IntArray:
        """The only columns that are looked at: a source may leave the others on disk."""
        return self.support

    @property
    def bound(self) -> Bound:
        return Bound.symmetric(l2=self.radius * rounded_up(len(self.support)))

    def sum(self, chunk: Chunk) -> FloatArray:
        return engine_of(chunk.X).support(self, chunk)


def rounded_up(terms: int) -> float:
    """How much longer a vector of that many entries may be than the radius it was scaled to, in float64."""
    return 1.0 + (terms + 8) * float(np.finfo(np.float64).eps)
