"""Second moments of columns and response: their correlations, a frame that whitens them, and the first coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import Step
from dpem.models.linear_regression.columns import Coding, ColumnHistograms, Columns, column_summaries
from dpem.models.linear_regression.posterior import (
    Gaussian,
    NoisyMatrix,
    noise_variances,
    product_covariance,
    shrunk_correlations,
)
from dpem.models.linear_regression.rows import ROUNDING, Frame, row_mask, standardized
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, gram_bound, into_ball, packed, unpacked, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace

if TYPE_CHECKING:
    from dpem.models.linear_regression.model import LinearRegression


@dataclass(frozen=True)
class JointMoments(NarrowQuery):
    """Σ vvᵀ with v = (1, z of every column, z of the response), missing values as 0, scaled into a ball
    (:func:`~dpem.queries.narrow.gram_bound`).

    Rows without a response add nothing, as their columns may have another distribution.
    """

    coding: Coding = field(repr=False)
    y_centre: float
    y_spread: float
    radius: float

    @property
    def label(self) -> str:
        return f"second moments of the columns and the response, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return gram_bound(self.radius, self.schema.width + 2)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        z, r = standardized(xp, x, self.coding.centre, self.coding.scale), (y - self.y_centre) / self.y_spread
        v = xp.concat([xp.ones_like(r)[:, None], z, r[:, None]], axis=1)
        seen = xp.astype(row_mask(xp, x, y, self.coding.excluded), xp.float64)
        v = into_ball(xp, zero_nonfinite(xp, v), self.radius, times=seen)
        return packed(xp, over_rows(xp, weighted(v, shares), v))


@dataclass(frozen=True)
class Standardization:
    """Correlations of columns, and of columns with the response, with the variances of their errors; and the frame."""

    frame: Frame
    correlations: NoisyMatrix
    mean_variance: FloatArray
    response_correlations: FloatArray
    response_variance: FloatArray


def hidden_spread(columns: Columns, moments: NoisyMatrix) -> NDArray[np.bool_]:
    """Which columns may be constant: nearly all rows lie in two bins of their histogram, and noise hides the
    variance.
    """
    p, (value, noise) = len(columns.centre) - 1, moments
    mean, of_mean, of_square = value[0, 1 : p + 1], noise[0, 1 : p + 1], np.diag(noise)[1 : p + 1]
    variance = np.diag(value)[1 : p + 1] - mean**2
    return columns.crowded[:p] & (variance < TUNING.hidden_spread * np.sqrt(of_square + 4 * mean**2 * of_mean))


def standardized_moments(columns: Columns, coding: Coding, moments: NoisyMatrix) -> Standardization:
    """Correlations from noisy moments with missing values as 0, shrunk where they may be noise."""
    p, (released, noise) = len(coding.centre), moments
    seen = np.append(columns.seen[:p], 1.0)  # of rows with a response
    of_mean, of_square = noise[0, 1:] / seen**2, np.diag(noise)[1:] / seen**2
    mean = released[0, 1:] / seen / (1 + 2 * of_mean)
    square = 1 + (np.diag(released)[1:] / seen - 1) / (1 + 2 * of_square)
    spread = np.sqrt(np.maximum(square - mean**2, np.minimum(0.25, 3 * np.sqrt(of_square)) + ROUNDING))
    levels, used = np.append(np.diag(coding.from_shares), columns.binary_response), np.append(~coding.unused, True)
    mean, spread = np.where(levels, 0.0, mean), np.where(levels, 1.0, spread)
    outer, both = np.outer(seen * spread, seen * spread), np.outer(used, used)
    matrix = np.where(both, released[1:, 1:] / outer - np.outer(mean / spread, mean / spread), 0.0)
    np.fill_diagonal(matrix, 1.0)
    variances = np.where(both, noise[1:, 1:] / (1 + np.eye(p + 1)) / outer**2, 0.0)
    mean_variance = np.where(levels[:p], coding.mean_variance, of_mean[:p] / spread[:p] ** 2)
    between = NoisyMatrix(
        np.where(coding.from_shares & both[:p, :p], coding.gram, matrix[:p, :p]),
        np.where(coding.from_shares & both[:p, :p], coding.gram_variance, variances[:p, :p]),
    )
    correlations, edge = shrunk_correlations(between, coding.from_shares | np.eye(p, dtype=bool))
    scale, numeric = coding.scale / spread[:p, None], ~levels[:p]
    centre = np.where(numeric, coding.centre + mean[:p] / np.diag(coding.scale), coding.centre)
    y_centre, y_spread = columns.centre[p] + columns.spread[p] * mean[p], columns.spread[p] * spread[p]
    values, vectors = np.linalg.eigh(correlations.value)
    covariance = np.asarray((vectors * np.maximum(values, max(edge, ROUNDING))) @ vectors.T)
    whiten = _whitening(columns, coding, covariance, np.diag(scale))
    frame = Frame(centre, scale, float(y_centre), float(y_spread), covariance, whiten, coding.excluded)
    return Standardization(frame, correlations, np.where(used[:p], mean_variance, 0.0), matrix[:, p], variances[:, p])


def _whitening(columns: Columns, coding: Coding, covariance: FloatArray, scale: FloatArray) -> FloatArray:
    """A matrix that whitens the used coordinates. The variance of a lopsided column is increased, so that its few rows
    at the far end are not clipped.
    """
    used = np.flatnonzero(~coding.unused)
    whiten, block = np.zeros_like(covariance), np.ix_(used, used)
    if len(used):
        far_end = np.maximum(columns.least[used] * scale[used], 1.0) ** 2 - 1
        values, vectors = np.linalg.eigh(covariance[block] + np.diag(far_end))
        whiten[block] = (vectors / np.sqrt(np.maximum(values, ROUNDING))).T
    return whiten


def first_fit(columns: Columns, coding: Coding, moments: NoisyMatrix) -> CurrentFit:
    """The fit after the moments: correlations with the response are the first measurement of the coefficients."""
    if moments.variance.any():
        coding = coding._replace(unused=coding.unused | hidden_spread(columns, moments))
    known = standardized_moments(columns, coding, moments)
    frame, whiten, p = known.frame, known.frame.whiten, known.frame.width
    slope = NoisyMatrix(np.eye(p + 1), np.zeros((p + 1, p + 1)))
    slope.value[1:, 1:] = whiten @ known.correlations.value @ whiten.T
    slope.variance[1:, 1:] = whiten**2 @ (known.correlations.variance * (1 + np.eye(p))) @ whiten.T**2 * (1 + np.eye(p))
    slope.variance[0, 1:] = slope.variance[1:, 0] = whiten**2 @ known.mean_variance
    noise = np.append(known.response_variance[p], whiten**2 @ known.response_variance[:p] + coding.unused)
    prior = np.append(1.0, np.full(p, TUNING.prior / p))
    posterior = Gaussian(np.zeros(p + 1), np.diag(prior))
    start, answer = posterior, np.append(0.0, whiten @ known.response_correlations[:p])
    for _ in range(2):  # the effect of the slope's errors depends on the coefficients
        square = np.outer(posterior.mean, posterior.mean) + posterior.covariance
        error = np.diag(noise + TUNING.first_error**2) + product_covariance(slope.variance, square)
        posterior = start.given(answer, slope.value, error)
    explained = float(posterior.mean @ slope.value @ posterior.mean) - float(posterior.mean[0] ** 2)
    variance = min(max(1 - explained + float(np.trace(posterior.covariance)), TUNING.least_variance), 1.0)
    root = np.sqrt(columns.seen[:p])
    expected = np.eye(p + 1)
    expected[1:, 1:] = whiten @ (frame.covariance * np.outer(root, root)) @ whiten.T
    return CurrentFit(
        columns=columns,
        frame=frame,
        posterior=posterior,
        prior=prior,
        variance=variance,
        variance_error=0.5 * variance,  # clipped moments show little of the tails
        present=float(columns.seen[p]),
        present_error=float(columns.noise[p]),
        information=slope,
        expected_information=expected,
        misfit=np.zeros((p + 1, p + 1)),
        unused=coding.unused,
        from_shares=coding.from_shares,
    )


@dataclass(frozen=True)
class FindColumns(Step):
    """Release centre, spread and missing share of every column, and shares of levels."""

    def describe(self) -> str:
        return "histogram of every column and of the response: centre, spread, shares of levels, missing values"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        columns = state.columns
        schema = model.schema_of(state)
        if columns is not None:  # of the response and of columns chosen before, summaries are known
            schema = schema.take(np.arange(len(columns.centre) - 1, schema.width))
        query = ColumnHistograms(schema, with_response=columns is None)
        noise = curator.noise_scale(query, self.rho)
        released = column_summaries(query, curator.measure(query, self.rho), noise)
        if columns is None:
            columns, released = released.take(slice(-1, None)), released.take(slice(-1))
        return replace(state, columns=columns.with_columns(released.of_present(columns)))


@dataclass(frozen=True)
class FindMoments(Step):
    """Release second moments; they give a frame in which columns are hardly correlated, and the first coefficients."""

    radius: float = math.inf

    def describe(self) -> str:
        return f"second moments of columns and response, clipped at {self.radius:.3g} spreads"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        columns, schema = state.known_columns, model.schema_of(state)
        coding, k = model.coding(schema, columns), schema.width + 2
        query = JointMoments(schema, coding, float(columns.centre[-1]), float(columns.spread[-1]), self.radius)
        released = unpacked(curator.measure(query, self.rho), k)
        included = max(float(released[0, 0]), 0.05)  # share of the rows
        noise = curator.noise_scale(query, self.rho) / included
        moments = NoisyMatrix(released / included, noise_variances(noise, k))
        if state.moments is not None:  # of fewer columns, released before
            before = state.moments
            earlier = np.ix_(*2 * ([*range(len(before.value) - 1), k - 1],))
            average = NoisyMatrix(moments.value[earlier], moments.variance[earlier]).averaged(before)
            moments.value[earlier], moments.variance[earlier] = average
        return replace(state, moments=moments, current_fit=first_fit(columns, coding, moments))
