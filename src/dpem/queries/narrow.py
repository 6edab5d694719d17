"""Queries about a few columns (narrow queries), and the functions with which they clip and state their bounds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpem.queries.block_loop import narrow_sum, narrow_sums, over_rows
from dpem.query import Array, Bound, Chunk, FloatArray, Namespace
from dpem.tables.blocks import like
from dpem.tables.schema import Schema

#: Numbers that a query in memory computes at a time: arrays of this size stay in a core's cache.
CACHE = 2**18


@dataclass(frozen=True)
class NarrowQuery(ABC):
    """A query about the coordinates of a schema. A subclass states ``label``, ``bound`` and ``contributions``.

    ``contributions(xp, x, y)`` is the sum of the contributions of a block of rows: x holds unit coordinates (NaN where
    a value is missing), y unit responses (NaN where one is missing; None if the query does not read the response). The
    method clips, and ``bound`` states what the clipping guarantees for every x and y. If rows have weights, a last
    argument ``shares`` holds each row's weight divided by its public bound, s in [0, 1], and the row's clipped
    contribution is multiplied by s.

    *Lemma.* If no contribution is longer than the sensitivity, as holds for every query here, weights do not increase
    the sensitivity, although the weight belongs to the record and is replaced with it. *Proof.* ‖s·c − s′·c′‖ is a
    convex function of (s, s′) on the square [0, 1]², so its maximum is at a corner, where it is ‖c − c′‖, ‖c‖, ‖c′‖ or
    0. ∎
    """

    schema: Schema = field(repr=False)
    blocked: ClassVar[bool] = False

    @property
    @abstractmethod
    def label(self) -> str: ...

    @property
    @abstractmethod
    def bound(self) -> Bound: ...

    @abstractmethod
    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array: ...

    @property
    def reads(self) -> NDArray[np.intp]:
        """The columns of the table that the query reads; a source may leave the others on disk."""
        return self.schema.reads

    @property
    def numbers_per_row(self) -> int:
        """The numbers that it computes for each row at a time, if more than it reads; see :data:`CACHE`."""
        return 0

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        return self._in_cache(xp, *self.unit_rows(xp, x, y))

    def unit_rows(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, ...]:
        """Unit coordinates and unit responses of rows, and the shares of their weights if they have weights."""
        u = None if y is None else self.schema.response(xp, y)
        shares = () if self.schema.weight < 0 else (self.schema.shares(xp, x),)
        return self.schema.coordinates(xp, x), u, *shares

    @property
    def prepared_by(self) -> tuple[Hashable, ...]:
        """A key for the result of :meth:`prepare`: queries with the same key prepare the same rows alike."""
        return (self.schema.key,)

    def prepare(self, xp: Namespace, x: Array, y: Array) -> tuple[Any, ...]:
        """The arrays from which :meth:`sum_prepared` computes the sum over a block of rows. A source with the same rows
        on every pass keeps them for later queries, so nothing may write into them.
        """
        return self.unit_rows(xp, x, y)

    def sum_prepared(self, xp: Namespace, *prepared: Any) -> Array:
        """The result of :meth:`block` for rows that were prepared."""
        return self._in_cache(xp, *prepared)

    def _in_cache(self, xp: Namespace, x: Array, *more: Array) -> Array:
        """The sum over the rows; in memory, a few rows at a time if many numbers are computed for each."""
        contributions: Array = self.contributions  # with weights, of a query that takes them
        if not isinstance(x, np.ndarray) or len(x) * self.numbers_per_row <= CACHE:
            return contributions(xp, x, *more)
        length = max(1, CACHE // self.numbers_per_row)
        slices = (slice(first, first + length) for first in range(0, len(x), length))
        return sum(contributions(xp, x[rows], *(None if y is None else y[rows] for y in more)) for rows in slices)

    def sum(self, chunk: Chunk) -> FloatArray:
        return narrow_sum(self, chunk)

    def sums(self, chunk: Chunk, rows: int) -> FloatArray | None:
        """The sum over each group of ``rows`` rows, if a single pass over all rows can compute them; else None."""
        return narrow_sums(self, chunk, rows)


def weighted(values: Any, shares: Any) -> Any:
    """Rows, or one number for each row, times the shares of the rows' weights; unchanged if ``shares`` is None."""
    if shares is None:
        return values
    return values * (shares if values.ndim == 1 else shares[:, None])


