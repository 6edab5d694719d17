"""The coefficients that agree best with all released scores, by least squares, and the best clip of a score.

A score released at β_t has the expectation

    G_t(β) = complete·E[m(η_t, η)·a_t],     η = β·(1, u),

m the mean of the clipped residual at η_t if the true predictor is η, and E a mean over the surrogate rows. The estimate
minimises Σ_t ‖g_t − G_t(β)‖²/ω_t + (β − β₀)ᵀP(β − β₀) by Gauss–Newton steps. ω_t is the variance of the noise of an
entry plus that of the surrogate's error, whose standard deviation is a fraction ``MISFIT`` of D_t(β − β_t), D_t the
derivative of G_t. All of it is post-processing.
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

#: The relative error of the surrogate's expectation of a score: it has no rows where noise hides a bin.
MISFIT = 0.3
#: Gauss–Newton steps, and the largest root mean square change of the predictor in one step.
ROUNDS, LONGEST = 25, 1.0
#: The length of the last step, in standard errors of the coefficients.
CONVERGED = 1e-2
#: Prior variances of the intercept and, in total, of the slopes of standardised uncorrelated columns.
PRIOR_INTERCEPT, PRIOR_SLOPES = 9.0, 2.0
#: The least variance of a unit coordinate in the prior: it bounds the slopes of columns that seem constant.
LEAST_VARIANCE = 1e-3
#: The least variance of a level, or of a column that seems to lie at a bound: noise may hide the rarer values. It is
#: this multiple of the noise of a share, the variance of a share of two standard deviations, up to the second number.
HIDDEN, MOST_HIDDEN = 8.0, 0.25
#: Where the spreads of columns are unknown, prior variances may be too small by this multiple.
PRIOR_UNDERESTIMATE = 10.0
#: Clips that are tried, in root mean square lengths of a score, and the number of surrogate rows they are tried on.
CLIPS, CLIP_ROWS = np.geomspace(0.7, 14.0, 14), 1024


@dataclass(frozen=True)
class ReleasedScore:
    """A released score and the standard deviation of its noise.

    ``bias`` is the squared bias of a whitened coefficient that the clip may cause where the model is misspecified.
    """

    query: Score
    value: FloatArray
    noise: float
    bias: float

    def padded(self, width: int) -> ReleasedScore:
        """The same score for more columns, which it does not depend on."""
        added = width + 1 - len(self.query.predictor.coef)
        predictor = replace(self.query.predictor, coef=np.pad(self.query.predictor.coef, (0, added)))
        whitening = np.pad(self.query.whitening, ((0, 0), (0, added)))
        return replace(self, query=replace(self.query, predictor=predictor, whitening=whitening))


@dataclass(frozen=True)
class Posterior:
    """Coefficients of (1, free u) and the covariances of their errors.

    ``privacy`` includes the errors of the surrogate and the prior. ``prior_part`` is the fraction of each coefficient
    that comes from the prior.
    """

    coef: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    prior_part: FloatArray


@dataclass(frozen=True)
class Prior:
    """A normal prior of the coefficients. Its variances may be too small by the multiple ``underestimate``."""

    mean: FloatArray
    precision: FloatArray
    underestimate: float = 0.0


def prior_of(model: GeneralisedLinearModel, marginals: Marginals, mean: float, surrogate: Surrogate) -> Prior:
    """The prior: the intercept is near the link of the mean, and the columns together have a moderate effect."""
    X = surrogate.rows[:, model.free]
    centre, p = X[:, 1:].mean(axis=0), len(model.free) - 1
    deviations = X[:, 1:] - centre
    unknown = min((marginals.noise**2 * BINS) ** 1.5, 1.0)  # 1 where noise hides all bins: values may lie anywhere
    hidden = max(min(HIDDEN * marginals.noise, MOST_HIDDEN), LEAST_VARIANCE)
    may_be_rare = (marginals.level > 0) | marginals.one_valued
    least = np.where(may_be_rare, hidden, LEAST_VARIANCE)[model.free[1:] - 1] + unknown / 3  # uniform values: 1/3
    covariance = deviations.T @ deviations / len(X) + np.diag(least)
    centring = np.eye(p + 1)
    centring[0, 1:] = centre
    precision = np.zeros((p + 1, p + 1))
    precision[0, 0], precision[1:, 1:] = 1 / PRIOR_INTERCEPT, covariance * p / PRIOR_SLOPES
    prior_mean = np.zeros(p + 1)
    prior_mean[0] = model.family.link(mean) - model.mean_offset(surrogate.rows)
    return Prior(prior_mean, centring.T @ precision @ centring, PRIOR_UNDERESTIMATE * unknown)


def score_posterior(
    scores: tuple[ReleasedScore, ...],
    surrogate: Surrogate,
    free: NDArray[np.intp],
    prior: Prior,
    start: FloatArray,
    n: int,
) -> Posterior:
    """The posterior of the coefficients of (1, u) in the ``free`` columns, from all scores and the prior."""
    X, m, complete = surrogate.rows[:, free], len(surrogate.rows), surrogate.complete
    families = [score.query.family for score in scores]
    score_terms = [_score_terms(score.query, surrogate.rows) for score in scores]
    first = scores[0].query.predictor
    offset = replace(first, coef=full_coefficients(0 * start, free, first.coef))(np, surrogate.rows[:, 1:])
    coef = start
    for _ in range(ROUNDS):
        eta = offset + X @ coef
        A, gradient, weighted = prior.precision.copy(), prior.precision @ (prior.mean - coef), []
        for score, family, (eta_t, a, limit) in zip(scores, families, score_terms, strict=True):
            residual = family.clipped_residual(eta_t, eta, limit)
            D = complete / m * (a * residual.slope[:, None]).T @ X
            change = D @ (coef - score.query.predictor.coef[free])
            omega = score.noise**2 + MISFIT**2 * float(change @ change) / len(change)
            gap = score.value - complete / m * (a.T @ residual.mean)
            A, gradient = A + D.T @ D / omega, gradient + D.T @ gap / omega
            weighted.append(D / omega)
        step = np.linalg.solve(A, gradient)
        size = float(np.sqrt(np.mean((X @ step) ** 2)))
        coef = coef + step * min(1.0, LONGEST / max(size, 1e-12))
        if float(step @ A @ step) < CONVERGED**2:
            break
    V = np.linalg.inv(A)
    V = (V + V.T) / 2
    family, eta, influence = families[-1], offset + X @ coef, np.zeros((m, len(coef)))  # the latest dispersion
    for (eta_t, a, limit), D_omega in zip(score_terms, weighted, strict=True):
        influence += (a * np.sqrt(family.clipped_residual(eta_t, eta, limit).square)[:, None]) @ D_omega @ V
    sampling = complete * influence.T @ influence / (m * n)
    prior_pull = V @ prior.precision @ (prior.mean - coef)
    privacy = V + np.outer(prior_pull, prior_pull) + prior.underestimate * V @ prior.precision @ V
    whitening = scores[-1].query.whitening[:, free]
    privacy += scores[-1].bias * whitening.T @ whitening
    return Posterior(coef, sampling, privacy, np.clip(np.diag(V @ prior.precision), 0.0, 1.0))


def _score_terms(query: Score, rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For surrogate rows: the predictor η_t of the score, a, and the limit of the residual."""
    a = rows @ query.whitening.T
    return query.predictor(np, rows[:, 1:]), a, query.clip / np.linalg.norm(a, axis=1)


