"""Regression on a few of many columns, chosen by the signs of residuals, so that no scale need be known.

Residuals are first those from the middle of the response, then those from the fit on the columns chosen so far.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.check import CHECK_SHARE
from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.selection import (
    ChooseColumns,
    KeepColumns,
    ScaledResiduals,
    best_columns,
    miss_probability,
    round_sizes,
)
from dpem.fitting.step import Step, prices
from dpem.models.linear_regression.columns import numeric_columns
from dpem.models.linear_regression.model import LinearRegression, reference_steps, score_steps
from dpem.models.linear_regression.moments import FindColumns, FindMoments
from dpem.models.linear_regression.planning import Division, expected_loss, moment_radius, predicted_fit
from dpem.models.linear_regression.reference import MaximumLikelihood
from dpem.models.linear_regression.rows import Frame, expected_rows, standardized
from dpem.models.linear_regression.state import LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.histograms import BINS, ColumnHistograms
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class Signs(ScaledResiduals):
    """The signs of residuals from ``middle``, or from the fit ``theta`` on the columns ``chosen`` in a frame."""

    middle: float = 0.0
    chosen: NDArray[np.intp] | None = field(default=None, repr=False)
    frame: Frame | None = field(default=None, repr=False)
    theta: FloatArray | None = field(default=None, repr=False)

    def scaled(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
        centre = xp.full_like(y, self.middle)
        if self.chosen is not None and self.frame is not None and self.theta is not None:
            frame = self.frame
            columns = xp.stack([x[:, int(j)] for j in self.chosen], axis=1)
            z = standardized(xp, columns, frame.centre, frame.scale)
            full, _ = expected_rows(xp, z, frame.precision, np.zeros(frame.width))
            predictor = float(self.theta[0]) + xp.matmul(full, like(xp, frame.slopes(self.theta), x))
            centre = frame.y_centre + frame.y_spread * predictor
        above, below = (xp.astype(side, xp.float64) for side in (y >= centre, y < centre))
        return above - below, above + below


@dataclass(frozen=True)
class FindMiddle(Step):
    """Release the middle of the response."""

    def describe(self) -> str:
        return "middle of the response"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        query = ColumnHistograms(model.schema.take(np.array([0])), with_columns=False)
        noise = curator.noise_scale(query, self.rho)
        shares = curator.measure(query, self.rho).reshape(1, BINS + 1)
        indicator = np.array([model.schema.y_middle == model.schema.y_half == 0.5])
        return replace(state, columns=numeric_columns(shares, noise, indicator))


class Round(NamedTuple):
    """Prices of a round of choices, and the number of columns that it chooses."""

    choice: float
    columns: float
    moments: float
    chosen: int


class WideDivision(NamedTuple):
    """Prices of a fit that first chooses columns: of the middle, of each round and of the fit on the ``narrow.p``
    chosen columns; and the number of columns ``retained`` in the end.
    """

    middle: float
    rounds: tuple[Round, ...]
    narrow: Division
    retained: int


def wide_division(sizes: Sizes, sparsity: int, d: int) -> WideDivision:
    """The division of the price if up to ``sparsity`` of d columns are retained, fewer if the price is too small.

    Moments of a round are averaged with those of earlier rounds, so their price is not lost.
    """
    rho = sizes.rho
    needed = TUNING.rows_per_column * sizes.rows_per_person
    most = math.inf if math.isinf(rho) else sizes.n * math.sqrt(2 * rho) / needed
    k = max(1, min(sparsity, d, math.floor(min(most, sizes.n / 3))))
    chosen = min(math.ceil(TUNING.surplus * k), d)
    counts = round_sizes(chosen, TUNING.rounds)
    check = CHECK_SHARE / (1 - CHECK_SHARE) if sizes.check else 0.0
    middle, choice, *narrow = prices(rho, (*TUNING.wide, check))
    division = Division(chosen, *narrow)
    moments = prices(division.moments, itertools.accumulate(counts))
    rounds = map(Round, prices(choice, counts), prices(division.columns, counts), moments, counts)
    return WideDivision(middle, tuple(rounds), division, k)


@dataclass(frozen=True)
class SparseLinearRegression(LinearRegression):
    """Linear regression on at most ``sparsity`` of many columns."""

    sparsity: int = 1
    gaussian: ClassVar[bool] = False
    jointly: ClassVar[bool] = False

    def retained(self, values: FloatArray, covariance: FloatArray) -> NDArray[np.intp]:
        return best_columns(np.asarray(np.linalg.pinv(covariance[1:, 1:]), dtype=float), values[1:], self.sparsity)

    def residuals(self, state: LinearState) -> Signs:
        """Residuals from the middle of the response, or from the fit on the columns chosen so far."""
        fit = state.current_fit
        if fit is None:
            return Signs(float(state.known_columns.centre[-1]))
        return Signs(chosen=state.chosen, frame=fit.frame, theta=fit.posterior.mean)

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        division = wide_division(sizes, self.sparsity, self.schema.width)
        reference = MaximumLikelihood(math.inf) if math.isinf(sizes.rho) else None
        steps: list[Step] = [FindMiddle(division.middle)]
        columns = 0
        for part in division.rounds:
            columns += part.chosen
            steps += [ChooseColumns(part.choice, part.chosen), FindColumns(part.columns)]
            steps += [reference or FindMoments(part.moments, moment_radius(columns))]
        last = reference_steps(sizes)[1:] if reference else score_steps(division.narrow, sizes)
        return (*steps, *last, KeepColumns(0.0, division.retained))

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        division = wide_division(sizes, self.sparsity, self.schema.width)
        if math.isinf(sizes.rho):
            return PredictedFit()
        # mean sign of a residual above the median of a column that explains an equal part of the expected R²
        signal = math.asin(math.sqrt((sizes.effect or TUNING.explained) / division.retained)) / math.pi
        price = math.fsum(part.choice for part in division.rounds)
        chance = miss_probability(signal, price, division.narrow.p, sizes, self.schema.width)
        most = min(self.sparsity, self.schema.width)
        fewer = (
            f"{division.retained} of the {most} columns can be chosen at this price."
            if division.retained < most
            else ""
        )
        lost = expected_loss(sizes, division.narrow._replace(p=division.retained))
        prediction = predicted_fit(lost, sizes, chance, fewer)
        return prediction._replace(feasible=prediction.feasible and chance < 0.5)
