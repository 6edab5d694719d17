"""The law of the coefficients given all releases about them, where one noisy matrix enters every score.

A score released at coefficients m_t is g_t = κ_t·(S + E)·(θ − m_t) + noise: S is the released information of a
row, E its error. E is the same at every step, so the scores are not independent and are taken together. With
d_t = θ − m_t and U the variances of the entries of E, row i of g_t/κ_t + S·m_t measures (S·θ)_i, and its errors at
steps t and s have the covariance

    noise_t²·[t = s] + bias_t·bias_s·D_ii + Σ_l U_il·d_tl·d_sl.

The weights with the least variance prefer steps near θ, and steps with wide clips where clipping may bias them.

*Clipping bias.* A score v = e·a is clipped to the length C. Its excess, (‖v‖ − C)₊·v/‖v‖, has a mean of length
A(C)·‖ℓ‖: A is the mean length of the excess, but for what cancels of normal errors, which the histogram of lengths
shows (:mod:`.clipping`), and ℓ says how much of it does not cancel, and which way. Symmetric errors have ℓ = 0.
On most tables ℓ lies along the fitted values, as a relation is curved or errors are skewed and grow with it, and hardly
depends on C. So it is released once, from scores between two lengths, and every score is corrected by A(C)·ℓ; the
uncertainty of ℓ, with the covariance D, and of A is the misfit: bias_t is A at the clip of step t.

The law is of the estimate that the same rows would give without noise; sampling error is added at the end. All of it
is post-processing of released numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from dpem.models.linear_regression.clipping import Lengths
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray


class NoisyMatrix(NamedTuple):
    """A symmetric matrix, and the variances of its entries' errors, which are independent."""

    value: FloatArray
    variance: FloatArray

    def averaged(self, other: NoisyMatrix) -> NoisyMatrix:
        """This and an independent measurement of the same matrix, weighted entry by entry by their variances."""
        weight = other.variance / np.maximum(self.variance + other.variance, 1e-300)
        return NoisyMatrix(weight * self.value + (1 - weight) * other.value, weight * self.variance)

    def congruent(self, turn: FloatArray) -> NoisyMatrix:
        """turn·M·turnᵀ."""
        return NoisyMatrix(turn @ self.value @ turn.T, turn**2 @ self.variance @ turn.T**2)


def noise_variances(noise: float, k: int) -> FloatArray:
    """The variances of the entries of a packed k×k matrix that was released with that standard deviation of noise."""
    return noise**2 / 2 * (1 + np.eye(k))


