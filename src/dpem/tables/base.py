"""Sources: the contract between tables and the curator, and the sum of a query over chunks of rows.

*Neighbours* are ordered tables of equal length that differ at one position (or at the positions of one person). So the
position of a row must not depend on values: in a table that is sorted by a column, or stored in folders by one, a
changed row moves, and the rows between its old and its new position move too. A source states in
``order_may_depend_on_values`` whether this can happen. If it can, all batches could change with one row, so batches
are refused; totals over all rows are then the same up to rounding, which :func:`slack` allows for.
"""

from __future__ import annotations

import copy
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from dpem._threads import run_in_parallel, thread_limit
from dpem.query import BLOCK, Chunk, FloatArray, Query
from dpem.tables.entries import Levels
from dpem.tables.progress import advance

#: Rows per chunk. Together with BLOCK it determines the rounding of a sum, hence the slack.
CHUNK_ROWS = 65_536

#: With at least this many chunks in memory, each is summed by one thread.
PARALLEL_CHUNKS = 8

#: The roundings by which a contribution may depend on the other rows of its chunk: see :func:`slack`.
REGROUPED = 2**16

#: Converted or prepared rows of at most this many bytes stay in memory after the first pass.
CACHE_BYTES = 384 << 20
#: Numbers of a prepared row beside its coordinates: response, weight, length, constant, fitted value.
PREPARED_EXTRA = 5

#: Unit roundoff and largest number of the dtypes of rows.
ROUNDOFF = {np.dtype(kind): float(np.finfo(kind).eps) / 2 for kind in (np.float32, np.float64)}
LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}


class Source(Protocol):
    """Rows over which a query can be summed; nothing else can be asked of them.

    ``total`` is deterministic for a given chunking: chunk sums in float64, added in a fixed order. ``slack`` bounds
    how much rounding can add to the influence of one record on the total. Neither is private: only a curator may call
    them. ``split`` assigns rows to disjoint batches by their position alone. ``order_may_depend_on_values`` is False
    only if a row that is replaced stays at its position.
    """

    @property
    def order_may_depend_on_values(self) -> bool: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def total(self, query: Query) -> FloatArray: ...

    def slack(self, query: Query) -> float: ...

    def split(self, parts: int) -> Sequence[Source]: ...


class Partial(NamedTuple):
    """A sum and its accumulated rounding error (Neumaier). Partial sums can be added in the order of any tree.

    >>> total = Partial.of(np.array(1e16)) + Partial.of(np.array(1.0)) + Partial.of(np.array(-1e16))
    >>> float(total.value)
    1.0
    """

    total: FloatArray
    lost: FloatArray

    @classmethod
    def of(cls, part: FloatArray) -> Partial:
        return cls(part, np.zeros_like(part))

    def __add__(self, other: Partial) -> Partial:  # type: ignore[override]
        a, b = self.total, other.total
        added = np.asarray(a + b)
        lost = np.where(np.abs(a) >= np.abs(b), (a - added) + b, (b - added) + a)
        return Partial(added, np.asarray(self.lost + other.lost + lost))

    @property
    def value(self) -> FloatArray:
        return np.asarray(self.total + self.lost)


class Stride(NamedTuple):
    """Rows first, first + step, first + 2·step, … of a table.

    >>> [list(range(10))[part.within(0)] for part in Stride().split(3)]
    [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    """

    first: int = 0
    step: int = 1

    def split(self, parts: int) -> list[Stride]:
        return [Stride(self.first + t * self.step, self.step * parts) for t in range(parts)]

    def within(self, begin: int) -> slice:
        """The slice of these rows in a part of the table that begins with row ``begin``."""
        offset = self.first - begin
        return slice(offset if offset >= 0 else offset % self.step, None, self.step)

    def count(self, n_rows: int) -> int:
        return len(range(self.first, n_rows, self.step))


