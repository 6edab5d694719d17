"""Where rows live and how a query is summed over them. What reads files is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpem._extras import load
from dpem.tables.array import ArraySource
from dpem.tables.base import ChunkedSource, Source
from dpem.tables.progress import progress

if TYPE_CHECKING:
    from dpem.tables.batches import BatchSource
    from dpem.tables.dataset import DatasetSource
    from dpem.tables.files import read_table

__all__ = ["ArraySource", "BatchSource", "ChunkedSource", "DatasetSource", "Source", "progress", "read_table"]

_LATER = {"BatchSource": "batches", "DatasetSource": "dataset", "read_table": "files"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(f"{__name__}.{_LATER[name]}", name)
