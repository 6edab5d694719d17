"""Rows in a numpy array: compiled loops, one pass over memory for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray

from dpem._threads import side_by_side
from dpem.engines import kernels, reading
from dpem.engines.base import checked_beta, float_below, one_each, weights_of
from dpem.query import BLOCK, Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.queries.gradient import CoordinateQuery, IntArray, SupportQuery
    from dpem.queries.screening import ExceedanceQuery

Rows = NDArray[np.floating]

#: Rows packed at a time where neither rows nor columns lie together in memory.
PIECE = 2 * kernels.TASK
#: Bytes of rows whose weights are computed together: what a core's second cache holds.
CACHE = 2**20
#: Bytes of a row for each column of β beyond which the other columns are not read for the projection.
APART = 384
#: Columns in a task, where columns lie together.
COLUMNS = 16


class DenseEngine:
    """See :class:`~dpem.engines.base.Engine`. Arrays with rows together and arrays with columns together have
    loops of their own; anything else is packed piece by piece, which costs a copy.

    *Lemma.* Sums do not depend on the number of threads, and are those that :func:`dpem.tables.base.slack` is stated
    for. *Proof.* Tasks and blocks are cut by the table's shape alone. At most BLOCK rows are added in their dtype, in
    any order; block sums are added in float64 to the task's, and those in order. ∎
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, dtype, d = query, chunk.X.dtype, chunk.X.shape[1]
        A, T = float_below(q.residual, dtype), float_below(q.entry, dtype)
        low, high = dtype.type(-1), float_below(0.0 if q.bracket is None else q.bracket, dtype)
        beta, where = checked_beta(q, d).astype(dtype), np.flatnonzero(q.beta)

        def by_rows(X: Rows, y: FloatArray | None) -> FloatArray:
            through = len(where) * APART > d * X.itemsize
            accumulate = kernels.accumulate_long if d * X.itemsize > kernels.LONG else kernels.accumulate

            def add(rows: slice, out: FloatArray) -> None:
                x = X[rows]
                fitted, hidden = np.empty(len(x)), np.empty(0 if q.bracket is None else len(x))
                if through:
                    reading.project_through(x, q.beta, fitted, hidden)
                else:
                    reading.project(x, where, q.beta[where], fitted, hidden)
                seen = None if q.bracket is None else hidden
                a, c = weights_of(q, fitted, seen, None if y is None else y[rows])
                accumulate(x, a, A, T, c, low, high, where, beta[where], out)

            return _by_tasks(X, d, add)

        def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
            a, c = np.empty(n, dtype=dtype), np.empty(0 if q.bracket is None else n, dtype=dtype)

            def weigh(task: int) -> None:
                rows = slice(task * kernels.TASK, min(n, (task + 1) * kernels.TASK))
                length = rows.stop - rows.start
                fitted, hidden = np.empty(length), np.empty(0 if q.bracket is None else length)
                reading.project_columns(XT, where, q.beta[where], rows.start, fitted, hidden)
                seen = hidden if q.bracket is not None else None
                raw_a, raw_c = weights_of(q, fitted, seen, None if y is None else y[rows])
                kernels.clamped(raw_a, -A, A, a[rows])
                if q.bracket is not None:
                    kernels.clamped(raw_c, low, high, c[rows])

            side_by_side(weigh, kernels.n_tasks(n) if n else 0)
            out = np.zeros(d)

            def add(j: slice) -> None:
                kernels.accumulate_columns(XT[j], a, T, c, beta[j], out[j])

            _by_columns(d, add)
            return out

        return _summed(chunk, by_rows, by_columns)

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        d, kind = chunk.X.shape[1], chunk.X.dtype.type
        floor, start, slope = (kind(v) for v in query.line)

        def largeness(y: FloatArray | None) -> FloatArray:
            return np.empty(0) if query.response is None or y is None else query.response(y)

        def by_rows(X: Rows, y: FloatArray | None) -> FloatArray:
            long = d * X.itemsize > kernels.LONG
            accumulate = kernels.accumulate_ramp_long if long else kernels.accumulate_ramp

            def add(rows: slice, out: FloatArray) -> None:
                g = largeness(None if y is None else y[rows])
                accumulate(X[rows], g, floor, slope, start, out)

            return _by_tasks(X, d, add)

        def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
            g, one = np.ones(n, dtype=kind), kind(1.0)
            if query.response is not None:
                with np.errstate(all="ignore"):
                    kernels.clamped(largeness(y), -one, one, g)
            out = np.zeros(d)
            _by_columns(d, lambda j: kernels.accumulate_ramp_columns(XT[j], g, floor, slope, start, out[j]))
            return out

        return _summed(chunk, by_rows, by_columns)

    def response(self, chunk: Chunk) -> FloatArray:
        return np.empty(0) if chunk.y is None else np.asarray(chunk.y, dtype=float)

    def host(self, values: FloatArray) -> FloatArray:
        return values

    def columns(self, X: Rows, support: IntArray, rows: slice = slice(None)) -> FloatArray:
        """Column by column in memory: sums over the few numbers of a row are then sums of a few long columns."""
        x = _contiguous(X[rows])
        if x is None:
            if X.dtype == float and X.strides[0] == X.itemsize and np.array_equal(support, np.arange(X.shape[1])):
                return np.asarray(X[rows], dtype=float)  # as it is: a question never writes into rows
            return np.asarray(X.T[support, rows], dtype=float, order="C").T
        out = np.empty((len(support), len(x)))
        reading.gather(x, _inside(support, X.shape[1]), out)
        return out.T

    def mean_squares(self, X: Rows) -> FloatArray:
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64) / X.shape[1])

    def anomalies(self, X: Rows) -> tuple[bool, bool]:
        def by_rows(X: Rows, d: int) -> FloatArray:
            return _by_tasks(X, 2, lambda rows, found: reading.anomalies(X[rows], d, found))

        d = X.shape[1]
        nan, inf = _summed(Chunk(X, None), lambda X, y: by_rows(X, d), lambda XT, y, n: by_rows(XT, n))
        return bool(nan), bool(inf)

    def pieces(self, X: Rows, rows: int) -> Iterator[FloatArray]:
        for first in range(0, X.shape[0], rows):
            yield X[first : first + rows].astype(float)


