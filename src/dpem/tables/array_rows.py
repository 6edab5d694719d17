"""Rows in an array of another library (PyTorch, CuPy, anything with the Python array API), on their own device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from dpem.query import BLOCK, Chunk, FloatArray, Namespace

IntArray = NDArray[np.intp]

#: Numbers in a piece of rows: what a few temporary arrays of that size take must fit beside the table.
PIECE = 2**25


class ArrayRows:
    """See :class:`~dpem.tables.blocks.BlockRows`. Holds the namespace of the rows' library."""

    def __init__(self, xp: Namespace) -> None:
        self.xp = xp

    def response(self, chunk: Chunk) -> FloatArray:
        return np.empty(0) if chunk.y is None else self.host(chunk.y)

    def host(self, values: Any) -> FloatArray:
        return np.asarray(_to_numpy(values), dtype=float)

    def columns(self, X: Any, support: IntArray, rows: slice = slice(None)) -> Any:
        return self.xp.astype(self.xp.take(X[rows, :], self._places(support, X), axis=1), self.xp.float64)

    @np.errstate(all="ignore")
    def mean_squares(self, X: Any) -> FloatArray:
        sums = []
        for rows in self._pieces(X, X.shape[1]):
            x = self.xp.astype(X[rows, :], self.xp.float64)
            sums.append(self.host(self.xp.sum(x * x, axis=1)))
        return np.concatenate([np.empty(0), *sums]) / X.shape[1]

    def pieces(self, X: Any, rows: int) -> Iterator[FloatArray]:
        for first in range(0, X.shape[0], rows):
            yield self.host(X[first : min(first + rows, X.shape[0]), :])

    def dtype(self, X: Any) -> np.dtype:
        return np.dtype(np.float32 if X.dtype == self.xp.float32 else np.float64)

    def _pieces(self, X: Any, width: int) -> Iterator[slice]:
        """Slices of whole blocks, with about :data:`PIECE` numbers in ``width`` columns."""
        rows = max(1, PIECE // max(1, width) // BLOCK) * BLOCK
        for first in range(0, X.shape[0], rows):
            yield slice(first, min(first + rows, X.shape[0]))

    def _like(self, values: NDArray[np.floating], X: Any, dtype: Any = None) -> Any:
        return self.xp.asarray(values, dtype=X.dtype if dtype is None else dtype, device=array_api_compat.device(X))

    def _places(self, support: IntArray, X: Any) -> Any:
        return self.xp.asarray(np.asarray(support, dtype=np.int64), device=array_api_compat.device(X))


def _to_numpy(values: Any) -> NDArray[Any]:
    if array_api_compat.is_torch_array(values):
        return values.detach().cpu().numpy()
    if array_api_compat.is_cupy_array(values):
        return values.get()
    if array_api_compat.is_jax_array(values):
        return np.asarray(values)
    return np.from_dlpack(values)
