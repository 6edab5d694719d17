"""Refusals of data: one sentence each, before anything is planned, charged or asked. No message quotes a record, and no
refusal of a fit depends on one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d, validate_data

from dpem import _validation as arguments
from dpem._validation import Argument, ArgumentError, is_number, shown
from dpem.fitting.model import Effect
from dpem.privacy import Budget
from dpem.query import FloatArray
from dpem.tables.entries import Levels, converted

if TYPE_CHECKING:
    from dpem.privacy import Ledger


def all_at_once(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A fit that changes the estimator's fitted attributes all at once, or, where it is refused or fails, not at all.

    It runs on a stand-in with the same arguments and nothing fitted, whose attributes are taken over at the end.
    """

    @wraps(fit)
    def whole(self: Any, *rows: Any, **named: Any) -> Any:
        new = object.__new__(type(self))
        vars(new).update({name: value for name, value in vars(self).items() if not _is_fitted(name)})
        fit(new, *rows, **named)
        self.__dict__ = vars(new)
        return self

    return whole


def effect_of(value: Any, known: Effect | None) -> float | None:
    """The assumed strength of effects, within the range of the model's predictions; None for the usual."""
    if value is None:
        return None
    if known is None:
        raise ArgumentError("effect", "must be None: what this model's plan supposes has no strength to choose.")
    low, high = known.others[0], known.others[-1]
    if not is_number(value) or not low <= value <= high:
        raise ArgumentError("effect", f"must be a number from {low:g} to {high:g} ({known.words}), got {shown(value)}.")
    return float(value)


def _is_fitted(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


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
        raise ArgumentError("start", 'must be a vector of numbers, "equal" or None.') from None
    if vector.shape != (d,):
        raise ArgumentError("start", f"must be a vector of length {d}, one entry per column; got shape {vector.shape}.")
    if not np.isfinite(vector).all():
        raise ArgumentError("start", "must hold finite numbers only.")
    if not zero_allowed and not vector.any():
        raise ArgumentError(
            "start", "must not be zero: the mixture's gradient vanishes there and no step would leave it."
        )
    return vector


def budget_of(budget: Any, random_state: Any) -> Budget | Ledger | None:
    """What a fit is charged to. Seeded noise is never charged: a book would show it as a private fit."""
    if budget is not None and not isinstance(budget, Budget):
        from dpem.privacy import Ledger  # who has one has loaded what it needs

        if not isinstance(budget, Ledger):
            raise ArgumentError("budget", f"must be a dpem.Budget, a dpem.Ledger or None, got {type(budget).__name__}.")
    if budget is not None and random_state is not None:
        raise ArgumentError(
            "budget", "and ", Argument("random_state"), " must not both be given: seeded noise is not private."
        )
    return budget


def warn_about_delta(delta: float, n: int) -> None:
    for remark in remarks_on(1.0, delta, n):
        warnings.warn(remark, UserWarning, stacklevel=5)


def remarks_on(epsilon: float, delta: float, n: int) -> tuple[str, ...]:
    """What should be said about ε and δ before anything is paid."""
    said = []
    if delta >= 1 / n:
        said.append(
            f"delta={delta:g} is not below 1/n = {1 / n:.2g}: a mechanism that publishes one record outright could "
            "meet this guarantee; choose delta well below 1/n."
        )
    if 10 < epsilon < math.inf:
        factor = math.exp(min(epsilon, 700.0))
        said.append(f"epsilon={epsilon:g} is above 10: odds may change by a factor of {factor:.1e}.")
    return tuple(said)


def table(
    estimator: BaseEstimator,
    X: Any,
    y: Any = None,
    *,
    needs_y: bool,
    reset: bool = True,
    accept_sparse: str | bool = "csr",
) -> tuple[NDArray[np.floating], FloatArray | None]:
    """X (float32 or float64, dense or CSR, not copied if it already is) and y, through scikit-learn's public
    validation, but for its look at what is finite.
    """
    options: dict[str, Any] = {
        "accept_sparse": accept_sparse,
        "dtype": [np.float64, np.float32],
        "ensure_all_finite": False,
        "ensure_min_samples": 2 if reset else 1,
        "reset": reset,
    }
    with _quoting_no_entry(), np.errstate(all="ignore"):
        X = numeric_array(X, "X")
        if not needs_y:
            return validate_data(estimator, X, **options), None
        if y is None:
            validate_data(estimator, X, y, **options)  # refuses, in the words that scikit-learn's users know
        X = validate_data(estimator, X, **options)
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite=False), warn=True)
        check_consistent_length(X, y)
    return X, y


def numeric_array(values: Any, name: str, own: Levels | None = None) -> Any:
    """An array of Python objects or texts as numbers, entry by entry; anything else as it is."""
    if sparse.issparse(values) or (hasattr(values, "__array__") and not isinstance(values, np.ndarray)):
        return values
    array = np.asarray(values)
    if array.dtype.kind in "OU" or (own is not None and own.texts and array.dtype.kind in "biuf"):
        found = converted(array.ravel().astype(object), own, np.dtype(np.float64))
        return found.reshape(array.shape)
    if array.dtype.kind in "SmMV":
        raise ArgumentError(name, f"must hold numbers, got {array.dtype}.")
    return array


def beside(pieces: Iterable[NDArray[np.floating]], y: Any) -> Iterator[tuple[NDArray[np.floating], FloatArray]]:
    """Pieces of rows, each with its responses, for methods after fit."""
    with _quoting_no_entry():
        y = np.asarray(check_array(numeric_array(y, "y"), ensure_2d=False, dtype=np.float64, ensure_all_finite=False))
    refuse_anomalies(False, False, bool(np.isnan(y).any()), bool(np.isinf(y).any()))
    mismatch = f"y must be a vector with one response for each row, got shape {y.shape}."
    if y.ndim != 1:
        raise ValueError(mismatch)
    first = 0
    for rows in pieces:
        if first + len(rows) > len(y):
            raise ValueError(mismatch)
        yield rows, y[first : first + len(rows)]
        first += len(rows)
    if first != len(y):
        raise ValueError(mismatch)


def scaled(X: Any, d: int) -> NDArray[np.floating]:
    """A table of d columns in a scaler's units, to be taken back; names of columns are not compared."""
    with _quoting_no_entry():
        X = check_array(numeric_array(X, "X"), dtype=[np.float64, np.float32], ensure_all_finite=False)
    if X.shape[1] != d:
        raise ArgumentError("X", f"has {X.shape[1]} columns, but the scaler was fitted to {d}.")
    return np.asarray(X)


def refuse_anomalies(
    nan: bool, inf: bool, y_nan: bool = False, y_inf: bool = False, *, missing_allowed: bool = False
) -> None:
    """One sentence about entries that are not finite."""
    if inf or y_inf:
        raise ValueError(f"{'X' if inf else 'y'} contains infinity; every entry must be finite.")
    if nan and not missing_allowed:
        raise ValueError(
            "X contains NaN; every entry must be a number (DPMissingRegression takes NaN as a missing covariate)."
        )
    if y_nan:
        raise ValueError("y contains NaN; every entry must be a number.")


#: Messages of numpy and scikit-learn that quote entries, by a part of them, and what is said in their place.
_QUOTING = {
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
