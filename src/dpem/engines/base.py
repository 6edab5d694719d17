"""What an engine is, and which one goes with which rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy import sparse

from dpem.query import Chunk, FloatArray

if TYPE_CHECKING:
    from dpem.questions.gradient import CoordinateQuery, IntArray, SupportQuery
    from dpem.questions.screening import ExceedanceQuery


class Engine(Protocol):
    """The sums that built-in queries need, for rows of one kind. ``chunk.X`` and ``chunk.y`` are of that kind.

    An engine does the clipping that a query's bound promises, so the promise is an engine's to keep: contributions
    are finite and within the bound *whatever a row contains*. Blocked queries may be added in the rows' dtype, at most
    :data:`~dpem.query.BLOCK` rows at a time; all else is float64. Results are float64 numpy arrays on the host.
    """

    def coordinate(self, query: CoordinateQuery, chunk: Chunk) -> FloatArray: ...

    def support(self, query: SupportQuery, chunk: Chunk) -> FloatArray: ...

    def exceedance(self, query: ExceedanceQuery, chunk: Chunk) -> FloatArray: ...

    def response(self, chunk: Chunk) -> FloatArray:
        """The chunk's responses as a float64 numpy array."""

    def host(self, values: Any) -> FloatArray:
        """A small array as float64 numpy."""

    def columns(self, X: Any, support: IntArray) -> Any:
        """The named columns as a dense float64 array that stays where the rows are."""

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
