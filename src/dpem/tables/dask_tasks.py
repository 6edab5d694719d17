"""What runs on Dask's workers, and what is said when it fails.

One thing must not happen on a worker: that a message quotes a row (Dask logs a failed task's exception and sends it to
the client). A block is summed by the one thread that Dask gave it; a worker's threads sum blocks side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np

from dpem._threads import at_most
from dpem.query import Query
from dpem.tables.array import ArraySource
from dpem.tables.base import Partial
from dpem.tables.columns import Selection, rows_of
from dpem.tables.entries import Levels, converted
from dpem.tables.frame import Frame, column_of
from dpem.tables.persons import first_rows, tally


class BadBlock(ValueError):
    """What a block holds is not what its collection declared, in a sentence that quotes nothing."""


class BlockFailed(RuntimeError):
    """Something failed while a block was summed. It carries the kind of failure and none of its words."""


def naming_only_the_type(task: Callable[..., Any]) -> Callable[..., Any]:
    """A task whose failures carry no words of others: what numpy or pandas say of an entry may quote it."""

    @functools.wraps(task)
    def run(*args: Any) -> Any:
        try:
            return task(*args)
        except BadBlock:
            raise
        except Exception as error:
            failure = BlockFailed(type(error).__name__)
        raise failure  # here, where no other exception is being handled and would come along

    return run


@dataclass(frozen=True, eq=False)
class BlockQuery:
    """A query with what every block needs to sum it. It is one node of the graph, so that a worker fetches it once."""

    query: Query
    n_features: int
    dtype: np.dtype


@naming_only_the_type
@np.errstate(all="ignore")
def partial_sum(asked: BlockQuery, rows: int, X: Any, y: Any = None) -> Partial | None:
    """The query's sum over one block, in the chunks that an array in memory is read in; None if it has no rows."""
    X = _as_floats(X, asked.dtype)
    if X.shape != (rows, asked.n_features) or (y is not None and np.shape(y) != (rows,)):
        raise BadBlock("a block of X or y has another shape than its Dask collection says.")
    source = ArraySource(X, None if y is None else _as_floats(y, np.dtype(np.float64)))
    with at_most(1):  # Dask has threads of its own, one block on each
        # What a chunk's sum has lost is a single zero: of a block of one chunk d numbers travel, not 2d.
        parts = [Partial(asked.query.sum(chunk), np.zeros(())) for chunk in source.chunks()]
    return added(parts)


def added(parts: Sequence[Partial | None]) -> Partial | None:
    """The sum of the partial sums that there are, from left to right: a node of the tree."""
    present = [part for part in parts if part is not None]
    return functools.reduce(add, present) if present else None


@naming_only_the_type
@np.errstate(all="ignore")
def numbers(part: Any, selection: Selection, reads: Collection[int] | None = None) -> Any:
    """A partition of a DataFrame as a numpy array; with ``reads`` only these features mean something."""
    frame = Frame(part)
    return rows_of(frame.block(0, frame.n_rows), selection, reads=reads).X


@naming_only_the_type
@np.errstate(all="ignore")
def responses(part: Any, levels: Levels | None) -> Any:
    """A partition of a Series as a numpy array."""
    return converted(column_of(part), levels, np.dtype(np.float64))


@naming_only_the_type
def column(part: Any, name: str) -> Any:
    """A column of a partition of a DataFrame."""
    return column_of(part[name])


@naming_only_the_type
def tallied(people: Any, secret: bytes) -> Any:
    """The persons of a block, hashed, and how many rows each has."""
    return tally(people, secret)


@naming_only_the_type
def kept_rows(people: Any, secret: bytes, who: Any, most: Any) -> Any:
    """Which rows of a block are kept if of ``who`` only the first ``most`` are."""
    return first_rows(people, secret, who, most)


def _as_floats(values: Any, dtype: np.dtype) -> Any:
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError):
        pass
    raise BadBlock("a block of X or y holds what is not a number.")
