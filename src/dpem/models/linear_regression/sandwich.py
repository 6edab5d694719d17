"""Sampling errors that hold with unequal variances: the sandwich, its meat released for each reported effect."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import clipped_square
from dpem.models.linear_regression.columns import factors
from dpem.models.linear_regression.parameters import classical_covariance, final_parameters
from dpem.models.linear_regression.rows import RowQuery, Rows
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows, product
from dpem.queries.narrow import into_ball, rounded, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.schema import Schema


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


class Effects(NamedTuple):
    """What the sandwich is about: ``of_slopes`` turns (intercept, slopes) of unit coordinates into effects, ``back``
    turns effects into (intercept, slopes), and ``largest`` is about the largest square of a row's influence on each
    effect over its mean.
    """

    of_slopes: FloatArray
    back: FloatArray
    largest: FloatArray


def effect_contrasts(fit: CurrentFit, schema: Schema) -> Effects:
    """The fitted value at the centre, slopes of numeric columns, and the effect of every level of a factor, also of the
    baseline, against the mean of all levels. Rows of one level hardly influence the others' effects, whereas
    all differences from a baseline share its rows.
    """
    p, centre = schema.width, fit.frame.centre
    unit = np.eye(p + 1)[1:]
    rows, backs, largest = [np.append(1.0, centre)], [np.zeros((p, 1))], [1.0]
    grouped = np.zeros(p, dtype=bool)
    for levels in factors(schema):
        used = levels[~fit.unused[levels]]
        grouped[levels] = True
        if len(used):
            share = fit.columns.share[used]
            mean = share @ unit[used]
            rows += [*(unit[used] - mean), -mean]
            backs.append(np.column_stack([np.eye(p)[:, used], -np.eye(p)[:, used].sum(axis=1)]))
            largest += list(1 / np.maximum(np.append(share, 1 - share.sum()), 1e-4))
    for j in np.flatnonzero(~grouped & ~fit.unused):
        rows.append(unit[j])
        backs.append(np.eye(p)[:, [j]])
        one = float(np.nan_to_num(fit.columns.share[j], nan=0.5))
        largest.append(1 / max(min(one, 1 - one), 1e-4))
    slopes = np.concatenate(backs, axis=1)
    intercept = np.eye(1, slopes.shape[1]) - centre @ slopes
    return Effects(np.array(rows), np.vstack([intercept, slopes]), np.array(largest))


def influence_directions(fit: CurrentFit, effects: Effects) -> FloatArray:
    """A row q_j for each effect: its influence, scaled so that q_j·a has the mean square 1."""
    A, _ = fit.frame.in_unit_coordinates()
    information = fit.information.value / fit.present
    q = effects.of_slopes @ A @ np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    length = np.sqrt(np.maximum(np.sum((q @ information) * q, axis=1), 1e-300))
    return np.asarray(np.where(length[:, None] > 1e-100, q / length[:, None], 0.0))


def shrunk_inflation(excess: FloatArray, noise: FloatArray) -> FloatArray:
    """1 + noisy relative excesses of variance, drawn to their mean, and that to 0, as far as they may be noise.

    >>> shrunk_inflation(np.array([0.0, 3.0]), np.array([0.01, 0.01])).round(1).tolist()
    [1.0, 4.0]
    """
    prior = TUNING.usual_inflation**2
    weight = 1 / (noise**2 + prior)
    mean = float(np.average(excess, weights=weight)) * prior / (prior + float(1 / np.sum(1 / noise**2)))
    between = max(float(np.average((excess - mean) ** 2 - noise**2, weights=weight)), 0.0)
    return np.clip(1 + mean + (excess - mean) * between / (between + noise**2), 0.5, 25.0)


@dataclass(frozen=True)
class FindVariance(Step):
    """The inner part of the sandwich for each reported coefficient. Then the coefficients are complete."""

    def describe(self) -> str:
        return "variance of the scores: standard errors that hold with unequal variances"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit, schema, n = state.fit, model.schema_of(state), curator.effective_rows
        effects = effect_contrasts(fit, schema)
        q = influence_directions(fit, effects)
        radius = TUNING.variance_radius * math.sqrt(3 * len(q))
        most = TUNING.variance_noise * curator.n_rows * math.sqrt(self.rho) / radius
        score_clip = fit.clips.norm / math.sqrt(fit.lengths.k)
        clip = max(min(math.sqrt(most), score_clip), TUNING.least_variance_clip)
        unit = np.minimum(1.0, radius / 2 / effects.largest)
        ratio = 1.0 if state.weights is None else state.weights.ratio
        settings = {"directions": q * np.sqrt(unit)[:, None], "clip": clip, "radius": radius, "ratio": ratio}
        query = fit.query(ScoreVariance, schema, **settings)
        unit *= query.mean * fit.present
        inflation = shrunk_inflation(
            curator.measure(query, self.rho) / unit, curator.noise_scale(query, self.rho) / unit
        )
        excess = fit.tails_square(clip, max(clip, score_clip * fit.clip_scale / fit.sigma))
        root = np.sqrt(inflation * (1 + excess / float(np.mean(inflation))))
        own = effects.of_slopes @ classical_covariance(fit, n) @ effects.of_slopes.T * np.outer(root, root)
        theta, fit = final_parameters(fit, effects.back @ own @ effects.back.T, model, state, n)
        return replace(state, theta=theta, current_fit=fit)
