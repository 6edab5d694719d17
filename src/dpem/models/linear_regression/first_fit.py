"""Correlations, a frame and first coefficients from the moments of columns and response."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.clipping import normal_lengths
from dpem.models.linear_regression.coding import Coding
from dpem.models.linear_regression.columns import Columns
from dpem.models.linear_regression.combine_scores import FirstAnswer, combined
from dpem.models.linear_regression.frame import Frame
from dpem.models.linear_regression.gaussian_posterior import Posterior, positive, shrunk
from dpem.models.linear_regression.reference import ROUNDING, maximum_likelihood
from dpem.models.linear_regression.state import CurrentFit, Moments
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.query import FloatArray
from dpem.tables.schema import Schema


def begin(curator: Curator, schema: Schema, known: Columns, coding: Coding, moments: Moments) -> CurrentFit:
    """The fit that moments lead to. Without noise it is that of maximum likelihood, for which rows are read again
    until it converges.
    """
    p, (found, noise) = schema.width, moments
    private = bool(noise.any())
    seen = np.append(known.seen[:p], 1.0)  # of rows with a response
    of_mean, of_square = noise[0, 1:] / seen**2, np.diag(noise)[1:] / seen**2
    mean = found[0, 1:] / seen / (1 + 2 * of_mean)
    square = 1 + (np.diag(found)[1:] / seen - 1) / (1 + 2 * of_square)
    spread = np.sqrt(np.maximum(square - mean**2, np.minimum(0.25, 3 * np.sqrt(of_square)) + ROUNDING))
    levels = np.append(np.diag(coding.known), False)
    mean, spread = np.where(levels, 0.0, mean), np.where(levels, 1.0, spread)
    outer = np.outer(seen * spread, seen * spread)
    matrix = found[1:, 1:] / outer - np.outer(mean / spread, mean / spread)
    np.fill_diagonal(matrix, 1.0)
    variances = noise[1:, 1:] / (1 + np.eye(p + 1)) / outer**2
    means = np.where(levels[:p], coding.mean_variance, of_mean[:p] / spread[:p] ** 2)
    matrix[:p, :p] = np.where(coding.known, coding.gram, matrix[:p, :p])
    variances[:p, :p] = np.where(coding.known, coding.gram_variance, variances[:p, :p])
    centre, scale = coding.centre.copy(), coding.scale / spread[:p, None]
    numeric = ~levels[:p]
    centre[numeric] += mean[:p][numeric] / np.diag(coding.scale)[numeric]
    y_centre, y_spread = known.centre[p] + known.spread[p] * mean[p], known.spread[p] * spread[p]
    converged, unused = True, coding.unused
    if not private:
        whole = np.append(centre, y_centre), np.append(1 / np.diag(scale), y_spread)
        whole_centre, whole_spread, matrix, converged = maximum_likelihood(curator, schema, *whole, matrix)
        (centre, y_centre), scale = (whole_centre[:p], whole_centre[p]), np.diag(1 / whole_spread[:p])
        y_spread = whole_spread[p]
    matrix[:p][unused], matrix[:, :p][:, unused] = 0.0, 0.0
    matrix[np.flatnonzero(unused), np.flatnonzero(unused)] = 1.0
    variances[:p][unused], variances[:, :p][:, unused], means[unused] = 0.0, 0.0, 0.0
    between, of_between, edge = shrunk(matrix[:p, :p], variances[:p, :p], coding.known)
    frame = _frame(known, (centre, scale, float(y_centre), float(y_spread)), between, edge, coding, private)
    fit = _first(known, frame, matrix[:p, p], variances, (between, of_between), means, unused, converged)
    return replace(fit, known=coding.known)


def _frame(
    known: Columns,
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
            wider = np.maximum(known.least[used] * np.diag(place[1])[used], 1.0) ** 2 - 1
            rare = np.where(coding.known, np.eye(p) - coding.gram, 0.0)[np.ix_(used, used)]
            own = own + np.diag(wider) + positive(rare, 0.0)
        values, vectors = np.linalg.eigh(own)
        whiten[np.ix_(used, used)] = (vectors / np.sqrt(np.maximum(values, ROUNDING))).T
    return Frame(*place, covariance, whiten, coding.excluded)


def _first(
    known: Columns,
    frame: Frame,
    beside: FloatArray,
    variances: FloatArray,
    correlations: tuple[FloatArray, FloatArray],
    means: FloatArray,
    unused: NDArray[np.bool_],
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
    noise = np.diag(np.concatenate([[variances[p, p]], turned @ variances[:p, p] + np.where(unused, 1.0, 0.0)]))
    prior = np.concatenate([[1.0], np.full(p, TUNING.prior / p)])
    first = FirstAnswer(np.concatenate([[0.0], whiten @ beside]), slope, noise, unsure)
    posterior = Posterior(np.zeros(p + 1), np.diag(prior))
    private = bool(variances.any())
    if private:
        posterior, _ = combined(posterior, prior, first, (), slope, unsure, 1.0, normal_lengths(p))
    else:
        exact = np.asarray(np.linalg.lstsq(slope, first.answer, rcond=1e-10)[0], dtype=float)
        posterior = Posterior(exact, np.zeros((p + 1, p + 1)))
    explained = float(posterior.mean[1:] @ slope[1:, 1:] @ posterior.mean[1:])
    least = TUNING.least_variance if private else ROUNDING
    variance = min(max(1 - explained + float(np.trace(posterior.covariance)), least), 1.0)
    root = np.sqrt(known.seen[:p])
    usual = np.eye(p + 1)
    usual[1:, 1:] = whiten @ (frame.covariance * np.outer(root, root)) @ whiten.T
    return CurrentFit(
        columns=known,
        frame=frame,
        posterior=posterior,
        prior=prior,
        variance=variance,
        variance_error=0.5 * variance,
        present=float(known.seen[p]),
        present_error=float(known.noise[p]),
        information=slope,
        information_variance=unsure,
        expected_information=usual,
        first=first,
        unused=unused,
        converged=converged,
    )
