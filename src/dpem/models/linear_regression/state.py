"""What a regression knows between its steps: all of it released or computed from what was released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import State
from dpem.models.linear_regression.clipping import NO_CLIPS, USUAL_TAILS, Clips, Lengths, Tails, normal_lengths
from dpem.models.linear_regression.columns import Columns
from dpem.models.linear_regression.posterior import FirstAnswer, Gaussian, NoisyMatrix, ScoreAnswer
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
    """How far errors are from normal: their mean with a wide clip, in standard deviations, from where the clipped score
    has it; by which part their variance grows with a wider clip; and the part that the histogram of the scores' lengths
    leads to expect.
    """

    skew: Estimate
    tails: Estimate
    expected_tails: float


@dataclass(frozen=True)
class CurrentFit:
    """A regression that is being fitted. Coefficients are those of its :class:`Frame`.

    Attributes
    ----------
    posterior : Gaussian
        Coefficients that the rows would give without noise, given what was released.
    prior : array
        Variances of the coefficients before any release.
    variance, variance_error : float
        Variance of the errors, where the response's own is 1, and its standard error.
    present, present_error : float
        Share of rows that have a response, and its standard error.
    information : NoisyMatrix
        Σ aaᵀ/n of the rows.
    expected_information : array
        What the frame leads to expect of the information.
    unused : array of bool
        Coordinates that are left out: levels that are too rare, columns that are nearly always missing.
    from_shares : array of bool
        Which second moments of columns follow from shares of levels: rows cannot be otherwise.
    information_released : bool
        Whether the information has been released, not only expected.
    residual_mean, residual_variance : Estimate
        The last release about the residuals at the mean of the posterior: their mean, and the variance of the errors.
    lengths, tails, clips : Lengths, Tails, Clips
        How long rows are in the frame, how many scores are longer than those of normal errors, where scores are
        clipped at present.
    direction : Gaussian
        The direction of the excess of clipped scores, once it is measured.
    clip_unit : float
        What clips are multiples of, once tails are known; before, it is the present standard deviation of residuals.
    misfit : array
        Covariance of the coefficients' errors that do not come from noise: what clipping and the prior may hide.
    variance_misfit : float
        How far the variance may be off because of tails beyond the last clip.
    """

    columns: Columns
    frame: Frame
    posterior: Gaussian
    prior: FloatArray
    variance: float
    variance_error: float
    present: float
    present_error: float
    information: NoisyMatrix
    expected_information: FloatArray
    first: FirstAnswer
    misfit: FloatArray
    unused: NDArray[np.bool_]
    from_shares: NDArray[np.bool_]
    information_released: bool = False
    scores: tuple[ScoreAnswer, ...] = ()
    residual_mean: Estimate = NO_ESTIMATE
    residual_variance: Estimate = NO_ESTIMATE
    shape: ErrorShape | None = None
    lengths: Lengths = ONE_COLUMN
    tails: Tails = USUAL_TAILS
    clips: Clips = NO_CLIPS
    direction: Gaussian | None = None
    clip_unit: float | None = None
    variance_misfit: float = 0.0
    converged: bool = True

    def query(self, kind: type[Q], schema: Schema, **settings: Any) -> Q:
        """A query about the rows at the present coefficients."""
        return kind(schema, frame=self.frame, theta=self.posterior.mean, sigma=self.sigma, **settings)

    def expected_excess(self, norm: float) -> FloatArray:
        """What clipping at this length, in the clips' unit, is expected to take off the score."""
        if self.direction is None:
            return np.zeros(len(self.prior))
        return self.clip_scale * float(self.tails.excess(norm, self.lengths).mean) * self.direction.mean

    def tails_square(self, low: float, high: float) -> float:
        """By which part of the errors' variance long scores add to the mean square as a clip grows from ``low`` to
        ``high`` standard deviations.
        """
        unit = self.clip_scale
        return self.tails.square(low * self.sigma / unit, high * self.sigma / unit) * unit**2 / self.variance

    @property
    def coefficient_error(self) -> float:
        """What the errors of the coefficients add to the variance of residuals."""
        information = self.information.value
        return float(np.sum(self.posterior.covariance * information)) / max(float(information[0, 0]), 0.1)

    @property
    def sigma(self) -> float:
        """The standard deviation of residuals at the mean of the posterior."""
        return math.sqrt(self.variance + self.coefficient_error)

    @property
    def clip_scale(self) -> float:
        """What clips are multiples of."""
        return self.sigma if self.clip_unit is None else self.clip_unit


@dataclass(frozen=True)
class LinearState(State):
    """The state of a fit with what only a regression has."""

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
