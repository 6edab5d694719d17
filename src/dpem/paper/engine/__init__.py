"""Clipped sums over all columns of wide tables, on the CPU and the GPU: the engine of the paper's models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from dpem._validation import ArgumentError
from dpem.query import Array, Chunk, FloatArray
from dpem.tables.blocks import float_below

if TYPE_CHECKING:
    from dpem.paper.queries import WideQuery

#: The sum of a wide query over rows of one kind; ``chunk.X`` and ``chunk.y`` are of that kind.
#:
#: Project on the columns where β is not zero, compute each row's weight by the query's formula, clamp it, clip the
#: entries, accumulate. An engine does the clipping on which a query's bound rests: contributions must be
#: finite and within the bound *whatever a row contains*. It may add at most
#: :data:`~dpem.query.BLOCK` rows in the rows' dtype; all else is float64, and so are the sums, a numpy array.
Engine = Callable[["WideQuery", Chunk], FloatArray]


def engine_of(X: Array) -> Engine:
    """The engine for rows of X's kind."""
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        from dpem.paper.engine import in_memory  # here, since plans need no compiler

        return in_memory.dense_sum if isinstance(X, np.ndarray) else in_memory.sparse_sum
    from dpem.paper.engine.array_api import engine_for

    return engine_for(X).total


class Levels(NamedTuple):
    """The clip levels of a query as numbers of the rows' dtype, none of which is beyond that of the query."""

    residual: np.floating
    bracket: np.floating
    low: np.floating
    high: np.floating
    line: tuple[np.floating, ...] | None

    @classmethod
    def of(cls, query: WideQuery, dtype: np.dtype) -> Levels:
        (low, high), top = query.limits, 0.0 if query.bracket is None else query.bracket
        residual, bracket, below, above = (float_below(level, dtype) for level in (query.residual, top, -low, high))
        return cls(residual, bracket, -below, above, None if query.line is None else tuple(map(dtype.type, query.line)))


def checked_beta(query: WideQuery, d: int) -> FloatArray:
    """The query's β, one number for each column: compiled code does not look where it ends."""
    beta = np.zeros(d) if query.beta is None else query.beta
    if beta.shape != (d,):
        raise ArgumentError("beta", f"must hold one number for each of the {d} columns, got shape {beta.shape}.")
    return beta
