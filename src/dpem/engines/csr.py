"""Rows in a SciPy CSR matrix: time in proportion to the stored entries, and every sum in float64.

An entry that is not stored is 0. A stored not-a-number is a missing entry, where the model has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpem._threads import side_by_side
from dpem.engines import kernels, reading
from dpem.engines.base import checked_beta, weights_of
from dpem.query import Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.queries.gradient import CoordinateQuery, IntArray
    from dpem.queries.screening import ExceedanceQuery

#: Numbers in a dense piece of sparse rows.
PIECE = 2**22


class CsrEngine:
    """See :class:`~dpem.engines.base.Engine`.

    *Lemma.* A contribution is within its bound for any stored arrays. *Proof.* A loop skips a row that is not sound;
    a sound row has each column once, so each coordinate of its contribution is one clipped product (or 0), as for
    dense rows. ∎
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, None if chunk.y is None else self.response(chunk)
        holes, d = q.bracket is not None, X.shape[1]
        high, beta = 0.0 if q.bracket is None else q.bracket, checked_beta(q, d)

        def add(first: int, last: int, out: FloatArray) -> None:
            stored, right = _block(X, first, last)
            fitted, hidden = np.empty(last - first), np.empty(last - first)
            reading.project_sparse(*stored, first, right, beta, holes, fitted, hidden)
            a, c = weights_of(q, fitted, hidden if holes else None, None if y is None else y[first:last])
            c = c if holes else hidden  # which is not looked at
            kernels.accumulate_sparse(*stored, first, right, a, c, beta, holes, q.residual, -1.0, high, q.entry, out)

        return _by_tasks(X, _tasks(X), d, add)

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        X, (floor, start, slope) = chunk.X, query.line
        y = None if query.response is None else self.response(chunk)

        def add(first: int, last: int, out: FloatArray) -> None:
            stored, right = _block(X, first, last)
            g = np.empty(0) if query.response is None or y is None else query.response(y[first:last])
            kernels.accumulate_ramp_sparse(*stored, first, right, g, floor, slope, start, out)

        sums = _by_tasks(X, _tasks(X), X.shape[1] + 1, add)
        return np.asarray(sums[:-1] + sums[-1])

    def response(self, chunk: Chunk) -> FloatArray:
        return np.empty(0) if chunk.y is None else np.asarray(chunk.y, dtype=float)

    def host(self, values: FloatArray) -> FloatArray:
        return values

    def columns(self, X: Any, support: IntArray, rows: slice = slice(None)) -> FloatArray:
        """Of a row that is not sound, every entry is missing."""
        first, last, _ = rows.indices(X.shape[0])
        place = np.full(X.shape[1], -1, dtype=np.intp)
        place[support] = np.arange(len(support))
        stored, right = _block(X, first, last)
        out = np.empty((len(support), last - first))
        reading.gather_sparse(*stored, first, right, place, out)
        return out.T

    def mean_squares(self, X: Any) -> FloatArray:
        squares = X.astype(np.float64)  # a copy of the entries, at most one chunk of them
        np.square(squares.data, out=squares.data)
        return np.asarray(squares.sum(axis=1)).ravel() / X.shape[1]

    def anomalies(self, X: Any) -> tuple[bool, bool]:
        return bool(np.isnan(X.data).any()), bool(np.isinf(X.data).any())

    def pieces(self, X: Any, rows: int) -> Iterator[FloatArray]:
        rows = max(1, min(rows, PIECE // X.shape[1]))
        for first in range(0, X.shape[0], rows):
            yield X[first : first + rows].toarray().astype(float)


ENGINE = CsrEngine()


def _block(X: Any, first: int, last: int) -> tuple[tuple[Any, Any, Any], NDArray[np.bool_]]:
    """The stored arrays, and which of the rows first … last − 1 are sound."""
    right = np.empty(last - first, dtype=np.bool_)
    reading.sound(X.data, X.indices, X.indptr, first, X.shape[1], right)
    return (X.data, X.indices, X.indptr), right


def _tasks(X: Any) -> int:
    """Tasks of a sum over all columns: their sums take no more room than a quarter of the entries, or one of them."""
    return max(1, min(kernels.n_tasks(X.shape[0]), X.nnz // (4 * X.shape[1])))


def _by_tasks(X: Any, tasks: int, width: int, add: Callable[[int, int, FloatArray], None]) -> FloatArray:
    """The sum that ``add`` makes of each task's rows, TASK at a time; tasks' sums are added in order."""
    n, out = X.shape[0], np.zeros((tasks, width))
    rows = -(-n // tasks)

    def work(task: int) -> None:
        end = min(n, (task + 1) * rows)
        for first in range(task * rows, end, kernels.TASK):
            add(first, min(end, first + kernels.TASK), out[task])

    side_by_side(work, tasks)
    return np.asarray(out.sum(axis=0))
