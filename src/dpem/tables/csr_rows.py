"""Rows in a SciPy CSR matrix. An entry that is not stored is 0; a stored not-a-number is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.query import Chunk, FloatArray
from dpem.tables import compiled

#: Numbers in a dense piece of sparse rows.
PIECE = 2**22


class CsrRows:
    """See :class:`~dpem.tables.blocks.BlockRows`."""

    def response(self, chunk: Chunk) -> FloatArray:
        return np.empty(0) if chunk.y is None else np.asarray(chunk.y, dtype=float)

    def host(self, values: FloatArray) -> FloatArray:
        return values

    def columns(self, X: Any, support: NDArray[np.intp], rows: slice = slice(None)) -> FloatArray:
        """Of a row that is not sound, every entry is missing."""
        first, last, _ = rows.indices(X.shape[0])
        place = np.full(X.shape[1], -1, dtype=np.intp)
        place[support] = np.arange(len(support))
        stored, right = block(X, first, last)
        out = np.empty((len(support), last - first))
        compiled.gather_sparse(*stored, first, right, place, out)
        return out.T

    def mean_squares(self, X: Any) -> FloatArray:
        squares = X.astype(np.float64)  # a copy of the entries, at most one chunk of them
        np.square(squares.data, out=squares.data)
        return np.asarray(squares.sum(axis=1)).ravel() / X.shape[1]

    def pieces(self, X: Any, rows: int) -> Iterator[FloatArray]:
        rows = max(1, min(rows, PIECE // X.shape[1]))
        for first in range(0, X.shape[0], rows):
            yield X[first : first + rows].toarray().astype(float)


ROWS = CsrRows()


def block(X: Any, first: int, last: int) -> tuple[tuple[Any, Any, Any], NDArray[np.bool_]]:
    """The stored arrays, and which of the rows first … last − 1 are sound."""
    right = np.empty(last - first, dtype=np.bool_)
    compiled.sound(X.data, X.indices, X.indptr, first, X.shape[1], right)
    return (X.data, X.indices, X.indptr), right
