"""What a regression knows between its steps: all of it released or computed from what was released."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import State
from dpem.models.linear_regression.clipping import NO_CLIPS, USUAL_TAILS, Clips, Lengths, Tails, normal_lengths
from dpem.models.linear_regression.columns import Columns
from dpem.models.linear_regression.posterior import Direction, FirstAnswer, Posterior, ScoreAnswer
from dpem.models.linear_regression.rows import Frame, RowQuery
from dpem.query import FloatArray
from dpem.tables.schema import Schema

Q = TypeVar("Q", bound=RowQuery)


class Moments(NamedTuple):
    """Second moments of (1, columns, response) as fractions of rows, and the variances of their noise."""

    value: FloatArray
    variance: FloatArray


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class CurrentFit:
    """A regression that is being fitted. Coefficients are those of its :class:`Frame`.

    Attributes
    ----------
    posterior : Posterior
        Coefficients that the rows would give without noise, given what was released.
    prior : array
        Variances of the coefficients before any release.
    variance, variance_error : float
        Variance of the errors, where the response's own is 1, and its standard error.
    present, present_error : float
        Share of rows that have a response, and its standard error.
    information, information_variance : array
        Σ aaᵀ/n of the rows, and the variances of its entries.
    expected_information : array
        What the frame leads to expect of the information.
    from_shares : array of bool
        Which second moments of columns follow from shares of levels: rows cannot be otherwise.
    lengths : Lengths
        How long rows are in the frame.
    clips : Clips
        How scores are clipped at present.
    tails : Tails
        How many scores are longer than those of normal errors.
    level : Estimate
        Mean of the residuals at the mean of the posterior.
    size : Estimate
        The last release about the variance of the errors.
    direction : Direction
        Which way clipping moves the score, once that is measured.
    clip_unit : float
        What clips are multiples of, once tails are known; before, it is the present standard deviation of residuals.
    misfit : array
        Covariance of the coefficients' errors that do not come from noise: what clipping and the prior may hide.
    variance_misfit : float
        How far the variance may be off because of tails beyond the last clip.
    shape : tuple of float
        How far errors are from normal: their mean, in standard deviations, from where the clipped score has it, and by
        which part their variance grows with a wider clip, each with its standard error; and how much of that the
        histogram of the scores' lengths leads to expect.
    inflation : array
        Variance of each coefficient's score over what it is with normal errors of one variance, from the sandwich.
    unused : array of bool
        Coordinates that are left out: levels that are too rare, columns that are nearly always missing.
    """

    columns: Columns
    frame: Frame
    posterior: Posterior
    prior: FloatArray
    variance: float
    variance_error: float
    present: float
    present_error: float
    information: FloatArray
    information_variance: FloatArray
    expected_information: FloatArray
    first: FirstAnswer
    unused: NDArray[np.bool_]
    from_shares: NDArray[np.bool_]
    scores: tuple[ScoreAnswer, ...] = ()
    level: Estimate = field(default_factory=lambda: Estimate(0.0, 0.0))
    size: Estimate = field(default_factory=lambda: Estimate(1.0, 0.0))
    shape: tuple[float, ...] = ()
    lengths: Lengths = field(default_factory=lambda: normal_lengths(1))
    clips: Clips = NO_CLIPS
    tails: Tails = USUAL_TAILS
    direction: Direction | None = None
    clip_unit: float = 0.0
    misfit: FloatArray = field(default_factory=lambda: np.zeros(()))
    variance_misfit: float = 0.0
    inflation: FloatArray | None = None
    converged: bool = True
    information_released: bool = False

    def query(self, kind: type[Q], schema: Schema, **settings: Any) -> Q:
        """A query about the rows at the present coefficients."""
        return kind(schema, frame=self.frame, theta=self.posterior.mean, sigma=self.sigma, **settings)

    def cut_off(self, norm: float) -> FloatArray:
        """What clipping at this length, in the clips' unit, is expected to take off the score."""
        if self.direction is None:
            return np.zeros(len(self.prior))
        return self.clip_unit * float(self.tails.lost(norm, self.lengths)[0]) * self.direction.mean

    @property
    def error(self) -> float:
        """What the errors of the coefficients add to the variance of residuals."""
        added = float(np.sum(self.posterior.covariance * self.information))
        return added / max(float(self.information[0, 0]), 0.1)

    @property
    def sigma(self) -> float:
        """The standard deviation of residuals at the mean of the posterior."""
        return math.sqrt(self.variance + self.error)


@dataclass(frozen=True)
class LinearState(State):
    """The state of a fit with what only a regression has."""

    columns: Columns | None = None
    moments: Moments | None = None
    current_fit: CurrentFit | None = None

    def found_columns(self) -> Columns:
        assert self.columns is not None, "columns are summarised first"
        return self.columns

    def current(self) -> CurrentFit:
        assert self.current_fit is not None, "moments are released first"
        return self.current_fit
