"""The queries of the paper's models: clipped gradients over all columns or on a support; for a start without β, scores
that select coordinates, and second moments whose top eigenvector is the direction of β.
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

#: A model's formula ``weight(xp, fitted, missing_variance, y) -> (a, c)`` in elementwise functions of the array API. It
#: takes ⟨β, z⊙x⟩, ‖(1−z)⊙β‖² (None in a model without missing entries) and the response (None in a model without) of
#: each row, in float64, and returns the weight a of each row and the weight c of its missing entries (or None), not
#: clamped yet.
Weight = Callable[[Namespace, Array, Array, Array], tuple[Array, Array]]


class Clip(NamedTuple):
    """Clipping levels of an entry (the paper's T), of the weight a and of the weight c of missing entries."""

    entry: float
    residual: float = math.inf
    bracket: float = 1.0


class WideQuery:
    """A query about all d coordinates: a row adds clamp(a, ±``residual``)·e(x_j) to coordinate j.

    e(x) is x clipped to ``limits``, or floor + slope·(x² − start) clipped to them if ``line`` has these three numbers;
    of not-a-number it is the upper limit. Where x_j is missing and ``bracket`` is given, the row adds clamp(c, −1,
    bracket)·β_j instead. ``weight`` computes a and c from the row's products with ``beta`` (None: 0).
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
    """All d coordinates of a gradient, clipped: a record adds clamp(a, ±residual)·Π_T(x_j) with T = ``entry``."""

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
    """A query that reads the columns of a support only, so that a source may leave the others on disk."""

    support: IntArray

    @property
    def reads(self) -> IntArray:
        return self.support

    def sum(self, chunk: Chunk) -> FloatArray:
        return narrow_sum(self, chunk)

    def sums(self, chunk: Chunk, rows: int) -> FloatArray | None:
        """The sums over consecutive blocks of ``rows`` rows, or None if one pass cannot compute them."""
        return narrow_sums(self, chunk, rows)

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        """The sum of the rows' clipped contributions, in functions of the array API."""
        raise NotImplementedError


@dataclass(frozen=True)
class SupportQuery(OnSupport):
    """The gradient on a support, each record's contribution centred and scaled into an ℓ2 ball of radius C.

    A record contributes a·x_S − centre, with c·β_j in place of a·x_j where x_j is missing (``has_missing``).

    *Lemma.* Replacing a record moves the sum by at most 2C in ℓ2. *Proof.* Both contributions lie in a ball of radius
    C around 0; ``centre`` was released before, so it is the same for both neighbours. ∎ The norm is computed in
    float64 from a sum of s squares, so rounding widens the ball by at most s + 8 units of 2⁻⁵². A contribution that is
    not finite, or whose norm overflows, adds 0.
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
        off_support = self.beta.copy()
        off_support[self.support] = 0.0
        if off_support.any():
            raise ArgumentError("support", "must contain every non-zero coefficient of beta.")

    @property
    def bound(self) -> Bound:
        return Bound.symmetric(l2=self.radius * rounded_up(len(self.support)))

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        if isinstance(x, np.ndarray):
            from dpem.paper.engine.in_memory import support_sum  # imports numba, which plans do not need

            return support_sum(self, x, y)
        beta, centre = like(xp, self.beta[self.support], x), like(xp, self.centre, x)
        if self.has_missing:
            missing = xp.isnan(x)
            x = xp.where(missing, xp.zeros_like(x), x)
            missing_variance = xp.sum(xp.where(missing, (beta * beta)[None, :], xp.zeros_like(x)), axis=1)
            a, c = self.weight(xp, xp.matmul(x, beta), missing_variance, y)
            u = xp.where(missing, c[:, None] * beta[None, :], a[:, None] * x) - centre[None, :]
        else:
            a, _ = self.weight(xp, xp.matmul(x, beta), None, y)
            u = a[:, None] * x - centre[None, :]
        return sum_in_ball(xp, u, self.radius)


def rounded_up(terms: int) -> float:
    """The factor by which rounding in float64 may leave a clipped vector of ``terms`` entries too long."""
    return 1.0 + (terms + 8) * 2.0**-52


@dataclass(frozen=True)
class Largeness:
    """g(y) = (y/spread)² − 1 clipped to [−1, 1], where ``spread`` is the response's standard deviation.

    >>> Largeness(2.0)(np.array([0.0, 2.0, -9.0]))
    array([-1.,  0.,  1.])
    """

    spread: float

    def __call__(self, y: Array) -> Array:
        xp = array_namespace(y)
        size = xp.clip(xp.abs(y) / self.spread, None, 2.0)  # g is 1 beyond √2, and the square must not overflow
        return xp.clip(size * size - 1.0, -1.0, 1.0)


@dataclass(frozen=True)
class ExceedanceQuery(WideQuery):
    """The number of rows with a large entry in each column (Gaussian mixture), or the association of large entries with
    large responses (regressions).

    A row adds ramp(x_j²) ∈ [0, 1], which rises from 0 at x_j² = ``low``² to 1 at ``high``². With ``response`` it adds
    g(y)·h(x_j) ∈ [−1, 1], where h = 2·ramp − 1.

    *Lemma.* ℓ∞ sensitivity 1 without a response, 2 with one. *Proof.* The length of the interval. ∎ Exceedances select
    better than second moments: of all functions with values in [0, 1], the indicator of a likelihood-ratio set has
    the largest difference of means between a coordinate with signal and one without (Neyman–Pearson), and selection
    succeeds if that difference is large beside noise in proportion to the sensitivity.
    """

    low: float
    high: float
    response: Largeness | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        counted = "large entries" if self.response is None else "entries large together with the response"
        return f"count of {counted} in each column"

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0 if self.response is None else 2.0, size_linf=1.0)

    @property
    def limits(self) -> tuple[float, float]:
        """The range of the ramp, or of h."""
        return 0.0 if self.response is None else -1.0, 1.0

    @property
    def line(self) -> tuple[float, float, float]:
        """The ramp, or h, as a line in x² between its limits."""
        floor, low, high = self.limits[0], self.low**2, self.high**2
        return floor, (1.0 - floor) / max(high - low, 1e-300), low

    def weight(self, xp: Namespace, fitted: Array, missing_variance: Array, y: Array) -> tuple[Array, Array]:
        """1, or g(y)."""
        return xp.ones_like(fitted) if self.response is None else self.response(y), None


@dataclass(frozen=True)
class MomentQuery(OnSupport):
    """Second moments on a support, Σ g(y_i)·x_iS x_iSᵀ with x_iS scaled into the ball of radius C: the upper triangle,
    with off-diagonal entries times √2.

    *Lemma.* ℓ2 sensitivity √2·C² without a response (g = 1), 2C² with |g| ≤ 1. *Proof.* With the factor √2 the ℓ2 norm
    of the vector is the Frobenius norm of the matrix. ‖aaᵀ − bbᵀ‖² = ‖a‖⁴ + ‖b‖⁴ − 2⟨a,b⟩² ≤ 2C⁴; with signs, ‖g·aaᵀ −
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
        square = (self.radius * rounded_up(len(self.support))) ** 2
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
    """The upper triangle, row by row, with off-diagonal entries times √2."""
    k, root = matrix.shape[0], math.sqrt(2.0)
    parts = [part for i in range(k) for part in (matrix[i, i : i + 1], matrix[i, i + 1 :] * root)]
    return xp.concat(parts)


def unpack(moments: FloatArray, k: int) -> FloatArray:
    """The symmetric matrix whose :func:`triangle` is ``moments``."""
    matrix = np.zeros((k, k))
    i, j = np.triu_indices(k)
    matrix[i, j] = matrix[j, i] = moments * np.where(i == j, 1.0, math.sqrt(0.5))
    return matrix
