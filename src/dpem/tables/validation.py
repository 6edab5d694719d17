"""Validation of arrays by scikit-learn, with messages that neither quote an entry nor depend on one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d, validate_data

from dpem._validation import ArgumentError, raise_alone
from dpem.query import FloatArray
from dpem.tables.blocks import is_series
from dpem.tables.entries import Levels, convert


def table_and_response(
    estimator: BaseEstimator,
    X: Any,
    y: Any = None,
    *,
    needs_y: bool,
    reset: bool = True,
    accept_sparse: str | bool = "csr",
) -> tuple[NDArray[np.floating], FloatArray | None]:
    """X and y, validated by scikit-learn's public functions, but without its check that entries are finite."""
    options: dict[str, Any] = {
        "accept_sparse": accept_sparse,
        "dtype": [np.float64, np.float32],
        "ensure_all_finite": False,
        "ensure_min_samples": 2 if reset else 1,
        "reset": reset,
    }
    with hide_entries(), np.errstate(all="ignore"):
        X = numeric_array(X, "X")
        if not needs_y:
            return validate_data(estimator, X, **options), None
        if y is None:
            validate_data(estimator, X, y, **options)  # raises scikit-learn's own error
        X = validate_data(estimator, X, **options)
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite=False), warn=True)
        check_consistent_length(X, y)
    return X, y


def numeric_array(values: Any, name: str, levels: Levels | None = None) -> Any:
    """A list, or an array of Python objects or texts, as numbers, entry by entry; anything else unchanged.

    A masked entry is missing.

    >>> numeric_array([[1, "2"], [3.5, [4.0]]], "X").tolist()
    [[1.0, 2.0], [3.5, nan]]
    """
    if isinstance(values, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(values), np.nan, numeric_array(values.data, name, levels))
    is_array = sparse.issparse(values) or hasattr(values, "__array__")
    array = values if sparse.issparse(values) else np.asarray(values) if is_array else _object_array(values, name)
    kind = array.dtype.kind
    if kind in _REFUSED or (kind in "OUT" and sparse.issparse(array)):
        raise ArgumentError(name, f"must hold numbers, got {_REFUSED.get(kind, 'objects')}.")
    texts = levels is not None and levels.texts
    if kind in "OUT" or (texts and kind in "biuf"):
        entries = array.ravel().astype(object)
        if not texts and set(map(type, entries)) <= {int, float, bool}:
            with suppress(OverflowError):
                return array.astype(np.float64)
        return convert(entries, levels, np.dtype(np.float64)).reshape(array.shape)
    return array


#: Kinds of NumPy's dtypes that hold no numbers.
_REFUSED = {"S": "bytes", "m": "durations", "M": "dates", "V": "records"}


def _object_array(values: Any, name: str) -> NDArray[Any]:
    """A list, or a list of rows, as an array of Python objects. NumPy's own conversion would look into entries."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return np.asarray(values, dtype=object)
    if not len(values) or not all(map(_is_row, values)):
        return np.fromiter(values, dtype=object, count=len(values))
    with suppress(ValueError):
        return np.stack([_row(row) for row in values])
    raise ArgumentError(name, "must be an array of numbers whose rows have equally many entries.")


def _is_row(row: object) -> bool:
    return isinstance(row, list | tuple | range) or (isinstance(row, np.ndarray) and row.ndim > 0) or is_series(row)


def _row(row: Any) -> NDArray[Any]:
    if isinstance(row, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(row.astype(object), None))
    if isinstance(row, np.ndarray) and row.dtype.kind in "mM":  # NumPy converts some to whole numbers
        return np.full(row.shape, None, dtype=object)
    return row.astype(object) if hasattr(row, "astype") else np.fromiter(row, dtype=object, count=len(row))


#: Parts of messages of NumPy and scikit-learn that quote entries, and the messages that replace them.
_REPLACEMENTS = {
    "Complex data not supported": "Complex data not supported: X and y must be real.",
    "Expected 2D array": "X must be a table of rows and columns: Reshape your data with reshape(-1, 1) if it is one "
    "column, with reshape(1, -1) if it is one row.",
    "at least 1 dimension": "y must be a vector with one response for each row.",
}


@contextmanager
def hide_entries() -> Iterator[None]:
    """Replace messages of other libraries that would quote an entry."""
    try:
        yield
    except (TypeError, ValueError) as error:
        message = next((replacement for original, replacement in _REPLACEMENTS.items() if original in str(error)), None)
        if message is None:
            raise
        raise_alone(ValueError(message))
