"""The division of the price among the steps, and the prediction of a fit before it is paid for.

Both depend on public numbers alone: rows, columns, price. Let a be least squares on n rows and b the
private fit. R² of new rows falls by (E|b − β|² − E|a − β|²)/var y, and since no unbiased estimate has less variance
than a, a − β and b − a are uncorrelated (Hausman 1978) and this is E|b − a|²/var y, the mean squared difference
between private and least-squares predictions. It is predicted for uncorrelated normal columns that explain a known
fraction of the response's variance.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from scipy.special import gammaincinv

from dpem.fitting.check import CHECK_SHARE
from dpem.fitting.model import Effect, PredictedFit, Sizes
from dpem.fitting.plan import Prediction
from dpem.fitting.step import prices
from dpem.models.linear_regression.clipping import (
    NO_TAILS,
    Clips,
    level_clip,
    normal_lengths,
    optimal_clip,
    optimal_radius,
)
from dpem.models.linear_regression.tuning import TUNING

EFFECT = Effect(
    "part of the response's variance that columns explain", TUNING.explained, (0.1, 0.2, 0.4, 0.6, 0.8), percent=True
)


class Division(NamedTuple):
    """Prices of the releases of a fit to p coordinates; ``scores`` is that of all score steps together."""

    p: int
    columns: float
    moments: float
    information: float
    tails: float
    level: float
    variance: float
    scores: float
    check: float

    @property
    def steps(self) -> tuple[float, ...]:
        return tuple(prices(self.scores, TUNING.growth))

    @property
    def radius(self) -> float:
        """The clip of a row in the moments."""
        return moment_radius(self.p)

    def clips(self, sizes: Sizes) -> Clips:
        """The clips that scores are expected to get."""
        return optimal_clip(sizes.n, self.scores, normal_lengths(self.p), sizes.rows_per_person, NO_TAILS)


def moment_radius(p: int) -> float:
    """The clip of a row of p coordinates in the moments."""
    return TUNING.moment_radius * math.sqrt(p + 2)


def price_division(sizes: Sizes, p: int, columns: int | None = None) -> Division:
    """The division of the price for p coordinates; ``columns`` are those of the table, where a factor has several
    coordinates. Shares of auxiliary releases fall where rows are many for the budget, so that the scores get more.
    """

    def share(sensitivity: float, noise: float, bounds: tuple[float, float]) -> float:
        """The share that gives a mean of this sensitivity over the rows this noise, between bounds."""
        rho = (sensitivity * sizes.rows_per_person / (sizes.n * noise)) ** 2 / 2
        return min(max(rho / sizes.rho, bounds[0]), bounds[1])

    histograms = math.sqrt(2 * ((p if columns is None else columns) + 1))
    gram = math.sqrt(2) * TUNING.moment_radius**2 * (p + 2)
    least, usual, most = TUNING.moments
    usual = share(gram, TUNING.accurate_moment_noise, (least, usual))
    fixed = (
        share(histograms, min(TUNING.share_noise, TUNING.level_noise_ratio / p), TUNING.columns),
        moments := share(gram, TUNING.moment_noise, (usual, most)),
        TUNING.lengths + TUNING.information * moments,
        share(math.sqrt(2), TUNING.tail_noise, TUNING.tails_share),
        share(math.sqrt(2), TUNING.tail_noise, TUNING.level),
        TUNING.variance,
    )
    check = CHECK_SHARE if sizes.check else 0.0
    return Division(p, *prices(sizes.rho, (*fixed, 1 - math.fsum((*fixed, check)), check)))


def approximate_loss(sizes: Sizes, division: Division) -> float:
    """The approximate loss of R² from noise in p slopes and the intercept: for normal columns that are hardly
    correlated one variance stands for those of all slopes, and each release updates it.
    """

    def noise(size: float, rho: float) -> float:
        return sizes.rows_per_person * size / (sizes.n * math.sqrt(2 * rho))

    p, clips, explained = division.p, division.clips(sizes), sizes.effect or TUNING.explained
    unit = noise(math.sqrt(2) * division.radius**2, division.moments) ** 2 / 2
    error = _updated_variance(TUNING.explained / p, 1.0, unit, p * unit)
    length = optimal_radius(sizes.n, division.information, normal_lengths(p), sizes.rows_per_person)
    measured = noise(math.sqrt(2) * length**2, division.information) ** 2 / 2
    information_variance = 1 / (1 / measured + 1 / (unit + TUNING.not_normal**2 / (p + 1)))
    for rho in division.steps:
        scale = 1 - explained + (p + 1) * error
        blur = scale * noise(2 * clips.norm, (1 - TUNING.size_share) * rho) ** 2
        error = _updated_variance(error, clips.kappa, blur, p * clips.kappa**2 * information_variance)
    clip = level_clip(sizes.n, division.level, sizes.rows_per_person)
    level = (1 - explained) * noise(2 * clip, division.level) ** 2
    return p * error + error * level / (error + level)


def _updated_variance(before: float, slope: float, noise: float, slope_error: float) -> float:
    """The variance of a coefficient θ after a measurement slope·θ + noise, whose slope is known with an error."""
    return before - (slope * before) ** 2 / (slope**2 * before + noise + slope_error * before)


#: Assumptions of a prediction: fraction of the response's variance that columns explain, and distance of bounds from
#: the middle in spreads.
ASSUMED, BOUNDS = TUNING.explained, 6.0
#: The median loss of simulated fits is FACTOR·(1 + √(variance of a coefficient/LARGE_VARIANCE)) times the formula, and
#: its logarithm scatters SCATTER times as much as that of a chi square, as spreads and moments are random, too
#: (studies.calibration).
FACTOR, LARGE_VARIANCE, SCATTER = 1.15, 1.6e-3, 1.15


@lru_cache(maxsize=256)
def expected_loss(sizes: Sizes, division: Division) -> tuple[float, float, float]:
    """The median of the loss of R², and the ends of an interval that holds nine fits of ten. A loss is about a chi
    square of p + 1 degrees.
    """
    formula, k = max(approximate_loss(sizes, division), 1e-30), division.p + 1  # 0 for a very large epsilon
    size = FACTOR * formula / k * (1 + math.sqrt(formula / k / LARGE_VARIANCE))
    median, low, high = (2 * float(gammaincinv(k / 2, q)) * size for q in (0.5, 0.05, 0.95))
    clipped = k * (1 - (sizes.effect or ASSUMED)) * (division.clips(sizes).sampling - 1) / sizes.n
    low, high = median * (low / median) ** SCATTER, median * (high / median) ** SCATTER
    return median + clipped, low + clipped, high + clipped


def loss_on_tables(median: float) -> tuple[float, float]:
    """The loss of R² that half of the public tables exceed, and the loss that one in ten exceeds, at a predicted
    median.
    """
    typical = median**TUNING.real_power
    return min(typical, 1.0), min(TUNING.real_range * typical, 1.0)


def predicted_fit(lost: tuple[float, float, float], sizes: Sizes, failure: float = 0.0, more: str = "") -> PredictedFit:
    """The prediction of a loss of R²."""
    explained, (half, tenth) = sizes.effect or ASSUMED, loss_on_tables(lost[0])
    prediction = Prediction(
        quantity="R² lost to privacy",
        median=lost[0],
        low=lost[1],
        high=lost[2],
        failure=failure,
        meaning="The loss is the difference in R² on new rows from least squares on the same columns. Real columns "
        f"seldom follow the assumptions: of R's public tables half lost more than {half:.2g}, and one in ten more than "
        f"{tenth:.2g}, usually with a warning. {more}".rstrip(),
        assumed=f"Assumed: bounds {BOUNDS:g} spreads from the middle, no missing values, normal errors, "
        f"and uncorrelated normal columns that explain {100 * explained:.0f} % of the variance.",
    )
    return PredictedFit(
        prediction, feasible=lost[0] < explained / 2, advice="more rows, a larger epsilon or fewer columns would help"
    )
