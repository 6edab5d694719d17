"""What the curator needs of a source, and how chunk sums become a total.

*Neighbours* are ordered tables of equal length that differ at one position (or at those of one person). So a row's
place must not depend on what rows hold: in a table that is kept sorted by a column, or cut into folders by one, a row
that changes moves, and every row in between with it. What a source knows of this it says in
``order_may_depend_on_values``. Where it may, batches that are dealt by position could all change with one row, and are
refused; totals over all rows are the same in any order but for rounding, for which :func:`slack` then has room.
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

#: Rows per chunk. With BLOCK it fixes how a sum is rounded, hence the slack.
CHUNK_ROWS = 65_536

#: Chunks in memory from which on each is summed by a thread of its own.
MANY = 8

#: Roundings by which a contribution may depend on the other rows of its chunk: see :func:`slack`.
REGROUPED = 2**16

#: Bytes of converted or prepared rows up to which they are kept in memory from the first pass on.
KEPT = 384 << 20
#: Numbers of a prepared row beside its coordinates: response, weight, length, constant, fitted value.
MORE = 5

#: Unit roundoff and largest number of what rows may be held in.
ROUNDOFF = {np.dtype(kind): float(np.finfo(kind).eps) / 2 for kind in (np.float32, np.float64)}
LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}


class Source(Protocol):
    """Rows that give the total of a query, and nothing else.

    ``total`` is deterministic for a given chunking: chunk sums in float64, added in a fixed order. ``slack`` bounds
    what rounding can add to one record's influence on it. Neither is private: only a curator may call them. ``split``
    deals rows into disjoint batches by their position alone. ``order_may_depend_on_values`` is False only where a row
    that is replaced stays where it was.
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
    """A sum and what rounding took from it (Neumaier). Partial sums can be added in any tree.

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
        """Which of the rows that begin with row ``begin`` of the table these are."""
        ahead = self.first - begin
        return slice(ahead if ahead >= 0 else ahead % self.step, None, self.step)

    def count(self, n_rows: int) -> int:
        return len(range(self.first, n_rows, self.step))


class KeptRows:
    """What queries that agree in ``prepared_by`` compute of one chunk before they use their own parameters, block by
    block, kept from one pass to the next: a fit makes some twenty passes over the same rows in the same coordinates.

    It belongs to the source of one fit and holds nothing that the rows do not.
    """

    def __init__(self, row_bytes: float) -> None:
        self.row_bytes = row_bytes
        self._prepared: tuple[Hashable, list[Any]] = (None, [])

    def blocks(self, query: Any, count: int) -> list[Any] | None:
        """The prepared blocks (None where not yet), or None if public sizes say that none is kept."""
        key = getattr(query, "prepared_by", None)
        if key is None or 8 * (query.schema.width + MORE) > self.row_bytes:
            return None
        prepared = self._prepared  # read and replaced at once: another thread may use the same source
        if prepared[0] != key:
            prepared = self._prepared = (key, [None] * count)
        return prepared[1]


class KeptChunk(Chunk):
    """Rows that are the same on every pass."""

    kept: KeptRows

    @classmethod
    def of(cls, chunk: Chunk, kept: KeptRows) -> KeptChunk:
        result = cls(*chunk)
        result.kept = kept
        return result


class ChunkedSource(ABC):
    """Rows that come as chunks of at most ``CHUNK_ROWS`` rows, the same chunks on every pass."""

    #: Whether a row that is replaced may move the others. A source that knows better says False.
    order_may_depend_on_values: bool = True

    n_features: int
    has_response: bool
    #: float32 or float64: in what blocked queries may be added.
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
        """The chunks over which a query is summed; they may differ in their length and in columns that it reads."""
        return self.chunks()

    def chunks_in_memory(self) -> Sequence[Chunk]:
        """All chunks, where the next one does not overwrite the last; none elsewhere."""
        return ()

    def total(self, query: Query) -> FloatArray:
        """The query's sum over all rows, chunk sums added in order with compensation."""
        sums = self._chunk_sums(query)
        total = next(sums, None)
        if total is None:
            raise ValueError("a source without rows has no total.")
        return reduce(add, map(Partial.of, sums), Partial.of(total)).value

    def _chunk_sums(self, query: Query) -> Iterator[FloatArray]:
        """The query's sum over each chunk. Each of many chunks in memory is summed by one thread: threads then wait for
        each other once a pass, not once a chunk.
        """
        chunks = self.chunks_in_memory()
        if len(chunks) >= MANY:
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
        return slack(query, self.n_rows, self.dtype, moved=self.order_may_depend_on_values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_rows} rows, {self.n_features} columns, {self.dtype})"


class StridedSource(ChunkedSource):
    """A source whose batches read the whole table and keep every so many rows."""

    _stride: Stride = Stride()

    def split(self, parts: int) -> list[Self]:
        """Disjoint batches: rows t, t + parts, t + 2·parts, …"""
        batches = [copy.copy(self) for _ in range(parts)]
        for batch, stride in zip(batches, self._stride.split(parts), strict=True):
            batch._stride = stride
        return batches


@np.errstate(all="ignore")
def standardised(rows: Any, mean: FloatArray, scale: FloatArray) -> Any:
    """(x − mean) / scale. An overflow would depend on an entry, so it is not reported."""
    return (rows - mean) / scale


class ScaledSource(ChunkedSource):
    """(x − mean) / scale of each row, chunk by chunk, with the responses as they are.

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
    """Refuse to split a source whose rows may move, before any charge."""
    if getattr(source, "order_may_depend_on_values", True):
        raise ValueError(
            "the rows cannot be split into batches here: their order may depend on what they hold (a partitioned or "
            "sorted table, a shuffled collection, a loader that does not say fixed_order=True), so that one row could "
            "change every batch."
        )


def slack(query: Query, n_rows: int, dtype: np.dtype, chunk_rows: int = CHUNK_ROWS, *, moved: bool = False) -> float:
    """How much rounding can add to a replaced record's change of the total, in units of the contribution's size.

    *Lemma.* Let u be the unit roundoff of the rows' dtype (of float64 for an unblocked query), w that of float64.
    Two tables that differ at one position differ in one block of one chunk. Adding m terms of size B in any order,
    products rounded first, errs by at most (m+3)u·mB; adding the chunk's block sums errs by at most
    (blocks+tasks)·w·(rows)B; compensated addition over the chunks, in order or by a tree, errs by at most 3w·nB. Two
    neighbours: twice that. ∎ (First order in u; the constants leave room for the second order at these lengths.)

    A query in float64 may compute rows in groups that depend on which entries are missing, and a matrix product may
    round a row differently in another group. So where one row gains or loses a missing value, the contributions of the
    others in its chunk may change too, each by at most :data:`REGROUPED` roundings of its size (a product of so many
    terms): REGROUPED·w·rows·B together, less than 10⁻⁶·B, which is added. Queries of blocks compute each row alone.

    *Corollary.* If rows may be ``moved``, every block may differ, and the errors of all n/m blocks and of all chunks
    count: twice ((m+3)u + 2(rows/BLOCK + 1)w + 3w)·nB bounds the difference of two totals of the same rows in any order
    and any cut, one of them replaced, beyond what exact totals differ by. In float64 that is little; in float32 it
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
    if moved:
        return float((2 * ((block + 3) * u + 2 * (rows / BLOCK + 1) * w + 3 * w) + regrouped) * n_rows)
    return float(2 * ((block + 3) * u * block + 2 * (rows / BLOCK + 1) * w * rows + 3 * w * n_rows) + regrouped * rows)
