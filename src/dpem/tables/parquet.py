"""Parquet row groups as chunks of rows, in bounded memory and at nearly the speed of decoding them.

Arrow decodes a row group column by column. So a stretch of rows is read a few columns at a time: Arrow's threads
decode a group of columns while the group before it is copied into a column-major buffer, which is used again for the
next stretch. What is held at once is that buffer and two groups of columns, whatever the size of the table. A row
group beyond :data:`LARGEST` bytes is taken in several stretches and decoded once for each.
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

#: Bytes of rows up to which neighbouring row groups of a file are read together.
SMALL = 64 << 20
#: Bytes of rows held at once.
LARGEST = 384 << 20
#: Bytes of decoded columns in a group: beyond that, copying them and finding memory for them takes longer.
GROUP = 8 << 20


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows: ``rows`` of them, ``skip`` rows into the row groups, row ``begin`` of the table first.

    ``read(row groups, names)`` decodes columns, of all ``decoded`` rows of the row groups; ``constant`` holds columns
    that a folder's name gives.
    """

    read: Callable[[tuple[int, ...], list[str]], pa.Table]
    row_groups: tuple[int, ...]
    skip: int
    rows: int
    decoded: int
    begin: int
    constant: dict[str, float]


def cut_rows(sizes: Sequence[int], row_bytes: int) -> list[tuple[tuple[int, ...], int, int]]:
    """Row groups of these sizes as stretches (row groups, skip, rows) of at most ``LARGEST`` bytes.

    >>> cut_rows([2, 3, 5, 50], row_bytes=10 << 20)
    [((0, 1), 0, 5), ((2,), 0, 5), ((3,), 0, 25), ((3,), 25, 25)]
    """
    cuts: list[tuple[tuple[int, ...], int, int]] = []
    for group, size in enumerate(sizes):
        before, skip, rows = cuts[-1] if cuts else ((), 0, 0)
        if before and skip == 0 and rows == sum(sizes[g] for g in before) and (rows + size) * row_bytes <= SMALL:
            cuts[-1] = ((*before, group), 0, rows + size)
            continue
        parts = max(1, -(-size * row_bytes // LARGEST))
        edges = [size * part // parts for part in range(parts + 1)]
        cuts += [((group,), first, last - first) for first, last in pairwise(edges)]
    return cuts


def read_stretches(
    plan: Sequence[Stretch], selection: Selection, stride: Stride, needed: Sequence[str]
) -> Iterator[Chunk]:
    """The rows of all stretches as chunks. A chunk is overwritten when the next one is read.

    Columns that are not ``needed`` are neither read nor touched: what is in their place means nothing.
    """
    work = [(stretch, names) for stretch in plan for names in _column_groups(stretch, selection, needed)]
    window = _Window(selection, longest=max((stretch.rows for stretch in plan), default=0) // stride.step + 1)
    with ThreadPoolExecutor(max_workers=1) as reader:
        future = reader.submit(work[0][0].read, work[0][0].row_groups, work[0][1]) if work else None
        for place, (stretch, names) in enumerate(work):
            assert future is not None
            table = future.result()
            successor = work[place + 1] if place + 1 < len(work) else None
            if successor is not None:
                future = reader.submit(successor[0].read, successor[0].row_groups, successor[1])
            window.open(stretch, stride)
            for name in names:
                window.place(name, table.column(name))
            del table
            if successor is None or successor[0] is not stretch:
                yield from window.chunks()


class _Window:
    """A buffer for one stretch at a time, cut into column-major blocks, one for each chunk."""

    def __init__(self, selection: Selection, longest: int) -> None:
        self._selection = selection
        self._place = {name: j for j, name in enumerate(selection.features)}
        self._buffer = np.zeros(longest * len(self._place), dtype=selection.dtype)
        self._stretch: Stretch | None = None

    def open(self, stretch: Stretch, stride: Stride) -> None:
        """Make room for a stretch, if it is not open already."""
        if stretch is self._stretch:
            return
        rows, d = range(stretch.rows)[stride.within(stretch.begin)], len(self._place)
        self._stretch = stretch
        self._taken = slice(stretch.skip + rows.start, stretch.skip + stretch.rows, rows.step)
        self._cuts = _cuts(len(rows))
        self._blocks = [self._buffer[a * d : b * d].reshape(d, b - a) for a, b in self._cuts]
        self._y = np.empty(len(rows))
        for name, value in stretch.constant.items():
            self._fill(name, np.full(len(rows), value))

    def place(self, name: str, column: pa.ChunkedArray) -> None:
        self._fill(name, self._selection.numbers(name, column)[self._taken])

    def _fill(self, name: str, values: NDArray[np.floating]) -> None:
        if name == self._selection.target:
            self._y[:] = values
            return
        for (first, last), block in zip(self._cuts, self._blocks, strict=True):
            block[self._place[name]] = values[first:last]

    def chunks(self) -> Iterator[Chunk]:
        for (first, last), block in zip(self._cuts, self._blocks, strict=True):
            yield Chunk(block.T, None if self._selection.target is None else self._y[first:last])


def _column_groups(stretch: Stretch, selection: Selection, needed: Sequence[str]) -> list[list[str]]:
    stored = [name for name in needed if name not in stretch.constant]
    width = max(1, GROUP // max(1, stretch.decoded * selection.dtype.itemsize))
    return [stored[j : j + width] for j in range(0, len(stored), width)] or [[]]


def _cuts(rows: int) -> list[tuple[int, int]]:
    """Chunks of nearly equal length.

    >>> _cuts(1000), _cuts(70_000)
    ([(0, 1000)], [(0, 35000), (35000, 70000)])
    """
    parts = -(-rows // CHUNK_ROWS)
    return list(pairwise(rows * part // parts for part in range(parts + 1))) if parts else []
