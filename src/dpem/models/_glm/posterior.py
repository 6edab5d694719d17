"""The coefficients that agree best with all released scores, by least squares, and where scores are clipped.

A score released at β_t has the expectation

    G_t(β) = complete·E[m(η_t, η)·a_t],     m the mean of the clipped residual at η_t if the truth is η = β·(1, u),

in which E is a mean over the surrogate rows. The estimate minimises Σ_t ‖g_t − G_t(β)‖²/ω_t + (β − β₀)ᵀP(β − β₀) by
Gauss–Newton steps, where ω_t is the variance of the privacy noise of an entry, and of what the surrogate may get wrong:
a part ``MISFIT`` of how far the score was from 0. All of it is post-processing of released numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpem.models._glm.marginals import Marginals
from dpem.models._glm.queries import Score
from dpem.models._glm.surrogate import Surrogate
from dpem.queries.histograms import BINS
from dpem.queries.narrow import squares
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel

#: How far the surrogate's expectation of a score may be off, as a part of it: it has no rows where noise hides a bin.
MISFIT = 0.3
#: Gauss–Newton steps, and the most that one may change the predictor of a row by (root mean square).
ROUNDS, LONGEST = 25, 1.0
#: The last step in standard errors of the coefficients.
ENOUGH = 1e-2
#: Variances of the intercept and, in all, of the slopes of standardised uncorrelated columns before any score.
PRIOR_INTERCEPT, PRIOR_SLOPES = 9.0, 2.0
#: The least variance of a unit coordinate in the prior: a level that no surrogate row has is not left undetermined.
LEAST_VARIANCE = 1e-3
#: That of a level, or of a column that seems to lie at one of its bounds, of which noise may hide the rarer values: the
#: variance of a share of two standard deviations, and at most this. Rare values may not have an effect of many units.
HIDDEN, MOST_HIDDEN = 8.0, 0.25
#: By how much the prior may be too narrow, as a part of its variances, where nothing is known of the columns' spreads.
WIDER = 10.0
#: Clips that are tried, in units of the length of a typical score.
CLIPS = np.geomspace(0.7, 14.0, 14)
#: Surrogate rows that these are tried on.
ENOUGH_ROWS = 1024


@dataclass(frozen=True)
class ReleasedScore:
    """A released score, the standard deviation of its noise, and the squared bias of a whitened coefficient that its
    clip may cause where the model is not quite right.
    """

    query: Score
    value: FloatArray
    noise: float
    bias: float

    def widened(self, width: int) -> ReleasedScore:
        """The same score for more columns, of which it says nothing."""
        more = width + 1 - len(self.query.predictor.coef)
        predictor = replace(self.query.predictor, coef=np.pad(self.query.predictor.coef, (0, more)))
        turn = np.pad(self.query.turn, ((0, 0), (0, more)))
        return replace(self, query=replace(self.query, predictor=predictor, turn=turn))


@dataclass(frozen=True)
class Posterior:
    """Coefficients of (1, free u) and the covariances of their errors: of sampling, and of privacy noise with what the
    surrogate and the prior may get wrong. ``prior_part`` is how much of each coefficient comes from the prior (0 to 1).
    """

    coef: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    prior_part: FloatArray


@dataclass(frozen=True)
class Prior:
    """A normal prior of the coefficients: its mean, its precision, and by which part its variances may be too small."""

    mean: FloatArray
    precision: FloatArray
    wider: float = 0.0


def prior_of(model: GeneralisedLinearModel, marginals: Marginals, mean: float, surrogate: Surrogate) -> Prior:
    """The prior: the intercept near the link of the mean, slopes of all columns together of a moderate size."""
    X = surrogate.rows[:, model.free]
    middle, p = X[:, 1:].mean(axis=0), len(model.free) - 1
    centred = X[:, 1:] - middle
    unknown = min((marginals.noise**2 * BINS) ** 1.5, 1.0)  # where noise hides where a column lies: anywhere
    hidden = max(min(HIDDEN * marginals.noise, MOST_HIDDEN), LEAST_VARIANCE)
    rare = (marginals.level > 0) | marginals.one_end
    least = np.where(rare, hidden, LEAST_VARIANCE)[model.free[1:] - 1] + unknown / 3
    covariance = centred.T @ centred / len(X) + np.diag(least)
    to_middle = np.eye(p + 1)
    to_middle[0, 1:] = middle
    precision = np.zeros((p + 1, p + 1))
    precision[0, 0], precision[1:, 1:] = 1 / PRIOR_INTERCEPT, covariance * p / PRIOR_SLOPES
    start = np.zeros(p + 1)
    start[0] = model.family.link(mean) - model.mean_offset(surrogate.rows)
    return Prior(start, to_middle.T @ precision @ to_middle, WIDER * unknown)


def combined(
    scores: tuple[ReleasedScore, ...],
    surrogate: Surrogate,
    free: NDArray[np.intp],
    prior: Prior,
    start: FloatArray,
    n: int,
) -> Posterior:
    """The coefficients that agree best with all scores. ``free`` are the columns of (1, u) that have one."""
    X, m, complete = surrogate.rows[:, free], len(surrogate.rows), surrogate.complete
    families, rows = zip(*((score.query.family, _scored(score.query, surrogate.rows)) for score in scores), strict=True)
    first = scores[0].query.predictor
    offset = replace(first, coef=placed(0 * start, free, first.coef))(np, surrogate.rows[:, 1:])
    coef = start
    for _ in range(ROUNDS):
        eta = offset + X @ coef
        A, total, parts = prior.precision.copy(), prior.precision @ (prior.mean - coef), []
        for score, family, (at, a, most) in zip(scores, families, rows, strict=True):
            expected = family.expected(at, eta, most)
            D = complete / m * (a * expected.slope[:, None]).T @ X
            moved = D @ (coef - score.query.predictor.coef[free])
            omega = score.noise**2 + MISFIT**2 * float(moved @ moved) / len(moved)
            residual = score.value - complete / m * (a.T @ expected.mean)
            A, total = A + D.T @ D / omega, total + D.T @ residual / omega
            parts.append(D / omega)
        step = np.linalg.solve(A, total)
        size = float(np.sqrt(np.mean((X @ step) ** 2)))
        coef = coef + step * min(1.0, LONGEST / max(size, 1e-12))
        if float(step @ A @ step) < ENOUGH**2:
            break
    V = np.linalg.inv(A)
    V = (V + V.T) / 2
    family, eta, influence = families[-1], offset + X @ coef, np.zeros((m, len(coef)))  # the last one knows most
    for (at, a, most), gain in zip(rows, parts, strict=True):
        influence += (a * np.sqrt(family.expected(at, eta, most).square)[:, None]) @ gain @ V
    drawn = V @ prior.precision @ (prior.mean - coef)
    sampling = complete * influence.T @ influence / (m * n)
    # where nothing was measured, what the prior leaves open, and what one that is too narrow takes away
    privacy = V + np.outer(drawn, drawn) + prior.wider * V @ prior.precision @ V
    turn = scores[-1].query.turn[:, free]
    privacy += scores[-1].bias * turn.T @ turn
    return Posterior(coef, sampling, privacy, np.clip(np.diag(V @ prior.precision), 0.0, 1.0))


def _scored(query: Score, rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of surrogate rows: the predictor where the score was computed, a, and the largest residual."""
    a = rows @ query.turn.T
    return query.predictor(np, rows[:, 1:]), a, query.clip / np.linalg.norm(a, axis=1)


