"""Questions of linear regression: moments of the columns and the response, and what rows say at given coefficients.

A :class:`Frame` is public: it holds centres and spreads of the columns and their correlations, as released before. In
it a row is z = (u − centre)/spread, its holes filled with what is expected there, and then a = (1, whiten·z), whose
entries are hardly correlated. θ are the coefficients of a, in units of the response's spread.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpem.models.linear_regression.missing_values import by_holes, filled, filled_squares
from dpem.queries.block_loop import over_rows, product
from dpem.queries.narrow import NarrowQuery, into_ball, packed, rounded, squares, sum_in_ball, zero_nonfinite
from dpem.query import Bound, FloatArray
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
    """Σ vvᵀ with v = (1, z of every column, z of the response), holes as 0, scaled into a ball (:func:`gram_bound`).

    Rows without a response add nothing: they tell nothing of the slopes, and their columns may lie elsewhere than those
    of the others.
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    radius: float

    @property
    def label(self) -> str:
        return f"second moments of the columns and the response, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return gram_bound(self.radius, self.schema.width + 2)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        z = xp.concat([x, y[:, None]], axis=1)
        z -= like(xp, self.centre, x)
        z /= like(xp, self.spread, x)
        v = xp.concat([xp.ones_like(z[:, :1]), z], axis=1)
        v = into_ball(xp, xp.where(xp.isnan(v) | xp.isnan(y)[:, None], 0.0, v), self.radius)
        return packed(xp, over_rows(xp, v, v))


@dataclass(frozen=True)
class FilledMoments(NarrowQuery):
    """The same with holes filled by N(0, covariance), and what remains unsure added: the E-step of a joint normal law.

    It promises nothing, so a curator answers it only where nothing is promised (ε = ∞).
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    covariance: FloatArray = field(repr=False)
    label: str = "second moments with holes filled (reference only)"

    @property
    def bound(self) -> Bound:
        return Bound()

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        z = (xp.concat([x, y[:, None]], axis=1) - like(xp, self.centre, x)) / like(xp, self.spread, x)
        precision, p = np.asarray(np.linalg.inv(self.covariance), dtype=float), self.schema.width + 1
        total: Any = None
        for part, _, holes in by_holes(xp, z, y):
            full, unsure = filled_squares(xp, part, precision) if holes else (part, like(xp, np.zeros((p, p)), x))
            v = xp.concat([xp.ones_like(full[:, :1]), full], axis=1)
            unsure = xp.concat([xp.zeros_like(unsure[:, :1]), unsure], axis=1)
            matrix = over_rows(xp, v, v) + xp.concat([xp.zeros_like(unsure[:1, :]), unsure], axis=0)
            total = packed(xp, matrix) if total is None else total + packed(xp, matrix)
        return total


@dataclass(frozen=True)
class Frame:
    """Public coordinates: ``centre`` and ``spread`` of the columns, then of the response; ``covariance`` of the z's."""

    centre: FloatArray
    spread: FloatArray
    covariance: FloatArray
    whiten: FloatArray

    @property
    def width(self) -> int:
        return len(self.centre) - 1

    @property
    def precision(self) -> FloatArray:
        return np.asarray(np.linalg.inv(self.covariance), dtype=float)

    @cached_property
    def turn(self) -> tuple[FloatArray, FloatArray]:
        """Matrix and shift with a = u·matrix − shift for a row u without holes: (1, whiten·z) in one product."""
        matrix, shift = np.zeros((self.width, self.width + 1)), np.full(self.width + 1, -1.0)
        matrix[:, 1:] = self.whiten.T / self.spread[:-1, None]
        shift[1:] = self.whiten @ (self.centre[:-1] / self.spread[:-1])
        return matrix, shift

    def in_unit_coordinates(self) -> tuple[FloatArray, FloatArray]:
        """A and b with which (intercept, slopes) of unit coordinates are A·θ + b."""
        slopes = self.whiten.T / self.spread[:-1, None]
        A = np.zeros((self.width + 1, self.width + 1))
        A[0, 0], A[0, 1:], A[1:, 1:] = 1.0, -self.centre[:-1] @ slopes, slopes
        return A * self.spread[-1], np.concatenate([[self.centre[-1]], np.zeros(self.width)])

    def slopes(self, theta: FloatArray) -> FloatArray:
        """Coefficients of z that θ stands for."""
        return np.asarray(self.whiten.T @ theta[1:])


class Standing(NamedTuple):
    """How rows stand at θ: coordinates a and leverage weight w (None where a question does not weigh), what is fitted,
    residual r and its variance v (in memory one number where no row has holes), and whether there is a response.
    """

    a: Any
    w: Any
    fitted: Any
    r: Any
    v: Any
    seen: Any


