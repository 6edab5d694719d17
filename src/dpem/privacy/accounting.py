"""Prices and what they buy: zCDP, exact Gaussian privacy, and their conversion to (ε, δ).

A *price* is a zCDP ρ. A release made with Gaussian noise alone also has an exact description, μ-Gaussian privacy with
μ² = 2ρ; as long as everything composed is Gaussian the exact curve is used, otherwise the zCDP one.

*Composition.* ρ's add over adaptively chosen releases (Bun & Steinke 2016, Lemma 2.3); so do μ²'s (Dong, Roth & Su
2022, Corollary 2). On disjoint batches a record takes part in one batch only, so the price is the largest batch's.

*Conversion.* ρ-zCDP implies (ε, δ)-DP with δ = min over α > 1 of exp((α−1)(αρ−ε))/(α−1)·(1−1/α)^α (Canonne, Kamath &
Steinke 2020, Proposition 12). Any α is valid, so a numerical minimum is safe. μ-Gaussian privacy is (ε, δ)-DP exactly
when δ ≥ Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) (Balle & Wang 2018, Theorem 8).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr


@dataclass(frozen=True)
class Price:
    """A zCDP price, and whether it was paid for Gaussian noise alone.

    >>> (Price(0.1, gaussian=True) + Price(0.2)).gaussian
    False
    """

    rho: float
    gaussian: bool = False

    def __add__(self, other: Price) -> Price:
        if self.rho == 0:
            return other
        if other.rho == 0:
            return self
        return Price(self.rho + other.rho, self.gaussian and other.gaussian)

    def delta(self, epsilon: float) -> float:
        """The smallest δ this price is known to satisfy at ε."""
        return gaussian_delta(math.sqrt(2 * self.rho), epsilon) if self.gaussian else zcdp_delta(self.rho, epsilon)

    def epsilon(self, delta: float) -> float:
        """The smallest ε this price is known to satisfy at δ."""
        if self.rho == 0:
            return 0.0
        if not math.isfinite(self.rho):
            return math.inf
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
        if self.delta(0.0) <= delta:
            return 0.0
        return float(brentq(lambda e: self.delta(e) - delta, 0.0, high, xtol=1e-12 * high))


def total(prices: Iterable[Price]) -> Price:
    """Prices of adaptively chosen releases on the same records."""
    parts = list(prices)
    if not parts:
        return Price(0.0, gaussian=True)
    return Price(math.fsum(p.rho for p in parts), all(p.gaussian for p in parts if p.rho > 0))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """δ of ρ-zCDP at ε, by the optimal conversion."""
    if rho <= 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(rho):
        return 1.0

    def log_delta(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α − 1
        alpha = 1 + excess
        return excess * (alpha * rho - epsilon) - log_excess - alpha * math.log1p(1 / excess)

    guess = math.log(max((epsilon - rho) / (2 * rho), 1e-6) + 1e-3)
    with np.errstate(all="ignore"):  # any α is valid, so one at which the exponent overflows is only a poor one
        best = minimize_scalar(
            log_delta,
            bounds=(min(guess - 8, -25.0), min(max(guess, -math.log(rho)) + 8, 700.0)),  # its exponential is a float
            method="bounded",
            options={"xatol": 1e-10},
        )
    return float(min(1.0, math.exp(min(0.0, best.fun))))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of μ-Gaussian privacy at ε, exact."""
    if mu <= 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(np.exp(first) * -np.expm1(min(0.0, second - first)))


def largest_price(epsilon: float, delta: float, *, gaussian: bool) -> Price:
    """The largest price that still converts to (ε, δ).

    >>> round(largest_price(0.5, 1e-4, gaussian=False).rho, 4)
    0.0117
    """
    if math.isinf(epsilon):
        return Price(math.inf, gaussian)

    def excess(log_rho: float) -> float:
        return math.log(max(Price(math.exp(log_rho), gaussian).delta(epsilon), 1e-300)) - math.log(delta)

    low, high = -60.0, math.log(1e4 + 10 * min(epsilon, 1e300))
    if not excess(low) < 0 < excess(high):
        raise ValueError(f"epsilon={epsilon:g} with delta={delta:g} is too small to be bought: choose them larger.")
    root = brentq(excess, low, high, xtol=1e-13)
    price = Price(math.exp(root), gaussian)
    while price.delta(epsilon) > delta:  # land on the safe side of the root
        price = Price(price.rho * (1 - 1e-10), gaussian)
    return price
