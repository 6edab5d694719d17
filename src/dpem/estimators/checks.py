"""Refusals of data: one sentence each, before anything is planned, debited or asked. No message quotes a record."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from dpem.planning import arguments
from dpem.query import FloatArray

_PIECE = 4096


def start_vector(start: Any, d: int, signal: float, *, zero_allowed: bool) -> FloatArray | None:
    """The start as a vector: None stays None, "equal" is signal/√d everywhere."""
    if start is None:
        return None
    if isinstance(start, str):
        arguments.one_of("start", start, ("equal",))
        return np.full(d, signal / math.sqrt(d))
    try:
        vector = np.array(start, dtype=float)
    except (TypeError, ValueError):
        raise ValueError('start must be a vector of numbers, "equal" or None.') from None
    if vector.shape != (d,):
        raise ValueError(f"start must be a vector of length {d}, one entry per column; got shape {vector.shape}.")
    if not np.isfinite(vector).all():
        raise ValueError("start must hold finite numbers only.")
    if not zero_allowed and not vector.any():
        raise ValueError("start must not be zero: the mixture's gradient vanishes there and no step would leave it.")
    return vector


def warn_about_delta(delta: float, n: int) -> None:
    if delta >= 1 / n:
        warnings.warn(
            f"delta={delta:g} is not below 1/n = {1 / n:.2g}: a mechanism that publishes one record outright could "
            f"meet this guarantee; choose delta well below 1/n.",
            UserWarning,
            stacklevel=4,
        )


def table(
    estimator: BaseEstimator, X: Any, y: Any = None, *, needs_y: bool, missing: bool, reset: bool = True
) -> tuple[NDArray[np.floating], FloatArray | None]:
    """X (float32 or float64, not copied if it already is) and y, through scikit-learn's public validation."""
    options: dict[str, Any] = {
        "dtype": [np.float64, np.float32],
        "ensure_all_finite": False,
        "ensure_min_samples": 2 if reset else 1,
        "reset": reset,
    }
    with _quoting_no_entry():
        if needs_y:
            X, y = validate_data(estimator, X, y, y_numeric=True, **options)
            y = np.asarray(y, dtype=float)
        else:
            X, y = validate_data(estimator, X, **options), None
    _check_finite("X", X, missing_allowed=missing)
    if y is not None:
        _check_finite("y", y[:, None], missing_allowed=False)
    return X, y


def responses(y: Any, n: int) -> FloatArray:
    """Responses that go with n rows, for methods after fit."""
    with _quoting_no_entry():
        y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite=False)
    if y.shape != (n,):
        raise ValueError(f"y must be a vector with one response for each of the {n} rows, got shape {y.shape}.")
    _check_finite("y", y[:, None], missing_allowed=False)
    return np.asarray(y)


def scaled(X: Any, d: int) -> NDArray[np.floating]:
    """A table of d columns in a scaler's units, to be taken back; names of columns are not compared."""
    with _quoting_no_entry():
        X = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False)
    if X.shape[1] != d:
        raise ValueError(f"X has {X.shape[1]} columns, but the scaler was fitted to {d}.")
    _check_finite("X", X, missing_allowed=True)
    return np.asarray(X)


def _check_finite(name: str, values: NDArray[np.floating], *, missing_allowed: bool) -> None:
    for first in range(0, values.shape[0], _PIECE):
        piece = values[first : first + _PIECE]
        if np.isinf(piece).any():
            raise ValueError(f"{name} contains infinity; every entry must be finite.")
        if not missing_allowed and np.isnan(piece).any():
            hint = " (DPMissingRegression takes NaN as a missing covariate)" if name == "X" else ""
            raise ValueError(f"{name} contains NaN; every entry must be a number{hint}.")


#: Messages of numpy and scikit-learn that quote entries, by a part of them, and what is said in their place.
_QUOTING = {
    "could not convert": "X and y must be numeric: a text entry was found.",
    "Complex data not supported": "Complex data not supported: X and y must be real.",
    "Expected 2D array": "X must be a table of rows and columns: Reshape your data with reshape(-1, 1) if it is one "
    "column, with reshape(1, -1) if it is one row.",
    "at least 1 dimension": "y must be a vector with one response for each row.",
}


@contextmanager
def _quoting_no_entry() -> Iterator[None]:
    """Replace messages that would quote an entry of the data."""
    try:
        yield
    except (TypeError, ValueError) as error:
        said = next((ours for theirs, ours in _QUOTING.items() if theirs in str(error)), None)
        if said is None:
            raise
        raise ValueError(said) from None
