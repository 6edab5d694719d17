"""The user's table, of any kind, opened as a source under the declarations of its columns.

Errors are raised here, before anything is planned, charged or queried. They depend on shapes, types, names and
declarations, never on an entry: every table of numbers can be fitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from numbers import Number
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dpem._extras import needed_by
from dpem._validation import ArgumentError
from dpem.tables import ArraySource, Source
from dpem.tables.array import DeviceSource
from dpem.tables.blocks import is_dask, is_frame, is_on_device, is_series, is_source
from dpem.tables.bounds import list_columns
from dpem.tables.entries import Levels, checked_levels, convert
from dpem.tables.persons import limit_rows_per_person
from dpem.tables.sparse import SparseSource
from dpem.tables.validation import numeric_array, table_and_response

if TYPE_CHECKING:
    from dpem.tables.frame import Frame, FrameSource


class Table(NamedTuple):
    """Rows to fit to, with the public facts about their columns."""

    source: Source
    names: tuple[str, ...]
    y_name: str | None
    levels: dict[str, Levels]


def open_table(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    *,
    needs_y: bool,
    levels: object,
    numeric: Collection[str] = (),
    y_levels: Levels | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
) -> Table:
    """The table, opened but not read. Sets ``n_features_in_`` and ``feature_names_in_`` of the estimator. Texts in the
    columns ``numeric`` are read as numbers; ``y_levels`` are the levels of the response; at most ``rows_per_person``
    rows of each ``person`` are kept.
    """
    declared = checked_levels(levels)
    declarations: dict[str, Any] = {"levels": declared, "numeric": numeric, "y_levels": y_levels, "person": person}
    source = source_of(estimator, X, y, needs_y=needs_y, **declarations, rows_per_person=rows_per_person)
    if is_frame(X):
        remember_columns(estimator, source)
    column_names = getattr(estimator, "feature_names_in_", getattr(source, "feature_names", None))
    names = tuple(f"x{j}" for j in range(source.n_features)) if column_names is None else tuple(map(str, column_names))
    y_name = response_name(X, y) if needs_y else None
    if unknown := [name for name in declared if name not in names]:
        raise ArgumentError("levels", f"must name columns of X, but X lacks {list_columns(unknown)}.")
    if y_name is not None and y_name in names:
        raise ArgumentError(
            "y", f"has the name of a column of X, {y_name!r}: leave the column out of X, or rename one."
        )
    applied = checked_levels(getattr(X, "text_levels", None) if is_source(X) else None)
    texts = [name for name, own in declared.items() if own.texts and own != applied.get(name)]
    if texts and not is_frame(X) and not is_dask(X):
        raise ArgumentError(
            "levels",
            f"of {list_columns(texts)} are texts, so X must be a DataFrame or read_table(path, levels=) with the same "
            "levels; in an array, use numbers as levels.",
        )
    return Table(source, names, y_name, {**applied, **declared})


def source_of(
    estimator: BaseEstimator,
    X: Any,
    y: Any = None,
    *,
    needs_y: bool,
    accept_sparse: str | bool = "csr",
    levels: Mapping[str, Levels] | None = None,
    numeric: Collection[str] = (),
    y_levels: Levels | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
) -> Source:
    """The source of the rows of X. Arrays pass scikit-learn's validation. With ``person``, the column that identifies
    people, at most ``rows_per_person`` rows of each person are kept.
    """
    if person is not None and not isinstance(person, str):
        raise ArgumentError("person", f"must be the name of a column or None, got {type(person).__name__}.")
    refuse_no_table(X)
    response = None if not needs_y or y is None or is_source(X) else response_of(y, y_levels)
    if is_frame(X):
        frame = frame_of(X)
        source: Source = frame_source(frame, _required(response) if needs_y else None, levels, numeric, person)
        remember_columns(estimator, source, named=frame.named)
    elif is_dask(X):
        with needed_by("a Dask collection"):
            from dpem.tables.dask import DaskSource

        declarations: dict[str, Any] = {"levels": levels, "numeric": numeric, "y_levels": y_levels, "person": person}
        source = DaskSource(X, _required(response) if needs_y else None, **declarations)
        remember_columns(estimator, source)
    elif is_source(X):
        if y is not None:
            raise ArgumentError("y", "must be None if X is an opened table: its response is its target.")
        source = X
        remember_columns(estimator, source)
    elif is_on_device(X):
        source = DeviceSource(*device_arrays(X, _required(response) if needs_y else None))
        validate_data(estimator, X, skip_check_array=True)
    else:
        X, y = table_and_response(estimator, X, response, needs_y=needs_y, accept_sparse=accept_sparse)
        source = SparseSource(X, y) if sparse.issparse(X) else ArraySource(X, y, keep=True)
    opened_with = getattr(source, "person_name", None)
    if person is None and opened_with is not None:
        raise ArgumentError(
            "person", f"must be {opened_with!r}, since the table was opened with person={opened_with!r}."
        )
    if person is not None:
        source = limit_rows_per_person(source, person, rows_per_person)
        estimator.n_features_in_ = source.n_features
        if hasattr(estimator, "feature_names_in_"):
            remember_columns(estimator, source)
    if needs_y and not getattr(source, "has_response", True):
        raise ArgumentError("target", "must be given when the table is opened: this model has a response.")
    if source.n_rows < 2:
        raise ArgumentError("X", f"must have at least 2 rows, got {source.n_rows}.")
    return source


def frame_of(X: Any) -> Frame:
    """A DataFrame of any library as a :class:`~dpem.tables.frame.Frame`."""
    with needed_by("a DataFrame"):
        from dpem.tables.frame import Frame
    return X if isinstance(X, Frame) else Frame(X)


def frame_source(
    frame: Frame, y: Any, levels: Mapping[str, Levels] | None, numeric: Collection[str] = (), person: str | None = None
) -> FrameSource:
    """The source of a DataFrame's rows under the declarations of its columns, or an error about their types."""
    from dpem.tables.columns import select_declared
    from dpem.tables.frame import FrameSource

    selection, n = select_declared(frame.schema, levels, numeric, person), frame.n_rows
    if y is not None and (y.ndim != 1 or len(y) != n):
        raise ArgumentError("y", f"must be a vector with one response for each of the {n} rows, got shape {y.shape}.")
    return FrameSource(frame, selection, None if y is None else np.asarray(y, dtype=float))


