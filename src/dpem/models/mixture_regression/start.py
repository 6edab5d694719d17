"""The first steps: scales of the columns, moments, one regression, and the components to start from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate import Answer, Block, Surrogate, SurrogateFit
from dpem.models.mixture_regression.cells import CellFit, Cells, edges, fit_cells
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.queries import (
    ColumnSizes,
    ColumnSquares,
    RegressionMoments,
    ResidualCells,
    UnevenSpread,
)
from dpem.models.mixture_regression.rows import first_rows
from dpem.models.mixture_regression.scores import Estimate, ScoreAnswer, ask_score, combined_estimate
from dpem.models.mixture_regression.state import RegressionState
from dpem.models.mixture_regression.steps import converged
from dpem.models.mixture_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.models.mixture_regression.model import MixtureRegression

#: Where nothing is noisy, the radius of moments: no row is clipped, and nothing overflows.
NO_CLIP = 1e6
#: The interval in which the next round measures a column, in mean deviations on either side of the centre.
ZOOM = 4
#: A spread below this multiple of the noise of the mean deviation cannot be distinguished from 0.
SPREAD_NOISE = 2.0
#: A mean square counts beyond this multiple of its noise.
SQUARE_NOISE = 1.5
#: The largest part of the response's variance that the regression from moments may explain.
LARGEST_R2 = 0.95
#: The standard errors of that regression: coefficients, in residual spreads, and the log spread.
COEFFICIENT_ERROR, LOG_SPREAD_ERROR = 0.25, 0.2
#: Cells along each direction and of the residual, by the number of directions. Few: every cell has the same noise.
CELLS = {1: (6, 12), 2: (4, 10), 3: (3, 10)}
#: The outermost edges of the cells, in standard deviations: of the directions and of the residual.
DIRECTION_EDGE, RESIDUAL_EDGE = 2.6, 3.2
#: Principal components of the counts that tilt the surrogate rows.
CELL_COMPONENTS = 60
#: The least share of a component at the start.
LEAST_START_SHARE = 0.03


@dataclass(frozen=True)
class SizeColumns(Step["MixtureRegression", RegressionState]):
    """Release the centre and spread of every column and of the response, in three rounds that zoom in, since the bounds
    may be wide.

    Zooming misses rare values far away, such as the ones of a dummy variable. So the squared distance from the centre
    within all of the bounds is released too, and the spread of a column is at least what that shows beyond its noise. A
    nearly constant column gets the largest spread that the noise may hide: too small a spread would leave its
    coefficient unrestricted.
    """

    passes: ClassVar[int] = 5  # in units of price: three rounds, and the squares at twice the price

    def describe(self) -> str:
        return "centre, spread and observed share of every column"

    def run(self, curator: Curator, model: MixtureRegression, state: RegressionState) -> RegressionState:
        D, rho = model.schema.width + 1, self.rho / self.passes
        center, half = np.zeros(D), np.ones(D)
        for last in (False, False, True):
            query = ColumnSizes(model.schema, center, half)
            answer, noise = curator.measure(query, rho), curator.noise_scale(query, rho)
            share = np.clip(answer[:D], 0.05, 1.0)
            center = np.clip(center + half * np.clip(answer[D : 2 * D] / share, -1, 1), -1, 1)
            deviation = half * np.clip(answer[2 * D :] / (math.sqrt(2) * share), 0, 1)
            if not last:
                half = np.clip(ZOOM * np.hypot(deviation, half * noise), 1e-9, 1.0)
        least = np.maximum(SPREAD_NOISE * half * noise, 1e-9)
        spread = np.maximum(math.sqrt(math.pi / 2) * deviation, least)  # of normal values
        squares = ColumnSquares(model.schema, center[:-1])
        answer, noise = curator.measure(squares, 2 * rho), curator.noise_scale(squares, 2 * rho)
        is_constant = spread[:-1] < TUNING.constant * least[:-1]
        square = np.maximum(np.where(is_constant, np.maximum(answer, 0.0) + noise, answer - SQUARE_NOISE * noise), 0.0)
        spread[:-1] = np.maximum(spread[:-1], (1 + np.abs(center[:-1])) * np.sqrt(square / share[:-1]))
        return replace(state, frame=Frame.of_sizes(center, spread), observed=share)


@dataclass(frozen=True)
class FindMoments(Step["MixtureRegression", RegressionState]):
    """Release the second moments of (1, x, y); compute the whitened frame and the least-squares regression in it.

    Rows are scaled into a ball of radius R, R² = 1 + ``reach``²·(d + 1) in spreads. Every column has a variance of
    about 1 then; a smaller one than ``least_variance`` is noise.
    """

    reach: float = 1.1
    least_variance: float = 0.4

    def describe(self) -> str:
        return "second moments of columns and response"

    def run(self, curator: Curator, model: MixtureRegression, state: RegressionState) -> RegressionState:
        scaled, d = state.frame, model.schema.width
        radius = math.sqrt(1 + self.reach**2 * (d + 1)) if math.isfinite(self.rho) else NO_CLIP
        query = RegressionMoments(model.schema, scaled, radius)
        moments = unpacked(curator.measure(query, self.rho), d + 2)
        present = float(np.clip(moments[0, 0], 0.02, 1.0))
        noise = curator.noise_scale(query, self.rho) / math.sqrt(2) / present  # off the diagonal
        observed = state.observed[:-1]
        mean = moments[0, 1:] / present / np.append(observed, 1.0)
        covariance = moments[1:, 1:] / present
        covariance[:d, :d] /= np.outer(observed, observed) + np.diag(observed - observed**2)  # a missing value counts 0
        covariance[:d, d] /= observed
        covariance = covariance - np.outer(mean, mean)
        np.fill_diagonal(covariance, np.maximum(np.diag(covariance), self.least_variance))
        noise_edge = 2 * noise * math.sqrt(d + 1)  # the largest eigenvalue of the noise
        values, vectors = np.linalg.eigh(covariance[:d, :d])
        whitener = (vectors / np.sqrt(np.maximum(values, max(noise_edge, 1e-9)))) @ vectors.T
        slopes = whitener @ covariance[:d, d]
        y_variance = max(float(covariance[d, d]), noise_edge / 4, 1e-12)
        slopes *= min(1.0, math.sqrt(LARGEST_R2 * y_variance) / max(float(np.linalg.norm(slopes)), 1e-300))
        x_scale = np.diag(scaled.whiten)
        frame = Frame(
            scaled.mean + mean[:d] / x_scale,
            whitener * x_scale,
            scaled.y_mean + scaled.y_spread * float(mean[d]),
            scaled.y_spread * math.sqrt(y_variance),
        )
        regression = model.allowed(frame, np.append(0.0, slopes / math.sqrt(y_variance)))
        variance = max(1 - float(slopes @ slopes) / y_variance, 1 - LARGEST_R2) + float(regression[0]) ** 2
        return replace(state, frame=frame, regression=regression, spread=math.sqrt(variance))


@dataclass(frozen=True)
class RefineRegression(Step["MixtureRegression", RegressionState]):
    """Take two Newton steps on the score of the one regression.

    Moments determine neither coefficients nor residual spread well where residuals are small, and both the start of the
    components and the fit check depend on this regression.
    """

    passes: ClassVar[int] = 2

    def describe(self) -> str:
        return "scores of one regression"

    def run(self, curator: Curator, model: MixtureRegression, state: RegressionState) -> RegressionState:
        family, rho = model.family(state.frame, 1), self.rho / self.passes
        start = Components(np.ones(1), state.regression[None, :], np.array([state.spread]))
        errors = [COEFFICIENT_ERROR] * (family.count - 1) + [2**0.5 * LOG_SPREAD_ERROR]
        prior = estimate = Estimate(start, np.diag(np.square(errors)))
        answers: tuple[ScoreAnswer, ...] = ()
        for _ in range(self.passes):
            answer = ask_score(curator, model.schema, family, estimate.theta, rho, model.share_present(state))
            answers = (*answers, answer)
            estimate = combined_estimate(family, prior, answers)
        return replace(state, regression=estimate.theta.coefficients[0], spread=float(estimate.theta.spreads[0]))


@dataclass(frozen=True)
class FindDirections(Step["MixtureRegression", RegressionState]):
    """Release the directions along which the squared residuals of one regression grow: there the components differ.

    The slopes of the components minus those of the one regression have a weighted sum of 0. So they span K − 1
    directions, the singular vectors of [M_xx − M₀₀·I, M_x0], where M are the moments of
    :class:`~dpem.models.mixture_regression.queries.UnevenSpread`.
    """

    directions: int = 2
    reach: float = 1.15

    def describe(self) -> str:
        return f"{self.directions} directions in which residuals spread unevenly"

    def radius(self, d: int) -> float:
        """The radius that (1, x̃) is clipped at."""
        return math.sqrt(1 + self.reach**2 * d)

    def run(self, curator: Curator, model: MixtureRegression, state: RegressionState) -> RegressionState:
        d = model.schema.width
        query = UnevenSpread(model.schema, state.frame, state.regression, state.spread, self.radius(d))
        M = unpacked(curator.measure(query, self.rho), d + 1)
        uneven = np.column_stack([M[1:, 1:] - M[0, 0] * np.eye(d), M[1:, 0]])
        return replace(state, axes=np.linalg.svd(uneven)[0][:, : self.directions])


@dataclass(frozen=True)
class CountCells(Step["MixtureRegression", RegressionState]):
    """Count rows in cells of those directions and the residual, and fit components to the counts.

    Fits of any number of components are post-processing. The start are components with free slopes, or parallel ones
    unless the counts clearly support free slopes.
    """

    directions: int = 2
    n_components: int = 2

    def describe(self) -> str:
        x, r = CELLS[self.directions]
        return f"counts in {x**self.directions * r} cells: starts, and how many components there are"

    def run(self, curator: Curator, model: MixtureRegression, state: RegressionState) -> RegressionState:
        q, K, family = self.directions, self.n_components, model.family(state.frame)
        axes = np.eye(model.schema.width, q) if state.axes is None else state.axes
        x, r = CELLS[q]
        x_edges, r_edges = edges(x, DIRECTION_EDGE), edges(r, RESIDUAL_EDGE)
        query = ResidualCells(model.schema, state.frame, state.regression, state.spread, axes, x_edges, r_edges)
        present = model.share_present(state)
        counts = curator.measure(query, self.rho).reshape((x,) * q + (r,)) / present
        noise = curator.noise_scale(query, self.rho) / present
        cells = Cells(counts, noise, curator.n_rows * present, x_edges, r_edges)
        fits = [fit_cells(cells, k) for k in range(1, K + 2)]
        free, parallel = fits[K - 1], fit_cells(cells, K, parallel=True)
        needed = (q + 3) * math.log(max(curator.n_rows, 2))
        ordered = (free, parallel) if free.misfit + needed < parallel.misfit else (parallel, free)
        starts = tuple(self._components(model, state, fit, axes) for fit in ordered)
        if math.isfinite(self.rho):
            regression = (state.regression, state.spread)
            rows = first_rows(family, starts, regression, cells, TUNING.rows, generator(5))
            answer = Answer(query, counts.ravel(), noise)
            blocks = [Block(*TUNING.cell_kappa, CELL_COMPONENTS, (answer,)), Block(*TUNING.score_kappa)]
            surrogate = Surrogate.of(*rows, blocks)
        else:  # EM reads the table
            surrogate = Surrogate.of(np.zeros((1, model.schema.width + 1)), np.ones(1))
        fit: SurrogateFit[Components] = SurrogateFit(family, surrogate, ())
        fit = replace(fit, solutions=converged(fit, starts[0], 0))
        misfit = np.array([fit.misfit for fit in fits])
        return replace(state, starts=starts, fit=fit, misfit=misfit, needed=needed)

    def _components(
        self, model: MixtureRegression, state: RegressionState, fit: CellFit, axes: FloatArray
    ) -> Components:
        """The components in the frame: those of the cells are in residual spreads of the one regression."""
        coefficients = np.tile(state.regression, (self.n_components, 1))
        coefficients[:, 0] += state.spread * fit.intercepts
        coefficients[:, 1:] += state.spread * fit.slopes @ axes.T
        weights = np.maximum(fit.weights, LEAST_START_SHARE)
        return Components(weights / weights.sum(), model.allowed(state.frame, coefficients), state.spread * fit.spreads)
