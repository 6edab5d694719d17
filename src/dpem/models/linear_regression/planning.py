"""How the price of a linear regression is divided: by the variance of its steps, on normal rows.

Everything here depends on public numbers alone: rows, columns, price.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpem.fitting.check import CHECK_SHARE
from dpem.fitting.model import Effect, Sizes
from dpem.fitting.step import prices
from dpem.models.linear_regression.clipping import (
    NO_TAILS,
    Clips,
    choose_clips,
    choose_length,
    level_clip,
    normal_lengths,
)
from dpem.models.linear_regression.tuning import TUNING

EFFECT = Effect(
    "part of the response's variance that columns explain", TUNING.explained, (0.1, 0.2, 0.4, 0.6, 0.8), percent=True
)


class Division(NamedTuple):
    """Prices of the parts of a fit, and how a plan expects it to clip."""

    columns: float
    moments: float
    lengths: float
    information: float
    steps: tuple[float, ...]
    residuals: float
    level: float
    variance: float
    check: tuple[float, ...]
    radius: float
    clips: Clips


def moment_radius(rho: float, p: int) -> float:
    """Where the moments of p columns are clipped."""
    return math.inf if math.isinf(rho) else TUNING.moment_radius * math.sqrt(p + 2)


def divide(sizes: Sizes, p: int, columns: int | None = None) -> Division:
    """The division of the price with the least expected loss on correlated columns; ``columns`` are those of the table,
    where some have several of the p coordinates.
    """
    k = (p if columns is None else columns) + 1
    enough = (math.sqrt(2 * k) * sizes.rows_per_person / (sizes.n * TUNING.share_noise)) ** 2 / 2
    least, most = TUNING.columns
    share = min(max(enough / sizes.rho, least), most)
    ways = [_division(sizes, p, share, less) for less in TUNING.less]
    return ways[0] if math.isinf(sizes.rho) else min(ways, key=lambda way: variance(sizes, p, way, TUNING.correlated))


def _division(sizes: Sizes, p: int, columns: float, less: float) -> Division:
    check = (CHECK_SHARE,) if sizes.check else ()
    moments, information = less * TUNING.moments, less * TUNING.information
    fixed = (columns, moments, TUNING.lengths, information, TUNING.residuals, TUNING.level, TUNING.variance, *check)
    first, second, third, fourth, fifth, sixth, seventh, *last, whole = prices(
        sizes.rho, (*fixed, 1 - math.fsum(fixed))
    )
    clips = choose_clips(sizes.n, whole, normal_lengths(p), sizes.rows_per_person, NO_TAILS)
    steps = tuple(prices(whole, TUNING.growth))
    radius = moment_radius(sizes.rho, p)
    return Division(first, second, third, fourth, steps, fifth, sixth, seventh, tuple(last), radius, clips)


class WideDivision(NamedTuple):
    """Prices where columns are chosen first: of the middle, of each round (its choice, columns, moments and how many
    columns), what follows on them all, and how many columns are kept in the end.
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
    each_takes = TUNING.rows_per_column * sizes.rows_per_person
    most = math.inf if math.isinf(rho) else sizes.n * math.sqrt(2 * rho) / each_takes
    k = max(1, min(sparsity, d, math.floor(min(most, sizes.n / 3))))
    over = min(math.ceil(TUNING.over * k), d)
    each = math.ceil(over / TUNING.rounds)
    counts = [min(each, over - first) for first in range(0, over, each)]
    check = (CHECK_SHARE / (1 - CHECK_SHARE),) if sizes.check else ()
    shares = (*TUNING.wide, TUNING.lengths, TUNING.residuals, *check)
    middle, choice, columns, moments, information, along, level, spread, lengths, tails, *last = prices(rho, shares)
    so_far = [sum(counts[: i + 1]) for i in range(len(counts))]
    parts = zip(prices(choice, counts), prices(columns, counts), prices(moments, so_far), counts, strict=True)
    clips = choose_clips(sizes.n, along, normal_lengths(over), sizes.rows_per_person, NO_TAILS)
    steps, radius = tuple(prices(along, TUNING.growth)), moment_radius(rho, over)
    own = (columns, moments, lengths, information, steps, tails, level, spread, tuple(last), radius, clips)
    return WideDivision(middle, tuple(parts), Division(*own), k)


def missed(sizes: Sizes, d: int, way: WideDivision) -> float:
    """The chance that a column is missed that explains its equal part of what is expected to be explained: that the
    largest noise of d columns exceeds its score, of which both are known.
    """
    rho = math.fsum(part[0] for part in way.rounds)
    scale = sizes.rows_per_person * math.sqrt(way.chosen / (2 * rho)) / sizes.n
    signal = math.asin(math.sqrt((sizes.effect or TUNING.explained) / way.kept)) / math.pi
    return 1 / (1 + math.exp(min(signal / scale, 700.0)) / d)


def variance(sizes: Sizes, p: int, way: Division, correlated: float = 1.0, explained: float | None = None) -> float:
    """The variance of a coefficient that noise adds, for normal columns that are hardly correlated, where one variance
    stands for all coefficients.
    """

    def noise(size: float, rho: float) -> float:
        return sizes.rows_per_person * size / (sizes.n * math.sqrt(2 * rho))

    clips, square = way.clips, 1 - (TUNING.explained if explained is None else explained)
    unit = correlated * noise(math.sqrt(2) * way.radius**2, way.moments) ** 2 / 2
    found = _after(TUNING.explained / p, 1.0, unit, p * unit) + TUNING.first_error**2
    length = choose_length(sizes.n, way.information, normal_lengths(p), sizes.rows_per_person)
    measured = noise(math.sqrt(2) * length**2, way.information) ** 2 / 2
    unsure = 1 / (1 / measured + 1 / (unit + TUNING.not_normal**2 / (p + 1)))
    for rho in way.steps:
        scale = square + (p + 1) * found
        blur = scale * noise(2 * clips.norm, (1 - TUNING.size_share) * rho) ** 2
        found = _after(found, clips.kappa, blur, p * clips.kappa**2 * unsure)
    return found


def anticipated(sizes: Sizes, p: int, way: Division) -> float:
    """The part of the response's variance that noise costs p slopes and the intercept, roughly: the recursion, which
    supposes that errors of the steps are small beside what they measure.
    """
    explained = sizes.effect or TUNING.explained
    slope = variance(sizes, p, way, explained=explained)
    clip = level_clip(sizes.n, way.level, sizes.rows_per_person)
    level = (1 - explained) * (2 * clip * sizes.rows_per_person / sizes.n) ** 2 / (2 * way.level)
    return p * slope + slope * level / (slope + level)


def _after(before: float, slope: float, noise: float, unsure: float) -> float:
    """One variance after a measurement of that slope, noise, and error of the slope."""
    return before - (slope * before) ** 2 / (slope**2 * before + noise + unsure * before)