ENGINE = DenseEngine()


def support_sum(query: SupportQuery, x: FloatArray, y: FloatArray | None) -> FloatArray:
    """A question on a support, of rows that hold its columns: the array API's formula in compiled loops."""
    XT, beta = np.ascontiguousarray(x.T), query.beta[query.support]
    if query.centre.shape != beta.shape or XT.shape[0] != len(beta):  # compiled code does not look
        raise ValueError(f"centre must hold one number for each of the {len(beta)} columns of the support.")
    fitted, hidden = np.empty(len(x)), np.empty(len(x) if query.holes else 0)
    reading.project_columns(XT, np.arange(len(beta)), beta, 0, fitted, hidden)
    a, c = query.weight(numpy_api, fitted, hidden if query.holes else None, y)
    out, none = np.zeros(len(beta)), np.empty(0)
    c = one_each(c, fitted) if query.holes else none
    kernels.add_in_ball(XT, one_each(a, fitted), c, beta, query.centre, query.radius, query.holes, out)
    return out


def unit_coordinates(x: FloatArray, middle: FloatArray, half: FloatArray) -> FloatArray | None:
    """clip((x − middle)/half, ±1), NaN where an entry is not finite; None where the columns of x are not together."""
    XT, d = _contiguous(x.T), x.shape[1]
    if XT is None or middle.shape != (d,) or half.shape != (d,):  # compiled code does not look
        return None
    out = np.empty((d, x.shape[0]))
    reading.unit(XT, middle, half, out)
    return out.T


def _summed(
    chunk: Chunk,
    by_rows: Callable[[Rows, FloatArray | None], FloatArray],
    by_columns: Callable[[Rows, FloatArray | None, int], FloatArray],
) -> FloatArray:
    """A sum over the rows by the loops that go with how they lie in memory."""
    X, y = chunk.X, None if chunk.y is None else np.asarray(chunk.y, dtype=float)
    if (rows := _contiguous(X)) is not None:
        return by_rows(rows, y)
    if (columns := _contiguous(X.T)) is not None:
        return by_columns(columns, y, X.shape[0])
    pieces = (slice(first, first + PIECE) for first in range(0, X.shape[0], PIECE))
    return np.sum([by_rows(np.ascontiguousarray(X[r]), None if y is None else y[r]) for r in pieces], axis=0)


def _by_tasks(X: Rows, width: int, add: Callable[[slice, FloatArray], None]) -> FloatArray:
    """The sum that ``add`` makes of each task's rows, block by block; tasks' sums are added in order.

    Tasks are short where rows are long: then no thread waits long for the last one, which another has.
    """
    n, row_bytes = X.shape[0], max(1, X.shape[1] * X.itemsize)
    rows = min(kernels.TASK, max(4, CACHE // row_bytes // BLOCK) * BLOCK)
    out = np.zeros((max(1, -(-n // rows)), width))

    def work(task: int) -> None:
        add(slice(task * rows, min(n, (task + 1) * rows)), out[task])

    side_by_side(work, len(out))
    return np.asarray(out.sum(axis=0))


def _by_columns(d: int, add: Callable[[slice], None]) -> None:
    side_by_side(lambda task: add(slice(task * COLUMNS, min(d, (task + 1) * COLUMNS))), -(-d // COLUMNS))


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


def _inside(support: IntArray, d: int) -> IntArray:
    """The places of columns, none of them outside the table: compiled code does not look."""
    where = np.asarray(support, dtype=np.intp)
    if where.size and not (where.min() >= 0 and where.max() < d):
        raise IndexError(f"a question reads columns from {where.min()} to {where.max()} of a table of {d}.")
    return where
