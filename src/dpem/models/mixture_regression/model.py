"""A mixture of K regressions at its public settings: its parameters, steps, densities and simulated rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.step import Step, prices
from dpem.fitting.surrogate import ScoreStep, SurrogateFit, SurrogateModel
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.family import RegressionFamily
from dpem.models.mixture_regression.planning import EFFECT, moved_share, predict_fit
from dpem.models.mixture_regression.rows import base_rows, joined
from dpem.models.mixture_regression.scores import CenteredScore, ExpectedScores
from dpem.models.mixture_regression.start import (
    CELLS,
    CountCells,
    FindDirections,
    FindMoments,
    RefineRegression,
    SizeColumns,
)
from dpem.models.mixture_regression.state import RegressionState
from dpem.models.mixture_regression.steps import ExactEM, NewtonStep, RegressionCheck, converged
from dpem.models.mixture_regression.tuning import TUNING
from dpem.query import Array, FloatArray, Namespace

#: The fraction of new surrogate rows that are resampled from the old ones; the rest follow the components.
RESAMPLED = 0.3
ADVICE = "One regression may do (DPLinearRegression), or the components are too close for this many rows and epsilon."


@dataclass(frozen=True)
class Parameters:
    """K components y = intercept + slopes·u + spread·e in unit coordinates, and the other releases.

    ``x_mean`` and ``x_whiten`` are the mean and the inverse root covariance of the columns, which fill missing values.
    ``sampling`` and ``privacy`` are covariances of (weight, intercept, slopes, spread), component by component.
    ``misfit`` is the misfit of 1, 2, … components to the cells, and ``needed`` the decrease that one more must bring;
    ``one`` is the one best regression (intercept, slopes, residual spread). ``moved`` is the share of rows that errors
    of this size put into another component, ``missed`` the share of rows far from every component.
    """

    weights: FloatArray
    intercepts: FloatArray
    slopes: FloatArray
    spreads: FloatArray
    x_mean: FloatArray
    x_whiten: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    misfit: FloatArray
    needed: float
    one: FloatArray
    moved: float = 0.0
    missed: float = 0.0

    @property
    def frame(self) -> Frame:
        """Whitened columns, and responses in unit coordinates."""
        return Frame(self.x_mean, self.x_whiten, 0.0, 1.0)

    @property
    def components(self) -> Components:
        """The components in the coordinates of :attr:`frame`."""
        slopes = self.slopes @ np.linalg.inv(self.x_whiten)
        intercepts = self.intercepts + self.slopes @ self.x_mean
        return Components(self.weights, np.column_stack([intercepts, slopes]), self.spreads)

    def ordered(self, order: NDArray[np.intp]) -> Parameters:
        """The same components in another order."""
        p = self.slopes.shape[1] + 3
        places = np.concatenate([np.arange(k * p, (k + 1) * p) for k in order]).astype(int)
        return replace(
            self,
            weights=self.weights[order],
            intercepts=self.intercepts[order],
            slopes=self.slopes[order],
            spreads=self.spreads[order],
            sampling=self.sampling[np.ix_(places, places)],
            privacy=self.privacy[np.ix_(places, places)],
        )


@dataclass(frozen=True)
class MixtureRegression(SurrogateModel):
    """The model at its public settings. All regressions go through the point ``origin``, (x, y) in unit coordinates."""

    n_components: int = 2
    origin: tuple[float, ...] | None = None
    effect = EFFECT
    queries = TUNING.scores
    clip_quantiles = TUNING.levels
    query_type = CenteredScore

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        q = min(self.schema.width, self.n_components, max(CELLS))
        check = TUNING.check if sizes.check else 0.0
        directions = TUNING.directions if self.schema.width > q else 0.0
        start = (TUNING.sizes, TUNING.moments, TUNING.regression, directions, TUNING.cells)
        growing = TUNING.growth ** np.arange(TUNING.scores + TUNING.newton)
        rest = 1 - check - math.fsum(start)
        shares = (*start, *(rest * growing / growing.sum()), check)
        size, moments, refine, direct, count, *scores, checked = prices(sizes.rho, shares)
        steps: tuple[Step, ...] = (
            *(ScoreStep(price, t) for t, price in enumerate(scores[: TUNING.scores])),
            *(NewtonStep(price, last=False) for price in scores[TUNING.scores : -1]),
            NewtonStep(scores[-1]),
        )
        return (
            SizeColumns(size),
            FindMoments(moments),
            RefineRegression(refine),
            *((FindDirections(direct, q),) if directions else ()),
            CountCells(count, q, self.n_components),
            *(steps if math.isfinite(sizes.rho) else (ExactEM(math.inf),)),
            *((RegressionCheck(checked, against="one regression", advice=ADVICE),) if check else ()),
        )

    def family(self, frame: Frame, K: int = 0) -> RegressionFamily:
        """The family of K components (0: as many as the model has), free or through ``origin``."""
        p = len(frame.mean) + 1
        free = np.eye(p) if self.origin is None else np.linalg.svd(self._origin_row(frame)[None, :])[2][1:].T
        return RegressionFamily(K or self.n_components, frame, free, self.allowed(frame, np.zeros(p)), TUNING.floor)

    def allowed(self, frame: Frame, regressions: FloatArray) -> FloatArray:
        """The nearest regressions through ``origin``, or the regressions themselves without one."""
        if self.origin is None:
            return regressions
        row, response = self._origin_row(frame), (self.origin[-1] - frame.y_mean) / frame.y_spread
        excess = (response - regressions @ row) / (row @ row)
        return np.asarray(regressions + np.multiply.outer(excess, row))

    def _origin_row(self, frame: Frame) -> FloatArray:
        """(1, x̃) at ``origin``."""
        assert self.origin is not None
        return np.append(1.0, frame.whiten @ (np.array(self.origin[:-1]) - frame.mean))

    def start(self) -> RegressionState:
        return RegressionState()

    def share_present(self, state: RegressionState) -> float:
        return float(state.observed[-1])

    def refitted(self, state: RegressionState, step: ScoreStep, rng: np.random.Generator) -> SurrogateFit[Components]:
        """EM on the surrogate rows. If few of them carry the weights, new rows are drawn, and EM runs again."""
        fit = replace(state.fit, solutions=converged(state.fit, state.fit.theta, step.number))
        if fit.surrogate.effective_share < TUNING.effective:
            few = round(RESAMPLED * TUNING.rows)
            resampled = fit.surrogate.resampled(few, rng), np.full(few, 1 / few)
            drawn = base_rows(fit.family, fit.theta, TUNING.rows - few, rng)
            rows = joined((drawn, 1 - RESAMPLED), (resampled, RESAMPLED))
            fit = replace(fit, surrogate=fit.surrogate.redrawn(*rows))
            fit = replace(fit, solutions=converged(fit, fit.theta, step.number))
        return fit

    def published(self, state: RegressionState, n: int) -> Parameters:
        """The components and their errors in unit coordinates: those in the frame, by the delta method."""
        frame, family = state.frame, state.fit.family
        components, error = state.estimate.theta, state.estimate.error
        expected = ExpectedScores.at(self.schema, family, components, clipped=bool(np.any(error)))
        sampling = expected.error(expected.covariance / (n * self.share_present(state)))
        (K, p), weights, scale = components.shape, components.weights, frame.y_spread
        to_units = scale * np.vstack([np.append(1.0, -frame.whiten @ frame.mean), np.eye(p)[1:]])
        to_units[1:, 1:] = scale * frame.whiten.T
        derivative, q = np.zeros((K, p + 2, family.count)), family.free.shape[1]
        derivative[:, 0, : K - 1] = (np.diag(weights) - np.outer(weights, weights))[:, :-1]
        for k, spread in enumerate(components.spreads):
            first = K - 1 + k * q
            derivative[k, 1:-1, first : first + q] = spread * to_units @ family.free
            derivative[k, -1, family.count - K + k] = scale * spread / math.sqrt(2)
        derivative = derivative.reshape(K * (p + 2), family.count)
        coefficients = components.coefficients @ to_units.T
        one = np.append(to_units @ state.regression, scale * state.spread)
        one[0] += frame.y_mean
        theta = Parameters(
            weights=weights,
            intercepts=frame.y_mean + coefficients[:, 0],
            slopes=coefficients[:, 1:],
            spreads=scale * components.spreads,
            x_mean=frame.mean,
            x_whiten=frame.whiten,
            sampling=derivative @ sampling @ derivative.T,
            privacy=TUNING.widening**2 * derivative @ error @ derivative.T,
            misfit=state.misfit,
            needed=state.needed,
            one=one,
            moved=float(np.mean(moved_share(family, components, error + sampling, 20))),
        )
        return theta.ordered(np.argsort(-weights))

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        return theta.components.log_density(xp, theta.frame.columns(xp, x), y)

    def responsibilities(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        """The posterior probability of each component, given the response."""
        components = theta.components
        r = components.responsibilities(xp, components.residuals(xp, theta.frame.columns(xp, x), y))
        return r / xp.sum(r, axis=1)[:, None]

    def expectation(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        """The expected response of each row: the weighted mean over the components."""
        components = theta.components
        return xp.matmul(theta.frame.columns(xp, x), theta.weights @ components.coefficients)

    def simpler(self, theta: Parameters) -> Parameters:
        """The one regression of its own scores."""
        return self._single(theta, theta.one[0], theta.one[1:-1], theta.one[-1])

    def largest(self, theta: Parameters) -> Parameters:
        """The regression of the largest component."""
        k = int(np.argmax(theta.weights))
        return self._single(theta, float(theta.intercepts[k]), theta.slopes[k], float(theta.spreads[k]))

    def _single(self, theta: Parameters, intercept: float, slopes: FloatArray, spread: float) -> Parameters:
        return replace(
            theta,
            weights=np.ones(1),
            intercepts=np.array([intercept]),
            slopes=slopes[None, :],
            spreads=np.array([spread]),
        )

    def sample(
        self, theta: Parameters, n: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
        """Rows, responses and components; columns are normal with the released mean and covariance, then clipped."""
        white = rng.standard_normal((n, len(theta.x_mean)))
        k = np.searchsorted(np.cumsum(theta.weights)[:-1], rng.uniform(size=n))
        x = np.clip(theta.x_mean + white @ np.linalg.inv(theta.x_whiten).T, -1, 1)
        y = theta.intercepts[k] + np.sum(theta.slopes[k] * x, axis=1) + theta.spreads[k] * rng.standard_normal(n)
        return x, np.clip(y, -1, 1), k

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        return predict_fit(self, sizes, steps)
