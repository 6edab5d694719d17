"""Rows in a numpy array or in a SciPy CSR matrix: compiled loops, one pass over memory for each query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem._threads import run_in_parallel
from dpem._validation import ArgumentError
from dpem.paper.engine import Levels, checked_beta, clipped_sums, projections
from dpem.query import Array, Chunk, FloatArray
from dpem.tables.blocks import response, sound_rows
from dpem.tables.dense_rows import TASK, Rows, by_tasks, sum_rows

if TYPE_CHECKING:
    from dpem.paper.queries import SupportQuery, WideQuery

#: A projection reads whole rows if they have fewer bytes than this for each column where β is not zero.
APART = 28
#: Columns in a task of a column-major array.
COLUMNS = 16
NOTHING = np.empty(0)


def dense_sum(query: WideQuery, chunk: Chunk) -> FloatArray:
    """The :data:`~dpem.paper.engine.Engine` of arrays. Row-major and column-major arrays have loops of their own;
    anything else is packed piece by piece, which costs a copy.

    *Lemma.* Sums do not depend on the number of threads, and are those that :func:`dpem.tables.base.slack` is stated
    for. *Proof.* Tasks and blocks are cut by the table's shape alone. At most BLOCK rows are added in their dtype, in
    any order; block sums are added in float64 to the task's, and those in order. ∎
    """
    q, dtype, d, has_missing = query, chunk.X.dtype, chunk.X.shape[1], query.has_missing
    A, top, *entry = Levels.of(q, dtype)
    odd, exact = dtype.type(0) if has_missing else None, checked_beta(q, d)
    beta, where = exact.astype(dtype), np.flatnonzero(exact)
    through = len(where) * APART > d * dtype.itemsize

    def by_rows(X: Rows, y: FloatArray | None) -> FloatArray:
        def add(rows: slice, out: FloatArray) -> None:
            x = X[rows]
            fitted, hidden = np.zeros(len(x)), np.zeros(len(x) * has_missing)
            if through:
                projections.project_through(x, exact, fitted, hidden)
            elif len(where):
                projections.project(x, where, exact[where], fitted, hidden)
            a, c = weights_of(q, fitted, hidden, y, rows)
            clipped_sums.accumulate(x, a, A, *entry, odd, c, top, hidden, where, beta[where], out)

        return by_tasks(X, d, add)

    def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
        a, c, out = np.empty(n, dtype=dtype), np.empty(n * has_missing, dtype=dtype), np.zeros(d)

        def weigh(task: int) -> None:
            rows = slice(task * TASK, min(n, (task + 1) * TASK))
            length = rows.stop - rows.start
            fitted, hidden = np.empty(length), np.empty(length * has_missing)
            projections.project_columns(XT, where, exact[where], rows.start, fitted, hidden)
            raw_a, raw_c = weights_of(q, fitted, hidden, y, rows)
            clipped_sums.clamped(raw_a, -A, A, a[rows])
            clipped_sums.clamped(raw_c, dtype.type(-1), top, c[rows])

        def add(task: int) -> None:
            j = slice(task * COLUMNS, min(d, (task + 1) * COLUMNS))
            clipped_sums.accumulate_columns(XT[j], a, *entry, odd, c, beta[j], out[j])

        run_in_parallel(weigh, -(-n // TASK))
        run_in_parallel(add, -(-d // COLUMNS))
        return out

    return sum_rows(chunk, by_rows, by_columns)


def sparse_sum(query: WideQuery, chunk: Chunk) -> FloatArray:
    """The :data:`~dpem.paper.engine.Engine` of CSR matrices: time in proportion to the stored entries, and every sum in
    float64. An entry that is not stored is 0. A stored not-a-number is a missing entry, where the model has them.

    *Lemma.* A contribution is within its bound for any stored arrays. *Proof.* A loop skips a row that is not sound;
    a sound row has each column once, so each coordinate of its contribution is one clipped product (or that of 0), as
    for dense rows. ∎
    """
    q, X, y, has_missing = query, chunk.X, None if chunk.y is None else response(chunk), query.has_missing
    (A, top, *entry), beta = Levels.of(q, np.dtype(float)), checked_beta(q, chunk.X.shape[1])
    n, tasks = X.shape[0], _tasks(X)
    length, out = -(-n // tasks), np.zeros((tasks, X.shape[1] + 1))

    def work(task: int) -> None:
        end = min(n, (task + 1) * length)
        for first in range(task * length, end, TASK):
            rows = slice(first, min(end, first + TASK))
            stored, sound = sound_rows(X, rows.start, rows.stop)
            fitted, hidden = np.zeros(len(sound)), np.zeros(len(sound))
            if beta.any():
                projections.project_sparse(*stored, first, sound, beta, has_missing, fitted, hidden)
            a, c = weights_of(q, fitted, hidden, y, rows)
            c = c if has_missing else hidden  # which is not looked at
            clipped_sums.accumulate_sparse(*stored, first, sound, a, A, *entry, has_missing, c, top, beta, out[task])

    run_in_parallel(work, tasks)
    sums = out.sum(axis=0)
    return np.asarray(sums[:-1] + sums[-1])


def weights_of(
    query: WideQuery | SupportQuery, fitted: FloatArray, hidden: FloatArray, y: FloatArray | None, rows: slice
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


def _tasks(X: Array) -> int:
    """Tasks of a sum over all columns: their sums take no more room than a quarter of the entries, or one of them."""
    return max(1, min(max(1, -(-X.shape[0] // TASK)), X.nnz // (4 * X.shape[1])))
