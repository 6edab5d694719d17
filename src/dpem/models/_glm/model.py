"""A generalised linear model in unit coordinates: its parameters, its steps, and what is said of rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpem._validation import ArgumentError
from dpem.fitting.check import CHECK_SHARE, Check
from dpem.fitting.model import Effect, Model, PredictedFit, Sizes
from dpem.fitting.step import Step, prices
from dpem.models._glm.combine import Posterior, placed
from dpem.models._glm.families import Family
from dpem.models._glm.prediction import predicted_loss
from dpem.models._glm.queries import Predictor, complete
from dpem.models._glm.steps import FindMarginals, FindMoments, GlmState, Progress, TakeStep
from dpem.query import Array, FloatArray, Namespace

#: Parts of ρ: marginals, moments, and the scores together; and how the scores' prices grow.
MARGINALS, MOMENTS, SCORES, GROWTH = 0.10, 0.17, 0.68, (1.0, 1.6, 2.5, 4.0)
#: Rows are clipped at so many times their expected length where moments are asked.
MOMENT_RADIUS = 1.0


@dataclass(frozen=True)
class Parameters:
    """A fitted model in unit coordinates. ``sampling`` and ``privacy`` are covariances of (intercept, coef) over the
    free coordinates; ``mean`` and ``covariance`` are those of the columns, ``response`` the mean response,
    ``complete`` the share of complete rows, ``prior_part`` how much of each coefficient comes from the prior,
    ``crowded`` which columns have nearly all values in one bin, ``explained`` the share of the response's variance that
    the columns explain, ``dispersion`` (value, standard error) where it was measured; ``labels`` name the levels of the
    response.
    """

    intercept: float
    coef: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    mean: FloatArray
    covariance: FloatArray
    response: float
    complete: float
    prior_part: FloatArray
    crowded: tuple[bool, ...]
    explained: float
    dispersion: tuple[float, ...]
    converged: bool
    labels: tuple[str, ...]


@dataclass(frozen=True)
class GeneralisedLinearModel(Model):
    """g(E y) = intercept + coef·u + offset; fitted to complete rows."""

    family: Family = field(kw_only=True)
    offset_coordinate: int = field(default=-1, kw_only=True)
    exposure: int = field(default=-1, kw_only=True)
    labels: tuple[str, ...] = field(default=(), kw_only=True)
    baseline: str = field(default="the intercept alone", kw_only=True)

    def start(self) -> GlmState:
        return GlmState()

    @cached_property
    def free(self) -> NDArray[np.intp]:
        """The columns of (1, u) whose coefficients are fitted."""
        fixed = {self.offset_coordinate + 1, self.exposure + 1} - {0}
        return np.array([j for j in range(self.schema.width + 1) if j not in fixed], dtype=np.intp)

    @cached_property
    def offset(self) -> FloatArray:
        """Coefficients of (1, u) that are known: 0 but for the offset, which has coefficient 1 in its own unit."""
        out = np.zeros(self.schema.width + 1)
        if self.offset_coordinate >= 0:
            j = self.offset_coordinate
            out[0], out[1 + j] = self.schema.middle[j], self.schema.half[j]
        return out

    def predictor(self, coef: FloatArray) -> Predictor:
        if self.exposure < 0:
            return Predictor(coef)
        return Predictor(
            coef, self.exposure, float(self.schema.middle[self.exposure]), float(self.schema.half[self.exposure])
        )

    def mean_offset(self, rows: FloatArray) -> float:
        """The mean of the offset over surrogate rows."""
        return float(np.mean(self.predictor(self.offset)(np, rows[:, 1:])))

    @abstractmethod
    def response_of(self, shares: FloatArray, noise: float) -> tuple[float, Family]:
        """The mean response from the noisy shares of the bins of its unit coordinate, and the family as it clips."""

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        check = (CHECK_SHARE,) if sizes.check else ()
        first, second, whole, *last = prices(sizes.rho, (MARGINALS, MOMENTS, SCORES, *check))
        radius = math.inf if math.isinf(sizes.rho) else MOMENT_RADIUS * math.sqrt(self.schema.width + 1)
        steps = (FindMarginals(first), FindMoments(second, radius), *self.score_steps(whole))
        return (*steps, *(Check(rho, against=self.baseline, advice=NO_BETTER) for rho in last))

    def score_steps(self, rho: float) -> tuple[Step, ...]:
        """The steps along scores, at prices that grow; what a family needs to measure besides is among them."""
        return tuple(TakeStep(own, last=i == len(GROWTH) - 1) for i, own in enumerate(prices(rho, GROWTH)))

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        k = len(self.free)
        if sizes.n <= k:
            raise ArgumentError("X", f"must have more rows than coefficients ({k}), got {sizes.n}.")
        if math.isinf(sizes.rho):
            return PredictedFit()
        return predicted_loss(self, sizes, steps)

    def finished(self, now: Progress, posterior: Posterior, n: int) -> Parameters:
        assert now.surrogate is not None
        rows = now.surrogate.rows[:, 1:]
        coef = placed(posterior.coef, self.free, self.offset)
        eta = self.predictor(coef)(np, rows)
        fitted = self.family.mean(np, eta)
        return Parameters(
            intercept=float(coef[0]),
            coef=coef[1:],
            sampling=posterior.sampling,
            privacy=posterior.privacy,
            mean=now.surrogate.mean,
            covariance=now.surrogate.covariance,
            response=now.mean if not now.answers else float(np.mean(fitted)),
            complete=now.surrogate.complete,
            prior_part=posterior.prior_part,
            crowded=tuple(bool(c) for c in now.marginals.crowded),
            explained=self.explained(fitted),
            dispersion=(),
            converged=True,
            labels=self.labels,
        )

    def explained(self, fitted: FloatArray) -> float:
        """The share of the response's variance that the columns explain."""
        return 0.0

    def eta(self, xp: Namespace, theta: Parameters, x: Array) -> Array:
        """The linear predictor of complete rows."""
        return self.predictor(np.concatenate([[theta.intercept], theta.coef]))(xp, x)

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        rows, response, seen = complete(xp, self.family, x, y)
        return seen * self.family.log_density(xp, self.eta(xp, theta, rows), response)

    def simpler(self, theta: Parameters) -> Parameters:
        offset = self.offset[1:]
        level = self.family.link(theta.response)
        if self.offset_coordinate >= 0 or self.exposure >= 0:
            level -= float(self.predictor(self.offset)(np, theta.mean[None])[0])
        return replace(theta, intercept=level + float(self.offset[0]), coef=offset)

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        root = np.linalg.cholesky(theta.covariance + 1e-12 * np.eye(len(theta.mean)))
        x = np.clip(theta.mean + rng.standard_normal((n, len(theta.mean))) @ root.T, -1.0, 1.0)
        return x, self.family.draw(self.eta(np, theta, x), rng)


NO_BETTER = "Its coefficients may be noise: more rows, a larger epsilon or fewer columns would help."
EFFECT = Effect("standard deviation of the linear predictor over the rows", 1.0, (0.25, 0.5, 1.0, 2.0))
