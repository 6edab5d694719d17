"""The queries of the paper's models: gradients, clipped, over all columns or on a support; and, before there is any β,
scores that select coordinates and second moments that give β a direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from dpem._validation import ArgumentError
from dpem.paper.engine import engine_of
from dpem.queries.block_loop import narrow_sum, narrow_sums, over_rows
from dpem.queries.narrow import into_ball, sum_in_ball
from dpem.query import Array, Bound, Chunk, FloatArray, Namespace
from dpem.tables.blocks import like

IntArray = NDArray[np.intp]

#: A model's formula, ``weight(xp, fitted, hidden, y) -> (a, c)``, in elementwise functions of the array API: from ⟨β,
#: z⊙x⟩, ‖(1−z)⊙β‖² (None where nothing can be missing) and the response (None where there is none), all in float64, one
#: number a for each row, and one c for its missing entries (or None). The query clamps what it returns.
Weight = Callable[[Namespace, Array, Array, Array], tuple[Array, Array]]


class Clip(NamedTuple):
    """Clipping levels of an entry (the paper's T), of a residual, and of the missing-entry factor."""

    entry: float
    residual: float = math.inf
    bracket: float = 1.0


class WideQuery:
    """A query about all d coordinates: a row adds clamp(a, ±``residual``)·e(x_j) to coordinate j.

    The entry e(x) is x, or floor + slope·(x² − start) where ``line`` has these three numbers, moved into ``limits``;
    what is not a number becomes the upper limit. Where x_j is missing and ``bracket`` is given, the row adds
    clamp(c, −1, bracket)·β_j instead. ``weight`` computes a and c from the projections on ``beta`` (None: on nothing).
    """

    weight: Weight
    beta: FloatArray | None = None
    residual: float = 1.0
    bracket: float | None = None
    blocked: ClassVar[bool] = True

    @property
    def limits(self) -> tuple[float, float]:
        raise NotImplementedError

    @property
    def line(self) -> tuple[float, float, float] | None:
        return None

    @property
    def has_missing(self) -> bool:
        """Whether entries may be missing."""
        return self.bracket is not None

    def sum(self, chunk: Chunk) -> FloatArray:
        return engine_of(chunk.X)(self, chunk)


@dataclass(frozen=True)
class CoordinateQuery(WideQuery):
    """All d coordinates of a gradient, each clipped: the query of a selection.

    A record adds clamp(a, ±residual)·Π_T(x_j) with T = ``entry``.
    """

    label: str
    bound: Bound
    weight: Weight = field(repr=False)
    beta: FloatArray = field(repr=False)
    entry: float = field(repr=False)
    residual: float = field(repr=False)
    bracket: float | None = field(default=None, repr=False)

    @property
    def limits(self) -> tuple[float, float]:
        return -self.entry, self.entry


class OnSupport:
    """A query that reads the columns of a support only: a source may leave the others on disk."""

    support: IntArray

    @property
    def reads(self) -> IntArray:
        return self.support

    def sum(self, chunk: Chunk) -> FloatArray:
        return narrow_sum(self, chunk)

    def sums(self, chunk: Chunk, rows: int) -> FloatArray | None:
        """The sums over consecutive blocks of ``rows`` rows, or None where they need more than one pass."""
        return narrow_sums(self, chunk, rows)

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        """The sum over the rows of their clipped contributions, in functions of the array API."""
        raise NotImplementedError


@dataclass(frozen=True)
class SupportQuery(OnSupport):
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
    def bound(self) -> Bound:
        return Bound.symmetric(l2=self.radius * rounded_up(len(self.support)))

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        if isinstance(x, np.ndarray):
            from dpem.paper.engine.in_memory import support_sum  # here, since plans need no compiler

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


@dataclass(frozen=True)
class Largeness:
    """g(y) = (y/spread)² − 1 clipped to [−1, 1]: the size of a response relative to its standard deviation ``spread``.

    >>> Largeness(2.0)(np.array([0.0, 2.0, -9.0]))
    array([-1.,  0.,  1.])
    """

    spread: float

    def __call__(self, y: Array) -> Array:
        xp = array_namespace(y)
        size = xp.clip(xp.abs(y) / self.spread, None, 2.0)  # beyond √2 the result is clipped; the square could overflow
        return xp.clip(size * size - 1.0, -1.0, 1.0)


@dataclass(frozen=True)
class ExceedanceQuery(WideQuery):
    """For each coordinate, the number of rows with a large entry (Gaussian mixture), or its association with a large
    response (regressions).

    A row adds ramp(x_j²), a number in [0, 1]; with ``response`` it adds g(y)·h(x_j), h = 2·ramp − 1, a number in [−1,
    1].

    *Lemma.* ℓ∞ sensitivity 1 without a response, 2 with one. *Proof.* The width of the interval. ∎ Why exceedances
    and not second moments: among functions with values in an interval of length 1, an indicator of a likelihood-ratio
    set has the largest difference of means between a coordinate with signal and one without (Neyman–Pearson), and it
    is that difference, in units of the sensitivity, that the selection noise is compared with.
    """

    low: float
    high: float
    response: Largeness | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        what = "large entries" if self.response is None else "entries large together with the response"
        return f"count of {what} in each column"

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0 if self.response is None else 2.0, size_linf=1.0)

    @property
    def limits(self) -> tuple[float, float]:
        """The ramp begins at 0, or at −1 where the sign of g(y) counts, and ends at 1."""
        return 0.0 if self.response is None else -1.0, 1.0

    @property
    def line(self) -> tuple[float, float, float]:
        """The ramp as a line in x² between its ends."""
        floor, low, high = self.limits[0], self.low**2, self.high**2
        return floor, (1.0 - floor) / max(high - low, 1e-300), low

    def weight(self, xp: Namespace, fitted: Array, hidden: Array, y: Array) -> tuple[Array, Array]:
        """1, or g(y)."""
        return xp.ones_like(fitted) if self.response is None else self.response(y), None


