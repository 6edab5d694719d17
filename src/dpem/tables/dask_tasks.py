"""The tasks that run on Dask's workers, and the messages of their failures.

No message on a worker may quote a row, since Dask logs the exception of a failed task and sends it to the client. A
block is summed by the thread that Dask assigns to it; a worker's threads sum blocks in parallel.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import add
from typing import Any

import dask
import numpy as np
from dask.base import get_scheduler, unpack_collections
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from dpem._threads import thread_limit
from dpem._validation import raise_alone
from dpem.query import FloatArray, Query
from dpem.tables.array import ArraySource
from dpem.tables.base import Partial, standardised
from dpem.tables.columns import Selection, rows_of
from dpem.tables.entries import Levels, convert
from dpem.tables.frame import Frame, column_of
from dpem.tables.persons import first_rows, rows_by_person

#: The number of partial sums that one task of the tree adds.
FAN_IN = 8
#: The most partial sums that are sent to the calling process.
FETCHED = 32
#: Seconds without any worker after which a query fails.
PATIENCE = 60.0


class BadBlock(ValueError):
    """A block differs from the declaration of its collection; the message quotes no entry."""


class BlockFailed(RuntimeError):
    """A block could not be summed; the message is the type of the error alone."""


def hide_message(task: Callable[..., Any]) -> Callable[..., Any]:
    """The task with errors that state only their type: messages of NumPy or pandas may quote an entry."""

    @functools.wraps(task)
    def run(*args: Any) -> Any:
        try:
            return task(*args)
        except BadBlock:
            raise
        except Exception as error:
            raise_alone(BlockFailed(type(error).__name__))

    return run


@dataclass(frozen=True, eq=False)
class BlockQuery:
    """A query, and the number and dtype of the features that it is summed over. It is one node of the graph."""

    query: Query
    n_features: int
    dtype: np.dtype


@hide_message
@np.errstate(all="ignore")
def partial_sum(block_query: BlockQuery, rows: int, X: Any, y: Any = None) -> Partial | None:
    """The query's sum over one block, in the same chunks as an array in memory; None if it has no rows."""
    X = _as_floats(X, block_query.dtype)
    if X.shape != (rows, block_query.n_features) or (y is not None and np.shape(y) != (rows,)):
        raise BadBlock("a block of X or y has another shape than its Dask collection states.")
    source = ArraySource(X, None if y is None else _as_floats(y, np.dtype(np.float64)))
    with thread_limit(1):  # Dask has its own threads, one for each block
        # The rounding error of a chunk's sum is one zero, so that a block of one chunk sends d numbers and not 2d.
        parts = [Partial(block_query.query.sum(chunk), np.zeros(())) for chunk in source.chunks()]
    return added(parts)


def added(parts: Sequence[Partial | None]) -> Partial | None:
    """The sum of the partial sums that are not None, from left to right: a node of the tree."""
    present = [part for part in parts if part is not None]
    return functools.reduce(add, present) if present else None


@hide_message
@np.errstate(all="ignore")
def numbers(part: Any, selection: Selection, reads: Collection[int] | None = None) -> Any:
    """A partition of a DataFrame as a NumPy array; with ``reads`` only these features are read."""
    return rows_of(Frame(part).column, selection, reads=reads).X


@hide_message
@np.errstate(all="ignore")
def responses(part: Any, levels: Levels | None) -> Any:
    """A partition of a Series as a NumPy array."""
    return convert(column_of(part), levels, np.dtype(np.float64))


@hide_message
@np.errstate(all="ignore")
def scaled(block: Any, dtype: np.dtype, mean: FloatArray, scale: FloatArray) -> Any:
    """(x − mean) / scale of a block's rows."""
    return standardised(_as_floats(block, dtype), mean, scale)


@hide_message
def column(part: Any, name: str) -> Any:
    """A column of a partition of a DataFrame."""
    return Frame(part).column(name)


