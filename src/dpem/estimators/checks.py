"""Refusals: one sentence each, before anything is planned, debited or asked. No message quotes a record."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from dpem.query import FloatArray

_PIECE = 4096


def privacy_parameters(epsilon: Any, delta: Any) -> tuple[float, float]:
    """ε and δ as floats, or a refusal."""
    if epsilon is None or delta is None:
        raise ValueError("epsilon and delta must both be given: a privacy guarantee has no default.")
    if not _is_number(epsilon) or math.isnan(epsilon) or epsilon <= 0:
        raise ValueError(f"epsilon must be a positive number (inf for the non-private reference), got {epsilon!r}.")
    if not _is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}.")
    return float(epsilon), float(delta)


def positive(name: str, value: Any) -> float:
    if not _is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}.")
    return float(value)


def optional_positive(name: str, value: Any) -> float | None:
    return None if value is None else positive(name, value)


def optional_count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive whole number or None, got {value!r}.")
    return int(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
    return str(value)


def sparsity_within(value: int | None, d: int) -> int | None:
    if value is not None and value > d:
        raise ValueError(f"sparsity must be between 1 and the number of columns ({d}), got {value}.")
    return value


def start_vector(start: Any, d: int, signal: float, *, zero_allowed: bool) -> FloatArray | None:
    """The start as a vector: None stays None, "equal" is signal/√d everywhere."""
    if start is None:
        return None
    if isinstance(start, str):
        one_of("start", start, ("equal",))
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
    try:
        if needs_y:
            X, y = validate_data(estimator, X, y, y_numeric=True, **options)
        else:
            X, y = validate_data(estimator, X, **options), None
    except ValueError as error:
        if "could not convert" in str(error):  # scikit-learn would quote the entry
            raise ValueError("X and y must be numeric: a text entry was found.") from None
        raise
    _check_finite("X", X, missing_allowed=missing)
    if y is not None:
        y = np.asarray(y, dtype=float)
        _check_finite("y", y[:, None], missing_allowed=False)
    return X, y


def responses(y: Any, n: int) -> FloatArray:
    """Responses that go with n rows, for methods after fit."""
    y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite=False)
    if y.shape != (n,):
        raise ValueError(f"y must be a vector with one response for each of the {n} rows, got shape {y.shape}.")
    _check_finite("y", y[:, None], missing_allowed=False)
    return np.asarray(y)


def _check_finite(name: str, values: NDArray[np.floating], *, missing_allowed: bool) -> None:
    for first in range(0, values.shape[0], _PIECE):
        piece = values[first : first + _PIECE]
        if np.isinf(piece).any():
            raise ValueError(f"{name} contains infinity; every entry must be finite.")
        if not missing_allowed and np.isnan(piece).any():
            hint = " (DPMissingRegression takes NaN as a missing covariate)" if name == "X" else ""
            raise ValueError(f"{name} contains NaN; every entry must be a number{hint}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
