"""The steps that fit a mixture of regressions: sizes, moments, one regression, directions, cells, Newton steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dpem.fitting.check import Check, check_lead
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import State, Step
from dpem.fitting.surrogate import Answer, Block, Converged, Surrogate, SurrogateFit, best_of, exact
from dpem.models.mixture_regression import newton
from dpem.models.mixture_regression.cells import CellFit, Cells, edges, fit_cells
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.queries import (
    FAR_WEIGHT,
    USUALLY_FAR,
    ColumnSizes,
    ColumnSquares,
    LeadAndMissed,
    RegressionMoments,
    ResidualCells,
    UnevenSpread,
)
from dpem.models.mixture_regression.rows import first_rows
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray


@dataclass(frozen=True)
class Tuning:
    """Numbers that studies have set, not the user: ``python -m studies.mixture_regression targets`` with seeds below
    1000, unless another is named.

    Attributes
    ----------
    sizes, moments, regression, directions, cells, check : float
        Parts of ρ: scales of the columns, second moments, scores of one regression, directions in which residuals
        spread unevenly, counts in cells, the fit check. The scores get the rest.
    scores, newton : int
        Score queries with EM on surrogate rows, and with Newton steps after them.
    growth : float
        How many times a score query's price exceeds the one before it.
    rows : int
        Surrogate rows.
    cell_kappa, score_kappa : pairs of floats
        Ranges of κ, the weight of the base rows, for the counts and for the scores.
    effective : float
        Surrogate rows are drawn again when less than this share of them carries the weights.
    levels : tuple of float
        Quantiles of the scores' norms at which they may be clipped.
    floor : float
        The least residual spread, in spreads of the response.
    surrogate : float
        The error that EM on surrogate rows leaves beside that of the noise, in whitened parameters.
    near : float
        The most, in mean log-likelihood, by which surrogate rows may be better described before the Newton steps.
    restarts : int
        Random starts of EM on the surrogate rows after each answer. These and all from ``scores`` on were set on the
        tuning half of ``studies.mixture_regression public`` and on ``targets``.
    widening : float
        By how much standard errors due to privacy exceed their linear form: the expected scores are those of normal
        columns (``coverage`` with seeds 800 to 811).
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
    scores: int = 6
    newton: int = 2
    growth: float = 1.2
    rows: int = 4000
    cell_kappa: tuple[float, float] = (1.0, 1e4)
    score_kappa: tuple[float, float] = (10.0, 160.0)
    effective: float = 0.15
    levels: tuple[float, ...] = (0.9,)
    floor: float = 0.02
    surrogate: float = 0.02
    near: float = 0.015
    restarts: int = 2
    widening: float = 1.5
    starts: int = 6
    constant: float = 1.1
    narrow: float = 0.02
    responses: int = 4
    unstable: float = 0.025


TUNING = Tuning()


