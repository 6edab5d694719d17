"""Rows that come in batches from anything that can be iterated more than once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpem._validation import ArgumentError
from dpem.query import Chunk
from dpem.tables.base import CHUNK_ROWS
from dpem.tables.blocks import is_frame
from dpem.tables.columns import rows_of, select
from dpem.tables.frame import ConvertingSource, Frame


class BatchSource(ConvertingSource):
    """Batches of rows: arrays X, pairs (X, y), or DataFrames (pandas, polars, Arrow).

    ``batches`` must start anew each time it is iterated: a list, or an object whose ``__iter__`` opens the data again.
    A generator can be read once only and is refused. Batches may have any length, also none, but the same columns and
    kind throughout; rows are float32 if the first array is, else float64. ``columns``, ``target``, ``levels`` and
    ``person`` are about named columns, as in :class:`~dpem.tables.DatasetSource`. Types may differ from batch to batch,
    since each entry is converted by itself.

    Without ``n_rows`` the batches are read once to count them. A pass that has another number of rows is refused.

    ``fixed_order=True`` says that a row has its place whatever rows hold, and the same on every pass: no shuffling, no
    sorting. It is known of a list; of anything else it is not, unless you say so. Where rows may move they are read in
    float64 and cannot be split into batches, as ``method="published"`` does.

    >>> source = BatchSource([np.ones((2, 3)), np.empty((0, 3)), np.zeros((5, 3))])
    >>> source.n_rows, source.n_features
    (7, 3)
    """

    def __init__(
        self,
        batches: Iterable[Any],
        *,
        n_rows: int | None = None,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        feature_names: Sequence[str] | None = None,
        levels: Mapping[str, Any] | None = None,
        person: str | None = None,
        fixed_order: bool | None = None,
    ) -> None:
        if not isinstance(batches, Iterable) or isinstance(batches, str | bytes | dict | np.ndarray):
            raise ArgumentError("batches", f"must be an iterable of batches of rows, got {type(batches).__name__}.")
        if isinstance(batches, Iterator):
            raise ArgumentError(
                "batches",
                "must start anew on each pass, but an iterator or generator can be read once only; "
                "give a list, or an object whose __iter__ opens the data again.",
            )
        if n_rows is not None and (isinstance(n_rows, bool) or not isinstance(n_rows, int) or n_rows < 1):
            raise ArgumentError("n_rows", f"must be a positive number of rows or None, got {n_rows!r}.")
        if fixed_order is not None and not isinstance(fixed_order, bool):
            raise ArgumentError("fixed_order", f"must be True, False or None, got {type(fixed_order).__name__}.")
        self._batches = batches
        fixed = isinstance(batches, list | tuple) if fixed_order is None else fixed_order
        self.order_may_depend_on_values = not fixed
        first = next(iter(batches), None)
        if first is None:
            raise ArgumentError("batches", "hold no rows.")
        self._named = is_frame(first)
        if self._named:
            table = Frame(first)
            chosen = select(table.schema, columns, target, levels=levels, person=person)
            self._select(chosen if fixed and not table.pandas else chosen.double())
        elif any(given is not None for given in (columns, target, levels, person)):
            raise ArgumentError("columns", "and target name columns of tables; batches of arrays are X or (X, y).")
        else:
            X, y = _pair(first)
            self.n_features, self.has_response = X.shape[1], y is not None
            self.dtype = np.dtype(np.float32 if fixed and X.dtype == np.float32 else np.float64)
            if self.n_features == 0:
                raise ValueError("a batch must have at least one column.")
        if feature_names is not None:
            self.feature_names = list(feature_names)
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise ArgumentError("feature_names", f"has {len(self.feature_names)} names for {self.n_features} columns.")
        self._rows = n_rows if n_rows is not None else sum(self._as_rows(batch).X.shape[0] for batch in batches)
        if self._rows == 0:
            raise ArgumentError("batches", "hold no rows.")

    @property
    def n_rows(self) -> int:
        return self._every.count(self._rows)

    def people(self) -> Iterator[Any]:
        """Whose row each is, batch by batch."""
        for batch in self._batches:
            yield Frame(batch).column(self.person_name or "")

    def _converted(self) -> Iterator[Chunk]:
        begin = 0
        for X, y in map(self._as_rows, self._batches):
            begin, before = begin + X.shape[0], begin
            if begin > self._rows:
                break
            picked = self._every.within(before)
            X, y = X[picked], None if y is None else y[picked]
            for first in range(0, X.shape[0], CHUNK_ROWS):
                rows = slice(first, first + CHUNK_ROWS)
                yield Chunk(X[rows], None if y is None else y[rows])
        if begin != self._rows:
            raise ArgumentError(
                "batches", f"must hold {self._rows} rows on every pass, but this pass held another number."
            )

    def _as_rows(self, batch: Any) -> Chunk:
        """The batch as rows of the kind, columns and dtype of the first, or a refusal: one sentence."""
        if is_frame(batch) != self._named:
            raise ArgumentError("batches", "must be of one kind: all arrays, all (X, y) pairs or all tables.")
        if self._named:
            table = Frame(batch)
            for name in self._selection.read:
                if table.names.count(name) != 1:
                    raise ValueError(f"every batch must have the column {name!r} of the first, once.")
            return rows_of(table.column, self._selection)
        X, y = _pair(batch)
        if X.shape[1] != self.n_features:
            raise ValueError(f"every batch must have the {self.n_features} columns of the first, got {X.shape[1]}.")
        if (y is not None) != self.has_response:
            raise ValueError("either every batch must have a response, (X, y), or none.")
        with np.errstate(all="ignore"):  # an entry may be too large for float32
            return Chunk(X.astype(self.dtype, copy=False), None if y is None else y.astype(np.float64, copy=False))


def _pair(batch: Any) -> tuple[Any, Any]:
    """X and y as numpy arrays of numbers, y None where the batch is X alone."""
    if isinstance(batch, tuple) and len(batch) != 2:
        raise ValueError(f"a batch must be an array X or a pair (X, y), got a tuple of {len(batch)}.")
    X, y = batch if isinstance(batch, tuple) else (batch, None)
    if not isinstance(X, np.ndarray) or X.ndim != 2:
        kind = f"{X.ndim} dimension(s)" if isinstance(X, np.ndarray) else type(X).__name__
        raise ValueError(f"a batch must be a two-dimensional array X, a pair (X, y) or a table, got {kind}.")
    from dpem.tables.validation import numeric_array  # here, since it loads scikit-learn

    X, y = numeric_array(X, "X"), None if y is None else numeric_array(y, "y")
    if y is not None and y.shape != (X.shape[0],):
        raise ArgumentError("y", f"of a batch must have one response for each row of X, got shape {y.shape}.")
    for name, values in (("X", X), ("y", y)):
        if values is not None and values.dtype.kind not in "fiub":
            raise ArgumentError(name, f"of a batch must be numeric, got {values.dtype}.")
    return X, y
