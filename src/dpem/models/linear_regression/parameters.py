"""The fitted parameters of a linear regression, and the parts of their errors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.columns import LEAST
from dpem.models.linear_regression.posterior import Gaussian
from dpem.models.linear_regression.state import CurrentFit, ErrorShape, Estimate, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.models.linear_regression.model import LinearRegression


class ErrorParts(NamedTuple):
    """The three parts of a standard error."""

    sampling: float
    privacy: float
    misfit: float


class Linearity(NamedTuple):
    """Curvature of the relation, and growth of the error variance with the fitted value."""

    curvature: Estimate
    heteroscedasticity: Estimate


@dataclass(frozen=True)
class Parameters:
    """A fitted regression in unit coordinates, the ``chosen`` ones of ``width``.

    ``sampling``, ``privacy`` and ``misfit`` are covariances of (intercept, slopes). ``seen``, ``low_end`` and
    ``high_end`` are shares of values that are observed, and that lie at the bounds; ``crowded`` marks bounds that are
    far too wide. The last three end with the response. ``collinear`` and ``rare`` mark slopes that are unidentified
    because columns are nearly collinear, or a level is too rare. ``present`` is the share of rows with a response.
    """

    intercept: float
    coef: FloatArray
    sigma: float
    mean: FloatArray
    covariance: FloatArray
    y_mean: float
    y_spread: float
    sampling: FloatArray
    privacy: FloatArray
    misfit: FloatArray
    sigma_error: ErrorParts
    shape: ErrorShape | None
    seen: FloatArray
    low_end: FloatArray
    high_end: FloatArray
    crowded: tuple[bool, ...]
    collinear: tuple[bool, ...]
    rare: tuple[bool, ...]
    converged: bool
    chosen: NDArray[np.intp]
    width: int
    present: Estimate
    r_squared: Estimate | None = None
    linearity: Linearity | None = None


def classical_covariance(fit: CurrentFit, n: int) -> FloatArray:
    """The sampling covariance of (intercept, slopes) if errors are normal with one variance."""
    rows = n * fit.present
    precision = fit.information.value * (n / (fit.variance * fit.clips.sampling)) + np.diag(1 / fit.prior)
    base = np.linalg.inv(precision) * rows / max(rows - len(fit.prior), 1.0)
    base[0, 0] = max(base[0, 0], fit.variance / rows)
    A, _ = fit.frame.in_unit_coordinates()
    return np.asarray(A @ base @ A.T)


def final_parameters(
    fit: CurrentFit, sampling: FloatArray, model: LinearRegression, state: LinearState, n: int
) -> tuple[Parameters, CurrentFit]:
    """The parameters with this sampling covariance, and the fit, both given the coefficients that are 0: the intercept
    of a model without one, and slopes of columns that are not retained.
    """
    schema, private = model.schema_of(state), bool(fit.information.variance.any())
    A, b = fit.frame.in_unit_coordinates()
    values, privacy, misfit = A @ fit.posterior.mean + b, A @ fit.posterior.covariance @ A.T, np.zeros_like(A)
    collinear = np.zeros(schema.width, dtype=bool)
    if private:
        undecided, collinear = unidentified_covariance(fit)
        shrunk, crowded = crowded_covariance(fit)
        misfit, collinear = A @ fit.misfit @ A.T + undecided + shrunk + _excluded_covariance(fit), collinear | crowded
    classical = classical_covariance(fit, n)
    retained = model.retained(values, classical + privacy)
    rows = np.delete(np.eye(schema.width + 1), np.append(0, 1 + retained), axis=0)
    values_known = np.zeros(len(rows))
    if not model.fit_intercept:
        rows = np.vstack([rows, schema.y_half * np.append(1.0, -schema.middle / schema.half)])
        values_known = np.append(values_known, -schema.y_middle)
    if len(values_known):
        gain = Gaussian(values, classical + privacy + misfit).gain(rows, 1e-14 * np.eye(len(rows)))
        values = values + gain @ (values_known - rows @ values)
        project = np.eye(len(gain)) - gain @ rows
        sampling, privacy, misfit = (project @ part @ project.T for part in (sampling, privacy, misfit))
        inverse = np.linalg.pinv(A)
        fit = replace(fit, posterior=Gaussian(inverse @ (values - b), inverse @ privacy @ inverse.T))
    with_intercept, with_response = np.append(0, 1 + retained), np.append(retained, -1)
    block = np.ix_(with_intercept, with_intercept)
    sigma, columns = math.sqrt(fit.variance) * fit.frame.y_spread, fit.columns
    variance_errors = fit.variance * math.sqrt(2 / (n * fit.present)), fit.variance_error, fit.variance_misfit
    theta = Parameters(
        intercept=float(values[0]),
        coef=values[1 + retained],
        sigma=sigma,
        mean=fit.frame.centre[retained],
        covariance=fit.frame.unit_covariance()[np.ix_(retained, retained)],
        y_mean=float(fit.frame.y_centre + fit.posterior.mean[0] * fit.frame.y_spread),
        y_spread=fit.frame.y_spread,
        sampling=sampling[block],
        privacy=privacy[block],
        misfit=misfit[block],
        sigma_error=ErrorParts(*(sigma * part / (2 * fit.variance) for part in variance_errors)),
        shape=fit.shape,
        seen=columns.seen[retained],
        low_end=columns.low_end[with_response],
        high_end=columns.high_end[with_response],
        crowded=tuple((private & columns.crowded[with_response]).tolist()),
        collinear=tuple(collinear[retained].tolist()),
        rare=tuple(fit.unused[retained].tolist()),
        converged=fit.converged,
        chosen=retained if state.chosen is None else state.chosen[retained],
        width=model.schema.width,
        present=Estimate(fit.present, fit.present_error),
    )
    return theta, fit


def unidentified_covariance(fit: CurrentFit) -> tuple[FloatArray, NDArray[np.bool_]]:
    """A covariance of (intercept, slopes) from nearly collinear columns, and the slopes that it concerns.

    Along an eigenvector of the information with the eigenvalue s and noise sd, each of m steps reduces an error by the
    factor sd/s at worst, and the error is at most √(variance/(s − sd)), or the residuals would be larger. If s clearly
    exceeds its noise the last step gives a better bound: it should have been at most s/(s − 2·sd) times as long. The
    errors count only in so far as a direction has less information than the frame leads to expect. A slope is concerned
    if its loading on such a direction, in standard deviations of its column, is large.
    """
    p, used = len(fit.unused), 1 + np.flatnonzero(~fit.unused)
    concerned = np.zeros(p, dtype=bool)
    block, scale = np.ix_(used, used), max(float(fit.information.value[0, 0]), 0.01)
    values, vectors = np.linalg.eigh(fit.information.value[block] / scale)
    variances, squares = fit.information.variance[block] / scale**2, vectors**2
    noise = np.sqrt(2 * np.sum(squares * (variances @ squares), axis=0))
    low = np.maximum(values - TUNING.information_noise * noise, TUNING.least_information)
    remaining = np.minimum(TUNING.information_noise * noise / values, 1.0) ** len(fit.scores)
    by_residuals = remaining * np.sqrt(fit.variance / np.maximum(low, noise / 4))
    step = (fit.posterior.mean - fit.scores[-1].start)[used] @ vectors
    spread = np.sum(vectors * (fit.posterior.covariance[block] @ vectors), axis=0)
    longer = values / np.maximum(values - 2 * noise, 1e-9)
    by_scores = (longer - 1) * np.sqrt(step**2 + spread)
    expected = np.maximum(np.sum(vectors * (fit.expected_information[block] @ vectors), axis=0), 1e-12)
    error = np.clip(1 - values / expected, 0.0, 1.0) * np.minimum(by_residuals, by_scores)
    slopes = fit.frame.in_unit_coordinates()[0][1:, used] @ vectors
    loading = np.abs(slopes) * np.sqrt(np.diag(fit.frame.unit_covariance()))[:, None]
    for i in np.flatnonzero(error**2 > TUNING.undecided * fit.variance):
        large = loading[:, i] > TUNING.loading * max(float(loading[:, i].max()), 1e-12)
        slopes[:, i], concerned = np.where(large, slopes[:, i], 0.0), concerned | large
    effects = np.vstack([-fit.frame.centre @ slopes, slopes]) * error
    return np.asarray(effects @ effects.T), concerned


def crowded_covariance(fit: CurrentFit) -> tuple[FloatArray, NDArray[np.bool_]]:
    """A covariance of (intercept, slopes) from columns that lie in two bins of their histogram, and the slopes that it
    concerns.

    These columns are whitened with too large a spread, so the prior shrinks their slopes if the information is small or
    hidden by its noise: by at most a spread of the response per spread of the column, times the ratio of posterior to
    prior standard deviation. If one such column is left out its correlations are unknown, and so are the slopes of the
    others. Fitted values at the means of the columns do not change.
    """
    crowded = fit.columns.crowded[:-1] & (fit.columns.seen[:-1] > TUNING.rarely_seen)
    directions = fit.frame.whiten.T / np.maximum(np.linalg.norm(fit.frame.whiten, axis=0), 1e-300)[:, None]
    squares, (value, variance) = directions**2, (part[1:, 1:] for part in fit.information)
    information = np.sum((directions @ value) * directions, axis=1)
    noise = np.sqrt(2 * np.sum((squares @ variance) * squares, axis=1))
    unidentified = information < np.maximum(TUNING.crowded_information * fit.present, TUNING.hidden_spread * noise)
    remaining = np.sum((directions @ fit.posterior.covariance[1:, 1:]) * directions, axis=1)
    ratio = np.sqrt(np.clip(remaining / np.maximum(squares @ fit.prior[1:], 1e-300), 0.0, 1.0))
    if (crowded & fit.unused).any():
        unidentified, ratio = np.ones_like(unidentified), np.ones_like(ratio)
    which = np.asarray(crowded & ~fit.unused & unidentified)
    size = np.where(which, ratio * fit.frame.y_spread * np.diag(fit.frame.scale), 0.0)
    rows = np.vstack([-fit.frame.centre, np.eye(len(size))]) * size
    return np.asarray(rows @ rows.T), which


def _excluded_covariance(fit: CurrentFit) -> FloatArray:
    """The covariance of (intercept, slopes) from coordinates that are left out.

    The standard deviation of a slope is a spread of the response per spread of the column, with the spread ``LEAST**2``
    for a column that may be constant. The effect of a rare level may reach the bounds of the response. Fitted values
    without the level, at the mean of a constant column, or in the middle of the bounds of another do not change.
    """
    p = len(fit.unused)
    level = ~np.isnan(fit.columns.share[:p])
    constant = fit.columns.crowded[:p] & ~fit.columns.rarely_seen[:p]
    spread = np.where(constant, LEAST**2, fit.columns.spread[:p])
    size = np.where(level, (1 + abs(fit.frame.y_centre)) / 4, fit.frame.y_spread / spread)
    size = np.where(fit.unused, size, 0.0)
    rows = np.vstack([np.where(level, 1.0, np.where(constant, -fit.frame.centre, 0.0)), np.eye(p)]) * size
    return np.asarray(rows @ rows.T)