@dataclass(frozen=True)
class At(NarrowQuery):
    """A question about rows as they stand at θ in a frame, at residual scale σ.

    A row with long coordinates a counts with the weight w = min(1, leverage/‖a‖)·min(1, second/‖a‖), so that w‖a‖ ≤
    leverage and w‖a‖² ≤ leverage·second.
    """

    frame: Frame = field(repr=False)
    theta: FloatArray = field(repr=False)
    sigma: float
    leverage: float
    second: float
    weighs: ClassVar[bool] = True

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        total: Any = None
        for part, response, holes in by_holes(xp, x, y):
            added = self.added(xp, self._standing(xp, part, response, holes))
            total = added if total is None else total + added
        return total

    @abstractmethod
    def added(self, xp: Any, rows: Standing) -> Any:
        """The sum of what the rows contribute, clipped."""

    def _standing(self, xp: Any, x: Any, y: Any, holes: bool) -> Standing:
        frame, theta = self.frame, self.theta
        v: Any = self.sigma**2 if isinstance(y, np.ndarray) else xp.full_like(y, self.sigma**2)
        a: Any = None
        w: Any = None
        if holes:
            slopes, turn = frame.slopes(theta), like(xp, frame.whiten.T, x)
            z = (x - like(xp, frame.centre[:-1], x)) / like(xp, frame.spread[:-1], x)
            z, along = filled(xp, z, frame.precision, slopes)
            v = v + xp.clip(xp.matmul(along, like(xp, slopes, x)), 0.0, math.inf)
            a = xp.concat([xp.ones_like(y)[:, None], xp.matmul(z, turn)], axis=1)
        elif self.weighs:
            matrix, shift = frame.turn
            a = product(xp, x, matrix)
            a -= like(xp, shift, x)
        if a is None:
            matrix, shift = frame.turn
            fitted = xp.matmul(x, like(xp, matrix @ theta, x)) - float(shift @ theta)
        else:
            fitted = xp.matmul(a, like(xp, theta, x))
        seen = ~xp.isnan(y)
        r = (y - float(frame.centre[-1])) / float(frame.spread[-1]) - fitted
        if self.weighs:
            size = xp.sqrt(squares(xp, a) if isinstance(a, np.ndarray) else xp.sum(a * a, axis=1))
            w = xp.clip(self.leverage / size, 0.0, 1.0) * xp.clip(self.second / size, 0.0, 1.0)
        return Standing(a, w, fitted, xp.where(seen, r, xp.zeros_like(r)), v, seen)


@dataclass(frozen=True)
class Information(At):
    """Σ w·(σ²/v)·aaᵀ over rows with a response: the curvature of the score below (:func:`gram_bound`)."""

    @property
    def label(self) -> str:
        return f"information of the rows, norm clipped at {self.radius:.4g}"

    @property
    def radius(self) -> float:
        return math.sqrt(self.leverage * self.second)

    @property
    def bound(self) -> Bound:
        return gram_bound(self.radius, len(self.theta))

    def added(self, xp: Any, rows: Standing) -> Any:
        factor = xp.where(rows.seen, xp.sqrt(rows.w / rows.v) * self.sigma, xp.zeros_like(rows.r))
        f = into_ball(xp, rows.a * factor[:, None], self.radius)
        return packed(xp, over_rows(xp, f, f))


@dataclass(frozen=True)
class Score(At):
    """Σ of clipped scores of the observed likelihood, y | observed entries ~ N(θ·a, v), times σ.

    A row adds w·clip(r/√v, ±clip)·(σ/√v)·a. Residual and leverage are clipped separately (Mallows), so skewed errors
    that do not depend on the columns move the intercept only. Where a row has holes v depends on the slopes, too, but
    what squares of residuals would tell of them is left out: it is little if rows are normal, and if they are not it
    takes rows with long tails for rows with holes in a steep column.

    *Lemma.* ℓ2 sensitivity 2·clip·leverage. *Proof.* The whole contribution is scaled into the ball of that radius
    after it is computed; without holes it lies there already. ∎
    """

    clip: float

    @property
    def label(self) -> str:
        return f"score of the regression, norm clipped at {self.radius:.4g}"

    @property
    def radius(self) -> float:
        return self.clip * self.leverage

    @property
    def bound(self) -> Bound:
        return rounded(Bound.symmetric(l2=self.radius), len(self.theta))

    def added(self, xp: Any, rows: Standing) -> Any:
        root = xp.sqrt(rows.v)
        e, w = rows.r / root, xp.where(rows.seen, rows.w, xp.zeros_like(rows.w))
        score = rows.a * (w * xp.clip(e, -self.clip, self.clip) * self.sigma / root)[:, None]
        return sum_in_ball(xp, score, self.radius)


