"""The coefficients that agree best with all released scores, by least squares, and where scores are clipped.

A score released at β_t with weights w_t has the expectation

    G_t(β) = complete·E[w_t·m(η_t, η)·a_t],     m the mean of the clipped residual at η_t if the truth is η = β·(1, u),

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

from dpem.models._glm.families import Family
from dpem.models._glm.marginals import Marginals
from dpem.models._glm.queries import Predictor, weights
from dpem.models._glm.surrogate import Surrogate
from dpem.queries.histograms import BINS
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
#: Clips that are tried: leverages in units of √k, and clips from the size of a typical score.
LEVERAGES = (1.2, 1.6, 2.2, 3.2, 4.5, 6.5)
CLIPS = np.geomspace(0.25, 36.0, 20)
#: Surrogate rows that these are tried on.
ENOUGH_ROWS = 1024
#: What full clipping may do to the coefficient of a whitened covariate besides noise: a squared bias; and a bias, since
#: the mean of real responses is not quite the model's, and weighted rows then estimate other coefficients than maximum
#: likelihood. The posterior allows for a part of the squared bias.
CLIPPED, WEIGHTED_DOWN, ALLOWED = 5e-4, 0.2, 0.5


@dataclass(frozen=True)
class ReleasedScore:
    """A released score: where and how it was computed, its value and the standard deviation of its noise. ``bias`` is
    the squared bias of a whitened coefficient that its clips may cause where the model is not quite right.
    """

    family: Family
    predictor: Predictor
    turn: FloatArray
    leverage: float
    clip: float
    bias: float
    value: FloatArray
    noise: float

    def widened(self, width: int) -> ReleasedScore:
        """The same score for more columns, of which it says nothing."""
        more = width + 1 - len(self.predictor.coef)
        predictor = replace(self.predictor, coef=np.pad(self.predictor.coef, (0, more)))
        return replace(self, predictor=predictor, turn=np.pad(self.turn, ((0, 0), (0, more))))


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
    weighted = [_weighted(score, surrogate) for score in scores]
    first = scores[0].predictor
    fixed = Predictor(placed(0 * start, free, first.coef), first.exposure, first.middle, first.half)
    offset = fixed(np, surrogate.rows[:, 1:])
    coef = start
    for _ in range(ROUNDS):
        eta = offset + X @ coef
        A, total, parts = prior.precision.copy(), prior.precision @ (prior.mean - coef), []
        for score, (at, wa) in zip(scores, weighted, strict=True):
            expected = score.family.expected(at, eta)
            D = complete / m * (wa * expected.slope[:, None]).T @ X
            far = D @ (coef - score.predictor.coef[free])
            omega = score.noise**2 + MISFIT**2 * float(far @ far) / len(far)
            missing = score.value - complete / m * (wa.T @ expected.mean)
            A, total = A + D.T @ D / omega, total + D.T @ missing / omega
            parts.append((D, omega))
        step = np.linalg.solve(A, total)
        size = float(np.sqrt(np.mean((X @ step) ** 2)))
        coef = coef + step * min(1.0, LONGEST / max(size, 1e-12))
        if float(step @ A @ step) < ENOUGH**2:
            break
    V = np.linalg.inv(A)
    V = (V + V.T) / 2
    influence, correction = np.zeros((m, len(coef))), np.zeros(len(coef))
    family, eta = scores[-1].family, offset + X @ coef  # the last one knows most
    for (at, wa), (D, omega) in zip(weighted, parts, strict=True):
        expected = family.expected(at, eta)
        influence += (wa * np.sqrt(expected.square)[:, None]) @ D @ V / omega
        cut = family.mean(np, eta) - family.mean(np, at) - expected.mean
        correction += complete / m * (wa.T @ cut) @ D @ V / omega
    drawn = V @ prior.precision @ (prior.mean - coef)
    sampling = complete * influence.T @ influence / (m * n)
    # where nothing was measured, what the prior leaves open, and what one that is too narrow takes away
    privacy = V + np.outer(drawn, drawn) + prior.wider * V @ prior.precision @ V
    privacy += np.outer(correction, correction)  # for clipped residuals, under a law that may be another
    turn = scores[-1].turn[:, free]
    privacy += ALLOWED * scores[-1].bias * turn.T @ turn
    return Posterior(coef, sampling, privacy, np.clip(np.diag(V @ prior.precision), 0.0, 1.0))


def _weighted(score: ReleasedScore, surrogate: Surrogate) -> tuple[FloatArray, FloatArray]:
    """The predictor of each surrogate row where the score was computed, and w·a."""
    at = score.predictor(np, surrogate.rows[:, 1:])
    a = surrogate.rows @ score.turn.T
    w = weights(np, score.family, at, np.linalg.norm(a, axis=1), score.leverage, score.clip)
    return at, a * w[:, None]


def placed(values: FloatArray, free: NDArray[np.intp], coef: FloatArray) -> FloatArray:
    """The coefficients with those at the free places replaced."""
    out = coef.copy()
    out[free] = values
    return out


def clips(
    free: NDArray[np.intp],
    family: Family,
    surrogate: Surrogate,
    predictor: Predictor,
    n: int,
    rho: float,
    rows_per_person: int,
) -> tuple[FloatArray, float, float, float]:
    """Coordinates in which the information of a surrogate row is round, where to clip in them, and the squared bias
    that may cause: where sampling error, privacy noise and bias together are least. From released numbers alone.
    """
    rows, k = surrogate.rows, len(free)
    V = family.variance(np, predictor(np, rows[:, 1:]))
    X = rows[:, free]
    J = (X * V[:, None]).T @ X / len(X)
    values, vectors = np.linalg.eigh(J)
    values = np.maximum(values, 1e-6 * values[-1])
    turn = np.zeros((k, rows.shape[1]))
    turn[:, free] = (vectors / np.sqrt(values)).T * math.sqrt(float(V.mean()))
    some = slice(None, None, max(len(rows) // ENOUGH_ROWS, 1))
    size, V, eta = np.linalg.norm(rows[some] @ turn.T, axis=1), V[some], predictor(np, rows[some, 1:])
    information = V * size**2 / (k * len(V))
    clip = math.sqrt(float(information.sum()) * k) * CLIPS
    noise = (2 * clip * rows_per_person / n) ** 2 / (2 * rho) / surrogate.complete
    best, least = (turn, LEVERAGES[0], 1.0, 0.0), math.inf
    for leverage in (wide * math.sqrt(k) for wide in LEVERAGES):
        w = weights(np, family, eta, size, leverage, clip[:, None])
        slope, sampling = w @ information, w**2 @ information / n
        lost = 1 - slope / information.sum()
        bias = CLIPPED / float(V.mean()) * lost + (WEIGHTED_DOWN * lost) ** 2
        losses = np.nan_to_num((sampling + noise) / slope**2 + bias, nan=math.inf)
        if losses.min() < least:
            j, least = int(np.argmin(losses)), float(losses.min())
            best = turn, leverage, float(clip[j]), float(bias[j])
    return best
