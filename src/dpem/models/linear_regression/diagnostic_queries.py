"""Queries of linear regression that settle its clips, its standard errors and its fit check."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpem.models.linear_regression.clipping import clipped_square
from dpem.models.linear_regression.queries import At, Rows
from dpem.queries.block_loop import over_rows, product
from dpem.queries.narrow import into_ball, rounded, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace


@dataclass(frozen=True)
class SizeHistogram(At):
    """How many rows that count have a size in each bin; ``edges`` are the bins' upper ends, the last bin has none.

    *Lemma.* ℓ∞ sensitivity 1, ℓ2 sensitivity √2. *Proof.* A row is counted in one bin or in none; replacing it takes
    one from a bin and adds one to another. Counts are whole numbers, so nothing is rounded. ∎
    """

    edges: tuple[float, ...]

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0, l2=math.sqrt(2.0), size_linf=1.0, size_l2=1.0)

    @abstractmethod
    def sizes(self, xp: Namespace, rows: Rows) -> Array: ...

    def added(self, xp: Namespace, rows: Rows) -> Array:
        size = zero_nonfinite(xp, self.sizes(xp, rows))
        size = xp.where(rows.seen, size, xp.full_like(size, -1.0))
        above = [_count(xp, size >= edge, rows.shares) for edge in (0.0, *self.edges)]
        return xp.stack([a - b for a, b in itertools.pairwise(above)] + [above[-1]])


def _count(xp: Namespace, which: Array, shares: Array) -> Array:
    if isinstance(which, np.ndarray) and shares is None:
        return np.float64(np.count_nonzero(which))
    return xp.sum(weighted(xp.astype(which, xp.float64), shares))


@dataclass(frozen=True)
class LengthHistogram(SizeHistogram):
    """A :class:`SizeHistogram` of the rows' lengths ‖a‖/√k."""

    label: ClassVar[str] = "histogram of the rows' leverage"

    def sizes(self, xp: Namespace, rows: Rows) -> Array:
        return rows.size / math.sqrt(len(self.theta))


@dataclass(frozen=True)
class ScoreHistogram(SizeHistogram):
    """A :class:`SizeHistogram` of the lengths |e|·‖a‖/√k of the rows' scores, e a residual in standard deviations."""

    label: ClassVar[str] = "histogram of the scores' lengths"

    def sizes(self, xp: Namespace, rows: Rows) -> Array:
        return xp.abs(rows.r) * self.sigma / rows.v * rows.size / math.sqrt(len(self.theta))


@dataclass(frozen=True)
class ScoreVariance(At):
    """Σ t·u over rows that count: u = ((σ²/v)·(q_j·a)²)_j in the ball of radius ``radius``, q_j the rows of
    ``directions``, and t = min(e², clip²) − m with m its mean for a normal e: by how much the variance of each
    direction's score exceeds what errors of one variance give it, the meat of the sandwich. A row with the weight s
    adds s·(s·min(e², clip²) − m)·u, and m is the mean of the square times ``ratio`` = E s²/E s.

    *Lemma.* ℓ2 sensitivity radius·max(√2·max(c² − m, m), c²), c = clip. *Proof.* t lies in [−m, c² − m], which holds 0,
    and so does s·(s·min(e², c²) − m) for s in [0, 1]; u has no negative entry. Two contributions with t, t′ of one
    sign: ‖tu − t′u′‖² ≤ t²‖u‖² + t′²‖u′‖² ≤ 2·max(t², t′²)·radius²,
    as u·u′ ≥ 0. Of opposite signs: ‖tu − t′u′‖ ≤ (|t| + |t′|)·radius ≤ c²·radius. A row that does not count adds 0. ∎
    """

    directions: FloatArray = field(repr=False)
    clip: float
    radius: float
    ratio: float = 1.0

    @property
    def mean(self) -> float:
        return self.ratio * float(clipped_square(self.clip**2))

    @property
    def label(self) -> str:
        return f"variance of the scores, squared residuals clipped at {self.clip:.4g}²"

    @property
    def bound(self) -> Bound:
        square, m = self.clip**2, self.mean
        size = max(square - m, m)
        whole = self.radius * max(math.sqrt(2.0) * size, square)
        own = self.radius * size
        return rounded(Bound(linf=whole, l2=whole, size_linf=own, size_l2=own), 4 * len(self.directions) + 8)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        along = product(xp, rows.a, self.directions.T)
        weight = xp.zeros_like(rows.r) + self.sigma**2 / rows.v
        e2 = weighted(xp.clip(zero_nonfinite(xp, rows.r**2 / rows.v), 0.0, self.clip**2), rows.shares) - self.mean
        t = weighted(xp.where(rows.seen, e2, xp.zeros_like(rows.r)), rows.shares)
        return over_rows(xp, t, into_ball(xp, along * along, self.radius, times=weight))


#: The largest sizes of a row's part in the curvature and in the heteroscedasticity, and how much these count beside the
#: squares explained.
MOST_CURVATURE, MOST_UNEQUAL, CURVATURE_SHARE, UNEQUAL_SHARE = 6.0, 6.0, 0.7, 0.6


@dataclass(frozen=True)
class Explained(At):
    """Σ (t, t²/most, b·most·s, u·most·q), t = clamp((z of y − middle)² − r², ±most): by how much the slopes reduce the
    squared residual. With e the residual in standard deviations and f what is fitted, beyond the middle in units of
    ``along``, both clipped:

    - s in [−1, 1] is e·(f² − 1), over the most it may be: whether residuals have one sign at both ends of the line and
      the other between (Ramsey's RESET, of one degree of freedom);
    - q in [−1, 1] is (e² − its mean)·f likewise: whether errors are larger at one end (Breusch and Pagan's test).

    *Lemma.* ℓ2 sensitivity 2·most·√(1 + b² + u²). *Proof.* 2·most for the first two, by the proof of
    :class:`~dpem.fitting.check.LogRatio` word for word, and twice the largest size for each of the others. ∎
    """

    middle: float
    most: float
    along: float
    in_frame = False

    @property
    def label(self) -> str:
        return (
            f"fit check: squares explained by the slopes, clamped at {self.most:.4g}, and whether the model is linear"
        )

    @property
    def bound(self) -> Bound:
        B, more = self.most, CURVATURE_SHARE**2 + UNEQUAL_SHARE**2
        l2, size = 2 * B * math.sqrt(1 + more), B * math.sqrt(2 + more)
        return rounded(Bound(linf=2 * B, l2=l2, size_linf=B, size_l2=size), 4)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        beyond = rows.fitted + rows.r - self.middle
        t = zero_nonfinite(xp, beyond**2 - rows.r**2) / self.most
        e = xp.clip(zero_nonfinite(xp, rows.r / xp.sqrt(rows.v)), -2.4, 2.4)
        f = xp.clip(zero_nonfinite(xp, (rows.fitted - self.middle) / self.along), -2.0, 2.0)
        s = e * xp.clip(f * f - 1.0, -1.0, 2.5) / MOST_CURVATURE
        q = (xp.clip(e * e, 0.0, 4.0) - float(clipped_square(4.0))) * f / MOST_UNEQUAL
        seen = weighted(xp.astype(rows.seen, xp.float64), rows.shares)
        t, s, q = (xp.clip(own, -1.0, 1.0) for own in (t, s, q))
        sums = [xp.sum(seen * t), xp.sum(seen * t * t)]
        sums += [CURVATURE_SHARE * xp.sum(seen * s), UNEQUAL_SHARE * xp.sum(seen * q)]
        return self.most * xp.stack(sums)
