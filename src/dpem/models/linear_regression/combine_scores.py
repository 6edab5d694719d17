"""What all answers about coefficients say together, where one unsure matrix enters every one of them.

A score that is asked at coefficients m_t is g_t = κ_t·(S + E)·(θ − m_t) + noise: S is the released information of a
row, E its error. E is the same at every step, so answers are not independent: what it does to one it does to all. They
are therefore taken together. With d_t = θ − m_t and U the variances of the entries of E, row i of g_t/κ_t + S·m_t
measures (S·θ)_i, and its errors at steps t and s have the covariance

    noise_t²·[t = s] + Σ_l U_il·d_tl·d_sl.

Averaging with the best weights for that prefers steps that were asked near θ, by how near they turn out to be. The
moments that a fit begins with are one more answer, asked at 0, with a slope of their own. All of it is post-processing
of released numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from dpem.models.linear_regression.gaussian_posterior import Belief
from dpem.query import FloatArray

#: How often the answers are weighed anew, with the distances that the last weights lead to.
ROUNDS = 4
#: How far coefficients of clipped moments may be off, whatever the noise.
START_DOUBT = 0.05
#: How much more the error of the moments' own slope counts, because the information shares it.
SHARED = 16.0


class Start(NamedTuple):
    """A first measurement: answer ≈ (slope + errors of variances ``unsure``)·θ + noise, of covariance ``noise``."""

    answer: FloatArray
    slope: FloatArray
    noise: FloatArray
    unsure: FloatArray


class Asked(NamedTuple):
    """A score that was asked: at which coefficients, the answer, the standard deviation of its noise, and the size at
    which residuals were clipped.
    """

    at: FloatArray
    score: FloatArray
    noise: float
    clip: float


def gathered(
    belief: Belief,
    prior: FloatArray,
    start: Start,
    asked: tuple[Asked, ...],
    slope: FloatArray,
    unsure: FloatArray,
    square: float,
) -> Belief:
    """The belief after the start and all scores, beginning with the last one; ``slope`` is S, ``unsure`` U and
    ``square`` the variance of errors.
    """
    doubt = start.noise + START_DOUBT**2 * start.slope @ start.slope.T
    for _ in range(ROUNDS):
        around = np.outer(belief.mean, belief.mean) + belief.covariance
        first = (SHARED if asked else 1.0) * blurred(start.unsure, around)
        measured = [(start.slope, start.answer, doubt + first)]
        if asked:
            measured.append((slope, *_averaged(belief, asked, slope, unsure, square)))
        precision, total = np.diag(1 / prior), np.zeros(len(prior))
        for matrix, answer, noise in measured:
            part = np.linalg.solve(noise, np.column_stack([matrix, answer]))
            precision, total = precision + matrix.T @ part[:, :-1], total + matrix.T @ part[:, -1]
        V = np.linalg.inv((precision + precision.T) / 2)
        belief = Belief(V @ total, (V + V.T) / 2)
    return belief


def blurred(unsure: FloatArray, product: FloatArray) -> FloatArray:
    """The covariance of E·d for a symmetric E of independent entries with variances ``unsure``, ``product`` = E[d·dᵀ]:
    U∘product off the diagonal and Σ_l U_il·product_ll on it.
    """
    out = unsure * product
    np.fill_diagonal(out, unsure @ np.diag(product))
    return np.asarray(out)


def _averaged(
    belief: Belief, asked: tuple[Asked, ...], slope: FloatArray, unsure: FloatArray, square: float
) -> tuple[FloatArray, FloatArray]:
    """The scores averaged into one measurement of S·θ, row by row, and the covariance of its errors.

    κ_t is the share of residuals that are not clipped, for normal errors, at the distance that θ turns out to have.
    Weights w = C⁻¹1/(1ᵀC⁻¹1) of a row have the error wᵀCw = 1/(1ᵀC⁻¹1).
    """
    theta, V = belief
    at, scores, noise, clips = (np.array(part) for part in zip(*asked, strict=True))
    d, k = theta - at, len(theta)
    beyond = (np.sum((d @ slope) * d, axis=1) + float(np.sum(V * slope))) / max(slope[0, 0], 0.1)
    kappa = 2 * ndtr(clips / np.sqrt(square + np.minimum(beyond, square))) - 1
    rows = scores / kappa[:, None] + at @ slope
    products = (d[:, None] * d).reshape(-1, k)
    errors = (unsure @ products.T).reshape(k, len(d), len(d)) + np.diag((noise / kappa) ** 2)
    weights = np.linalg.solve(errors, np.ones((k, len(d), 1)))[:, :, 0]
    sure = weights.sum(axis=1)
    weights /= sure[:, None]
    apart = weights @ d
    blur = unsure * (apart * apart.T + V)
    np.fill_diagonal(blur, 1 / sure + unsure @ np.diag(V))
    return np.sum(weights * rows.T, axis=1), blur
