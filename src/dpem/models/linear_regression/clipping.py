"""How far to clip a regression's residuals and rows: where sampling error and privacy noise together are least.

A step estimates coefficients with the variance (in units of σ²/n, for normal rows of k coordinates a)

    sampling   E min(e², c²)·E[w²‖a‖²]/k ÷ (κη)²          κ = P(|e| ≤ c), η = E[w‖a‖²]/k,
    privacy    (2·c·leverage)²/(2ρn) ÷ (κη)²

with residuals clipped at c standard deviations and rows weighted by w. Wide clips waste privacy, narrow ones waste
rows. Besides, no table follows a straight line with normal errors: clipped coefficients are then another summary of the
rows than least squares', by some hundredths of σ where much is clipped (on the wages of the examples, 0.05·√(share of
residuals clipped) in the worst direction), however many rows there are. A term for that makes clips wider as n grows.
All of it depends on public numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr

from dpem.models.linear_regression.queries import clipped_square

#: How much longer than a typical row, and than one whose score counts in full, a row may be before its information
#: counts less.
SECOND, FURTHER = 1.3, 1.5
#: The squared bias, in units of σ², of a coefficient for which everything is clipped, and of all of them together.
MISFIT, OF_ALL = 0.001, 0.009
_RESIDUALS = np.append(np.arange(0.6, 4.05, 0.1), [4.5, 5.0, 6.0, 8.0])
_LEVERAGES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 3.2, 4.0)
_LEVELS = (np.arange(400) + 0.5) / 400


class Clips(NamedTuple):
    """Where to clip, and what normal rows then keep: of the slope κ and η, of the square of a score ``square``."""

    residual: float
    leverage: float
    second: float
    kappa: float
    eta: float
    square: float

    @property
    def sampling(self) -> float:
        """By how much the sampling variance exceeds that of least squares."""
        return self.square / (self.kappa * self.eta) ** 2


#: No clips: where nothing is promised.
WIDE = Clips(math.inf, math.inf, math.inf, 1.0, 1.0, 1.0)


def choose_clips(n: int, rho: float, p: int, rows_per_person: int = 1) -> Clips:
    """The best clips for steps of price ρ in all on n rows of p columns.

    >>> choose_clips(2000, 0.004, 5).residual < choose_clips(10**6, 0.004, 5).residual
    True
    >>> choose_clips(2000, math.inf, 5).residual
    inf
    """
    if math.isinf(rho):
        return WIDE
    size = np.sqrt(1 + 2 * gammaincinv(p / 2, _LEVELS))
    best, least = None, math.inf
    for wide in _LEVERAGES:
        leverage = wide * math.sqrt(p + 1)
        second = max(SECOND * math.sqrt(p + 1), FURTHER * leverage)
        w = np.minimum(1, leverage / size) * np.minimum(1, second / size)
        eta, kept = float(np.mean(w * size**2)) / (p + 1), float(np.mean(w**2 * size**2)) / (p + 1)
        for c in map(float, _RESIDUALS):
            kappa = float(2 * ndtr(c) - 1)
            clips = Clips(c, leverage, second, kappa, eta, kept * clipped_square(c * c))
            noise = (2 * c * leverage * rows_per_person) ** 2 / (2 * rho * n) / (kappa * eta) ** 2
            misfit = n * min(MISFIT, OF_ALL / p) * (math.sqrt(1 - kappa) + math.sqrt(max(1 - eta, 0.0)))
            if clips.sampling + noise + misfit < least:
                best, least = clips, clips.sampling + noise + misfit
    assert best is not None
    return best


#: Where the size of residuals is asked last, its noise is to be such a part of it; and how far clips may then be.
SIZE_NOISE, NEAREST, FARTHEST = 0.03, 3.5, 8.0


def level_clip(n: int, rho: float, rows_per_person: int = 1) -> float:
    """Where to clip residuals, in standard deviations, when their mean and mean square are asked at the end: the tails
    are in σ as far as the noise allows.

    >>> level_clip(2000, 0.001), round(level_clip(20_000, 0.001), 1), level_clip(10**6, 0.001)
    (3.5, 4.4, 8.0)
    """
    if math.isinf(rho):
        return NEAREST
    noise = rows_per_person * math.sqrt(2.0) / (n * math.sqrt(2 * rho))
    return min(max(math.sqrt(SIZE_NOISE / noise), NEAREST), FARTHEST)
