"""Sums and columns of rows in a NumPy array, by compiled loops for large chunks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from dpem._threads import run_in_parallel
from dpem.query import BLOCK, Chunk, FloatArray

Rows = NDArray[np.floating]
IntArray = NDArray[np.intp]

#: Rows per task; each task has its own float64 sum, and the sums are added in order.
TASK = 16 * BLOCK
#: Rows copied at a time if neither rows nor columns are contiguous.
PIECE = 2 * TASK
#: Bytes of rows that a task reads: the size of a core's second-level cache.
CACHE = 2**20
#: Compiled loops are loaded for chunks of at least this many entries. Loading takes as long as NumPy takes for 10⁸.
LEAST_COMPILED = 2**19


def dense_columns(X: Rows, support: IntArray, rows: slice = slice(None)) -> FloatArray:
    """These columns of some rows, column-major: sums over a row's few numbers are then sums of a few long columns."""
    x = contiguous(X[rows])
    if x is None:
        if X.dtype == float and X.strides[0] == X.itemsize and np.array_equal(support, np.arange(X.shape[1])):
            return np.asarray(X[rows], dtype=float)  # not copied: no query writes into rows
        return np.asarray(X.T[support, rows], dtype=float, order="C").T
    columns, loops = np.asarray(support, dtype=np.intp), compiled_loops(X.shape[0] * len(support))
    if columns.size and not (columns.min() >= 0 and columns.max() < X.shape[1]):  # compiled code checks no index
        raise IndexError(f"a query reads columns from {columns.min()} to {columns.max()} of a table of {X.shape[1]}.")
    if loops is None:
        return np.asarray(x.T[columns], dtype=float, order="C").T
    out = np.empty((len(support), len(x)))
    loops.gather(x, columns, out)
    return out.T


def compiled_loops(entries: int) -> ModuleType | None:
    """The module of compiled loops, or None if loading it would take longer than it saves."""
    if entries < LEAST_COMPILED and "dpem.tables.compiled" not in sys.modules:
        return None
    from dpem.tables import compiled

    return compiled


def unit_coordinates(x: FloatArray, middle: FloatArray, half: FloatArray) -> FloatArray | None:
    """clip((x − middle)/half, ±1), NaN where not finite, by a compiled loop; None if that is not possible."""
    XT, d, loops = contiguous(x.T), x.shape[1], compiled_loops(x.size)
    if loops is None or XT is None or middle.shape != (d,) or half.shape != (d,):  # compiled code checks no shape
        return None
    out = np.empty((d, x.shape[0]))
    loops.unit(XT, middle, half, out)
    return out.T


def sum_rows(
    chunk: Chunk,
    by_rows: Callable[[Rows, FloatArray | None], FloatArray],
    by_columns: Callable[[Rows, FloatArray | None, int], FloatArray],
) -> FloatArray:
    """A sum over the rows, by a loop for contiguous rows or one for contiguous columns."""
    X, y = chunk.X, None if chunk.y is None else np.asarray(chunk.y, dtype=float)
    if (rows := contiguous(X)) is not None:
        return by_rows(rows, y)
    if (columns := contiguous(X.T)) is not None:
        return by_columns(columns, y, X.shape[0])
    pieces = (slice(first, first + PIECE) for first in range(0, X.shape[0], PIECE))
    return np.sum([by_rows(np.ascontiguousarray(X[r]), None if y is None else y[r]) for r in pieces], axis=0)


def by_tasks(X: Rows, width: int, add: Callable[[slice, FloatArray], None]) -> FloatArray:
    """The sum over tasks of what ``add`` adds for each task's rows, in order.

    Tasks have fewer rows if rows are long, so that no thread waits long for the last task.
    """
    n, row_bytes = X.shape[0], max(1, X.shape[1] * X.itemsize)
    rows = min(TASK, max(4, CACHE // row_bytes // BLOCK) * BLOCK)
    out = np.zeros((max(1, -(-n // rows)), width))

    def work(task: int) -> None:
        add(slice(task * rows, min(n, (task + 1) * rows)), out[task])

    run_in_parallel(work, len(out))
    return np.asarray(out.sum(axis=0))


def contiguous(X: Rows) -> Rows | None:
    """X as a contiguous array whose rows may be longer than X's, or None if the entries of a row are not adjacent.

    Compiled code is fast for contiguous arrays. Rows with gaps between them (every third row of a table, the columns of
    a slice) are the first parts of longer rows, whose other entries are never read.
    """
    if X.flags.c_contiguous:
        return X
    stride, size = X.strides[0], X.itemsize
    if X.strides[1] != size or stride % size or stride < X.shape[1] * size:
        return None
    return np.lib.stride_tricks.as_strided(X, (X.shape[0], stride // size), (stride, size), writeable=False)
