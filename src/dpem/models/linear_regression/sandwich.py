"""Sampling errors that are valid for unequal variances: a sandwich whose meat is released for each coefficient."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import clipped_square
from dpem.models.linear_regression.parameters import classical_covariance, final_parameters
from dpem.models.linear_regression.rows import RowQuery, Rows
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.block_loop import product
from dpem.queries.narrow import rounded, sum_in_ball, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace

if TYPE_CHECKING:
    from dpem.models.linear_regression.model import LinearRegression


@dataclass(frozen=True)
class ScoreVariance(RowQuery):
    """Σ t·u over rows that count: u = ((σ²/v)·(q_j·a)²)_j in the ball of radius ``radius``, q_j the rows of
    ``directions``, and t = min(e², clip²) − m with m its mean for a normal e: the excess of the variance of each
    direction's score over that with equal error variances, the meat of the sandwich. A row with the weight s
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
        change = self.radius * max(math.sqrt(2.0) * size, square)
        size *= self.radius
        return rounded(Bound(linf=change, l2=change, size_linf=size, size_l2=size), 4 * len(self.directions) + 8)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        influence = product(xp, rows.a, self.directions.T)
        weight = xp.zeros_like(rows.r) + self.sigma**2 / rows.v
        e2 = weighted(xp.clip(zero_nonfinite(xp, rows.r**2 / rows.v), 0.0, self.clip**2), rows.shares) - self.mean
        t = weighted(xp.where(rows.seen, e2, xp.zeros_like(rows.r)), rows.shares)
        return sum_in_ball(xp, influence * influence, self.radius, times=weight, shares=t)


def influence_directions(fit: CurrentFit) -> FloatArray:
    """Rows q_j, one for each of (fitted value at the centre, slopes): its influence function is q_j·a times the
    residual, and q_j·a is scaled to the mean square 1.
    """
    A, _ = fit.frame.in_unit_coordinates()
    A[0] += fit.frame.centre @ A[1:]
    information = fit.information.value / fit.present
    q = A @ np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    length = np.sqrt(np.maximum(np.sum((q @ information) * q, axis=1), 1e-300))
    return np.asarray(np.where(length[:, None] > 1e-100, q / length[:, None], 0.0))


def shrunk_inflation(excess: FloatArray, noise: FloatArray) -> FloatArray:
    """1 + noisy relative excesses of variance, shrunk to their mean, which is shrunk to 0, in proportion to their
    noise.

    >>> shrunk_inflation(np.array([0.0, 3.0]), np.array([0.01, 0.01])).round(1).tolist()
    [1.0, 4.0]
    """
    prior = TUNING.usual_excess**2
    weight = 1 / (noise**2 + prior)
    mean = float(np.average(excess, weights=weight)) * prior / (prior + float(1 / np.sum(1 / noise**2)))
    between = max(float(np.average((excess - mean) ** 2 - noise**2, weights=weight)), 0.0)
    return np.clip(1 + mean + (excess - mean) * between / (between + noise**2), 0.5, 25.0)


@dataclass(frozen=True)
class FindVariance(Step):
    """Release the meat of the sandwich for each coefficient, and complete the parameters."""

    def describe(self) -> str:
        return "variance of the scores: standard errors that hold with unequal variances"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        fit, schema, n = state.fit, model.schema_of(state), curator.effective_rows
        q, share = influence_directions(fit), np.nan_to_num(fit.columns.share[:-1], nan=0.5)
        largest = np.append(
            1.0, 1 / np.maximum(np.minimum(share, 1 - share), 1e-4)
        )  # squared influence of a row of the rarer value
        radius = TUNING.variance_radius * math.sqrt(3 * len(q))
        most = TUNING.variance_noise * curator.n_rows * math.sqrt(self.rho) / radius
        score_clip = fit.clips.norm / math.sqrt(fit.lengths.k)
        clip = max(min(math.sqrt(most), score_clip), TUNING.least_variance_clip)
        unit = np.minimum(1.0, radius / 2 / largest)
        ratio = 1.0 if state.weights is None else state.weights.ratio
        settings = {"directions": q * np.sqrt(unit)[:, None], "clip": clip, "radius": radius, "ratio": ratio}
        query = fit.query(ScoreVariance, schema, **settings)
        unit *= query.mean * fit.present
        inflation = shrunk_inflation(
            curator.measure(query, self.rho) / unit, curator.noise_scale(query, self.rho) / unit
        )
        excess = fit.tails_square(clip, max(clip, score_clip * fit.clip_scale / fit.sigma))
        root = np.sqrt(inflation * (1 + excess / float(np.mean(inflation))))
        at_centre, at_zero = np.eye(len(q)), np.eye(len(q))
        at_centre[0, 1:], at_zero[0, 1:] = fit.frame.centre, -fit.frame.centre
        sampling = at_centre @ classical_covariance(fit, n) @ at_centre.T * np.outer(root, root)
        theta, fit = final_parameters(fit, at_zero @ sampling @ at_zero.T, model, state, n)
        return replace(state, theta=theta, current_fit=fit)
