"""Rehearsals of wide fits: the real steps on simulated tables with few columns; of other columns only scores are drawn.

A plan must not read data, but the model, the assumed signal and n, d, s determine the distribution of the data. So the
planner runs the fit on rows that it draws from the model. Only the s columns with signal and a few null columns (with
coefficient 0) are simulated. The scores of the other null columns are independent and identically distributed: they
are drawn from the normal distribution with the mean and variance of the simulated ones. A rehearsal takes O(n·s + d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.rehearsal import SimulatedCurator
from dpem.paper.missing_regression import MissingRegression
from dpem.paper.models import Model, SymmetricMixture, SymmetricRegression
from dpem.paper.planning.simulated_rows import SameNoise, SimulatedRows
from dpem.paper.steps import ImprovedStep, PaperState
from dpem.privacy import mechanisms
from dpem.privacy.accounting import Price
from dpem.query import FloatArray, Query

#: Null columns that are simulated.
NULL_COLUMNS = 12
#: Rows that are simulated at most; for longer tables the predicted error is corrected. A private start of the mixture
#: of regressions needs many rows, so plans with one use MORE_ROWS, and MOST_ROWS for the final prediction.
ROWS, MORE_ROWS, MOST_ROWS = 8_000, 20_000, 50_000


@dataclass(frozen=True)
class Problem:
    """What a plan assumes: the table's size, and the user's guess of the model's parameters."""

    model: Model
    n: int
    d: int
    s: int
    signal: float
    missing: float = 0.0
    start_distance: float | None = None
    final: bool = False  # whether the error of the chosen plan is predicted, on longer tables
    rows_per_person: int = 1

    @property
    def private_start(self) -> bool:
        """Whether a fit estimates its starting value; with missing covariates EM starts at 0."""
        return self.start_distance is None and not isinstance(self.model, MissingRegression)

    @property
    def sparse(self) -> bool:
        """Whether a fit selects coordinates."""
        return self.s < self.d

    @property
    def rows(self) -> int:
        """The number of simulated rows."""
        hard = isinstance(self.model, SymmetricRegression) and self.private_start
        return min(self.n, (MOST_ROWS if self.final else MORE_ROWS) if hard else ROWS)

    @property
    def dtype(self) -> type[np.floating]:
        """float32, which is twice as fast, if its rounding is far below the noise of a row."""
        sigma, signal = self.model.sigma, self.signal
        float32_suffices = 0.01 * signal <= sigma <= 100 * signal and 1e-6 <= sigma <= 1e6
        return np.float32 if float32_suffices else np.float64

    @property
    def width(self) -> int:
        """The number of simulated columns."""
        return min(self.d, self.s + NULL_COLUMNS)

    def tables(self, size: int, least: int, most: int) -> int:
        """The number of simulated tables with ``size`` numbers in all, between ``least`` and ``most``."""
        return max(least, min(most, size // (self.rows * self.width + 4 * self.d)))


@dataclass(frozen=True)
class Departure:
    """A difference of the simulated truth from the plan's assumptions, to which a plan should be robust."""

    sigma: float = 1.0  # true σ over assumed
    signal: float = 1.0  # true ‖β‖ over assumed
    decay: bool = False  # coefficients falling off as 1/j instead of equal


AS_ASSUMED = Departure()


class Rehearsal:
    """One simulated table and its true β. Candidate plans are compared on the same tables."""

    def __init__(self, problem: Problem, seed: int, departure: Departure = AS_ASSUMED) -> None:
        self.problem = problem
        self.beta, rows, self.start = _simulated(problem, seed, departure)
        self._curator = cache(lambda position: RehearsalCurator(rows, problem, seed + 3 * position))
        self._states: dict[tuple[ImprovedStep, ...], PaperState] = {(): PaperState.at(self.start, len(self.beta))}

    def error(self, steps: Sequence[ImprovedStep]) -> float:
        """‖β̂ − β‖ (up to sign, for mixtures) after the steps."""
        beta = self._after(tuple(steps)).beta
        distance = float(np.linalg.norm(beta - self.beta))
        if not isinstance(self.problem.model, MissingRegression):
            distance = min(distance, float(np.linalg.norm(beta + self.beta)))
        return distance

    def _after(self, steps: tuple[ImprovedStep, ...]) -> PaperState:
        """The state after these steps, cached. The noise of a step depends on its position alone."""
        if steps not in self._states:
            before, curator = self._after(steps[:-1]), self._curator(len(steps))
            self._states[steps] = steps[-1].run(curator, self.problem.model, before)  # type: ignore[arg-type]
        return self._states[steps]


def rehearsals(problem: Problem, count: int, seed: int, departure: Departure = AS_ASSUMED) -> list[Rehearsal]:
    """``count`` simulated tables, each from its own seed."""
    return [Rehearsal(problem, seed + 10 * i, departure) for i in range(count)]


def _simulated(
    problem: Problem, seed: int, departure: Departure
) -> tuple[FloatArray, SimulatedRows, FloatArray | None]:
    """The true β, rows drawn from it, and the starting value (None: a private start)."""
    rng = np.random.default_rng(seed)
    width = problem.width
    beta = np.zeros(width)
    beta[: problem.s] = 1 / np.arange(1, problem.s + 1) if departure.decay else 1.0
    beta *= departure.signal * problem.signal / np.linalg.norm(beta)
    model = replace(problem.model, sigma=departure.sigma * problem.model.sigma)
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


class RehearsalCurator(SimulatedCurator):
    """A curator of simulated rows with the noise of a table of n rows and d columns, the same at every query."""

    def __init__(self, source: SimulatedRows, problem: Problem, seed: int) -> None:
        super().__init__(source, problem.n, seed, problem.rows_per_person)
        self._problem = problem
        self._noise = SameNoise(seed + 1)
        self._scores = SameNoise(seed + 2)

    def select(
        self, query: Query, k: int, rho: float, *, offset: FloatArray | float = 0.0, step: float = 1.0
    ) -> NDArray[np.intp]:
        mean = self._mean(query)
        v = np.abs(offset + step * mean)
        null_scores, width = mean[self._problem.s :], self._problem.width
        if self._problem.d > width:
            spread = null_scores.std(ddof=1) * math.sqrt(self._problem.rows / self._problem.n)
            drawn = null_scores.mean() + spread * self._scores.normal(self._problem.d - width)
            v = np.concatenate([v, np.abs(step * drawn)])
        sensitivity = abs(step) * self.sensitivity(query, "linf")
        chosen = mechanisms.noisy_top_k(self._noise, v, k, sensitivity, Price(rho), 0.0)
        simulated = chosen[chosen < width]
        free_null = np.ones(width, dtype=bool)
        free_null[: self._problem.s] = free_null[simulated] = False
        # A simulated null column stands for a chosen one of which only the score was drawn.
        return np.concatenate([simulated, np.flatnonzero(free_null)[: k - len(simulated)]])
