"""Whatever holds the rows, as a source to fit to, or as dense pieces to apply a fitted model to.

Refusals come first, one sentence each, before anything is planned, charged or asked. They depend on shapes, types and
names, never on an entry: every table of numbers has an answer. NaN is a hole where a model has them; elsewhere, and
where an entry is infinite, the row's contribution is bounded like any other's, and zero if nothing can be said of it.
:func:`refuse_non_finite` is for those who want to be told, and looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dpem._extras import needed_by
from dpem._validation import ArgumentError
from dpem.fitting import validation as checks
from dpem.fitting.bounds import other_columns
from dpem.queries.validity import AnomalyQuery
from dpem.query import FloatArray
from dpem.tables import ArraySource, ChunkedSource, Source
from dpem.tables.blocks import rows_of
from dpem.tables.device import DeviceSource
from dpem.tables.entries import Levels, converted
from dpem.tables.kinds import is_dask, is_frame, is_on_device, is_series, is_source
from dpem.tables.persons import limited
from dpem.tables.progress import expect
from dpem.tables.scaled import ScaledSource, moved_and_scaled
from dpem.tables.sparse import SparseSource

_PIECE = 4096


def source_of(
    estimator: BaseEstimator,
    X: Any,
    y: Any = None,
    *,
    needs_y: bool,
    accept_sparse: str | bool = "csr",
    levels: Mapping[str, Levels] | None = None,
    spelled: Collection[str] = (),
    y_levels: Levels | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
) -> Source:
    """The rows to fit to. Arrays pass scikit-learn's validation; the others what they need of it. With ``person``, the
    column that says whose row it is, at most ``rows_per_person`` rows of each person are there.
    """
    if person is not None and not isinstance(person, str):
        raise ArgumentError("person", f"must be the name of a column or None, got {type(person).__name__}.")
    _refuse_paths(X)
    response = None if not needs_y or y is None or is_source(X) else response_of(y, y_levels)
    if is_frame(X):
        frame = frame_of(X)
        source: Source = frame_source(frame, _given(response) if needs_y else None, levels, spelled, person)
        _remember(estimator, source if frame.named else ArraySource(np.empty((0, len(frame.names)))))
    elif is_dask(X):
        with needed_by("a Dask collection"):
            from dpem.tables.dask import DaskSource

        given: dict[str, Any] = {"levels": levels, "spelled": spelled, "y_levels": y_levels, "person": person}
        source = DaskSource(X, _given(response) if needs_y else None, **given)
        _remember(estimator, source)
    elif is_source(X):
        if y is not None:
            raise ArgumentError("y", "must not be given beside a source: the response is the target of the source.")
        source = X
        _remember(estimator, source)
    elif is_on_device(X):
        source = DeviceSource(*_device_arrays(X, _given(response) if needs_y else None))
        validate_data(estimator, X, skip_check_array=True)
    else:
        X, y = checks.table(estimator, X, response, needs_y=needs_y, accept_sparse=accept_sparse)
        source = SparseSource(X, y) if sparse.issparse(X) else ArraySource(X, y)
    opened = getattr(source, "person_name", None)
    if person is None and opened is not None:
        raise ArgumentError("person", f"must be {opened!r}, as the table was opened with.")
    if person is not None:
        source = limited(source, person, rows_per_person)
        estimator.n_features_in_ = source.n_features
        if hasattr(estimator, "feature_names_in_"):
            _remember(estimator, source)
    if needs_y and not getattr(source, "has_response", True):
        raise ArgumentError("target", "must be given where the table is opened: this model has a response.")
    if source.n_rows < 2:
        raise ArgumentError("X", f"must have at least 2 rows, got {source.n_rows}.")
    return source


def frame_of(X: Any) -> Any:
    """A DataFrame of any library as named columns."""
    with needed_by("a DataFrame"):
        from dpem.tables.frame import Frame
    return X if isinstance(X, Frame) else Frame(X)


def frame_source(
    frame: Any, y: Any, levels: Mapping[str, Levels] | None, spelled: Collection[str] = (), person: str | None = None
) -> Any:
    """The rows of a DataFrame under what was declared of its columns, or a refusal by their types."""
    from dpem.tables.columns import select
    from dpem.tables.frame import FrameSource

    refused = "X must hold numbers or declared levels: "
    schema = frame.schema
    try:
        selection = select(schema, None, None, levels=levels, spelled=spelled, person=person)
    except ValueError as error:
        raise ValueError(f"{refused}{error}") from None
    n = frame.n_rows
    if y is not None and (y.ndim != 1 or len(y) != n):
        raise ArgumentError("y", f"must be a vector with one response for each of the {n} rows, got shape {y.shape}.")
    return FrameSource(frame, selection, None if y is None else np.asarray(y, dtype=float))


def response_of(y: Any, own: Levels | None = None) -> Any:
    """Responses as float64, entry by entry; of an array on a device or a Dask collection, that."""
    if is_on_device(y) or is_dask(y) or sparse.issparse(y):
        return y
    if is_frame(y):
        frame = frame_of(y)
        if len(frame.names) != 1:
            raise ArgumentError("y", f"must be one column of responses, got {len(frame.names)} columns.")
        y = frame.block(0, frame.n_rows).column(frame.names[0])
    elif not isinstance(y, np.ndarray) and is_series(y):
        if own is None and str(getattr(y, "dtype", "")).lower().startswith(("categor", "enum")):
            raise ArgumentError("y", "must hold numbers, got categories.")
        with needed_by("a Series"):
            from dpem.tables.frame import column_of
        y = column_of(y)
    if not hasattr(y, "type"):
        return checks.numeric_array(y, "y", own)
    from dpem.tables.columns import holds

    if not holds(y.type, own is not None):
        raise ArgumentError("y", "must hold numbers.")
    return converted(y, own, np.dtype(np.float64))


def refuse_non_finite(X: Any, y: Any = None, *, missing: bool = False) -> None:
    """Raise a ValueError if the table holds an infinite entry, or one that is not a number (``missing=True`` lets NaN
    pass as a hole in X).

    This looks at the rows and tells what it found, which no guarantee covers. A fit does not need it: it has an answer
    for every table of numbers. Use it while a table is being made, where the rows may be looked at anyway.

    >>> refuse_non_finite(np.array([[1.0, np.nan], [1.0, 2.0]]))
    Traceback (most recent call last):
    ...
    ValueError: X contains NaN; every entry must be a number (DPMissingRegression takes NaN as a missing covariate).
    """
    source = source_of(BaseEstimator(), X, y, needs_y=y is not None)
    query = AnomalyQuery()
    if isinstance(source, ChunkedSource):
        found = np.sum([query.sum(chunk) for chunk in source.chunks()], axis=0)
    else:
        expect(source.n_rows)
        found = source.total(query)
    checks.refuse_anomalies(*(count > 0 for count in found), missing_allowed=missing)


def pieces_of(estimator: BaseEstimator, X: Any, *, missing: bool) -> Iterator[NDArray[np.floating]]:
    """Dense numpy pieces of the rows that a fitted model is applied to: all at once if they are a dense array. Entries
    that are not finite are NaN where the model has holes (``missing``), else zero: they say nothing.
    """
    fill = np.nan if missing else 0.0
    for rows in _dense_pieces(estimator, X):
        finite = np.isfinite(rows)
        yield rows if finite.all() else np.where(finite, rows, rows.dtype.type(fill))


def _dense_pieces(estimator: BaseEstimator, X: Any) -> Iterator[NDArray[np.floating]]:
    _refuse_paths(X)
    if is_dask(X):
        raise ValueError(
            "a Dask collection is applied block by block: use X.map_blocks(model.predict), or map_partitions."
        )
    if is_on_device(X):
        X, _ = _device_arrays(X, None)
        validate_data(estimator, X, skip_check_array=True, reset=False)
        yield from rows_of(X).pieces(X, _PIECE)
    elif is_source(X):
        if X.n_features != estimator.n_features_in_:
            raise ArgumentError("X", f"has {X.n_features} columns, but {estimator.n_features_in_} were fitted.")
        names, fitted = getattr(X, "feature_names", None), getattr(estimator, "feature_names_in_", None)
        if names is not None and fitted is not None and list(names) != list(fitted):
            raise ValueError(other_columns(list(names), list(fitted)))
        for chunk in X.chunks():
            yield from rows_of(chunk.X).pieces(chunk.X, _PIECE)
    elif is_frame(X):
        yield from _of_frame(estimator, X)
    else:
        X, _ = checks.table(estimator, X, needs_y=False, reset=False)
        if sparse.issparse(X):
            yield from rows_of(X).pieces(X, _PIECE)
        else:
            yield X


def _of_frame(estimator: BaseEstimator, X: Any) -> Iterator[NDArray[np.floating]]:
    frame = frame_of(X)
    named = hasattr(X, "iloc") or type(X).__module__.startswith("polars")  # kinds that scikit-learn knows the names of
    validate_data(estimator, X if named else np.empty((1, len(frame.names))), skip_check_array=True, reset=False)
    for chunk in frame_source(frame, None, None).chunks():
        yield chunk.X


@np.errstate(all="ignore")
def scaled_rows(estimator: BaseEstimator, X: Any, mean: FloatArray, scale: FloatArray) -> Any:
    """(X − mean) / scale in the kind that X has; what is out of core stays there."""
    _refuse_paths(X)
    if is_source(X) or is_dask(X) or is_on_device(X):
        width = X.n_features if is_source(X) else X.shape[1]
        if width != len(mean):
            raise ArgumentError("X", f"has {width} columns, but the scaler was fitted to {len(mean)}.")
    if is_source(X):
        if hasattr(X, "scaled"):
            return X.scaled(mean, scale)
        if not isinstance(X, ChunkedSource) or isinstance(X, SparseSource | DeviceSource):
            raise ValueError(
                f"{type(X).__name__} cannot be scaled on the fly: scale its rows before the source is made."
            )
        return ScaledSource(X, mean, scale)
    if is_dask(X):
        kind = getattr(X, "dtype", np.dtype(float))  # a frame's columns may differ
        apply = X.map_blocks if hasattr(X, "map_blocks") else X.map_partitions
        return apply(moved_and_scaled, mean.astype(kind), scale.astype(kind), meta=X._meta)
    if is_on_device(X):
        xp = array_namespace(X)
        mean, scale = (xp.asarray(part, dtype=X.dtype, device=device(X)) for part in (mean, scale))
        return (X - mean) / scale
    if is_frame(X):
        X = np.concatenate(list(_of_frame(estimator, X)))
    else:
        X, _ = checks.table(estimator, X, needs_y=False, reset=False, accept_sparse=False)
    return np.asarray((X - mean.astype(X.dtype)) / scale.astype(X.dtype))


def _device_arrays(X: Any, y: Any) -> tuple[Any, Any]:
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


def _given(y: Any) -> Any:
    if y is None:
        raise ArgumentError("y", "must be given: this model has a response.")
    return y


def _refuse_paths(X: Any) -> None:
    if isinstance(X, str | PurePath):
        raise ArgumentError("X", "must hold rows, got a path; open it with dpem.read_table(path, columns=, target=).")


def _remember(estimator: BaseEstimator, source: Source) -> None:
    """scikit-learn's fitted facts about the columns."""
    estimator.n_features_in_ = source.n_features
    names = getattr(source, "feature_names", None)
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
