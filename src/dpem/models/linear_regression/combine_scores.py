"""All releases about the coefficients together, where one noisy matrix enters every one of them.

A score released at coefficients m_t is g_t = κ_t·(S + E)·(θ − m_t) + noise: S is the released information of a
row, E its error. E is the same at every step, so the scores are not independent and are taken together. With
d_t = θ − m_t and U the variances of the entries of E, row i of g_t/κ_t + S·m_t measures (S·θ)_i, and its errors at
steps t and s have the covariance

    (noise_t² + bias_t²)·[t = s] + Σ_l U_il·d_tl·d_sl.

Averaging with the best weights for that prefers steps near θ, and steps with wide clips where clipping may bias them.
The moments that a fit begins with are one more measurement, at 0, with a matrix of their own. All of it is
post-processing of released numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from dpem.models.linear_regression.gaussian_posterior import Posterior, product_covariance
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray

#: How often the weights are computed anew, with the distances that the last ones lead to.
ROUNDS = 4


class FirstAnswer(NamedTuple):
    """A first measurement: answer ≈ (slope + errors of these variances)·θ + noise, of covariance ``noise``."""

    answer: FloatArray
    slope: FloatArray
    noise: FloatArray
    variances: FloatArray


class ScoreAnswer(NamedTuple):
    """A released score: at which coefficients, the standard deviation of its noise, where residuals were clipped (in
    spreads of the response), and how far that may bias it.
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
) -> Posterior:
    """The posterior after the first measurement and all scores, beginning with the last one; ``variance`` is that of
    the errors.
    """
    noise = first.noise + TUNING.first_error**2 * first.slope @ first.slope.T
    for _ in range(ROUNDS):
        around = np.outer(posterior.mean, posterior.mean) + posterior.covariance
        shared = (TUNING.shared_error if scores else 1.0) * product_covariance(first.variances, around)
        measured = [(first.slope, first.answer, noise + shared)]
        if scores:
            measured.append((information, *_average(posterior, scores, information, variances, variance)))
        precision, total = np.diag(1 / prior), np.zeros(len(prior))
        for matrix, answer, unsure in measured:
            part = np.linalg.solve(unsure, np.column_stack([matrix, answer]))
            precision, total = precision + matrix.T @ part[:, :-1], total + matrix.T @ part[:, -1]
        V = np.linalg.inv((precision + precision.T) / 2)
        posterior = Posterior(V @ total, (V + V.T) / 2)
    return posterior


def _average(
    posterior: Posterior,
    scores: tuple[ScoreAnswer, ...],
    information: FloatArray,
    variances: FloatArray,
    variance: float,
) -> tuple[FloatArray, FloatArray]:
    """The scores averaged into one measurement of S·θ, row by row, and the covariance of its errors.

    κ_t is the share of residuals that are not clipped, for normal errors, at the distance that θ turns out to have.
    Weights w = C⁻¹1/(1ᵀC⁻¹1) of a row have the error wᵀCw = 1/(1ᵀC⁻¹1).
    """
    theta, V = posterior
    at, found, noise, clips, bias = (np.array(part) for part in zip(*scores, strict=True))
    d, k = theta - at, len(theta)
    beyond = (np.sum((d @ information) * d, axis=1) + float(np.sum(V * information))) / max(information[0, 0], 0.1)
    kappa = 2 * ndtr(clips / np.sqrt(variance + np.minimum(beyond, variance))) - 1
    rows = found / kappa[:, None] + at @ information
    products = (d[:, None] * d).reshape(-1, k)
    own = (noise / kappa) ** 2 + bias**2
    errors = (variances @ products.T).reshape(k, len(d), len(d)) + np.diag(own)
    weights = np.linalg.solve(errors, np.ones((k, len(d), 1)))[:, :, 0]
    sure = weights.sum(axis=1)
    weights /= sure[:, None]
    apart = weights @ d
    unsure = variances * (apart * apart.T + V)
    np.fill_diagonal(unsure, 1 / sure + variances @ np.diag(V))
    return np.sum(weights * rows.T, axis=1), unsure