@hide_message
def count_people(people: Any, secret: bytes) -> Any:
    """The persons of a block, hashed, and how many rows each has."""
    return rows_by_person(people, secret)


@hide_message
def kept_rows(people: Any, secret: bytes, persons: Any, most: Any) -> Any:
    """Whether each row of a block is kept: at most ``most`` of each of ``persons``."""
    return first_rows(people, secret, persons, most)


def _as_floats(values: Any, dtype: np.dtype) -> Any:
    """A block as floats, converted entry by entry if it has another type than its collection declares."""
    values = np.asarray(values)
    if values.dtype.kind in "fiub":
        return values.astype(dtype, copy=False)
    return convert(values.astype(object).ravel(), None, dtype).reshape(values.shape)


def query_graph(query: BlockQuery, X: Any, y: Any) -> list[Delayed]:
    """One query as one graph, a plain dictionary: Delayed objects of a thousand blocks would take half a second."""
    token = uuid.uuid4().hex
    node = f"dpem-query-{token}"
    tasks: dict[Any, Any] = {node: query}
    level: list[Any] = [(f"dpem-sum-{token}", i) for i in range(len(X.chunks[0]))]
    for key, rows in zip(level, X.chunks[0], strict=True):
        response = () if y is None else ((y.name, key[1]),)
        tasks[key] = (partial_sum, node, rows, (X.name, key[1], 0), *response)
    depth = 0
    while len(level) > FETCHED:  # each level of the tree is a round by the scheduler
        depth, below = depth + 1, level
        level = [(f"dpem-add-{token}", depth, first) for first in range(0, len(below), FAN_IN)]
        tasks |= {key: (added, below[key[2] : key[2] + FAN_IN]) for key in level}
    layer = f"dpem-{token}"
    graph = HighLevelGraph.from_collections(layer, tasks, dependencies=[X] if y is None else [X, y])
    return [Delayed(key, graph, layer=layer) for key in level]


# --- Messages of a cluster that fails ---------------------------------------------------------------------------------

_CHARGED = "the charge for this fit stays, and nothing was released."
LOST = f"the Dask scheduler was lost while the table was summed; {_CHARGED}"
DIED = (
    "the Dask workers that summed a block died one after the other, most often for lack of memory: make the blocks "
    f"smaller; {_CHARGED}"
)
ALONE = f"the Dask scheduler has had no worker for {PATIENCE:.0f} seconds; {_CHARGED}"


class NoWorkers(Exception):
    """A cluster has no worker left, and would wait for ever."""


def _compute(*collections: Any) -> Sequence[Any]:
    """``dask.compute``, which fails if a cluster stays without workers."""
    parts, repack = unpack_collections(*collections)
    client = getattr(get_scheduler(collections=parts), "__self__", None) if parts else None
    if client is None or not hasattr(client, "nthreads"):
        return tuple(dask.compute(*collections))
    from distributed import wait

    futures = client.compute(parts)
    last_worker = time.monotonic()
    while True:
        with suppress(TimeoutError):
            wait(futures, timeout=1.0)
            return tuple(repack(client.gather(futures)))
        if client.nthreads():
            last_worker = time.monotonic()
        elif time.monotonic() - last_worker > PATIENCE:
            client.cancel(futures)
            raise NoWorkers


def compute(*collections: Any, how: Callable[..., Any] = _compute) -> Sequence[Any]:
    """The collections' values. An error states only the type of the failure: other messages may quote a row."""
    try:
        return tuple(how(*collections))
    except BadBlock as error:
        raise_alone(ValueError(str(error)))
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        kind = str(error) if isinstance(error, BlockFailed) else type(error).__name__
        message = f"a block of X or y could not be computed ({kind}); {_CHARGED}"
        if kinds & {"CancelledError", "CommClosedError", "ClosedClientError"}:
            message = LOST
        elif "KilledWorker" in kinds:
            message = DIED
        elif isinstance(error, NoWorkers):
            message = ALONE
        raise_alone(RuntimeError(message))
