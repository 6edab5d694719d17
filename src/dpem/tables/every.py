"""Which rows of a table a batch holds."""

from __future__ import annotations

from typing import NamedTuple


class Every(NamedTuple):
    """Rows first, first + step, first + 2·step, … of a table.

    >>> [list(range(10))[part.within(0)] for part in Every().split(3)]
    [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    """

    first: int = 0
    step: int = 1

    def split(self, parts: int) -> list[Every]:
        return [Every(self.first + t * self.step, self.step * parts) for t in range(parts)]

    def within(self, begin: int) -> slice:
        """Which of the rows that begin with row ``begin`` of the table these are."""
        ahead = self.first - begin
        return slice(ahead if ahead >= 0 else ahead % self.step, None, self.step)

    def count(self, n_rows: int) -> int:
        return len(range(self.first, n_rows, self.step))
