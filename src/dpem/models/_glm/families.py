"""Families of generalised linear models with their canonical links: what the shared queries and steps need of each.

With the canonical link the score of a row is (y − μ(η))·a and the information V(η)·aaᵀ, where V = dμ/dη is the variance
of y (McCullagh and Nelder 1989, section 2.5). Functions that take ``xp`` run on rows wherever they live; the others are
post-processing in numpy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpem.query import Array, FloatArray, Namespace

#: Linear predictors are kept within ±this: exp of it, and of twice it, is an ordinary float.
LARGEST_PREDICTOR = 30.0


class Expected(NamedTuple):
    """Of a clipped residual: its mean, the derivative of the mean by η, and its second moment."""

    mean: FloatArray
    slope: FloatArray
    square: FloatArray


class Family(ABC):
    """A response distribution: mean, variance, how residuals are clipped, and log-density."""

    also_missing: ClassVar[str] = ""  # which responses count as missing, in words
    #: How far the coefficient of a whitened covariate may be off if rows were weighted down entirely: the mean of real
    #: responses is not quite the model's, and weighted rows then estimate other coefficients than maximum likelihood.
    misfit: ClassVar[float] = 0.0

    @abstractmethod
    def response(self, xp: Namespace, u: Array) -> Array:
        """Responses from their unit coordinates; NaN where there is none."""

    @abstractmethod
    def mean(self, xp: Namespace, eta: Array) -> Array: ...

    @abstractmethod
    def variance(self, xp: Namespace, eta: Array) -> Array: ...

    @abstractmethod
    def residual(self, xp: Namespace, y: Array, eta: Array) -> Array:
        """y − μ(η), clipped to ±:meth:`reach`."""

    @abstractmethod
    def reach(self, xp: Namespace, eta: Array) -> Array:
        """The largest absolute residual at η, whatever y is."""

    @abstractmethod
    def expected(self, at: FloatArray, eta: FloatArray) -> Expected:
        """Moments of the residual that is computed at the predictor ``at`` if the truth is ``eta``."""

    @abstractmethod
    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        """log p(y | η), up to a term that does not depend on η."""

    @abstractmethod
    def link(self, mean: float) -> float: ...

    @abstractmethod
    def draw(self, eta: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Responses in unit coordinates."""


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

    def residual(self, xp: Namespace, y: Array, eta: Array) -> Array:
        return y - self.mean(xp, eta)

    def reach(self, xp: Namespace, eta: Array) -> Array:
        return 0.5 + 0.5 * xp.abs(xp.tanh(0.5 * eta))

    def expected(self, at: FloatArray, eta: FloatArray) -> Expected:
        p, before = self.mean(np, eta), self.mean(np, at)
        return Expected(p - before, p * (1 - p), p * (1 - p) + (p - before) ** 2)

    def log_density(self, xp: Namespace, eta: Array, y: Array) -> Array:
        size = xp.abs(eta)
        return y * eta - 0.5 * (eta + size) - xp.log1p(xp.exp(-size))

    def link(self, mean: float) -> float:
        mean = min(max(mean, 1e-6), 1 - 1e-6)
        return math.log(mean / (1 - mean))

    def draw(self, eta: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.where(rng.random(len(eta)) < self.mean(np, eta), 1.0, -1.0) / 3.0
