"""What an engine is, and which one goes with which rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy import sparse

from dpem.query import Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.queries.gradient import CoordinateQuery, IntArray
    from dpem.queries.screening import ExceedanceQuery


class Engine(Protocol):
    """Two loops for rows of one kind; ``chunk.X`` and ``chunk.y`` are of that kind.

    *Wide*, over all columns (``coordinate`` and ``exceedance``): project on the columns where β is not zero, ask the
    question for each row's weight, clamp it, clip the entries, accumulate. *Narrow*, over few (see
    :func:`~dpem.engines.narrow.narrow_sum`): fetch the ``columns`` of a block of rows; the question does the rest.

    An engine does the clipping that a query's bound promises, so the promise is an engine's to keep: contributions
    are finite and within the bound *whatever a row contains*. Blocked queries may be added in the rows' dtype, at most
    :data:`~dpem.query.BLOCK` rows at a time; all else is float64. Results are float64 numpy arrays on the host.
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray:
        """Σ clamp(a_i, ±residual)·Π_T(x_i), and clamp(c_i, −1, bracket)·β_j in the place of a missing entry."""

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray:
        """Σ clamp(g_i, ±1)·ramp(x_i²)."""

    def response(self, chunk: Chunk) -> FloatArray:
        """The chunk's responses as a float64 numpy array."""

    def host(self, values: Any) -> FloatArray:
        """A small array as float64 numpy."""

    def columns(self, X: Any, support: IntArray, rows: slice = ...) -> Any:
        """The named columns (of some rows) as a dense float64 array that stays where the rows are."""

    def mean_squares(self, X: Any) -> FloatArray:
        """The mean square of each row's entries, in float64; may be infinite or not a number."""

    def anomalies(self, X: Any) -> tuple[bool, bool]:
        """Whether any entry is not a number, and whether any is infinite."""

    def pieces(self, X: Any, rows: int) -> Iterator[FloatArray]:
        """The rows as dense float64 numpy arrays of at most ``rows`` rows, for sums that need no speed."""


def engine_of(X: Any) -> Engine:
    """The engine for rows of X's kind."""
    if isinstance(X, np.ndarray):
        from dpem.engines.dense import ENGINE

        return ENGINE
    if sparse.issparse(X):
        from dpem.engines.csr import ENGINE as CSR

        return CSR
    from dpem.engines.array_api import engine_for

    return engine_for(X)


def float_below(value: float, dtype: np.dtype) -> np.floating:
    """The largest number of ``dtype`` that is at most ``value``: a clip level that cannot round up past its bound."""
    rounded = dtype.type(value)
    if math.isfinite(value) and float(rounded) > value:
        rounded = np.nextafter(rounded, dtype.type(-math.inf))
    return rounded


def checked_beta(query: CoordinateQuery, d: int) -> FloatArray:
    """The question's β, one number for each column: compiled code does not look where it ends."""
    if query.beta.shape != (d,):
        raise ValueError(f"beta must hold one number for each of the {d} columns, got shape {query.beta.shape}.")
    return query.beta


def weights_of(
    query: CoordinateQuery, fitted: FloatArray, hidden: FloatArray | None, y: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """The question's (a, c) for rows in memory, one float64 number for each: again, compiled code does not look.

    They are what the model says, and not clamped yet; c has no numbers where nothing can be missing.
    """
    a, c = query.weight(numpy_api, fitted, hidden, y)
    return one_each(a, fitted), one_each(c, fitted) if query.bracket is not None else np.empty(0)


def one_each(values: Any, fitted: FloatArray) -> FloatArray:
    """A model's weights as one float64 number for each row."""
    weights = np.ascontiguousarray(values, dtype=np.float64)
    if weights.shape != fitted.shape:
        raise ValueError(f"a model's weight must return one number for each row, got shape {weights.shape}.")
    return weights
