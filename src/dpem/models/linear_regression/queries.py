"""Queries of linear regression: moments of the columns and the response, and sums over rows at given coefficients."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpem.models.linear_regression.coding import Coding
from dpem.models.linear_regression.frame import Frame, counts, scaled
from dpem.models.linear_regression.missing_values import by_missing, filled, filled_squares
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, into_ball, packed, rounded, squares, sum_in_ball, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like


def gram_bound(radius: float, terms: int) -> Bound:
    """The bound of Σ vvᵀ, packed, over rows of length at most ``radius``.

    *Lemma.* ℓ2 sensitivity √2·radius². *Proof.* ‖aaᵀ − bbᵀ‖² = ‖a‖⁴ + ‖b‖⁴ − 2⟨a, b⟩² ≤ 2·radius⁴ in Frobenius norm,
    which the packing keeps. The products are rounded by one part in 2⁵³ each; the bound is wider by more than that. ∎
    """
    square = radius**2
    whole = math.sqrt(2.0) * square
    return rounded(Bound(linf=whole, l2=whole, size_linf=square, size_l2=square), 4 * terms + 16)


@dataclass(frozen=True)
class JointMoments(NarrowQuery):
    """Σ vvᵀ with v = (1, z of every column, z of the response), missing values as 0, scaled into a ball
    (:func:`gram_bound`).

    Rows without a response add nothing: their columns may be distributed otherwise than those of the others.
    """

    coding: Coding = field(repr=False)
    y_centre: float
    y_spread: float
    radius: float

    @property
    def label(self) -> str:
        return f"second moments of the columns and the response, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return gram_bound(self.radius, self.schema.width + 2)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        z, r = scaled(xp, x, self.coding.centre, self.coding.scale), (y - self.y_centre) / self.y_spread
        v = xp.concat([xp.ones_like(r)[:, None], z, r[:, None]], axis=1)
        seen = xp.astype(counts(xp, x, y, self.coding.excluded), xp.float64)
        v = into_ball(xp, zero_nonfinite(xp, v), self.radius, times=seen)
        return packed(xp, over_rows(xp, weighted(v, shares), v))


@dataclass(frozen=True)
class FilledMoments(NarrowQuery):
    """The same with missing values filled by N(0, covariance), and their variance added: the E-step of a normal law.

    It promises nothing, so a curator answers it only where nothing is promised (ε = ∞).
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    covariance: FloatArray = field(repr=False)
    label: str = "second moments with missing values filled (reference only)"

    @property
    def bound(self) -> Bound:
        return Bound()

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        z = (xp.concat([x, y[:, None]], axis=1) - like(xp, self.centre, x)) / like(xp, self.spread, x)
        precision, p = np.asarray(np.linalg.inv(self.covariance), dtype=float), self.schema.width + 1
        total: Array = None
        for part, _, own, missing in by_missing(xp, z, y, shares):
            none = part, like(xp, np.zeros((p, p)), x)
            full, unsure = filled_squares(xp, part, precision, own) if missing else none
            v = xp.concat([xp.ones_like(full[:, :1]), full], axis=1)
            unsure = xp.concat([xp.zeros_like(unsure[:, :1]), unsure], axis=1)
            matrix = over_rows(xp, weighted(v, own), v) + xp.concat([xp.zeros_like(unsure[:1, :]), unsure], axis=0)
            total = packed(xp, matrix) if total is None else total + packed(xp, matrix)
        return total


class Rows(NamedTuple):
    """Rows at θ: coordinates a and their length (None where a query does not need them), fitted value, residual r and
    its variance v (in memory one number where no value is missing), whether the row counts, and its weight as a part of
    the largest (None without weights).
    """

    a: Any
    size: Any
    fitted: Any
    r: Any
    v: Any
    seen: Any
    shares: Any = None


