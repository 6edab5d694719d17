"""A table as a user has it, with texts put as places among their levels: what a fit and a prediction read.

Nothing here looks at an entry but to turn it into a number. What decides a refusal is public: types and names of
columns, shapes, levels. An entry that is no declared level, or no number, becomes a hole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dpem._extras import needed_by
from dpem.fitting.bounds import _listed
from dpem.fitting.rows import is_dask, is_source, pieces_of, source_of
from dpem.privacy.budget import shown
from dpem.query import FloatArray
from dpem.tables import ArraySource, Source


class Levels(NamedTuple):
    """Levels of a categorical column: the numbers that stand for them in the rows, and how they are called."""

    values: tuple[float, ...]
    labels: tuple[str, ...]
    texts: bool


class Table(NamedTuple):
    """Rows to fit to, and what is publicly known of their columns."""

    source: Source
    names: tuple[str, ...]
    named: bool
    y_name: str | None
    levels: dict[str, Levels]


def is_frame(X: Any) -> bool:
    """A DataFrame of pandas, polars or another library that hands over Arrow data."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__")) and not is_dask(X)


def open_table(estimator: BaseEstimator, X: Any, y: Any, *, needs_y: bool, levels: Any) -> Table:
    """The table, opened but not read. The estimator learns ``n_features_in_`` and ``feature_names_in_``."""
    declared = checked_levels(levels)
    y_name = str(name) if (name := getattr(y, "name", None)) is not None and needs_y else None
    if is_frame(X):
        names, matrix, known = _frame(X, declared)
        response = _response(y, len(matrix)) if needs_y else None
        _remember(estimator, names)
        return Table(_rows(matrix, response), names, True, y_name, known)
    source = source_of(estimator, X, y, needs_y=needs_y)
    found = getattr(estimator, "feature_names_in_", None)
    names = tuple(map(str, found)) if found is not None else tuple(f"x{j}" for j in range(source.n_features))
    if is_source(X):
        y_name = getattr(X, "target_name", None)
    read_as = checked_levels(getattr(X, "text_levels", None) or None)
    unknown = [name for name in declared if name not in names]
    if unknown:
        raise ValueError(f"levels must name columns of X, but X lacks {_listed(unknown)}.")
    texts = [name for name, own in declared.items() if own.texts and own != read_as.get(name)]
    if texts:
        raise ValueError(
            f"levels of {_listed(texts)} are texts: give a DataFrame, read_table(path, levels=) with these levels, or "
            "numbers that stand for them."
        )
    return Table(source, names, found is not None, y_name, {**read_as, **declared})


def pieces(estimator: BaseEstimator, X: Any, levels: Mapping[str, Levels]) -> Iterator[NDArray[np.floating]]:
    """Dense pieces of the rows that a fitted model is applied to, in the numbers that the fit saw."""
    if is_frame(X):
        names, matrix, _ = _frame(X, dict(levels))
        fitted = getattr(estimator, "feature_names_in_", None)
        if fitted is not None and list(names) != list(fitted):
            raise ValueError("X has other columns, or in another order, than those that were fitted.")
        if matrix.shape[1] != estimator.n_features_in_:
            raise ValueError(f"X has {matrix.shape[1]} columns, but {estimator.n_features_in_} were fitted.")
        yield matrix
    else:
        read_as = checked_levels(getattr(X, "text_levels", None) or None)
        texts = [name for name, own in levels.items() if own.texts and is_source(X) and own != read_as.get(name)]
        if texts:
            raise ValueError(f"levels of {_listed(texts)} must be those of the fit: read_table(path, levels=).")
        yield from pieces_of(estimator, X, missing=True)


def checked_levels(levels: Any) -> dict[str, Levels]:
    """Levels by column: ``{"region": ["north", "south"], "smoker": [0, 1]}``."""
    if levels is None:
        return {}
    if not isinstance(levels, Mapping) or not all(isinstance(name, str) for name in levels):
        raise ValueError(f"levels must be a dict with a list of levels for each column's name, got {shown(levels)}.")
    return {name: _levels(name, own) for name, own in levels.items()}


