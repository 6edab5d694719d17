"""Settings of the improved method: the steps of a fit with given settings, and the search for the best settings.

A setting is a multiple of a scale of the model, such as σ√s for a contribution on a support or the residual's standard
deviation, so that one starting point and one small grid serve problems of every size. Coordinate descent on the same
simulated tables chooses the settings; the error is then estimated on new tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpem.paper.missing_regression import MissingRegression
from dpem.paper.models import SymmetricMixture
from dpem.paper.planning.rehearsal import Departure, Problem, Rehearsal, rehearsals
from dpem.paper.queries import Clip
from dpem.paper.steps import ImprovedStep, Refine, Screen, Select, Start
from dpem.query import FloatArray


@dataclass(frozen=True)
class Settings:
    """Dimensionless settings of the improved method; ``share_*`` are relative shares of ρ."""

    screened: float = 1.0  # coordinates screened, as a multiple of s
    share_screen: float = 4.0
    share_start: float = 0.7
    share_select: float = 2.0
    share_refine: float = 4.0
    entry: float = 0.6  # clip of an entry, in units of its standard deviation
    residual: float = 0.7  # clip of a residual, in units of its standard deviation
    select_step: float = 1.5  # η of the selecting step, above 1 since its clips shrink the gradient
    radius: float = 1.0  # ℓ2 clip of a contribution on the support, in units of its typical norm
    start_radius: float = 1.0  # ℓ2 clip of a row for the start, in units of its typical norm
    n_refine: int = 2
    growth: float = 2.0  # price of a refining step, as a multiple of that of the one before
    step: float = 1.0  # η of a refining step


#: The values that the search tries, the most influential setting first. No share is 0: every query has a price.
GRID: dict[str, tuple[float, ...]] = {
    "share_refine": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0),
    "share_screen": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0),
    "share_select": (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0),
    "select_step": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
    "share_start": (0.2, 0.4, 0.7, 1.0, 1.5, 2.0),
    "radius": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.8),
    "n_refine": (1, 2, 3, 4, 5, 6, 8),
    "growth": (1.0, 1.4, 2.0, 3.0, 5.0, 8.0),
    "step": (0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5, 1.8),
    "entry": (0.3, 0.6, 1.0, 1.4, 1.8, 2.5),
    "residual": (0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0),
    "screened": (0.6, 0.8, 1.0, 1.25, 1.6),
    "start_radius": (0.8, 1.0, 1.2, 1.5),
}

#: The largest ratio of the last refining step's price to the first one's, for plans with many refining steps.
MOST_GROWTH = 1e9


@dataclass(frozen=True)
class Pipeline:
    """The improved method for a problem; ``fixed`` are the settings that the user gave."""

    problem: Problem
    fixed: tuple[tuple[str, float], ...] = ()

    def first(self) -> Settings:
        """The settings at which the search starts: the user's, else the defaults."""
        return replace(Settings(), **dict(self.fixed))  # type: ignore[arg-type]

    def free(self) -> list[str]:
        """The names of the settings that the search chooses."""
        unused = {name for name, _ in self.fixed}
        private_start, sparse = self.problem.private_start, self.problem.sparse
        if not (private_start and sparse):
            unused |= {"share_screen", "screened"}
        if not private_start:
            unused |= {"share_start", "start_radius"}
        if not sparse:
            unused |= {"share_select", "entry", "residual", "select_step"}
        if isinstance(self.problem.model, SymmetricMixture):
            unused |= {"residual", "select_step"}
        if isinstance(self.problem.model, MissingRegression):
            unused |= {"select_step"}  # its EM starts at 0, where the step size does not change the order of scores
        return [name for name in GRID if name not in unused]

    def steps(self, settings: Settings, rho: float) -> tuple[ImprovedStep, ...]:
        """The steps of a fit with these settings. Their prices add up to ρ."""
        p, free = self.problem, self.free()
        shares = {name: getattr(settings, name) for name in free if name.startswith("share_")}
        unit = rho / math.fsum(shares.values())
        steps: list[ImprovedStep] = []
        k = p.s
        if "share_screen" in shares:
            k = max(2, min(p.d, round(settings.screened * p.s)))
            steps.append(Screen(shares["share_screen"] * unit, k, p.signal, p.s))
        if "share_start" in shares:
            steps.append(Start(shares["share_start"] * unit, settings.start_radius * self._row_norm(k), p.signal))
        if "share_select" in shares:
            step = settings.select_step if "select_step" in free else 1.0
            steps.append(Select(shares["share_select"] * unit, p.s, self._clip(settings), step))
        ratio = min(float(settings.growth), MOST_GROWTH ** (1 / settings.n_refine))
        growth = np.power(ratio, np.arange(settings.n_refine))
        for share, norm in zip(growth / growth.sum(), self._norms(settings.n_refine), strict=True):
            price = float(share) * shares["share_refine"] * unit
            steps.append(Refine(price, settings.radius * float(norm), settings.step))
        return tuple(steps)

    def _row_norm(self, k: int) -> float:
        """The typical norm of a row on k screened coordinates."""
        p = self.problem
        if isinstance(p.model, SymmetricMixture):
            return math.sqrt(min(1.0, k / p.s) * p.signal**2 + k * p.model.sigma**2)
        return math.sqrt(k)

    def _clip(self, settings: Settings) -> Clip:
        p = self.problem
        if isinstance(p.model, SymmetricMixture):
            return Clip(settings.entry * p.model.sigma)
        return Clip(settings.entry, settings.residual * math.hypot(p.model.sigma, self._distance()))

    def _norms(self, count: int) -> np.ndarray:
        """The typical norm of a contribution at each refining step. Residuals get smaller as β improves."""
        p = self.problem
        sigma, root = p.model.sigma, math.sqrt(p.s)
        if isinstance(p.model, SymmetricMixture):
            return np.full(count, sigma * root)
        last = sigma
        if isinstance(p.model, MissingRegression):
            last = sigma**2 / math.sqrt(sigma**2 + p.missing * p.signal**2)
        return np.geomspace(math.hypot(sigma, self._distance()), last, count + 1)[:count] * root

    def _distance(self) -> float:
        """The assumed distance of β from the truth before the first EM step."""
        p = self.problem
        if isinstance(p.model, MissingRegression):
            return p.signal
        return PRIVATE_START_DISTANCE * p.signal if p.private_start else (p.start_distance or 0.0)


