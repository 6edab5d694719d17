"""The steps of a linear regression up to its coefficients: columns, moments, clips, information, scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import (
    LENGTHS,
    NO_CLIPS,
    SIZES,
    choose_clips,
    clipped_square,
    released_lengths,
    released_tails,
)
from dpem.models.linear_regression.columns import ColumnHistograms, summarized
from dpem.models.linear_regression.combine_scores import ScoreAnswer, combined
from dpem.models.linear_regression.diagnostic_queries import LengthHistogram, ResidualHistogram
from dpem.models.linear_regression.first_fit import begin
from dpem.models.linear_regression.gaussian_posterior import averaged, positive
from dpem.models.linear_regression.queries import Information, JointMoments, Residuals, Score
from dpem.models.linear_regression.reference import ROUNDING
from dpem.models.linear_regression.state import Estimate, LinearState, Moments, Progress
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked

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
        return replace(state, moments=moments, progress=begin(curator, schema, known, coding, moments))


def _with_earlier(moments: Moments, before: Moments) -> Moments:
    """Moments averaged with those of fewer columns that were released before, by their noise."""
    value, variance = moments.value.copy(), moments.variance.copy()
    own = np.ix_(*2 * ([*range(len(before.value) - 1), len(value) - 1],))
    value[own], variance[own] = averaged(value[own], variance[own], *before)
    return Moments(value, variance)


def at_present(model: Any, state: LinearState, now: Progress) -> dict[str, Any]:
    """Where queries about rows at the present coefficients are asked."""
    rows = {"leverage": now.clips.leverage, "second": now.clips.second}
    return {
        "schema": model.schema_of(state),
        "frame": now.frame,
        "theta": now.posterior.mean,
        "sigma": now.sigma,
        **rows,
    }


@dataclass(frozen=True)
class FindLengths(Step):
    """How long rows are in the frame: where to clip them. ``along`` is the price of the steps that follow."""

    along: float = math.inf

    def describe(self) -> str:
        return "histogram of the rows' leverage: where to clip it"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        now = state.current()
        if math.isinf(self.rho):
            return replace(state, progress=replace(now, clips=NO_CLIPS))
        query = LengthHistogram(**at_present(model, state, now), edges=LENGTHS)
        p = int(np.sum(~now.unused))
        noise = curator.noise_scale(query, self.rho) / now.present
        lengths = released_lengths(curator.measure(query, self.rho) / now.present, noise, max(p, 1))
        clips = choose_clips(curator.n_rows, self.along, max(p, 1), curator.rows_per_person, lengths)
        return replace(state, progress=replace(now, clips=clips))


@dataclass(frozen=True)
class FindInformation(Step):
    """The curvature of the score, as the rows have it: it need not be that of normal rows."""

    def describe(self) -> str:
        return "information of the rows, weighted down where their leverage is large"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        now = state.current()
        k, eta = len(now.prior), now.clips.eta
        query = Information(**at_present(model, state, now))
        noise = curator.noise_scale(query, self.rho)
        found = unpacked(curator.measure(query, self.rho), k)
        variances, twice = np.zeros((k, k)), 1 + np.eye(k)
        if noise:
            usual, size = eta * now.present * now.usual, np.minimum(np.diag(now.usual), 1.0)
            beyond = ((found - usual) ** 2 - eta**2 * now.information_variance) / twice - noise**2 / 2
            apart = max((TUNING.not_normal * eta) ** 2, float(np.mean(beyond[np.triu_indices(k)])))
            of_usual = eta**2 * now.information_variance + apart * twice * np.sqrt(np.outer(size, size))
            found, variances = averaged(found, noise**2 / 2 * twice, usual, of_usual)
            without = np.append(False, now.unused)
            for matrix in (found, variances):
                matrix[without], matrix[:, without] = 0.0, 0.0
            found = positive(found, TUNING.least_information * eta * now.present)
            found[without], found[:, without] = 0.0, 0.0
        else:
            found = positive(found, 0.0)
        return replace(state, progress=replace(now, information=found, information_variance=variances))


@dataclass(frozen=True)
class FindTails(Step):
    """How many residuals are large: where to clip them in the steps that follow, whose price is ``along``."""

    along: float = math.inf

    def describe(self) -> str:
        return "histogram of the residuals: where to clip them"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        now = state.current()
        if math.isinf(self.rho):
            return state
        query = ResidualHistogram(**at_present(model, state, now), edges=SIZES)
        noise = curator.noise_scale(query, self.rho) / now.present
        tails = released_tails(curator.measure(query, self.rho) / now.present, noise)
        p = max(int(np.sum(~now.unused)), 1)
        given = (curator.n_rows, self.along, p, curator.rows_per_person, None, tails)
        new = choose_clips(*given, leverage=now.clips.leverage)
        wider = max(new.residual, now.clips.residual)
        kept = clipped_square(wider**2) / clipped_square(now.clips.residual**2)
        clips = now.clips._replace(residual=wider, kappa=math.erf(wider / math.sqrt(2)), square=now.clips.square * kept)
        last, sigma = tails.bias(wider, p), math.sqrt(now.variance)
        scores = tuple(
            each._replace(bias=sigma * max(tails.bias(each.clip / now.sigma, p) - last, 0.0)) for each in now.scores
        )
        share = 1 - clips.kappa + tails.beyond(wider) + 1 - clips.eta
        power = float(np.interp(wider, TUNING.clipped_from, (0.5, 1.0)))
        clipped = min(share / TUNING.fully_clipped, 1.0) ** power
        return replace(state, progress=replace(now, clips=clips, scores=scores, clipped=clipped, clip_bias=last))


@dataclass(frozen=True)
class TakeStep(Step):
    """How large residuals are, then the score: one step towards the coefficients."""

    passes = 2

    def describe(self) -> str:
        return "size of the residuals, and the score of the coefficients"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        size, step = TUNING.size_share * self.rho, (1 - TUNING.size_share) * self.rho
        now = state.current()
        now = with_size(curator, Residuals(**at_present(model, state, now), clip=TUNING.size_clip), size, now)
        query = Score(**at_present(model, state, now), clip=now.clips.residual)
        noise = now.sigma * curator.noise_scale(query, step)
        score = now.sigma * curator.measure(query, step)
        if not noise:  # the moments have led to least squares, or to maximum likelihood, already
            return replace(state, progress=now)
        scores = (*now.scores, ScoreAnswer(now.posterior.mean, score, noise, now.clips.residual * now.sigma))
        posterior = combined(
            now.posterior, now.prior, now.first, scores, now.information, now.information_variance, now.variance
        )
        unsure = math.hypot(now.variance_error, 0.1 * now.variance)
        return replace(state, progress=replace(now, posterior=posterior, scores=scores, variance_error=unsure))


def with_size(curator: Curator, query: Residuals, rho: float, now: Progress) -> Progress:
    """The progress with what the residuals' mean and mean square say.

    What is measured is the variance of residuals, errors and coefficients' errors together. The latter's part is itself
    unsure by about as much as it is, so it counts as noise: the estimate cannot collapse where coefficients are poor.
    """
    query = replace(query, clip=NO_CLIP) if math.isinf(rho) else query
    noise = curator.noise_scale(query, rho)
    rows, first, second = (float(part) for part in curator.measure(query, rho))
    if not noise:  # the variance is that of maximum likelihood already
        return replace(now, present=max(rows, 0.02), present_error=0.0, variance_error=0.0)
    weight = now.present_error**2 / (now.present_error**2 + noise**2)
    present = min(max(now.present + weight * (rows - now.present), 0.02), 1.0)
    c, total = query.clip, query.sigma**2
    density = math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
    rate = math.erf(c / math.sqrt(2)) - 2 * c * density  # d/dq of E min(q·e², c²) at q = 1
    beyond = (second / math.sqrt(2.0) / present * c * c - clipped_square(c * c)) * total / rate
    blur = (noise / math.sqrt(2.0) / present * c * c * total / rate) ** 2
    before = now.variance_error**2
    gain = before / (before + blur + now.error**2)
    least = max(TUNING.least_ratio * now.variance, ROUNDING**2)
    variance = min(max(now.variance + gain * beyond, least), 4.0)
    unsure = math.sqrt(before - gain * before)
    explained = min(max(1 - variance + 2 * unsure, 0.1), 1.0)
    unit, p = c * query.sigma / present, len(now.prior) - 1
    return replace(
        now,
        variance=variance,
        variance_error=unsure,
        prior=np.append(now.prior[:1], np.full(p, TUNING.prior * explained / p)),
        present=present,
        present_error=math.sqrt(1 - weight) * now.present_error,
        level=Estimate(unit * first, unit * noise),
        size=Estimate(now.variance + beyond, math.sqrt(blur)),
    )
