"""Rows in a numpy array or in a SciPy CSR matrix: compiled loops, one pass over memory for each query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem._threads import side_by_side
from dpem._validation import ArgumentError
from dpem.paper.engine import checked_beta, clipped_sums, projections
from dpem.query import Array, Chunk, FloatArray
from dpem.tables.blocks import float_below, response, sound_rows
from dpem.tables.dense_rows import TASK, Rows, by_tasks, summed

if TYPE_CHECKING:
    from dpem.paper.queries import CoordinateQuery, ExceedanceQuery, SupportQuery

#: Bytes of a row for each column of β beyond which the other columns are not read for the projection.
APART = 28
#: Columns in a task, where columns lie together.
COLUMNS = 16
NOTHING = np.empty(0)


class DenseEngine:
    """See :class:`~dpem.paper.engine.Engine`. Arrays with rows together and arrays with columns together have loops of
    their own; anything else is packed piece by piece, which costs a copy.

    *Lemma.* Sums do not depend on the number of threads, and are those that :func:`dpem.tables.base.slack` is stated
    for. *Proof.* Tasks and blocks are cut by the table's shape alone. At most BLOCK rows are added in their dtype, in
    any order; block sums are added in float64 to the task's, and those in order. ∎
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, dtype, d, has_missing = query, chunk.X.dtype, chunk.X.shape[1], query.has_missing
        A, T, odd = float_below(q.residual, dtype), float_below(q.entry, dtype), dtype.type(0) if has_missing else None
        low, high = dtype.type(-1), float_below(0.0 if q.bracket is None else q.bracket, dtype)
        beta, where = checked_beta(q, d).astype(dtype), np.flatnonzero(q.beta)
        through, on, exact = len(where) * APART > d * dtype.itemsize, beta[where], q.beta[where]

        def by_rows(X: Rows, y: FloatArray | None) -> FloatArray:
            def add(rows: slice, out: FloatArray) -> None:
                x = X[rows]
                fitted, hidden = np.empty(len(x)), np.empty(len(x) * has_missing)
                if through:
                    projections.project_through(x, q.beta, fitted, hidden)
                else:
                    projections.project(x, where, exact, fitted, hidden)
                a, c = weights_of(q, fitted, hidden, y, rows)
                clipped_sums.accumulate(x, a, A, T, odd, c, low, high, hidden, where, on, out)

            return by_tasks(X, d, add)

        def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
            a, c, out = np.empty(n, dtype=dtype), np.empty(n * has_missing, dtype=dtype), np.zeros(d)

            def weigh(task: int) -> None:
                rows = slice(task * TASK, min(n, (task + 1) * TASK))
                length = rows.stop - rows.start
                fitted, hidden = np.empty(length), np.empty(length * has_missing)
                projections.project_columns(XT, where, exact, rows.start, fitted, hidden)
                raw_a, raw_c = weights_of(q, fitted, hidden, y, rows)
                clipped_sums.clamped(raw_a, -A, A, a[rows])
                clipped_sums.clamped(raw_c, low, high, c[rows])

            side_by_side(weigh, -(-n // TASK))
            _by_columns(d, lambda j: clipped_sums.accumulate_columns(XT[j], a, T, odd, c, beta[j], out[j]))
            return out

        return summed(chunk, by_rows, by_columns)

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        d, kind = chunk.X.shape[1], chunk.X.dtype.type
        floor, start, slope = (kind(v) for v in query.line)

        def by_rows(X: Rows, y: FloatArray | None) -> FloatArray:
            def add(rows: slice, out: FloatArray) -> None:
                clipped_sums.accumulate_ramp(X[rows], largeness(query, y, rows), floor, slope, start, out)

            return by_tasks(X, d, add)

        def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
            g, one, out = np.ones(n, dtype=kind), kind(1.0), np.zeros(d)
            with np.errstate(all="ignore"):
                clipped_sums.clamped(largeness(query, y), -one, one, g[: 0 if query.response is None else n])
            _by_columns(d, lambda j: clipped_sums.accumulate_ramp_columns(XT[j], g, floor, slope, start, out[j]))
            return out

        return summed(chunk, by_rows, by_columns)


class CsrEngine:
    """See :class:`~dpem.paper.engine.Engine`: time in proportion to the stored entries, and every sum in float64. An
    entry that is not stored is 0. A stored not-a-number is a missing entry, where the model has them.

    *Lemma.* A contribution is within its bound for any stored arrays. *Proof.* A loop skips a row that is not sound;
    a sound row has each column once, so each coordinate of its contribution is one clipped product (or 0), as for
    dense rows. ∎
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, None if chunk.y is None else response(chunk)
        has_missing, beta = q.bracket is not None, checked_beta(q, X.shape[1])
        high = 0.0 if q.bracket is None else q.bracket

        def add(rows: slice, out: FloatArray) -> None:
            stored, right = sound_rows(X, rows.start, rows.stop)
            fitted, hidden = np.empty(len(right)), np.empty(len(right))
            projections.project_sparse(*stored, rows.start, right, beta, has_missing, fitted, hidden)
            a, c = weights_of(q, fitted, hidden, y, rows)
            c = c if has_missing else hidden  # which is not looked at
            clipped_sums.accumulate_sparse(
                *stored, rows.start, right, a, c, beta, has_missing, q.residual, -1.0, high, q.entry, out
            )

        return _sparse_sum(X, _tasks(X), X.shape[1], add)

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        X, (floor, start, slope), y = chunk.X, query.line, None if chunk.y is None else response(chunk)

        def add(rows: slice, out: FloatArray) -> None:
            stored, right = sound_rows(X, rows.start, rows.stop)
            g = largeness(query, y, rows)
            clipped_sums.accumulate_ramp_sparse(*stored, rows.start, right, g, floor, slope, start, out)

        sums = _sparse_sum(X, _tasks(X), X.shape[1] + 1, add)
        return np.asarray(sums[:-1] + sums[-1])


DENSE, CSR = DenseEngine(), CsrEngine()


def weights_of(
    query: CoordinateQuery | SupportQuery, fitted: FloatArray, hidden: FloatArray, y: FloatArray | None, rows: slice
) -> tuple[FloatArray, FloatArray]:
    """The query's (a, c) for these rows, as the model says and not clamped yet, one float64 number for each: compiled
    code does not look. c has no numbers where nothing can be missing.
    """
    a, c = query.weight(numpy_api, fitted, hidden if query.has_missing else None, None if y is None else y[rows])
    return _one_each(a, fitted), _one_each(c, fitted) if query.has_missing else NOTHING


def _one_each(values: Array, fitted: FloatArray) -> FloatArray:
    weights = np.ascontiguousarray(values, dtype=np.float64)
    if weights.shape != fitted.shape:
        raise ValueError(f"a model's weight must return one number for each row, got shape {weights.shape}.")
    return weights


def largeness(query: ExceedanceQuery, y: FloatArray | None, rows: slice = slice(None)) -> FloatArray:
    """g(y) of these rows; no numbers where the query has no response."""
    return NOTHING if query.response is None or y is None else query.response(y[rows])


def support_sum(query: SupportQuery, x: FloatArray, y: FloatArray | None) -> FloatArray:
    """A query on a support, of rows that hold its columns: the array API's formula in compiled loops."""
    XT, beta = np.ascontiguousarray(x.T), query.beta[query.support]
    if query.centre.shape != beta.shape or XT.shape[0] != len(beta):  # compiled code does not look
        raise ArgumentError("centre", f"must hold one number for each of the {len(beta)} columns of the support.")
    fitted, hidden, out = np.empty(len(x)), np.empty(len(x) * query.has_missing), np.zeros(len(beta))
    projections.project_columns(XT, np.arange(len(beta)), beta, 0, fitted, hidden)
    a, c = weights_of(query, fitted, hidden, y, slice(None))
    clipped_sums.add_in_ball(XT, a, c, beta, query.centre, query.radius, query.has_missing, out)
    return out


def _by_columns(d: int, add: Callable[[slice], None]) -> None:
    side_by_side(lambda task: add(slice(task * COLUMNS, min(d, (task + 1) * COLUMNS))), -(-d // COLUMNS))


def _tasks(X: Array) -> int:
    """Tasks of a sum over all columns: their sums take no more room than a quarter of the entries, or one of them."""
    return max(1, min(max(1, -(-X.shape[0] // TASK)), X.nnz // (4 * X.shape[1])))


def _sparse_sum(X: Array, tasks: int, width: int, add: Callable[[slice, FloatArray], None]) -> FloatArray:
    """The sum that ``add`` makes of each task's rows, TASK at a time; tasks' sums are added in order."""
    n, out = X.shape[0], np.zeros((tasks, width))
    rows = -(-n // tasks)

    def work(task: int) -> None:
        end = min(n, (task + 1) * rows)
        for first in range(task * rows, end, TASK):
            add(slice(first, min(end, first + TASK)), out[task])

    side_by_side(work, tasks)
    return np.asarray(out.sum(axis=0))