class PreparedRows:
    """A cache of the blocks of one chunk as queries prepare them: a fit makes some twenty passes over the same rows in
    the same coordinates. Queries with the same key ``prepared_by`` share it. It belongs to the source of one fit.
    """

    def __init__(self, row_bytes: float) -> None:
        self.row_bytes = row_bytes
        self._prepared: tuple[Hashable, list[Any]] = (None, [])

    def blocks(self, query: Any, count: int) -> list[Any] | None:
        """The prepared blocks, None for each that is not prepared yet; or None if they would take too much memory."""
        key = getattr(query, "prepared_by", None)
        if key is None or 8 * (query.schema.width + PREPARED_EXTRA) > self.row_bytes:
            return None
        prepared = self._prepared  # read once and replaced as a whole: another thread may use the same source
        if prepared[0] != key:
            prepared = self._prepared = (key, [None] * count)
        return prepared[1]


class FixedChunk(Chunk):
    """A chunk whose rows are the same on every pass."""

    prepared: PreparedRows

    @classmethod
    def of(cls, chunk: Chunk, prepared: PreparedRows) -> FixedChunk:
        result = cls(*chunk)
        result.prepared = prepared
        return result


class ChunkedSource(ABC):
    """Rows in chunks of at most ``CHUNK_ROWS`` rows, the same chunks on every pass."""

    #: Whether replacing a row may move others.
    order_may_depend_on_values: bool = True

    n_features: int
    has_response: bool
    #: float32 or float64, in which blocked queries may add.
    dtype: np.dtype
    feature_names: list[str] | None = None
    #: The names of the response and of the column that identifies people.
    target_name: str | None = None
    person_name: str | None = None
    #: Columns whose entries are read as these levels.
    text_levels: Mapping[str, Levels] = MappingProxyType({})

    @property
    @abstractmethod
    def n_rows(self) -> int: ...

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]: ...

    @abstractmethod
    def split(self, parts: int) -> Sequence[Self]: ...

    def chunks_for(self, query: Query) -> Iterator[Chunk]:
        """The chunks over which a query is summed. Their length, and the columns that are read, may depend on it."""
        return self.chunks()

    def chunks_in_memory(self) -> Sequence[Chunk]:
        """All chunks, if they are in memory at the same time; else none."""
        return ()

    def total(self, query: Query) -> FloatArray:
        """The query's sum over all rows, chunk sums added in order with compensation."""
        sums = self._chunk_sums(query)
        total = next(sums, None)
        if total is None:
            raise ValueError("a source without rows has no total.")
        return reduce(add, map(Partial.of, sums), Partial.of(total)).value

    def _chunk_sums(self, query: Query) -> Iterator[FloatArray]:
        """The query's sum over each chunk. If many chunks are in memory, each is summed by one thread, so that threads
        wait for each other once a pass and not once a chunk.
        """
        chunks = self.chunks_in_memory()
        if len(chunks) >= PARALLEL_CHUNKS:
            sums = [np.empty(0)] * len(chunks)

            def add_up(place: int) -> None:
                with thread_limit(1):
                    sums[place] = query.sum(chunks[place])

            run_in_parallel(add_up, len(chunks))
            advance(self.n_rows)
            yield from sums
            return
        for chunk in self.chunks_for(query):
            yield query.sum(chunk)
            advance(chunk.X.shape[0])

    def slack(self, query: Query) -> float:
        return slack(query, self.n_rows, self.dtype, any_order=self.order_may_depend_on_values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_rows} rows, {self.n_features} columns, {self.dtype})"


class StridedSource(ChunkedSource):
    """A source whose batches read the whole table and keep every k-th row."""

    _stride: Stride = Stride()

    def split(self, parts: int) -> list[Self]:
        """Disjoint batches: rows t, t + parts, t + 2·parts, …"""
        batches = [copy.copy(self) for _ in range(parts)]
        for batch, stride in zip(batches, self._stride.split(parts), strict=True):
            batch._stride = stride
        return batches


@np.errstate(all="ignore")
def standardised(rows: Any, mean: FloatArray, scale: FloatArray) -> Any:
    """(x − mean) / scale, without warnings of overflow, which would depend on an entry."""
    return (rows - mean) / scale


