"""All releases about the coefficients together, where one noisy matrix enters every one of them.

A score released at coefficients m_t is g_t = κ_t·(S + E)·(θ − m_t) + noise: S is the released information of a
row, E its error. E is the same at every step, so the scores are not independent and are taken together. With
d_t = θ − m_t and U the variances of the entries of E, row i of g_t/κ_t + S·m_t measures (S·θ)_i, and its errors at
steps t and s have the covariance

    noise_t²·[t = s] + bias_t·bias_s·D_ii + Σ_l U_il·d_tl·d_sl.

bias_t is how much of all scores was cut off, and D the covariance of its direction (:mod:`.clip_bias`), whose mean the
scores have been corrected for. Averaging with the best weights prefers steps near θ, and
steps with wide clips where clipping may bias them. What is left of the bias is the misfit, a part of the posterior's
variance.
The moments that a fit begins with are one more measurement, at 0, with a matrix of their own. All of it is
post-processing of released numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpem.models.linear_regression.clip_bias import Direction, usual_direction
from dpem.models.linear_regression.clipping import Lengths
from dpem.models.linear_regression.gaussian_posterior import Posterior, positive, product_covariance
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray

#: How often the weights are computed anew, with the distances that the last ones lead to.
ROUNDS = 4


class FirstAnswer(NamedTuple):
    """A first measurement: answer ≈ (slope + errors of these variances)·θ + noise, of covariance ``noise``; ``bias`` is
    how long what was cut off rows is in the mean, once that is known.
    """

    answer: FloatArray
    slope: FloatArray
    noise: FloatArray
    variances: FloatArray
    bias: float = 0.0


class ScoreAnswer(NamedTuple):
    """A released score: at which coefficients, the standard deviation of its noise, where residuals were clipped (in
    spreads of the response), and how long what was cut off is in the mean.
    """

    at: FloatArray
    score: FloatArray
    noise: float
    clip: float
    bias: float = 0.0


def combined(
    posterior: Posterior,
    prior: FloatArray,
    first: FirstAnswer,
    scores: tuple[ScoreAnswer, ...],
    information: FloatArray,
    variances: FloatArray,
    variance: float,
    lengths: Lengths,
    direction: Direction | None = None,
) -> tuple[Posterior, FloatArray]:
    """The posterior after the first measurement and all scores, beginning with the last one, as far as noise makes it
    unsure, and the covariance that clipping adds; ``variance`` is that of the errors.
    """
    noise = first.noise + TUNING.first_error**2 * first.slope @ first.slope.T
    for _ in range(ROUNDS):
        around = np.outer(posterior.mean, posterior.mean) + posterior.covariance
        shared = (TUNING.shared_error if scores else 1.0) * product_covariance(first.variances, around)
        directed = (direction or usual_direction(posterior)).covariance
        cut = first.bias**2 * directed
        measured, bias = [(first.slope, first.answer, noise + shared + cut)], np.zeros_like(noise)
        if scores:
            answer, unsure, bias = _average(posterior, scores, information, variances, variance, lengths, directed)
            measured.append((information, answer, unsure + bias))
        precision, total = np.diag(1 / prior), np.zeros(len(prior))
        for matrix, answer, unsure in measured:
            part = np.linalg.solve(unsure, np.column_stack([matrix, answer]))
            precision, total = precision + matrix.T @ part[:, :-1], total + matrix.T @ part[:, -1]
        V = np.linalg.inv((precision + precision.T) / 2)
        posterior, gain = Posterior(V @ total, (V + V.T) / 2), V @ part[:, :-1].T
    misfit = np.asarray(gain @ bias @ gain.T)
    return Posterior(posterior.mean, positive(posterior.covariance - misfit, 0.0)), misfit


def _average(
    posterior: Posterior,
    scores: tuple[ScoreAnswer, ...],
    information: FloatArray,
    variances: FloatArray,
    variance: float,
    lengths: Lengths,
    directed: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The scores averaged into one measurement of S·θ, row by row, the covariance of its errors but for clipping, and
    that of what clipping does.

    κ_t is the part of the slope that clipping leaves, for normal errors, at the distance that θ turns out to have.
    Weights of a row are C⁻¹1/(1ᵀC⁻¹1), C being the covariance of its errors.
    """
    theta, V = posterior
    at, found, noise, clips, bias = (np.array(part) for part in zip(*scores, strict=True))
    d, k = theta - at, len(theta)
    beyond = (np.sum((d @ information) * d, axis=1) + float(np.sum(V * information))) / max(information[0, 0], 0.1)
    kappa = lengths.kappa(clips / np.sqrt(variance + np.minimum(beyond, variance)))
    rows = found / kappa[:, None] + at @ information
    products = (d[:, None] * d).reshape(-1, k)
    noise, bias = noise / kappa, bias / kappa
    errors = (variances @ products.T).reshape(k, len(d), len(d)) + np.diag(noise**2)
    clipped = np.diag(directed)[:, None, None] * np.outer(bias, bias)
    weights = np.linalg.solve(errors + clipped, np.ones((k, len(d), 1)))[:, :, 0]
    weights /= weights.sum(axis=1)[:, None]
    apart, cut = weights @ d, weights @ bias
    unsure = variances * (apart * apart.T + V)
    np.fill_diagonal(unsure, np.einsum("it,its,is->i", weights, errors, weights) + variances @ np.diag(V))
    return np.sum(weights * rows.T, axis=1), unsure, np.outer(cut, cut) * directed
