"""What the curator needs of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dpem.query import FloatArray, Query


class Source(Protocol):
    """Rows that can be asked for the total of a query, and nothing else.

    ``total`` is deterministic for a given chunking: chunk sums in float64, added in a fixed order. ``slack`` bounds
    what rounding can add to one record's influence on it. Neither is private: only a curator may call them.
    """

    @property
    def n_rows(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def total(self, query: Query) -> FloatArray: ...

    def slack(self, query: Query) -> float: ...

    def split(self, parts: int) -> Sequence[Source]: ...
