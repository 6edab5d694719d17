"""Where rows live and how a query is summed over them."""

from dpem.sources.array import ArraySource
from dpem.sources.base import ChunkedSource, Source
from dpem.sources.batches import BatchSource
from dpem.sources.dataset import DatasetSource
from dpem.sources.files import read_table
from dpem.sources.progress import progress

__all__ = ["ArraySource", "BatchSource", "ChunkedSource", "DatasetSource", "Source", "progress", "read_table"]
