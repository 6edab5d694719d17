"""Steps along the score: the scale of the residuals, the score itself, and the direction of what clipping cuts off."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import SIZES, Tails, clipped_square, optimal_clip, tail_distribution
from dpem.models.linear_regression.information import LengthHistogram
from dpem.models.linear_regression.moments import ROUNDING
from dpem.models.linear_regression.posterior import Direction, ScoreAnswer, combined_posterior, prior_direction
from dpem.models.linear_regression.rows import RowQuery, Rows
from dpem.models.linear_regression.state import CurrentFit, Estimate, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.narrow import into_ball, rounded, sum_in_ball, weighted, zero_nonfinite
from dpem.query import Array, Bound, Namespace


@dataclass(frozen=True)
class Score(RowQuery):
    """Σ of the parts of scores v that are longer than ``beyond``, (‖v‖ − beyond)₊·v/‖v‖, clipped at ``radius``.

    v is the score of the observed likelihood, y | observed entries ~ N(θ·a, v), times σ: (r/√v)·(σ/√v)·a. Where values
    are missing v depends on the slopes, too, but the part of the score through v is left out: it is little if rows are
    normal, and if they are not it takes heavy tails for missing values of a steep column.

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
        if rows.shares is None:
            return sum_in_ball(xp, rows.a, self.radius, factor, rows.size)
        return xp.sum(weighted(into_ball(xp, rows.a, self.radius, factor, rows.size), rows.shares), axis=0)


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


#: Lengths over √k from which the direction of scores is measured, the greatest first.
DIRECTION_LENGTHS = (16.0, 11.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0)
#: Where nothing is clipped, residuals are scaled by so many standard deviations.
NO_CLIP = 1e4


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
        query = fit.query(LengthHistogram, model.schema_of(state), edges=SIZES, of_scores=True)
        rho, lengths = (1 - share) * self.rho, fit.lengths
        noise = curator.noise_scale(query, rho) / fit.present
        farthest = 8 / (fit.frame.y_spread * fit.sigma)  # of long rows; residuals are at most 2 in unit coordinates
        shares = curator.measure(query, rho) / fit.present
        tails = tail_distribution(shares, noise, lengths, n, farthest)
        direction = _measured_direction(curator, model, state, tails, share * self.rho)
        length = float(np.sum(direction.mean[1:] ** 2))
        clips = optimal_clip(n, self.along, lengths, curator.rows_per_person, tails, direction.square, length)
        cut, bias = (float(each) for each in tails.lost(clips.norm, lengths))
        unknown = 1 - (cut / max(bias, 1e-300)) ** 2  # of how much is cut off
        spread = direction.covariance + unknown * np.outer(direction.mean, direction.mean)
        fit = replace(fit, direction=Direction(direction.mean, spread), clips=clips, tails=tails)
        fit = replace(fit, clip_unit=fit.sigma)

        def corrected(answer: ScoreAnswer) -> ScoreAnswer:
            norm = answer.clip / fit.sigma
            missing = fit.sigma * float(tails.lost(norm, lengths)[1])
            return answer._replace(score=answer.score + fit.cut_off(norm), bias=missing)

        return replace(state, current_fit=replace(fit, scores=tuple(map(corrected, fit.scores))))


def _measured_direction(curator: Curator, model: Any, state: LinearState, tails: Tails, rho: float) -> Direction:
    """The direction of what clipping cuts off, from scores as long as the noise allows."""
    fit, before = state.current(), prior_direction(state.current().posterior)
    lengths = np.array(DIRECTION_LENGTHS) * math.sqrt(fit.lengths.k)
    near, far = (tails.lost(each, fit.lengths)[0] for each in (lengths, 2 * lengths))
    amounts = np.maximum(near - far, 1e-12) * fit.present
    noises = 2 * curator.rows_per_person * lengths / (curator.n_rows * math.sqrt(2 * rho)) / amounts
    i = int(np.argmax(np.append(noises[:-1] < TUNING.direction_noise, True)))
    query = fit.query(Score, model.schema_of(state), radius=float(lengths[i]), beyond=float(lengths[i]))
    noise = curator.noise_scale(query, rho)
    return before.measured(curator.measure(query, rho) / amounts[i], noise / float(amounts[i]))


@dataclass(frozen=True)
class TakeStep(Step):
    """How large residuals are, then the score: one step towards the coefficients."""

    passes = 2

    def describe(self) -> str:
        return "size of the residuals, and the score of the coefficients"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        size, step = TUNING.size_share * self.rho, (1 - TUNING.size_share) * self.rho
        fit = state.current()
        fit = with_residual_scale(
            curator, fit.query(Residuals, model.schema_of(state), clip=TUNING.size_clip), size, fit
        )
        unit = fit.clip_unit or fit.sigma
        query = fit.query(Score, model.schema_of(state), radius=fit.clips.norm * unit / fit.sigma)
        noise = fit.sigma * curator.noise_scale(query, step)
        score = fit.sigma * curator.measure(query, step)
        if not noise:  # the moments have led to least squares, or to maximum likelihood, already
            return replace(state, current_fit=fit)
        score = score + fit.cut_off(fit.clips.norm)
        bias = unit * float(fit.tails.lost(fit.clips.norm, fit.lengths)[1])
        answer = ScoreAnswer(fit.posterior.mean, score, noise, fit.clips.norm * unit, bias)
        scores, given = (*fit.scores, answer), (fit.information, fit.information_variance, fit.variance, fit.lengths)
        before = fit.posterior.wider(fit.misfit)
        posterior, misfit = combined_posterior(before, fit.prior, fit.first, scores, *given, fit.direction)
        unsure = math.hypot(fit.variance_error, 0.1 * fit.variance)
        fit = replace(fit, posterior=posterior, misfit=misfit, scores=scores, variance_error=unsure)
        return replace(state, current_fit=fit)


def with_residual_scale(curator: Curator, query: Residuals, rho: float, fit: CurrentFit) -> CurrentFit:
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
        prior=np.append(fit.prior[:1], np.full(p, TUNING.prior * explained / p)),
        present=present,
        present_error=math.sqrt(1 - weight) * fit.present_error,
        level=Estimate(unit * first, unit * noise),
        size=Estimate(fit.variance + beyond, math.sqrt(blur + fit.error**2)),
    )
