"""Sources of rows, over which queries are summed. Readers of files are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpem._extras import on_first_use
from dpem.tables.array import ArraySource
from dpem.tables.base import ChunkedSource, Source
from dpem.tables.progress import progress

if TYPE_CHECKING:
    from dpem.tables.dataset import DatasetSource
    from dpem.tables.files import read_table

__all__ = ["ArraySource", "ChunkedSource", "DatasetSource", "Source", "progress", "read_table"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "dpem.tables.dataset": ("DatasetSource",),
        "dpem.tables.files": ("read_table",),
    },
)
