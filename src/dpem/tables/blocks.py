"""A block of rows, whatever array holds it: the few operations that queries and tables need of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import array_api_compat
import array_api_compat.numpy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpem._validation import ArgumentError
from dpem.query import Array, Chunk, FloatArray, Namespace

#: numpy keeps columns together in what it computes from columns that are together; older ones lack some functions.
numpy_api: Any = np if hasattr(np, "cumulative_sum") else array_api_compat.numpy


class BlockRows(Protocol):
    """What can be done with rows of one kind (dense, CSR, an array-API library); ``chunk.X`` is of that kind."""

    def response(self, chunk: Chunk) -> FloatArray:
        """The chunk's responses as a float64 numpy array."""

    def host(self, values: Any) -> FloatArray:
        """A small array as float64 numpy."""

    def columns(self, X: Any, support: NDArray[np.intp], rows: slice = ...) -> Any:
        """The named columns (of some rows) as a dense float64 array that stays where the rows are."""

    def mean_squares(self, X: Any) -> FloatArray:
        """The mean square of each row's entries, in float64; may be infinite or not a number."""

    def pieces(self, X: Any, rows: int) -> Iterator[FloatArray]:
        """The rows as dense float64 numpy arrays of at most ``rows`` rows, for sums that need no speed."""


def rows_of(X: Any) -> BlockRows:
    """The operations for rows of X's kind."""
    if isinstance(X, np.ndarray):
        from dpem.tables.dense_rows import ROWS

        return ROWS
    if sparse.issparse(X):
        from dpem.tables.csr_rows import ROWS as CSR

        return CSR
    from dpem.tables.array_rows import ArrayRows

    return ArrayRows(namespace_of(X))


def namespace_of(X: Any) -> Any:
    """The array-API namespace of X, or a refusal."""
    try:
        return array_api_compat.array_namespace(X)
    except TypeError:
        raise ArgumentError(
            "X", f"must be a numpy array, a SciPy CSR matrix or an array with the array API, got {type(X).__name__}."
        ) from None


def float_below(value: float, dtype: np.dtype) -> np.floating:
    """The largest number of ``dtype`` that is at most ``value``: a clip level that cannot round up past its bound."""
    rounded = dtype.type(value)
    if math.isfinite(value) and float(rounded) > value:
        rounded = np.nextafter(rounded, dtype.type(-math.inf))
    return rounded


def like(xp: Namespace, values: FloatArray, x: Array) -> Array:
    """Constants of a query as a float64 array beside the rows."""
    if isinstance(x, np.ndarray):
        return values
    return xp.asarray(np.ascontiguousarray(values), dtype=xp.float64, device=array_api_compat.device(x))
