"""Parallel work on threads of this process.

Compiled loops and NumPy release the interpreter's lock, so Python threads are enough: they may be started from any
thread, several sums may run at once, and an error in one of them is raised by the call.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np


class _ThreadLimit(threading.local):
    threads: int | None = None


_allowed = _ThreadLimit()
_pool: ThreadPoolExecutor | None = None
_opening = threading.Lock()
_contexts = 0
_limit: Any = None

#: Parameters of glibc's allocator (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def thread_count() -> int:
    """The number of threads for a sum: the cores of this process, or ``OMP_NUM_THREADS`` if that is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, min(cores, int(limit))) if limit.isdigit() else cores


@functools.cache
def keep_memory() -> None:
    """Let the C library reuse the memory of temporary arrays, up to some tens of MiB.

    glibc returns unused memory to the system above a threshold, and mapping its pages again can take several times as
    long as the computation. The threshold grows with the blocks that a process frees, unless an environment variable
    fixes it, as Dask does for its workers. Other allocators are not affected.
    """
    with suppress(AttributeError, OSError, TypeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_TRIM_THRESHOLD, 64 << 20)
        allocator.mallopt(_MMAP_THRESHOLD, 32 << 20)


@contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """Limit the number of threads for sums of this thread; 1 is the calling thread alone."""
    before, _allowed.threads = _allowed.threads, threads
    try:
        yield
    finally:
        _allowed.threads = before


def run_in_parallel(work: Callable[[int], None], tasks: int) -> None:
    """``work(0)``, …, ``work(tasks − 1)``, in any order and several at a time, without NumPy's floating-point warnings.

    >>> squares = [0] * 5
    >>> run_in_parallel(lambda task: squares.__setitem__(task, task * task), 5)
    >>> squares
    [0, 1, 4, 9, 16]
    """
    keep_memory()
    threads = min(tasks, _allowed.threads or thread_count())
    tickets = itertools.count()  # taking the next one is a single step of the interpreter

    def run() -> None:
        with np.errstate(all="ignore"):
            while (task := next(tickets)) < tasks:
                work(task)

    if threads <= 1:
        run()
        return
    helpers = [_threads().submit(run) for _ in range(threads - 1)]
    try:
        run()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()


@contextmanager
def single_blas() -> Iterator[None]:
    """Run matrix products of this process on one thread each: a second thread costs more than it saves for products of
    few columns, which already run in parallel. Contexts may overlap; the last one to end restores the previous limit.
    """
    global _contexts, _limit
    keep_memory()
    with _opening:
        _contexts += 1
        if _contexts == 1:
            _limit = _controller().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _opening:
            _contexts -= 1
            if _contexts == 0 and _limit is not None:
                _limit.restore_original_limits()
                _limit = None


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _opening:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, thread_count() - 1), thread_name_prefix="dpem")
        return _pool


def _reset_after_fork() -> None:
    """A forked process has none of its parent's threads."""
    global _pool, _opening, _contexts, _limit
    _pool, _opening, _contexts, _limit = None, threading.Lock(), 0, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
