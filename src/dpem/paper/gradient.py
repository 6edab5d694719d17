"""Gradients over all columns or on a support: the sum over records of weight times record, clipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem._validation import ArgumentError
from dpem.paper.engine import engine_of
from dpem.queries.block_loop import narrow_sum, narrow_sums
from dpem.queries.narrow import sum_in_ball
from dpem.query import Array, Bound, Chunk, FloatArray, Namespace
from dpem.tables.blocks import like

IntArray = NDArray[np.intp]

#: A model's formula, ``weight(xp, fitted, hidden, y) -> (a, c)``, in elementwise functions of the array API: from ⟨β,
#: z⊙x⟩, ‖(1−z)⊙β‖² (None where nothing can be missing) and the response (None where there is none), all in float64, one
#: number a for each row, and one c for its missing entries (or None). The query clamps what it returns.
Weight = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class CoordinateQuery:
    """All d coordinates of a gradient, each clipped: the query of a selection.

    A record adds clamp(a, ±residual)·Π_T(x_j), T = ``entry``; where x_j is missing and ``bracket`` is given, it adds
    clamp(c, −1, bracket)·β_j. The model's ``weight`` computes a and c.
    """

    label: str
    bound: Bound
    weight: Weight = field(repr=False)
    beta: FloatArray = field(repr=False)
    entry: float = field(repr=False)
    residual: float = field(repr=False)
    bracket: float | None = field(default=None, repr=False)
    blocked: bool = True

    def sum(self, chunk: Chunk) -> FloatArray:
        return engine_of(chunk.X).coordinate(self, chunk)


@dataclass(frozen=True)
class SupportQuery:
    """The gradient on a support, each record's contribution centred and scaled into an ℓ2 ball of radius C.

    A record contributes a·x_S − centre, with c·β_j in the place of an entry that is missing where the model has missing
    entries (``has_missing``).

    *Lemma.* Replacing a record moves the sum by at most 2C in ℓ2. *Proof.* Both contributions lie in a ball of radius
    C around 0; ``centre`` is public (it was released before), so it is the same for both neighbours. ∎ The norm is
    computed in float64, from a sum of s squares: the ball that is really enforced is wider by at most s + 8 roundings.
    A contribution that is not finite, or whose norm overflows, adds 0.
    """

    label: str
    weight: Weight = field(repr=False)
    beta: FloatArray = field(repr=False)
    support: IntArray = field(repr=False)
    centre: FloatArray = field(repr=False)
    radius: float
    has_missing: bool = field(default=False, repr=False)
    blocked: bool = False

    def __post_init__(self) -> None:
        off = self.beta.copy()
        off[self.support] = 0.0
        if off.any():
            raise ArgumentError("support", "must contain every non-zero coefficient of beta.")

    @property
    def reads(self) -> IntArray:
        """The only columns that the query needs: a source may leave the others on disk."""
        return self.support

    @property
    def bound(self) -> Bound:
        return Bound.symmetric(l2=self.radius * rounded_up(len(self.support)))

    def sum(self, chunk: Chunk) -> FloatArray:
        return narrow_sum(self, chunk)

    def sums(self, chunk: Chunk, rows: int) -> FloatArray | None:
        """The sums over consecutive blocks of ``rows`` rows, or None where they need more than one pass."""
        return narrow_sums(self, chunk, rows)

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        if isinstance(x, np.ndarray):
            from dpem.paper.engine.dense import support_sum  # here, since plans need no compiler

            return support_sum(self, x, y)
        beta, centre = like(xp, self.beta[self.support], x), like(xp, self.centre, x)
        if self.has_missing:
            missing = xp.isnan(x)
            x = xp.where(missing, xp.zeros_like(x), x)
            hidden = xp.sum(xp.where(missing, (beta * beta)[None, :], xp.zeros_like(x)), axis=1)
            a, c = self.weight(xp, xp.matmul(x, beta), hidden, y)
            u = xp.where(missing, c[:, None] * beta[None, :], a[:, None] * x) - centre[None, :]
        else:
            a, _ = self.weight(xp, xp.matmul(x, beta), None, y)
            u = a[:, None] * x - centre[None, :]
        return sum_in_ball(xp, u, self.radius)


def rounded_up(terms: int) -> float:
    """The relative excess that rounding in float64 may leave in the norm of a clipped vector of so many entries."""
    return 1.0 + (terms + 8) * 2.0**-52
