"""Tests of the kind of a table, without importing its library, and operations on blocks of rows in any array library
(NumPy, SciPy's CSR, the array API).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array
from numpy.typing import NDArray
from scipy import sparse

from dpem._validation import ArgumentError
from dpem.query import BLOCK, Array, Chunk, FloatArray, Namespace

IntArray = NDArray[np.intp]

#: NumPy itself preserves column-major order in its results; versions without some functions are wrapped.
numpy_api: Any = np if hasattr(np, "cumulative_sum") else array_api_compat.numpy

#: Numbers in a dense piece of sparse rows, and in a piece of rows on a device: a few temporary arrays of this size must
#: fit in memory beside the table.
SPARSE_PIECE, DEVICE_PIECE = 2**22, 2**25


def is_frame(X: object) -> bool:
    """Whether it is a DataFrame of pandas, polars, Arrow or another library that exports Arrow data."""
    if isinstance(X, np.ndarray) or is_dask(X) or is_source(X):
        return False
    if getattr(type(X), "is_frame", None) is True:
        return True
    has = (hasattr(X, name) for name in ("__arrow_c_stream__", "__narwhals_dataframe__", "__dataframe__", "collect"))
    return (hasattr(X, "iloc") and not is_series(X)) or (any(has) and not is_series(X))


def is_series(X: object) -> bool:
    """Whether it is one column of such a library. The class is inspected: row labels are attributes of a Series."""
    arrow = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
    kind = type(X)
    return (hasattr(X, "iloc") or arrow) and not hasattr(kind, "columns") and not hasattr(kind, "collect_schema")


def is_source(X: object) -> bool:
    """Whether it has the members of a :class:`~dpem.tables.Source`."""
    return all(hasattr(X, name) for name in ("n_rows", "n_features", "total", "slack", "split"))


def is_dask(X: object) -> bool:
    """Whether it is a Dask array or DataFrame."""
    return "dask" in sys.modules and hasattr(X, "__dask_graph__")


def is_on_device(X: object) -> bool:
    """Whether it is an array of the array API from another library than NumPy, such as PyTorch or CuPy."""
    return not is_numpy_array(X) and not sparse.issparse(X) and is_array_api_obj(X)


def namespace_of(X: Array) -> Namespace:
    """The array-API namespace of X, or an ArgumentError."""
    try:
        return array_api_compat.array_namespace(X)
    except TypeError:
        raise ArgumentError(
            "X", f"must be a numpy array, a SciPy CSR matrix or an array with the array API, got {type(X).__name__}."
        ) from None


def columns(X: Array, support: IntArray, rows: slice = slice(None)) -> Array:
    """These columns of some rows as a dense float64 array on the rows' device; NaN in invalid rows of a CSR matrix."""
    if isinstance(X, np.ndarray):
        from dpem.tables.dense_rows import dense_columns

        return dense_columns(X, support, rows)
    if not sparse.issparse(X):
        xp = namespace_of(X)
        return xp.astype(xp.take(X[rows, :], indices(xp, support, X), axis=1), xp.float64)
    from dpem.tables import compiled

    first, last, _ = rows.indices(X.shape[0])
    out_row = np.full(X.shape[1], -1, dtype=np.intp)
    out_row[support] = np.arange(len(support))
    stored, is_valid = valid_rows(X, first, last)
    out = np.empty((len(support), last - first))
    compiled.gather_sparse(*stored, first, is_valid, out_row, out)
    return out.T


def valid_rows(X: Any, first: int, last: int) -> tuple[tuple[Any, Any, Any], NDArray[np.bool_]]:
    """The stored arrays of a CSR matrix, and whether each of the rows first … last − 1 is valid."""
    from dpem.tables import compiled

    is_valid = np.empty(last - first, dtype=np.bool_)
    compiled.check_sparse_rows(X.data, X.indices, X.indptr, first, X.shape[1], is_valid)
    return (X.data, X.indices, X.indptr), is_valid


def pieces(X: Array, rows: int) -> Iterator[FloatArray]:
    """The rows as dense float64 numpy arrays of at most ``rows`` rows, for sums that need no speed."""
    if sparse.issparse(X):
        rows = max(1, min(rows, SPARSE_PIECE // X.shape[1]))
    for first in range(0, X.shape[0], rows):
        part = X[first : min(first + rows, X.shape[0]), :]
        part = part.toarray() if sparse.issparse(part) else part
        yield (part if isinstance(part, np.ndarray) else host(part)).astype(float)


def device_slices(X: Array, width: int) -> Iterator[slice]:
    """Slices of whole blocks of rows, with about :data:`DEVICE_PIECE` numbers in ``width`` columns."""
    rows = max(1, DEVICE_PIECE // max(1, width) // BLOCK) * BLOCK
    for first in range(0, X.shape[0], rows):
        yield slice(first, min(first + rows, X.shape[0]))


def response(chunk: Chunk) -> FloatArray:
    """The chunk's responses as a float64 NumPy array, empty if there are none."""
    return np.empty(0) if chunk.y is None else host(chunk.y)


def host(values: Array) -> FloatArray:
    """An array of any library as a float64 NumPy array."""
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu().numpy()
    elif array_api_compat.is_cupy_array(values):
        values = values.get()
    elif not isinstance(values, np.ndarray) and not array_api_compat.is_jax_array(values):
        values = np.from_dlpack(values)
    return np.asarray(values, dtype=float)


def float_below(value: float, dtype: np.dtype) -> np.floating:
    """The largest number of ``dtype`` that is at most ``value``: a clip level that rounding does not increase."""
    rounded = dtype.type(value)
    if math.isfinite(value) and float(rounded) > value:
        rounded = np.nextafter(rounded, dtype.type(-math.inf))
    return rounded


def like(xp: Namespace, values: FloatArray, x: Array) -> Array:
    """Constants of a query as a float64 array on the device of x."""
    if isinstance(x, np.ndarray):
        return values
    return xp.asarray(np.ascontiguousarray(values), dtype=xp.float64, device=array_api_compat.device(x))


def indices(xp: Namespace, values: IntArray, x: Array) -> Array:
    """Indices as an array on the device of x."""
    if isinstance(x, np.ndarray):
        return values
    return xp.asarray(np.asarray(values, dtype=np.int64), device=array_api_compat.device(x))
