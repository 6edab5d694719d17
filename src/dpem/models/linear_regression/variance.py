"""After the coefficients: the mean and scale of the residuals, the sandwich, and the fit check."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpem.fitting.check import judged
from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import clipped_square
from dpem.models.linear_regression.parameters import effect_contrasts, influence_directions
from dpem.models.linear_regression.posterior import Posterior, eigenvalues_from, product_covariance
from dpem.models.linear_regression.rows import RowQuery, Rows
from dpem.models.linear_regression.scores import NO_CLIP, Residuals, with_residual_scale
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows, product
from dpem.queries.narrow import into_ball, rounded, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace


@dataclass(frozen=True)
class ScoreVariance(RowQuery):
    """Σ t·u over rows that count: u = ((σ²/v)·(q_j·a)²)_j in the ball of radius ``radius``, q_j the rows of
    ``directions``, and t = min(e², clip²) − m with m its mean for a normal e: by how much the variance of each
    direction's score exceeds what errors of one variance give it, the meat of the sandwich. A row with the weight s
    adds s·(s·min(e², clip²) − m)·u, and m is the mean of the square times ``ratio`` = E s²/E s.

    *Lemma.* ℓ2 sensitivity radius·max(√2·max(c² − m, m), c²), c = clip. *Proof.* t lies in [−m, c² − m], which holds 0,
    and so does s·(s·min(e², c²) − m) for s in [0, 1]; u has no negative entry. Two contributions with t, t′ of one
    sign: ‖tu − t′u′‖² ≤ t²‖u‖² + t′²‖u′‖² ≤ 2·max(t², t′²)·radius²,
    as u·u′ ≥ 0. Of opposite signs: ‖tu − t′u′‖ ≤ (|t| + |t′|)·radius ≤ c²·radius. A row that does not count adds 0. ∎
    """

    directions: FloatArray = field(repr=False)
    clip: float
    radius: float
    ratio: float = 1.0

    @property
    def mean(self) -> float:
        return self.ratio * float(clipped_square(self.clip**2))

    @property
    def label(self) -> str:
        return f"variance of the scores, squared residuals clipped at {self.clip:.4g}²"

    @property
    def bound(self) -> Bound:
        square, m = self.clip**2, self.mean
        size = max(square - m, m)
        whole = self.radius * max(math.sqrt(2.0) * size, square)
        own = self.radius * size
        return rounded(Bound(linf=whole, l2=whole, size_linf=own, size_l2=own), 4 * len(self.directions) + 8)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        along = product(xp, rows.a, self.directions.T)
        weight = xp.zeros_like(rows.r) + self.sigma**2 / rows.v
        e2 = weighted(xp.clip(zero_nonfinite(xp, rows.r**2 / rows.v), 0.0, self.clip**2), rows.shares) - self.mean
        t = weighted(xp.where(rows.seen, e2, xp.zeros_like(rows.r)), rows.shares)
        return over_rows(xp, t, into_ball(xp, along * along, self.radius, times=weight))


#: The largest sizes of a row's part in the curvature and in the heteroscedasticity, and how much these count beside the
#: squares explained.
MOST_CURVATURE, MOST_UNEQUAL, CURVATURE_SHARE, UNEQUAL_SHARE = 6.0, 6.0, 0.7, 0.6


@dataclass(frozen=True)
class Explained(RowQuery):
    """Σ (t, t²/most, b·most·s, u·most·q), t = clamp((z of y − middle)² − r², ±most): by how much the slopes reduce the
    squared residual. With e the residual in standard deviations and f what is fitted, beyond the middle in units of
    ``along``, both clipped:

    - s in [−1, 1] is e·(f² − 1), over the most it may be: whether residuals have one sign at both ends of the line and
      the other between (Ramsey's RESET, of one degree of freedom);
    - q in [−1, 1] is (e² − its mean)·f likewise: whether errors are larger at one end (Breusch and Pagan's test).

    *Lemma.* ℓ2 sensitivity 2·most·√(1 + b² + u²). *Proof.* 2·most for the first two, by the proof of
    :class:`~dpem.fitting.check.LogRatio` word for word, and twice the largest size for each of the others. ∎
    """

    middle: float
    most: float
    along: float
    in_frame = False

    @property
    def label(self) -> str:
        return (
            f"fit check: squares explained by the slopes, clamped at {self.most:.4g}, and whether the model is linear"
        )

    @property
    def bound(self) -> Bound:
        B, more = self.most, CURVATURE_SHARE**2 + UNEQUAL_SHARE**2
        l2, size = 2 * B * math.sqrt(1 + more), B * math.sqrt(2 + more)
        return rounded(Bound(linf=2 * B, l2=l2, size_linf=B, size_l2=size), 4)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        beyond = rows.fitted + rows.r - self.middle
        t = zero_nonfinite(xp, beyond**2 - rows.r**2) / self.most
        e = xp.clip(zero_nonfinite(xp, rows.r / xp.sqrt(rows.v)), -2.4, 2.4)
        f = xp.clip(zero_nonfinite(xp, (rows.fitted - self.middle) / self.along), -2.0, 2.0)
        s = e * xp.clip(f * f - 1.0, -1.0, 2.5) / MOST_CURVATURE
        q = (xp.clip(e * e, 0.0, 4.0) - float(clipped_square(4.0))) * f / MOST_UNEQUAL
        seen = weighted(xp.astype(rows.seen, xp.float64), rows.shares)
        t, s, q = (xp.clip(own, -1.0, 1.0) for own in (t, s, q))
        sums = [xp.sum(seen * t), xp.sum(seen * t * t)]
        sums += [CURVATURE_SHARE * xp.sum(seen * s), UNEQUAL_SHARE * xp.sum(seen * q)]
        return self.most * xp.stack(sums)


ADVICE = "More rows, a larger epsilon, fewer columns or narrower bounds would help; or the columns explain nothing."


@dataclass(frozen=True)
class FindLevel(Step):
    """The mean of the residuals, hardly clipped: the intercept, also where errors are skewed; and their size."""

    clip: float = NO_CLIP

    def describe(self) -> str:
        return f"mean and size of the residuals, clipped at {self.clip:.3g} standard deviations"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit = state.current()
        before, misfit = fit.size, TUNING.tails * fit.variance
        fit = replace(fit, variance_error=math.hypot(fit.variance_error, misfit))
        fit = with_residual_scale(curator, fit.query(Residuals, model.schema_of(state), clip=self.clip), self.rho, fit)
        mean, error = fit.level
        if not error:
            return replace(state, current_fit=fit)
        row = fit.information[0] / max(float(fit.information[0, 0]), 0.01)
        tails = (fit.size.value - before.value) / fit.variance
        of_tails = math.hypot(fit.size.error, before.error) / fit.variance
        of_mean = math.hypot(error, math.sqrt(float(row @ fit.posterior.covariance @ row)))
        by_lengths = _tails_square(fit, TUNING.size_clip, self.clip)
        shape = (mean / fit.sigma, of_mean / fit.sigma, tails, of_tails, by_lengths)
        fit = _with_tails(fit, tails, of_tails, self.clip)
        beyond = TUNING.beyond * min(3.5 / self.clip, 1.5) ** 2 * max(tails, 0.0)
        norm = self.clip * fit.sigma / (fit.clip_unit or fit.sigma) * math.sqrt(fit.lengths.k)
        mean += float(fit.cut_off(norm)[0])
        unknown = 0.0 if fit.direction is None else math.sqrt(fit.direction.covariance[0, 0])
        off = fit.clip_unit * float(fit.tails.lost(norm, fit.lengths)[1]) * unknown
        alone = fit.posterior.given_number(mean, row, error**2)
        wide = fit.posterior.wider(fit.misfit + _unmeasured_misfit(fit)).given_number(mean, row, error**2 + off**2)
        rest = eigenvalues_from(wide.covariance - alone.covariance, 0.0)
        fit = replace(
            fit,
            posterior=Posterior(wide.mean, alone.covariance),
            misfit=rest,
            shape=shape,
            variance_misfit=beyond * fit.variance,
        )
        return replace(state, current_fit=fit)


def _with_tails(fit: CurrentFit, value: float, error: float, clip: float) -> CurrentFit:
    """The fit with tails as long as the variance leads to expect, which grew by the part ``value`` with that clip."""
    unit = fit.clip_unit or fit.sigma
    low, high, part = TUNING.size_clip * fit.sigma / unit, clip * fit.sigma / unit, fit.variance / unit**2
    tails = fit.tails.residuals_show(value * part, error * part, low, high)
    longer = tails.lost(fit.clips.norm, fit.lengths)[1] / fit.tails.lost(fit.clips.norm, fit.lengths)[1]
    return replace(fit, tails=tails, misfit=fit.misfit * float(longer) ** 2)


def _unmeasured_misfit(fit: CurrentFit) -> FloatArray:
    """A covariance for what the releases do not show: what errors in imputing missing values do to the coefficients,
    and how far errors that are skewed within the clips move the intercept.
    """
    theta, seen = fit.posterior.mean, fit.columns.seen[:-1][~fit.unused]
    missing = 1 - float(np.mean(seen)) if len(seen) else 0.0
    misfit = missing**2 * product_covariance(fit.first.variances, np.outer(theta, theta))
    misfit[1:, 1:] += (TUNING.filling * missing) ** 2 * float(theta[1:] @ theta[1:]) * np.eye(len(theta) - 1)
    return np.asarray(misfit)


@dataclass(frozen=True)
class FindVariance(Step):
    """The inner part of the sandwich for each reported coefficient. Then the coefficients are complete."""

    def describe(self) -> str:
        return "variance of the scores: standard errors that hold with unequal variances"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit = state.current()
        private, schema = math.isfinite(self.rho), model.schema_of(state)
        contrasts = effect_contrasts(fit, schema)
        q = influence_directions(fit, contrasts)
        radius = TUNING.variance_radius * math.sqrt(3 * len(q)) if private else math.inf
        most = TUNING.variance_noise * curator.n_rows * math.sqrt(self.rho) / radius if private else math.inf
        clip = max(math.sqrt(min(most, fit.clips.norm**2 / fit.lengths.k)), TUNING.least_variance_clip)
        unit = np.minimum(1.0, radius / 2 / contrasts.largest) if private else np.ones(len(q))
        rows = q * np.sqrt(unit)[:, None] if private else _pair_directions(q)
        ratio = 1.0 if state.weights is None else state.weights.ratio
        settings = {"directions": rows, "clip": clip, "radius": radius, "ratio": ratio}
        query = fit.query(ScoreVariance, schema, **settings)
        released = curator.measure(query, self.rho) / fit.present
        if private:
            unit = unit * query.mean
            noise = curator.noise_scale(query, self.rho) / fit.present / unit
            inflation = shrunk_inflation(released / unit, noise)
            far = fit.clips.norm / math.sqrt(fit.lengths.k) * (fit.clip_unit or fit.sigma) / fit.sigma
            excess = _tails_square(fit, clip, max(clip, far))
            inflation = inflation * (1 + excess / float(np.mean(inflation)))
        else:
            inflation = _score_covariance(released / ratio, q, fit)
        theta, fit = model.parameters(replace(fit, inflation=inflation), state, curator.effective_rows)
        return replace(state, theta=theta, current_fit=fit)


def _tails_square(fit: CurrentFit, low: float, high: float) -> float:
    """By which part of the errors' variance long scores add to the mean square as a clip grows from ``low`` to ``high``
    standard deviations.
    """
    unit = fit.clip_unit or fit.sigma
    return fit.tails.square(low * fit.sigma / unit, high * fit.sigma / unit) * unit**2 / fit.variance


def shrunk_inflation(excess: FloatArray, noise: FloatArray) -> FloatArray:
    """1 + noisy relative excesses of variance, drawn to their mean, and that to 0, as far as they may be noise.

    >>> shrunk_inflation(np.array([0.0, 3.0]), np.array([0.01, 0.01])).round(1).tolist()
    [1.0, 4.0]
    """
    weight = 1 / (noise**2 + TUNING.usual_inflation**2)
    mean = float(np.sum(weight * excess) / np.sum(weight))
    mean *= TUNING.usual_inflation**2 / (TUNING.usual_inflation**2 + float(1 / np.sum(1 / noise**2)))
    between = max(float(np.sum(weight * ((excess - mean) ** 2 - noise**2)) / np.sum(weight)), 0.0)
    return np.clip(1 + mean + (excess - mean) * between / (between + noise**2), 0.5, 25.0)


def _pair_directions(q: FloatArray) -> FloatArray:
    """The directions and the sums of any two of them: their variances hold all covariances."""
    i, j = np.triu_indices(len(q))
    return np.where((i == j)[:, None], q[i], q[i] + q[j])


def _score_covariance(excess: FloatArray, q: FloatArray, fit: CurrentFit) -> FloatArray:
    """The matrix of covariances of q_i·score and q_j·score, in units of the errors' variance."""
    k = len(q)
    i, j = np.triu_indices(k)
    S = fit.information / fit.present
    pairs = _pair_directions(q)
    squares = excess + np.sum((pairs @ S) * pairs, axis=1)
    out, own = np.zeros((k, k)), squares[i == j]
    out[i, j] = np.where(i == j, squares, (squares - own[i] - own[j]) / 2)
    out = out + out.T - np.diag(np.diag(out))
    return out + np.diag(np.where(np.abs(q).any(axis=1), 0.0, 1.0))  # what rows do not decide keeps its variance


@dataclass(frozen=True)
class CheckExplained(Step):
    """How much of the response's variance the slopes explain, against the mean alone, and whether it is linear."""

    widths: float = 4.0

    def describe(self) -> str:
        return "fit check against the mean alone: variance explained, curvature, unequal variances"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit = state.current()
        theta, n = fit.posterior.mean, curator.effective_rows
        fitted = float(theta[1:] @ fit.information[1:, 1:] @ theta[1:]) / max(float(fit.information[0, 0]), 0.1)
        most = self.widths * math.sqrt(4 * fit.variance * fitted + 2 * fitted**2 + 0.02**2)
        along = math.sqrt(max(fitted, 1e-12))
        query = fit.query(Explained, model.schema_of(state), middle=float(theta[0]), most=most, along=along)
        first, second, *third = (float(part) for part in curator.measure(query, self.rho))
        noise = curator.noise_scale(query, self.rho)
        gain = first / fit.present
        spread = math.sqrt(min(max(second * most - first**2, 0.0), most**2))
        error = math.hypot(noise, spread / math.sqrt(n)) / fit.present
        whole = max(gain, 0.0) + fit.variance
        of_variance = math.hypot(fit.variance_error, fit.variance_misfit)
        unsure = math.hypot(of_variance, fit.variance * math.sqrt(2 / (n * fit.present)))
        part, seen = gain / whole, math.hypot(error * fit.variance, TUNING.r_squared_error * whole**2) / whole**2
        part_error = math.hypot(seen, gain * unsure / whole**2)
        lead = -math.log(max(1 - part, 1e-6)) / 2  # whether there is one does not depend on how large errors are
        hidden = bool(fit.columns.crowded[-1]) and noise > 0  # the rows that make the variance may not be seen
        part_error, hidden_lead = (math.hypot(part_error, 1.0), lead) if hidden else (part_error, 0.0)
        check = judged(lead, math.hypot(seen / max(2 * (1 - part), 2e-6), hidden_lead), "the mean alone", ADVICE)
        words = f"it explains {100 * part:.1f} % of the variance (standard error {100 * part_error:.1f})"
        if part_error > TUNING.unknown_r_squared:
            words = "how much of the variance it explains is not known"
        linearity: list[float] = []
        units = MOST_CURVATURE / CURVATURE_SHARE, MOST_UNEQUAL / UNEQUAL_SHARE
        for value, unit in zip(third, units, strict=True):
            unit /= most * fit.present
            row = TUNING.linearity_spread / math.sqrt(n * fit.present)
            linearity += [unit * value, math.hypot(unit * noise, row)]
        new = replace(state.theta, r_squared=(part, part_error), linearity=tuple(linearity))
        return replace(state, theta=new, check=replace(check, verdict=f"{check.verdict}: {words}"))
