"""Bounded queries about the size of things: of whole rows (for σ) and of each column (for scaling)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpem.query import Bound, Chunk, FloatArray
from dpem.tables.blocks import rows_of

#: Bins of a row's size: factors of √2 from 2^-40 to 2^40, the outer ones open.
EDGES: FloatArray = np.power(2.0, np.arange(-80, 81) / 2)


def row_squares(chunk: Chunk, of_response: bool) -> FloatArray:
    """Mean square of each row's entries, or the square of its response; not-a-number counts as 0."""
    engine = rows_of(chunk.X)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(engine.response(chunk)) if of_response else engine.mean_squares(chunk.X)
    return np.asarray(np.nan_to_num(squares, nan=0.0, posinf=np.finfo(float).max))


@dataclass(frozen=True)
class SizeHistogram:
    """How many rows have a root mean square in each bin.

    *Lemma.* ℓ∞ sensitivity 1, ℓ2 sensitivity √2. *Proof.* A row is counted in exactly one bin; replacing it takes one
    from a bin and adds one to another. ∎
    """

    of_response: bool
    blocked: bool = False
    label: str = "histogram of the rows' size"

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0, l2=math.sqrt(2.0), size_linf=1.0, size_l2=1.0)

    def sum(self, chunk: Chunk) -> FloatArray:
        place = np.searchsorted(EDGES, np.sqrt(row_squares(chunk, self.of_response)))
        return np.bincount(place, minlength=len(EDGES) + 1).astype(float)


@dataclass(frozen=True)
class CappedSquares:
    """Σ min(mean square of a row, cap²).

    *Lemma.* Sensitivity cap². *Proof.* A contribution lies in [0, cap²]. ∎
    """

    of_response: bool
    cap: float
    blocked: bool = False

    @property
    def label(self) -> str:
        return f"mean square of a row, capped at {self.cap:.4g}²"

    @property
    def bound(self) -> Bound:
        square = self.cap**2
        return Bound(linf=square, l2=square, size_linf=square, size_l2=square)

    def sum(self, chunk: Chunk) -> FloatArray:
        return np.array([np.minimum(row_squares(chunk, self.of_response), self.cap**2).sum()])


@dataclass(frozen=True)
class ColumnMoments:
    """For each column, moments of its entry u moved to [−1, 1] by public bounds: Σu, Σ1.5·u², Σ0.85·[observed].
    Missing, or infinite, adds 0.

    *Lemma.* ℓ2 sensitivity 2√d, as if the means alone were asked. *Proof.* One column at a time. Two observed entries
    u ≥ v: the squared distance is (u−v)²(1 + 2.25(u+v)²). For a given difference it grows with |u+v|, so take u = 1,
    v = t − 1 (the other end mirrors it): it is 4 + t·g(t) with g(t) = −4 + 10t − 9t² + 2.25t³, and g < 0 on [0, 2]
    (its largest value there is about −0.61), so it is at most 4. Observed against missing: u² + 2.25u⁴ + 0.7225 ≤
    3.9725 < 4. Two missing: 0. Adding d columns gives 4d. ∎
    """

    low: FloatArray = field(repr=False)
    high: FloatArray = field(repr=False)
    blocked: bool = False
    label: str = "first and second moments and counts of each column"

    @property
    def bound(self) -> Bound:
        root = math.sqrt(len(self.low))
        return Bound(linf=2.0, l2=2 * root, size_linf=1.5, size_l2=2 * root)

    @np.errstate(over="ignore")
    def sum(self, chunk: Chunk) -> FloatArray:
        d = len(self.low)
        total = np.zeros(3 * d)
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        for rows in rows_of(chunk.X).pieces(chunk.X, 4096):
            seen = np.isfinite(rows)
            u = np.clip((np.where(seen, rows, 0.0) - middle) / half, -1.0, 1.0) * seen
            total[:d] += u.sum(axis=0)
            total[d : 2 * d] += 1.5 * np.square(u).sum(axis=0)
            total[2 * d :] += 0.85 * seen.sum(axis=0)
        return total
