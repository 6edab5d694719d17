"""Linear regression as a model: its steps, the prediction of a fit, and the density of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpem._validation import Argument, ArgumentError
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import level_clip
from dpem.models.linear_regression.columns import Coding, Columns, column_coding
from dpem.models.linear_regression.fit_check import CheckExplained
from dpem.models.linear_regression.information import FindInformation
from dpem.models.linear_regression.moments import FindColumns, FindMoments
from dpem.models.linear_regression.parameters import Parameters
from dpem.models.linear_regression.planning import (
    EFFECT,
    Division,
    expected_loss,
    predicted_fit,
    price_division,
)
from dpem.models.linear_regression.reference import MaximumLikelihood
from dpem.models.linear_regression.rows import expected_rows
from dpem.models.linear_regression.sandwich import FindVariance
from dpem.models.linear_regression.scores import FindLevel, FindTails, TakeStep
from dpem.models.linear_regression.state import LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like
from dpem.tables.schema import Schema


def score_steps(division: Division, sizes: Sizes) -> tuple[Step, ...]:
    """The steps after the moments: clips and information, score steps, level, variance and check."""
    first, last = division.steps[: TUNING.steps_before_tails], division.steps[TUNING.steps_before_tails :]
    return (
        *2 * (FindInformation(division.information / 2, division.scores),),
        *(TakeStep(rho) for rho in first),
        FindTails(division.tails, math.fsum(last)),
        *(TakeStep(rho) for rho in last),
        FindLevel(division.level, level_clip(sizes.n, division.level, sizes.rows_per_person)),
        FindVariance(division.variance),
        *((CheckExplained(division.check),) if division.check else ()),
    )


def reference_steps(sizes: Sizes) -> tuple[Step, ...]:
    """The steps after the columns without privacy."""
    return MaximumLikelihood(math.inf), *((CheckExplained(math.inf),) if sizes.check else ())


@dataclass(frozen=True)
class LinearRegression(Model):
    """y = intercept + slopes·x + N(0, σ²), and x ~ N(mean, covariance) where it has missing values."""

    fit_intercept: bool = True
    effect = EFFECT
    jointly: ClassVar[bool] = True  # whether the levels of a factor are coded together

    def start(self) -> LinearState:
        return LinearState()

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        division = price_division(sizes, self.schema.width, len(self.schema.reads))
        if math.isinf(sizes.rho):
            return (FindColumns(math.inf), *reference_steps(sizes))
        return (
            FindColumns(division.columns),
            FindMoments(division.moments, division.radius),
            *score_steps(division, sizes),
        )

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        p = self.schema.width
        if sizes.n <= p:
            raise ArgumentError(
                "X", f"must have more rows than coordinates ({p}), got {sizes.n}: give ", Argument("sparsity"), "."
            )
        if math.isinf(sizes.rho):
            return PredictedFit()
        return predicted_fit(expected_loss(sizes, price_division(sizes, p)), sizes)

    def coding(self, schema: Schema, columns: Columns) -> Coding:
        """The coding of columns with these summaries."""
        return column_coding(schema, columns, jointly=self.jointly)

    def retained(self, values: FloatArray, covariance: FloatArray) -> NDArray[np.intp]:
        """The columns to retain, given (intercept, slopes) and their covariance: all of them."""
        return np.arange(len(values) - 1)

    def predicted(self, xp: Namespace, theta: Parameters, x: Array) -> tuple[Array, Array]:
        """The mean and variance of each row's response given its observed values, in unit coordinates."""
        precision = np.asarray(np.linalg.inv(theta.covariance), dtype=float)
        full, projection = expected_rows(xp, x - like(xp, theta.mean, x), precision, theta.coef)
        slopes = like(xp, theta.coef, x)
        centre = theta.intercept + float(theta.mean @ theta.coef)
        variance = theta.sigma**2 + xp.clip(xp.matmul(projection, slopes), 0.0, math.inf)
        return centre + xp.matmul(full, slopes), variance

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        mean, variance = self.predicted(xp, theta, x)
        value = -0.5 * (xp.log(2 * math.pi * variance) + (y - mean) ** 2 / variance)
        return xp.where(xp.isnan(y), xp.zeros_like(value), value)

    def simpler(self, theta: Parameters) -> Parameters:
        return replace(theta, intercept=theta.y_mean, coef=np.zeros_like(theta.coef), sigma=theta.y_spread)
