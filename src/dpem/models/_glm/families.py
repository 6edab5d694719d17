"""Families of generalised linear models with their canonical links, and the moments of their clipped residuals.

With the canonical link the score of a row is (y − μ(η))·a and the information V(η)·aaᵀ, where V = dμ/dη is the variance
of y (McCullagh and Nelder 1989, section 2.5). Functions that take ``xp`` run on the rows' device; the others are
post-processing in numpy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import betainc, gammaincc

from dpem.query import Array, FloatArray, Namespace

#: Linear predictors are clipped at ±this: exp of it, and of twice it, is an ordinary float.
LARGEST_PREDICTOR = 30.0
#: Residuals of counts rarely exceed this number of standard deviations.
RESIDUAL_DEVIATIONS = 4.0
#: For 0/1 responses, the squared bias of a whitened coefficient if all rows have the weight 0, due to numeric columns
#: and to levels: where the model is misspecified, weighted rows estimate other coefficients than maximum likelihood.
NUMERIC_BIAS, LEVEL_BIAS = 1e-3, 2e-5
#: For counts, the fraction of the clipped part that the negative binomial distribution may not account for, and the
#: dispersion, relative to the measured one, at which that part is computed.
UNEXPLAINED, DISPERSION_MARGIN = 0.15, 1.3
#: The step of numerical derivatives by the predictor.
STEP = 1e-4
#: Smaller dispersions are computed as Poisson's.
POISSON_DISPERSION = 1.01


class ClippedResidual(NamedTuple):
    """Moments of a clipped residual: its mean, the derivative of the mean by η, and its second moment."""

    mean: FloatArray
    slope: FloatArray
    square: FloatArray


class Family(ABC):
    """A response distribution: mean, variance, how residuals are clipped, and log-density."""

    dispersion: float = 1.0
    also_missing: ClassVar[str] = ""  # for messages: which responses count as missing

    @abstractmethod
    def response(self, xp: Namespace, u: Array) -> Array:
        """Responses from their unit coordinates; NaN where the response is missing."""

    @abstractmethod
    def mean(self, xp: Namespace, eta: Array) -> Array: ...

    @abstractmethod
    def variance(self, xp: Namespace, eta: Array) -> Array: ...

    @abstractmethod
    def residual(self, xp: Namespace, y: Array, eta: Array, limit: Array) -> Array:
        """y − μ(η), clipped or weighted so that its size is at most ``limit``."""

    @abstractmethod
    def residual_limit(self, xp: Namespace, eta: Array) -> Array:
        """A size that residuals at η never, or rarely, exceed."""

    @abstractmethod
    def clipped_residual(self, eta_t: FloatArray, eta: FloatArray, limit: Array) -> ClippedResidual:
        """Moments of the clipped residual at the predictor η_t if the true predictor is η."""

    @abstractmethod
    def squared_bias(self, eta: FloatArray, limit: FloatArray, length: FloatArray, numeric: FloatArray) -> float:
        """The squared bias of a whitened coefficient that clipping at ``limit`` causes in a misspecified model.

        ``length`` is ‖a‖ of each row, and ``numeric`` the part of its square that is due to numeric columns.
        """

    @abstractmethod
    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        """log p(y | η), up to a term that does not depend on η."""

    @abstractmethod
    def link(self, mean: float) -> float: ...


@dataclass(frozen=True)
class Bernoulli(Family):
    """A response with two levels and the logit link.

    The levels have the unit coordinates −1/3 and 1/3; any other value counts as missing.
    """

    also_missing = ", or a response that is neither of the two classes (0 and 1 unless classes= has others),"

    def response(self, xp: Namespace, u: Array) -> Array:
        level = xp.abs(xp.abs(u) - 1.0 / 3.0) < 1e-7
        return xp.where(level, xp.where(u > 0.0, xp.ones_like(u), xp.zeros_like(u)), xp.full_like(u, math.nan))

    def mean(self, xp: Namespace, eta: Array) -> Array:
        return 0.5 + 0.5 * xp.tanh(0.5 * eta)

    def variance(self, xp: Namespace, eta: Array) -> Array:
        p = self.mean(xp, eta)
        return p * (1.0 - p)

    def residual(self, xp: Namespace, y: Array, eta: Array, limit: Array) -> Array:
        """The residual times a weight that does not depend on y, so that its mean is 0 at the truth."""
        return (y - self.mean(xp, eta)) * xp.clip(limit / self.residual_limit(xp, eta), 0.0, 1.0)

    def residual_limit(self, xp: Namespace, eta: Array) -> Array:
        return 0.5 + 0.5 * xp.abs(xp.tanh(0.5 * eta))

    def clipped_residual(self, eta_t: FloatArray, eta: FloatArray, limit: Array) -> ClippedResidual:
        p, p_t = self.mean(np, eta), self.mean(np, eta_t)
        w = np.clip(limit / self.residual_limit(np, eta_t), 0.0, 1.0)
        return ClippedResidual(w * (p - p_t), w * p * (1 - p), w**2 * (p * (1 - p) + (p - p_t) ** 2))

    def squared_bias(self, eta: FloatArray, limit: FloatArray, length: FloatArray, numeric: FloatArray) -> float:
        lost = 1 - np.clip(limit / self.residual_limit(np, eta), 0.0, 1.0)
        information = self.variance(np, eta) * length**2
        return float(np.average(lost * (LEVEL_BIAS + NUMERIC_BIAS * numeric), weights=information))

    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        size = xp.abs(eta)  # log(1 + exp η) = (η + |η|)/2 + log(1 + exp(−|η|)) does not overflow
        return y * eta - 0.5 * (eta + size) - xp.log1p(xp.exp(-size))

    def link(self, mean: float) -> float:
        mean = min(max(mean, 1e-6), 1 - 1e-6)
        return math.log(mean / (1 - mean))


@dataclass(frozen=True)
class Poisson(Family):
    """Counts with mean exp(η) and variance φ·exp(η), φ the dispersion; a unit coordinate u is middle + half·u.

    The public bound of counts may be far above usual counts, so residuals are clipped. The mean of a clipped residual
    is computed under a negative binomial distribution of variance φμ (Cameron and Trivedi 2013, section 3.3) and
    allowed for in the posterior. With less noise the clip is wider, and less depends on that distribution.
    """

    middle: float = 0.0
    half: float = 1.0
    dispersion: float = 1.0

    def response(self, xp: Namespace, u: Array) -> Array:
        return self.middle + self.half * u

    def mean(self, xp: Namespace, eta: Array) -> Array:
        return xp.exp(eta)

    def variance(self, xp: Namespace, eta: Array) -> Array:
        return xp.exp(eta)

    def residual(self, xp: Namespace, y: Array, eta: Array, limit: Array) -> Array:
        return xp.minimum(xp.maximum(y - xp.exp(eta), -limit), limit)

    def residual_limit(self, xp: Namespace, eta: Array) -> Array:
        return RESIDUAL_DEVIATIONS * xp.sqrt(self.dispersion * (xp.exp(eta) + 0.5))

    def clipped_residual(self, eta_t: FloatArray, eta: FloatArray, limit: Array) -> ClippedResidual:
        """The second moment is its upper bound φ·slope + mean²: a clipped residual r has E r² ≤ E r(y − μ), which is φ
        times the derivative of E r.
        """
        mu_t = np.exp(eta_t)

        def mean(predictor: FloatArray) -> FloatArray:
            mu = np.exp(np.minimum(predictor, LARGEST_PREDICTOR))
            above, below = self.clipped_part(mu_t, mu, limit)
            return mu - mu_t - above + below

        clipped = mean(eta)
        slope = (mean(eta + STEP) - clipped) / STEP
        return ClippedResidual(clipped, slope, np.maximum(self.dispersion * slope, 0.0) + clipped**2)

    def clipped_part(self, mu_t: FloatArray, mu: FloatArray, limit: Array) -> tuple[FloatArray, FloatArray]:
        """E max(y − μ_t − limit, 0) and E max(μ_t − limit − y, 0), if the mean of y is μ."""
        least = np.maximum(mu_t - limit, 0.0)  # no count is smaller
        return mean_excess(mu_t + limit, mu, self.dispersion), mean_shortfall(least, mu, self.dispersion)

    def squared_bias(self, eta: FloatArray, limit: FloatArray, length: FloatArray, numeric: FloatArray) -> float:
        """The squared length of the unexplained clipped part of the scores, over their information."""
        mu = np.exp(eta)
        clipped = np.add(*replace(self, dispersion=DISPERSION_MARGIN * self.dispersion).clipped_part(mu, mu, limit))
        return (UNEXPLAINED * float(np.mean(clipped * length))) ** 2 / float(np.mean(mu) * np.mean(mu * length**2))

    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        return y * eta - xp.exp(eta)

    def link(self, mean: float) -> float:
        return math.log(max(mean, 1e-6))


def count_cdf(k: FloatArray, mu: FloatArray, dispersion: float, added_size: float = 0.0) -> FloatArray:
    """P(Y ≤ k) of a negative binomial Y with mean μ and variance φμ, a Poisson if φ is 1.

    Y has the size μ/(φ − 1). With the size larger by 1, Y′ satisfies E[Y; Y ≤ k] = μ·P(Y′ ≤ k − 1).
    """
    whole = np.floor(np.maximum(k, 0.0))
    if dispersion < POISSON_DISPERSION:
        out = gammaincc(whole + 1, mu)
    else:
        out = betainc(mu / (dispersion - 1) + added_size, whole + 1, 1 / dispersion)
    return np.asarray(np.where(k < 0, 0.0, out))


def mean_shortfall(b: FloatArray, mu: FloatArray, dispersion: float) -> FloatArray:
    """E max(b − Y, 0).

    >>> float(mean_shortfall(np.array(1.0), np.array(2.0), 1.0)), math.exp(-2.0)
    (0.1353..., 0.1353...)
    """
    return np.asarray(b * count_cdf(b, mu, dispersion) - mu * count_cdf(b - 1, mu, dispersion, 1.0))


def mean_excess(b: FloatArray, mu: FloatArray, dispersion: float) -> FloatArray:
    """E max(Y − b, 0) = μ − b + E max(b − Y, 0)."""
    return np.asarray(np.maximum(mu - b + mean_shortfall(b, mu, dispersion), 0.0))
