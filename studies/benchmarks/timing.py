"""Timing of a piece of work and its floor in turns, so that a slow phase of the machine affects both."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Work = Callable[[], object]
Times = list[tuple[float, float]]


class Line(NamedTuple):
    """``clock`` and ``processor`` are ratios of best times, or of speeds where more is better, of the figure and its
    floor; of a line without a floor they are seconds.
    """

    figure: str
    floor: str
    clock: float
    processor: float
    goal: str

    @classmethod
    def of(cls, figure: str, floor: str, own: Times, under: Times, goal: str, *, speed: bool = False) -> Line:
        ratios = np.min(own, axis=0) / np.min(under, axis=0)
        return cls(figure, floor, *(1 / ratios if speed else ratios), goal)


def in_turns(work: dict[str, Work], repeats: int) -> dict[str, Times]:
    """Seconds by the clock and of all threads of each piece of work, in turns in random order."""
    taken: dict[str, Times] = {name: [] for name in work}
    rng = np.random.default_rng(0)
    for turn in range(repeats + 1):
        for name in rng.permutation(list(work)):
            time.sleep(0.2)  # lets the threads of the one before come to rest
            start, busy = time.perf_counter(), time.process_time()
            work[name]()
            if turn:  # the first compiles and warms
                taken[name].append((time.perf_counter() - start, time.process_time() - busy))
    return taken


def processor_seconds(work: dict[str, Work], repeats: int) -> dict[str, float]:
    """The least processor time of each piece of work, in turns: with one thread that is the speed of one core, on a
    busy machine too.
    """
    return {name: min(busy for _, busy in times) for name, times in in_turns(work, repeats).items()}
