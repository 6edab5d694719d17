"""Clipped sums over all columns of wide tables, on the CPU and the GPU: the engine of the paper's models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import sparse

from dpem._validation import ArgumentError
from dpem.query import Array, Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.paper.queries import CoordinateQuery, ExceedanceQuery


class Engine(Protocol):
    """Sums over all columns for rows of one kind; ``chunk.X`` and ``chunk.y`` are of that kind.

    Project on the columns where β is not zero, compute each row's weight by the query's formula, clamp it, clip the
    entries, accumulate. An engine does the clipping on which a query's bound rests, so it must keep that
    contributions are finite and within the bound *whatever a row contains*. Blocked queries may be added in the
    rows' dtype, at most :data:`~dpem.query.BLOCK` rows at a time; all else is float64. Results are float64 numpy arrays
    on the host.
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        """Σ clamp(a_i, ±residual)·Π_T(x_i), and clamp(c_i, −1, bracket)·β_j in the place of a missing entry."""

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        """Σ clamp(g_i, ±1)·ramp(x_i²)."""


def engine_of(X: Array) -> Engine:
    """The engine for rows of X's kind."""
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        from dpem.paper.engine import in_memory  # here, since plans need no compiler

        return in_memory.DENSE if isinstance(X, np.ndarray) else in_memory.CSR
    from dpem.paper.engine.array_api import engine_for

    return engine_for(X)


def checked_beta(query: CoordinateQuery, d: int) -> FloatArray:
    """The query's β, one number for each column: compiled code does not look where it ends."""
    if query.beta.shape != (d,):
        raise ArgumentError("beta", f"must hold one number for each of the {d} columns, got shape {query.beta.shape}.")
    return query.beta
