"""How the price of a linear regression is divided, and what to expect of it: the variance of its steps, on normal rows.

Everything here depends on public numbers alone: rows, columns, price.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import gammaincinv

from dpem.planning import Sizes
from dpem.steps.base import prices
from dpem.steps.check import CHECK_SHARE
from dpem.steps.clips import Clips, choose_clips
from dpem.steps.linear import NOT_NORMAL, SIZE_CLIP, SIZE_SHARE, SKEW, START_DOUBT

#: The part of the response's variance that columns are supposed to explain.
ASSUMED = 0.4
#: Parts of ρ that spreads, moments and information get where rows are few; where rows are many, less will do.
MOST_SPREADS, MOST_MOMENTS, MOST_INFORMATION = 0.12, 0.20, 0.08
LEAST_SPREADS, LESS = 0.05, (1.0, 0.6, 0.4)
#: The part that the mean of the residuals gets, and how the steps along the score grow.
LEVEL = 0.03
GROWTH = (1.0, 1.6, 2.6, 4.0)
#: The noise of a share that histograms are to have.
SHARE_NOISE = 0.02
#: How much less sure moments are of correlated columns than of uncorrelated ones.
CORRELATED = 20.0
#: Rows are clipped at so many times their expected length where moments are asked.
MOMENT_RADIUS = 0.95


class Division(NamedTuple):
    """Prices of the parts of a fit, and how it clips."""

    spreads: float
    moments: float
    information: float
    steps: tuple[float, ...]
    level: float
    check: tuple[float, ...]
    radius: float
    clips: Clips


def divide(sizes: Sizes, p: int) -> Division:
    """The division of the price with the least expected loss on correlated columns."""
    enough = (math.sqrt(2 * (p + 1)) * sizes.rows_per_person / (sizes.n * SHARE_NOISE)) ** 2 / 2
    spreads = min(max(enough / sizes.rho, LEAST_SPREADS), MOST_SPREADS)
    ways = [_division(sizes, p, spreads, less) for less in LESS]
    return ways[0] if math.isinf(sizes.rho) else min(ways, key=lambda way: variance(sizes, p, way, CORRELATED))


def _division(sizes: Sizes, p: int, spreads: float, less: float) -> Division:
    check = (CHECK_SHARE,) if sizes.check else ()
    moments, information = less * MOST_MOMENTS, less * MOST_INFORMATION
    along = 1 - spreads - moments - information - LEVEL - sum(check)
    first, second, third, whole, level, *last = prices(sizes.rho, (spreads, moments, information, along, LEVEL, *check))
    clips = choose_clips(sizes.n, whole, p, sizes.rows_per_person)
    radius = math.inf if math.isinf(sizes.rho) else MOMENT_RADIUS * math.sqrt(p + 2)
    return Division(first, second, third, tuple(prices(whole, GROWTH)), level, tuple(last), radius, clips)


def variance(sizes: Sizes, p: int, way: Division, correlated: float = 1.0) -> float:
    """The variance of a coefficient that noise adds: the recursion of :meth:`dpem.steps.belief.Belief.told` for normal
    columns that are hardly correlated, where one variance stands for all coefficients.
    """

    def noise(size: float, rho: float) -> float:
        return sizes.rows_per_person * size / (sizes.n * math.sqrt(2 * rho))

    clips, square = way.clips, 1 - ASSUMED
    unit = correlated * noise(math.sqrt(2) * way.radius**2, way.moments) ** 2 / 2
    found = _told(1 / p, 1.0, unit, p * unit) + START_DOUBT**2
    measured = noise(math.sqrt(2) * clips.leverage * clips.second, way.information) ** 2 / 2
    assumed = clips.eta**2 * (unit + NOT_NORMAL**2)
    unsure = 1 / (1 / measured + 1 / assumed)
    for rho in way.steps:
        scale = square + (p + 1) * found
        blur = scale * noise(2 * clips.residual * clips.leverage, (1 - SIZE_SHARE) * rho) ** 2
        found = _told(found, clips.kappa * clips.eta, blur, p * clips.kappa**2 * unsure)
    return found


def _told(before: float, slope: float, noise: float, unsure: float) -> float:
    """One variance after a measurement of that slope, noise, and error of the slope."""
    return before - (slope * before) ** 2 / (slope**2 * before + noise + unsure * before)


def expected_loss(sizes: Sizes, p: int, way: Division) -> tuple[float, float, float]:
    """The part of the response's variance that is lost, as a median and the 5 % and 95 % quantiles: what noise adds to
    each coefficient, and what clipping adds to its sampling error.
    """
    square, found = 1 - ASSUMED, variance(sizes, p, way)
    centre = found + SKEW**2 * (1 - way.clips.kappa) * square
    level = square * (sizes.rows_per_person * 2 * SIZE_CLIP / sizes.n) ** 2 / (2 * way.level)
    whole = p * found + centre * level / (centre + level) + (p + 1) * square * (way.clips.sampling - 1) / sizes.n
    middle, low, high = (2 * float(gammaincinv((p + 1) / 2, part)) * whole / (p + 1) for part in (0.5, 0.05, 0.95))
    return middle, low, high
