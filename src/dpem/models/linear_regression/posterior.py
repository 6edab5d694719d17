"""The law of the coefficients given all releases about them, where one noisy matrix enters every score.

A score released at coefficients m_t is g_t = κ_t·(S + E)·(θ − m_t) + noise: S is the released information of a
row, E its error. E is the same at every step, so the scores are not independent and are taken together. With
d_t = θ − m_t and U the variances of the entries of E, row i of g_t/κ_t + S·m_t measures (S·θ)_i, and its errors at
steps t and s have the covariance

    noise_t²·[t = s] + bias_t·bias_s·D_ii + Σ_l U_il·d_tl·d_sl.

The weights with the least variance prefer steps near θ, and steps with wide clips where clipping may bias them. The
moments that a fit begins with are one more measurement, at 0, with a matrix of their own.

*Clipping bias.* A score v = e·a is clipped to the length C. What is cut off, (‖v‖ − C)₊·v/‖v‖, has a mean of length
A(C)·‖ℓ‖: A is the mean length of what is cut off, but for what cancels of normal errors, which the histogram of
lengths shows (:mod:`.clipping`), and ℓ says how much of it does not cancel, and which way. Symmetric errors have ℓ = 0.
On most tables ℓ lies along the fitted values, as a relation is curved or errors are skewed and grow with it, and hardly
depends on C. So it is released once, from scores between two lengths, and every score is corrected by A(C)·ℓ; what
remains unknown of ℓ, with the covariance D, and of A is the misfit: bias_t is A at the clip of step t.

The law is of the estimate that the same rows would give without noise; sampling error is added at the end. All of it
is post-processing of released numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.clipping import Lengths
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray


class Posterior(NamedTuple):
    """The coefficients are normal with this mean and covariance, given what was released."""

    mean: FloatArray
    covariance: FloatArray

    def given_number(self, value: float, row: FloatArray, variance: float) -> Posterior:
        """After a release ≈ row·(truth − mean) + noise of that variance."""
        across = self.covariance @ row
        spread = float(row @ across) + variance
        return Posterior(self.mean + across * (value / spread), self.covariance - np.outer(across, across) / spread)

    def wider(self, covariance: FloatArray) -> Posterior:
        """The law with this covariance added."""
        return Posterior(self.mean, self.covariance + covariance)


def eigenvalues_from(matrix: FloatArray, least: float) -> FloatArray:
    """The symmetric matrix with eigenvalues below ``least`` set to it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def shrunk_correlations(
    correlations: FloatArray, variances: FloatArray, from_shares: NDArray[np.bool_] | None = None
) -> tuple[FloatArray, FloatArray, float]:
    """Noisy correlations, each times t²/(t² + its noise variance), with t² their mean square beyond the noise; how
    unsure they still are; and about half the largest eigenvalue of the noise that is left in them. Entries that are
    ``from_shares`` stay as they are.

    >>> shrunk_correlations(np.array([[1.0, 0.1], [0.1, 1.0]]), np.full((2, 2), 0.04))[0].round(2).tolist()
    [[1.0, 0.02], [0.02, 1.0]]
    """
    p = len(correlations)
    apart = ~np.eye(p, dtype=bool) if from_shares is None else ~(np.eye(p, dtype=bool) | from_shares)
    if not apart.any() or not variances.any():
        return correlations, variances, noise_edge(np.where(apart, variances, 0.0))
    c, u = correlations[apart], variances[apart]
    weights = 1 / (u + 0.02) ** 2
    signal = max(TUNING.least_correlation, float(np.sum(weights * (c * c - u)) / np.sum(weights)))
    kept = signal / (signal + variances)
    out = np.where(apart, np.clip(kept * correlations, -1.0, 1.0), correlations)
    return out, np.where(apart, kept * variances, variances), noise_edge(np.where(apart, kept**2 * variances, 0.0))


