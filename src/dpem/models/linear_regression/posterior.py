"""The posterior of the coefficients given all releases; one noisy matrix enters every score.

A score released at coefficients m_t is g_t = κ_t·(S + E)·(θ − m_t) + noise: S is the released information of a
row, E its error. E is the same at every step, so the scores are not independent and are combined jointly. With
d_t = θ − m_t and U the variances of the entries of E, row i of g_t/κ_t + S·m_t measures (S·θ)_i, and its errors at
steps t and s have the covariance

    noise_t²·[t = s] + bias_t·bias_s·D_ii + Σ_l U_il·d_tl·d_sl.

The weights with the least variance prefer steps near θ, and steps with wide clips where clipping may bias them.

*Clipping bias.* A score v = e·a is clipped to the length C. The clipped part (‖v‖ − C)₊·v/‖v‖ has the mean
A(C)·ℓ. A is its mean length, which the histogram of lengths shows (:mod:`.clipping`); the direction ℓ says how much of
it does not cancel between rows, and which way: symmetric errors have ℓ = 0. On most tables ℓ lies along the fitted
values, because relations are curved or errors are skewed and grow with them, and it hardly depends on C. So it is
released once, from scores between two lengths, and every score is corrected by A(C)·ℓ. The uncertainty of ℓ, with the
covariance D, and of A is the misfit: bias_t is A at the clip of step t.

The posterior is that of the estimate that the same rows would give without noise; sampling error is added at the end.
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
    """A symmetric matrix and the variances of the independent errors of its entries."""

    value: FloatArray
    variance: FloatArray

    def averaged(self, other: NoisyMatrix) -> NoisyMatrix:
        """This and an independent measurement of the same matrix, weighted entry by entry by their variances."""
        weight = other.variance / np.maximum(self.variance + other.variance, 1e-300)
        return NoisyMatrix(weight * self.value + (1 - weight) * other.value, weight * self.variance)

    def congruent(self, T: FloatArray) -> NoisyMatrix:
        """T·M·Tᵀ."""
        return NoisyMatrix(T @ self.value @ T.T, T**2 @ self.variance @ T.T**2)


def noise_variances(noise: float, k: int) -> FloatArray:
    """The variances of the entries of a packed k×k matrix released with this standard deviation of noise."""
    return noise**2 / 2 * (1 + np.eye(k))


def eigenvalues_from(matrix: FloatArray, least: float) -> FloatArray:
    """The symmetric matrix with eigenvalues below ``least`` set to it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def noise_edge(variances: FloatArray) -> float:
    """About half the largest eigenvalue of a symmetric matrix of noise with these variances."""
    return math.sqrt(float(np.mean(variances)) * len(variances)) if len(variances) else 0.0


def shrunk_correlations(matrix: NoisyMatrix, known: NDArray[np.bool_]) -> tuple[NoisyMatrix, float]:
    """Noisy correlations, each times t²/(t² + its variance), with t² their mean square without noise; and about half
    the largest eigenvalue of the remaining noise. ``known`` entries stay as they are.

    >>> noisy = NoisyMatrix(np.array([[1.0, 0.1], [0.1, 1.0]]), np.full((2, 2), 0.04))
    >>> shrunk_correlations(noisy, np.eye(2, dtype=bool))[0].value.round(2).tolist()
    [[1.0, 0.02], [0.02, 1.0]]
    """
    value, variance = matrix
    unknown = ~known
    if not unknown.any():
        return matrix, 0.0
    square, noise = value[unknown] ** 2, variance[unknown]
    usual_square = 0.02  # of a correlation: weights are inverse variances of its noisy square
    signal = float(np.average(square - noise, weights=(noise + usual_square) ** -2))
    signal = max(TUNING.least_correlation, signal)
    factor = np.where(unknown, signal / (signal + variance), 1.0)
    shrunk = np.where(unknown, np.clip(factor * value, -1.0, 1.0), value)
    return NoisyMatrix(shrunk, factor * variance), noise_edge(np.where(unknown, factor**2 * variance, 0.0))


def product_covariance(variances: FloatArray, square: FloatArray) -> FloatArray:
    """The covariance of E·d for a symmetric E of independent entries with these variances, ``square`` = E[d·dᵀ]:
    U∘square off the diagonal and Σ_l U_il·square_ll on it.
    """
    out = variances * square
    np.fill_diagonal(out, variances @ np.diag(square))
    return np.asarray(out)


class Gaussian(NamedTuple):
    """A multivariate normal distribution."""

    mean: FloatArray
    covariance: FloatArray

    def gain(self, slope: FloatArray, noise: FloatArray) -> FloatArray:
        """The Kalman gain of a measurement slope·θ + N(0, noise)."""
        cross = self.covariance @ slope.T
        return np.asarray(np.linalg.solve(slope @ cross + noise, cross.T).T)

    def given(self, answer: FloatArray, slope: FloatArray, noise: FloatArray) -> Gaussian:
        """The distribution given the answer of such a measurement."""
        gain = self.gain(slope, noise)
        covariance = self.covariance - gain @ slope @ self.covariance
        return Gaussian(self.mean + gain @ (answer - slope @ self.mean), (covariance + covariance.T) / 2)

    def wider(self, covariance: FloatArray) -> Gaussian:
        """The distribution with this covariance added."""
        return Gaussian(self.mean, self.covariance + covariance)


