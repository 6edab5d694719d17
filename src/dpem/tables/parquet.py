"""Parquet row groups as chunks of rows, in bounded memory and at nearly the speed of decoding.

Arrow decodes a row group column by column. So a range of rows is read a few columns at a time: Arrow's threads decode a
group of columns while the group before is copied into a column-major buffer, which is used again for the next range.
Memory holds that buffer and two groups of columns, whatever the size of the table. A row group of more than
:data:`LARGEST` bytes is read as several ranges and decoded once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpem.query import Chunk
from dpem.tables.base import CHUNK_ROWS, Stride
from dpem.tables.columns import Selection

#: Neighbouring row groups of a file are read together up to this many bytes.
SMALL = 64 << 20
#: The most bytes of rows in memory at once.
LARGEST = 384 << 20
#: Bytes of the decoded columns of a group; larger groups take longer to allocate and to copy.
GROUP = 8 << 20


@dataclass(frozen=True)
class RowRange:
    """``rows`` consecutive rows, from row ``skip`` of some row groups on; the first is row ``begin`` of the table.

    ``read(row_groups, names)`` decodes columns of all ``decoded`` rows of the row groups; ``constant`` holds the
    columns whose values are in the folder's name.
    """

    read: Callable[[tuple[int, ...], list[str]], pa.Table]
    row_groups: tuple[int, ...]
    skip: int
    rows: int
    decoded: int
    begin: int
    constant: dict[str, float]


def cut_rows(sizes: Sequence[int], row_bytes: int) -> list[tuple[tuple[int, ...], int, int]]:
    """Row groups of these sizes as ranges (row groups, skip, rows) of at most ``LARGEST`` bytes.

    >>> cut_rows([2, 3, 5, 50], row_bytes=10 << 20)
    [((0, 1), 0, 5), ((2,), 0, 5), ((3,), 0, 25), ((3,), 25, 25)]
    """
    cuts: list[tuple[tuple[int, ...], int, int]] = []
    for group, size in enumerate(sizes):
        last, skip, rows = cuts[-1] if cuts else ((), 0, 0)
        if last and skip == 0 and rows == sum(sizes[g] for g in last) and (rows + size) * row_bytes <= SMALL:
            cuts[-1] = ((*last, group), 0, rows + size)
            continue
        parts = max(1, -(-size * row_bytes // LARGEST))
        edges = [size * part // parts for part in range(parts + 1)]
        cuts += [((group,), first, last - first) for first, last in pairwise(edges)]
    return cuts


def read_ranges(
    ranges: Sequence[RowRange], selection: Selection, stride: Stride, needed: Sequence[str]
) -> Iterator[Chunk]:
    """The rows of all ranges as chunks. Reading a chunk overwrites the one before.

    Columns that are not ``needed`` are not read; they have arbitrary values.
    """
    tasks = [(part, names) for part in ranges for names in _column_groups(part, selection, needed)]
    buffer = _Buffer(selection, longest=max((part.rows for part in ranges), default=0) // stride.step + 1)
    with ThreadPoolExecutor(max_workers=1) as thread:
        future = thread.submit(tasks[0][0].read, tasks[0][0].row_groups, tasks[0][1]) if tasks else None
        for i, (part, names) in enumerate(tasks):
            assert future is not None
            table = future.result()
            successor = tasks[i + 1] if i + 1 < len(tasks) else None
            if successor is not None:
                future = thread.submit(successor[0].read, successor[0].row_groups, successor[1])
            buffer.prepare(part, stride)
            for name in names:
                buffer.add_column(name, table.column(name))
            del table
            if successor is None or successor[0] is not part:
                yield from buffer.chunks()


class _Buffer:
    """Memory for one range at a time, divided into column-major blocks, one for each chunk."""

    def __init__(self, selection: Selection, longest: int) -> None:
        self._selection = selection
        self._index = {name: j for j, name in enumerate(selection.features)}
        self._memory = np.zeros(longest * len(self._index), dtype=selection.dtype)
        self._range: RowRange | None = None

    def prepare(self, part: RowRange, stride: Stride) -> None:
        """Divide the memory for the chunks of a range, unless it is the present one."""
        if part is self._range:
            return
        rows, d = range(part.rows)[stride.within(part.begin)], len(self._index)
        self._range = part
        self._rows = slice(part.skip + rows.start, part.skip + part.rows, rows.step)
        self._cuts = _cuts(len(rows))
        self._blocks = [self._memory[a * d : b * d].reshape(d, b - a) for a, b in self._cuts]
        self._y = np.empty(len(rows))
        for name, value in part.constant.items():
            self._fill(name, np.full(len(rows), value))

    def add_column(self, name: str, column: pa.ChunkedArray) -> None:
        self._fill(name, self._selection.numbers(name, column)[self._rows])

    def _fill(self, name: str, values: NDArray[np.floating]) -> None:
        if name == self._selection.target:
            self._y[:] = values
            return
        for (first, last), block in zip(self._cuts, self._blocks, strict=True):
            block[self._index[name]] = values[first:last]

    def chunks(self) -> Iterator[Chunk]:
        for (first, last), block in zip(self._cuts, self._blocks, strict=True):
            yield Chunk(block.T, None if self._selection.target is None else self._y[first:last])


def _column_groups(part: RowRange, selection: Selection, needed: Sequence[str]) -> list[list[str]]:
    stored = [name for name in needed if name not in part.constant]
    width = max(1, GROUP // max(1, part.decoded * selection.dtype.itemsize))
    return [stored[j : j + width] for j in range(0, len(stored), width)] or [[]]


def _cuts(rows: int) -> list[tuple[int, int]]:
    """The first and last row of chunks of nearly equal length.

    >>> _cuts(1000), _cuts(70_000)
    ([(0, 1000)], [(0, 35000), (35000, 70000)])
    """
    parts = -(-rows // CHUNK_ROWS)
    return list(pairwise(rows * part // parts for part in range(parts + 1))) if parts else []
