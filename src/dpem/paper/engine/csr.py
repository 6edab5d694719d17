"""Rows in a SciPy CSR matrix: time in proportion to the stored entries, and every sum in float64.

An entry that is not stored is 0. A stored not-a-number is a missing entry, where the model has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dpem._threads import side_by_side
from dpem.paper.engine import clipped_sums, projections
from dpem.paper.engine.base import checked_beta, weights_of
from dpem.query import Array, Chunk, FloatArray
from dpem.tables.blocks import response, sound_rows
from dpem.tables.dense_rows import TASK

if TYPE_CHECKING:
    from dpem.paper.queries import CoordinateQuery, ExceedanceQuery


class CsrEngine:
    """See :class:`~dpem.paper.engine.base.Engine`.

    *Lemma.* A contribution is within its bound for any stored arrays. *Proof.* A loop skips a row that is not sound;
    a sound row has each column once, so each coordinate of its contribution is one clipped product (or 0), as for
    dense rows. ∎
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        q, X, y = query, chunk.X, None if chunk.y is None else response(chunk)
        has_missing, d = q.bracket is not None, X.shape[1]
        high, beta = 0.0 if q.bracket is None else q.bracket, checked_beta(q, d)

        def add(first: int, last: int, out: FloatArray) -> None:
            stored, right = sound_rows(X, first, last)
            fitted, hidden = np.empty(last - first), np.empty(last - first)
            projections.project_sparse(*stored, first, right, beta, has_missing, fitted, hidden)
            a, c = weights_of(q, fitted, hidden if has_missing else None, None if y is None else y[first:last])
            c = c if has_missing else hidden  # which is not looked at
            clipped_sums.accumulate_sparse(
                *stored, first, right, a, c, beta, has_missing, q.residual, -1.0, high, q.entry, out
            )

        return _by_tasks(X, _tasks(X), d, add)

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        X, (floor, start, slope) = chunk.X, query.line
        y = None if query.response is None else response(chunk)

        def add(first: int, last: int, out: FloatArray) -> None:
            stored, right = sound_rows(X, first, last)
            g = np.empty(0) if query.response is None or y is None else query.response(y[first:last])
            clipped_sums.accumulate_ramp_sparse(*stored, first, right, g, floor, slope, start, out)

        sums = _by_tasks(X, _tasks(X), X.shape[1] + 1, add)
        return np.asarray(sums[:-1] + sums[-1])


ENGINE = CsrEngine()


def _tasks(X: Array) -> int:
    """Tasks of a sum over all columns: their sums take no more room than a quarter of the entries, or one of them."""
    return max(1, min(max(1, -(-X.shape[0] // TASK)), X.nnz // (4 * X.shape[1])))


def _by_tasks(X: Array, tasks: int, width: int, add: Callable[[int, int, FloatArray], None]) -> FloatArray:
    """The sum that ``add`` makes of each task's rows, TASK at a time; tasks' sums are added in order."""
    n, out = X.shape[0], np.zeros((tasks, width))
    rows = -(-n // tasks)

    def work(task: int) -> None:
        end = min(n, (task + 1) * rows)
        for first in range(task * rows, end, TASK):
            add(first, min(end, first + TASK), out[task])

    side_by_side(work, tasks)
    return np.asarray(out.sum(axis=0))