def all_finite(values: NDArray[np.floating]) -> bool:
    """Whether the sum of each column is finite: True if every number is finite, unless a sum overflows.

    >>> all_finite(np.ones((3, 2))), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    return bool(np.isfinite(np.dot(np.ones(len(values)), values)).all())


def zero_nonfinite(xp: Namespace, values: Array) -> Array:
    """``values`` with 0 in place of NaN and infinite entries."""
    if isinstance(values, np.ndarray) and all_finite(values):
        return values
    return xp.where(xp.isfinite(values), values, 0.0)


def into_ball(xp: Namespace, v: Array, radius: float, times: Array = None, size: Array = None) -> Array:
    """Each row of v, multiplied by its factor in ``times`` (at most 10¹⁰⁰) and scaled into the ball of this radius. A
    row that is not finite, or overflows, becomes 0. ``size`` holds the lengths of the rows of v if they are known.

    *Lemma.* A returned row of p entries is at most radius·(1 + (p + 12)·2⁻⁵²) long, if that is more than 10⁻⁵⁰.
    *Proof.* Its squares are added in float64, with a relative error of at most (p + 1)·2⁻⁵³; the square root, the
    quotient and the products add a few units of 2⁻⁵³. Squares that underflow to 0 hide a length of at most √p·10⁻¹⁵⁴,
    which ``times`` raises to less than 10⁻⁵⁰. The length that decides on the scaling is computed from the same numbers
    that are returned, up to the factors. ∎
    """
    if isinstance(v, np.ndarray):
        factor, is_excluded = _factors(v, radius, times, size)
        scaled = v * factor[:, None]
        if is_excluded.any():
            scaled[is_excluded] = 0.0
        return scaled
    v = v if times is None else v * times[:, None]
    norm2 = xp.sum(v * v, axis=1)
    is_excluded = ~xp.isfinite(norm2)
    norm = xp.sqrt(xp.where(is_excluded, xp.ones_like(norm2), norm2))
    factor = xp.where(norm > radius, radius / xp.where(norm > radius, norm, xp.ones_like(norm)), xp.ones_like(norm))
    return xp.where(is_excluded[:, None], xp.zeros_like(v), v * factor[:, None])


def squares(xp: Namespace, v: Array) -> Array:
    """The sum of squares of each row."""
    if isinstance(v, np.ndarray):
        return np.einsum("ij,ij->i", v, v)
    return (v * v) @ like(xp, np.ones(v.shape[1]), v)


def sum_in_ball(
    xp: Namespace, v: Array, radius: float, times: Array = None, size: Array = None, shares: Array = None
) -> Array:
    """The sum of the rows of v, each scaled into the ball as by :func:`into_ball` and then multiplied by its share.

    It is one matrix product, since Σ f_i·v_i needs no copy of the scaled rows. A namespace without ``linalg`` is the
    one that traces the formula of a single row.
    """
    if isinstance(v, np.ndarray):
        factor, is_excluded = _factors(v, radius, times, size)
        return over_rows(
            np, weighted(factor, shares), np.where(is_excluded[:, None], 0.0, v) if is_excluded.any() else v
        )
    if not hasattr(xp, "linalg"):
        return xp.sum(weighted(into_ball(xp, v, radius, times), shares), axis=0)
    v = v if times is None else v * times[:, None]
    norm = xp.linalg.vector_norm(v, axis=1)
    finite, long = xp.isfinite(norm), norm > radius
    factor = xp.where(long, radius / xp.where(long, norm, xp.ones_like(norm)), xp.ones_like(norm))
    if not bool(xp.all(finite)):
        factor = xp.where(finite, factor, xp.zeros_like(norm))
        v = xp.where(finite[:, None], v, xp.zeros_like(v))
    return xp.matmul(weighted(factor, shares), v)


def _factors(v: FloatArray, radius: float, times: Any, size: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The factor that scales each row in memory into the ball, and whether the row is not finite or overflows."""
    norm = np.sqrt(squares(np, v)) if size is None else size
    if times is not None:
        times = np.clip(times, -1e100, 1e100)
        norm = norm * np.abs(times)
    is_excluded = ~np.isfinite(norm)
    factor = np.divide(radius, norm, out=np.ones_like(norm), where=norm > radius)
    factor = factor if times is None else factor * times
    if is_excluded.any():
        factor[is_excluded] = 0.0
    return factor, is_excluded


def rounded(bound: Bound, terms: int) -> Bound:
    """The bound, widened for the rounding in float64 of a contribution of so many terms: × (1 + (terms + 16)·2⁻⁵²)."""
    wider = 1.0 + (terms + 16) * float(np.finfo(np.float64).eps)
    return Bound(bound.linf * wider, bound.l2 * wider, bound.size_linf * wider, bound.size_l2 * wider)


def gram_bound(radius: float, terms: int) -> Bound:
    """The bound of the packed Σ vvᵀ over rows v of ``terms`` entries that are 0 or at most ``radius`` long.

    *Lemma.* ℓ2 sensitivity √2·radius². *Proof.* ‖aaᵀ − bbᵀ‖² = ‖a‖⁴ + ‖b‖⁴ − 2⟨a, b⟩² ≤ 2·radius⁴ in Frobenius norm,
    which packing preserves. Each product is rounded by at most one part in 2⁵³; the bound is widened by more. ∎
    """
    square = radius**2
    change = math.sqrt(2.0) * square
    return rounded(Bound(linf=change, l2=change, size_linf=square, size_l2=square), 4 * terms + 16)


def packed(xp: Namespace, matrix: Array) -> Array:
    """The upper triangle of a symmetric matrix as a vector, off-diagonal entries × √2, which preserves the norm.

    >>> import array_api_compat.numpy as xp
    >>> packed(xp, np.array([[1.0, 2.0], [2.0, 3.0]])).round(2).tolist()
    [1.0, 3.0, 2.83]
    """
    p = matrix.shape[0]
    diagonal = [matrix[j : j + 1, j] for j in range(p)]
    return xp.concat(diagonal + [matrix[j, j + 1 :] * 2.0**0.5 for j in range(p - 1)])


def unpacked(values: FloatArray, p: int) -> FloatArray:
    """The symmetric p×p matrix whose :func:`packed` vector this is."""
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p, 1)] = values[p:] / 2.0**0.5
    return matrix + matrix.T + np.diag(values[:p])
