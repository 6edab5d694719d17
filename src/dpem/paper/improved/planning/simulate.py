"""Rehearse a fit on simulated data: the real steps on a narrow simulated table, the empty columns drawn as summary
statistics.

A plan must not read data, but the model, the assumed signal and n, d, s determine the law of everything a fit would
see. So the planner runs the fit itself, on rows it draws from the model. Only the s columns with signal and a few
empty ones are built; the scores of the other empty columns are independent and alike, so they are drawn from a normal
distribution whose mean and variance the built ones show. A rehearsal costs O(n·s + d) and says nothing about any real
record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpem.paper.improved.planning.simulated_rows import SameNoise, SimulatedRows
from dpem.paper.improved.steps import Step
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.state import PaperState
from dpem.privacy import Account, Curator, mechanisms
from dpem.privacy.accounting import Price
from dpem.query import FloatArray, Query

Model = SymmetricMixture | SymmetricRegression | MissingRegression

#: Empty columns that are really built, beyond which they are drawn as scores.
BUILT = 12
#: Rows that are really built; with more, the predicted error is corrected. A private start of the regressions hangs on
#: sampling error, so it gets more, and the final estimate more still.
ROWS, MORE_ROWS, MOST_ROWS = 8_000, 20_000, 50_000
#: Entries of simulated tables that are kept, more than one plan draws of few columns: 64 MB, twice with clipped copies.
KEPT = 2**24


@dataclass(frozen=True)
class Problem:
    """What a plan assumes: the sizes, which are public, and the model's parameters, which are the user's guess."""

    model: Model
    n: int
    d: int
    s: int
    signal: float
    missing: float = 0.0
    start_distance: float | None = None
    final: bool = False  # the estimate of the chosen plan, worth longer tables
    rows_per_person: int = 1

    @property
    def rows(self) -> int:
        hard = isinstance(self.model, SymmetricRegression) and self.start_distance is None
        return min(self.n, (MOST_ROWS if self.final else MORE_ROWS) if hard else ROWS)

    @property
    def dtype(self) -> type[np.floating]:
        """float32, twice as fast, where its rounding is far below the noise of a row."""
        sigma, signal = self.model.sigma, self.signal
        fine = 0.01 * signal <= sigma <= 100 * signal and 1e-6 <= sigma <= 1e6
        return np.float32 if fine else np.float64

    @property
    def built(self) -> int:
        return min(self.d - self.s, BUILT)


@dataclass(frozen=True)
class Twist:
    """How the simulated truth departs from what the plan assumes: a plan should survive a wrong guess."""

    sigma: float = 1.0  # true σ over assumed
    signal: float = 1.0  # true ‖β‖ over assumed
    decay: bool = False  # coefficients falling off as 1/j instead of equal


AS_ASSUMED = Twist()


class Rehearsal:
    """One simulated table and the truth behind it. Candidate plans are compared on the same tables."""

    def __init__(self, problem: Problem, seed: int, twist: Twist = AS_ASSUMED) -> None:
        self.problem = problem
        self._seed = seed
        self._states: dict[tuple[Step, ...], PaperState] = {}
        self._curators: dict[int, RehearsalCurator] = {}
        self.beta, self._source, self.start = _kept(problem, seed, twist)

    def error(self, steps: Sequence[Step]) -> float:
        """‖β̂ − β‖ (up to sign, for mixtures) after the steps."""
        beta = self._after(tuple(steps)).beta
        distance = float(np.linalg.norm(beta - self.beta))
        if not isinstance(self.problem.model, MissingRegression):
            distance = min(distance, float(np.linalg.norm(beta + self.beta)))
        return distance

    def _after(self, steps: tuple[Step, ...]) -> PaperState:
        """The state after some steps. Each step has noise of its own, so plans that begin alike share that."""
        if not steps:
            beta = np.zeros_like(self.beta) if self.start is None else self.start
            return PaperState(beta, np.arange(len(beta)))
        if steps not in self._states:
            before = self._after(steps[:-1])
            if len(steps) not in self._curators:
                self._curators[len(steps)] = RehearsalCurator(self._source, self.problem, self._seed + 3 * len(steps))
            curator = self._curators[len(steps)]
            self._states[steps] = steps[-1].run(curator, self.problem.model, before)  # type: ignore[arg-type]
        return self._states[steps]


Drawn = tuple[FloatArray, SimulatedRows, FloatArray | None]
_held: dict[tuple[Problem, int, Twist], Drawn] = {}


def _kept(problem: Problem, seed: int, twist: Twist) -> Drawn:
    """What is drawn, once: none of it depends on a price, so plans of one table at several ε are rehearsed on the same
    rows, which remember what they have answered.
    """
    key = (problem, seed, twist)
    if (found := _held.get(key)) is None:
        found = _drawn(problem, seed, twist)
        if sum(rows.entries for _, rows, _ in list(_held.values())) + found[1].entries > KEPT:
            _held.clear()
        _held[key] = found
    return found


def _drawn(problem: Problem, seed: int, twist: Twist) -> Drawn:
    """A truth, rows that follow it, and where EM begins."""
    rng = np.random.default_rng(seed)
    width = problem.s + problem.built
    beta = np.zeros(width)
    beta[: problem.s] = 1 / np.arange(1, problem.s + 1) if twist.decay else 1.0
    beta *= twist.signal * problem.signal / np.linalg.norm(beta)
    model = replace(problem.model, sigma=twist.sigma * problem.model.sigma)
    y: FloatArray | None = None
    if isinstance(model, SymmetricMixture):
        X, _ = model.sample(beta, problem.rows, rng)
    else:
        X = rng.standard_normal((problem.rows, width))
        if isinstance(model, SymmetricRegression):
            y, _ = model.sample(beta, X, rng)
        else:
            y = model.sample(beta, X, rng)
            X[rng.random(X.shape) < problem.missing] = np.nan
    start = None
    if problem.start_distance is not None:
        direction = np.zeros(width)
        direction[: problem.s] = rng.standard_normal(problem.s)
        start = beta + problem.start_distance * direction / np.linalg.norm(direction)
    return beta, SimulatedRows(X, y, problem.dtype), start


class RehearsalCurator(Curator):
    """A curator of simulated rows that stands for a table of n rows and d columns: noise as for the real one, the same
    at every query. The rows are simulated, so it keeps no account and leaves out what guards a real sum.
    """

    _noise: SameNoise

    def __init__(self, source: SimulatedRows, problem: Problem, seed: int) -> None:
        noise = SameNoise(seed + 1)
        super().__init__(source, Account(math.inf, 0.5), noise, rows_per_person=problem.rows_per_person)
        self._problem = problem
        self._unbuilt = SameNoise(seed + 2)

    @property
    def n_rows(self) -> int:
        return self._problem.n

    def sensitivity(self, query: Query, norm: str) -> float:
        bound = query.bound
        return self.rows_per_person * ((bound.linf if norm == "linf" else bound.l2) / self._problem.n)

    def _mean(self, query: Query) -> FloatArray:
        return self._source.total(query) / self._problem.rows

    def measure(self, query: Query, rho: float) -> FloatArray:
        price = Price(rho, gaussian=True)
        return mechanisms.gaussian(self._noise, self._mean(query), self.sensitivity(query, "l2"), price)

    def select(
        self, query: Query, k: int, rho: float, *, offset: FloatArray | float = 0.0, step: float = 1.0
    ) -> NDArray[np.intp]:
        mean = self._mean(query)
        v = np.abs(offset + step * mean)
        empty = mean[self._problem.s :]
        shown = self._problem.s + self._problem.built
        if self._problem.d > shown:
            spread = empty.std(ddof=1) * math.sqrt(self._problem.rows / self._problem.n)
            drawn = empty.mean() + spread * self._unbuilt.normal(self._problem.d - shown)
            v = np.concatenate([v, np.abs(step * drawn)])
        sensitivity = abs(step) * self.sensitivity(query, "linf")
        chosen = mechanisms.noisy_top_k(self._noise, v, k, sensitivity, Price(rho), 0.0)
        real = chosen[chosen < shown]
        free = np.ones(shown, dtype=bool)
        free[: self._problem.s] = free[real] = False
        return np.concatenate([real, np.flatnonzero(free)[: k - len(real)]])
