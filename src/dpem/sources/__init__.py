"""Where rows live and how a query is summed over them."""

from dpem.sources.array import ArraySource
from dpem.sources.base import Source

__all__ = ["ArraySource", "Source"]
