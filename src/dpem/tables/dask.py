"""Rows in a Dask array or DataFrame: each block is summed by the worker that has it, and only sums are sent.

A query is one graph and one compute. Each block of rows becomes a partial sum, partial sums are added by a tree
whose shape depends on the number of blocks alone, and one vector is returned. The query itself, with its parameters, is
one node of the graph, which a worker fetches once however many blocks it has. Noise is drawn by the curator, in the
process that calls ``fit``.

A block is cut into chunks as an array in memory is, also when it is summed again after a worker's death: the answer
does not depend on which worker summed a block, nor how often.
"""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph

from dpem._validation import ArgumentError
from dpem.query import FloatArray, Query
from dpem.tables import dask_tasks as tasks
from dpem.tables.base import slack
from dpem.tables.columns import Selection, is_readable, select_declared
from dpem.tables.entries import Levels
from dpem.tables.frame import Frame, column_of
from dpem.tables.persons import Counts, new_secret
from dpem.tables.progress import advance


class DaskSource:
    """A Dask array or DataFrame in blocks of rows, and a response. The rows stay on the workers.

    float32 and float64 are read unchanged, other numbers as float64, responses always as float64. Lengths of blocks
    that Dask does not know are counted once. A table that was not persisted is read again for every query. Entries of
    a DataFrame become numbers as those of any other table, under ``levels`` and ``numeric``.

    ``fixed_order=True`` states that the position of a row does not depend on values. By default it is True for a Dask
    array, unless its graph contains a shuffle, a sort or a DataFrame, and False for a DataFrame, which Dask orders by
    an index. Rows whose order may depend on values are read in float64, and cannot be split into batches
    (``method="published"``).

    >>> source = DaskSource(da.ones((10, 3), chunks=(4, 3)))
    >>> source
    DaskSource(10 rows in 3 blocks, 3 columns, float64)
    >>> [batch.n_rows for batch in source.split(3)]
    [4, 3, 3]
    """

    person_name: str | None = None
    _people: list[Any] | None = None
    #: Returns the rows with only these features read; None if columns cannot be read separately.
    _read_features: Callable[[tuple[int, ...]], Any] | None = None

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        levels: Mapping[str, Levels] | None = None,
        numeric: Collection[str] = (),
        y_levels: Levels | None = None,
        person: str | None = None,
        fixed_order: bool | None = None,
    ) -> None:
        selection = _selection(X, levels, numeric, person) if _is_frame(X, "DataFrame") else None
        dtype = _checked_array(X) if selection is None else selection.dtype
        any_order = _may_be_shuffled(X) if fixed_order is None else not fixed_order
        if any_order:  # slack requires float64
            dtype, selection = np.dtype(np.float64), None if selection is None else selection.double()
        collections = [X] if y is None else [X, _checked_response(y, y_levels)]
        lengths = tasks.compute(*map(_lengths, collections))
        if y is not None and sum(lengths[0]) != sum(lengths[1]):
            raise ArgumentError(
                "y", f"must hold one response for each of the {sum(lengths[0])} rows, got {sum(lengths[1])}."
            )
        table, response = _as_array(X, lengths[0], dtype, selection), None
        if y is not None:
            response = _as_array(collections[1], lengths[1], np.dtype(np.float64), y_levels).rechunk((table.chunks[0],))
            if not dask.is_dask_collection(y):  # it is sent once, not with every query
                (response,) = tasks.compute(response, how=dask.persist)
        has_names = selection is not None and all(isinstance(name, str) for name in X.columns)
        names = list(selection.features) if selection is not None and has_names else None
        self._set_blocks(table, response, dtype, names, any_order)
        if selection is not None and names is not None:
            self._read_features = lru_cache(maxsize=8)(partial(_features, X, selection, lengths[0]))
        self.text_levels: dict[str, Levels] = {} if selection is None else dict(selection.levels)
        if selection is not None and person is not None:
            parts = _partitions(X[[name for name in X.columns if str(name) == person]])
            self.person_name, self._people = person, [delayed(tasks.column)(part, person) for part in parts]

    def _set_blocks(self, X: Any, y: Any, dtype: np.dtype, names: list[str] | None, any_order: bool) -> None:
        """Set the blocks and their sizes. Graphs are not simplified, since Dask would then release persisted blocks."""
        self._X, self._y, self.dtype, self.feature_names = X, y, dtype, names
        self.n_rows, self.n_features, self.has_response = int(X.shape[0]), int(X.shape[1]), y is not None
        self.order_may_depend_on_values = any_order

    def __repr__(self) -> str:
        rows = f"{self.n_rows} rows in {len(self._X.chunks[0])} blocks"
        return f"{type(self).__name__}({rows}, {self.n_features} columns, {self.dtype})"

    def total(self, query: Query) -> FloatArray:
        """The query's sum over all rows: block sums added with compensation, by a tree in the blocks' order."""
        reads, X = getattr(query, "reads", None), self._X
        if self._read_features is not None and reads is not None and 0 < len(reads) < self.n_features:
            X = self._read_features(tuple(map(int, reads)))
        graph = tasks.query_graph(tasks.BlockQuery(query, self.n_features, self.dtype), X, self._y)
        total = tasks.added(tasks.compute(*graph))
        if total is None:
            raise ValueError("a source without rows has no total.")
        advance(self.n_rows)
        return np.asarray(total.value)

    def slack(self, query: Query) -> float:
        """The slack of an array in memory: blocks are read in the same chunks, and the lemma holds for any tree."""
        return slack(query, self.n_rows, self.dtype, any_order=self.order_may_depend_on_values)

    def split(self, parts: int) -> list[DaskSource]:
        """Disjoint batches of the rows t, t + parts, t + 2·parts, … of the whole table."""
        batches = (slice(t, None, parts) for t in range(parts))
        return [self._mapped(itemgetter(rows), None if self._y is None else self._y[rows]) for rows in batches]

    def scaled(self, mean: FloatArray, scale: FloatArray) -> DaskSource:
        """The rows (x − mean) / scale in the rows' dtype, computed on the workers, with unchanged responses."""
        parts = (mean.astype(self.dtype), scale.astype(self.dtype))
        source = self._mapped(lambda X: X.map_blocks(tasks.scaled, self.dtype, *parts, dtype=self.dtype), self._y)
        source.person_name, source._people = self.person_name, self._people
        return source

    def limit_rows_per_person(self, person: str, most: int) -> DaskSource:
        """The first ``most`` rows of each person (:mod:`dpem.tables.persons`). Each block sends hashes of its persons
        with their numbers of rows, and receives the persons that have too many.
        """
        people, names, features = self._people, self.feature_names, list(range(self.n_features))
        if people is None:
            columns = names or [f"x{j}" for j in features]
            if person not in columns:
                raise ArgumentError("person", f"must be a column of X, but there is no {person!r}.")
            column = columns.index(person)
            X = self._X if self._read_features is None else self._read_features((column,))
            people = [block[:, column] for block in X.to_delayed()[:, 0]]
            names = names and [name for name in names if name != person]
            features.remove(column)
        secret, counts, blocks = new_secret(), Counts(), []
        for persons, rows in tasks.compute(*(delayed(tasks.count_people)(part, secret) for part in people)):
            allowed = np.maximum(most - counts.add(persons, rows), 0)
            excess = rows > allowed
            blocks.append((persons[excess], allowed[excess], int(np.minimum(rows, allowed).sum())))
        kept = [delayed(tasks.kept_rows)(part, secret, *block[:2]) for part, block in zip(people, blocks, strict=True)]

        def keep_rows(collection: Any, width: tuple[int, ...] = ()) -> Any:
            parts = zip(np.ravel(collection.to_delayed()), kept, blocks, strict=True)
            shapes = ((part[rows], (block[2], *width)) for part, rows, block in parts)
            return da.concatenate([da.from_delayed(rows, shape, collection.dtype) for rows, shape in shapes])

        y = None if self._y is None else keep_rows(self._y)
        source = self._mapped(lambda X: keep_rows(X[:, features], (len(features),)), y, features)
        source.feature_names = names
        return source

    def _mapped(self, change: Callable[[Any], Any], y: Any, features: Sequence[int] | None = None) -> DaskSource:
        """The source of the rows ``change(X)``; ``features`` are the features of this source that it keeps (all)."""
        source, read = object.__new__(type(self)), self._read_features
        source._set_blocks(change(self._X), y, self.dtype, self.feature_names, self.order_may_depend_on_values)
        if read is not None:
            kept = range(self.n_features) if features is None else features
            source._read_features = lru_cache(maxsize=8)(lambda reads: change(read(tuple(kept[j] for j in reads))))
        return source