def _levels(name: str, own: Any) -> Levels:
    if isinstance(own, Levels):
        return own
    values = [] if isinstance(own, str) or not isinstance(own, Sequence | np.ndarray) else list(own)
    if len(values) < 2 or len(set(map(str, values))) != len(values):
        raise ValueError(f"levels of {name!r} must be a list of at least two different levels.")
    if all(isinstance(value, str) for value in values):
        return Levels(tuple(map(float, range(len(values)))), tuple(values), True)
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"levels of {name!r} must be texts only or numbers only.") from None
    return Levels(numbers, tuple(f"{value:g}" for value in numbers), False)


def _frame(X: Any, declared: dict[str, Levels]) -> tuple[tuple[str, ...], FloatArray, dict[str, Levels]]:
    """The columns' names, a float64 matrix and the levels of a DataFrame, pandas' own categories included."""
    names = tuple(map(str, X.columns))
    if len(set(names)) != len(names):
        raise ValueError("X must have columns with different names.")
    unknown = [name for name in declared if name not in names]
    if unknown:
        raise ValueError(f"levels must name columns of X, but X lacks {_listed(unknown)}.")
    known = {**_categories(X, names), **declared}
    table = None if hasattr(X, "iloc") else _arrow(X)
    columns, refused = [], []
    for j, name in enumerate(names):
        column = X.iloc[:, j] if table is None else table.column(j).to_pandas()
        if name in known and known[name].texts:
            places: dict[str | None, float] = {label: float(k) for k, label in enumerate(known[name].labels)}
            columns.append(np.array([places.get(entry, math.nan) for entry in map(_text, column)]))
        elif getattr(column.dtype, "kind", "O") in "iufb":
            columns.append(column.to_numpy(dtype=float, na_value=np.nan))
        else:
            refused.append(name)
    if refused:
        raise ValueError(
            f"X must hold numbers or declared levels, and neither is in {_listed(refused)}: give levels=, or leave "
            f"{'it' if len(refused) == 1 else 'them'} out."
        )
    matrix = np.column_stack(columns) if columns else np.empty((len(X), 0))
    return names, matrix, {name: own for name, own in known.items() if name in names}


def _arrow(X: Any) -> Any:
    """The Arrow table that a DataFrame of another library than pandas hands over."""
    with needed_by("a DataFrame of this kind"):
        import pyarrow as pa
    return pa.table(X)


def _categories(X: Any, names: Sequence[str]) -> dict[str, Levels]:
    """Levels that pandas keeps with a column: public, as its type is."""
    found = {}
    for j, name in enumerate(names):
        dtype = X.iloc[:, j].dtype if hasattr(X, "iloc") else None
        categories = getattr(dtype, "categories", None)
        if categories is not None and len(categories) >= 2:
            found[name] = Levels(tuple(map(float, range(len(categories)))), tuple(map(str, categories)), True)
    return found


def _text(entry: Any) -> str | None:
    return entry if isinstance(entry, str) else None if entry is None or entry != entry else str(entry)


def coded_response(y: Any, levels: Levels) -> Any:
    """A response whose levels are texts as their places among them, NaN where an entry is none of them; any other
    response as it is.
    """
    if y is None or not levels.texts or not hasattr(y, "__len__"):
        return y
    places: dict[str | None, float] = {label: float(k) for k, label in enumerate(levels.labels)}
    codes = np.array([places.get(_text(entry), math.nan) for entry in y])
    return type(y)(codes, name=y.name) if hasattr(y, "iloc") else codes


def _response(y: Any, n: int) -> FloatArray:
    if y is None:
        raise ValueError("y must be given: this model has a response.")
    try:
        values = y.to_numpy(dtype=float, na_value=np.nan) if hasattr(y, "iloc") else np.asarray(y, dtype=float)
    except (TypeError, ValueError):
        raise ValueError("y must hold numbers.") from None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,):
        raise ValueError(f"y must be a vector with one response for each of the {n} rows, got shape {values.shape}.")
    return np.asarray(values, dtype=float)


def _rows(matrix: FloatArray, y: FloatArray | None) -> ArraySource:
    if matrix.shape[0] < 2 or matrix.shape[1] < 1:
        raise ValueError(f"X must have at least 2 rows and 1 column, got shape {matrix.shape}.")
    return ArraySource(matrix, y)


def _remember(estimator: BaseEstimator, names: Sequence[str]) -> None:
    estimator.n_features_in_ = len(names)
    estimator.feature_names_in_ = np.asarray(names, dtype=object)
