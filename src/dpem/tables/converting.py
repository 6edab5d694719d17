"""Rows whose entries become numbers as they are read: what sources of DataFrames and of files share."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from dpem.query import Chunk, Query
from dpem.tables.base import KEPT, KeptChunk, KeptRows, StridedSource
from dpem.tables.columns import Selection


class ConvertingSource(StridedSource):
    """Rows that are converted as they are read. What takes at most :data:`KEPT` bytes is converted once and kept;
    of a larger table each pass converts the columns that its query reads.
    """

    #: What is read of each column; which features are converted (None for all), and the chunks that are kept.
    _selection: Selection
    _reads: frozenset[int] | None = None
    _kept: tuple[Chunk, ...] = ()
    #: Whether a chunk is overwritten when the next one is read.
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
        if self._kept:
            yield from self._kept
            return
        kept = []
        for chunk in self._converted():
            if self._keeps:
                if self._overwrites:
                    chunk = Chunk(chunk.X.copy(order="K"), None if chunk.y is None else chunk.y.copy())
                chunk = KeptChunk.of(chunk, KeptRows(KEPT / self.n_rows - self._row_bytes))
                kept.append(chunk)
            yield chunk
        self._kept = tuple(kept)

    @property
    def _keeps(self) -> bool:
        return self.n_rows * self._row_bytes <= KEPT

    @property
    def _row_bytes(self) -> int:
        return self.n_features * self.dtype.itemsize + 8

    def chunks_for(self, query: Query) -> Iterator[Chunk]:
        """A query may name the only columns that it ``reads``."""
        reads = getattr(query, "reads", None)
        return (self if reads is None else self.reading(reads)).chunks()

    def reading(self, reads: Sequence[int]) -> Self:
        """The same rows, of which only some columns, and the response, mean something."""
        if self._keeps:
            return self
        part = copy.copy(self)
        part._reads = frozenset(map(int, reads))
        return part

    def split(self, parts: int) -> list[Self]:
        batches = super().split(parts)
        for batch in batches:
            batch._kept = ()
        return batches