@dataclass(frozen=True)
class At(NarrowQuery):
    """A query about rows at coefficients θ of a frame, residual scale σ."""

    frame: Frame = field(repr=False)
    theta: FloatArray = field(repr=False)
    sigma: float
    in_frame: ClassVar[bool] = True  # whether it needs the coordinates a

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        return self.sum_prepared(xp, *by_missing(xp, x, y, shares))

    @property
    def prepared_by(self) -> tuple[Hashable, ...]:
        return (*super().prepared_by, self.frame.key)

    def prepare(self, xp: Namespace, x: Array, y: Array) -> tuple[Any, ...]:
        """The parts of the rows, those without missing values in the coordinates a: these do not depend on θ."""
        parts = by_missing(xp, *self.unit_rows(xp, x, y))
        return tuple(part if part[3] else self._in_frame(xp, *part[:3]) for part in parts)

    def _in_frame(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> tuple[Array, ...]:
        """Rows without missing values: a in the place of x, no response where a row does not count, and lengths."""
        a, seen = self.frame.coordinates(xp, x), counts(xp, x, y, self.frame.excluded)
        return a, xp.where(seen, y, xp.nan), shares, False, xp.sqrt(squares(xp, a))

    def sum_prepared(self, xp: Namespace, *prepared: Any) -> Array:
        total: Array = None
        for x, y, own, missing, *size in prepared:
            added = self.added(xp, self._rows(xp, x, y, missing, *size)._replace(shares=own))
            total = added if total is None else total + added
        return total

    @abstractmethod
    def added(self, xp: Namespace, rows: Rows) -> Array:
        """The sum of what the rows contribute, clipped."""

    def _rows(self, xp: Namespace, x: Array, y: Array, missing: bool, size: Array = None) -> Rows:
        """Rows at θ; with their ``size``, x holds a."""
        frame, theta = self.frame, self.theta
        seen = counts(xp, x, y, frame.excluded if size is None else ())
        z = (y - frame.y_centre) / frame.y_spread
        v: Array = self.sigma**2 if isinstance(y, np.ndarray) else xp.full_like(y, self.sigma**2)
        a: Array = None if size is None else x
        if missing:
            slopes, turn = frame.slopes(theta), like(xp, frame.whiten.T, x)
            full, along = filled(xp, scaled(xp, x, frame.centre, frame.scale), frame.precision, slopes)
            v = v + xp.clip(xp.matmul(along, like(xp, slopes, x)), 0.0, math.inf)
            a = xp.concat([xp.ones_like(y)[:, None], xp.matmul(full, turn)], axis=1)
        elif a is None and self.in_frame:
            a = frame.coordinates(xp, x)
        if a is None:
            matrix, shift = frame.turn
            fitted = xp.matmul(x, like(xp, matrix @ theta, x)) - float(shift @ theta)
        else:
            fitted = xp.matmul(a, like(xp, theta, x))
        if self.in_frame and size is None:
            size = xp.sqrt(squares(xp, a) if isinstance(a, np.ndarray) else xp.sum(a * a, axis=1))
        return Rows(a, size, fitted, xp.where(seen, z - fitted, xp.zeros_like(z)), v, seen)


@dataclass(frozen=True)
class Information(At):
    """Σ (σ²/v)·aaᵀ over rows with a response, (σ/√v)·a scaled into a ball: the curvature of the score below
    (:func:`gram_bound`).
    """

    radius: float

    @property
    def label(self) -> str:
        return f"information of the rows, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return gram_bound(self.radius, len(self.theta))

    def added(self, xp: Namespace, rows: Rows) -> Array:
        factor = xp.where(rows.seen, self.sigma / xp.sqrt(rows.v), xp.zeros_like(rows.r))
        f = into_ball(xp, rows.a, self.radius, factor, rows.size)
        return packed(xp, over_rows(xp, weighted(f, rows.shares), f))


@dataclass(frozen=True)
class Score(At):
    """Σ of clipped scores of the observed likelihood, y | observed entries ~ N(θ·a, v), times σ.

    A row adds (r/√v)·(σ/√v)·a. Where values are missing v depends on the slopes, too, but the part of the score through
    v is left out: it is little if rows are normal, and if they are not it takes heavy tails for missing values of a
    steep column.

    *Lemma.* ℓ2 sensitivity 2·radius. *Proof.* The whole contribution is scaled into the ball of that radius after it is
    computed. ∎
    """

    radius: float

    @property
    def label(self) -> str:
        return f"score of the regression, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return rounded(Bound.symmetric(l2=self.radius), len(self.theta))

    def added(self, xp: Namespace, rows: Rows) -> Array:
        factor = rows.r * self.sigma / rows.v
        if rows.shares is None:
            return sum_in_ball(xp, rows.a, self.radius, factor, rows.size)
        return xp.sum(weighted(into_ball(xp, rows.a, self.radius, factor, rows.size), rows.shares), axis=0)


@dataclass(frozen=True)
class Residuals(At):
    """Σ (1, t, √2·t²) over rows with a response, t = clip(r/√v, ±clip)/clip: their number, mean and mean square.

    *Lemma.* ℓ2 sensitivity 2, as if the mean alone were asked. *Proof.* Let u = |t − t′| and |t + t′| ≤ 2 − u. Two rows
    with a response differ by at most f(u) = u²(1 + 2(2 − u)²) in squared length, and f′(u) = 2u(3 − 2u)² ≥ 0, so by
    f(2) = 4. A row with a response and one without differ by 1 + t² + 2t⁴ ≤ 4, two without by 0. ∎
    """

    clip: float
    in_frame = False

    @property
    def label(self) -> str:
        return f"mean and mean square of the residuals, clipped at {self.clip:.4g} standard deviations"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=2.0, l2=2.0, size_linf=math.sqrt(2.0), size_l2=2.0), 3)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        seen = weighted(xp.astype(rows.seen, xp.float64), rows.shares)
        t = zero_nonfinite(xp, xp.clip(rows.r / (xp.sqrt(rows.v) * self.clip), -1.0, 1.0))
        return xp.stack([xp.sum(seen), xp.sum(seen * t), math.sqrt(2.0) * xp.sum(seen * t * t)])