# --- Refusals before anything is read ---------------------------------------------------------------------------------


def _checked_array(X: Any) -> np.dtype:
    """The dtype in which the array is read, or an error."""
    if not isinstance(X, da.Array):
        raise ArgumentError("X", f"must be a Dask array or a Dask DataFrame, got a Dask {type(X).__name__}.")
    if X.ndim != 2:
        raise ArgumentError("X", f"must be a table of rows and columns, got a Dask array of {X.ndim} dimension(s).")
    _check_numbers("X", X)
    if len(X.chunks[1]) > 1:
        raise ArgumentError(
            "X",
            f"must be cut into blocks along its rows only, got {len(X.chunks[1])} blocks of columns: use "
            "X.rechunk({1: -1}).",
        )
    if not X.shape[1] > 0:  # or unknown
        raise ArgumentError("X", "must have a known number of columns, at least one.")
    return np.dtype(X.dtype if X.dtype in (np.float32, np.float64) else np.float64)


def _selection(X: Any, levels: Mapping[str, Levels] | None, numeric: Collection[str], person: str | None) -> Selection:
    """The selection of a DataFrame's columns, by the types that Dask states."""
    frame = Frame(X._meta)
    if not frame.names:
        raise ArgumentError("X", "must have a known number of columns, at least one.")
    selection = select_declared(frame.schema, levels, numeric, person)
    for part in X.expr.walk() if hasattr(X, "expr") else ():
        # dd.read_csv fails at an entry that does not fit the type that it inferred for a column.
        function = part.operand("func") if "func" in part._parameters else None
        types = (getattr(function, "keywords", None) or {}).get("dtypes")
        if isinstance(types, Mapping) and not {str(types.get(n)) for n in frame.names} <= {"object", "str", "string"}:
            raise ArgumentError(
                "X",
                "must not be read from text with inferred types, since one entry that does not fit them would stop "
                "the fit: use dd.read_csv(..., dtype=str) and name each column in bounds, or convert it to Parquet.",
            )
    return selection


