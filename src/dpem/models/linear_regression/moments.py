"""Second moments of the columns and the response: correlations, a frame that whitens them, and first coefficients.

Without privacy (ε = ∞) the moments are the start of maximum likelihood, whose E-step reads the rows until it converges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import normal_lengths
from dpem.models.linear_regression.columns import Coding, ColumnHistograms, Columns, column_summaries
from dpem.models.linear_regression.posterior import (
    FirstAnswer,
    Posterior,
    combined_posterior,
    eigenvalues_from,
    shrunk_correlations,
    weighted_average,
)
from dpem.models.linear_regression.rows import Frame, by_missing, gram_bound, imputed_moments, row_mask, standardized
from dpem.models.linear_regression.state import CurrentFit, LinearState, Moments
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, into_ball, packed, unpacked, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like
from dpem.tables.schema import Schema


@dataclass(frozen=True)
class JointMoments(NarrowQuery):
    """Σ vvᵀ with v = (1, z of every column, z of the response), missing values as 0, scaled into a ball
    (:func:`gram_bound`).

    Rows without a response add nothing: their columns may be distributed otherwise than those of the others.
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
class FilledMoments(NarrowQuery):
    """The same with missing values filled by N(0, covariance), and their variance added: the E-step of a normal law.

    It promises nothing, so a curator answers it only where nothing is promised (ε = ∞).
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    covariance: FloatArray = field(repr=False)
    label: str = "second moments with missing values filled (reference only)"

    @property
    def bound(self) -> Bound:
        return Bound()

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        z = (xp.concat([x, y[:, None]], axis=1) - like(xp, self.centre, x)) / like(xp, self.spread, x)
        precision, p = np.asarray(np.linalg.inv(self.covariance), dtype=float), self.schema.width + 1
        total: Array = None
        for part, _, own, missing in by_missing(xp, z, y, shares):
            none = part, like(xp, np.zeros((p, p)), x)
            full, unsure = imputed_moments(xp, part, precision, own) if missing else none
            v = xp.concat([xp.ones_like(full[:, :1]), full], axis=1)
            unsure = xp.concat([xp.zeros_like(unsure[:, :1]), unsure], axis=1)
            matrix = over_rows(xp, weighted(v, own), v) + xp.concat([xp.zeros_like(unsure[:1, :]), unsure], axis=0)
            total = packed(xp, matrix) if total is None else total + packed(xp, matrix)
        return total


#: Eigenvalues that are no more than rounding.
ROUNDING = 1e-10
#: EM steps of the reference fit at most, and when it stands still.
MOST_STEPS, STILL = 5000, 1e-12


def maximum_likelihood(
    curator: Curator, schema: Any, centre: FloatArray, spread: FloatArray, matrix: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, bool]:
    """EM of the joint normal law of columns and response until it stands still: the reference, nothing is paid."""
    matrix, converged = eigenvalues_from(matrix, ROUNDING), False
    for _ in range(MOST_STEPS):
        released = unpacked(curator.measure(FilledMoments(schema, centre, spread, matrix), math.inf), len(centre) + 1)
        mean = released[0, 1:]
        fresh = eigenvalues_from(released[1:, 1:] - np.outer(mean, mean), ROUNDING)
        move = max(float(np.max(np.abs(mean))), float(np.max(np.abs(fresh - matrix))))
        centre, matrix = centre + spread * mean, fresh
        if converged := move < STILL:
            break
    scale = np.sqrt(np.diag(matrix))
    return centre, spread * scale, matrix / np.outer(scale, scale), converged


def first_fit(curator: Curator, schema: Schema, columns: Columns, coding: Coding, moments: Moments) -> CurrentFit:
    """The fit that moments lead to. Without noise it is that of maximum likelihood, for which rows are read again
    until it converges.
    """
    p, (released, noise) = schema.width, moments
    private = bool(noise.any())
    seen = np.append(columns.seen[:p], 1.0)  # of rows with a response
    of_mean, of_square = noise[0, 1:] / seen**2, np.diag(noise)[1:] / seen**2
    mean = released[0, 1:] / seen / (1 + 2 * of_mean)
    square = 1 + (np.diag(released)[1:] / seen - 1) / (1 + 2 * of_square)
    spread = np.sqrt(np.maximum(square - mean**2, np.minimum(0.25, 3 * np.sqrt(of_square)) + ROUNDING))
    levels = np.append(np.diag(coding.from_shares), False)
    mean, spread = np.where(levels, 0.0, mean), np.where(levels, 1.0, spread)
    outer = np.outer(seen * spread, seen * spread)
    matrix = released[1:, 1:] / outer - np.outer(mean / spread, mean / spread)
    np.fill_diagonal(matrix, 1.0)
    variances = noise[1:, 1:] / (1 + np.eye(p + 1)) / outer**2
    means = np.where(levels[:p], coding.mean_variance, of_mean[:p] / spread[:p] ** 2)
    matrix[:p, :p] = np.where(coding.from_shares, coding.gram, matrix[:p, :p])
    variances[:p, :p] = np.where(coding.from_shares, coding.gram_variance, variances[:p, :p])
    centre, scale = coding.centre.copy(), coding.scale / spread[:p, None]
    numeric = ~levels[:p]
    centre[numeric] += mean[:p][numeric] / np.diag(coding.scale)[numeric]
    y_centre, y_spread = columns.centre[p] + columns.spread[p] * mean[p], columns.spread[p] * spread[p]
    converged, unused = True, coding.unused
    if not private:
        whole = np.append(centre, y_centre), np.append(1 / np.diag(scale), y_spread)
        whole_centre, whole_spread, matrix, converged = maximum_likelihood(curator, schema, *whole, matrix)
        (centre, y_centre), scale = (whole_centre[:p], whole_centre[p]), np.diag(1 / whole_spread[:p])
        y_spread = whole_spread[p]
    matrix[:p][unused], matrix[:, :p][:, unused] = 0.0, 0.0
    matrix[np.flatnonzero(unused), np.flatnonzero(unused)] = 1.0
    variances[:p][unused], variances[:, :p][:, unused], means[unused] = 0.0, 0.0, 0.0
    between, of_between, edge = shrunk_correlations(matrix[:p, :p], variances[:p, :p], coding.from_shares)
    frame = _whitened_frame(columns, (centre, scale, float(y_centre), float(y_spread)), between, edge, coding, private)
    correlations = between, of_between
    return _first_posterior(columns, frame, coding, matrix[:p, p], variances, correlations, means, converged)


def _whitened_frame(
    columns: Columns,
    place: tuple[FloatArray, FloatArray, float, float],
    between: FloatArray,
    edge: float,
    coding: Coding,
    private: bool,
) -> Frame:
    """The frame that whitens these correlations; unused coordinates have no part in it."""
    p, used = len(between), np.flatnonzero(~coding.unused)
    values, vectors = np.linalg.eigh(between)
    covariance = np.asarray((vectors * np.maximum(values, max(edge, ROUNDING))) @ vectors.T)
    whiten = np.zeros((p, p))
    if len(used):
        own = covariance[np.ix_(used, used)]
        if private:  # the few rows at the far end of a lopsided column, or of a rare level, shall not be clipped
            wider = np.maximum(columns.least[used] * np.diag(place[1])[used], 1.0) ** 2 - 1
            rare = np.where(coding.from_shares, np.eye(p) - coding.gram, 0.0)[np.ix_(used, used)]
            own = own + np.diag(wider) + eigenvalues_from(rare, 0.0)
        values, vectors = np.linalg.eigh(own)
        whiten[np.ix_(used, used)] = (vectors / np.sqrt(np.maximum(values, ROUNDING))).T
    return Frame(*place, covariance, whiten, coding.excluded)


def _first_posterior(
    columns: Columns,
    frame: Frame,
    coding: Coding,
    beside: FloatArray,
    variances: FloatArray,
    correlations: tuple[FloatArray, FloatArray],
    means: FloatArray,
    converged: bool,
) -> CurrentFit:
    """What the correlations say of the coefficients: the first measurement."""
    p, (between, of_between), whiten = frame.width, correlations, frame.whiten
    turned = whiten**2
    unsure = np.zeros((p + 1, p + 1))
    unsure[1:, 1:] = turned @ (of_between * (1 + np.eye(p))) @ turned.T * (1 + np.eye(p))
    unsure[0, 1:] = unsure[1:, 0] = turned @ means
    slope = np.eye(p + 1)
    slope[1:, 1:] = whiten @ between @ whiten.T
    noise = np.diag(np.concatenate([[variances[p, p]], turned @ variances[:p, p] + np.where(coding.unused, 1.0, 0.0)]))
    prior = np.concatenate([[1.0], np.full(p, TUNING.prior / p)])
    first = FirstAnswer(np.concatenate([[0.0], whiten @ beside]), slope, noise, unsure)
    posterior = Posterior(np.zeros(p + 1), np.diag(prior))
    private = bool(variances.any())
    if private:
        posterior, _ = combined_posterior(posterior, prior, first, (), slope, unsure, 1.0, normal_lengths(p))
    else:
        exact = np.asarray(np.linalg.lstsq(slope, first.answer, rcond=1e-10)[0], dtype=float)
        posterior = Posterior(exact, np.zeros((p + 1, p + 1)))
    explained = float(posterior.mean[1:] @ slope[1:, 1:] @ posterior.mean[1:])
    least = TUNING.least_variance if private else ROUNDING
    variance = min(max(1 - explained + float(np.trace(posterior.covariance)), least), 1.0)
    root = np.sqrt(columns.seen[:p])
    usual = np.eye(p + 1)
    usual[1:, 1:] = whiten @ (frame.covariance * np.outer(root, root)) @ whiten.T
    return CurrentFit(
        columns=columns,
        frame=frame,
        posterior=posterior,
        prior=prior,
        variance=variance,
        variance_error=0.5 * variance,
        present=float(columns.seen[p]),
        present_error=float(columns.noise[p]),
        information=slope,
        information_variance=unsure,
        expected_information=usual,
        first=first,
        unused=coding.unused,
        from_shares=coding.from_shares,
        converged=converged,
    )


@dataclass(frozen=True)
class FindColumns(Step):
    """Centre, spread and missing values of every column, shares of levels."""

    def describe(self) -> str:
        return "histogram of every column and of the response: centre, spread, shares of levels, missing values"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        columns = state.columns
        schema = model.schema_of(state)
        if columns is not None:  # the response's is known, and that of columns that were chosen before
            schema = schema.take(np.arange(len(columns.centre) - 1, schema.width))
        query = ColumnHistograms(schema, with_response=columns is None)
        noise = curator.noise_scale(query, self.rho)
        released = column_summaries(query, curator.measure(query, self.rho), noise)
        if columns is None:
            columns, released = released.take(slice(-1, None)), released.take(slice(-1))
        return replace(state, columns=columns.with_columns(released.of_present(columns)))


@dataclass(frozen=True)
class FindMoments(Step):
    """Correlations of columns and response, a frame in which columns are hardly correlated, and first coefficients."""

    radius: float = math.inf

    def describe(self) -> str:
        return f"second moments of columns and response, clipped at {self.radius:.3g} spreads"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        columns, schema = state.found_columns(), model.schema_of(state)
        p, coding = schema.width, model.coding(schema, columns)
        query = JointMoments(schema, coding, float(columns.centre[-1]), float(columns.spread[-1]), self.radius)
        noise = curator.noise_scale(query, self.rho)
        released = unpacked(curator.measure(query, self.rho), p + 2)
        kept = max(float(released[0, 0]), 0.05)
        moments = Moments(released / kept, noise**2 / 2 / kept**2 * (1 + np.eye(p + 2)))
        if state.moments is not None and noise:
            moments = _pooled_moments(moments, state.moments)
        return replace(state, moments=moments, current_fit=first_fit(curator, schema, columns, coding, moments))


def _pooled_moments(moments: Moments, before: Moments) -> Moments:
    """Moments averaged with those of fewer columns that were released before, by their noise."""
    value, variance = moments.value.copy(), moments.variance.copy()
    own = np.ix_(*2 * ([*range(len(before.value) - 1), len(value) - 1],))
    value[own], variance[own] = weighted_average(value[own], variance[own], *before)
    return Moments(value, variance)
