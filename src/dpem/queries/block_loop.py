"""The block loop: read the columns of a query in float64, block by block, and add the query's sums of the blocks.

A query states the columns that it reads and computes the sum over a block (``block``) in functions of the array API.
So one formula serves NumPy, PyTorch on a GPU and every other library.
"""

from __future__ import annotations

from typing import Any, Protocol

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpem._threads import run_in_parallel, single_blas, thread_limit
from dpem.query import Array, Chunk, FloatArray, Namespace
from dpem.tables.base import FixedChunk
from dpem.tables.blocks import columns, host, like, numpy_api

#: Numbers in a block. In memory they fill about a core's cache (threads would wait for each other after smaller
#: blocks); on a device they are enough to keep it busy.
PIECE, DEVICE_PIECE = 6 * 2**16, 2**25


class Narrow(Protocol):
    """A query that the loop can sum."""

    @property
    def reads(self) -> NDArray[np.intp]: ...

    def block(self, xp: Namespace, x: Array, y: Array) -> Array:
        """The float64 sum over the rows of x (and y) of their clipped contributions, as a vector."""


def narrow_sum(query: Narrow, chunk: Chunk) -> FloatArray:
    """The query's sum over a chunk of rows, added in float64 throughout.

    *Lemma.* The result is the sum of the blocks' sums, which consist of clipped contributions, in an order that depends
    on the sizes alone. *Proof.* Blocks are cut by position and added in that order, whichever thread was faster. No
    entry is looked at here. ∎
    """
    on_host = isinstance(chunk.X, np.ndarray) or sparse.issparse(chunk.X)
    xp = numpy_api if on_host else array_api_compat.array_namespace(chunk.X)
    n = chunk.X.shape[0]
    length = max(256, (PIECE if on_host else DEVICE_PIECE) // max(1, len(query.reads)))
    if on_host and n > length:  # an even number of equal blocks, so that threads end together
        length = -(-n // (2 * -(-n // (2 * length))))
    if on_host:  # columns at a distance of a multiple of 4 KiB would compete for the same lines of a core's cache
        length += (8 - length) % 64
    sums: list[Any] = [None] * max(1, -(-n // length))
    prepared = chunk.prepared.blocks(query, len(sums)) if isinstance(chunk, FixedChunk) else None

    def add(block: int) -> None:
        if prepared is None or prepared[block] is None:
            rows = slice(block * length, min(n, (block + 1) * length))
            y = None if chunk.y is None else xp.astype(chunk.y[rows], xp.float64, copy=False)
            x = columns(chunk.X, query.reads, rows)
            if prepared is None:
                sums[block] = query.block(xp, x, y)
                return
            prepared[block] = query.prepare(xp, x, y)  # type: ignore[attr-defined]
        sums[block] = query.sum_prepared(xp, *prepared[block])  # type: ignore[attr-defined]

    with single_blas() if on_host else thread_limit(1):  # a device has threads of its own
        run_in_parallel(add, len(sums))
    return host(sum(sums[1:], start=sums[0]))


def product(xp: Namespace, x: Array, matrix: FloatArray) -> Array:
    """Rows times a query's matrix. In memory the result is column-major, as the rows are."""
    return (matrix.T @ x.T).T if isinstance(x, np.ndarray) else xp.matmul(x, like(xp, matrix, x))


def over_rows(xp: Namespace, left: Array, right: Array) -> Array:
    """Σ left_i·right_iᵀ over the rows i; ``left`` may hold one number for each row.

    In memory ``np.dot`` is used, which releases the interpreter's lock: ``matmul`` holds it if the result is small,
    whatever the number of rows, and other threads would wait.
    """
    if isinstance(right, np.ndarray):
        return np.dot(left.T, right)
    return xp.matmul(left if left.ndim == 1 else xp.matrix_transpose(left), right)


def narrow_sums(query: Narrow, chunk: Chunk, rows: int) -> FloatArray | None:
    """The query's sum over each group of ``rows`` rows (a power of two), by a GPU kernel that reads all rows once; None
    where the rows are not on a GPU or no kernel can be made.
    """
    X: Any = chunk.X
    if not array_api_compat.is_torch_array(X) or not X.is_cuda:
        return None
    from dpem.queries.gpu import triton_sums

    if X.shape[0] < triton_sums.LEAST_ROWS or not triton_sums.has_triton(X):
        return None
    return triton_sums.sums_by_rows(query, X, chunk.y, rows)
