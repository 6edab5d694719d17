"""The simulated rows of a rehearsal, with sums by a few matrix products.

A search sends thousands of queries to a few short tables. Simulated rows need no protection against rounding or entries
that are not finite. The sums equal those of :mod:`dpem.paper.engine` up to rounding, without its compilation.
"""

from __future__ import annotations

from functools import cache, cached_property

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpem.paper.queries import CoordinateQuery, ExceedanceQuery, MomentQuery, SupportQuery
from dpem.privacy import SeededNoise
from dpem.query import Array, FloatArray, Query
from dpem.tables import ArraySource
from dpem.tables.blocks import numpy_api


class SimulatedRows(ArraySource):
    """A table stored by columns, with 0 in place of missing entries. Sums are computed in ``dtype``."""

    def __init__(self, X: FloatArray, y: FloatArray | None = None, dtype: DTypeLike = np.float64) -> None:
        self._columns: NDArray[np.floating] = X.T.astype(dtype, order="C")
        missing = np.isnan(self._columns)
        self._missing = missing.astype(dtype) if missing.any() else None
        self._columns[missing] = 0.0
        super().__init__(self._columns.T, None if y is None else y.astype(dtype))
        self._exceedances: dict[ExceedanceQuery, FloatArray] = {}
        self._last_part: tuple[bytes, _Part] = (b"", _Part(self._columns[:0], None))

    def total(self, query: Query) -> FloatArray:
        if isinstance(query, SupportQuery):
            return self._support(query)
        if isinstance(query, CoordinateQuery):
            return self._coordinate(query)
        if isinstance(query, MomentQuery):
            return np.asarray(query.block(numpy_api, self._columns[query.support].T, self._y), dtype=float)
        assert isinstance(query, ExceedanceQuery)
        if query not in self._exceedances:  # many plans send the same one
            self._exceedances[query] = self._exceedance(query)
        return self._exceedances[query]

    def _exceedance(self, query: ExceedanceQuery) -> FloatArray:
        floor, slope, start = query.line
        ramps = np.clip(floor + slope * (self._columns**2 - start), floor, 1.0)
        return np.asarray(ramps.sum(axis=1) if query.response is None else ramps @ query.response(self._y), dtype=float)

    def _coordinate(self, query: CoordinateQuery) -> FloatArray:
        """Σ clamp(a_i, ±residual)·Π_T(x_i), and clamp(c_i, −1, bracket)·β_j where an entry is missing."""
        support = np.flatnonzero(query.beta)
        a, c, _ = self._part(support).weights(query, query.beta[support].astype(self.dtype), self._y)
        clipped = np.clip(self._columns, -query.entry, query.entry)
        total = clipped @ np.clip(a, -query.residual, query.residual)
        if self._missing is not None and len(support):
            total += query.beta * (self._missing @ np.clip(c, -1.0, query.bracket))
        return np.asarray(total, dtype=float)

    def _support(self, query: SupportQuery) -> FloatArray:
        """Σ f_i·u_i with u_i = a_i·x_i − centre (c_i·β_j in place of missing entries), f_i = min(1, radius/‖u_i‖).

        So that no array of the u_i is needed, ‖u‖² = a²‖x‖² − 2a⟨x, centre⟩ + ‖centre‖² + c²⟨h, β²⟩ − 2c⟨h, β⊙centre⟩,
        where h is 1 at the missing entries of a row and x is 0 there.
        """
        part, centre = self._part(query.support), query.centre.astype(self.dtype)
        beta = query.beta[query.support].astype(self.dtype)
        a, c, missing_variance = part.weights(query, beta, self._y)
        square = a * a
        square *= part.squares
        if is_centred := bool(centre.any()):
            square += centre @ centre - 2.0 * a * (centre @ part.x)
        if part.missing is not None:
            square += c * c * missing_variance
            if is_centred:
                square -= 2.0 * c * ((beta * centre) @ part.missing)
        np.maximum(square, query.radius**2, out=square)
        factor = query.radius / np.sqrt(square, out=square)
        total = part.x @ (factor * a)
        if is_centred:
            total -= centre * factor.sum()
        if part.missing is not None:
            total += beta * (part.missing @ (factor * c))
        return np.asarray(total, dtype=float)

    def _part(self, columns: NDArray[np.intp]) -> _Part:
        """These columns. The last ones are cached, since the refining steps share a support."""
        key, (last, part) = columns.tobytes(), self._last_part
        if last != key:
            part = _Part(self._columns[columns], None if self._missing is None else self._missing[columns])
            self._last_part = key, part
        return part


class _Part:
    """Columns of a table, as rows of ``x``; ``missing`` marks missing entries by 1."""

    def __init__(self, x: NDArray[np.floating], missing: NDArray[np.floating] | None) -> None:
        self.x, self.missing = x, missing

    @cached_property
    def squares(self) -> NDArray[np.floating]:
        """‖x_i‖² of each row."""
        return np.asarray(np.einsum("ki,ki->i", self.x, self.x))

    def weights(
        self, query: CoordinateQuery | SupportQuery, beta: NDArray[np.floating], y: NDArray[np.floating] | None
    ) -> tuple[Array, Array, Array]:
        """The model's (a, c) of each row, and ‖h⊙β‖²."""
        missing_variance = None
        if query.has_missing:
            missing_variance = np.zeros(self.x.shape[1]) if self.missing is None else (beta * beta) @ self.missing
        return *query.weight(numpy_api, beta @ self.x, missing_variance, y), missing_variance


class SameNoise(SeededNoise):
    """Noise that is the same for every query of the same length, so that plans are compared under the same noise."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._draw = cache(lambda distribution, size: getattr(np.random.default_rng(seed), distribution)(size=size))

    def top_k(self, scores: FloatArray, k: int, sensitivity: float, rho: float) -> NDArray[np.intp]:
        noisy = -(scores + self._draw("gumbel", len(scores)))
        best = np.argpartition(noisy, k - 1)[:k]
        return best[np.argsort(noisy[best], kind="stable")]

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        return np.asarray(values + scale * self.normal(len(values)))

    def normal(self, size: int) -> FloatArray:
        """Standard normal numbers."""
        return np.asarray(self._draw("standard_normal", size))
