"""Rows in a DataFrame of pandas, polars, Arrow or another library with Arrow data, converted block by block."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from dpem._validation import ArgumentError
from dpem.query import Chunk, FloatArray, Query
from dpem.tables.base import CACHE_BYTES, CHUNK_ROWS, FixedChunk, PreparedRows, StridedSource
from dpem.tables.columns import Selection, rows_of
from dpem.tables.entries import as_text

if TYPE_CHECKING:
    from dpem.tables.entries import Column

#: The type of a categorical column of pandas, whatever its categories are.
_CATEGORIES = pa.dictionary(pa.int32(), pa.string())
#: Integer types that Arrow lacks; polars infers them from one large entry.
_INT128 = (nw.Int128, nw.UInt128)


class Frame:
    """The columns of a DataFrame, under the texts of their names. No entry is looked at.

    >>> frame = Frame(pa.table({"age": [31, None]}))
    >>> frame.names, frame.n_rows, frame.schema.field("age").type
    (['age'], 2, DataType(int64))
    """

    #: Recognised by :func:`~dpem.tables.blocks.is_frame`.
    is_frame = True

    def __init__(self, X: Any) -> None:
        self.pandas = hasattr(X, "iloc")
        if not self.pandas:
            X = _eager(X)
        self._X = X
        self.names = list(map(str, X.columns))
        #: Whether the columns have names, and not the numbers that pandas gives to columns without.
        self.named = all(isinstance(name, str) for name in X.columns)
        #: The index of each column, or the values of a column that was added.
        self._columns: dict[str, int | FloatArray] = {name: j for j, name in enumerate(self.names)}

    @property
    def n_rows(self) -> int:
        return len(self._X)

    def subset(self, names: Sequence[str]) -> Frame:
        """Some of the columns, in this order."""
        part = copy.copy(self)
        part.names, part._columns = list(names), {name: self._columns[name] for name in names}
        return part

    def with_column(self, name: str, values: FloatArray) -> Frame:
        """The frame with one more column."""
        if name in self.names:
            raise ArgumentError("X", f"must have no column {name!r}.")
        more = copy.copy(self)
        more.names, more._columns = [*self.names, name], {**self._columns, name: values}
        return more

    @property
    def schema(self) -> pa.Schema:
        """Names and types, taken from zero rows. The type of a column of Python objects is null: it is not known."""
        if len(self._columns) < len(self.names):
            raise ArgumentError("X", "must have columns with different names.")
        return pa.schema([(name, _type(self.column(name, 0, 0))) for name in self.names])

    def column(self, name: str, first: int = 0, last: int | None = None) -> Column:
        """Rows first … last − 1 of a column, or all."""
        index = self._columns[name]
        if isinstance(index, np.ndarray):
            return pa.array(index[first:last])
        return column_of(self._X.iloc[first:last, index] if self.pandas else self._X[first:last, index])


class ConvertingSource(StridedSource):
    """Rows that are converted as they are read. A table of at most :data:`CACHE_BYTES` is converted once and kept in
    memory; of a larger one, each pass converts the columns that its query reads.
    """

    _selection: Selection
    #: The features to convert; None for all.
    _reads: frozenset[int] | None = None
    #: The chunks, once all of them were read, if they fit in memory.
    _cached: tuple[Chunk, ...] = ()
    #: Whether reading a chunk overwrites the one before.
    _overwrites: ClassVar[bool] = True

    def _select(self, selection: Selection) -> None:
        self._selection, self.dtype = selection, selection.dtype
        self.n_features, self.has_response = len(selection.features), selection.target is not None
        self.feature_names = list(selection.features)
        self.target_name, self.person_name = selection.target, selection.person
        self.text_levels = dict(selection.levels)

    @abstractmethod
    def _converted(self) -> Iterator[Chunk]:
        """The chunks, each valid until the next one is read."""

    def chunks(self) -> Iterator[Chunk]:
        if self._cached:
            yield from self._cached
            return
        cached = []
        for chunk in self._converted():
            if self._fits_in_memory:
                if self._overwrites:
                    chunk = Chunk(chunk.X.copy(order="K"), None if chunk.y is None else chunk.y.copy())
                chunk = FixedChunk.of(chunk, PreparedRows(CACHE_BYTES / self.n_rows - self._row_bytes))
                cached.append(chunk)
            yield chunk
        self._cached = tuple(cached)

    def chunks_in_memory(self) -> Sequence[Chunk]:
        return self._cached

    @property
    def _fits_in_memory(self) -> bool:
        return self.n_rows * self._row_bytes <= CACHE_BYTES

    @property
    def _row_bytes(self) -> int:
        return self.n_features * self.dtype.itemsize + 8

    def chunks_for(self, query: Query) -> Iterator[Chunk]:
        """Only the columns that the query ``reads``, if it states them."""
        reads = getattr(query, "reads", None)
        return (self if reads is None else self.with_features(reads)).chunks()

    def with_features(self, reads: Sequence[int]) -> Self:
        """The same rows with only these features and the response converted; other features have arbitrary values."""
        if self._fits_in_memory:
            return self
        part = copy.copy(self)
        part._reads = frozenset(map(int, reads))
        return part

    def split(self, parts: int) -> list[Self]:
        batches = super().split(parts)
        for batch in batches:
            batch._cached = ()
        return batches


class FrameSource(ConvertingSource):
    """The selected columns of a DataFrame, in float64, and a response.

    >>> from dpem.tables.columns import select
    >>> frame = Frame(pa.table({"age": [31, None, 60], "cost": [1.0, 2.0, 3.0]}))
    >>> source = FrameSource(frame, select(frame.schema, None, "cost"))
    >>> source, source.feature_names, [chunk.X[:, 0].tolist() for chunk in source.chunks()]
    (FrameSource(3 rows, 1 columns, float64), ['age'], [[31.0, nan, 60.0]])
    """

    order_may_depend_on_values = False
    _overwrites = False

    def __init__(self, frame: Frame, selection: Selection, y: FloatArray | None = None) -> None:
        self._frame, self._y = frame, y
        self._select(selection.double())
        self.has_response = y is not None or self.has_response

    @property
    def n_rows(self) -> int:
        return self._stride.count(self._frame.n_rows)

    def people(self) -> Iterator[Column]:
        """The column that identifies people, block by block."""
        for first in range(0, self._frame.n_rows, CHUNK_ROWS):
            yield self._frame.column(self._selection.person or "", first, first + CHUNK_ROWS)

    def _converted(self) -> Iterator[Chunk]:
        n, step = self._frame.n_rows, self._stride.step
        for first in range(0, n, CHUNK_ROWS * step):
            last = min(first + CHUNK_ROWS * step, n)
            rows = self._stride.within(first)
            chunk = rows_of(partial(self._frame.column, first=first, last=last), self._selection, rows, self._reads)
            if chunk.X.shape[0]:
                yield chunk if self._y is None else Chunk(chunk.X, self._y[first:last][rows])


def column_of(series: Any) -> Column:
    """A column as Arrow data, or as an array of Python objects if it has no type of Arrow's."""
    if isinstance(series, pa.Array | pa.ChunkedArray):
        return series
    if str(getattr(series, "dtype", None)).startswith(("object", "complex", "float128", "longdouble")):
        return np.asarray(series, dtype=object)
    if hasattr(series, "cat") and hasattr(series, "iloc"):  # its categories may be of any kind
        return pa.array([], _CATEGORIES) if len(series) == 0 else np.asarray(series, dtype=object)
    if hasattr(series, "sparse"):
        series = series.sparse.to_dense()
    column = series if isinstance(series, nw.Series) else nw.from_native(series, series_only=True)
    if column.dtype == nw.Object:  # polars would hand over pointers
        entries = np.empty(len(column), dtype=object)
        for i, entry in enumerate(column):
            entries[i] = entry
        return entries
    try:
        return (column.cast(nw.Float64) if column.dtype in _INT128 else column).to_arrow()
    except UnicodeEncodeError:
        texts = (as_text(entry) if isinstance(entry, str) else None for entry in np.asarray(series, dtype=object))
        return pa.array(texts, pa.large_string())
    except (pa.ArrowException, TypeError, NotImplementedError):
        return pa.array([None] * len(column), pa.binary())  # a type that is refused


def _eager(X: Any) -> nw.DataFrame[Any]:
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise ArgumentError("X", "must hold rows, got a query that has not run: collect() it first.")
    if isinstance(frame, nw.DataFrame):
        return frame
    return nw.from_native(pa.table(X), eager_only=True)


def _type(column: Column) -> pa.DataType:
    return pa.null() if isinstance(column, np.ndarray) else column.type
