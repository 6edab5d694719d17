"""A mixture of K regressions at its public settings: which steps fit it, how likely rows are, what to expect."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.step import Step, prices
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.newton import Estimate
from dpem.models.mixture_regression.planning import EFFECT, moved_share, predict_fit
from dpem.models.mixture_regression.steps import (
    CELLS,
    TUNING,
    CountCells,
    FindDirections,
    FindMoments,
    ImproveComponents,
    RefineRegression,
    RegressionCheck,
    RegressionState,
    SizeColumns,
)
from dpem.query import Array, FloatArray, Namespace

ADVICE = "One regression may do (DPLinearRegression), or the components are too close for this many rows and epsilon."


@dataclass(frozen=True)
class Parameters:
    """K components y = intercept + slope·u + spread·e in unit coordinates, and what else was released.

    ``x_mean`` and ``x_whiten`` are the columns' mean and inverse root covariance, which fill missing values. The
    covariances of sampling and of privacy are of (weight, intercept, slopes, spread), component by component.
    ``misfit`` is that of 1, 2, … components to the cells, ``needed`` by how much one more must lower it; ``one`` the
    one best regression (intercept, slopes, residual spread); ``moved`` the share of rows that errors of this size put
    into another component, ``missed`` the share far from every component.
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
        """Unit coordinates with missing values filled, made white; responses as they are."""
        return Frame(self.x_mean, self.x_whiten, 0.0, 1.0)

    @property
    def components(self) -> Components:
        """The components in the coordinates of :attr:`frame`."""
        own = np.column_stack([self.intercepts + self.slopes @ self.x_mean, self.slopes @ np.linalg.inv(self.x_whiten)])
        return Components(self.weights, own, self.spreads)

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
class MixtureRegression(Model):
    """The model at its public settings. ``origin``, (x, y) in unit coordinates, is a point of every regression."""

    n_components: int = 2
    origin: tuple[float, ...] | None = None
    effect = EFFECT

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        q = min(self.schema.width, self.n_components, max(CELLS))
        check = TUNING.check if sizes.check else 0.0
        directions = TUNING.directions if self.schema.width > q else 0.0
        first = (TUNING.sizes, TUNING.moments, TUNING.regression, directions, TUNING.cells)
        growing = TUNING.growth ** np.arange(TUNING.scores)
        rest = 1 - check - math.fsum(first)
        shares = (*first, *(rest * growing / growing.sum()), check)
        size, moments, refine, direct, count, *scores, checked = prices(sizes.rho, shares)
        cautions = np.interp(np.linspace(0, 1, len(scores)), (0, 0.5, 1), TUNING.cautions)
        last = [False] * (len(scores) - 1) + [True]
        return (
            SizeColumns(size),
            FindMoments(moments),
            RefineRegression(refine),
            *((FindDirections(direct, q),) if directions else ()),
            CountCells(count, q, self.n_components),
            *(ImproveComponents(*own) for own in zip(scores, cautions.tolist(), last, strict=True)),
            *((RegressionCheck(checked, against="one regression", advice=ADVICE),) if check else ()),
        )

    def free(self, frame: Frame) -> FloatArray:
        """Orthonormal directions in which coefficients may change: all, or those that keep ``origin``."""
        if self.origin is None:
            return np.eye(len(frame.mean) + 1)
        return np.asarray(np.linalg.svd(self._origin_row(frame)[None, :])[2][1:].T)

    def allowed(self, frame: Frame, regressions: FloatArray) -> FloatArray:
        """The nearest regressions that go through ``origin``."""
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

    def parameters(self, state: RegressionState, estimate: Estimate, sampling: FloatArray) -> Parameters:
        """The components and their errors in unit coordinates."""
        frame, components = state.frame, estimate.theta
        K, p = components.shape
        weights = components.masses / components.masses.sum()
        turn = np.zeros((p, p))
        turn[0] = frame.y_spread * np.append(1.0, -frame.whiten @ frame.mean)
        turn[1:, 1:] = frame.y_spread * frame.whiten.T
        units = components.coefficients @ turn.T
        change = np.zeros((K * (p + 2), K * (p + 2)))
        for k in range(K):
            own = k * (p + 2)
            change[own, :: p + 2] = -weights[k] * weights
            change[own, own] += weights[k]
            change[own + 1 : own + 1 + p, own + 1 : own + 1 + p] = components.spreads[k] * turn
            change[own + p + 1, own + p + 1] = frame.y_spread * components.spreads[k]
        theta = Parameters(
            weights,
            frame.y_mean + units[:, 0],
            units[:, 1:],
            frame.y_spread * components.spreads,
            frame.mean,
            frame.whiten,
            change @ sampling @ change.T,
            change @ estimate.error @ change.T,
            state.path,
            state.needed,
            np.array([frame.y_mean, *[0.0] * (p - 1), 0.0])
            + np.append(turn @ state.regression, frame.y_spread * state.spread),
            float(np.mean(moved_share(components, estimate.error + sampling, 20))),
        )
        return theta.ordered(np.argsort(-weights))

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        return theta.components.log_density(xp, theta.frame.columns(xp, x), y)

    def responsibilities(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        """The probability of each component for each row, given its response."""
        components = theta.components
        share = components.responsibilities(xp, components.residuals(xp, theta.frame.columns(xp, x), y))
        return share / xp.sum(share, axis=1)[:, None]

    def expectation(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        """Each row's expected response: over the components, weighted."""
        components = theta.components
        return xp.matmul(theta.frame.columns(xp, x), theta.weights @ components.coefficients)

    def simpler(self, theta: Parameters) -> Parameters:
        """One regression: that of its own scores and the mixture's mean, half each. If the components are far off, so
        is their mean, and it alone would let them pass.
        """
        components = theta.components
        middle = theta.weights @ components.coefficients
        spread = math.sqrt(
            float(theta.weights @ (theta.spreads**2 + np.sum((components.coefficients - middle) ** 2, axis=1)))
        )
        return replace(
            theta,
            weights=np.array([0.5, 0.5]),
            intercepts=np.array([theta.weights @ theta.intercepts, theta.one[0]]),
            slopes=np.vstack([theta.weights @ theta.slopes, theta.one[1:-1]]),
            spreads=np.array([spread, theta.one[-1]]),
        )

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        x, y, _ = self.sample(theta, n, rng)
        return x, y

    def sample(
        self, theta: Parameters, n: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
        """Rows, responses and components; columns are normal with the released mean and covariance, within bounds."""
        white = rng.standard_normal((n, len(theta.x_mean)))
        k = np.searchsorted(np.cumsum(theta.weights)[:-1], rng.uniform(size=n))
        x = np.clip(theta.x_mean + white @ np.linalg.inv(theta.x_whiten).T, -1, 1)
        y = theta.intercepts[k] + np.sum(theta.slopes[k] * x, axis=1) + theta.spreads[k] * rng.standard_normal(n)
        return x, np.clip(y, -1, 1), k

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        return predict_fit(self, sizes, steps)
