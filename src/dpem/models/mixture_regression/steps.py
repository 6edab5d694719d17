"""The steps that fit a mixture of regressions: sizes, moments, one regression, directions, cells, scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dpem.fitting.check import Check, judged
from dpem.fitting.step import State, Step
from dpem.models.mixture_regression import newton
from dpem.models.mixture_regression.cells import CellFit, Cells, edges, fit_cells
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.likelihood import LeastSquares, maximum_likelihood
from dpem.models.mixture_regression.queries import (
    FAR_WEIGHT,
    USUALLY_FAR,
    ColumnSizes,
    ColumnSquares,
    ComponentScores,
    LeadAndMissed,
    RegressionMoments,
    ResidualCells,
    UnevenSpread,
)
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray
from dpem.tables.schema import Schema


@dataclass(frozen=True)
class Tuning:
    """Numbers that studies have set, not the user: ``python -m studies.mixture_regression targets`` with seeds below
    1000, unless another is named.

    Attributes
    ----------
    sizes, moments, regression, directions, cells, check : float
        Parts of ρ: scales of the columns, second moments, scores of one regression, directions in which residuals
        spread unevenly, counts in cells, the fit check. The scores get the rest.
    scores : int
        Score queries.
    growth : float
        How many times a score query's price exceeds the one before it.
    cautions : tuple of three floats
        How near to EM's own step those of the first, the middle and the last score query are; between them it changes
        evenly. With ``scores`` and ``growth`` set on the tuning half of ``studies.mixture_regression public``.
    reach, cut : float
        Scores are clipped at reach·√(d + 1), squared residuals at cut², both in a component's own spreads.
    starts : int
        Starts without privacy, beside those of the counts.
    constant : float
        A column is nearly constant if its spread is below this multiple of the least that noise lets us see (the tuning
        half of ``studies.mixture_regression public``).
    narrow : float
        A component is called a point mass where its residual spread is below this part of the largest.
    responses : int
        The bounds of the response are called wide if so many responses there would outweigh the fit check's lead (the
        tuning half and 26 tables of the other one).
    unstable : float
        Components are called unstable where errors put more than this share of rows into another one
        (``python -m studies.mixture_regression public`` on the tuning half).
    """

    sizes: float = 0.08
    moments: float = 0.13
    regression: float = 0.06
    directions: float = 0.12
    cells: float = 0.12
    check: float = 0.08
    scores: int = 10
    growth: float = 1.3
    cautions: tuple[float, float, float] = (0.5, 0.5, 0.2)
    reach: float = 1.2
    cut: float = 3.0
    starts: int = 6
    constant: float = 1.1
    narrow: float = 0.02
    responses: int = 4
    unstable: float = 0.025


TUNING = Tuning()


#: What a clip is where nothing is noisy: nothing is clipped, and nothing overflows.
WIDE = 1e6
#: Missed rows are reported from so many standard deviations of the noise beyond the usual share.
MISSED_NEEDED = 2.0
#: Cells along each direction and of the residual, by the number of directions. Few: every cell has the same noise.
CELLS = {1: (6, 12), 2: (4, 10), 3: (3, 10)}


def score_query(schema: Schema, frame: Frame, theta: Components, rho: float) -> ComponentScores:
    """The scores at these components; nothing is clipped where nothing is noisy."""
    if math.isinf(rho):
        return ComponentScores(schema, frame, theta, WIDE, 1e3)
    return ComponentScores(schema, frame, theta, TUNING.reach * math.sqrt(theta.shape[1]), TUNING.cut)


#: The state before the first release.
NOTHING = np.zeros(0)
NO_COMPONENTS, NO_FRAME = Components(NOTHING, np.zeros((0, 0)), NOTHING), Frame(NOTHING, np.zeros((0, 0)), 0.0, 1.0)
NO_ESTIMATE = newton.Estimate(NO_COMPONENTS, np.zeros((0, 0)))


@dataclass(frozen=True)
class RegressionState(State):
    """What the steps have released so far, and what follows from it.

    ``frame`` are the coordinates, ``observed`` the shares of values that are not missing (the response last);
    ``regression`` and ``spread`` the one best regression and its residual spread; ``axes`` the directions in which
    residuals spread unevenly; ``starts`` components of any slopes and parallel ones, the better supported first;
    ``path`` and ``needed`` the misfit of 1, 2, … components and by how much one more must lower it; ``estimate`` the
    components and their errors.
    """

    frame: Frame = NO_FRAME
    observed: FloatArray = field(default_factory=lambda: NOTHING)
    regression: FloatArray = field(default_factory=lambda: NOTHING)
    spread: float = 1.0
    axes: FloatArray | None = None
    starts: tuple[Components, ...] = ()
    path: FloatArray = field(default_factory=lambda: NOTHING)
    needed: float = 0.0
    estimate: newton.Estimate = NO_ESTIMATE


@dataclass(frozen=True)
class SizeColumns(Step):
    """Centre and spread of every column and of the response, in rounds that zoom in: bounds may be wide.

    Zooming misses rare values far away, such as the ones of a dummy variable. So the squared distance within all of the
    bounds is released, too, and a column's spread is at least what that shows beyond its noise. A column that is nearly
    constant gets the largest spread that the noise may hide: too small a one would leave its coefficient unrestricted.
    """

    passes: ClassVar[int] = 5

    def describe(self) -> str:
        return "centre, spread and observed share of every column"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        D = model.schema.width + 1
        center, half = np.zeros(D), np.ones(D)
        for last in (False, False, True):
            query = ColumnSizes(model.schema, center, half)
            answer = curator.measure(query, self.rho / self.passes)
            noise = curator.noise_scale(query, self.rho / self.passes)
            share = np.clip(answer[:D], 0.05, 1.0)
            center = np.clip(center + half * np.clip(answer[D : 2 * D] / share, -1, 1), -1, 1)
            deviation = half * np.clip(answer[2 * D :] / (math.sqrt(2) * share), 0, 1)
            if not last:
                half = np.clip(4 * np.hypot(deviation, half * noise), 1e-9, 1.0)
        least = np.maximum(2 * half * noise, 1e-9)
        spread = np.maximum(math.sqrt(math.pi / 2) * deviation, least)
        squares, rho = ColumnSquares(model.schema, center[:-1]), self.rho * 2 / self.passes
        answer, noise = curator.measure(squares, rho), curator.noise_scale(squares, rho)
        nearly_constant = spread[:-1] < TUNING.constant * least[:-1]
        variance = np.where(nearly_constant, np.maximum(answer, 0.0) + noise, np.maximum(answer - 1.5 * noise, 0.0))
        spread[:-1] = np.maximum(spread[:-1], (1 + np.abs(center[:-1])) * np.sqrt(variance / share[:-1]))
        return replace(state, frame=Frame.of_sizes(center, spread), observed=share)


@dataclass(frozen=True)
class FindMoments(Step):
    """Second moments of (1, x, y): the columns' correlations, the one best regression and its residual spread.

    Rows are scaled into a ball of radius R, R² = 1 + ``reach``²·(d + 1) in spreads. A column's variance is then about
    1, and less than ``least_variance`` only where its spread is what noise may hide.
    """

    reach: float = 1.1
    least_variance: float = 0.4

    def describe(self) -> str:
        return "second moments of columns and response"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        sizes = state.frame
        d = model.schema.width
        radius = math.sqrt(1 + self.reach**2 * (d + 1)) if math.isfinite(self.rho) else WIDE
        query = RegressionMoments(model.schema, sizes, radius)
        M = unpacked(curator.measure(query, self.rho), d + 2)
        counted = float(np.clip(M[0, 0], 0.02, 1.0))
        noise = curator.noise_scale(query, self.rho) / math.sqrt(2) / counted
        observed = state.observed[:-1]
        mean = M[0, 1:] / counted / np.append(observed, 1.0)
        second = M[1:, 1:] / counted
        second[:d, :d] /= np.outer(observed, observed) + np.diag(observed - observed**2)  # missing values count as 0
        second[:d, d] /= observed
        second = second - np.outer(mean, mean)
        own = np.arange(d)
        second[own, own] = np.maximum(second[own, own], self.least_variance)
        edge = 2 * noise * math.sqrt(d + 1)
        values, vectors = np.linalg.eigh(second[:d, :d])
        values = np.maximum(values, max(edge, 1e-9))
        root = (vectors / np.sqrt(values)) @ vectors.T
        slope = root @ second[:d, d]
        size = max(float(second[d, d]), edge / 4, 1e-12)
        slope *= min(1.0, math.sqrt(0.95 * size) / max(float(np.linalg.norm(slope)), 1e-300))
        spread = np.diag(sizes.whiten)
        frame = Frame(
            sizes.mean + mean[:d] / spread,
            root * spread,
            sizes.y_mean + sizes.y_spread * float(mean[d]),
            sizes.y_spread * math.sqrt(size),
        )
        regression = np.append(0.0, slope / math.sqrt(size))
        regression = model.allowed(frame, regression)
        residual = math.sqrt(max(1 - float(slope @ slope) / size, 0.05) + float(regression[0]) ** 2)
        return replace(state, frame=frame, regression=regression, spread=residual)


@dataclass(frozen=True)
class RefineRegression(Step):
    """Two Newton steps on the score of the one regression: moments show neither coefficients nor residual spread well
    where residuals are small, and starts and the fit check are no better than this regression.
    """

    passes: ClassVar[int] = 2

    def describe(self) -> str:
        return "scores of one regression"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        frame, rho = state.frame, self.rho / self.passes
        free = newton.free_directions(1, model.free(frame))
        now = newton.Estimate.of_start(
            Components(state.observed[-1:], state.regression[None, :], np.array([state.spread]))
        )
        for _ in range(self.passes):
            query = score_query(model.schema, frame, now.theta, rho)
            expected = newton.ExpectedScores.of(query, free)
            now = newton.improved(now, expected, curator.measure(query, rho), curator.noise_scale(query, rho), 0.2)
        return replace(state, regression=now.theta.coefficients[0], spread=float(now.theta.spreads[0]))


@dataclass(frozen=True)
class FindDirections(Step):
    """The directions along which squared residuals of one regression grow: there the components differ."""

    directions: int = 2
    reach: float = 1.15

    def describe(self) -> str:
        return f"{self.directions} directions in which residuals spread unevenly"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        d = model.schema.width
        radius = radius_of_directions(d, self.reach)
        query = UnevenSpread(model.schema, state.frame, state.regression, state.spread, radius)
        M = unpacked(curator.measure(query, self.rho), d + 1)
        uneven = np.column_stack([M[1:, 1:] - M[0, 0] * np.eye(d), M[1:, 0]])
        axes = np.linalg.svd(uneven)[0][:, : self.directions]
        return replace(state, axes=axes)


def radius_of_directions(d: int, reach: float = 1.15) -> float:
    return math.sqrt(1 + reach**2 * d)


@dataclass(frozen=True)
class CountCells(Step):
    """Counts in cells of those directions and the residual; fits of any number of components to them are free.

    The start are components of any slopes, or parallel regressions where the counts do not clearly decide the slopes.
    """

    directions: int = 2
    n_components: int = 2

    def describe(self) -> str:
        x, r = CELLS[self.directions]
        return f"counts in {x**self.directions * r} cells: starts, and how many components there are"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        q = self.directions
        axes = np.eye(model.schema.width, q) if state.axes is None else state.axes
        x, r = CELLS[q]
        x_edges, r_edges = edges(x, 2.6), edges(r, 3.2)
        query = ResidualCells(model.schema, state.frame, state.regression, state.spread, axes, x_edges, r_edges)
        answer = curator.measure(query, self.rho).reshape((x,) * q + (r,))
        present = float(state.observed[-1])
        noise = curator.noise_scale(query, self.rho) / present
        cells = Cells(answer / present, noise, curator.n_rows * present, x_edges, r_edges)
        fits = [fit_cells(cells, k) for k in range(1, self.n_components + 2)]
        free, parallel = fits[self.n_components - 1], fit_cells(cells, self.n_components, parallel=True)
        needed = (q + 3) * math.log(max(curator.n_rows, 2))
        ordered = (free, parallel) if free.misfit + needed < parallel.misfit else (parallel, free)
        starts = tuple(self._components(model, state, fit, axes) for fit in ordered)
        return replace(
            state,
            starts=starts,
            estimate=newton.Estimate.of_start(starts[0]),
            path=np.array([fit.misfit for fit in fits]),
            needed=needed,
        )

    def _components(self, model: Any, state: RegressionState, fit: CellFit, axes: FloatArray) -> Components:
        coefficients = np.tile(state.regression, (self.n_components, 1))
        coefficients[:, 0] += state.spread * fit.intercepts
        coefficients[:, 1:] += state.spread * fit.slopes @ axes.T
        weights = np.maximum(fit.weights, 0.03)
        masses = state.observed[-1] * weights / weights.sum()
        return Components(masses, model.allowed(state.frame, coefficients), state.spread * fit.spreads)


@dataclass(frozen=True)
class ImproveComponents(Step):
    """A regularised Newton step on the scores of the components; without privacy EM from several starts.

    ``caution`` is between Newton's step, 0, and EM's, 1. The ``last`` step states errors and stability; without privacy
    it does all the work.
    """

    caution: float = 0.2
    last: bool = True

    def describe(self) -> str:
        return "scores of the components, for a Newton step"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        now, frame = state.estimate, state.frame
        if math.isinf(self.rho) and not self.last:
            return state
        coefficients = model.free(frame)
        free = newton.free_directions(len(now.theta.masses), coefficients)
        if math.isfinite(self.rho):
            query = score_query(model.schema, frame, now.theta, self.rho)
            expected, noise = newton.ExpectedScores.of(query, free), curator.noise_scale(query, self.rho)
            now = newton.improved(now, expected, curator.measure(query, self.rho), noise, self.caution)
        else:
            step = LeastSquares(coefficients, model.allowed(frame, np.zeros(len(coefficients))))
            best = maximum_likelihood(curator, model.schema, frame, state.starts, step, TUNING.starts)
            now = replace(now, theta=best, error=np.zeros_like(now.error))
        if not self.last:
            return replace(state, estimate=now)
        expected = newton.ExpectedScores.of(score_query(model.schema, frame, now.theta, self.rho), free)
        theta = model.parameters(state, now, expected.sampling_error(curator.effective_rows))
        return replace(state, theta=theta, estimate=now)


@dataclass(frozen=True)
class RegressionCheck(Check):
    """Ask for the mean lead over one regression and for the share of rows that the components miss.

    The lead of a row is clamped, so a few rows far from every component hardly lower it, and yet they may cost more
    log-likelihood than all others gain.
    """

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        query = LeadAndMissed(model.schema_of(state), model, state.theta, model.simpler(state.theta), self.most)
        noise = curator.noise_scale(query, self.rho)
        lead, square, counted = (float(part) for part in curator.measure(query, self.rho))
        spread = math.sqrt(min(max(square * self.most - lead**2, 0.0), self.most**2))
        error = math.hypot(noise, spread / math.sqrt(curator.effective_rows))
        share = min(counted / FAR_WEIGHT, 1.0)
        missed = share if share > max(USUALLY_FAR + MISSED_NEEDED * noise / FAR_WEIGHT, 2 * USUALLY_FAR) else 0.0
        check = judged(lead, error, self.against, self.advice)
        return replace(state, check=check, theta=replace(state.theta, missed=missed))