# --- the direction ℓ of the clipped part of scores -- ----------------------------------------------------------------


def prior_direction(theta: Gaussian) -> Gaussian:
    """The prior of ℓ, which is widest along the fitted values of these coefficients."""
    k = len(theta.mean)
    fitted = np.outer(theta.mean[1:], theta.mean[1:]) + theta.covariance[1:, 1:]
    covariance = np.diag(np.append(TUNING.tails_intercept**2, np.full(k - 1, TUNING.tails_slope_sd**2)) / k)
    covariance[1:, 1:] += TUNING.tails_fitted**2 * fitted / max(float(np.trace(fitted)), 1e-300)
    return Gaussian(np.zeros(k), covariance)


def direction_posterior(prior: Gaussian, value: FloatArray, noise: float) -> Gaussian:
    """The posterior of ℓ given a release of it, from scores of other lengths, with noise of this standard deviation.

    The size of ℓ differs between tables, and skewed errors of one variance move the intercept alone. So the prior
    covariances of the intercept and of the slopes have two unknown scales, each averaged over its posterior.
    """
    mean, covariance = np.zeros_like(value), np.zeros_like(prior.covariance)
    for part in (slice(0, 1), slice(1, None)):
        mean[part], covariance[part, part] = _scale_mixture(prior.covariance[part, part], value[part], noise)
    return Gaussian(mean, covariance)


def _scale_mixture(prior: FloatArray, value: FloatArray, noise: float) -> Gaussian:
    """Posterior mean and covariance of N(0, scale²·prior) with a random scale, given a noisy measurement."""
    k, posteriors, log_likelihood = len(value), [], []
    for scale in TUNING.tails_scales:
        scaled = scale**2 * prior
        error = TUNING.tails_vary**2 * scaled + noise**2 * np.eye(k)
        posteriors.append(Gaussian(np.zeros(k), scaled).given(value, np.eye(k), error))
        spread = scaled + error
        log_likelihood.append(-(value @ np.linalg.solve(spread, value) + np.linalg.slogdet(spread)[1]) / 2)
    weight = softmax(log_likelihood)
    means = np.array([each.mean for each in posteriors])
    between = means - weight @ means
    within = np.tensordot(weight, [each.covariance for each in posteriors], 1)
    return Gaussian(weight @ means, within + (weight * between.T) @ between)


# --- the coefficients -----------------------------------------------------------------------------------------------


class ScoreAnswer(NamedTuple):
    """A released score at the coefficients ``start``: its noise's standard deviation, its clip in spreads of the
    response, and the mean length of its clipped part.
    """

    start: FloatArray
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
    """The posterior given all scores, with the covariance from noise, and the covariance that clipping adds.
    ``posterior`` is that before the last score; ``prior`` holds variances of the coefficients; ``variance`` is that of
    the errors.
    """
    start = Gaussian(np.zeros(len(prior)), np.diag(prior))
    for _ in range(2):  # weights depend on the coefficients
        average = _average_score(posterior, scores, information, variance, lengths, direction.covariance)
        error = average.noise + average.bias
        gain = start.gain(information.value, error)
        posterior = start.given(average.answer, information.value, error)
    misfit = np.asarray(gain @ average.bias @ gain.T)
    return Gaussian(posterior.mean, eigenvalues_from(posterior.covariance - misfit, 0.0)), misfit


class _AverageScore(NamedTuple):
    """A measurement of S·θ, and the covariances of its errors from noise and from clipping."""

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

    κ_t is the fraction of the slope that remains after clipping if errors are normal, at the distance of θ from m_t.
    Weights of a row are C⁻¹1/(1ᵀC⁻¹1), C being the covariance of its errors.
    """
    S, U = information
    starts, values, noise, clips, bias = (np.array(part) for part in zip(*scores, strict=True))
    d, k = posterior.mean - starts, len(S)
    added = (np.sum((d @ S) * d, axis=1) + float(np.sum(posterior.covariance * S))) / max(S[0, 0], 0.1)
    kappa = lengths.kappa(clips / np.sqrt(variance + np.minimum(added, variance)))
    answers = values / kappa[:, None] + starts @ S
    noise, bias = noise / kappa, bias / kappa
    products = (d[:, None] * d).reshape(-1, k)
    errors = (U @ products.T).reshape(k, len(d), len(d)) + np.diag(noise**2)
    clipping = np.diag(direction)[:, None, None] * np.outer(bias, bias)
    weights = np.linalg.solve(errors + clipping, np.ones((k, len(d), 1)))[:, :, 0]
    weights /= weights.sum(axis=1)[:, None]
    mean_d, mean_bias = weights @ d, weights @ bias
    covariance = U * (mean_d * mean_d.T + posterior.covariance)
    score_variance = np.einsum("it,its,is->i", weights, errors, weights)
    np.fill_diagonal(covariance, score_variance + U @ np.diag(posterior.covariance))
    return _AverageScore(np.sum(weights * answers.T, axis=1), covariance, np.outer(mean_bias, mean_bias) * direction)
