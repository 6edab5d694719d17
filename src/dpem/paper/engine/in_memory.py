"""The engines for NumPy arrays and SciPy CSR matrices: compiled loops that read the rows once for each query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem._threads import run_in_parallel
from dpem._validation import ArgumentError
from dpem.paper.engine import Levels, checked_beta, clipped_sums, projections
from dpem.query import Array, Chunk, FloatArray
from dpem.tables.blocks import response, valid_rows
from dpem.tables.dense_rows import TASK, Rows, by_tasks, sum_rows

if TYPE_CHECKING:
    from dpem.paper.queries import SupportQuery, WideQuery

#: Products with β read whole rows if a row has fewer bytes than this per column where β is not zero.
APART = 28
#: Columns that one task adds, of a column-major array.
COLUMNS = 16


def dense_sum(query: WideQuery, chunk: Chunk) -> FloatArray:
    """The :data:`~dpem.paper.engine.Engine` of NumPy arrays. Row-major and column-major arrays have loops of their own;
    other arrays are copied piece by piece.

    *Lemma.* Sums do not depend on the number of threads, and :func:`dpem.tables.base.slack` bounds their rounding.
    *Proof.* Tasks and blocks depend on the table's shape alone. At most BLOCK rows are added in their dtype, in any
    order; block sums are added to the task's sum in float64, and the tasks' sums in order. ∎
    """
    q, dtype, d, has_missing = query, chunk.X.dtype, chunk.X.shape[1], query.has_missing
    A, c_max, *entry = Levels.of(q, dtype)
    nan_value, exact = dtype.type(0) if has_missing else None, checked_beta(q, d)
    beta, where = exact.astype(dtype), np.flatnonzero(exact)
    read_whole_rows = len(where) * APART > d * dtype.itemsize

    def by_rows(X: Rows, y: FloatArray | None) -> FloatArray:
        def add(rows: slice, out: FloatArray) -> None:
            x = X[rows]
            fitted, missing_variance = np.zeros(len(x)), np.zeros(len(x) * has_missing)
            if read_whole_rows:
                projections.project_through(x, exact, fitted, missing_variance)
            elif len(where):
                projections.project(x, where, exact[where], fitted, missing_variance)
            a, c = weights_of(q, fitted, missing_variance, y, rows)
            clipped_sums.accumulate(x, a, A, *entry, nan_value, c, c_max, missing_variance, where, beta[where], out)

        return by_tasks(X, d, add)

    def by_columns(XT: Rows, y: FloatArray | None, n: int) -> FloatArray:
        a, c, out = np.empty(n, dtype=dtype), np.empty(n * has_missing, dtype=dtype), np.zeros(d)

        def compute_weights(task: int) -> None:
            rows = slice(task * TASK, min(n, (task + 1) * TASK))
            length = rows.stop - rows.start
            fitted, missing_variance = np.empty(length), np.empty(length * has_missing)
            projections.project_columns(XT, where, exact[where], rows.start, fitted, missing_variance)
            raw_a, raw_c = weights_of(q, fitted, missing_variance, y, rows)
            clipped_sums.clamped(raw_a, -A, A, a[rows])
            clipped_sums.clamped(raw_c, dtype.type(-1), c_max, c[rows])

        def add_columns(task: int) -> None:
            j = slice(task * COLUMNS, min(d, (task + 1) * COLUMNS))
            clipped_sums.accumulate_columns(XT[j], a, *entry, nan_value, c, beta[j], out[j])

        run_in_parallel(compute_weights, -(-n // TASK))
        run_in_parallel(add_columns, -(-d // COLUMNS))
        return out

    return sum_rows(chunk, by_rows, by_columns)


def sparse_sum(query: WideQuery, chunk: Chunk) -> FloatArray:
    """The :data:`~dpem.paper.engine.Engine` of CSR matrices: sums in float64, in time proportional to the stored
    entries. An entry that is not stored is 0; a stored not-a-number is a missing entry, if the model has missing
    entries.

    *Lemma.* A contribution is within its bound whatever the stored arrays contain. *Proof.* Rows that are not valid are
    skipped. A valid row has each column at most once, so each coordinate of its contribution is one clipped product,
    as for dense rows. ∎
    """
    q, X, y, has_missing = query, chunk.X, None if chunk.y is None else response(chunk), query.has_missing
    (A, c_max, *entry), beta = Levels.of(q, np.dtype(float)), checked_beta(q, chunk.X.shape[1])
    n, tasks = X.shape[0], _tasks(X)
    length, out = -(-n // tasks), np.zeros((tasks, X.shape[1] + 1))

    def work(task: int) -> None:
        end = min(n, (task + 1) * length)
        for first in range(task * length, end, TASK):
            rows = slice(first, min(end, first + TASK))
            stored, valid = valid_rows(X, rows.start, rows.stop)
            fitted, missing_variance = np.zeros(len(valid)), np.zeros(len(valid))
            if beta.any():
                projections.project_sparse(*stored, first, valid, beta, has_missing, fitted, missing_variance)
            a, c = weights_of(q, fitted, missing_variance, y, rows)
            c = c if has_missing else missing_variance  # not used, but must have this length
            clipped_sums.accumulate_sparse(*stored, first, valid, a, A, *entry, has_missing, c, c_max, beta, out[task])

    run_in_parallel(work, tasks)
    sums = out.sum(axis=0)
    return np.asarray(sums[:-1] + sums[-1])


def weights_of(
    query: WideQuery | SupportQuery, fitted: FloatArray, missing_variance: FloatArray, y: FloatArray | None, rows: slice
) -> tuple[FloatArray, FloatArray]:
    """The query's weights (a, c) of these rows, not clamped yet; c is empty if entries cannot be missing. That there is
    one number for each row is checked, since compiled code does not check lengths.
    """
    a, c = query.weight(
        numpy_api, fitted, missing_variance if query.has_missing else None, None if y is None else y[rows]
    )
    return _one_per_row(a, fitted), _one_per_row(c, fitted) if query.has_missing else np.empty(0)


def _one_per_row(values: Array, fitted: FloatArray) -> FloatArray:
    weights = np.ascontiguousarray(values, dtype=np.float64)
    if weights.shape != fitted.shape:
        raise ValueError(f"a model's weight must return one number for each row, got shape {weights.shape}.")
    return weights


def support_sum(query: SupportQuery, x: FloatArray, y: FloatArray | None) -> FloatArray:
    """The sum of a query on a support over rows that have its columns only, by compiled loops."""
    XT, beta = np.ascontiguousarray(x.T), query.beta[query.support]
    if query.centre.shape != beta.shape or XT.shape[0] != len(beta):  # compiled code does not check
        raise ArgumentError("centre", f"must hold one number for each of the {len(beta)} columns of the support.")
    fitted, missing_variance, out = np.empty(len(x)), np.empty(len(x) * query.has_missing), np.zeros(len(beta))
    projections.project_columns(XT, np.arange(len(beta)), beta, 0, fitted, missing_variance)
    a, c = weights_of(query, fitted, missing_variance, y, slice(None))
    clipped_sums.add_in_ball(XT, a, c, beta, query.centre, query.radius, query.has_missing, out)
    return out


def _tasks(X: Array) -> int:
    """The number of tasks of a sum over all columns, so few that their sums need at most a quarter of the memory of the
    stored entries; at least one.
    """
    return max(1, min(max(1, -(-X.shape[0] // TASK)), X.nnz // (4 * X.shape[1])))
