"""Score steps: the scale of the residuals, the score, and the direction of its clipped part."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import SCORE_EDGES, Tails, clipped_square, optimal_clip, score_tails
from dpem.models.linear_regression.information import LengthHistogram
from dpem.models.linear_regression.posterior import (
    Gaussian,
    ScoreAnswer,
    combined_posterior,
    direction_posterior,
    eigenvalues_from,
    prior_direction,
    product_covariance,
)
from dpem.models.linear_regression.rows import RowQuery, Rows
from dpem.models.linear_regression.state import CurrentFit, ErrorShape, Estimate, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.narrow import rounded, sum_in_ball, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.schema import Schema

if TYPE_CHECKING:
    from dpem.models.linear_regression.model import LinearRegression


@dataclass(frozen=True)
class Score(RowQuery):
    """Σ (‖v‖ − beyond)₊·v/‖v‖ over the scores v of the rows, clipped at ``radius``.

    v is the score of the observed likelihood, y | observed entries ~ N(θ·a, v), times σ: (r/√v)·(σ/√v)·a. Where values
    are missing the variance v depends on the slopes, too. That part of the score is left out: it is small if rows are
    normal, and if they are not it mistakes heavy tails for missing values of a column with a large slope.

    *Lemma.* ℓ2 sensitivity 2·radius. *Proof.* The whole contribution is scaled into the ball of that radius after it is
    computed. ∎
    """

    radius: float
    beyond: float = 0.0

    @property
    def label(self) -> str:
        part = f" beyond {self.beyond:.4g}" if self.beyond else ""
        return f"score of the regression{part}, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return rounded(Bound.symmetric(l2=self.radius), len(self.theta))

    def added(self, xp: Namespace, rows: Rows) -> Array:
        factor = rows.r * self.sigma / rows.v
        if self.beyond:
            length = zero_nonfinite(xp, xp.abs(factor) * rows.size)
            factor = factor * (1 - self.beyond / xp.clip(length, self.beyond, math.inf))
        return sum_in_ball(xp, rows.a, self.radius, factor, rows.size, rows.shares)


@dataclass(frozen=True)
class Residuals(RowQuery):
    """Σ (1, t, √2·t²) over rows with a response, t = clip(r/√v, ±clip)/clip: their number, mean and mean square.

    *Lemma.* ℓ2 sensitivity 2, as for the mean alone. *Proof.* Let u = |t − t′| and |t + t′| ≤ 2 − u. Two rows
    with a response differ by at most f(u) = u²(1 + 2(2 − u)²) in squared length, and f′(u) = 2u(3 − 2u)² ≥ 0, so by
    f(2) = 4. A row with a response and one without differ by 1 + t² + 2t⁴ ≤ 4, two without by 0. ∎
    """

    clip: float
    in_frame = False

    @property
    def label(self) -> str:
        return f"mean and mean square of the residuals, clipped at {self.clip:.4g} standard deviations"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=2.0, l2=2.0, size_linf=math.sqrt(2.0), size_l2=2.0), 3)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        seen = weighted(xp.astype(rows.seen, xp.float64), rows.shares)
        t = zero_nonfinite(xp, xp.clip(rows.r / (xp.sqrt(rows.v) * self.clip), -1.0, 1.0))
        return xp.stack([xp.sum(seen), xp.sum(seen * t), math.sqrt(2.0) * xp.sum(seen * t * t)])


def with_residual_scale(curator: Curator, query: Residuals, rho: float, fit: CurrentFit) -> CurrentFit:
    """The fit after a release of the residuals' number, mean and mean square.

    The mean square measures the error variance plus the part due to errors of the coefficients. That part is uncertain
    by about its own size, so it counts as noise: the estimate cannot collapse where coefficients are poor.
    """
    noise = curator.noise_scale(query, rho)
    rows, first, second = (float(part) for part in curator.measure(query, rho))
    weight = fit.present_error**2 / (fit.present_error**2 + noise**2)
    present = min(max(fit.present + weight * (rows - fit.present), 0.02), 1.0)
    c, total = query.clip, query.sigma**2
    density = math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
    derivative = math.erf(c / math.sqrt(2)) - 2 * c * density  # of E min(q·e², c²) by q, at q = 1
    unit = c * c * total / (math.sqrt(2.0) * present * derivative)
    change = unit * second - float(clipped_square(c * c)) * total / derivative
    error = math.hypot(unit * noise, fit.coefficient_error)
    prior_square = fit.variance_error**2
    gain = prior_square / (prior_square + error**2)
    if (
        fit.columns.binary_response
    ):  # its variance follows from its share of ones; squares of rare ones would be clipped
        theta, S = fit.posterior.mean[1:], fit.information.value[1:, 1:] / fit.present
        variance = min(max(1 - float(theta @ S @ theta) + fit.coefficient_error, TUNING.least_variance), 1.0)
    else:
        variance = min(max(fit.variance + gain * change, TUNING.least_ratio * fit.variance), 4.0)
    p, mean_unit = len(fit.prior) - 1, c * query.sigma / present
    variance_error = math.sqrt(prior_square - gain * prior_square)
    explained = min(max(1 - variance + 2 * variance_error, 0.1), 1.0)
    return replace(
        fit,
        variance=variance,
        variance_error=variance_error,
        prior=np.append(fit.prior[:1], np.full(p, TUNING.prior * explained / p)),
        present=present,
        present_error=math.sqrt(1 - weight) * fit.present_error,
        residual_mean=Estimate(mean_unit * first, mean_unit * noise),
        residual_variance=Estimate(fit.variance + change, error),
    )


@dataclass(frozen=True)
class TakeStep(Step):
    """Release the scale of the residuals, then the score, and update the coefficients."""

    passes = 2

    def describe(self) -> str:
        return "size of the residuals, and the score of the coefficients"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        rho, schema, fit = TUNING.size_share * self.rho, model.schema_of(state), state.fit
        fit = with_residual_scale(curator, fit.query(Residuals, schema, clip=TUNING.size_clip), rho, fit)
        norm, unit = fit.clips.norm, fit.clip_scale
        query = fit.query(Score, schema, radius=norm * unit / fit.sigma)
        score = fit.sigma * curator.measure(query, self.rho - rho) + fit.expected_excess(norm)
        noise = fit.sigma * curator.noise_scale(query, self.rho - rho)
        bias = unit * float(fit.tails.excess(norm, fit.lengths).root_mean_square)
        scores = (*fit.scores, ScoreAnswer(fit.posterior.mean, score, noise, norm * unit, bias))
        before = fit.posterior.wider(fit.misfit)
        direction = fit.direction or prior_direction(before)
        known = fit.information, fit.variance, fit.lengths, direction
        posterior, misfit = combined_posterior(before, fit.prior, scores, *known)
        variance_error = math.hypot(fit.variance_error, 0.1 * fit.variance)  # new coefficients change the residuals
        fit = replace(fit, posterior=posterior, misfit=misfit, scores=scores, variance_error=variance_error)
        return replace(state, current_fit=fit)


#: Lengths over √k beyond which the direction of scores may be measured, in descending order.
DIRECTION_LENGTHS = (16.0, 11.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0)


@dataclass(frozen=True)
class FindTails(Step):
    """Release the histogram of the scores' lengths and the direction of long scores. They set the clip of the later
    score steps, whose price is ``score_price``, and the correction of all scores for clipping.
    """

    score_price: float = math.inf
    passes = 2

    def describe(self) -> str:
        return "histogram of the scores' lengths and direction of long scores: the clip, and its bias"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        fit, schema = state.fit, model.schema_of(state)
        query = fit.query(LengthHistogram, schema, edges=SCORE_EDGES, of_scores=True)
        rho, lengths = (1 - TUNING.direction_share) * self.rho, fit.lengths
        shares, noise = curator.measure(query, rho) / fit.present, curator.noise_scale(query, rho) / fit.present
        farthest = 8 / (
            fit.frame.y_spread * fit.sigma
        )  # over √k of scores; residuals are at most 2 in unit coordinates
        tails = score_tails(shares, noise, lengths, curator.n_rows, farthest)
        direction = _measured_direction(curator, fit, schema, tails, self.rho - rho)
        variance, square = float(np.trace(direction.covariance[1:, 1:])), float(np.sum(direction.mean[1:] ** 2))
        clips = optimal_clip(
            curator.n_rows, self.score_price, lengths, curator.rows_per_person, tails, variance, square
        )
        mean, bias = (float(part) for part in tails.excess(clips.norm, lengths))
        relative_variance = 1 - (mean / max(bias, 1e-300)) ** 2  # of the mean excess
        direction = direction.wider(relative_variance * np.outer(direction.mean, direction.mean))
        fit = replace(fit, direction=direction, clips=clips, tails=tails, clip_unit=fit.sigma)

        def corrected(answer: ScoreAnswer) -> ScoreAnswer:
            norm = answer.clip / fit.clip_scale
            bias = fit.clip_scale * float(tails.excess(norm, lengths).root_mean_square)
            return answer._replace(score=answer.score + fit.expected_excess(norm), bias=bias)

        return replace(state, current_fit=replace(fit, scores=tuple(map(corrected, fit.scores))))


def _measured_direction(curator: Curator, fit: CurrentFit, schema: Schema, tails: Tails, rho: float) -> Gaussian:
    """The posterior of the direction of the clipped part, measured from scores as long as the noise allows."""
    lengths = np.array(DIRECTION_LENGTHS) * math.sqrt(fit.lengths.k)
    low, high = (tails.excess(length, fit.lengths).mean for length in (lengths, 2 * lengths))
    amounts = np.maximum(low - high, 1e-12) * fit.present
    noises = 2 * curator.rows_per_person * lengths / (curator.n_rows * math.sqrt(2 * rho)) / amounts
    i = int(np.argmax(np.append(noises[:-1] < TUNING.direction_noise, True)))
    length, amount = float(lengths[i]), float(amounts[i])
    query = fit.query(Score, schema, radius=length, beyond=length)
    value, noise = curator.measure(query, rho) / amount, curator.noise_scale(query, rho) / amount
    return direction_posterior(prior_direction(fit.posterior), value, noise)


@dataclass(frozen=True)
class FindLevel(Step):
    """Release mean and mean square of the residuals with a wide clip: the intercept if errors are skewed, and σ."""

    clip: float = math.inf

    def describe(self) -> str:
        return f"mean and size of the residuals, clipped at {self.clip:.3g} standard deviations"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        fit, narrow = state.fit, state.fit.residual_variance
        fit = replace(fit, variance_error=math.hypot(fit.variance_error, TUNING.variance_relative_sd * fit.variance))
        fit = with_residual_scale(curator, fit.query(Residuals, model.schema_of(state), clip=self.clip), self.rho, fit)
        (mean, error), wide, theta = fit.residual_mean, fit.residual_variance, fit.posterior
        information = fit.information.value
        row = information[:1] / max(float(information[0, 0]), 0.01)  # effect of the coefficients on the mean
        mean_error = math.hypot(error, math.sqrt((row @ theta.covariance @ row.T).item()))
        growth = (wide.value - narrow.value) / fit.variance
        shape = ErrorShape(
            Estimate(mean / fit.sigma, mean_error / fit.sigma),
            Estimate(growth, math.hypot(wide.error, narrow.error) / fit.variance),
            fit.tails_square(TUNING.size_clip, self.clip),
        )
        nearest = TUNING.level_clips[0]  # farther clips leave less beyond them
        beyond = TUNING.beyond_clip * min(nearest / self.clip, 1.5) ** 2 * max(growth, 0.0)
        norm = self.clip * fit.sigma / fit.clip_scale * math.sqrt(fit.lengths.k)
        bias = 0.0
        if fit.direction is not None:
            excess = fit.clip_scale * float(fit.tails.excess(norm, fit.lengths).root_mean_square)
            bias = excess * math.sqrt(fit.direction.covariance[0, 0])
        answer = row @ theta.mean + mean + fit.expected_excess(norm)[0]
        private = theta.given(answer, row, np.array([[error**2]]))
        misfit = fit.misfit + _imputation_covariance(fit)
        total = theta.wider(misfit).given(answer, row, np.array([[error**2 + bias**2]]))
        fit = replace(
            fit,
            posterior=Gaussian(total.mean, private.covariance),
            misfit=eigenvalues_from(total.covariance - private.covariance, 0.0),
            shape=shape,
            variance_misfit=beyond * fit.variance,
        )
        return replace(state, current_fit=fit)


def _imputation_covariance(fit: CurrentFit) -> FloatArray:
    """The covariance of the coefficients' errors from imputation."""
    theta, seen = fit.posterior.mean, fit.columns.seen[:-1][~fit.unused]
    missing = 1 - float(np.mean(seen)) if len(seen) else 0.0
    covariance = missing**2 * product_covariance(fit.information.variance, np.outer(theta, theta))
    covariance[1:, 1:] += (TUNING.imputation * missing) ** 2 * float(theta[1:] @ theta[1:]) * np.eye(len(theta) - 1)
    return np.asarray(covariance)
