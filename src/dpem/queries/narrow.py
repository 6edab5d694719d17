"""What every narrow query is: some coordinates of a row, a bounded contribution, and the bound beside the clip."""

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

#: Numbers that a query in memory computes at a time: arrays of this size stay in cache, and threads rarely wait.
CACHE = 2**18


@dataclass(frozen=True)
class NarrowQuery(ABC):
    """A query about the coordinates of a schema. A subclass states ``label``, ``bound`` and ``contributions``.

    ``contributions(xp, x, y)`` is the sum over a block of rows of what each contributes: x holds unit coordinates (NaN
    where the value is missing), y unit responses (NaN where there is none; None if the query is not about a response).
    It clips; ``bound`` states what the clipping guarantees, for every x and y. Where rows have weights it gets as a
    last argument each row's weight as a part s of its public bound, in [0, 1], and multiplies the row's clipped
    contribution by it.

    *Lemma.* If no contribution is longer than the sensitivity, as is so for every query here, weights leave the
    sensitivity as it is, though the weight belongs to the record and is replaced with it. *Proof.* ‖s·c − s′·c′‖ is a
    convex function of (s, s′) on the square [0, 1]², so it is largest at a corner, where it is ‖c − c′‖, ‖c‖, ‖c′‖ or
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
        """The columns of the table that are looked at: a source may leave the others on disk."""
        return self.schema.reads

    @property
    def numbers_per_row(self) -> int:
        """How many numbers it computes of a row at a time, if that is more than it reads: see :data:`CACHE`."""
        return 0

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        return self._in_cache(xp, *self.unit_rows(xp, x, y))

    def unit_rows(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, ...]:
        """Unit coordinates and responses of rows, and their weights where they have some."""
        u = None if y is None else self.schema.response(xp, y)
        shares = () if self.schema.weight < 0 else (self.schema.shares(xp, x),)
        return self.schema.coordinates(xp, x), u, *shares

    @property
    def prepared_by(self) -> tuple[Hashable, ...]:
        """What :meth:`prepare` depends on, beside the rows: queries that agree in it may share what it returns."""
        return (self.schema.key,)

    def prepare(self, xp: Namespace, x: Array, y: Array) -> tuple[Any, ...]:
        """What :meth:`sum_prepared` needs of a block of rows. A source that has the same rows on every pass keeps it,
        so that later queries do not compute it again; nothing may write into it.
        """
        return self.unit_rows(xp, x, y)

    def sum_prepared(self, xp: Namespace, *prepared: Any) -> Array:
        """What :meth:`block` returns for the rows that were prepared."""
        return self._in_cache(xp, *prepared)

    def _in_cache(self, xp: Namespace, x: Array, *more: Array) -> Array:
        """The sum over the rows; in memory, a few rows at a time if many numbers are computed of each."""
        contributions: Array = self.contributions  # with weights, of a query that takes them
        if not isinstance(x, np.ndarray) or len(x) * self.numbers_per_row <= CACHE:
            return contributions(xp, x, *more)
        length = max(1, CACHE // self.numbers_per_row)
        rows = (slice(first, first + length) for first in range(0, len(x), length))
        return sum(contributions(xp, x[some], *(None if y is None else y[some] for y in more)) for some in rows)

    def sum(self, chunk: Chunk) -> FloatArray:
        return narrow_sum(self, chunk)

    def sums(self, chunk: Chunk, rows: int) -> FloatArray | None:
        """The sums over each ``rows`` rows, where one reading of all rows gives them."""
        return narrow_sums(self, chunk, rows)


def weighted(values: Any, shares: Any) -> Any:
    """Rows, or one number for each, times the rows' weights; as they are where there are none."""
    if shares is None:
        return values
    return values * (shares if values.ndim == 1 else shares[:, None])