def _checked_response(y: Any, levels: Levels | None) -> Any:
    """The response as a Dask collection of one dimension."""
    if not dask.is_dask_collection(y):
        y = np.asarray(y)
        y = da.from_array(y, chunks=-1) if y.ndim == 1 else y
    if _is_frame(y, "Series"):
        entries = column_of(y._meta)
        if not isinstance(entries, np.ndarray) and not is_readable(entries.type, levels is not None):
            raise ArgumentError("y", f"must hold real numbers, got {y.dtype}.")
        return y
    if not isinstance(y, da.Array) or y.ndim != 1:
        raise ArgumentError("y", "must be a vector: a Dask array of one dimension, a Dask Series or a numpy array.")
    _check_numbers("y", y)
    return y


#: Parts of the names of tasks that move rows by their values, or that read a DataFrame.
_REORDERING = ("shuffle", "sort", "permut", "frompandas", "from_pandas", "values", "index", "join", "slice_with_int")


def _may_be_shuffled(X: Any) -> bool:
    """Whether the order of rows may depend on their values, as far as the graph shows."""
    if not isinstance(X, da.Array) or math.isnan(X.shape[0]):  # a DataFrame, or rows that were selected by values
        return True
    names = {str(key[0] if isinstance(key, tuple) else key) for key in X.dask.keys()}  # noqa: SIM118 not a dict
    return any(part in name.rpartition("-")[0].lower() for name in names for part in _REORDERING)