#: The assumed distance of a private start from the truth, as a fraction of the signal.
PRIVATE_START_DISTANCE = 0.3
#: Numbers that the search, and then the check, simulate: if tables are large, there are few.
SEARCH_SIZE, CHECK_SIZE = 700_000, 1_600_000
#: With more simulated rows the search makes one sweep instead of two.
LONG = 10_000
#: Settings are compared at this fraction of ρ, so that selections succeed with a margin.
MARGIN = 0.8
#: The weight of tables that depart from the assumptions, where tables that follow them have weight 1.
WEIGHT_OF_DEPARTURES = 0.6
#: The settings that decide whether selections succeed.
SELECTING = ("share_select", "share_screen", "select_step", "entry", "residual")
#: Settings are replaced only if the relative improvement of the error is larger.
TIE = 1e-9
#: Fixed, so that the same arguments give the same plan.
SEED = 20_240_501
#: Departures from the assumptions: unequal coefficients, more noise, less noise, less signal.
DEPARTURES = (Departure(decay=True), Departure(sigma=1.4), Departure(sigma=0.7), Departure(signal=0.7))


class Comparison:
    """Compares settings by their errors on the same tables, relative to the errors of the first settings.

    Some tables follow the plan's assumptions, the others depart from them.
    """

    def __init__(self, pipeline: Pipeline, rho: float, first: Settings, count: int, seed: int) -> None:
        self._pipeline, self._rho = pipeline, rho
        groups = [(1.0, rehearsals(pipeline.problem, count, seed))]
        per_departure = max(1, count // len(DEPARTURES))
        for t, departure in enumerate(DEPARTURES, start=1):
            group = rehearsals(pipeline.problem, per_departure, seed + 10_000 * t, departure)
            groups.append((WEIGHT_OF_DEPARTURES / len(DEPARTURES), group))
        steps = pipeline.steps(first, rho)
        self._tables: list[tuple[Rehearsal, float]] = []
        for weight, group in groups:
            total = math.fsum(rehearsal.error(steps) for rehearsal in group)
            self._tables += [(rehearsal, weight / total) for rehearsal in group]
        self.best = 1.0 + WEIGHT_OF_DEPARTURES

    def improves(self, settings: Settings) -> bool:
        """Whether the error is below the best so far; if so, it becomes the best."""
        steps = self._pipeline.steps(settings, self._rho)
        total, limit = 0.0, self.best * (1 - TIE)
        for rehearsal, weight in self._tables:
            total += weight * rehearsal.error(steps)
            if total >= limit:
                return False
        self.best = total
        return True


def choose(pipeline: Pipeline, rho: float) -> Settings:
    """Coordinate descent: move one setting at a time to a neighbouring value of its grid while the error gets smaller.

    Failed selections are rare but costly, and a few tables may contain none: so the settings of the selecting steps
    are searched a second time, on more and other tables.
    """
    settings, problem = pipeline.first(), pipeline.problem
    comparison = Comparison(pipeline, MARGIN * rho, settings, problem.tables(SEARCH_SIZE, 2, 8), SEED)
    settings = _descend(comparison, settings, pipeline.free(), 2 if problem.rows <= LONG else 1)
    if selecting := [name for name in pipeline.free() if name in SELECTING]:
        count = problem.tables(CHECK_SIZE, 4, 16)
        comparison = Comparison(pipeline, MARGIN * rho, settings, count, SEED + 1_000_000)
        settings = _descend(comparison, settings, selecting, 1)
    return settings


def _descend(comparison: Comparison, settings: Settings, names: Sequence[str], sweeps: int) -> Settings:
    for _ in range(sweeps):
        before = settings
        for name, direction in itertools.product(names, (1, -1)):
            while (trial := _neighbour(settings, name, direction)) is not None and comparison.improves(trial):
                settings = trial
        if settings == before:
            break
    return settings


def _neighbour(settings: Settings, name: str, direction: int) -> Settings | None:
    """The settings with the next value of one of them on its grid; None at the end of the grid."""
    grid = GRID[name]
    position = int(np.argmin(np.abs(np.array(grid) - getattr(settings, name)))) + direction
    return replace(settings, **{name: grid[position]}) if 0 <= position < len(grid) else None  # type: ignore[arg-type]


def estimate(pipeline: Pipeline, settings: Settings, rho: float) -> FloatArray:
    """The errors of the chosen settings on new tables.

    If n exceeds the number of simulated rows, the squared sampling error is multiplied by rows/n.
    """
    p = replace(pipeline.problem, final=True)
    steps = replace(pipeline, problem=p).steps(settings, rho)
    fresh = rehearsals(p, p.tables(CHECK_SIZE, 6, 32), SEED + 2_000_000)
    errors = np.array([rehearsal.error(steps) for rehearsal in fresh])
    if p.n > p.rows:
        noiseless = tuple(replace(step, rho=math.inf) for step in steps)
        sampling = np.array([rehearsal.error(noiseless) for rehearsal in fresh])
        errors = np.sqrt(np.maximum(errors**2 - sampling**2, 0.0) + sampling**2 * p.rows / p.n)
    return errors


def rough_error(pipeline: Pipeline, settings: Settings, rho: float) -> float:
    """The mean error on three tables, which is enough to tell whether a fit is useful."""
    steps = pipeline.steps(settings, rho)
    return float(np.mean([table.error(steps) for table in rehearsals(pipeline.problem, 3, SEED + 3_000_000)]))
