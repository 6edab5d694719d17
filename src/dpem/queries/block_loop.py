"""The block loop: a few columns of a block of rows in float64, whatever holds the rows, and the sum of what they add.

A query says which columns it reads and what a block of them adds (``block``), in functions of the array API, so one
formula serves numpy, PyTorch on a GPU and every other library. No model's name or formula is here.
"""

from __future__ import annotations

from typing import Any, Protocol

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpem._threads import run_in_parallel, single_blas, thread_limit
from dpem.query import Array, Chunk, FloatArray, Namespace
from dpem.tables.base import KeptChunk
from dpem.tables.blocks import columns, host, like, numpy_api

#: Numbers read at a time: in memory about what a core's cache holds (with fewer, threads wait for each other between
#: operations), elsewhere enough to keep a device busy.
PIECE, DEVICE_PIECE = 6 * 2**16, 2**25


class Narrow(Protocol):
    """What the loop needs of a query."""

    @property
    def reads(self) -> NDArray[np.intp]: ...

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        """The float64 sum over the rows of x (and y) of their clipped contributions, as a vector."""


def narrow_sum(query: Narrow, chunk: Chunk) -> FloatArray:
    """The query's sum over a chunk of rows, added in float64 throughout.

    *Lemma.* The sum is of the blocks' sums, each of which the query clips, in an order that depends on the sizes
    alone. *Proof.* Blocks are cut by position and added in their order, whichever thread was faster, and nothing here
    looks at an entry. ∎
    """
    on_host = isinstance(chunk.X, np.ndarray) or sparse.issparse(chunk.X)
    xp = numpy_api if on_host else array_api_compat.array_namespace(chunk.X)
    n = chunk.X.shape[0]
    length = max(256, (PIECE if on_host else DEVICE_PIECE) // max(1, len(query.reads)))
    if on_host and n > length:  # an even number of equal pieces: threads end together
        length = -(-n // (2 * -(-n // (2 * length))))
    if on_host:  # columns that are a multiple of 4 KiB apart would share few places of a core's cache
        length += (8 - length) % 64
    parts: list[Any] = [None] * max(1, -(-n // length))
    kept = chunk.kept.blocks(query, len(parts)) if isinstance(chunk, KeptChunk) else None

    def add(task: int) -> None:
        if kept is not None and kept[task] is not None:
            parts[task] = query.sum_prepared(xp, *kept[task])  # type: ignore[attr-defined]
            return
        rows = slice(task * length, min(n, (task + 1) * length))
        y = None if chunk.y is None else xp.astype(chunk.y[rows], xp.float64, copy=False)
        x = columns(chunk.X, query.reads, rows)
        if kept is None:
            parts[task] = query.block(xp, x, y)
            return
        kept[task] = query.prepare(xp, x, y)  # type: ignore[attr-defined]
        parts[task] = query.sum_prepared(xp, *kept[task])  # type: ignore[attr-defined]

    if on_host:
        with single_blas():
            run_in_parallel(add, len(parts))
    else:
        with thread_limit(1):  # a device has threads of its own
            run_in_parallel(add, len(parts))
    return host(sum(parts[1:], start=parts[0]))


def product(xp: Namespace, x: Array, matrix: FloatArray) -> Array:
    """Rows times a query's matrix, with columns together in memory where the rows have them so."""
    return (matrix.T @ x.T).T if isinstance(x, np.ndarray) else xp.matmul(x, like(xp, matrix, x))


def over_rows(xp: Namespace, left: Array, right: Array) -> Array:
    """Σ over the rows of left_i·right_iᵀ; left may hold one number for each row.

    In memory by ``np.dot``, which lets go of the interpreter's lock: ``matmul`` keeps it where the answer is small,
    however many rows there are, and other threads would wait.
    """
    if isinstance(right, np.ndarray):
        return np.dot(left.T, right)
    return xp.matmul(left if left.ndim == 1 else xp.matrix_transpose(left), right)


def narrow_sums(query: Narrow, chunk: Chunk, rows: int) -> FloatArray | None:
    """The query's sums over each ``rows`` rows (a power of two), of all rows at once, where they are on a GPU and a
    kernel can be made that reads them once; None elsewhere.
    """
    X: Any = chunk.X
    if not array_api_compat.is_torch_array(X) or not X.is_cuda:
        return None
    from dpem.queries.gpu import triton_sums

    if X.shape[0] < triton_sums.LEAST_ROWS or not triton_sums.has_triton(X):
        return None
    return triton_sums.sums_by_rows(query, X, chunk.y, rows)