def placed(values: FloatArray, free: NDArray[np.intp], coef: FloatArray) -> FloatArray:
    """The coefficients with those at the free places replaced."""
    out = coef.copy()
    out[free] = values
    return out


def best_clip(query: Score, surrogate: Surrogate, n: int, noise: float) -> tuple[float, float]:
    """Where sampling error, privacy noise and bias of the query's scores together are least, and the squared bias of a
    coefficient there. ``noise`` is the standard deviation that the noise has if the clip is 1.

    In the query's coordinates the information of a row is V̄·I, and V̄·S, S ≤ I, if residuals are clipped. A coefficient
    along an eigenvector of S with eigenvalue s has the variance φ/(n·V̄·s) + noise²/(V̄·s)², φ the dispersion, as far as
    the prior does not decide it.
    """
    rows = surrogate.rows[:: max(len(surrogate.rows) // ENOUGH_ROWS, 1)]
    family, (eta, a, most) = query.family, _scored(query, rows)
    numeric, k, size = 1 + np.flatnonzero(query.schema.level < 0), a.shape[1], 1 / most
    centred = rows[:, numeric] - rows[:, numeric].mean(axis=0)
    part = np.minimum(squares(np, centred @ query.turn[:, numeric].T) * most**2, 1.0)
    middle, spread, prior = float(family.variance(np, eta).mean()), family.dispersion, PRIOR_SLOPES / max(k - 1, 1)
    best, least = (1.0, 0.0), math.inf
    for clip in math.sqrt(k * middle * spread) * CLIPS:
        expected = family.expected(eta, eta, clip * most)
        s = np.clip(np.linalg.eigvalsh((a * expected.slope[:, None]).T @ a / (len(a) * middle)), 1e-6, 1.0)
        variance = spread / (n * middle * s) + (noise * clip / (middle * s)) ** 2 / surrogate.complete
        bias = family.squared_bias(eta, clip * most, size, part)
        if (risk := float(np.mean(1 / (1 / variance + 1 / prior))) + bias) < least:
            best, least = (float(clip), bias), risk
    return best
