"""New rows for a fitted estimator, of any kind of table, in dense pieces or scaled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from dpem._validation import ArgumentError
from dpem.query import FloatArray
from dpem.tables import ChunkedSource
from dpem.tables.array import DeviceSource
from dpem.tables.base import ScaledSource, standardised
from dpem.tables.blocks import is_dask, is_frame, is_on_device, is_source
from dpem.tables.blocks import pieces as dense_pieces
from dpem.tables.bounds import column_differences, list_columns
from dpem.tables.entries import Levels, checked_levels
from dpem.tables.inputs import device_arrays, frame_of, frame_source, refuse_no_table
from dpem.tables.sparse import SparseSource
from dpem.tables.validation import hide_entries, numeric_array, table_and_response

#: Rows of a dense piece.
PIECE = 4096


def pieces(estimator: BaseEstimator, X: Any, levels: Mapping[str, Levels]) -> Iterator[NDArray[np.floating]]:
    """The rows in dense pieces, converted to numbers as in the fit."""
    refuse_no_table(X)
    if is_dask(X):
        raise ValueError(
            "X must not be a Dask collection here: apply the model to each block with X.map_blocks(model.predict), or "
            "map_partitions."
        )
    if is_frame(X):
        frame, unused = frame_of(X), (getattr(estimator, "person", None), getattr(estimator, "weights", None))
        frame = frame.subset([name for name in frame.names if name not in unused])
        _refuse_other_columns(estimator, len(frame.names), frame.names)
        if frame.n_rows == 0:
            raise ArgumentError("X", "must have at least one row, got none.")
        for chunk in frame_source(frame, None, levels, numeric=frame.names).chunks():
            yield chunk.X
    elif is_source(X):
        applied = checked_levels(getattr(X, "text_levels", None) or None)
        texts = [name for name, own in levels.items() if own.texts and own != applied.get(name)]
        if texts:
            raise ArgumentError(
                "levels", f"of {list_columns(texts)} must be those of the fit: use read_table(path, levels=)."
            )
        _refuse_other_columns(estimator, X.n_features, getattr(X, "feature_names", None))
        for chunk in X.chunks():
            yield from dense_pieces(chunk.X, PIECE)
    elif is_on_device(X):
        X, _ = device_arrays(X, None)
        validate_data(estimator, X, skip_check_array=True, reset=False)
        yield from dense_pieces(X, PIECE)
    else:
        X, _ = table_and_response(estimator, X, needs_y=False, reset=False)
        yield from dense_pieces(X, PIECE) if sparse.issparse(X) else [X]


def pieces_of(estimator: BaseEstimator, X: Any, *, missing: bool) -> Iterator[NDArray[np.floating]]:
    """The rows in dense pieces (one if they are a dense array), for models without levels. Entries that are not finite
    become NaN if the model allows missing values (``missing``), else 0.
    """
    for rows in pieces(estimator, X, {}):
        finite = np.isfinite(rows)
        yield rows if finite.all() else np.where(finite, rows, rows.dtype.type(np.nan if missing else 0.0))


def _refuse_other_columns(estimator: BaseEstimator, width: int, names: Sequence[str] | None) -> None:
    fitted = getattr(estimator, "feature_names_in_", None)
    if names is not None and fitted is not None and list(names) != list(fitted):
        raise ValueError(column_differences(list(names), list(fitted)))
    if width != estimator.n_features_in_:
        raise ArgumentError("X", f"has {width} columns, but {estimator.n_features_in_} were fitted.")


@np.errstate(all="ignore")
def scaled_rows(estimator: BaseEstimator, X: Any, mean: FloatArray, scale: FloatArray) -> Any:
    """(X − mean) / scale as the same kind of table; rows out of core stay there."""
    refuse_no_table(X)
    if is_source(X) or is_dask(X) or is_on_device(X):
        width = X.n_features if is_source(X) else X.shape[1]
        if width != len(mean):
            raise ArgumentError("X", f"has {width} columns, but the scaler was fitted to {len(mean)}.")
    if is_source(X):
        if hasattr(X, "scaled"):
            return X.scaled(mean, scale)
        if not isinstance(X, ChunkedSource) or isinstance(X, SparseSource | DeviceSource):
            raise ValueError(
                f"X must not be a {type(X).__name__}, which cannot be scaled as it is read: scale its array instead."
            )
        return ScaledSource(X, mean, scale)
    if is_dask(X):
        kind = getattr(X, "dtype", np.dtype(float))  # a frame's columns may differ
        apply = X.map_blocks if hasattr(X, "map_blocks") else X.map_partitions
        return apply(standardised, mean.astype(kind), scale.astype(kind), meta=X._meta)
    if is_on_device(X):
        xp = array_namespace(X)
        mean, scale = (xp.asarray(part, dtype=X.dtype, device=device(X)) for part in (mean, scale))
        return (X - mean) / scale
    if is_frame(X):
        X = np.concatenate(list(pieces(estimator, X, {})))
    else:
        X, _ = table_and_response(estimator, X, needs_y=False, reset=False, accept_sparse=False)
    return np.asarray((X - mean.astype(X.dtype)) / scale.astype(X.dtype))


def with_responses(pieces: Iterable[NDArray[np.floating]], y: Any) -> Iterator[tuple[NDArray[np.floating], FloatArray]]:
    """Each piece of rows with its responses."""
    with hide_entries():
        y = np.asarray(check_array(numeric_array(y, "y"), ensure_2d=False, dtype=np.float64, ensure_all_finite=False))
    if not np.isfinite(y).all():
        raise ArgumentError("y", f"contains {'infinity' if np.isinf(y).any() else 'NaN'}; every entry must be finite.")
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
    """A scaled table of d columns as an array; the names of its columns are not compared with the fit's."""
    with hide_entries():
        X = check_array(numeric_array(X, "X"), dtype=[np.float64, np.float32], ensure_all_finite=False)
    if X.shape[1] != d:
        raise ArgumentError("X", f"has {X.shape[1]} columns, but the scaler was fitted to {d}.")
    return np.asarray(X)
