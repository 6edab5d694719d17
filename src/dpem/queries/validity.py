"""Whether a table can be fitted at all: asked before anything is paid, answered by yes or no."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpem.query import Bound, Chunk, FloatArray
from dpem.tables.blocks import rows_of


@dataclass(frozen=True)
class AnomalyQuery:
    """How many chunks hold an entry that is not a number, an infinite entry, and the same of the response.

    It promises nothing about one record, so a curator would refuse to release it: a fit uses it to refuse a table
    that breaks the contract, and says no more than which of the four it was.
    """

    blocked: bool = False
    label: str = "entries that are not finite"

    @property
    def bound(self) -> Bound:
        return Bound()

    def sum(self, chunk: Chunk) -> FloatArray:
        engine = rows_of(chunk.X)
        nan, inf = engine.anomalies(chunk.X)
        y = np.empty(0) if chunk.y is None else engine.response(chunk)
        return np.array([nan, inf, np.isnan(y).any(), np.isinf(y).any()], dtype=float)
