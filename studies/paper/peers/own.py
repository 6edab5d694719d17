"""The methods of this package: the improved, the paper's, the baselines, and non-private EM, each on given tables.

Settings that a method leaves open are tuned as the peers' are: a small grid, mean error over practice tables.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpem._threads import thread_limit
from dpem.paper.models import MODELS
from dpem.privacy import Account, Curator, SeededNoise, largest_price
from dpem.query import FloatArray
from dpem.tables import ArraySource
from studies.paper.baselines.simple import clipped_gradient_em, spectral
from studies.paper.baselines.wang2020 import prescribed, sampling_only, wang2020
from studies.paper.peers.data import PRACTICE_SEED, SIGNAL, Problem, Table

Settings = dict[str, Any]
Fit = Callable[[Table, int, Settings], FloatArray]


@dataclass(frozen=True)
class Method:
    """A fit of (table, seed, settings), whether it uses the table's start, and the settings to choose among."""

    name: str
    fit: Fit
    start: bool
    grid: tuple[Settings, ...] = ({},)
    private: bool = True


@dataclass(frozen=True)
class Outcome:
    """Estimates of one method on the tables of one problem."""

    method: str
    start: bool
    guarantee: str
    estimates: tuple[FloatArray, ...]
    seconds: tuple[float, ...]
    tuning_seconds: float
    settings: Settings


def methods(problem: Problem) -> list[Method]:
    """Those that apply to this problem."""
    setting = problem.setting
    missing, dense = setting.model == "missing-regression", setting.dense
    out = [Method("dpem", _estimator(problem), start=setting.start_distance is not None)]
    if setting.model == "symmetric-regression" and dense:
        out.append(Method("dpem, start given", _estimator(problem, start=True), start=True))
    out.append(
        Method("the paper's method, as prescribed", _estimator(problem, start=True, method="published"), start=True)
    )
    if dense:
        out += _wang(problem)
        if not missing:
            out.append(Method("noisy covariance alone", _spectral(problem), False, _radii(problem)))
    out.append(Method("clipped gradient EM", _clipped(problem), True, _clipped_grid(problem)))
    name = "gradient EM, not private" if dense else "truncated gradient EM, not private"
    reference = _estimator(problem, start=True, epsilon=math.inf, n_iter=30)
    out.append(Method(name, reference, start=True, private=False))
    return out


def run(problem: Problem, method: Method, tables: list[Table]) -> Outcome:
    """Tune on practice tables, then fit every table. The first fit of a kind also chooses a plan: that is tuning."""
    estimates, seconds = [], []
    with thread_limit(1):
        started = time.process_time()
        settings = tuned(problem, method)
        tuning = time.process_time() - started
        for seed, table in enumerate(tables):
            started = time.process_time()
            estimates.append(method.fit(table, seed, settings))
            seconds.append(time.process_time() - started)
    setting = problem.setting
    guarantee = f"({setting.epsilon:g}, {setting.delta:.2g}), replace" if method.private else "none"
    return Outcome(method.name, method.start, guarantee, tuple(estimates), tuple(seconds), tuning, settings)


def tuned(problem: Problem, method: Method) -> Settings:
    """The settings with the smallest mean error over practice tables (whose seeds no table of the comparison has)."""
    if len(method.grid) == 1:
        method.fit(problem.table(PRACTICE_SEED), PRACTICE_SEED, method.grid[0])  # makes the plan, if there is one
        return method.grid[0]
    practice = [problem.table(PRACTICE_SEED + i) for i in range(problem.practice)]

    def mean_error(settings: Settings) -> float:
        fits = (method.fit(table, PRACTICE_SEED + i, settings) for i, table in enumerate(practice))
        return float(np.mean([problem.setting.error(beta) for beta in fits]))

    return min(method.grid, key=mean_error)


def _estimator(problem: Problem, *, start: bool = False, **changes: object) -> Fit:
    given = start or problem.setting.start_distance is not None

    def fit(table: Table, seed: int, settings: Settings) -> FloatArray:
        own: dict[str, object] = {"start": table.start} if given else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = problem.setting.estimator(random_state=seed, **own, **changes)
            return np.asarray(model.fit(table.X, table.y).coef_)

    return fit


def _curator(problem: Problem, table: Table, seed: int) -> Curator:
    account = Account(problem.setting.epsilon, problem.setting.delta, gaussian=True)
    return Curator(ArraySource(table.X, table.y), account, SeededNoise(seed))


def _rho(problem: Problem) -> float:
    return largest_price(problem.setting.epsilon, problem.setting.delta, gaussian=True).rho


def _model(problem: Problem) -> Any:
    return MODELS[problem.setting.model](problem.setting.sigma)


def _wang(problem: Problem) -> list[Method]:
    setting = problem.setting
    budget: dict[str, Any] = {"epsilon": setting.epsilon, "delta": setting.delta}
    v = SIGNAL**2 + setting.sigma**2
    balanced = prescribed(setting.n, setting.d, **budget, second_moment=v)
    unbalanced = sampling_only(setting.n, setting.d, second_moment=v)

    def fit(table: Table, seed: int, settings: Settings) -> FloatArray:
        return wang2020(_curator(problem, table, seed), _model(problem), table.start, **budget, **settings)

    grid = [
        balanced._replace(n_iter=n_iter, step=step, scale=scale)._asdict()
        for n_iter, step, scale in itertools.product((1, 2, 4, 8), (0.5, 1.0), (0.7, 1.5, 3.0))
    ]
    return [
        Method("Wang et al. 2020, scale of the robust mean", fit, True, (unbalanced._asdict(),)),
        Method("Wang et al. 2020, scale balanced with the noise", fit, True, (balanced._asdict(),)),
        Method("Wang et al. 2020, tuned", fit, True, tuple(grid)),
    ]


def _clipped(problem: Problem) -> Fit:
    def fit(table: Table, seed: int, settings: Settings) -> FloatArray:
        curator = _curator(problem, table, seed)
        common = {"rho": _rho(problem), "s": problem.sparsity, **settings}
        return clipped_gradient_em(curator, _model(problem), table.start, **common)

    return fit


def _clipped_grid(problem: Problem) -> tuple[Settings, ...]:
    """Radii around σ√d, the length of a gradient at the truth."""
    length = problem.setting.sigma * math.sqrt(problem.setting.d)
    return tuple(
        {"n_iter": n_iter, "step": step, "radius": factor * length}
        for n_iter, step, factor in itertools.product((1, 2, 3, 5, 8, 12), (0.5, 1.0, 2.0, 4.0), (0.5, 0.8, 1.2, 1.8))
    )


def _spectral(problem: Problem) -> Fit:
    def fit(table: Table, seed: int, settings: Settings) -> FloatArray:
        curator = _curator(problem, table, seed)
        return spectral(curator, _model(problem), rho=_rho(problem), signal=SIGNAL, **settings)

    return fit


def _radii(problem: Problem) -> tuple[Settings, ...]:
    """Radii around the length of a row."""
    setting = problem.setting
    mixture = setting.model == "symmetric-mixture"
    length = math.sqrt(SIGNAL**2 + setting.d * setting.sigma**2) if mixture else math.sqrt(setting.d)
    return tuple({"radius": factor * length} for factor in (0.3, 0.5, 0.8, 1.0, 1.3))
