"""Families of generalised linear models with their canonical links: what the queries and steps need of each.

With the canonical link the score of a row is (y − μ(η))·a and the information V(η)·aaᵀ, where V = dμ/dη is the variance
of y (McCullagh and Nelder 1989, section 2.5). Functions that take ``xp`` run on rows wherever they live; the others are
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

#: Linear predictors are kept within ±this: exp of it, and of twice it, is an ordinary float.
LARGEST_PREDICTOR = 30.0
#: Residuals of counts are rarely larger than so many standard deviations.
USUAL = 4.0
#: The squared bias of a whitened coefficient of 0/1 responses if all rows are weighted down, because of numeric columns
#: and of levels: the mean is not quite the model's, and weighted rows estimate other coefficients than maximum
#: likelihood. That of counts: the part of what clipping cuts off that the assumed law does not foresee, and by how much
#: tails may be heavier than those of that law.
CURVED, LEVELLED, UNFORESEEN, HEAVIER = 1e-3, 2e-5, 0.15, 1.3
#: The step of the numeric derivative of a clipped residual's mean by the predictor.
STEP = 1e-4


class Expected(NamedTuple):
    """Of a clipped residual: its mean, the derivative of the mean by η, and its second moment."""

    mean: FloatArray
    slope: FloatArray
    square: FloatArray


class Family(ABC):
    """A response distribution: mean, variance, how residuals are clipped, and log-density."""

    dispersion: float = 1.0
    also_missing: ClassVar[str] = ""  # which responses count as missing, in words

    @abstractmethod
    def response(self, xp: Namespace, u: Array) -> Array:
        """Responses from their unit coordinates; NaN where there is none."""

    @abstractmethod
    def mean(self, xp: Namespace, eta: Array) -> Array: ...

    @abstractmethod
    def variance(self, xp: Namespace, eta: Array) -> Array: ...

    @abstractmethod
    def residual(self, xp: Namespace, y: Array, eta: Array, most: Array) -> Array:
        """y − μ(η), brought within ±most."""

    @abstractmethod
    def reach(self, xp: Namespace, eta: Array) -> Array:
        """A size that a residual at η rarely exceeds, if ever."""

    @abstractmethod
    def expected(self, at: FloatArray, eta: FloatArray, most: Array) -> Expected:
        """Moments of the residual that is computed at the predictor ``at`` if the truth is ``eta``."""

    @abstractmethod
    def squared_bias(self, eta: FloatArray, most: FloatArray, size: FloatArray, numeric: FloatArray) -> float:
        """Of a whitened coefficient, because rows of these sizes have residuals within ±most and the model is not quite
        right; ``numeric`` is the part of a row's squared size that is due to numeric columns.
        """

    @abstractmethod
    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        """log p(y | η), up to a term that does not depend on η."""

    @abstractmethod
    def link(self, mean: float) -> float: ...


@dataclass(frozen=True)
class Bernoulli(Family):
    """A response with two levels and the logit link. Unit coordinates are −1/3 and +1/3: another value, wherever it
    lies, is at another place and counts as missing.
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

    def residual(self, xp: Namespace, y: Array, eta: Array, most: Array) -> Array:
        """Times a weight that does not depend on y, so that the mean is 0 at the truth."""
        return (y - self.mean(xp, eta)) * xp.clip(most / self.reach(xp, eta), 0.0, 1.0)

    def reach(self, xp: Namespace, eta: Array) -> Array:
        return 0.5 + 0.5 * xp.abs(xp.tanh(0.5 * eta))

    def expected(self, at: FloatArray, eta: FloatArray, most: Array) -> Expected:
        p, before, w = self.mean(np, eta), self.mean(np, at), np.clip(most / self.reach(np, at), 0.0, 1.0)
        return Expected(w * (p - before), w * p * (1 - p), w**2 * (p * (1 - p) + (p - before) ** 2))

    def squared_bias(self, eta: FloatArray, most: FloatArray, size: FloatArray, numeric: FloatArray) -> float:
        lost = 1 - np.clip(most / self.reach(np, eta), 0.0, 1.0)
        return float(np.average(lost * (LEVELLED + CURVED * numeric), weights=self.variance(np, eta) * size**2))

    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        size = xp.abs(eta)
        return y * eta - 0.5 * (eta + size) - xp.log1p(xp.exp(-size))

    def link(self, mean: float) -> float:
        mean = min(max(mean, 1e-6), 1 - 1e-6)
        return math.log(mean / (1 - mean))


