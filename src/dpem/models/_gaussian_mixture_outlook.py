"""Shares of the price, numbers of steps, and what to expect of a fit of a Gaussian mixture: public numbers only."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import gammaincinv

from dpem.planning import Outlook, Sizes

#: The distance between centres, in spreads of a component, that a plan reckons with.
SEPARATION = 4.0


class Rules(NamedTuple):
    """Shares of ρ for centres, spreads, shape, sketch and EM; how many EM steps there are, how their prices grow, over
    how many of them the result is averaged, and which part of a component's rows is not clipped.
    """

    shares: tuple[float, float, float, float, float]
    steps: int
    growth: float
    averaged: int
    level: float


def noise_of_centres(sizes: Sizes, d: int, K: int) -> float:
    """The distance, in spreads, by which noise alone would move a centre if all of two fifths of ρ went into one step.

    >>> noise_of_centres(Sizes(2000, 1.0, 1e-6, 0.028), 10, 5) < 0.5
    True
    """
    if math.isinf(sizes.rho):
        return 0.0
    C = math.sqrt(2 * float(gammaincinv(d / 2, 0.9)))
    return 2 * C * K * math.sqrt(d) * sizes.rows_per_person / (sizes.n * math.sqrt(0.8 * sizes.rho))


def rules(sizes: Sizes, d: int, K: int) -> Rules:
    """The more noise, the more of ρ the start needs, and the fewer steps EM can afford."""
    noise = noise_of_centres(sizes, d, K)
    if noise > 0.6:
        shares = (0.06, 0.07, 0.20, 0.32, 0.30)
    elif noise > 0.1:
        shares = (0.04, 0.05, 0.16, 0.30, 0.40)
    else:
        shares = (0.03, 0.04, 0.10, 0.25, 0.53)
    if d <= max(K - 1, 2) + 1:  # no direction is left out: second moments only scale
        shares = (*shares[:2], shares[2] / 2, shares[3], shares[4] + shares[2] / 2)
    table = ((0.6, 1, 1.0, 1), (0.3, 2, 1.0, 2), (0.1, 3, 1.0, 2), (0.03, 5, 1.2, 3), (0.008, 8, 1.2, 4))
    steps, growth, averaged = next((rest for least, *rest in table if noise > least), [12, 1.2, 5])
    level = 0.9 if noise > 0.03 else 0.95 if noise > 0.005 else 0.99
    return Rules(shares, int(steps), float(growth), int(averaged), level)


def foreseen(sizes: Sizes, d: int, K: int, kind: str) -> Outlook:
    """What a fit will be worth if there are K groups of equal size, four spreads apart."""
    return Outlook()
