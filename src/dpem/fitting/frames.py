"""A table as a user has it, opened for a fit or a prediction under what was declared of its columns.

What decides a refusal is public: names, shapes, declared bounds and levels, and types of columns that no entry changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dpem._validation import ArgumentError
from dpem.fitting.bounds import _listed, other_columns
from dpem.fitting.rows import frame_of, frame_source, pieces_of, source_of
from dpem.tables import Source
from dpem.tables.entries import Levels, checked_levels
from dpem.tables.kinds import is_dask, is_frame, is_source

__all__ = ["Levels", "Table", "checked_levels", "open_table", "pieces", "response_name"]


class Table(NamedTuple):
    """Rows to fit to, and what is publicly known of their columns."""

    source: Source
    names: tuple[str, ...]
    named: bool
    y_name: str | None
    levels: dict[str, Levels]


def open_table(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    *,
    needs_y: bool,
    levels: Any,
    spelled: Collection[str] = (),
    y_levels: Levels | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
) -> Table:
    """The table, opened but not read. The estimator learns ``n_features_in_`` and ``feature_names_in_``. ``spelled``
    names the columns whose texts are read as numbers, ``y_levels`` are the response's; of each ``person`` there are at
    most ``rows_per_person`` rows.
    """
    declared = checked_levels(levels)
    given: dict[str, Any] = {"levels": declared, "spelled": spelled, "y_levels": y_levels}
    who: dict[str, Any] = {"person": person, "rows_per_person": rows_per_person}
    source = source_of(estimator, X, y, needs_y=needs_y, **given, **who)
    if is_frame(X):
        estimator.feature_names_in_ = np.asarray(source.feature_names, dtype=object)  # type: ignore[attr-defined]
    found = getattr(estimator, "feature_names_in_", None)
    known = found if found is not None else getattr(source, "feature_names", None)
    names = tuple(map(str, known)) if known is not None else tuple(f"x{j}" for j in range(source.n_features))
    y_name = response_name(X, y) if needs_y else None
    _refuse_unknown(declared, names)
    if y_name is not None and y_name in names:
        raise ArgumentError(
            "y", f"has the name of a column of X, {y_name!r}: leave the column out of X, or rename one."
        )
    read_as = checked_levels(getattr(X, "text_levels", None) or None)
    if not is_frame(X) and not is_dask(X):
        texts = [name for name, own in declared.items() if own.texts and own != read_as.get(name)]
        if texts:
            raise ArgumentError(
                "levels",
                f"of {_listed(texts)} are texts: give a DataFrame, read_table(path, levels=) with these "
                "levels, or numbers that stand for them.",
            )
    return Table(source, names, found is not None, y_name, {**read_as, **declared})


def pieces(estimator: BaseEstimator, X: Any, levels: Mapping[str, Levels]) -> Iterator[NDArray[np.floating]]:
    """Dense pieces of the rows that a fitted model is applied to, in the numbers that the fit saw."""
    if not is_frame(X):
        read_as = checked_levels(getattr(X, "text_levels", None) or None)
        texts = [name for name, own in levels.items() if own.texts and is_source(X) and own != read_as.get(name)]
        if texts:
            raise ArgumentError("levels", f"of {_listed(texts)} must be those of the fit: read_table(path, levels=).")
        yield from pieces_of(estimator, X, missing=True)
        return
    frame, person = frame_of(X), getattr(estimator, "person", None)
    if person in frame.names:
        frame = frame.only([name for name in frame.names if name != person])
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and frame.names != list(fitted):
        raise ValueError(other_columns(frame.names, list(fitted)))
    if len(frame.names) != estimator.n_features_in_:
        raise ArgumentError("X", f"has {len(frame.names)} columns, but {estimator.n_features_in_} were fitted.")
    for chunk in frame_source(frame, None, dict(levels), spelled=frame.names).chunks():
        yield chunk.X


def _refuse_unknown(declared: Mapping[str, Levels], names: Sequence[str]) -> None:
    unknown = [name for name in declared if name not in names]
    if unknown:
        raise ArgumentError("levels", f"must name columns of X, but X lacks {_listed(unknown)}.")


def response_name(X: Any, y: Any) -> str | None:
    """The response's name, if it has one."""
    return getattr(X, "target_name", None) if is_source(X) else _name(y)


def _name(y: Any) -> str | None:
    """The response's own name: of a Series, or of the one column of a DataFrame."""
    if is_frame(y):
        names = frame_of(y).names
        return names[0] if len(names) == 1 else None
    name = getattr(y, "name", None)
    return name if isinstance(name, str) else None