@dataclass(frozen=True)
class Residuals(At):
    """Σ (1, t, √2·t²) over rows with a response, t = clip(r/√v, ±clip)/clip: their number, mean and mean square.

    *Lemma.* ℓ2 sensitivity 2, as if the mean alone were asked. *Proof.* Let u = |t − t′| and |t + t′| ≤ 2 − u. Two rows
    with a response differ by at most f(u) = u²(1 + 2(2 − u)²) in squared length, and f′(u) = 2u(3 − 2u)² ≥ 0, so by
    f(2) = 4. A row with a response and one without differ by 1 + t² + 2t⁴ ≤ 4, two without by 0. ∎
    """

    clip: float
    weighs = False

    @property
    def label(self) -> str:
        return f"mean and mean square of the residuals, clipped at {self.clip:.4g} standard deviations"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=2.0, l2=2.0, size_linf=math.sqrt(2.0), size_l2=2.0), 3)

    def added(self, xp: Any, rows: Standing) -> Any:
        seen = xp.astype(rows.seen, xp.float64)
        t = seen * zero_nonfinite(xp, xp.clip(rows.r / (xp.sqrt(rows.v) * self.clip), -1.0, 1.0))
        return xp.stack([xp.sum(seen), xp.sum(t), math.sqrt(2.0) * xp.sum(t * t)])


#: When it is asked whether rows follow the line, the largest sizes of a row's part in its bend and in the unevenness of
#: errors, and how much these count beside the squares explained.
MOST_BEND, MOST_UNEVEN, BEND_SHARE, UNEVEN_SHARE = 6.0, 6.0, 0.7, 0.6


@dataclass(frozen=True)
class Explained(At):
    """Σ (t, t²/most, b·most·s, u·most·q), t = clamp((z of y − middle)² − r², ±most): by how much the slopes shrink the
    squared residual. With e the residual in standard deviations and f what is fitted, beyond the middle in units of
    ``along``, both clipped:

    - s in [−1, 1] is e·(f² − 1), over the most it may be: whether residuals have one sign at both ends of the line and
      the other between (Ramsey's RESET, of one degree of freedom);
    - q in [−1, 1] is (e² − its mean)·f likewise: whether errors are larger at one end (Breusch and Pagan's test).

    *Lemma.* ℓ2 sensitivity 2·most·√(1 + b² + u²). *Proof.* 2·most for the first two, by the proof of
    :class:`~dpem.queries.log_ratio.LogRatio` word for word, and twice the largest size for each of the others. ∎
    """

    middle: float
    most: float
    along: float
    weighs = False

    @property
    def label(self) -> str:
        return f"fit check: squares explained by the slopes, clamped at {self.most:.4g}, and whether rows follow them"

    @property
    def bound(self) -> Bound:
        B, more = self.most, BEND_SHARE**2 + UNEVEN_SHARE**2
        l2, size = 2 * B * math.sqrt(1 + more), B * math.sqrt(2 + more)
        return rounded(Bound(linf=2 * B, l2=l2, size_linf=B, size_l2=size), 4)

    def added(self, xp: Any, rows: Standing) -> Any:
        beyond = rows.fitted + rows.r - self.middle
        t = zero_nonfinite(xp, beyond**2 - rows.r**2) / self.most
        e = xp.clip(zero_nonfinite(xp, rows.r / xp.sqrt(rows.v)), -2.4, 2.4)
        f = xp.clip(zero_nonfinite(xp, (rows.fitted - self.middle) / self.along), -2.0, 2.0)
        s = e * xp.clip(f * f - 1.0, -1.0, 2.5) / MOST_BEND
        q = (xp.clip(e * e, 0.0, 4.0) - clipped_square(4.0)) * f / MOST_UNEVEN
        seen = xp.astype(rows.seen, xp.float64)
        t, s, q = (seen * xp.clip(own, -1.0, 1.0) for own in (t, s, q))
        sums = [xp.sum(t), xp.sum(t * t), BEND_SHARE * xp.sum(s), UNEVEN_SHARE * xp.sum(q)]
        return self.most * xp.stack(sums)


def clipped_square(most: float) -> float:
    """E min(e², most) of a standard normal e.

    >>> round(clipped_square(1.0), 4), clipped_square(math.inf)
    (0.5161, 1.0)
    """
    if math.isinf(most):
        return 1.0
    c = math.sqrt(most)
    density = math.exp(-most / 2) / math.sqrt(2 * math.pi)
    return math.erf(c / math.sqrt(2)) - 2 * c * density + most * math.erfc(c / math.sqrt(2))
