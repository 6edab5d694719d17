"""Rows in a numpy array."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem._threads import run_in_parallel
from dpem.query import BLOCK, Chunk, FloatArray

Rows = NDArray[np.floating]
IntArray = NDArray[np.intp]

#: Rows per task: each task has its own float64 sum, and tasks are added in order.
TASK = 16 * BLOCK
#: Rows packed at a time where neither rows nor columns lie together in memory.
PIECE = 2 * TASK
#: Bytes of rows that a task reads: what a core's second cache holds.
CACHE = 2**20
#: Entries of a chunk from which on compiled loops are loaded: that takes as long as numpy takes for some 10⁸ of them.
COMPILED = 2**19


def dense_columns(X: Rows, support: IntArray, rows: slice = slice(None)) -> FloatArray:
    """Column by column in memory: sums over the few numbers of a row are then sums of a few long columns."""
    x = contiguous(X[rows])
    if x is None:
        if X.dtype == float and X.strides[0] == X.itemsize and np.array_equal(support, np.arange(X.shape[1])):
            return np.asarray(X[rows], dtype=float)  # as it is: no query writes into rows
        return np.asarray(X.T[support, rows], dtype=float, order="C").T
    where, loops = np.asarray(support, dtype=np.intp), compiled_loops(X.shape[0] * len(support))
    if where.size and not (where.min() >= 0 and where.max() < X.shape[1]):  # compiled code does not look
        raise IndexError(f"a query reads columns from {where.min()} to {where.max()} of a table of {X.shape[1]}.")
    if loops is None:
        return np.asarray(x.T[where], dtype=float, order="C").T
    out = np.empty((len(support), len(x)))
    loops.gather(x, where, out)
    return out.T


def compiled_loops(entries: int) -> Any:
    """The module of compiled loops, or None where loading it would take longer than it saves."""
    if entries < COMPILED and "dpem.tables.compiled" not in sys.modules:
        return None
    from dpem.tables import compiled

    return compiled


def unit_coordinates(x: FloatArray, middle: FloatArray, half: FloatArray) -> FloatArray | None:
    """clip((x − middle)/half, ±1), NaN where not finite, by a compiled loop; None where there is none."""
    XT, d, loops = contiguous(x.T), x.shape[1], compiled_loops(x.size)
    if loops is None or XT is None or middle.shape != (d,) or half.shape != (d,):  # compiled code does not look
        return None
    out = np.empty((d, x.shape[0]))
    loops.unit(XT, middle, half, out)
    return out.T


def sum_rows(
    chunk: Chunk,
    by_rows: Callable[[Rows, FloatArray | None], FloatArray],
    by_columns: Callable[[Rows, FloatArray | None, int], FloatArray],
) -> FloatArray:
    """A sum over the rows by the loops that go with how they lie in memory."""
    X, y = chunk.X, None if chunk.y is None else np.asarray(chunk.y, dtype=float)
    if (rows := contiguous(X)) is not None:
        return by_rows(rows, y)
    if (columns := contiguous(X.T)) is not None:
        return by_columns(columns, y, X.shape[0])
    pieces = (slice(first, first + PIECE) for first in range(0, X.shape[0], PIECE))
    return np.sum([by_rows(np.ascontiguousarray(X[r]), None if y is None else y[r]) for r in pieces], axis=0)


def by_tasks(X: Rows, width: int, add: Callable[[slice, FloatArray], None]) -> FloatArray:
    """The sum that ``add`` makes of each task's rows, block by block; tasks' sums are added in order.

    Tasks are short where rows are long: then no thread waits long for the last one, which another has.
    """
    n, row_bytes = X.shape[0], max(1, X.shape[1] * X.itemsize)
    rows = min(TASK, max(4, CACHE // row_bytes // BLOCK) * BLOCK)
    out = np.zeros((max(1, -(-n // rows)), width))

    def work(task: int) -> None:
        add(slice(task * rows, min(n, (task + 1) * rows)), out[task])

    run_in_parallel(work, len(out))
    return np.asarray(out.sum(axis=0))


def contiguous(X: Rows) -> Rows | None:
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
