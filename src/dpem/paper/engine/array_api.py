"""The engine for arrays of other libraries (PyTorch, CuPy, anything with the Python array API), on their device.

Rows are read in pieces, and only sums leave the device. Weights are computed in float64 from the columns where β is not
zero. Products are added in the rows' dtype, at most :data:`~dpem.query.BLOCK` rows at a time, and block sums in
float64. No matrix products are used, since a device may compute them with fewer bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from dpem.paper.engine import Levels, checked_beta
from dpem.query import BLOCK, Array, Chunk, FloatArray, Namespace
from dpem.tables.blocks import device_slices, host, indices, namespace_of

if TYPE_CHECKING:
    from dpem.paper.queries import WideQuery


def engine_for(X: Array) -> ArrayEngine:
    """The engine for X: fused kernels if X is a PyTorch tensor on a GPU that Triton supports, otherwise array
    operations.

    Both compute the same sums; see :func:`~dpem.paper.engine.triton_columns.usable`.
    """
    xp = namespace_of(X)
    if array_api_compat.is_torch_array(X) and X.is_cuda:
        from dpem.paper.engine import triton_columns

        if triton_columns.usable(X):
            return triton_columns.FusedEngine(xp)
    return ArrayEngine(xp)


class ArrayEngine:
    """The :data:`~dpem.paper.engine.Engine` by array operations of the namespace ``xp``.

    *Lemma.* A contribution is within its bound whatever the row contains, and depends on that row alone. *Proof.* A
    weight is a function of its row's products and response, cast to the rows' dtype and *then* clamped to a number of
    that dtype at most A (not-a-number counts as 0); an entry is clipped before it is multiplied. An entry that is
    not-a-number makes the sum not-a-number, which is then computed again with comparisons that replace such an entry by
    the upper limit. ∎
    """

    def __init__(self, xp: Namespace) -> None:
        self.xp = xp

    def dtype(self, X: Array) -> np.dtype:
        return np.dtype(np.float32 if X.dtype == self.xp.float32 else np.float64)

    @np.errstate(all="ignore")
    def total(self, query: WideQuery, chunk: Chunk) -> FloatArray:
        X, xp, levels = chunk.X, self.xp, Levels.of(query, self.dtype(chunk.X))
        beta, support = checked_beta(query, X.shape[1]), self._support(query, X)
        low, high = self._scalar(levels.low, X), self._scalar(levels.high, X)
        line = None if levels.line is None else [self._scalar(number, X) for number in levels.line]
        a, c = self._weights(query, X, chunk.y, *support)
        a = self._clamped(a, -levels.residual, levels.residual, X)
        c = self._clamped(c, -1.0, levels.bracket, X) if query.has_missing else None
        beta = self._like(beta, X)

        def products(rows: slice, replace_nan: bool) -> Array:
            x = X[rows, :]
            u = x if line is None else line[0] + line[1] * (x * x - line[2])
            terms = a[rows][:, None] * self._clipped(u, low, high, replace_nan)
            return terms if c is None else xp.where(xp.isnan(x), c[rows][:, None] * beta[None, :], terms)

        total = self._sum_of_pieces(X, products, replace_nan=False)
        if np.isnan(total).any():
            total = self._sum_of_pieces(X, products, replace_nan=True)
        return total

    def _support(self, query: WideQuery, X: Array) -> tuple[Array, Array]:
        """The columns where β is not zero, and β there, on the device of X."""
        beta = checked_beta(query, X.shape[1])
        support = np.flatnonzero(beta)
        return indices(self.xp, support, X), self._like(beta[support], X, self.xp.float64)

    def _weights(self, query: WideQuery, X: Array, y: Array, where: Array, beta: Array) -> tuple[Array, Array]:
        """The model's weights (a, c) in float64, not clamped yet."""
        fitted, missing_variance = self._projections(X, where, beta, has_missing=query.has_missing)
        response = None if y is None else self.xp.astype(y, self.xp.float64, copy=False)
        a, c = query.weight(self.xp, fitted, missing_variance, response)
        for weights in (a, c) if query.has_missing else (a,):
            if weights.shape != fitted.shape or weights.dtype != self.xp.float64:
                raise ValueError("a model's weight must return one float64 number for each row.")
        return a, c

    def _projections(self, X: Array, where: Array, beta: Array, *, has_missing: bool) -> tuple[Array, Array]:
        """⟨β, z⊙x⟩ and, if ``has_missing``, ‖(1−z)⊙β‖² of each row, from the columns ``where``."""
        xp, fitted, missing_variance = self.xp, [], []
        for rows in list(device_slices(X, where.shape[0])) or [slice(0, 0)]:
            x = xp.astype(xp.take(X[rows, :], where, axis=1), xp.float64)
            if has_missing:
                absent, zero = xp.isnan(x), xp.zeros_like(x)
                missing_variance.append(xp.sum(xp.where(absent, (beta * beta)[None, :], zero), axis=1))
                x = xp.where(absent, zero, x)
            fitted.append(xp.sum(x * beta[None, :], axis=1))
        return xp.concat(fitted), xp.concat(missing_variance) if has_missing else None

    def _clamped(self, values: Array, low: float | np.floating, high: np.floating, X: Array) -> Array:
        """``values`` cast to X's dtype, then clamped to [low, high]; not-a-number becomes 0."""
        values = self.xp.astype(values, X.dtype)
        values = self.xp.where(self.xp.isnan(values), self.xp.zeros_like(values), values)
        return self.xp.clip(values, float(low), float(high))

    def _clipped(self, x: Array, low: Array, high: Array, replace_nan: bool) -> Array:
        """x clipped to [low, high]; not-a-number becomes ``high`` if ``replace_nan``, and stays if not."""
        if not replace_nan:
            return self.xp.clip(x, low, high)
        x = self.xp.where(x < high, x, high)
        return self.xp.where(x > low, x, low)

    def _sum_of_pieces(self, X: Array, terms: Callable[[slice, bool], Array], *, replace_nan: bool) -> FloatArray:
        total = self.xp.zeros((X.shape[1],), dtype=self.xp.float64, device=array_api_compat.device(X))
        for rows in device_slices(X, X.shape[1]):
            total = total + self._by_blocks(terms(rows, replace_nan))
        return host(total)

    def _by_blocks(self, terms: Array) -> Array:
        """Column sums: BLOCK rows in their dtype, blocks in float64."""
        xp, (n, d) = self.xp, terms.shape
        in_blocks = n // BLOCK * BLOCK
        total = xp.astype(xp.sum(terms[in_blocks:, :], axis=0, dtype=terms.dtype), xp.float64)
        if in_blocks:
            blocks = xp.sum(xp.reshape(terms[:in_blocks, :], (in_blocks // BLOCK, BLOCK, d)), axis=1, dtype=terms.dtype)
            total = total + xp.sum(xp.astype(blocks, xp.float64), axis=0)
        return total

    def _like(self, values: NDArray[np.floating], X: Array, dtype: Any = None) -> Array:
        return self.xp.asarray(values, dtype=X.dtype if dtype is None else dtype, device=array_api_compat.device(X))

    def _scalar(self, value: float | np.floating, X: Array) -> Array:
        return self.xp.asarray(float(value), dtype=X.dtype, device=array_api_compat.device(X))
