"""Rows in a SciPy CSR matrix in memory: word counts, one-hot tables, with up to millions of columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpem._validation import ArgumentError
from dpem.query import BLOCK, Chunk, Query
from dpem.tables.base import CHUNK_ROWS, REGROUPED, StridedSource, slack

#: Rows per chunk of a query about all columns; chunks are long, since each costs a few vectors of length d.
LONG_CHUNK_ROWS = 4 * CHUNK_ROWS


class SparseSource(StridedSource):
    """A CSR matrix of float32 or float64, and a response. An entry that is not stored is 0.

    The matrix is never densified. It is copied only if a row stores columns out of order or twice: entries are then
    sorted, and those of the same column added, as SciPy does.

    >>> X = sparse.csr_array(np.array([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]]))
    >>> source = SparseSource(X)
    >>> source.n_rows, source.n_features, [s.n_rows for s in source.split(2)]
    (3, 2, [2, 1])
    """

    order_may_depend_on_values = False

    def __init__(self, X: Any, y: NDArray[np.floating] | None = None) -> None:
        self._X, self._y = _canonical(X), y
        self.n_features, self.has_response, self.dtype = int(X.shape[1]), y is not None, np.dtype(X.dtype)

    @property
    def n_rows(self) -> int:
        return self._stride.count(self._X.shape[0])

    def chunks(self) -> Iterator[Chunk]:
        return self._cut(CHUNK_ROWS)

    def chunks_for(self, query: Query) -> Iterator[Chunk]:
        return self._cut(_chunk_rows(query))

    def _cut(self, chunk_rows: int) -> Iterator[Chunk]:
        start, step = self._stride
        span = step * chunk_rows
        for first in range(start, self._X.shape[0], span):
            last = min(first + span, self._X.shape[0])
            rows = _consecutive(self._X, first, last) if step == 1 else self._X[first:last:step]
            yield Chunk(rows, None if self._y is None else self._y[first:last:step])

    def slack(self, query: Query) -> float:
        """As :func:`~dpem.tables.base.slack`, for sums that are in float64 whatever the dtype of the rows.

        *Lemma.* In units of a contribution's size, 3·2((m + 3 + m/128)·w·m + 3·w·n) with chunks of m rows and w the
        unit roundoff of float64. *Proof.* A coordinate of a chunk's sum adds at most m terms, in tasks whose number
        is at most m/BLOCK + 1 and may depend on the rows: the error is bounded for *any* order, so neighbours may be
        divided into different tasks. A screening query adds a constant of size 1 for each row and corrections of size
        at most 2 at stored entries, together at most 3 times the size 1 of a contribution; for other queries the
        factor is 1. ∎ The effect of regrouped rows is added as there.
        """
        n = self.n_rows
        if math.isinf(slack(query, n, np.dtype(float))):  # a sum that could overflow is unbounded here too
            return math.inf
        w = float(np.finfo(np.float64).eps) / 2
        m = min(n, _chunk_rows(query))
        regrouped = 0.0 if query.blocked else 2 * REGROUPED * w * m
        return 3 * 2 * ((m + 3 + 2 * (m / BLOCK + 1)) * w * m + 3 * w * n) + regrouped


def _chunk_rows(query: Query) -> int:
    return LONG_CHUNK_ROWS if query.blocked else CHUNK_ROWS


def _consecutive(X: Any, first: int, last: int) -> Any:
    """Rows first … last − 1 as a matrix that shares the entries (a slice would copy them)."""
    pointers = X.indptr[first : last + 1]
    entries = slice(pointers[0], pointers[-1])
    rows = sparse.csr_array((last - first, X.shape[1]), dtype=X.dtype)
    rows.data, rows.indices, rows.indptr = X.data[entries], X.indices[entries], pointers - pointers[0]
    return rows


def _canonical(X: Any) -> Any:
    """X if each row stores its columns once and in order, else a copy that does.

    *Lemma.* In the result no entry is stored twice, so a clipped contribution counts an entry once. *Proof.* The
    indices are checked here, in a new matrix; the flag of X, which anyone can set, is not relied on. ∎ (Each sum checks
    again.)
    """
    if not sparse.issparse(X) or X.format != "csr":
        what = f"{X.format} format" if sparse.issparse(X) else type(X).__name__
        raise ArgumentError("X", f"must be a SciPy matrix in CSR format (X.tocsr() makes one), got {what}.")
    if X.dtype not in (np.float32, np.float64):
        raise ArgumentError("X", f"must hold float32 or float64, got {X.dtype}.")
    try:
        rows = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
        rows.check_format(full_check=True)
    except (ValueError, IndexError):
        raise ArgumentError(
            "X", "must be a valid CSR matrix: a row points outside of the stored entries or columns."
        ) from None
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows
