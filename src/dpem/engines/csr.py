"""Rows in a SciPy CSR matrix: time in proportion to the stored entries, and every sum in float64.

An entry that is not stored is 0. A stored not-a-number is a missing entry, where the model has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpem.engines import kernels
from dpem.query import Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.questions.gradient import CoordinateQuery, IntArray, SupportQuery
    from dpem.questions.screening import ExceedanceQuery

#: Numbers in a dense piece of sparse rows.
PIECE = 2**22


class CsrEngine:
    """See :class:`~dpem.engines.base.Engine`.

    *Lemma.* A contribution is within its bound for any stored arrays. *Proof.* A kernel skips a row that is not sound;
    a sound row has each column once, so each coordinate of its contribution is one clipped product (or 0), as for
    dense rows. ∎
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, self.response(chunk)
        c_low, c_high = (0.0, 0.0) if q.bracket is None else (-1.0, q.bracket)
        return _per_task(
            _tasks(X),
            X.shape[1],
            lambda out: kernels.csr_coordinate_kernel(
                q.kind, *_arrays(X), y, q.beta, q.constants, q.residual, q.entry, c_low, c_high, out
            ),
        )

    def support(self, query: SupportQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, self.response(chunk)
        place = np.full(X.shape[1], -1, dtype=np.intp)
        place[q.support] = np.arange(len(q.support))
        beta = q.beta[q.support]
        return _per_task(
            kernels.n_tasks(X.shape[0]),
            len(q.support),
            lambda out: kernels.csr_support_kernel(
                q.kind, *_arrays(X), y, beta, q.constants, place, q.centre, q.radius, out
            ),
        )

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        X, (low, high) = chunk.X, query.squares
        g = np.empty(0) if query.response is None else query.response(self.response(chunk))
        sums = _per_task(
            _tasks(X),
            X.shape[1] + 1,
            lambda out: kernels.csr_exceedance_kernel(*_arrays(X), g, low, high, query.base, out),
        )
        return np.asarray(sums[:-1] + sums[-1])

    def response(self, chunk: Chunk) -> FloatArray:
        return np.empty(0) if chunk.y is None else np.asarray(chunk.y, dtype=float)

    def host(self, values: FloatArray) -> FloatArray:
        return values

    def columns(self, X: Any, support: IntArray) -> FloatArray:
        return np.asarray(X[:, support].toarray(), dtype=float)

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


def _arrays(X: Any) -> tuple[Any, Any, Any]:
    return X.data, X.indices, X.indptr


def _tasks(X: Any) -> int:
    """Tasks of a sum over all columns: their sums take no more room than a quarter of the entries, or one of them."""
    return max(1, min(kernels.n_tasks(X.shape[0]), X.nnz // (4 * X.shape[1])))


def _per_task(tasks: int, width: int, run: Callable[[FloatArray], None]) -> FloatArray:
    """Run a parallel kernel and add its tasks' sums in order."""
    out = np.zeros((tasks, width))
    run(out)
    return np.asarray(out.sum(axis=0))
