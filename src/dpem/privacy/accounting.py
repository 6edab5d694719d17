"""Prices of releases: zCDP, exact Gaussian privacy, and their conversion to (ε, δ).

A *price* is a zCDP ρ. Releases with Gaussian noise alone are also described exactly by μ-Gaussian privacy with μ² = 2ρ;
this exact curve is used if all composed releases are Gaussian, else the zCDP curve.

*Composition.* ρ's add over adaptively chosen releases (Bun & Steinke 2016, Lemma 2.3); so do μ²'s (Dong, Roth & Su
2022, Corollary 2). A record belongs to one of several disjoint batches, so their price is that of the dearest.

*Conversion.* ρ-zCDP implies (ε, δ)-DP with δ = min over α > 1 of exp((α−1)(αρ−ε))/(α−1)·(1−1/α)^α (Canonne, Kamath &
Steinke 2020, Proposition 12). Any α is valid, so a numerical minimum is safe. μ-Gaussian privacy is (ε, δ)-DP exactly
when δ ≥ Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) (Balle & Wang 2018, Theorem 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Price:
    """A zCDP price, and whether it was paid for Gaussian noise alone."""

    rho: float
    gaussian: bool = False

    def delta(self, epsilon: float) -> float:
        """The smallest δ that the conversion gives for this price at ε."""
        return gaussian_delta(math.sqrt(2 * self.rho), epsilon) if self.gaussian else zcdp_delta(self.rho, epsilon)

    def epsilon(self, delta: float) -> float:
        """The smallest ε that the conversion gives for this price at δ."""
        if self.rho == 0:
            return 0.0
        if not math.isfinite(self.rho):
            return math.inf
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
        if self.delta(0.0) <= delta:
            return 0.0
        return _crossing(lambda e: self.delta(e) <= delta, 0.0, high, 1e-12 * high)


def total(prices: Iterable[Price]) -> Price:
    """The price of adaptively chosen releases on the same records: the sum.

    >>> total([Price(0.25, gaussian=True), Price(0.5)])
    Price(rho=0.75, gaussian=False)
    """
    parts = list(prices)
    return Price(math.fsum(p.rho for p in parts), all(p.gaussian for p in parts if p.rho > 0))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """δ of ρ-zCDP at ε, by the optimal conversion."""
    if rho <= 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(rho):
        return 1.0
    return min(1.0, math.exp(min(0.0, _log_delta(_best_log_excess(rho, epsilon), rho, epsilon))))


def zcdp_order(rho: float, epsilon: float) -> float:
    """The order α at which ρ-zCDP gives the smallest δ at ε, and so the smallest ε at that δ.

    >>> round(zcdp_order(0.01, Price(0.01).epsilon(1e-5)), 1)
    29.5
    """
    return 1 + math.exp(_best_log_excess(rho, epsilon))


def _log_delta(log_excess: float, rho: float, epsilon: float) -> float:
    """The logarithm of δ at the order α, given that of α − 1."""
    excess = math.exp(log_excess)
    alpha = 1 + excess
    return excess * (alpha * rho - epsilon) - log_excess - alpha * math.log1p(1 / excess)


def _best_log_excess(rho: float, epsilon: float) -> float:
    """The logarithm of α − 1 at the order α where δ is least."""
    guess = math.log(max((epsilon - rho) / (2 * rho), 1e-6) + 1e-3)
    # The exponential is finite at both ends. Any α is valid, so an exponent that overflows does no harm.
    low, high = min(guess - 8, -25.0), min(max(guess, -math.log(rho)) + 8, 700.0)
    return _minimiser(lambda log_excess: _log_delta(log_excess, rho, epsilon), low, high)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of μ-Gaussian privacy at ε: exact, or slightly larger where rounding could make it too small.

    The two terms nearly cancel for a small μ, and so do the two parts of their arguments for a large ε. Elsewhere
    rounding is far below the one part in 10⁹ that comparisons of prices allow.
    """
    if math.isinf(mu):
        return 0.0 if math.isinf(epsilon) else 1.0
    if mu <= 0 or math.isinf(epsilon / mu):
        return 0.0
    relative = 2.0**-50 if mu < 0.01 or epsilon > 1e4 else 0.0  # more than the relative error of a few operations
    rounding = relative * (epsilon / mu + mu)
    first = log_normal(-epsilon / mu + mu / 2 + rounding)
    second = log_normal(-epsilon / mu - mu / 2 - rounding)
    difference = epsilon * (1 - relative) + second * (1 + relative) - first * (1 - relative)
    return math.exp(first) * -math.expm1(min(0.0, difference))


def largest_price(epsilon: float, delta: float, *, gaussian: bool) -> Price:
    """The largest price that still converts to (ε, δ).

    >>> round(largest_price(0.5, 1e-4, gaussian=False).rho, 4)
    0.0117
    """
    if math.isinf(epsilon):
        return Price(math.inf, gaussian)

    def above(log_rho: float) -> bool:
        return Price(math.exp(log_rho), gaussian).delta(epsilon) > delta

    epsilon = min(epsilon, 1e300)  # a price for a smaller ε is also valid for a larger one
    low, high = -60.0, math.log(1e4 + 10 * epsilon)
    if above(low) or not above(high):
        raise ValueError(
            f"epsilon={epsilon:g} with delta={delta:g} is too small for any mechanism: choose larger ones."
        )
    price = Price(math.exp(_crossing(above, low, high, 1e-13)), gaussian)
    while price.delta(epsilon) > delta:  # rounding may have crossed the root
        price = Price(price.rho * (1 - 1e-10), gaussian)
    return price


def log_normal(x: float) -> float:
    """log Φ(x), accurate in both tails. SciPy is not used, so that reading a ledger does not load it.

    >>> log_normal(0.0) == math.log(0.5), round(log_normal(-40.0), 6)
    (True, -804.608442)
    """
    if x > 0:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > -35:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    if math.isinf(x):
        return -math.inf
    z = 1 / (x * x)
    tail = z * (-1 + z * (3 + z * (-15 + z * 105)))
    return -(x * x) / 2 - math.log(-x) - math.log(2 * math.pi) / 2 + math.log1p(tail)


def _crossing(beyond: Callable[[float], bool], low: float, high: float, width: float) -> float:
    """The smallest number, up to ``width``, at which a monotone property holds, by bisection; it holds at ``high``."""
    while high - low > width:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return high


def _minimiser(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimiser of a unimodal function, by golden sections; NaN (an overflow) can only be on the right."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 1e-8:
        if at_left <= at_right or math.isnan(at_right):
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return left if at_left <= at_right or math.isnan(at_right) else right