def eigenvalues_from(matrix: FloatArray, least: float) -> FloatArray:
    """The symmetric matrix with eigenvalues below ``least`` set to it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def noise_edge(variances: FloatArray) -> float:
    """About half the largest eigenvalue of a symmetric matrix of noise with these variances."""
    return math.sqrt(float(np.mean(variances)) * len(variances)) if len(variances) else 0.0


def shrunk_correlations(matrix: NoisyMatrix, known: NDArray[np.bool_]) -> tuple[NoisyMatrix, float]:
    """Noisy correlations, each times t²/(t² + its variance), with t² their mean square beyond the noise; and about
    half the largest eigenvalue of the noise that is left in them. Entries that are ``known`` stay as they are.

    >>> noisy = NoisyMatrix(np.array([[1.0, 0.1], [0.1, 1.0]]), np.full((2, 2), 0.04))
    >>> shrunk_correlations(noisy, np.eye(2, dtype=bool))[0].value.round(2).tolist()
    [[1.0, 0.02], [0.02, 1.0]]
    """
    value, variance = matrix
    unknown = ~known
    if not unknown.any():
        return matrix, 0.0
    square, of_square = value[unknown] ** 2, variance[unknown]
    signal = float(np.average(square - of_square, weights=(of_square + 0.02) ** -2))
    signal = max(TUNING.least_correlation, signal)
    kept = np.where(unknown, signal / (signal + variance), 1.0)
    shrunk = np.where(unknown, np.clip(kept * value, -1.0, 1.0), value)
    return NoisyMatrix(shrunk, kept * variance), noise_edge(np.where(unknown, kept**2 * variance, 0.0))


def product_covariance(variances: FloatArray, square: FloatArray) -> FloatArray:
    """The covariance of E·d for a symmetric E of independent entries with these variances, ``square`` = E[d·dᵀ]:
    U∘square off the diagonal and Σ_l U_il·square_ll on it.
    """
    out = variances * square
    np.fill_diagonal(out, variances @ np.diag(square))
    return np.asarray(out)


class Gaussian(NamedTuple):
    """A normal law."""

    mean: FloatArray
    covariance: FloatArray

    def gain(self, slope: FloatArray, noise: FloatArray) -> FloatArray:
        """By how much a unit of a measurement slope·θ + N(0, noise) moves the mean (the Kalman gain)."""
        across = self.covariance @ slope.T
        return np.asarray(np.linalg.solve(slope @ across + noise, across.T).T)

    def given(self, answer: FloatArray, slope: FloatArray, noise: FloatArray) -> Gaussian:
        """The law after that measurement."""
        gain = self.gain(slope, noise)
        covariance = self.covariance - gain @ slope @ self.covariance
        return Gaussian(self.mean + gain @ (answer - slope @ self.mean), (covariance + covariance.T) / 2)

    def wider(self, covariance: FloatArray) -> Gaussian:
        """The law with this covariance added."""
        return Gaussian(self.mean, self.covariance + covariance)


# --- the direction ℓ of the excess of clipped scores ----------------------------------------------------------------


def prior_direction(theta: Gaussian) -> Gaussian:
    """The law of ℓ before it is measured: longest along the fitted values of these coefficients."""
    k = len(theta.mean)
    fitted = np.outer(theta.mean[1:], theta.mean[1:]) + theta.covariance[1:, 1:]
    out = np.diag(np.append(TUNING.tails_intercept**2, np.full(k - 1, TUNING.tails_slope_sd**2)) / k)
    out[1:, 1:] += TUNING.tails_fitted**2 * fitted / max(float(np.trace(fitted)), 1e-300)
    return Gaussian(np.zeros(k), out)


def direction_posterior(prior: Gaussian, value: FloatArray, noise: float) -> Gaussian:
    """The law of ℓ after a release of it with noise of that standard deviation, from scores that are not quite those
    cut off. How large ℓ is differs between tables, and skewed errors move the intercept alone: the standard deviations
    of the intercept's part, and those of the slopes', are multiples of the prior's, each as likely as the release makes
    it.
    """
    mean, covariance = np.zeros_like(value), np.zeros_like(prior.covariance)
    for part in (slice(0, 1), slice(1, None)):
        mean[part], covariance[part, part] = _scale_mixture(prior.covariance[part, part], value[part], noise)
    return Gaussian(mean, covariance)


def _scale_mixture(prior: FloatArray, value: FloatArray, noise: float) -> Gaussian:
    """Mean and covariance of N(0, scale²·prior) with a random scale, after a noisy measurement."""
    k, laws, log_likelihood = len(value), [], []
    for scale in TUNING.tails_scales:
        scaled = scale**2 * prior
        error = TUNING.tails_vary**2 * scaled + noise**2 * np.eye(k)
        laws.append(Gaussian(np.zeros(k), scaled).given(value, np.eye(k), error))
        spread = scaled + error
        log_likelihood.append(-(value @ np.linalg.solve(spread, value) + np.linalg.slogdet(spread)[1]) / 2)
    weight = softmax(log_likelihood)
    means = np.array([law.mean for law in laws])
    between = means - weight @ means
    within = np.tensordot(weight, [law.covariance for law in laws], 1)
    return Gaussian(weight @ means, within + (weight * between.T) @ between)


# --- the coefficients -----------------------------------------------------------------------------------------------


class ScoreAnswer(NamedTuple):
    """A released score: at which coefficients, the standard deviation of its noise, where it was clipped (in spreads of
    the response), and the mean length of the excess.
    """

    at: FloatArray
    score: FloatArray
    noise: float
    clip: float
    bias: float = 0.0


def combined_posterior(
    posterior: Gaussian,
    prior: FloatArray,
    scores: tuple[ScoreAnswer, ...],
    information: NoisyMatrix,
    variance: float,
    lengths: Lengths,
    direction: Gaussian,
) -> tuple[Gaussian, FloatArray]:
    """The posterior after all scores, with respect to noise, and the covariance that clipping adds. ``posterior`` is
    that before the last score, ``prior`` has the variances of the coefficients, ``variance`` is that of the errors.
    """
    before = Gaussian(np.zeros(len(prior)), np.diag(prior))
    for _ in range(2):  # weights depend on where the coefficients are
        average = _average_score(posterior, scores, information, variance, lengths, direction.covariance)
        error = average.noise + average.bias
        gain = before.gain(information.value, error)
        posterior = before.given(average.answer, information.value, error)
    misfit = np.asarray(gain @ average.bias @ gain.T)
    return Gaussian(posterior.mean, eigenvalues_from(posterior.covariance - misfit, 0.0)), misfit


class _AverageScore(NamedTuple):
    """A measurement of S·θ, the covariance of its errors but for clipping, and that of clipping."""

    answer: FloatArray
    noise: FloatArray
    bias: FloatArray


def _average_score(
    posterior: Gaussian,
    scores: tuple[ScoreAnswer, ...],
    information: NoisyMatrix,
    variance: float,
    lengths: Lengths,
    direction: FloatArray,
) -> _AverageScore:
    """The scores averaged into one measurement, row by row.

    κ_t is the part of the slope that clipping leaves, for normal errors, at the distance that θ turns out to have.
    Weights of a row are C⁻¹1/(1ᵀC⁻¹1), C being the covariance of its errors.
    """
    S, U = information
    at, values, noise, clips, bias = (np.array(part) for part in zip(*scores, strict=True))
    d, k = posterior.mean - at, len(S)
    added = (np.sum((d @ S) * d, axis=1) + float(np.sum(posterior.covariance * S))) / max(S[0, 0], 0.1)
    kappa = lengths.kappa(clips / np.sqrt(variance + np.minimum(added, variance)))
    answers = values / kappa[:, None] + at @ S
    noise, bias = noise / kappa, bias / kappa
    products = (d[:, None] * d).reshape(-1, k)
    errors = (U @ products.T).reshape(k, len(d), len(d)) + np.diag(noise**2)
    clipped = np.diag(direction)[:, None, None] * np.outer(bias, bias)
    weights = np.linalg.solve(errors + clipped, np.ones((k, len(d), 1)))[:, :, 0]
    weights /= weights.sum(axis=1)[:, None]
    mean_d, mean_bias = weights @ d, weights @ bias
    covariance = U * (mean_d * mean_d.T + posterior.covariance)
    of_scores = np.einsum("it,its,is->i", weights, errors, weights)
    np.fill_diagonal(covariance, of_scores + U @ np.diag(posterior.covariance))
    return _AverageScore(np.sum(weights * answers.T, axis=1), covariance, np.outer(mean_bias, mean_bias) * direction)
