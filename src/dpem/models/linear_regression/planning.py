"""How the price of a linear regression is divided: by the variance of its steps, on normal rows.

Everything here depends on public numbers alone: rows, columns, price.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpem.fitting.check import CHECK_SHARE
from dpem.fitting.model import Effect, Sizes
from dpem.fitting.step import prices
from dpem.models.linear_regression.clipping import Clips, choose_clips, level_clip
from dpem.models.linear_regression.combine_scores import START_DOUBT
from dpem.models.linear_regression.steps import EXPLAINED, NOT_NORMAL, SIZE_SHARE

#: The part of the response's variance that columns are supposed to explain.
ASSUMED = EXPLAINED
EFFECT = Effect(
    "part of the response's variance that columns explain", ASSUMED, (0.1, 0.2, 0.4, 0.6, 0.8), percent=True
)
#: Parts of ρ that spreads, moments and information get where rows are few; where rows are many, less will do.
MOST_SPREADS, MOST_MOMENTS, MOST_INFORMATION = 0.12, 0.20, 0.05
LEAST_SPREADS, LESS = 0.05, (1.0, 0.6, 0.4)
#: The part that the mean of the residuals gets, and how the steps along the score grow.
LEVEL = 0.08
GROWTH = (0.6, 1.0, 1.6, 2.6, 4.0)
#: The noise of a share that histograms are to have.
SHARE_NOISE = 0.02
#: How much less sure moments are of correlated columns than of uncorrelated ones.
CORRELATED = 20.0
#: Rows are clipped at so many times their expected length where moments are asked.
MOMENT_RADIUS = 0.9


#: Parts of ρ where columns are chosen first: middle, choice, spreads, moments, information, steps, level.
WIDE_SHARES = (0.03, 0.45, 0.08, 0.26, 0.02, 0.13, 0.03)
#: Columns are chosen in so many rounds at most, and so many times as many as are kept.
ROUNDS, OVER = 5, 1.3
#: Choosing a column takes this many rows for each unit of 1/√(2ρ).
ROWS_PER_COLUMN = 65


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


class WideDivision(NamedTuple):
    """Prices where columns are chosen first: of the middle, of each round (its choice, spreads, moments and how many
    columns), what follows on them all, and how many columns are
    kept in the end.
    """

    middle: float
    rounds: tuple[tuple[float, float, float, int], ...]
    narrow: Division
    kept: int

    @property
    def chosen(self) -> int:
        """How many columns are chosen in all."""
        return sum(part[3] for part in self.rounds)


def divide_wide(sizes: Sizes, sparsity: int, d: int) -> WideDivision:
    """The division of the price where up to ``sparsity`` of d columns are kept, fewer if the price is too small.

    What a round measures is averaged with what earlier ones did, so its price is not lost.
    """
    rho = sizes.rho
    most = math.inf if math.isinf(rho) else sizes.n * math.sqrt(2 * rho) / (ROWS_PER_COLUMN * sizes.rows_per_person)
    k = max(1, min(sparsity, d, math.floor(min(most, sizes.n / 3))))
    over = min(math.ceil(OVER * k), d)
    each = math.ceil(over / ROUNDS)
    counts = [min(each, over - first) for first in range(0, over, each)]
    check = (CHECK_SHARE / (1 - CHECK_SHARE),) if sizes.check else ()
    middle, choice, spreads, moments, information, along, level, *last = prices(rho, (*WIDE_SHARES, *check))
    so_far = [sum(counts[: i + 1]) for i in range(len(counts))]
    parts = zip(prices(choice, counts), prices(spreads, counts), prices(moments, so_far), counts, strict=True)
    clips = choose_clips(sizes.n, along, over, sizes.rows_per_person)
    radius = math.inf if math.isinf(rho) else MOMENT_RADIUS * math.sqrt(over + 2)
    steps = tuple(prices(along, GROWTH))
    narrow = Division(spreads, moments, information, steps, level, tuple(last), radius, clips)
    return WideDivision(middle, tuple(parts), narrow, k)


def missed(sizes: Sizes, d: int, way: WideDivision) -> float:
    """The chance that a column is missed that explains its equal part of what is supposed to be explained: that the
    largest noise of d columns exceeds its score, of which both are known.
    """
    rho = math.fsum(part[0] for part in way.rounds)
    scale = sizes.rows_per_person * math.sqrt(way.chosen / (2 * rho)) / sizes.n
    signal = math.asin(math.sqrt((sizes.effect or ASSUMED) / way.kept)) / math.pi
    return 1 / (1 + math.exp(min(signal / scale, 700.0)) / d)


def variance(sizes: Sizes, p: int, way: Division, correlated: float = 1.0, explained: float = ASSUMED) -> float:
    """The variance of a coefficient that noise adds: the recursion of :meth:`Belief.told` for normal
    columns that are hardly correlated, where one variance stands for all coefficients.
    """

    def noise(size: float, rho: float) -> float:
        return sizes.rows_per_person * size / (sizes.n * math.sqrt(2 * rho))

    clips, square = way.clips, 1 - explained
    unit = correlated * noise(math.sqrt(2) * way.radius**2, way.moments) ** 2 / 2
    found = _told(ASSUMED / p, 1.0, unit, p * unit) + START_DOUBT**2
    measured = noise(math.sqrt(2) * clips.leverage * clips.second, way.information) ** 2 / 2
    assumed = clips.eta**2 * (unit + NOT_NORMAL**2)
    unsure = 1 / (1 / measured + 1 / assumed)
    for rho in way.steps:
        scale = square + (p + 1) * found
        blur = scale * noise(2 * clips.residual * clips.leverage, (1 - SIZE_SHARE) * rho) ** 2
        found = _told(found, clips.kappa * clips.eta, blur, p * clips.kappa**2 * unsure)
    return found


def anticipated(sizes: Sizes, p: int, way: Division) -> float:
    """The part of the response's variance that noise costs p slopes and the intercept, roughly: the recursion, which
    supposes that errors of the steps are small beside what they measure.
    """
    explained = sizes.effect or ASSUMED
    slope = variance(sizes, p, way, explained=explained)
    clip = level_clip(sizes.n, way.level, sizes.rows_per_person)
    level = (1 - explained) * (2 * clip * sizes.rows_per_person / sizes.n) ** 2 / (2 * way.level)
    return p * slope + slope * level / (slope + level)


def _told(before: float, slope: float, noise: float, unsure: float) -> float:
    """One variance after a measurement of that slope, noise, and error of the slope."""
    return before - (slope * before) ** 2 / (slope**2 * before + noise + unsure * before)