@dataclass(frozen=True)
class MomentQuery(OnSupport):
    """Second moments on a few coordinates, Σ g(y_i)·x_iS x_iSᵀ with ‖x_iS‖ ≤ C, as the upper triangle with
    off-diagonal entries times √2.

    *Lemma.* ℓ2 sensitivity √2·C² without a response (g = 1), 2C² with |g| ≤ 1. *Proof.* The packing makes the ℓ2 norm
    of the vector the Frobenius norm of the matrix. ‖aaᵀ − bbᵀ‖² = ‖a‖⁴ + ‖b‖⁴ − 2⟨a,b⟩² ≤ 2C⁴; with signs, ‖g·aaᵀ −
    h·bbᵀ‖ ≤ |g|C² + |h|C² ≤ 2C². ∎
    """

    support: IntArray = field(repr=False)
    radius: float
    response: Largeness | None = field(default=None, repr=False)
    blocked: bool = False

    @property
    def label(self) -> str:
        return f"second moments on {len(self.support)} coordinates, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        square = (self.radius * rounded_up(len(self.support))) ** 2  # what the scaling really enforces
        l2 = (math.sqrt(2.0) if self.response is None else 2.0) * square
        return Bound(linf=l2, l2=l2, size_linf=square, size_l2=square)

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        rows = into_ball(xp, x, self.radius)
        weighted = rows
        if self.response is not None:
            g = xp.clip(self.response(y), -1.0, 1.0)
            weighted = rows * xp.where(xp.isnan(g), xp.zeros_like(g), g)[:, None]
        return triangle(xp, over_rows(xp, weighted, rows))


def triangle(xp: Namespace, matrix: Array) -> Array:
    """The upper triangle row by row, off-diagonal entries × √2."""
    k, root = matrix.shape[0], math.sqrt(2.0)
    parts = [part for i in range(k) for part in (matrix[i, i : i + 1], matrix[i, i + 1 :] * root)]
    return xp.concat(parts)


def unpack(moments: FloatArray, k: int) -> FloatArray:
    """The symmetric matrix that a :class:`MomentQuery` packed."""
    matrix = np.zeros((k, k))
    i, j = np.triu_indices(k)
    matrix[i, j] = matrix[j, i] = moments * np.where(i == j, 1.0, math.sqrt(0.5))
    return matrix
