"""The coefficients that agree best with all released scores, by least squares.

A score released at β_t with weights w_t has the expectation

    G_t(β) = complete·E[w_t·m(η_t, η)·a_t],     m the mean of the clipped residual at η_t if the truth is η = β·(1, u),

in which E is a mean over the surrogate rows. The estimate minimises Σ_t ‖g_t − G_t(β)‖²/ω_t + (β − β₀)ᵀP(β − β₀) by
Gauss–Newton steps, where ω_t is the variance of the privacy noise of an entry, and of what the surrogate may get wrong:
a part ``MISFIT`` of how far the score was from 0. All of it is post-processing of released numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpem.models._glm.families import Family
from dpem.models._glm.queries import Predictor, weights
from dpem.models._glm.surrogate import Surrogate
from dpem.query import FloatArray

#: How far the surrogate's expectation of a score may be off, as a part of it: it has no rows where noise hides a bin.
MISFIT = 0.3
#: Gauss–Newton steps, and the most that one may change the predictor of a row by (root mean square).
ROUNDS, LONGEST = 25, 1.0
#: The last step in standard errors of the coefficients.
ENOUGH = 1e-4


@dataclass(frozen=True)
class ReleasedScore:
    """A released score: where and how it was computed, its value and the standard deviation of its noise."""

    family: Family
    predictor: Predictor
    turn: FloatArray
    leverage: float
    clip: float
    value: FloatArray
    noise: float


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


def combined(
    scores: tuple[ReleasedScore, ...],
    rows: Surrogate,
    free: NDArray[np.intp],
    prior: Prior,
    start: FloatArray,
    n: int,
) -> Posterior:
    """The coefficients that agree best with all scores. ``free`` are the columns of (1, u) that have one."""
    X, m = rows.rows[:, free], len(rows.rows)
    weighted = [_weighted(score, rows) for score in scores]
    first = scores[0].predictor
    fixed = Predictor(placed(0 * start, free, first.coef), first.exposure, first.middle, first.half)
    offset = fixed(np, rows.rows[:, 1:])
    coef = start
    for _ in range(ROUNDS):
        eta = offset + X @ coef
        A, total, parts = prior.precision.copy(), prior.precision @ (prior.mean - coef), []
        for score, (at, wa) in zip(scores, weighted, strict=True):
            there = score.family.expected(at, eta)
            D = rows.complete / m * (wa * there.slope[:, None]).T @ X
            far = D @ (coef - score.predictor.coef[free])
            omega = score.noise**2 + MISFIT**2 * float(far @ far) / len(far)
            missing = score.value - rows.complete / m * (wa.T @ there.mean)
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
        there = family.expected(at, eta)
        influence += (wa * np.sqrt(there.square)[:, None]) @ D @ V / omega
        cut = family.mean(np, eta) - family.mean(np, at) - there.mean
        correction += rows.complete / m * (wa.T @ cut) @ D @ V / omega
    drawn = V @ prior.precision @ (prior.mean - coef)
    sampling = rows.complete * influence.T @ influence / (m * n)
    # where nothing was measured, what the prior leaves open, and what one that is too narrow takes away
    privacy = V + np.outer(drawn, drawn) + prior.wider * V @ prior.precision @ V
    privacy += np.outer(correction, correction)  # for clipped residuals, under a law that may be another
    if rows.stretch is not None:
        sampling, privacy = (rows.stretch @ part @ rows.stretch.T for part in (sampling, privacy))
    return Posterior(coef, sampling, privacy, np.clip(np.diag(V @ prior.precision), 0.0, 1.0))


def _weighted(score: ReleasedScore, rows: Surrogate) -> tuple[FloatArray, FloatArray]:
    """The predictor of each surrogate row where the score was computed, and w·a."""
    at = score.predictor(np, rows.rows[:, 1:])
    a = rows.rows @ score.turn.T
    w = weights(np, score.family, at, np.linalg.norm(a, axis=1), score.leverage, score.clip)
    return at, a * w[:, None]


def placed(values: FloatArray, free: NDArray[np.intp], coef: FloatArray) -> FloatArray:
    """The coefficients with those at the free places replaced."""
    out = coef.copy()
    out[free] = values
    return out
