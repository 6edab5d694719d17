"""The end of a linear regression: mean and size of the residuals, the sandwich, and the fit check."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.check import judged
from dpem.fitting.step import Step
from dpem.models.linear_regression.diagnostic_queries import (
    CURVATURE_SHARE,
    MOST_CURVATURE,
    MOST_UNEQUAL,
    UNEQUAL_SHARE,
    Explained,
    ScoreVariance,
)
from dpem.models.linear_regression.gaussian_posterior import Posterior, positive, product_covariance
from dpem.models.linear_regression.parameters import directions, effects
from dpem.models.linear_regression.queries import Residuals
from dpem.models.linear_regression.state import CurrentFit, Estimate, LinearState, Shape
from dpem.models.linear_regression.steps import NO_CLIP, at_present, with_size
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.query import FloatArray

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
        fit = with_size(curator, Residuals(**at_present(model, state, fit), clip=self.clip), self.rho, fit)
        mean, error = fit.level
        if not error:
            return replace(state, current_fit=fit)
        row = fit.information[0] / max(float(fit.information[0, 0]), 0.01)
        shape = _shape(fit, before, row)
        far = TUNING.beyond * min(3.5 / self.clip, 1.5) ** 2 * max(shape.tails.value, 0.0)
        norm = self.clip * fit.sigma / (fit.clip_unit or fit.sigma) * math.sqrt(fit.lengths.k)
        mean += float(fit.cut_off(norm)[0])
        unknown = 0.0 if fit.direction is None else math.sqrt(fit.direction.covariance[0, 0])
        off = fit.clip_unit * float(fit.tails.lost(norm, fit.lengths)) * unknown
        alone = fit.posterior.given_number(mean, row, error**2)
        wide = fit.posterior.wider(fit.misfit + _hidden(fit)).given_number(mean, row, error**2 + off**2)
        rest = positive(wide.covariance - alone.covariance, 0.0)
        fit = replace(
            fit,
            posterior=Posterior(wide.mean, alone.covariance),
            misfit=rest,
            shape=shape,
            variance_misfit=far * fit.variance,
        )
        return replace(state, current_fit=fit)


def _shape(fit: CurrentFit, before: Estimate, row: FloatArray) -> Shape:
    """How far from normal errors are, as far as released: their mean, in standard deviations, from where the clipped
    score has it, and by which part their variance is larger with the last, wider clip than ``before``.
    """
    unsure = math.hypot(fit.level.error, math.sqrt(float(row @ fit.posterior.covariance @ row)))
    more, of_more = fit.size.value - before.value, math.hypot(fit.size.error, before.error)
    skew = Estimate(fit.level.value / fit.sigma, unsure / fit.sigma)
    return Shape(skew, Estimate(more / fit.variance, of_more / fit.variance))


def _hidden(fit: CurrentFit) -> FloatArray:
    """A covariance for what the releases do not show: what errors in filling missing values do, how far the prior
    draws coefficients towards 0, and how far skewed errors move the intercept where residuals are clipped.
    """
    theta, seen = fit.posterior.mean, fit.columns.seen[:-1][~fit.unused]
    missing = 1 - float(np.mean(seen)) if len(seen) else 0.0
    drawn = fit.posterior.covariance @ (theta / fit.prior)
    hidden = missing**2 * product_covariance(fit.first.variances, np.outer(theta, theta)) + np.outer(drawn, drawn)
    hidden[1:, 1:] += (TUNING.filling * missing) ** 2 * float(theta[1:] @ theta[1:]) * np.eye(len(theta) - 1)
    skew = TUNING.tails_level * fit.clip_unit * float(fit.lengths.lost(fit.clips.norm)) / math.sqrt(fit.lengths.k)
    hidden[0, 0] += skew**2
    return np.asarray(hidden)


@dataclass(frozen=True)
class FindVariance(Step):
    """The inner part of the sandwich for each reported coefficient. Then the coefficients are complete."""

    def describe(self) -> str:
        return "variance of the scores: standard errors that hold with unequal variances"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit = state.current()
        private, schema = math.isfinite(self.rho), model.schema_of(state)
        found = effects(fit, schema)
        q = directions(fit, found)
        radius = TUNING.variance_radius * math.sqrt(3 * len(q)) if private else math.inf
        most = TUNING.variance_noise * curator.n_rows * math.sqrt(self.rho) / radius if private else math.inf
        clip = max(math.sqrt(min(most, fit.clips.norm**2 / fit.lengths.k)), TUNING.least_variance_clip)
        unit = np.minimum(1.0, radius / 2 / found.largest) if private else np.ones(len(q))
        asked = q * np.sqrt(unit)[:, None] if private else _pairs(q)
        ratio = 1.0 if state.weights is None else state.weights.ratio
        query = ScoreVariance(**at_present(model, state, fit), directions=asked, clip=clip, radius=radius, ratio=ratio)
        released = curator.measure(query, self.rho) / fit.present
        if private:
            unit = unit * query.mean
            noise = curator.noise_scale(query, self.rho) / fit.present / unit
            inflation = inflated(released / unit, noise)
            inflation = inflation * (1 + _beyond(fit, clip) / float(np.mean(inflation)))
        else:
            inflation = _whole(released / ratio, q, fit)
        theta, fit = model.finished(replace(fit, inflation=inflation), state, curator.effective_rows)
        return replace(state, theta=theta, current_fit=fit)


def _beyond(fit: CurrentFit, clip: float) -> float:
    """By which part of the errors' variance squared residuals beyond ``clip`` add to that of clipped scores."""
    unit = fit.clip_unit or fit.sigma
    low, high = clip * fit.sigma / unit, fit.clips.norm / math.sqrt(fit.lengths.k)
    return fit.tails.square(low, max(low, high)) * unit**2 / fit.variance


def inflated(found: FloatArray, noise: FloatArray) -> FloatArray:
    """1 + noisy relative excesses of variance, drawn to their mean, and that to 0, as far as they may be noise.

    >>> inflated(np.array([0.0, 3.0]), np.array([0.01, 0.01])).round(1).tolist()
    [1.0, 4.0]
    """
    weight = 1 / (noise**2 + TUNING.usual_inflation**2)
    mean = float(np.sum(weight * found) / np.sum(weight))
    mean *= TUNING.usual_inflation**2 / (TUNING.usual_inflation**2 + float(1 / np.sum(1 / noise**2)))
    between = max(float(np.sum(weight * ((found - mean) ** 2 - noise**2)) / np.sum(weight)), 0.0)
    return np.clip(1 + mean + (found - mean) * between / (between + noise**2), 0.5, 25.0)


def _pairs(q: FloatArray) -> FloatArray:
    """The directions and the sums of any two of them: their variances hold all covariances."""
    i, j = np.triu_indices(len(q))
    return np.where((i == j)[:, None], q[i], q[i] + q[j])


def _whole(found: FloatArray, q: FloatArray, fit: CurrentFit) -> FloatArray:
    """The matrix of covariances of q_i·score and q_j·score, in units of the errors' variance."""
    k = len(q)
    i, j = np.triu_indices(k)
    S = fit.information / fit.present
    asked = _pairs(q)
    squares = found + np.sum((asked @ S) * asked, axis=1)
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
        query = Explained(**at_present(model, state, fit), middle=float(theta[0]), most=most, along=along)
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
