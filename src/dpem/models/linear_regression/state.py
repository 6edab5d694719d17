"""The state of a fit between its steps, which holds released numbers and functions of them only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import State
from dpem.models.linear_regression.clipping import NO_CLIPS, USUAL_TAILS, Clips, Lengths, Tails, normal_lengths
from dpem.models.linear_regression.columns import Columns
from dpem.models.linear_regression.posterior import Gaussian, NoisyMatrix, ScoreAnswer
from dpem.models.linear_regression.rows import Frame, RowQuery
from dpem.query import FloatArray
from dpem.tables.schema import Schema

Q = TypeVar("Q", bound=RowQuery)


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


NO_ESTIMATE, ONE_COLUMN = Estimate(0.0, math.inf), normal_lengths(1)


class ErrorShape(NamedTuple):
    """How far errors are from normal: the change of their mean, in standard deviations, and the relative change of
    their variance from the narrow clip to the wide one, and the change of the variance that the tails of the scores
    predict.
    """

    skew: Estimate
    tails: Estimate
    expected_tails: float


@dataclass(frozen=True)
class CurrentFit:
    """A regression that is being fitted, in the coordinates of its :class:`Frame`, with variances in units of the
    response's variance.
    """

    columns: Columns
    frame: Frame
    unused: NDArray[np.bool_]  # coordinates left out: rare levels, columns that are hardly observed or may be constant
    from_shares: NDArray[np.bool_]  # second moments that follow from shares of levels
    posterior: Gaussian  # of the coefficients that the rows would give without noise
    prior: FloatArray  # variances of the coefficients before any release
    misfit: FloatArray  # covariance of the coefficients' errors from clipping and imputation
    variance: float  # of the errors, with its standard error
    variance_error: float
    present: float  # share of rows with a response, and its standard error
    present_error: float
    information: NoisyMatrix  # Σ aaᵀ/n of the rows
    expected_information: FloatArray
    variance_misfit: float = 0.0  # how far tails beyond the last clip may increase the variance
    information_released: bool = False
    scores: tuple[ScoreAnswer, ...] = ()
    residual_mean: Estimate = NO_ESTIMATE  # from the last release of the residuals at the posterior's mean
    residual_variance: Estimate = NO_ESTIMATE
    shape: ErrorShape | None = None
    lengths: Lengths = ONE_COLUMN  # of rows in the frame
    tails: Tails = USUAL_TAILS  # of scores, in excess of normal errors
    clips: Clips = NO_CLIPS  # of scores at present
    clip_unit: float | None = None  # the unit of clips once tails are released
    direction: Gaussian | None = None  # of the clipped part of scores, once released
    converged: bool = True

    def query(self, kind: type[Q], schema: Schema, **settings: Any) -> Q:
        """A query about the rows at the present coefficients."""
        return kind(schema, frame=self.frame, theta=self.posterior.mean, sigma=self.sigma, **settings)

    def expected_excess(self, norm: float) -> FloatArray:
        """The expected clipped part of the score at this clip, in the unit of clips."""
        if self.direction is None:
            return np.zeros(len(self.prior))
        return self.clip_scale * float(self.tails.excess(norm, self.lengths).mean) * self.direction.mean

    def tails_square(self, low: float, high: float) -> float:
        """The increase of the mean square, relative to the error variance, that long scores cause as a clip grows from
        ``low`` to ``high`` standard deviations.
        """
        unit = self.clip_scale
        return self.tails.square(low * self.sigma / unit, high * self.sigma / unit) * unit**2 / self.variance

    @property
    def coefficient_error(self) -> float:
        """The part of the residuals' variance that is due to errors of the coefficients."""
        information = self.information.value
        return float(np.sum(self.posterior.covariance * information)) / max(float(information[0, 0]), 0.1)

    @property
    def sigma(self) -> float:
        """The standard deviation of residuals at the mean of the posterior."""
        return math.sqrt(self.variance + self.coefficient_error)

    @property
    def clip_scale(self) -> float:
        """The unit of clips."""
        return self.sigma if self.clip_unit is None else self.clip_unit


@dataclass(frozen=True)
class LinearState(State):
    """The state of a linear regression."""

    columns: Columns | None = None
    moments: NoisyMatrix | None = None
    current_fit: CurrentFit | None = None

    @property
    def known_columns(self) -> Columns:
        assert self.columns is not None, "columns are summarised first"
        return self.columns

    @property
    def fit(self) -> CurrentFit:
        assert self.current_fit is not None, "moments are released first"
        return self.current_fit
