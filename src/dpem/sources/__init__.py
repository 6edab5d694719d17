"""Where rows live and how a query is summed over them."""

from dpem.sources.array import ArraySource
from dpem.sources.base import ChunkedSource, Source
from dpem.sources.progress import progress

__all__ = ["ArraySource", "ChunkedSource", "Source", "progress"]