class ScaledSource(ChunkedSource):
    """The rows (x − mean) / scale, computed chunk by chunk, with unchanged responses.

    >>> from dpem.tables import ArraySource
    >>> source = ScaledSource(ArraySource(np.array([[1.0], [3.0]])), mean=np.array([2.0]), scale=np.array([0.5]))
    >>> next(source.chunks()).X.tolist()
    [[-2.0], [2.0]]
    """

    def __init__(self, source: ChunkedSource, mean: FloatArray, scale: FloatArray) -> None:
        self._source, self._mean, self._scale = source, mean, scale
        self.order_may_depend_on_values = source.order_may_depend_on_values
        self.n_features, self.has_response, self.dtype = source.n_features, source.has_response, source.dtype
        self.feature_names, self.person_name = source.feature_names, source.person_name

    def __repr__(self) -> str:
        return f"ScaledSource({self._source!r})"

    @property
    def n_rows(self) -> int:
        return self._source.n_rows

    def people(self) -> Iterator[Any]:
        yield from self._source.people()  # type: ignore[attr-defined]

    def chunks(self) -> Iterator[Chunk]:
        mean, scale = self._mean.astype(self.dtype), self._scale.astype(self.dtype)
        for chunk in self._source.chunks():
            yield Chunk(standardised(chunk.X, mean, scale), chunk.y)

    def split(self, parts: int) -> list[ScaledSource]:
        return [ScaledSource(part, self._mean, self._scale) for part in self._source.split(parts)]


def refuse_to_split(source: Source) -> None:
    """Refuse to split a source whose order of rows may depend on values, before any charge."""
    if getattr(source, "order_may_depend_on_values", True):
        raise ValueError(
            "the rows of this table cannot be split into batches: their order may depend on their values (a "
            "partitioned or sorted table, a shuffled collection, a loader without fixed_order=True), so that one row "
            "could change every batch."
        )


def slack(
    query: Query, n_rows: int, dtype: np.dtype, chunk_rows: int = CHUNK_ROWS, *, any_order: bool = False
) -> float:
    """The most that rounding can add to the change of the total when a record is replaced, in units of the size of a
    contribution.

    *Lemma.* Let u be the unit roundoff of the rows' dtype (of float64 for an unblocked query), w that of float64.
    Two tables that differ at one position differ in one block of one chunk. Adding m terms of size B in any order,
    products rounded first, has an error of at most (m+3)u·mB; adding the chunk's block sums one of at most
    (blocks+tasks)·w·(rows)B; compensated addition over the chunks, in order or by a tree, one of at most 3w·nB. Two
    neighbours: twice that. ∎ (First order in u; the constants leave room for the second order at these lengths.)

    A query in float64 may group rows by which entries are missing, and a matrix product may round a row differently in
    another group. So if one row gains or loses a missing value, the contributions of the other rows of its chunk may
    change, each by at most :data:`REGROUPED` roundings of its size (a product of that many terms): together
    REGROUPED·w·rows·B, less than 10⁻⁶·B, which is added. Blocked queries compute each row alone.

    *Corollary.* If rows may be in ``any_order``, every block may differ, and the errors of all n/m blocks and of all
    chunks count: the totals of the same rows in two orders and two chunkings, with one row replaced, differ by at most
    twice ((m+3)u + 2(rows/BLOCK + 1)w + 3w)·nB more than the exact totals. In float64 that is little; in float32 it
    would be 10⁻⁵·n contributions, so sources whose rows may move are read in float64.
    """
    w = ROUNDOFF[np.dtype(np.float64)]
    bound = query.bound
    size = min(bound.size_linf, bound.size_l2)
    bounded = not query.blocked or BLOCK * size <= LARGEST[np.dtype(dtype)] / 4
    if not bounded or not n_rows * size <= sys.float_info.max / 4:
        return math.inf  # the sum could overflow, and one row would then outweigh any noise
    u = ROUNDOFF[np.dtype(dtype)] if query.blocked else w
    rows = min(n_rows, chunk_rows)
    block = min(rows, BLOCK) if query.blocked else rows
    regrouped = 0.0 if query.blocked else 2 * REGROUPED * w
    if any_order:
        return float((2 * ((block + 3) * u + 2 * (rows / BLOCK + 1) * w + 3 * w) + regrouped) * n_rows)
    return float(2 * ((block + 3) * u * block + 2 * (rows / BLOCK + 1) * w * rows + 3 * w * n_rows) + regrouped * rows)
