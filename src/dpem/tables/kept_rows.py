"""What queries compute of rows before they use their own parameters, kept from one pass to the next.

A fit makes some twenty passes over the same rows in the same coordinates. Where a source has the same rows in memory
on every pass, each chunk keeps what its last queries prepared of it, as long as that is at most :data:`KEPT` bytes.
What is kept belongs to the source of one fit and holds nothing that the rows do not.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dpem.query import Chunk

#: Bytes of converted or prepared rows up to which they are kept in memory from the first pass on.
KEPT = 384 << 20
#: Numbers of a prepared row beside its coordinates: response, weight, length, constant.
MORE = 4


class KeptRows:
    """What was prepared of one chunk, block by block, for queries that agree in ``prepared_by``."""

    def __init__(self, row_bytes: float) -> None:
        self._row_bytes = row_bytes
        self._prepared: tuple[Hashable, list[Any]] = (None, [])

    def blocks(self, query: Any, count: int) -> list[Any] | None:
        """The prepared blocks, None where one is not prepared yet; None if they are not to be kept. Whether they are
        depends on public sizes alone.
        """
        key = getattr(query, "prepared_by", None)
        if key is None or 8 * (query.schema.width + MORE) > self._row_bytes:
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
        whole = cls(*chunk)
        whole.kept = kept
        return whole
