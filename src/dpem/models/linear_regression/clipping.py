"""How far to clip a regression's residuals and rows: where sampling error, privacy noise and bias together are least.

A step estimates coefficients with the variance (in units of σ²/n, for rows of k coordinates a)

    sampling   E min(e², c²)·E[w²‖a‖²]/k ÷ (κη)²          κ = P(|e| ≤ c), η = E[w‖a‖²]/k,
    privacy    (2·c·leverage)²/(2ρn) ÷ (κη)²

with residuals clipped at c standard deviations and rows weighted by w. Wide clips waste privacy, narrow ones waste
rows. Besides, no table follows a straight line with normal errors: clipped coefficients are then another summary of the
rows than least squares', by some hundredths of σ where much is clipped, however many rows there are. A term for that
makes clips wider as n grows. Before the fit the laws of leverage and residual are taken as those of normal rows; paid
histograms then take their place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr

from dpem.models.linear_regression.columns import without_empty
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray

#: Upper ends of the bins of a row's length ‖a‖/√k and of a residual in standard deviations; the last bin has none.
LENGTHS = tuple(float(0.5 * 2 ** (j / 4)) for j in range(25))
SIZES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 14.0, 20.0)
_RESIDUALS = np.concatenate([np.arange(0.6, 4.05, 0.1), [4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 14.0, 20.0]])
_LEVERAGES = (
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.2,
    1.4,
    1.6,
    1.8,
    2.0,
    2.3,
    2.6,
    3.2,
    4.0,
    5.0,
    6.5,
    8.0,
    11.0,
    16.0,
    23.0,
    32.0,
)
_QUANTILES = (np.arange(400) + 0.5) / 400


def clipped_square(most: float) -> float:
    """E min(e², most) of a standard normal e.

    >>> round(clipped_square(1.0), 4), clipped_square(math.inf)
    (0.5161, 1.0)
    """
    if math.isinf(most):
        return 1.0
    c = math.sqrt(most)
    density = math.exp(-most / 2) / math.sqrt(2 * math.pi)
    return math.erf(c / math.sqrt(2)) - 2 * c * density + most * math.erfc(c / math.sqrt(2))


_CLIPPED_SQUARES = np.array([clipped_square(c * c) for c in _RESIDUALS])


class Clips(NamedTuple):
    """Where to clip, and what rows then keep: of the slope κ and η, of the square of a score ``square``."""

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


#: Without privacy.
NO_CLIPS = Clips(math.inf, math.inf, math.inf, 1.0, 1.0, 1.0)


class Lengths(NamedTuple):
    """The law of ‖a‖/√k: values and their shares."""

    value: FloatArray
    share: FloatArray


def normal_lengths(p: int) -> Lengths:
    """That of normal rows with p columns."""
    value = np.sqrt((1 + 2 * gammaincinv(p / 2, _QUANTILES)) / (p + 1))
    return Lengths(value, np.full(len(value), 1 / len(value)))


def released_lengths(shares: FloatArray, noise: float, p: int) -> Lengths:
    """The law that a noisy histogram over :data:`LENGTHS` shows; where noise hides it, that of normal rows.

    A far bin that is taken for occupied by mistake would ruin the clips, so only the run of bins that holds most counts
    (:func:`~dpem.models.linear_regression.columns.without_empty`), and single ones far beyond the noise.
    """
    edges = np.array([LENGTHS[0] / 2**0.25, *LENGTHS])
    value = np.append(np.sqrt(edges[1:] * edges[:-1]), edges[-1] * 2**0.25)
    clear = np.maximum(without_empty(shares, noise, TUNING.length_noise), 0.0)
    normal, unsure = normal_lengths(p), noise**2 / (noise**2 + TUNING.usual_length_noise**2)
    if clear.sum() < 0.5:
        return normal
    return Lengths(
        np.concatenate([value, normal.value]),
        np.concatenate([(1 - unsure) * clear / clear.sum(), unsure * normal.share]),
    )


class Tails(NamedTuple):
    """By how much the share of residuals beyond each of :data:`SIZES` exceeds that of a normal law, surely."""

    excess: FloatArray

    def beyond(self, c: float) -> float:
        """The share of residuals beyond c, more than normal ones."""
        return float(np.interp(c, SIZES, self.excess))

    def bias(self, c: float, p: int) -> float:
        """How far clipping there may move a standardised coefficient of p, in standard deviations of the errors.

        E[(q·a)(|e| − c)₊] for a direction q, where the tails may lie along it: a part of √(p + 1)·E(|e| − c)₊, which is
        the integral of the share beyond.
        """
        edges = np.append(SIZES, 1.25 * SIZES[-1])
        grid = np.concatenate([[c], edges[edges > c]])
        share = np.append(np.interp(grid[:-1], SIZES, self.excess), 0.0)
        return TUNING.tail_bias * math.sqrt(p + 1) * float(np.sum((share[1:] + share[:-1]) / 2 * np.diff(grid)))


NORMAL_TAILS = Tails(np.zeros(len(SIZES)))


def released_tails(shares: FloatArray, noise: float) -> Tails:
    """What a noisy histogram of absolute residuals shows beyond the tails of a normal law and its own noise: tails
    reach as far as they are clearly there without a gap.

    >>> shares = np.zeros(len(SIZES) + 1); shares[[0, -1]] = 0.95, 0.05
    >>> released_tails(shares, 0.001).beyond(10.0) > 0.04
    True
    """
    total = max(float(shares.sum()), 0.2)
    above = np.cumsum(shares[::-1])[::-1][1:] / total
    unsure = noise / total * np.sqrt(np.arange(len(SIZES), 0, -1))
    excess = above - 2 * ndtr(-np.array(SIZES))
    near = np.array(SIZES) < TUNING.tails_from
    sure = np.cumprod(near | (excess > TUNING.tail_noise * unsure)).astype(bool) & ~near
    return Tails(np.where(sure, np.maximum(excess - unsure, 0.0), 0.0))


def choose_clips(
    n: int,
    rho: float,
    p: int,
    rows_per_person: int = 1,
    lengths: Lengths | None = None,
    tails: Tails = NORMAL_TAILS,
    leverage: float | None = None,
) -> Clips:
    """The best clips for steps of price ρ in all on n rows of p columns; ``leverage`` where that is settled.

    >>> choose_clips(2000, 0.004, 5).residual < choose_clips(10**6, 0.004, 5).residual
    True
    >>> choose_clips(2000, math.inf, 5).residual
    inf
    """
    if math.isinf(rho):
        return NO_CLIPS
    value, share = normal_lengths(p) if lengths is None else lengths
    size, whole = value * math.sqrt(p + 1), float(share @ value**2)
    kappa, squares = 2 * ndtr(_RESIDUALS) - 1, _CLIPPED_SQUARES
    cut = np.sqrt(1 - kappa)
    tailed = tails.excess.any()
    of_tails = n * np.array([tails.bias(c, p) if tailed else 0.0 for c in _RESIDUALS]) ** 2
    of_bias = n * min(TUNING.clip_bias, TUNING.clip_bias_of_all / p)
    best, least = NO_CLIPS, math.inf
    for wide in _LEVERAGES if leverage is None else (leverage / math.sqrt(p + 1),):
        reach = wide * math.sqrt(p + 1)
        second = max(TUNING.second * math.sqrt(p + 1), TUNING.further * reach)
        w = np.minimum(1, reach / size) * np.minimum(1, second / size)
        eta, kept = float(share @ (w * value**2)) / whole, float(share @ (w**2 * value**2)) / whole
        noise = (2 * _RESIDUALS * reach * rows_per_person) ** 2 / (2 * rho * n)
        loss = (kept * squares + noise) / (kappa * eta) ** 2 + of_tails + of_bias * (cut + math.sqrt(max(1 - eta, 0.0)))
        i = int(np.argmin(loss))
        if loss[i] < least:
            clips = (float(_RESIDUALS[i]), reach, second, float(kappa[i]), eta, kept * float(squares[i]))
            best, least = Clips(*clips), float(loss[i])
    return best


def level_clip(n: int, rho: float, rows_per_person: int = 1) -> float:
    """Where to clip residuals, in standard deviations, when their mean and mean square are released at the end: the
    tails are in σ as far as the noise allows.

    >>> level_clip(2000, 0.001), round(level_clip(20_000, 0.001), 1), round(level_clip(10**6, 0.001), 1)
    (3.5, 4.4, 30.8)
    """
    nearest, farthest = TUNING.level_clips
    if math.isinf(rho):
        return nearest
    noise = rows_per_person * math.sqrt(2.0) / (n * math.sqrt(2 * rho))
    return min(max(math.sqrt(TUNING.level_noise / noise), nearest), farthest)
