"""Rows in a numpy array: compiled kernels, one pass over memory for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpem.models import kernels
from dpem.models.engines.base import float_below
from dpem.query import Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.models.base import CoordinateQuery, IntArray, SupportQuery
    from dpem.models.screening import ExceedanceQuery

Rows = NDArray[np.floating]


class DenseEngine:
    """See :class:`~dpem.models.engines.base.Engine`."""

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, _response(chunk)
        T = float_below(q.entry, X.dtype)
        if q.bracket is None:
            return _per_task(
                X,
                X.shape[1],
                lambda out: kernels.coordinate_kernel(q.kind, X, y, q.beta, q.constants, q.residual, T, out),
            )
        return _per_task(
            X,
            X.shape[1],
            lambda out: kernels.missing_kernel(q.kind, X, y, q.beta, q.constants, q.residual, T, -1.0, q.bracket, out),
        )

    def support(self, query: SupportQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, _response(chunk)
        beta = q.beta[q.support]
        return _per_task(
            X,
            len(q.support),
            lambda out: kernels.support_kernel(q.kind, X, y, beta, q.constants, q.support, q.centre, q.radius, out),
        )

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        X, (low, high) = chunk.X, query.squares
        g = np.empty(0) if query.response is None else query.response(self.response(chunk))
        return _per_task(X, X.shape[1], lambda out: kernels.exceedance_kernel(X, g, low, high, query.base, out))

    def response(self, chunk: Chunk) -> FloatArray:
        return np.asarray(_response(chunk), dtype=float)

    def host(self, values: FloatArray) -> FloatArray:
        return values

    def columns(self, X: Rows, support: IntArray) -> FloatArray:
        return np.asarray(X[:, support], dtype=float)

    def mean_squares(self, X: Rows) -> FloatArray:
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64) / X.shape[1])

    def anomalies(self, X: Rows) -> tuple[bool, bool]:
        nan, inf = _per_task(X, 2, lambda out: kernels.anomaly_kernel(X, out))
        return bool(nan), bool(inf)

    def pieces(self, X: Rows, rows: int) -> Iterator[FloatArray]:
        for first in range(0, X.shape[0], rows):
            yield X[first : first + rows].astype(float)


ENGINE = DenseEngine()


def _response(chunk: Chunk) -> Rows:
    return np.empty(0, dtype=chunk.X.dtype) if chunk.y is None else chunk.y


def _per_task(X: Rows, width: int, run: Callable[[FloatArray], None]) -> FloatArray:
    """Run a parallel kernel and add its tasks' sums in order."""
    out = np.zeros((kernels.n_tasks(X.shape[0]), width))
    run(out)
    return np.asarray(out.sum(axis=0))