def _is_frame(collection: Any, kind: str) -> bool:
    """Whether it is a "DataFrame" or a "Series" of Dask's, tested without importing pandas."""
    frames = sys.modules.get("dask.dataframe")
    return frames is not None and isinstance(collection, getattr(frames, kind))


def _check_numbers(name: str, array: Any) -> None:
    if array.dtype.kind not in "fiub":
        raise ArgumentError(name, f"must hold real numbers, got {array.dtype}.")
    if type(array._meta) is not np.ndarray:  # a masked array's mask would be ignored
        raise ArgumentError(name, f"must have blocks that are numpy arrays, got {type(array._meta).__name__}.")


def _lengths(collection: Any) -> list[Any]:
    """The rows of each block, as numbers or as tasks that count them."""
    if isinstance(collection, da.Array) and not math.isnan(collection.shape[0]):
        return list(collection.chunks[0])
    part = collection[list(collection.columns[:1])] if _is_frame(collection, "DataFrame") else collection
    return [delayed(len)(block) for block in _partitions(part)]


def _as_array(collection: Any, lengths: Sequence[int], dtype: np.dtype, rule: Any = None) -> Any:
    """A Dask array whose blocks have known lengths."""
    if isinstance(collection, da.Array):
        chunks = (tuple(lengths), *collection.chunks[1:])
        return da.Array(collection.dask, collection.name, chunks, dtype=collection.dtype)
    read = tasks.numbers if _is_frame(collection, "DataFrame") else tasks.responses
    return _joined(_partitions(collection), lengths, dtype, read, rule)


def _features(frame: Any, selection: Selection, lengths: Sequence[int], reads: tuple[int, ...]) -> Any:
    """A DataFrame's rows as an array with only these features read; the others have arbitrary values."""
    parts = _partitions(frame[[selection.features[j] for j in reads]])
    return _joined(parts, lengths, selection.dtype, tasks.numbers, selection, frozenset(reads))


def _partitions(collection: Any) -> list[Delayed]:
    """The partitions of a collection, the same for all columns read: Dask's optimization would join some. It would also
    fail with ``dd.from_delayed``, in whose graph an alias has the name of its target.
    """
    frame = _is_frame(collection, "DataFrame")
    parts = collection.simplify().to_delayed(optimize_graph=False) if frame else np.ravel(collection.to_delayed())
    graphs = {id(part.dask): part.dask for part in parts}.values()
    layer = f"dpem-partitions-{uuid.uuid4().hex}"
    merged = {key: task for graph in graphs for key, task in graph.items()}
    merged |= {key: task.target for key, task in merged.items() if key != getattr(task, "target", key) == task.key}
    shared = HighLevelGraph({layer: merged}, {layer: set()})
    return [Delayed(part.key, shared, layer=layer) for part in parts]


def _joined(parts: Sequence[Delayed], lengths: Sequence[int], dtype: np.dtype, read: Any, rule: Any, *more: Any) -> Any:
    """A Dask array of the features of a DataFrame's partitions, or of the entries of those of a Series."""
    width = (len(rule.features),) if isinstance(rule, Selection) else ()
    blocks = zip(parts, lengths, strict=True)
    return da.concatenate([da.from_delayed(delayed(read)(p, rule, *more), (n, *width), dtype) for p, n in blocks])