#: The radius of moments where nothing is noisy: nothing is clipped, and nothing overflows.
WIDE = 1e6
#: Missed rows are reported from so many standard deviations of the noise beyond the usual share.
MISSED_NEEDED = 2.0
#: Cells along each direction and of the residual, by the number of directions. Few: every cell has the same noise.
CELLS = {1: (6, 12), 2: (4, 10), 3: (3, 10)}


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
    ``path`` and ``needed`` the misfit of 1, 2, … components and by how much one more must lower it; ``fit`` the
    components on surrogate rows; ``before`` and ``estimate`` the components before and after the Newton steps.
    """

    frame: Frame = NO_FRAME
    observed: FloatArray = field(default_factory=lambda: NOTHING)
    regression: FloatArray = field(default_factory=lambda: NOTHING)
    spread: float = 1.0
    axes: FloatArray | None = None
    starts: tuple[Components, ...] = ()
    path: FloatArray = field(default_factory=lambda: NOTHING)
    needed: float = 0.0
    fit: SurrogateFit[Components] = None  # type: ignore[assignment]  # set where the cells are counted
    before: newton.Estimate = NO_ESTIMATE
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
        family, rho = model.family(state.frame, 1), self.rho / self.passes
        present, (coefficient, spread) = float(state.observed[-1]), newton.START_ERROR
        theta = Components(np.ones(1), state.regression[None, :], np.array([state.spread]))
        errors = [coefficient] * (family.count - 1) + [2**0.5 * spread]
        now = newton.Estimate(theta, np.diag(np.square(errors)))
        for _ in range(self.passes):
            now = newton.asked(curator, model.schema, family, now, rho, present)
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
        path, family = np.array([fit.misfit for fit in fits]), model.family(state.frame)
        if math.isfinite(self.rho):
            one = (state.regression, state.spread)
            rows = first_rows(family, starts, one, cells, TUNING.rows, generator(5))
            counts = Block(*TUNING.cell_kappa, 60, (Answer(query, cells.mass.ravel(), noise),))
            surrogate = Surrogate.of(*rows, [counts, Block(*TUNING.score_kappa)])
        else:  # EM reads the table
            surrogate = Surrogate.of(np.zeros((1, model.schema.width + 1)), np.ones(1))
        fit: SurrogateFit[Components] = SurrogateFit(family, surrogate, ())
        fit = replace(fit, solutions=converged(fit, starts[0], 0))
        return replace(state, starts=starts, fit=fit, path=path, needed=needed)

    def _components(self, model: Any, state: RegressionState, fit: CellFit, axes: FloatArray) -> Components:
        coefficients = np.tile(state.regression, (self.n_components, 1))
        coefficients[:, 0] += state.spread * fit.intercepts
        coefficients[:, 1:] += state.spread * fit.slopes @ axes.T
        weights = np.maximum(fit.weights, 0.03)
        return Components(weights / weights.sum(), model.allowed(state.frame, coefficients), state.spread * fit.spreads)


def converged(fit: SurrogateFit[Components], start: Components, seed: int) -> Sequence[Converged[Components]]:
    """EM on the surrogate rows from there, and from random starts, which have to gain more than noise alone would."""
    margin, rng = 0.5 * fit.family.count * fit.noise**2, generator(seed)
    options: dict[str, Any] = {"finalists": 1, "short_steps": 15, "max_steps": 200, "tolerance": 1e-6}
    return fit.surrogate.fit(
        fit.family, [start], restarts=TUNING.restarts if fit.noises else 0, rng=rng, margin=margin, **options
    )


@dataclass(frozen=True)
class NewtonStep(Step):
    """A Newton step on the score of the components. Where rows follow these it is nearer to the likeliest ones than EM
    on surrogate rows; where they do not, it may be worse. So after the ``last`` step the components of the surrogate
    rows are taken if these rows are clearly better described by them.
    """

    first: bool = True
    last: bool = True

    def describe(self) -> str:
        return "scores of the components, for a Newton step"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        fit = state.fit
        if self.first:
            W = newton.ExpectedScores.at(model.schema, fit.family, fit.theta).query.whitener
            before = newton.Estimate(fit.theta, (fit.noise**2 + TUNING.surrogate**2) * W @ W.T)
            state = replace(state, before=before, estimate=before)
        now = newton.asked(curator, model.schema, fit.family, state.estimate, self.rho, model.share_present(state))
        if not self.last:
            return replace(state, estimate=now)
        expect = fit.family.e_step(fit.surrogate.x, fit.surrogate.weights)
        worse = expect(now.theta)[-1] < expect(state.before.theta)[-1] - TUNING.near
        state = replace(state, estimate=state.before if worse else now)
        return replace(state, theta=model.published(state, curator.effective_rows))


@dataclass(frozen=True)
class ExactEM(Step):
    """Without privacy: EM on the table, from the starts of the counts and from others, until it converges."""

    def describe(self) -> str:
        return f"EM from {TUNING.starts + 2} starts until it converges"

    def run(self, curator: Curator, model: Any, state: RegressionState) -> RegressionState:
        family, rng = replace(state.fit.family, floor=1e-6), generator(0)
        starts = [*(family.near(state.starts[0], rng) for _ in range(TUNING.starts)), *state.starts]
        found = best_of(family, starts, exact(curator, model.schema, family), tolerance=1e-13, max_steps=3000)
        error = np.zeros((family.count, family.count))
        state = replace(state, estimate=newton.Estimate(found[0].theta, error))
        return replace(state, theta=model.published(state, curator.effective_rows))


@dataclass(frozen=True)
class RegressionCheck(Check):
    """Ask for the mean leads over two single regressions, of which the least convincing is the verdict, and for the
    share of rows that the components miss.

    The lead of a row is clamped, so a few rows far from every component hardly lower it, and yet they may cost more
    log-likelihood than all others gain.
    """

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        theta = state.theta
        query = LeadAndMissed(
            model.schema_of(state), model, theta, model.simpler(theta), self.most, model.largest(theta)
        )
        noise = curator.noise_scale(query, self.rho)
        *leads, counted = (float(part) for part in curator.measure(query, self.rho))
        checks = []
        for lead, square in zip(leads[::2], leads[1::2], strict=True):
            spread = math.sqrt(min(max(square * self.most - lead**2, 0.0), self.most**2))
            error = math.hypot(noise, spread / math.sqrt(curator.effective_rows))
            checks.append(check_lead(lead, max(error, 1e-12), self.against, self.advice))
        share = min(counted / FAR_WEIGHT, 1.0)
        missed = share if share > max(USUALLY_FAR + MISSED_NEEDED * noise / FAR_WEIGHT, 2 * USUALLY_FAR) else 0.0
        worst = min(checks, key=lambda own: own.lead / own.standard_error)
        return replace(state, check=worst, theta=replace(theta, missed=missed))
