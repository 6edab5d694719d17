"""Rows in a numpy array: compiled kernels, one pass over memory for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpem.engines import kernels
from dpem.engines.base import float_below
from dpem.query import Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.questions.gradient import CoordinateQuery, IntArray, SupportQuery
    from dpem.questions.screening import ExceedanceQuery

Rows = NDArray[np.floating]


#: Rows packed at a time where neither rows nor columns lie together in memory.
PIECE = 2 * kernels.TASK


class DenseEngine:
    """See :class:`~dpem.engines.base.Engine`. Arrays with rows together and arrays with columns together have
    kernels of their own; anything else is packed piece by piece, which costs a copy.
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, d = query, chunk.X.shape[1]
        T = float_below(q.entry, chunk.X.dtype)

        def by_rows(X: Rows, y: Rows) -> FloatArray:
            out = _tasks(X, d)
            if q.bracket is None:
                kernels.coordinate_kernel(q.kind, X, y, q.beta, q.constants, q.residual, T, out)
            else:
                kernels.missing_kernel(q.kind, X, y, q.beta, q.constants, q.residual, T, -1.0, q.bracket, out)
            return np.asarray(out.sum(axis=0))

        def by_columns(XT: Rows, y: Rows, n: int) -> FloatArray:
            a, c = np.empty(n, dtype=XT.dtype), np.empty(n, dtype=XT.dtype)
            top = 0.0 if q.bracket is None else q.bracket
            nonzero = np.flatnonzero(q.beta)
            kernels.column_weights_kernel(q.kind, XT, y, nonzero, q.beta, q.constants, q.residual, -1.0, top, a, c)
            out = np.zeros(d)
            kernels.column_coordinate_kernel(XT, a, c, q.beta, T, q.bracket is not None, out)
            return out

        return _summed(chunk, by_rows, by_columns)

    def support(self, query: SupportQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, _response(chunk)
        beta = q.beta[q.support]
        out = _tasks(X, len(q.support))
        kernels.support_kernel(q.kind, X, y, beta, q.constants, q.support, q.centre, q.radius, out)
        return np.asarray(out.sum(axis=0))

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        d, (low, high) = chunk.X.shape[1], query.squares

        def largeness(y: Rows) -> FloatArray:
            return np.empty(0) if query.response is None else query.response(np.asarray(y, dtype=float))

        def by_rows(X: Rows, y: Rows) -> FloatArray:
            out = _tasks(X, d)
            kernels.exceedance_kernel(X, largeness(y), low, high, query.base, out)
            return np.asarray(out.sum(axis=0))

        def by_columns(XT: Rows, y: Rows, n: int) -> FloatArray:
            g = np.ones(n) if query.response is None else np.clip(np.nan_to_num(largeness(y)), -1.0, 1.0)
            out = np.zeros(d)
            kernels.column_exceedance_kernel(XT, g.astype(XT.dtype), low, high, query.base, out)
            return out

        return _summed(chunk, by_rows, by_columns)

    def response(self, chunk: Chunk) -> FloatArray:
        return np.asarray(_response(chunk), dtype=float)

    def host(self, values: FloatArray) -> FloatArray:
        return values

    def columns(self, X: Rows, support: IntArray) -> FloatArray:
        return np.asarray(X[:, support], dtype=float)

    def mean_squares(self, X: Rows) -> FloatArray:
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64) / X.shape[1])

    def anomalies(self, X: Rows) -> tuple[bool, bool]:
        def found(rows: Rows, length: int) -> FloatArray:
            out = _tasks(rows, 2)
            kernels.anomaly_kernel(rows, length, out)
            return np.asarray(out.sum(axis=0))

        d = X.shape[1]
        nan, inf = _summed(Chunk(X, None), lambda X, y: found(X, d), lambda XT, y, n: found(XT, n))
        return bool(nan), bool(inf)

    def pieces(self, X: Rows, rows: int) -> Iterator[FloatArray]:
        for first in range(0, X.shape[0], rows):
            yield X[first : first + rows].astype(float)


ENGINE = DenseEngine()


def _response(chunk: Chunk) -> Rows:
    return np.empty(0, dtype=chunk.X.dtype) if chunk.y is None else chunk.y


def _summed(
    chunk: Chunk, by_rows: Callable[[Rows, Rows], FloatArray], by_columns: Callable[[Rows, Rows, int], FloatArray]
) -> FloatArray:
    """A sum over the rows by the kernel that goes with how they lie in memory."""
    X, y = chunk.X, _response(chunk)
    if (rows := _contiguous(X)) is not None:
        return by_rows(rows, y)
    if (columns := _contiguous(X.T)) is not None:
        return by_columns(columns, y, X.shape[0])
    pieces = (slice(first, first + PIECE) for first in range(0, X.shape[0], PIECE))
    return np.sum([by_rows(np.ascontiguousarray(X[rows]), y[rows]) for rows in pieces], axis=0)


def _contiguous(X: Rows) -> Rows | None:
    """X as a contiguous array whose rows may be longer than X's, or None if its rows do not lie together.

    Compiled code is fast for arrays that are known to be contiguous. Rows with gaps between them (every third row of
    a table, the columns of a slice) are the beginnings of longer rows; what lies beyond them is never read.
    """
    if X.flags.c_contiguous:
        return X
    stride, size = X.strides[0], X.itemsize
    if X.strides[1] != size or stride % size or stride < X.shape[1] * size:
        return None
    return np.lib.stride_tricks.as_strided(X, (X.shape[0], stride // size), (stride, size), writeable=False)


def _tasks(X: Rows, width: int) -> FloatArray:
    """A sum of its own for each task of a parallel kernel; they are added in order."""
    return np.zeros((kernels.n_tasks(X.shape[0]), width))
