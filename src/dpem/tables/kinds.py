"""What kind of table something is, decided without importing the library it comes from."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array
from scipy import sparse


def is_frame(X: Any) -> bool:
    """A DataFrame of pandas, polars, Arrow or another library that hands over Arrow data."""
    if isinstance(X, np.ndarray) or is_dask(X) or is_source(X):
        return False
    if getattr(X, "is_frame", None) is True:
        return True
    has = (hasattr(X, name) for name in ("__arrow_c_stream__", "__narwhals_dataframe__", "__dataframe__", "collect"))
    return (hasattr(X, "iloc") and hasattr(X, "columns")) or (any(has) and not is_series(X))


def is_series(X: Any) -> bool:
    """One column of such a library."""
    arrow = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
    return (hasattr(X, "iloc") or arrow) and not hasattr(X, "columns") and not hasattr(X, "collect_schema")


def is_source(X: Any) -> bool:
    """One of dpem's sources, or anything that keeps their contract."""
    return all(hasattr(X, name) for name in ("n_rows", "n_features", "total", "slack", "split"))


def is_dask(X: Any) -> bool:
    """A Dask array or DataFrame."""
    return "dask" in sys.modules and hasattr(X, "__dask_graph__")


def is_on_device(X: Any) -> bool:
    """An array of another library than numpy (PyTorch, CuPy, …) that follows the array API."""
    return not is_numpy_array(X) and not sparse.issparse(X) and is_array_api_obj(X)
