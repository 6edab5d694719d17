"""All queries of the fit except the scores: sizes, moments, directions, cells, and the fit check."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpem.fitting.check import LogRatio
from dpem.models.mixture_regression.components import Frame
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, into_ball, packed, rounded, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class ColumnSizes(NarrowQuery):
    """Σ (1, w, √2·|w|) for each column, the response last, with w = clip((u − center)/half, ±1); a missing value adds
    0. So one query gives the observed share, the mean and the mean absolute deviation.

    *Lemma.* ℓ2 sensitivity 2√D for D columns, as of the means alone. *Proof.* One column. Both observed:
    (w − w′)² + 2(|w| − |w′|)². Of equal signs this is 3(w − w′)² ≤ 3. Of opposite signs, with a = |w| and b = |w′|, it
    is (a + b)² + 2(a − b)² = 3a² + 3b² − 2ab, convex in a and in b, so it is largest at a corner of [0, 1]²: 4. One
    missing: 1 + w² + 2w² ≤ 4. Both: 0. Adding D columns gives 4D. ∎
    """

    center: FloatArray = field(repr=False)
    half: FloatArray = field(repr=False)
    label: str = "how often each column is observed, its mean and mean deviation"

    @property
    def bound(self) -> Bound:
        root = 2 * math.sqrt(len(self.center))
        return rounded(Bound(linf=2.0, l2=root, size_linf=math.sqrt(2.0), size_l2=root), 3 * len(self.center))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        u = xp.concat([x, y[:, None]], axis=1)
        w = (u - like(xp, self.center, x)) / like(xp, self.half, x)
        seen = xp.where(xp.isfinite(w), xp.ones_like(w), xp.zeros_like(w))
        w = xp.clip(zero_nonfinite(xp, w), -1.0, 1.0)
        return xp.concat([xp.sum(seen, axis=0), xp.sum(w, axis=0), 2.0**0.5 * xp.sum(xp.abs(w), axis=0)])


@dataclass(frozen=True)
class ColumnSquares(NarrowQuery):
    """Σ ((u − center)/(1 + |center|))² for each column; a missing value adds 0.

    *Lemma.* ℓ2 sensitivity √d for d columns. *Proof.* Each of d numbers lies in [0, 1] by the clamp. ∎
    """

    center: FloatArray = field(repr=False)
    label: str = "squared distance of each column from its centre"

    @property
    def bound(self) -> Bound:
        root = math.sqrt(len(self.center))
        return rounded(Bound(linf=1.0, l2=root, size_linf=1.0, size_l2=root), len(self.center))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        w = (x - like(xp, self.center, x)) / like(xp, 1 + np.abs(self.center), x)
        return xp.sum(xp.clip(zero_nonfinite(xp, w * w), 0.0, 1.0), axis=0)


@dataclass(frozen=True)
class RegressionMoments(NarrowQuery):
    """Σ vvᵀ packed, v = (1, x̃, t) scaled into the ball of radius R; a row without a response adds 0.

    *Lemma.* ℓ2 sensitivity √2·R². *Proof.* ‖vvᵀ − wwᵀ‖² = ‖v‖⁴ + ‖w‖⁴ − 2(v·w)² ≤ 2R⁴ in Frobenius norm, which the
    packing keeps. ∎
    """

    frame: Frame = field(repr=False)
    radius: float

    @property
    def label(self) -> str:
        return f"second moments of columns and response, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        square, p = self.radius**2, self.schema.width + 2
        l2 = math.sqrt(2.0) * square
        return rounded(Bound(linf=l2, l2=l2, size_linf=square, size_l2=square), 4 * p)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        v, t, present = self.frame.rows(xp, x, y)
        v = into_ball(xp, xp.concat([v, t[:, None]], axis=1), self.radius) * present[:, None]
        return packed(xp, over_rows(xp, v, v))


#: Squared residuals are clipped at the first number; the second is about their mean under one regression, E min(e², 4).
MOST_SQUARE, USUAL_SQUARE = 4.0, 0.7


@dataclass(frozen=True)
class UnevenSpread(NarrowQuery):
    """Σ (min(r², 4) − 0.7)·vvᵀ packed, v = (1, x̃) in the ball of radius R, r the residual of one regression.

    Where components have different slopes, squared residuals grow along the difference of the slopes.

    *Lemma.* ℓ2 sensitivity 3.3·√2·R². *Proof.* For weights a, b in [−0.7, 3.3], ‖a·vvᵀ − b·wwᵀ‖² = a²‖v‖⁴ + b²‖w‖⁴ −
    2ab(v·w)². If ab ≥ 0 it is at most (a² + b²)R⁴ ≤ 2·3.3²·R⁴; if not, at most (|a| + |b|)²R⁴ ≤ 4²·R⁴, which is
    less. ∎
    """

    frame: Frame = field(repr=False)
    regression: FloatArray = field(repr=False)
    spread: float = field(repr=False)
    radius: float

    @property
    def label(self) -> str:
        return f"where squared residuals are large, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        size = (MOST_SQUARE - USUAL_SQUARE) * self.radius**2
        l2 = math.sqrt(2.0) * size
        return rounded(Bound(linf=l2, l2=l2, size_linf=size, size_l2=size), 4 * (self.schema.width + 1))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        v, t, present = self.frame.rows(xp, x, y)
        r = (t - xp.matmul(v, like(xp, self.regression, x))) / self.spread
        weight = (xp.clip(zero_nonfinite(xp, r * r), 0.0, MOST_SQUARE) - USUAL_SQUARE) * present
        v = into_ball(xp, v, self.radius)
        return packed(xp, over_rows(xp, v * weight[:, None], v))


@dataclass(frozen=True)
class ResidualCells(NarrowQuery):
    """Counts of rows in cells of (Ux̃, r): a few directions, and the residual of one regression. A row without a
    response is in no cell.

    *Lemma.* ℓ2 sensitivity √2, in any number of cells. *Proof.* A row adds 1 to one cell or to none. ∎
    """

    frame: Frame = field(repr=False)
    regression: FloatArray = field(repr=False)
    spread: float = field(repr=False)
    directions: FloatArray = field(repr=False)
    x_edges: FloatArray = field(repr=False)
    r_edges: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        q = self.directions.shape[1]
        cells = (len(self.x_edges) + 1) ** q * (len(self.r_edges) + 1)
        return f"counts in {cells} cells of residual and {q} direction{'s' if q > 1 else ''}"

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0, l2=math.sqrt(2.0), size_linf=1.0, size_l2=1.0)

    def _cells(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
        """The x-cell and the interval of the residual of each row, one-hot."""
        v, t, present = self.frame.rows(xp, x, y)
        r = (t - xp.matmul(v, like(xp, self.regression, x))) / self.spread
        interval = _one_hot(xp, r, like(xp, self.r_edges, x)) * present[:, None]
        projections = zero_nonfinite(xp, xp.matmul(v[:, 1:], like(xp, self.directions, x)))
        edges = like(xp, self.x_edges, x)
        cell = xp.ones_like(interval[:, :1])
        for j in range(self.directions.shape[1]):
            cell = _products(xp, cell, _one_hot(xp, projections[:, j], edges))
        return cell, interval

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        return xp.reshape(over_rows(xp, *self._cells(xp, x, y)), (-1,))

    def each(self, xp: Namespace, x: Array) -> Array:
        """The cell of each row, one-hot; rows have their response as the last column."""
        return _products(xp, *self._cells(xp, x[:, :-1], x[:, -1]))


def _products(xp: Namespace, one: Array, other: Array) -> Array:
    """The products of each entry of one with each entry of the other, row by row."""
    return xp.reshape(one[:, :, None] * other[:, None, :], (one.shape[0], one.shape[1] * other.shape[1]))


def _one_hot(xp: Namespace, values: Array, edges: Array) -> Array:
    """1 in the interval between edges that holds the value, 0 in all others: exactly one 1, whatever the value is."""
    is_above = zero_nonfinite(xp, values)[:, None] > edges[None, :]
    above = xp.where(is_above, xp.ones_like(values)[:, None], xp.zeros_like(values)[:, None])
    first = xp.ones_like(above[:, :1])
    return xp.concat([first, above], axis=1) - xp.concat([above, xp.zeros_like(first)], axis=1)


#: The components miss a row if its response is more than this number of residual spreads from each of them.
FAR = 3.0
#: The share of normal responses that are this far from their own regression.
USUALLY_FAR = 0.0027
#: The weight of a missed row in the query; a larger one means less noise in their share and more in the leads.
FAR_WEIGHT = 2.0


@dataclass(frozen=True)
class LeadAndMissed(LogRatio):
    """Σ (t, t²/B) for two single regressions, and Σ c·1{the row is missed}: the leads of :class:`LogRatio` over the one
    regression of its own scores (``simpler``) and over the largest component (``largest``), and the missed rows.

    Where one regression is true, a mixture often has nearly all rows in one component, which has less noise than the
    regression of its own scores. A comparison with that regression alone would favour the mixture.

    *Lemma.* ℓ2 sensitivity √(8B² + c²). *Proof.* Each lead's two entries move by at most 2B together, the last one by
    at most c, and the squares add. ∎
    """

    largest: object = field(repr=False)

    @property
    def label(self) -> str:
        return f"{super().label}, and rows that the components miss"

    @property
    def bound(self) -> Bound:
        B, c = self.most, FAR_WEIGHT
        return rounded(Bound(max(2 * B, c), math.hypot(8**0.5 * B, c), max(B, c), math.hypot(2 * B, c)), 5)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        other = LogRatio(self.schema, self.model, self.fitted, self.largest, self.most)
        leads = [super().contributions(xp, x, y, shares), other.contributions(xp, x, y, shares)]
        components, columns = self.fitted.components, self.fitted.frame.columns(xp, x)
        nearest = xp.min(xp.abs(components.residuals(xp, columns, y)), axis=1)
        missed = xp.sum(weighted(xp.astype(nearest > FAR, xp.float64), shares))
        return xp.concat([*leads, xp.reshape(FAR_WEIGHT * missed, (1,))])
