"""Rows held in memory, or in a file mapped into it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpem.query import Chunk
from dpem.tables.base import CHUNK_ROWS, KEPT, ChunkedSource, KeptChunk, KeptRows


class ArraySource(ChunkedSource):
    """A float32 or float64 array, never copied or converted whole, and a response. ``keep`` says that the arrays stay
    as they are as long as the source is used, so that it may keep what queries prepare of rows.

    >>> source = ArraySource(np.ones((3, 2)))
    >>> source.n_rows, source.n_features, [s.n_rows for s in source.split(2)]
    (3, 2, [2, 1])
    """

    order_may_depend_on_values = False

    _X: Any  # of numpy here, of another library in DeviceSource
    _y: Any

    def __init__(self, X: NDArray[np.floating], y: NDArray[np.floating] | None = None, *, keep: bool = False) -> None:
        self._X, self._y = X, y
        row_bytes = KEPT / max(1, X.shape[0])
        self._kept = [KeptRows(row_bytes) for _ in range(0, X.shape[0], CHUNK_ROWS)] if keep else []
        self.n_features, self.has_response, self.dtype = int(X.shape[1]), y is not None, np.dtype(X.dtype)

    @property
    def n_rows(self) -> int:
        return int(self._X.shape[0])

    def chunks(self) -> Iterator[Chunk]:
        for place, chunk in enumerate(self._cut(CHUNK_ROWS)):
            yield KeptChunk.of(chunk, self._kept[place]) if self._kept else chunk

    def _cut(self, chunk_rows: int) -> Iterator[Chunk]:
        for first in range(0, self.n_rows, chunk_rows):
            rows = slice(first, min(first + chunk_rows, self.n_rows))
            yield Chunk(self._X[rows, :], None if self._y is None else self._y[rows])

    def split(self, parts: int) -> list[Self]:
        """Disjoint batches: rows t, t + parts, t + 2·parts, … (a view where the library has strided views, and safe for
        sorted tables).
        """
        batches = [copy.copy(self) for _ in range(parts)]
        for t, batch in enumerate(batches):
            batch._X, batch._y, batch._kept = self._X[t::parts, :], None if self._y is None else self._y[t::parts], []
        return batches
