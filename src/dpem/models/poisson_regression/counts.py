"""The Poisson family with the log link, its residuals clipped, and overdispersed.

Counts have no small bound: the public one may be far beyond what is usual. So residuals are clipped at a few standard
deviations √(φ(μ + ½)), φ being the dispersion. What clipping takes from the mean of a residual is computed under a
negative binomial law of variance φμ (Cameron and Trivedi 2013, section 3.3) and accounted for when scores are combined.
The less noise, the wider the clip, and the less depends on that law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, gammaincc

from dpem.models._glm.families import Expected, Family
from dpem.query import Array, FloatArray, Namespace

#: Where residuals are clipped, in standard deviations: at least, at most, and by how much more for each tenth of noise.
CLIP, WIDEST_CLIP, WIDER = 2.5, 10.0, 2.0
#: The noise of a share of rows from which on the clip is the least.
NOISY = 0.01
#: The step of the numeric derivative of a clipped residual's mean by the predictor.
STEP = 1e-4


@dataclass(frozen=True)
class Poisson(Family):
    """Counts with mean exp(η) and variance φ·exp(η). ``middle`` and ``half`` take unit coordinates to counts,
    ``clip`` is in standard deviations.
    """

    misfit = 0.2
    middle: float = 0.0
    half: float = 1.0
    dispersion: float = 1.0
    clip: float = CLIP

    def response(self, xp: Namespace, u: Array) -> Array:
        return self.middle + self.half * u

    def mean(self, xp: Namespace, eta: Array) -> Array:
        return xp.exp(eta)

    def variance(self, xp: Namespace, eta: Array) -> Array:
        return xp.exp(eta)

    def residual(self, xp: Namespace, y: Array, eta: Array) -> Array:
        most = self.reach(xp, eta)
        return xp.minimum(xp.maximum(y - xp.exp(eta), -most), most)

    def reach(self, xp: Namespace, eta: Array) -> Array:
        return self.clip * xp.sqrt(self.dispersion * (xp.exp(eta) + 0.5))

    def expected(self, at: FloatArray, eta: FloatArray) -> Expected:
        most, there = self.reach(np, at), np.exp(at)

        def mean(predictor: FloatArray) -> FloatArray:
            mu = np.exp(np.minimum(predictor, 30.0))
            out = mu - above_mean(there + most, mu, self.dispersion) - there
            cut = there > most  # elsewhere no count is small enough to be clipped
            out[cut] += below_mean(there[cut] - most[cut], mu[cut], self.dispersion)
            return np.asarray(out)

        here = mean(eta)
        slope = (mean(eta + STEP) - here) / STEP
        return Expected(here, slope, self.dispersion * np.exp(np.minimum(eta, 30.0)) + here**2)

    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        return y * eta - xp.exp(eta)

    def link(self, mean: float) -> float:
        return math.log(max(mean, 1e-6))

    def draw(self, eta: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.clip((rng.poisson(np.exp(eta)) - self.middle) / self.half, -1.0, 1.0)


def clip_of(noise: float) -> float:
    """Where to clip if a share of rows has noise of that standard deviation.

    >>> clip_of(0.02), round(clip_of(0.001), 2), clip_of(0.0)
    (2.5, 4.5, 10.0)
    """
    wider = WIDER * math.log10(NOISY / noise) if noise > 0 else math.inf
    return min(max(CLIP + wider, CLIP), WIDEST_CLIP)


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
