"""Tables of the design columns of a formula, which queries compute from the table's own columns, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from dpem._validation import ArgumentError
from dpem.fitting.formula import CompiledFormula, missing_columns
from dpem.query import Bound, Chunk, FloatArray, Query
from dpem.tables import Source
from dpem.tables.blocks import columns, is_dask, is_frame, namespace_of, numpy_api
from dpem.tables.inputs import Table, frame_of, open_table
from dpem.tables.new_rows import pieces


@dataclass(frozen=True)
class DerivedQuery:
    """A query about design columns as a query about the raw columns of a table.

    ``places`` are the positions in the table of the formula's columns and, last, of the weights if there are any.

    *Lemma.* It has the bound of ``query``. *Proof.* A row of the design depends on one raw row alone, and the bound of
    ``query`` holds for every possible row. ∎
    """

    query: Query
    formula: CompiledFormula
    places: tuple[int, ...]

    @property
    def label(self) -> str:
        return self.query.label

    @property
    def bound(self) -> Bound:
        return self.query.bound

    @property
    def blocked(self) -> bool:
        return self.query.blocked

    @property
    def reads(self) -> NDArray[np.intp]:
        """The raw columns that the query needs."""
        return np.array(sorted(self.places), dtype=np.intp)

    def sum(self, chunk: Chunk) -> FloatArray:
        on_host = isinstance(chunk.X, np.ndarray) or sparse.issparse(chunk.X)
        xp = numpy_api if on_host else namespace_of(chunk.X)
        raw = columns(chunk.X, np.array(self.places, dtype=np.intp), slice(0, chunk.X.shape[0]))
        with np.errstate(all="ignore"):
            X = self.formula.design(xp, raw[:, : len(self.formula.covariates)])
            y = chunk.y if self.formula.response is None else self.formula.responses(xp, raw)
        if len(self.places) > len(self.formula.raw):  # the weights come last
            X = xp.concat([X, xp.astype(raw[:, -1:], X.dtype)], axis=1)
        return self.query.sum(Chunk(X, y))


@dataclass(frozen=True)
class DerivedSource:
    """The design columns of a source of raw columns; ``places`` as in :class:`DerivedQuery`."""

    source: Source
    formula: CompiledFormula
    places: tuple[int, ...]

    @property
    def order_may_depend_on_values(self) -> bool:
        return bool(getattr(self.source, "order_may_depend_on_values", True))

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def n_features(self) -> int:
        return len(self.formula.columns) + len(self.places) - len(self.formula.raw)

    def total(self, query: Query) -> FloatArray:
        return self.source.total(DerivedQuery(query, self.formula, self.places))

    def slack(self, query: Query) -> float:
        return self.source.slack(DerivedQuery(query, self.formula, self.places))

    def split(self, parts: int) -> list[Source]:
        return [DerivedSource(part, self.formula, self.places) for part in self.source.split(parts)]


def open_derived(
    probe: BaseEstimator,
    formula: CompiledFormula,
    X: Any,
    y: object,
    weight: str | None = None,
    *,
    person: str | None = None,
    rows_per_person: int = 1,
) -> Table:
    """The table of design columns; sets ``n_features_in_`` and ``feature_names_in_`` of ``probe`` to the covariates."""
    if y is not None:
        raise ArgumentError("y", "must be None, since the formula names the response: call fit(table).")
    levels = {name: levels for name, levels in formula.levels.items() if name in formula.raw}
    weights = () if weight is None else (weight,)
    if weight in formula.raw:
        raise ArgumentError("weights", f"must not be a column of the formula, got {weight!r}.")
    columns_read = [*formula.raw, *weights, *([] if person is None else [person])]
    if is_frame(X):
        X = frame_of(X)
        missing_columns(formula, X.names)
        X = X.subset([name for name in columns_read if name in X.names])
    elif is_dask(X) and hasattr(X, "columns"):
        missing_columns(formula, list(map(str, X.columns)))
        X = X[[name for name in columns_read if name in map(str, X.columns)]]
    table = open_table(
        probe,
        X,
        None,
        needs_y=False,
        levels=levels,
        numeric=(*formula.bounds, *weights),
        person=person,
        rows_per_person=rows_per_person,
    )
    missing_columns(formula, table.names)
    places = tuple(table.names.index(name) for name in (*formula.raw, *weights) if name in table.names)
    probe.n_features_in_ = len(formula.covariates)
    probe.feature_names_in_ = np.array(formula.covariates, dtype=object)
    source = DerivedSource(table.source, formula, places)
    names = (*formula.names, *(name for name in weights if name in table.names))
    return Table(source, names, formula.response, formula.column_levels)


def derived_pieces(estimator: BaseEstimator, formula: CompiledFormula, X: Any) -> Iterator[FloatArray]:
    """The design columns of new rows, piece by piece; other columns of a frame are ignored."""
    if is_frame(X):
        X = frame_of(X)
        names = X.names
    else:
        names = getattr(X, "feature_names", None)
    missing = [] if names is None else [name for name in formula.covariates if name not in names]
    if missing:
        raise ArgumentError("X", f"lacks columns of the formula: {', '.join(map(repr, missing))}.")
    if is_frame(X):
        X = X.subset(formula.covariates)
    elif names is not None and list(names) != list(formula.covariates):
        places = np.array([list(names).index(name) for name in formula.covariates])
        for chunk in X.chunks():
            raw = np.asarray(columns(chunk.X, places, slice(0, chunk.X.shape[0])))
            yield formula.design(numpy_api, raw)
        return
    for raw in pieces(estimator, X, formula.covariate_levels):
        yield np.asarray(formula.design(numpy_api, np.asarray(raw, dtype=float)))