def weighted_average(
    first: FloatArray, first_variance: FloatArray, second: FloatArray, second_variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Two measurements of the same matrix averaged entry by entry, and the variances of the average."""
    weight = second_variance / np.maximum(first_variance + second_variance, 1e-300)
    return weight * first + (1 - weight) * second, weight * first_variance


def noise_edge(variances: FloatArray) -> float:
    """About half the largest eigenvalue of a symmetric matrix of noise with these variances."""
    return math.sqrt(float(np.mean(variances)) * len(variances)) if len(variances) else 0.0


def product_covariance(variances: FloatArray, square: FloatArray) -> FloatArray:
    """The covariance of E·d for a symmetric E of independent entries with these variances, ``square`` = E[d·dᵀ]:
    U∘square off the diagonal and Σ_l U_il·square_ll on it.
    """
    out = variances * square
    np.fill_diagonal(out, variances @ np.diag(square))
    return np.asarray(out)


class Direction(NamedTuple):
    """ℓ is normal with this mean and covariance."""

    mean: FloatArray
    covariance: FloatArray

    @property
    def square(self) -> float:
        """The part of E‖ℓ‖² that cannot be corrected for."""
        return float(np.trace(self.covariance[1:, 1:]))

    def measured(self, value: FloatArray, noise: float) -> Direction:
        """After a release of ℓ with noise of that standard deviation, from scores that are not quite those cut off. How
        large ℓ is differs between tables, so its standard deviations are multiples of these, each as likely as the
        release makes it.
        """
        laws, likely = [], []
        for scale in TUNING.tails_scales:
            own = scale**2 * self.covariance
            whole = (1 + TUNING.tails_vary**2) * own + noise**2 * np.eye(len(value))
            gain = np.linalg.solve(whole, own).T
            laws.append((gain @ value, own - gain @ own))
            likely.append(-(value @ np.linalg.solve(whole, value) + np.linalg.slogdet(whole)[1]) / 2)
        weights = np.exp(np.array(likely) - max(likely))
        weights /= weights.sum()
        mean = sum(w * own for w, (own, _) in zip(weights, laws, strict=True))
        rest = sum(w * (V + np.outer(own - mean, own - mean)) for w, (own, V) in zip(weights, laws, strict=True))
        return Direction(np.asarray(mean), np.asarray(rest + rest.T) / 2)


def prior_direction(posterior: Posterior) -> Direction:
    """Before it is measured: longest along the fitted values of these coefficients."""
    theta, V = posterior
    k = len(theta)
    fitted = np.outer(theta[1:], theta[1:]) + V[1:, 1:]
    out = np.diag(np.append(TUNING.tails_level**2, np.full(k - 1, TUNING.tails_beside**2)) / k)
    out[1:, 1:] += TUNING.tails_along**2 * fitted / max(float(np.trace(fitted)), 1e-300)
    return Direction(np.zeros(k), out)


#: How often the weights are computed anew, with the distances that the last ones lead to.
ROUNDS = 2


class FirstAnswer(NamedTuple):
    """A first measurement: answer ≈ (slope + errors of these variances)·θ + noise, of covariance ``noise``."""

    answer: FloatArray
    slope: FloatArray
    noise: FloatArray
    variances: FloatArray


class ScoreAnswer(NamedTuple):
    """A released score: at which coefficients, the standard deviation of its noise, where residuals were clipped (in
    spreads of the response), and how long what was cut off is in the mean.
    """

    at: FloatArray
    score: FloatArray
    noise: float
    clip: float
    bias: float = 0.0


def combined_posterior(
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
        directed = (direction or prior_direction(posterior)).covariance
        measured, bias = [(first.slope, first.answer, noise + shared)], np.zeros_like(noise)
        if scores:
            answer, unsure, bias = _average_score(
                posterior, scores, information, variances, variance, lengths, directed
            )
            measured.append((information, answer, unsure + bias))
        precision, total = np.diag(1 / prior), np.zeros(len(prior))
        for matrix, answer, unsure in measured:
            part = np.linalg.solve(unsure, np.column_stack([matrix, answer]))
            precision, total = precision + matrix.T @ part[:, :-1], total + matrix.T @ part[:, -1]
        V = np.linalg.inv((precision + precision.T) / 2)
        posterior, gain = Posterior(V @ total, (V + V.T) / 2), V @ part[:, :-1].T
    misfit = np.asarray(gain @ bias @ gain.T)
    return Posterior(posterior.mean, eigenvalues_from(posterior.covariance - misfit, 0.0)), misfit


def _average_score(
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
    at, values, noise, clips, bias = (np.array(part) for part in zip(*scores, strict=True))
    d, k = theta - at, len(theta)
    beyond = (np.sum((d @ information) * d, axis=1) + float(np.sum(V * information))) / max(information[0, 0], 0.1)
    kappa = lengths.kappa(clips / np.sqrt(variance + np.minimum(beyond, variance)))
    rows = values / kappa[:, None] + at @ information
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