def response_of(y: Any, levels: Levels | None = None, name: str = "y") -> Any:
    """The response (or the argument ``name``) as float64, entry by entry; unchanged if it is on a device or in Dask."""
    if is_on_device(y) or is_dask(y) or sparse.issparse(y):
        return y
    if is_frame(y):
        frame = frame_of(y)
        if len(frame.names) != 1:
            raise ArgumentError(name, f"must be one column, got {len(frame.names)} columns.")
        y = frame.column(frame.names[0])
    elif not isinstance(y, np.ndarray) and is_series(y):
        if levels is None and str(getattr(y, "dtype", "")).lower().startswith(("categor", "enum")):
            raise ArgumentError(name, "must hold numbers, got categories.")
        with needed_by("a Series"):
            from dpem.tables.frame import column_of
        y = column_of(y)
    if not hasattr(y, "type"):
        return numeric_array(y, name, levels)
    from dpem.tables.columns import is_readable

    if not is_readable(y.type, levels is not None):
        raise ArgumentError(name, "must hold numbers.")
    return convert(y, levels, np.dtype(np.float64))


def response_name(X: object, y: object) -> str | None:
    """The name of the response: the target of a source, or the name of a Series or of a DataFrame's one column."""
    if is_source(X):
        return getattr(X, "target_name", None)
    if is_frame(y):
        names = frame_of(y).names
        return names[0] if len(names) == 1 else None
    name = getattr(y, "name", None)
    return name if isinstance(name, str) and name else None


def device_arrays(X: Any, y: Any) -> tuple[Any, Any]:
    xp = array_namespace(X)
    if X.ndim != 2:
        raise ArgumentError("X", f"must be a table of rows and columns, got {X.ndim} dimension(s).")
    if X.dtype not in (xp.float32, xp.float64):
        raise ArgumentError("X", f"must be float32 or float64 on its device, got {X.dtype}.")
    if X.shape[1] == 0:
        raise ArgumentError("X", "must have at least one column.")
    if y is not None:
        y = xp.asarray(y, dtype=xp.float64, device=device(X)) if not is_array_api_obj(y) or is_numpy_array(y) else y
        if y.shape != (X.shape[0],):
            raise ArgumentError("y", f"must be a vector with one response for each of the {X.shape[0]} rows.")
        if y.dtype not in (xp.float32, xp.float64) or device(y) != device(X):
            raise ArgumentError("y", "must be float32 or float64 and on the same device as X.")
    return X, y


def _required(y: Any) -> Any:
    if y is None:
        raise ArgumentError("y", "must be given: this model has a response.")
    return y


def refuse_no_table(X: object) -> None:
    if isinstance(X, str | PurePath):
        raise ArgumentError("X", "must hold rows, got a path; open it with dpem.read_table(path, columns=, target=).")
    if sparse.issparse(X):  # a dok_matrix is a dict
        return
    if X is None or isinstance(X, Mapping | Set | Iterator | Number):
        what = "None" if X is None else f"a {type(X).__name__}"
        raise ArgumentError("X", f"must hold rows, as an array, a DataFrame or a CSR matrix does; got {what}.")


def remember_columns(estimator: BaseEstimator, source: Source, *, named: bool = True) -> None:
    """Set scikit-learn's fitted attributes about columns."""
    estimator.n_features_in_ = source.n_features
    names = getattr(source, "feature_names", None) if named else None
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
