"""Rows of another source, centred and scaled as they pass: nothing is written, nothing is held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpem.query import Chunk, FloatArray
from dpem.tables.base import ChunkedSource


@np.errstate(all="ignore")
def moved_and_scaled(rows: Any, mean: FloatArray, scale: FloatArray) -> Any:
    """(x − mean) / scale. Whether it overflows depends on an entry, so nothing is said of it."""
    return (rows - mean) / scale


class ScaledSource(ChunkedSource):
    """(x − mean) / scale of each row, chunk by chunk, with the responses as they are.

    >>> from dpem.tables import ArraySource
    >>> source = ScaledSource(ArraySource(np.array([[1.0], [3.0]])), mean=np.array([2.0]), scale=np.array([0.5]))
    >>> next(source.chunks()).X.tolist()
    [[-2.0], [2.0]]
    """

    def __init__(self, source: ChunkedSource, mean: FloatArray, scale: FloatArray) -> None:
        self._source, self._mean, self._scale = source, mean, scale
        self.order_may_depend_on_values = source.order_may_depend_on_values
        self.n_features, self.has_response, self.dtype = source.n_features, source.has_response, source.dtype
        self.feature_names, self.person_name = source.feature_names, source.person_name

    def __repr__(self) -> str:
        return f"ScaledSource({self._source!r})"

    @property
    def n_rows(self) -> int:
        return self._source.n_rows

    def people(self) -> Iterator[Any]:
        yield from self._source.people()  # type: ignore[attr-defined]

    def chunks(self) -> Iterator[Chunk]:
        mean, scale = self._mean.astype(self.dtype), self._scale.astype(self.dtype)
        for chunk in self._source.chunks():
            yield Chunk(moved_and_scaled(chunk.X, mean, scale), chunk.y)

    def split(self, parts: int) -> list[ScaledSource]:
        return [ScaledSource(part, self._mean, self._scale) for part in self._source.split(parts)]
