"""Linear regression as a model: which steps fit it, what is expected of a fit, how likely rows are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpem._validation import Argument, ArgumentError
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.selection import KeepColumns, best_columns
from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import level_clip
from dpem.models.linear_regression.coding import Coding, coded
from dpem.models.linear_regression.columns import Columns
from dpem.models.linear_regression.final_steps import CheckExplained, FindLevel, FindVariance
from dpem.models.linear_regression.missing_values import expected
from dpem.models.linear_regression.parameters import Parameters, classical_covariance, finished
from dpem.models.linear_regression.planning import (
    EFFECT,
    Division,
    anticipated,
    divide,
    divide_wide,
    missed,
    moment_radius,
)
from dpem.models.linear_regression.prediction import expected_loss, predicted_fit
from dpem.models.linear_regression.selection import ChooseColumns, FindMiddle
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.models.linear_regression.steps import (
    FindColumns,
    FindInformation,
    FindLengths,
    FindMoments,
    FindTails,
    TakeStep,
)
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like
from dpem.tables.schema import Schema

#: Up to so many columns a plan rehearses one by one.
MOST_REHEARSED = 100


def score_steps(way: Division, sizes: Sizes) -> tuple[Step, ...]:
    """What follows the moments: clips, information, scores, and the end."""
    first, last = way.steps[: TUNING.early], way.steps[TUNING.early :]
    return (
        FindLengths(way.lengths / 2, math.fsum(way.steps)),
        FindInformation(way.information / 2),
        FindLengths(way.lengths / 2, math.fsum(way.steps)),
        FindInformation(way.information / 2),
        *(TakeStep(rho) for rho in first),
        FindTails(way.residuals, math.fsum(last)),
        *(TakeStep(rho) for rho in last),
        FindLevel(way.level, level_clip(sizes.n, way.level, sizes.rows_per_person)),
        FindVariance(way.variance),
        *(CheckExplained(rho) for rho in way.check),
    )


@dataclass(frozen=True)
class LinearRegression(Model):
    """y = intercept + slopes·x + N(0, σ²), and x ~ N(mean, covariance) where it has missing values."""

    fit_intercept: bool = True
    effect = EFFECT
    jointly: ClassVar[bool] = True  # whether the levels of a factor have common coordinates

    def start(self) -> LinearState:
        return LinearState()

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        way = divide(sizes, self.schema.width, len(self.schema.reads))
        return FindColumns(way.columns), FindMoments(way.moments, way.radius), *score_steps(way, sizes)

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        p = self.schema.width
        if sizes.n <= p:
            raise ArgumentError(
                "X", f"must have more rows than coordinates ({p}), got {sizes.n}: give ", Argument("sparsity"), "."
            )
        if math.isinf(sizes.rho):
            return PredictedFit()
        few = min(p, MOST_REHEARSED)

        def roughly(there: Sizes, p: int = few) -> float:
            return anticipated(there, p, divide(there, p))

        clips = divide(sizes, p).clips
        lost = expected_loss(self._rehearsed_on(few), sizes, few, roughly, clips)
        if p > few:  # more columns than that are not rehearsed one by one
            more = roughly(sizes, p) / roughly(sizes)
            lost = (more * lost[0], more * lost[1], more * lost[2])
        return predicted_fit(lost, sizes)

    def _rehearsed_on(self, columns: int) -> LinearRegression:
        """The same regression on so many invented columns."""
        return replace(self, schema=self.schema.take(np.arange(columns)).unit(), fit_intercept=True)

    def coding(self, schema: Schema, found: Columns) -> Coding:
        """How columns with these summaries are coded."""
        return coded(schema, found, jointly=self.jointly)

    def kept(self, values: FloatArray, covariance: FloatArray) -> NDArray[np.intp]:
        """Which of the columns to keep, given (intercept, slopes) and their covariance: all of them."""
        return np.arange(len(values) - 1)

    def finished(self, fit: CurrentFit, state: LinearState, n: int) -> tuple[Parameters, CurrentFit]:
        """The parameters that the last step leads to, and the fit with what is known to be 0."""
        A, b = fit.frame.in_unit_coordinates()
        whole = classical_covariance(fit, n) + A @ fit.posterior.covariance @ A.T
        kept = self.kept(A @ fit.posterior.mean + b, whole)
        schema = self.schema_of(state)
        return finished(fit, schema, state.chosen, self.schema.width, n, kept, self.fit_intercept)

    def predicted(self, xp: Namespace, theta: Parameters, x: Array) -> tuple[Array, Array]:
        """The mean of each row's response, missing values left out, and its variance, in unit coordinates."""
        precision = np.asarray(np.linalg.inv(theta.covariance), dtype=float)
        full, along = expected(xp, x - like(xp, theta.mean, x), precision, theta.coef)
        slopes = like(xp, theta.coef, x)
        centre = theta.intercept + float(theta.mean @ theta.coef)
        variance = theta.sigma**2 + xp.clip(xp.matmul(along, slopes), 0.0, math.inf)
        return centre + xp.matmul(full, slopes), variance

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        mean, variance = self.predicted(xp, theta, x)
        value = -0.5 * (xp.log(2 * math.pi * variance) + (y - mean) ** 2 / variance)
        return xp.where(xp.isnan(y), xp.zeros_like(value), value)

    def simpler(self, theta: Parameters) -> Parameters:
        return replace(theta, intercept=theta.y_mean, coef=np.zeros_like(theta.coef), sigma=theta.y_spread)

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        x = theta.mean + rng.standard_normal((n, len(theta.mean))) @ np.linalg.cholesky(theta.covariance).T
        return x, theta.intercept + x @ theta.coef + theta.sigma * rng.standard_normal(n)


@dataclass(frozen=True)
class SparseLinearRegression(LinearRegression):
    """The same on at most ``sparsity`` columns of many, chosen by thresholds: no scale of the others need be known.

    Where columns are correlated a neighbour is often chosen before the column that matters, and that one after it. Once
    both are fitted their slopes show which matters, so a few more columns are chosen and fitted than are kept.
    """

    sparsity: int = 1
    gaussian: ClassVar[bool] = False
    jointly: ClassVar[bool] = False

    def kept(self, values: FloatArray, covariance: FloatArray) -> NDArray[np.intp]:
        return best_columns(np.asarray(np.linalg.pinv(covariance[1:, 1:]), dtype=float), values[1:], self.sparsity)

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        way = divide_wide(sizes, self.sparsity, self.schema.width)
        steps: list[Step] = [FindMiddle(way.middle)]
        columns = 0
        for choice, spreads, moments, count in way.rounds:
            columns += count
            radius = moment_radius(sizes.rho, columns)
            steps += [ChooseColumns(choice, count), FindColumns(spreads), FindMoments(moments, radius)]
        return (*steps, *score_steps(way.narrow, sizes), KeepColumns(0.0, way.kept))

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        way = divide_wide(sizes, self.sparsity, self.schema.width)
        if math.isinf(sizes.rho):
            return PredictedFit()
        chance = missed(sizes, self.schema.width, way)
        most = min(self.sparsity, self.schema.width)
        fewer = f"{way.kept} of the {most} columns can be chosen at this price." if way.kept < most else ""

        def roughly(there: Sizes) -> float:
            return anticipated(there, way.kept, divide_wide(there, self.sparsity, self.schema.width).narrow)

        key, model = (self.sparsity, way.chosen), self._rehearsed_on(way.chosen)
        lost = expected_loss(model, sizes, way.kept, roughly, way.narrow.clips, key)
        found = predicted_fit(lost, sizes, chance, fewer)
        return found._replace(feasible=found.feasible and chance < 0.5)
