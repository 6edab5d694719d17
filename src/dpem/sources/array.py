"""Rows held in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpem.query import BLOCK, Chunk, FloatArray, Query

#: Rows per chunk. With BLOCK it fixes how a sum is rounded, hence the slack.
CHUNK_ROWS = 65_536


class ArraySource:
    """A float32 or float64 array, never copied or converted whole, and a response.

    >>> source = ArraySource(np.ones((3, 2)))
    >>> source.n_rows, source.n_features, [s.n_rows for s in source.split(2)]
    (3, 2, [2, 1])
    """

    def __init__(self, X: NDArray[np.floating], y: NDArray[np.floating] | None = None) -> None:
        self._X, self._y = X, y

    def __repr__(self) -> str:
        return f"ArraySource({self.n_rows} rows, {self.n_features} columns, {self._X.dtype})"

    @property
    def n_rows(self) -> int:
        return int(self._X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self._X.shape[1])

    def chunks(self) -> Iterator[Chunk]:
        for first in range(0, self.n_rows, CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            yield Chunk(self._X[rows], None if self._y is None else self._y[rows])

    def total(self, query: Query) -> FloatArray:
        """The query's sum over all rows, chunk sums added in order with compensation (Neumaier)."""
        total = lost = np.zeros(())
        for chunk in self.chunks():
            part = query.sum(chunk)
            added = total + part
            lost = lost + np.where(np.abs(total) >= np.abs(part), (total - added) + part, (part - added) + total)
            total = added
        return np.asarray(total + lost)

    def slack(self, query: Query) -> float:
        """How much rounding can add to a replaced record's change of the total, in units of the contribution's size.

        *Lemma.* Let u be the unit roundoff of the rows' dtype (of float64 for an unblocked query), w that of float64.
        Two neighbours differ in one block of one chunk. Adding m terms of size B in any order, products rounded
        first, errs by at most (m+3)u·mB; adding the chunk's block sums errs by at most (blocks+tasks)·w·(rows)B;
        compensated addition over the chunks errs by at most 3w·nB. Two neighbours: twice that. ∎ (First order in u;
        the constants leave room for the second order at these lengths.)
        """
        w = np.finfo(np.float64).eps / 2
        u = np.finfo(self._X.dtype).eps / 2 if query.blocked else w
        rows = min(self.n_rows, CHUNK_ROWS)
        block = min(rows, BLOCK) if query.blocked else rows
        return float(2 * ((block + 3) * u * block + 2 * (rows / BLOCK + 1) * w * rows + 3 * w * self.n_rows))

    def split(self, parts: int) -> list[ArraySource]:
        """Disjoint batches: rows t, t + parts, t + 2·parts, … (a view, and safe for sorted tables)."""
        return [ArraySource(self._X[t::parts], None if self._y is None else self._y[t::parts]) for t in range(parts)]