@dataclass(frozen=True)
class Poisson(Family):
    """Counts with mean exp(η) and variance φ·exp(η), φ the dispersion. ``middle`` and ``half`` take unit coordinates to
    counts.

    Counts have no small bound: the public one may be far beyond what is usual. So residuals are clipped. What clipping
    takes from their mean is computed under a negative binomial law of variance φμ (Cameron and Trivedi 2013, section
    3.3) and allowed for when scores are combined. The less noise, the wider the clip, and the less depends on that law.
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

    def residual(self, xp: Namespace, y: Array, eta: Array, most: Array) -> Array:
        return xp.minimum(xp.maximum(y - xp.exp(eta), -most), most)

    def reach(self, xp: Namespace, eta: Array) -> Array:
        return USUAL * xp.sqrt(self.dispersion * (xp.exp(eta) + 0.5))

    def expected(self, at: FloatArray, eta: FloatArray, most: Array) -> Expected:
        """The second moment is its upper bound φ·slope + mean²: a clipped residual r has E r² ≤ E r(y − μ), which is φ
        times the derivative of E r.
        """
        mu_at = np.exp(at)

        def mean(predictor: FloatArray) -> FloatArray:
            mu = np.exp(np.minimum(predictor, LARGEST_PREDICTOR))
            above, below = self.beyond(mu_at, mu, most)
            return mu - mu_at - above + below

        clipped = mean(eta)
        slope = (mean(eta + STEP) - clipped) / STEP
        return Expected(clipped, slope, np.maximum(self.dispersion * slope, 0.0) + clipped**2)

    def beyond(self, at: FloatArray, mu: FloatArray, most: Array) -> tuple[FloatArray, FloatArray]:
        """E max(y − at − most, 0) and E max(at − most − y, 0), if the mean of y is μ."""
        least = np.maximum(at - most, 0.0)  # no count is smaller
        return above_mean(at + most, mu, self.dispersion), below_mean(least, mu, self.dispersion)

    def squared_bias(self, eta: FloatArray, most: FloatArray, size: FloatArray, numeric: FloatArray) -> float:
        """Squared, a part of the mean length that is cut off the scores of a law with heavier tails."""
        mu = np.exp(eta)
        cut = np.add(*replace(self, dispersion=HEAVIER * self.dispersion).beyond(mu, mu, most))
        return (UNFORESEEN * float(np.mean(cut * size))) ** 2 / float(np.mean(mu) * np.mean(mu * size**2))

    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        return y * eta - xp.exp(eta)

    def link(self, mean: float) -> float:
        return math.log(max(mean, 1e-6))


def distribution(k: FloatArray, mu: FloatArray, dispersion: float, more: float = 0.0) -> FloatArray:
    """P(Y ≤ k), 0 for k < 0, of a negative binomial of mean μ and variance φμ (a Poisson if φ is 1); ``more`` = 1 is
    the law for which E[Y; Y ≤ k] = μ·P(Y′ ≤ k − 1).
    """
    whole = np.floor(np.maximum(k, 0.0))
    if dispersion < 1.01:
        out = gammaincc(whole + 1, mu)
    else:
        out = betainc(mu / (dispersion - 1) + more, whole + 1, 1 / dispersion)
    return np.asarray(np.where(k < 0, 0.0, out))


def below_mean(b: FloatArray, mu: FloatArray, dispersion: float) -> FloatArray:
    """E max(b − Y, 0).

    >>> float(below_mean(np.array(1.0), np.array(2.0), 1.0)), math.exp(-2.0)
    (0.1353..., 0.1353...)
    """
    return np.asarray(b * distribution(b, mu, dispersion) - mu * distribution(b - 1, mu, dispersion, 1.0))


def above_mean(b: FloatArray, mu: FloatArray, dispersion: float) -> FloatArray:
    """E max(Y − b, 0) = μ − b + E max(b − Y, 0)."""
    return np.asarray(np.maximum(mu - b + below_mean(b, mu, dispersion), 0.0))
