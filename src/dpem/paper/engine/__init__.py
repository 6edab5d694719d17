"""Clipped sums over all columns of wide tables, on the CPU and the GPU, for the queries of the paper's models."""

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

#: A function that computes the sum of a wide query over a chunk of rows of one kind (NumPy, CSR, array API, Triton).
#:
#: It computes ⟨β, x⟩ of each row from the columns where β is not zero, then the row's weight by the query's formula,
#: clamps the weight, clips the entries and adds their products. The query's bound rests on this clipping: contributions
#: must be finite and within the bound *whatever a row contains*. An engine may add up to :data:`~dpem.query.BLOCK` rows
#: in the rows' dtype; everything else is float64, and the sum is a NumPy array.
Engine = Callable[["WideQuery", Chunk], FloatArray]


def engine_of(X: Array) -> Engine:
    """The engine for rows of X's kind."""
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        from dpem.paper.engine import in_memory  # imports numba, which plans do not need

        return in_memory.dense_sum if isinstance(X, np.ndarray) else in_memory.sparse_sum
    from dpem.paper.engine.array_api import engine_for

    return engine_for(X).total


class Levels(NamedTuple):
    """The clip levels of a query as numbers of the rows' dtype, rounded towards 0."""

    residual: np.floating
    bracket: np.floating
    low: np.floating
    high: np.floating
    line: tuple[np.floating, ...] | None

    @classmethod
    def of(cls, query: WideQuery, dtype: np.dtype) -> Levels:
        (low, high), bracket = query.limits, query.bracket or 0.0
        a_max, c_max, minus_low, top = (float_below(level, dtype) for level in (query.residual, bracket, -low, high))
        line = None if query.line is None else tuple(map(dtype.type, query.line))
        return cls(a_max, c_max, -minus_low, top, line)


def checked_beta(query: WideQuery, d: int) -> FloatArray:
    """The query's β, after a check that it has d numbers, since compiled code does not check the length."""
    beta = np.zeros(d) if query.beta is None else query.beta
    if beta.shape != (d,):
        raise ArgumentError("beta", f"must hold one number for each of the {d} columns, got shape {beta.shape}.")
    return beta
