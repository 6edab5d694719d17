"""The steps of a linear regression up to its coefficients: columns, moments, clips, information, scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clip_bias import Direction, TailScore, usual_direction
from dpem.models.linear_regression.clipping import (
    LENGTHS,
    SIZES,
    USUAL_TAILS,
    Tails,
    choose_clips,
    choose_length,
    clipped_square,
    released_lengths,
    released_tails,
)
from dpem.models.linear_regression.columns import ColumnHistograms, summarized
from dpem.models.linear_regression.combine_scores import ScoreAnswer, combined
from dpem.models.linear_regression.diagnostic_queries import LengthHistogram, ScoreHistogram
from dpem.models.linear_regression.first_fit import begin
from dpem.models.linear_regression.gaussian_posterior import averaged, positive
from dpem.models.linear_regression.information import with_information
from dpem.models.linear_regression.queries import Information, JointMoments, Residuals, Score
from dpem.models.linear_regression.reference import ROUNDING
from dpem.models.linear_regression.state import CurrentFit, Estimate, LinearState, Moments
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked

#: Lengths over √k from which the direction of scores is measured, the greatest first.
DIRECTION_LENGTHS = (16.0, 11.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0)
#: Where nothing is clipped, residuals are scaled by so many standard deviations.
NO_CLIP = 1e4


@dataclass(frozen=True)
class FindColumns(Step):
    """Centre, spread and missing values of every column, shares of levels."""

    def describe(self) -> str:
        return "histogram of every column and of the response: centre, spread, shares of levels, missing values"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        known = state.columns
        schema = model.schema_of(state)
        if known is not None:  # the response's is known, and that of columns that were chosen before
            schema = schema.take(np.arange(len(known.centre) - 1, schema.width))
        query = ColumnHistograms(schema, with_response=known is None)
        noise = curator.noise_scale(query, self.rho)
        found = summarized(query, curator.measure(query, self.rho), noise)
        if known is None:
            known, found = found.take(slice(-1, None)), found.take(slice(-1))
        return replace(state, columns=known.with_columns(found.of_present(known)))


@dataclass(frozen=True)
class FindMoments(Step):
    """Correlations of columns and response, a frame in which columns are hardly correlated, and first coefficients."""

    radius: float = math.inf

    def describe(self) -> str:
        return f"second moments of columns and response, clipped at {self.radius:.3g} spreads"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        known, schema = state.found_columns(), model.schema_of(state)
        p, coding = schema.width, model.coding(schema, known)
        query = JointMoments(schema, coding, float(known.centre[-1]), float(known.spread[-1]), self.radius)
        noise = curator.noise_scale(query, self.rho)
        found = unpacked(curator.measure(query, self.rho), p + 2)
        kept = max(float(found[0, 0]), 0.05)
        moments = Moments(found / kept, noise**2 / 2 / kept**2 * (1 + np.eye(p + 2)))
        if state.moments is not None and noise:
            moments = _with_earlier(moments, state.moments)
        return replace(state, moments=moments, current_fit=begin(curator, schema, known, coding, moments))


def _with_earlier(moments: Moments, before: Moments) -> Moments:
    """Moments averaged with those of fewer columns that were released before, by their noise."""
    value, variance = moments.value.copy(), moments.variance.copy()
    own = np.ix_(*2 * ([*range(len(before.value) - 1), len(value) - 1],))
    value[own], variance[own] = averaged(value[own], variance[own], *before)
    return Moments(value, variance)


def at_present(model: Any, state: LinearState, fit: CurrentFit) -> dict[str, Any]:
    """Where queries about rows at the present coefficients are asked."""
    return {"schema": model.schema_of(state), "frame": fit.frame, "theta": fit.posterior.mean, "sigma": fit.sigma}


@dataclass(frozen=True)
class FindLengths(Step):
    """How long rows are in the frame: where to clip their scores. ``along`` is the price of the steps that follow."""

    along: float = math.inf

    def describe(self) -> str:
        return "histogram of the rows' leverage: where to clip scores"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit = state.current()
        if math.isinf(self.rho):
            return state
        query = LengthHistogram(**at_present(model, state, fit), edges=LENGTHS)
        noise, p = curator.noise_scale(query, self.rho) / fit.present, max(int(np.sum(~fit.unused)), 1)
        shares, k = curator.measure(query, self.rho) / fit.present, len(fit.prior)
        lengths = released_lengths(shares, noise, p, curator.n_rows, k, fit.frame.farthest / math.sqrt(k))
        clips = choose_clips(curator.n_rows, self.along, lengths, curator.rows_per_person)
        bias = float(USUAL_TAILS.lost(clips.norm, lengths))
        return replace(state, current_fit=replace(fit, lengths=lengths, clips=clips, clip_bias=bias))


@dataclass(frozen=True)
class FindInformation(Step):
    """The curvature of the score, as the rows have it: it need not be that of normal rows."""

    def describe(self) -> str:
        return "information of the rows, clipped where their leverage is large"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit = state.current()
        k = len(fit.prior)
        radius = choose_length(curator.n_rows, self.rho, fit.lengths, curator.rows_per_person)
        query = Information(**at_present(model, state, fit), radius=radius)
        noise = curator.noise_scale(query, self.rho)
        found = unpacked(curator.measure(query, self.rho), k)
        if not noise:
            found = positive(found, 0.0)
            return replace(state, current_fit=replace(fit, information=found, information_variance=np.zeros((k, k))))
        lacking = float(fit.lengths.lacking(radius))
        return replace(state, current_fit=with_information(fit, found, noise, lacking))


@dataclass(frozen=True)
class FindTails(Step):
    """How long scores are, and which way the long ones point: where to clip them in the steps that follow, whose price
    is ``along``, and what to add for what clips cut off.
    """

    along: float = math.inf
    passes = 2

    def describe(self) -> str:
        return "histogram of the scores' lengths, and the direction of long ones: where to clip, and what clips cut off"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit = state.current()
        if math.isinf(self.rho):
            return state
        share, n = TUNING.direction_share, curator.n_rows
        query = ScoreHistogram(**at_present(model, state, fit), edges=SIZES)
        rho, lengths = (1 - share) * self.rho, fit.lengths
        noise = curator.noise_scale(query, rho) / fit.present
        farthest = 8 / (fit.frame.y_spread * fit.sigma)  # of long rows; residuals are at most 2 in unit coordinates
        shares = curator.measure(query, rho) / fit.present
        tails = released_tails(shares, noise, lengths, n, farthest)
        direction = _measured_direction(curator, model, state, tails, share * self.rho)
        length = float(np.sum(direction.mean[1:] ** 2))
        clips = choose_clips(n, self.along, lengths, curator.rows_per_person, tails, direction.square, length)
        bias = float(tails.lost(clips.norm, lengths))
        unknown = 1 - (float(tails.cut(clips.norm, lengths)) / max(bias, 1e-300)) ** 2  # of how much is cut off
        spread = direction.covariance + unknown * np.outer(direction.mean, direction.mean)
        fit = replace(fit, direction=Direction(direction.mean, spread), clips=clips, tails=tails, clip_bias=bias)
        fit = replace(fit, clip_unit=fit.sigma)

        def corrected(answer: ScoreAnswer) -> ScoreAnswer:
            norm = answer.clip / fit.sigma
            missing = fit.sigma * float(tails.lost(norm, lengths))
            return answer._replace(score=answer.score + fit.cut_off(norm), bias=missing)

        cut = float(tails.lost(TUNING.first_clip * math.sqrt(lengths.k), lengths))
        first = fit.first._replace(bias=fit.sigma * cut)
        return replace(state, current_fit=replace(fit, first=first, scores=tuple(map(corrected, fit.scores))))


def _measured_direction(curator: Curator, model: Any, state: LinearState, tails: Tails, rho: float) -> Direction:
    """The direction of what clipping cuts off, from scores as long as the noise allows."""
    fit, before = state.current(), usual_direction(state.current().posterior)
    for low in DIRECTION_LENGTHS:
        low *= math.sqrt(fit.lengths.k)
        query = TailScore(**at_present(model, state, fit), low=low, high=2 * low)
        amount = float(tails.cut(low, fit.lengths) - tails.cut(2 * low, fit.lengths)) / low
        noise = curator.noise_scale(query, rho) / fit.present / max(amount, 1e-12)
        if noise < TUNING.direction_noise:
            break
    return before.measured(curator.measure(query, rho) / fit.present / max(amount, 1e-12), noise)


@dataclass(frozen=True)
class TakeStep(Step):
    """How large residuals are, then the score: one step towards the coefficients."""

    passes = 2

    def describe(self) -> str:
        return "size of the residuals, and the score of the coefficients"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        size, step = TUNING.size_share * self.rho, (1 - TUNING.size_share) * self.rho
        fit = state.current()
        fit = with_size(curator, Residuals(**at_present(model, state, fit), clip=TUNING.size_clip), size, fit)
        unit = fit.clip_unit or fit.sigma
        query = Score(**at_present(model, state, fit), radius=fit.clips.norm * unit / fit.sigma)
        noise = fit.sigma * curator.noise_scale(query, step)
        score = fit.sigma * curator.measure(query, step)
        if not noise:  # the moments have led to least squares, or to maximum likelihood, already
            return replace(state, current_fit=fit)
        score = score + fit.cut_off(fit.clips.norm)
        own = ScoreAnswer(fit.posterior.mean, score, noise, fit.clips.norm * unit, fit.clip_bias * unit)
        scores, given = (*fit.scores, own), (fit.information, fit.information_variance, fit.variance, fit.lengths)
        before = fit.posterior.wider(fit.misfit)
        posterior, misfit = combined(before, fit.prior, fit.first, scores, *given, fit.direction)
        unsure = math.hypot(fit.variance_error, 0.1 * fit.variance)
        fit = replace(fit, posterior=posterior, misfit=misfit, scores=scores, variance_error=unsure)
        return replace(state, current_fit=fit)


def with_size(curator: Curator, query: Residuals, rho: float, fit: CurrentFit) -> CurrentFit:
    """The fit with what the residuals' mean and mean square say.

    What is measured is the variance of residuals, errors and coefficients' errors together. The latter's part is itself
    unsure by about as much as it is, so it counts as noise: the estimate cannot collapse where coefficients are poor.
    """
    query = replace(query, clip=NO_CLIP) if math.isinf(rho) else query
    noise = curator.noise_scale(query, rho)
    rows, first, second = (float(part) for part in curator.measure(query, rho))
    if not noise:  # the variance is that of maximum likelihood already
        return replace(fit, present=max(rows, 0.02), present_error=0.0, variance_error=0.0)
    weight = fit.present_error**2 / (fit.present_error**2 + noise**2)
    present = min(max(fit.present + weight * (rows - fit.present), 0.02), 1.0)
    c, total = query.clip, query.sigma**2
    density = math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
    rate = math.erf(c / math.sqrt(2)) - 2 * c * density  # d/dq of E min(q·e², c²) at q = 1
    beyond = (second / math.sqrt(2.0) / present * c * c - float(clipped_square(c * c))) * total / rate
    blur = (noise / math.sqrt(2.0) / present * c * c * total / rate) ** 2
    before = fit.variance_error**2
    gain = before / (before + blur + fit.error**2)
    least = max(TUNING.least_ratio * fit.variance, ROUNDING**2)
    variance = min(max(fit.variance + gain * beyond, least), 4.0)
    unsure = math.sqrt(before - gain * before)
    explained = min(max(1 - variance + 2 * unsure, 0.1), 1.0)
    unit, p = c * query.sigma / present, len(fit.prior) - 1
    return replace(
        fit,
        variance=variance,
        variance_error=unsure,
        prior=np.append(fit.prior[:1], np.full(p, TUNING.prior * explained / p) * fit.stretch),
        present=present,
        present_error=math.sqrt(1 - weight) * fit.present_error,
        level=Estimate(unit * first, unit * noise),
        size=Estimate(fit.variance + beyond, math.sqrt(blur + fit.error**2)),
    )