def full_coefficients(values: FloatArray, free: NDArray[np.intp], known: FloatArray) -> FloatArray:
    """The coefficients of (1, u): these values in the free columns, the known ones in the others."""
    out = known.copy()
    out[free] = values
    return out


def best_clip(query: Score, surrogate: Surrogate, n: int, noise: float) -> tuple[float, float]:
    """The clip with the least mean squared error of a coefficient, and the squared bias of a coefficient there.

    ``query`` has the clip 1, and ``noise`` is the standard deviation of its noise. In the query's coordinates the
    information of a row is V̄·I, and V̄·S, S ≤ I, if residuals are clipped. A coefficient along an eigenvector of S with
    eigenvalue s has the variance φ/(n·V̄·s) + (clip·noise)²/(V̄·s)², φ the dispersion, and the prior limits it.
    """
    rows = surrogate.rows[:: max(len(surrogate.rows) // CLIP_ROWS, 1)]
    family, (eta, a, limit) = query.family, _score_terms(query, rows)
    numeric, k, length = 1 + np.flatnonzero(query.schema.level < 0), a.shape[1], 1 / limit
    deviations = rows[:, numeric] - rows[:, numeric].mean(axis=0)
    numeric_part = np.minimum(squares(np, deviations @ query.whitening[:, numeric].T) * limit**2, 1.0)
    V, phi, prior = float(family.variance(np, eta).mean()), family.dispersion, PRIOR_SLOPES / max(k - 1, 1)
    best, least_risk = (1.0, 0.0), math.inf
    for clip in math.sqrt(k * V * phi) * CLIPS:
        slope = family.clipped_residual(eta, eta, clip * limit).slope
        s = np.clip(np.linalg.eigvalsh((a * slope[:, None]).T @ a / (len(a) * V)), 1e-6, 1.0)
        variance = phi / (n * V * s) + (noise * clip / (V * s)) ** 2 / surrogate.complete
        bias = family.squared_bias(eta, clip * limit, length, numeric_part)
        if (risk := float(np.mean(1 / (1 / variance + 1 / prior))) + bias) < least_risk:
            best, least_risk = (float(clip), bias), risk
    return best
