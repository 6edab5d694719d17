"""Runs the repetitions of an experiment that are not in its file yet, over several processes of one thread each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm import tqdm

from dpem._threads import thread_limit
from studies.paper.reproduce.store import Point, Results, Store
from studies.paper.settings import Setting


@dataclass(frozen=True)
class Verdict:
    """Two or three sentences about the results, and a small table."""

    sentences: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A figure or table: its settings, how a repetition is computed, how the results are drawn and judged.

    ``prepare`` and ``repeat`` run in other processes, so they are functions of a module. ``protocol`` holds what
    decides the numbers besides the settings.
    """

    name: str
    title: str
    settings: tuple[Setting, ...]
    protocol: dict[str, Any]
    prepare: Callable[[Setting], Any]
    repeat: Callable[[Setting, Any, int], Sequence[Point]]
    draw: Callable[[Results, Path], None]
    judge: Callable[[Results], Verdict]


class Map(Protocol):
    """``map`` over processes, with results in the order in which they are finished."""

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any], /) -> Iterator[Any]: ...


def _alone() -> None:
    """Use one thread, and leave interruptions to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)


@contextmanager
def processes(workers: int) -> Iterator[Map]:
    """A ``map`` over processes, spawned since threads do not survive a fork; with one worker, over this process."""
    if workers == 1:
        with thread_limit(1), threadpool_limits(1):
            yield map
        return
    with multiprocessing.get_context("spawn").Pool(workers, initializer=_alone) as pool:
        yield pool.imap_unordered


def default_workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(experiment: Experiment, store: Store, reps: int, parallel: Map, progress: bool = True) -> Results:
    """Compute the missing ones of ``reps`` repetitions of each setting, and return the summary of the file."""
    missing = [(setting, rep) for rep in range(reps) for setting in experiment.settings if not store.has(setting, rep)]
    wanted = list(dict.fromkeys(setting for setting, _ in missing))
    store.open()
    pause = 0.1 if sys.stderr.isatty() else 30.0  # a log gets a line every half minute
    count = len(wanted) + len(missing)
    with tqdm(total=count, desc=experiment.name, unit="task", disable=not progress, mininterval=pause) as bar:
        prepared: dict[Setting, Any] = {}
        for setting, found in parallel(_prepare, [(experiment.prepare, setting) for setting in wanted]):
            prepared[setting] = found
            bar.update()
        tasks = [(experiment.repeat, setting, prepared[setting], rep) for setting, rep in missing]
        for setting, rep, points in parallel(_repeat, tasks):
            store.add(setting, rep, points)
            bar.update()
    store.close()
    return store.results()


def _prepare(task: tuple[Callable[[Setting], Any], Setting]) -> tuple[Setting, Any]:
    prepare, setting = task
    return setting, prepare(setting)


def _repeat(task: tuple[Callable[..., Sequence[Point]], Setting, Any, int]) -> tuple[Setting, int, Sequence[Point]]:
    repeat, setting, prepared, rep = task
    return setting, rep, repeat(setting, prepared, rep)
