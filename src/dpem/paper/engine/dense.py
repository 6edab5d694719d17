"""Rows in a numpy array: compiled loops, one pass over memory for each query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem._threads import side_by_side
from dpem._validation import ArgumentError
from dpem.paper.engine import clipped_sums, projections
from dpem.paper.engine.base import checked_beta, one_each, weights_of
from dpem.query import Chunk, FloatArray
from dpem.tables.blocks import float_below
from dpem.tables.dense_rows import TASK, Rows, by_tasks, summed

if TYPE_CHECKING:
    from dpem.paper.queries import CoordinateQuery, ExceedanceQuery, SupportQuery

#: Bytes of a row for each column of β beyond which the other columns are not read for the projection.
APART = 384
#: Columns in a task, where columns lie together.
COLUMNS = 16


class DenseEngine:
    """See :class:`~dpem.paper.engine.base.Engine`. Arrays with rows together and arrays with columns together have
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
            accumulate = clipped_sums.accumulate_long if d * X.itemsize > clipped_sums.LONG else clipped_sums.accumulate

            def add(rows: slice, out: FloatArray) -> None:
                x = X[rows]
                fitted, hidden = np.empty(len(x)), np.empty(0 if q.bracket is None else len(x))
                if through:
                    projections.project_through(x, q.beta, fitted, hidden)
                else:
                    projections.project(x, where, q.beta[where], fitted, hidden)
                seen = None if q.bracket is None else hidden
                a, c = weights_of(q, fitted, seen, None if y is None else y[rows])
                accumulate(x, a, A, T, c, low, high, where, beta[where], out)

            return by_tasks(X, d, add)

        def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
            a, c = np.empty(n, dtype=dtype), np.empty(0 if q.bracket is None else n, dtype=dtype)

            def weigh(task: int) -> None:
                rows = slice(task * TASK, min(n, (task + 1) * TASK))
                length = rows.stop - rows.start
                fitted, hidden = np.empty(length), np.empty(0 if q.bracket is None else length)
                projections.project_columns(XT, where, q.beta[where], rows.start, fitted, hidden)
                seen = hidden if q.bracket is not None else None
                raw_a, raw_c = weights_of(q, fitted, seen, None if y is None else y[rows])
                clipped_sums.clamped(raw_a, -A, A, a[rows])
                if q.bracket is not None:
                    clipped_sums.clamped(raw_c, low, high, c[rows])

            side_by_side(weigh, -(-n // TASK))
            out = np.zeros(d)

            def add(j: slice) -> None:
                clipped_sums.accumulate_columns(XT[j], a, T, c, beta[j], out[j])

            _by_columns(d, add)
            return out

        return summed(chunk, by_rows, by_columns)

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        d, kind = chunk.X.shape[1], chunk.X.dtype.type
        floor, start, slope = (kind(v) for v in query.line)

        def largeness(y: FloatArray | None) -> FloatArray:
            return np.empty(0) if query.response is None or y is None else query.response(y)

        def by_rows(X: Rows, y: FloatArray | None) -> FloatArray:
            long = d * X.itemsize > clipped_sums.LONG
            accumulate = clipped_sums.accumulate_ramp_long if long else clipped_sums.accumulate_ramp

            def add(rows: slice, out: FloatArray) -> None:
                g = largeness(None if y is None else y[rows])
                accumulate(X[rows], g, floor, slope, start, out)

            return by_tasks(X, d, add)

        def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
            g, one = np.ones(n, dtype=kind), kind(1.0)
            if query.response is not None:
                with np.errstate(all="ignore"):
                    clipped_sums.clamped(largeness(y), -one, one, g)
            out = np.zeros(d)
            _by_columns(d, lambda j: clipped_sums.accumulate_ramp_columns(XT[j], g, floor, slope, start, out[j]))
            return out

        return summed(chunk, by_rows, by_columns)


ENGINE = DenseEngine()


def support_sum(query: SupportQuery, x: FloatArray, y: FloatArray | None) -> FloatArray:
    """A query on a support, of rows that hold its columns: the array API's formula in compiled loops."""
    XT, beta = np.ascontiguousarray(x.T), query.beta[query.support]
    if query.centre.shape != beta.shape or XT.shape[0] != len(beta):  # compiled code does not look
        raise ArgumentError("centre", f"must hold one number for each of the {len(beta)} columns of the support.")
    fitted, hidden = np.empty(len(x)), np.empty(len(x) if query.has_missing else 0)
    projections.project_columns(XT, np.arange(len(beta)), beta, 0, fitted, hidden)
    a, c = query.weight(numpy_api, fitted, hidden if query.has_missing else None, y)
    out, none = np.zeros(len(beta)), np.empty(0)
    c = one_each(c, fitted) if query.has_missing else none
    clipped_sums.add_in_ball(XT, one_each(a, fitted), c, beta, query.centre, query.radius, query.has_missing, out)
    return out


def _by_columns(d: int, add: Callable[[slice], None]) -> None:
    side_by_side(lambda task: add(slice(task * COLUMNS, min(d, (task + 1) * COLUMNS))), -(-d // COLUMNS))
