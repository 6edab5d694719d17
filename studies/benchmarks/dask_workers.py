"""The speed-up by a second worker, or a second thread, of Dask: the same query on one and on two, in turns.

Tables are in the workers' memory before the first query, and both clusters run throughout.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from threadpoolctl import threadpool_limits

from dpem.fitting.surrogate import ScoreQuery
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.query import Query
from dpem.tables import ArraySource
from dpem.tables.dask import DaskSource
from studies.benchmarks.fits import score_query
from studies.benchmarks.timing import Line, Work, in_turns

#: Blocks of a Dask table, and rows and columns of each.
BLOCKS, SIZES = 8, {"wide": (120_000, 500), "narrow": (240_000, 10)}


def dask(repeats: int) -> Iterator[Line]:
    """Two threads against one in one process, two workers of one thread against one, and what two processes that do the
    same without Dask reach on these cores: nothing can be expected to do better. A wide query is limited by memory,
    which two cores share; a narrow one by the cores. Clusters leave their workers' OMP_NUM_THREADS in this process: it
    is put back, or all that follows would be measured on one thread.
    """
    before = dict(os.environ)
    try:
        yield from _figures(repeats)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _figures(repeats: int) -> Iterator[Line]:
    queries = {"wide": SymmetricMixture(0.5).gradient(np.full(500, 0.05), Clip(entry=1.0)), "narrow": _groups()}
    for figure, workers, threads in (("two threads of one worker", 1, 2), ("two workers of one thread", 2, 1)):
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as lone,
            LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=":0") as pair,
            Client(lone, set_as_default=False) as first,
            Client(pair, set_as_default=False) as second,
        ):
            for kind, query in queries.items():
                tables = [held_by(client, BLOCKS, *SIZES[kind]) for client in (first, second)]
                work: dict[str, Work] = {
                    "one": lambda: asked(first, tables[0], query),  # noqa: B023
                    "two": lambda: asked(second, tables[1], query),  # noqa: B023
                }
                taken = in_turns(work, repeats)
                line = Line.of(
                    f"Dask, {kind}: {figure}", "one thread", taken["two"], taken["one"], ">= 1.7", speed=True
                )
                yield line._replace(processor=math.nan)  # the workers are other processes
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=_alone) as processes:
        for kind in SIZES:
            list(processes.map(_blocks_summed, [kind] * 2, [1, 1]))
            work = {
                "one": lambda: list(processes.map(_blocks_summed, [kind], [BLOCKS])),  # noqa: B023
                "two": lambda: list(processes.map(_blocks_summed, [kind] * 2, [BLOCKS // 2] * 2)),  # noqa: B023
            }
            taken = in_turns(work, repeats)
            what = "a @ X" if kind == "wide" else "the narrow query"
            line = Line.of(
                f"two processes of {what}, no Dask", "one process", taken["two"], taken["one"], "", speed=True
            )
            yield line._replace(processor=math.nan)


def _groups() -> ScoreQuery:
    """A step of five groups."""
    K, d = 5, SIZES["narrow"][1]
    means = np.random.default_rng(0).uniform(-0.5, 0.5, (K, d))
    return score_query("diag", Gaussians(np.full(K, 1 / K), means, np.full((K, d), 0.05)), bound=4.0)


def _alone() -> None:
    """A process that computes on one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)


def _blocks_summed(kind: str, count: int) -> None:
    """A number of sums over one block of the tables' size."""
    X, a, source, query = _block(kind)
    for _ in range(count):
        if kind == "wide":
            a @ X
        else:
            source.total(query)


@functools.cache
def _block(kind: str) -> tuple[np.ndarray, np.ndarray, ArraySource, ScoreQuery]:
    X = np.random.default_rng(0).standard_normal(SIZES[kind], dtype=np.float32)
    return X, np.ones(len(X), dtype=np.float32), ArraySource(X), _groups()


def held_by(client: Client, blocks: int, rows: int, columns: int) -> DaskSource:
    """The table, in the workers' memory."""
    with client.as_current():
        rng = da.random.default_rng(0)
        table = rng.standard_normal((blocks * rows, columns), chunks=(rows, columns), dtype=np.float32).persist()
        wait(table)
        return DaskSource(table)


def asked(client: Client, source: DaskSource, query: Query) -> None:
    """One query to the workers of this client."""
    with client.as_current():
        source.total(query)
