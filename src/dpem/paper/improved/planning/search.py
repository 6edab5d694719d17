"""Choose the knobs by coordinate descent on common simulated tables, then estimate the error on fresh ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpem.paper.improved.planning.candidates import GRID, Knobs, Pipeline
from dpem.paper.improved.planning.simulate import Rehearsal, Twist
from dpem.query import FloatArray

#: Entries that each of the two stages may simulate: larger tables are fewer.
SEARCH_SIZE, CHECK_SIZE = 700_000, 1_600_000
SWEEPS = 2
#: Tables longer than this get one sweep only.
LONG = 10_000
#: Knobs are compared at this fraction of ρ, since a selection should succeed with a margin.
MARGIN = 0.8
#: Weight of the tables that depart from the assumptions, against 1 for those that follow them.
WEIGHT_OF_TWISTS = 0.6
#: The knobs that decide whether selections succeed.
SELECTING = ("share_select", "share_screen", "select_step", "entry", "residual")
#: Errors with a smaller relative difference are a tie, and the knobs stay.
TIE = 1e-9
#: Fixed, so that the same arguments give the same plan.
SEED = 20_240_501


#: Departures from the assumptions: small coefficients, more noise, less noise, less signal than assumed.
TWISTS = (Twist(decay=True), Twist(sigma=1.4), Twist(sigma=0.7), Twist(signal=0.7))


def tables(pipeline: Pipeline, size: int, least: int, most: int, seed: int) -> list[Rehearsal]:
    """As many simulated tables as ``size`` allows, between ``least`` and ``most``, that follow the assumptions."""
    p = pipeline.problem
    count = max(least, min(most, size // (p.rows * (p.s + p.built) + 4 * p.d)))
    return [Rehearsal(pipeline.problem, seed + 10 * i) for i in range(count)]


class Judge:
    """Compares knobs on common tables: errors as assumed and under each twist, relative to those of the first knobs."""

    def __init__(
        self, pipeline: Pipeline, rho: float, first: Knobs, size: int, least: int, most: int, seed: int
    ) -> None:
        self._pipeline, self._rho = pipeline, rho
        straight = tables(pipeline, size, least, most, seed)
        share = max(1, len(straight) // len(TWISTS))
        groups = [straight]
        for t, twist in enumerate(TWISTS):
            seeds = range(seed + 10_000 * (t + 1), seed + 10_000 * (t + 1) + 10 * share, 10)
            groups.append([Rehearsal(pipeline.problem, s, twist) for s in seeds])
        weights = [1.0] + [WEIGHT_OF_TWISTS / len(TWISTS)] * len(TWISTS)
        steps = pipeline.steps(first, rho)
        self._tables: list[tuple[Rehearsal, float]] = []
        for group, weight in zip(groups, weights, strict=True):
            reached = math.fsum(rehearsal.error(steps) for rehearsal in group)
            self._tables += [(rehearsal, weight / reached) for rehearsal in group]
        self.best = math.fsum(weights)

    def improves(self, knobs: Knobs) -> bool:
        """Whether these knobs beat the best so far by more than :data:`TIE`; if so, they become the best."""
        steps = self._pipeline.steps(knobs, self._rho)
        total, enough = 0.0, self.best * (1 - TIE)
        for rehearsal, weight in self._tables:
            total += weight * rehearsal.error(steps)
            if total >= enough:
                return False
        self.best = total
        return True


def choose(pipeline: Pipeline, rho: float) -> Knobs:
    """Move one knob at a time to a neighbouring value while that lowers the error on the same tables.

    Failed selections are rare but costly, and a few tables may contain none: the knobs of selecting steps are searched
    a second time on other, more tables.
    """
    knobs = pipeline.first()
    judge = Judge(pipeline, MARGIN * rho, knobs, SEARCH_SIZE, 2, 8, SEED)
    knobs = _descend(judge, knobs, pipeline.knobs(), SWEEPS if pipeline.problem.rows <= LONG else 1)
    selecting = [knob for knob in pipeline.knobs() if knob in SELECTING]
    if selecting:
        judge = Judge(pipeline, MARGIN * rho, knobs, CHECK_SIZE, 4, 16, SEED + 1_000_000)
        knobs = _descend(judge, knobs, selecting, 1)
    return knobs


def _descend(judge: Judge, knobs: Knobs, moving: Sequence[str], sweeps: int) -> Knobs:
    for _ in range(sweeps):
        before = judge.best
        for knob in moving:
            for direction in (1, -1):
                while (trial := _neighbour(knobs, knob, direction)) is not None and judge.improves(trial):
                    knobs = trial
        if judge.best == before:
            break
    return knobs


def _neighbour(knobs: Knobs, knob: str, direction: int) -> Knobs | None:
    grid = GRID[knob]
    there = int(np.argmin(np.abs(np.array(grid) - getattr(knobs, knob)))) + direction
    if not 0 <= there < len(grid):
        return None
    value: Any = grid[there]
    return replace(knobs, **{knob: value})


def estimate(pipeline: Pipeline, knobs: Knobs, rho: float) -> FloatArray:
    """Errors of the chosen knobs on tables the search has not seen.

    Where n exceeds the simulated rows, the squared error without noise is scaled by rows/n.
    """
    pipeline = replace(pipeline, problem=replace(pipeline.problem, final=True))
    p = pipeline.problem
    fresh = tables(pipeline, CHECK_SIZE, 6, 32, SEED + 2_000_000)
    steps = pipeline.steps(knobs, rho)
    errors = np.array([rehearsal.error(steps) for rehearsal in fresh])
    if p.n > p.rows:
        noiseless = tuple(replace(step, rho=math.inf) for step in steps)
        sampling = np.array([rehearsal.error(noiseless) for rehearsal in fresh])
        errors = np.sqrt(np.maximum(errors**2 - sampling**2, 0.0) + sampling**2 * p.rows / p.n)
    return errors


def rough_error(pipeline: Pipeline, knobs: Knobs, rho: float) -> float:
    """Mean error on a few tables: enough to distinguish a useful fit from a useless one."""
    steps = pipeline.steps(knobs, rho)
    return float(np.mean([rehearsal.error(steps) for rehearsal in tables(pipeline, 1, 3, 3, SEED + 3_000_000)]))
