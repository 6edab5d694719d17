"""Rows in a NumPy array, in memory or mapped from a file, and in arrays of other libraries on any device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, Self

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from dpem._validation import ArgumentError
from dpem.query import Array, Chunk, FloatArray, Namespace, Query
from dpem.tables.base import CACHE_BYTES, CHUNK_ROWS, ChunkedSource, FixedChunk, Partial, PreparedRows, slack
from dpem.tables.progress import advance

#: Rows per chunk of a blocked query: each chunk ends with a wait for the device, so chunks are long.
LONG_CHUNK_ROWS = 32 * CHUNK_ROWS
#: Rows per chunk of a query that is added in float64 throughout. The slack grows with their square; it is 6·10⁻⁵ of a
#: contribution at this length.
SHORT_CHUNK_ROWS = 8 * CHUNK_ROWS


class ArraySource(ChunkedSource):
    """A float32 or float64 array, never copied or converted as a whole, and a response. With ``keep`` the caller states
    that the arrays will not change while the source is used, so that prepared rows are kept.

    >>> source = ArraySource(np.ones((3, 2)))
    >>> source.n_rows, source.n_features, [s.n_rows for s in source.split(2)]
    (3, 2, [2, 1])
    """

    order_may_depend_on_values = False

    _X: Any  # of numpy here, of another library in DeviceSource
    _y: Any

    def __init__(self, X: NDArray[np.floating], y: NDArray[np.floating] | None = None, *, keep: bool = False) -> None:
        self._X, self._y = X, y
        row_bytes = CACHE_BYTES / max(1, X.shape[0])
        self._prepared = [PreparedRows(row_bytes) for _ in range(0, X.shape[0], CHUNK_ROWS)] if keep else []
        self.n_features, self.has_response, self.dtype = int(X.shape[1]), y is not None, np.dtype(X.dtype)

    @property
    def n_rows(self) -> int:
        return int(self._X.shape[0])

    def chunks(self) -> Iterator[Chunk]:
        for i, chunk in enumerate(self._cut(CHUNK_ROWS)):
            yield FixedChunk.of(chunk, self._prepared[i]) if self._prepared else chunk

    def chunks_in_memory(self) -> Sequence[Chunk]:
        return list(self.chunks())

    def _cut(self, chunk_rows: int) -> Iterator[Chunk]:
        for first in range(0, self.n_rows, chunk_rows):
            rows = slice(first, min(first + chunk_rows, self.n_rows))
            yield Chunk(self._X[rows, :], None if self._y is None else self._y[rows])

    def split(self, parts: int) -> list[Self]:
        """Disjoint batches of the rows t, t + parts, t + 2·parts, …: views, if the library has strided views."""
        batches = [copy.copy(self) for _ in range(parts)]
        for t, batch in enumerate(batches):
            batch._X, batch._y, batch._prepared = (
                self._X[t::parts, :],
                None if self._y is None else self._y[t::parts],
                [],
            )
        return batches


class DeviceSource(ArraySource):
    """A float32 or float64 array with the array API, never copied, and a response, which is moved to the rows' device.

    The slack is that of :func:`~dpem.tables.base.slack` with the longer chunks used here: engines add at most BLOCK
    rows in the rows' dtype, and block sums in float64 in any order.

    >>> import array_api_strict as xp
    >>> source = DeviceSource(xp.ones((3, 2)))
    >>> source.n_rows, source.n_features, [s.n_rows for s in source.split(2)]
    (3, 2, [2, 1])
    """

    def __init__(self, X: Any, y: Any = None) -> None:
        xp = array_api_compat.array_namespace(X)
        name = str(X.dtype).split(".")[-1]
        if X.dtype not in (xp.float32, xp.float64):
            raise ArgumentError("X", f"must hold float32 or float64, got {name}.")
        device = array_api_compat.device(X)
        if "float64" not in xp.__array_namespace_info__().dtypes(device=device, kind="real floating"):
            raise ArgumentError("X", "must be on a device that has float64: totals are added in it.")
        self._X, self._y, self._prepared = X, None if y is None else _on_device(y, xp, device), []
        self.n_features, self.has_response = int(X.shape[1]), y is not None
        self.dtype = np.dtype(np.float32 if X.dtype == xp.float32 else np.float64)

    def chunks_for(self, query: Query) -> Iterator[Chunk]:
        return self._cut(_chunk_rows(query))

    def chunks_in_memory(self) -> Sequence[Chunk]:
        return ()  # a device has threads of its own

    def total(self, query: Query) -> FloatArray:
        """The query's sum over all rows: of chunk sums from one pass if the query has ``sums``, else one by one."""
        sums_in_one_pass = getattr(query, "sums", None)
        sums = None if sums_in_one_pass is None else sums_in_one_pass(Chunk(self._X, self._y), _chunk_rows(query))
        if sums is None:
            return super().total(query)
        advance(self.n_rows)
        return reduce(add, map(Partial.of, sums)).value

    def slack(self, query: Query) -> float:
        return slack(query, self.n_rows, self.dtype, _chunk_rows(query))


def _chunk_rows(query: Query) -> int:
    return LONG_CHUNK_ROWS if query.blocked else SHORT_CHUNK_ROWS


def _on_device(y: Array, xp: Namespace, device: Array) -> Array:
    if isinstance(y, np.ndarray):
        return xp.asarray(np.array(y), device=device)
    return y if array_api_compat.device(y) == device else array_api_compat.to_device(y, device)