def all_finite(values: NDArray[np.floating]) -> bool:
    """Whether the sum of each column is finite, by a product: True if every number is, unless sums overflow.

    >>> all_finite(np.ones((3, 2))), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    return bool(np.isfinite(np.dot(np.ones(len(values)), values)).all())


def zero_nonfinite(xp: Namespace, values: Array) -> Array:
    """``values`` with 0 in the place of what is not finite."""
    if isinstance(values, np.ndarray) and all_finite(values):
        return values
    return xp.where(xp.isfinite(values), values, 0.0)


def into_ball(xp: Namespace, v: Array, radius: float, times: Array = None, size: Array = None) -> Array:
    """Each row of v, ``times`` a number of its own of at most 10¹⁰⁰, scaled into the ball of that radius; a row that is
    not finite, or overflows, becomes 0. ``size`` holds the lengths of the rows of v where they are known.

    *Lemma.* A returned row of p entries is at most radius·(1 + (p + 12)·2⁻⁵²) long, if that is more than 10⁻⁵⁰.
    *Proof.* Its squares are added in float64, with a relative error of at most (p + 1)·2⁻⁵³; the square root, the
    quotient and the products add a few units more. Squares that vanish hide a length of at most √p·10⁻¹⁵⁴, which
    ``times`` makes less than 10⁻⁵⁰. Nothing else decides: the length is computed from what is returned but for the
    factors. ∎
    """
    if isinstance(v, np.ndarray):
        factor, odd = _factors(v, radius, times, size)
        scaled = v * factor[:, None]
        if odd.any():
            scaled[odd] = 0.0
        return scaled
    v = v if times is None else v * times[:, None]
    norm2 = xp.sum(v * v, axis=1)
    odd = ~xp.isfinite(norm2)
    norm = xp.sqrt(xp.where(odd, xp.ones_like(norm2), norm2))
    factor = xp.where(norm > radius, radius / xp.where(norm > radius, norm, xp.ones_like(norm)), xp.ones_like(norm))
    return xp.where(odd[:, None], xp.zeros_like(v), v * factor[:, None])


def squares(xp: Namespace, v: Array) -> Array:
    """The sum of squares of each row."""
    if isinstance(v, np.ndarray):
        return np.einsum("ij,ij->i", v, v)
    return (v * v) @ like(xp, np.ones(v.shape[1]), v)


def sum_in_ball(
    xp: Namespace, v: Array, radius: float, times: Array = None, size: Array = None, shares: Array = None
) -> Array:
    """The sum of the rows of v, each scaled into the ball as by :func:`into_ball` and then multiplied by its part of
    ``shares``: as one product, since Σ f_i·v_i needs no copy of the scaled rows. A namespace without ``linalg`` is one
    that records a formula for one row.
    """
    if isinstance(v, np.ndarray):
        factor, odd = _factors(v, radius, times, size)
        return over_rows(np, weighted(factor, shares), np.where(odd[:, None], 0.0, v) if odd.any() else v)
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
    """By what rows in memory are multiplied, and which of them are not finite, or overflow."""
    norm = np.sqrt(squares(np, v)) if size is None else size
    if times is not None:
        times = np.clip(times, -1e100, 1e100)
        norm = norm * np.abs(times)
    odd = ~np.isfinite(norm)
    factor = np.divide(radius, norm, out=np.ones_like(norm), where=norm > radius)
    factor = factor if times is None else factor * times
    if odd.any():
        factor[odd] = 0.0
    return factor, odd


def rounded(bound: Bound, terms: int) -> Bound:
    """The bound widened by what float64 can add to a contribution of that many terms: ``1 + (terms + 16)·2⁻⁵²``."""
    wider = 1.0 + (terms + 16) * float(np.finfo(np.float64).eps)
    return Bound(bound.linf * wider, bound.l2 * wider, bound.size_linf * wider, bound.size_l2 * wider)


def gram_bound(radius: float, terms: int) -> Bound:
    """The bound of Σ vvᵀ, packed, over rows v of so many terms and at most ``radius`` long; some may add nothing.

    *Lemma.* ℓ2 sensitivity √2·radius². *Proof.* ‖aaᵀ − bbᵀ‖² = ‖a‖⁴ + ‖b‖⁴ − 2⟨a, b⟩² ≤ 2·radius⁴ in Frobenius norm,
    which the packing keeps; a row that adds nothing is b = 0. The products are rounded by one part in 2⁵³ each, and the
    bound is wider by more than that. ∎
    """
    square = radius**2
    change = math.sqrt(2.0) * square
    return rounded(Bound(linf=change, l2=change, size_linf=square, size_l2=square), 4 * terms + 16)


def packed(xp: Namespace, matrix: Array) -> Array:
    """The upper triangle of a symmetric matrix, off-diagonal entries × √2: its Frobenius norm is the vector's length.

    >>> import array_api_compat.numpy as xp
    >>> packed(xp, np.array([[1.0, 2.0], [2.0, 3.0]])).round(2).tolist()
    [1.0, 3.0, 2.83]
    """
    p = matrix.shape[0]
    parts = [matrix[j : j + 1, j] for j in range(p)]
    parts += [matrix[j, j + 1 :] * 2.0**0.5 for j in range(p - 1)]
    return xp.concat(parts)


def unpacked(values: FloatArray, p: int) -> FloatArray:
    """The symmetric matrix of which :func:`packed` made the vector."""
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p, 1)] = values[p:] / 2.0**0.5
    return matrix + matrix.T + np.diag(values[:p])
