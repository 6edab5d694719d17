"""How far to clip a regression's scores: where sampling error, privacy noise and bias together are least.

A row adds e·a to the score, e its residual in standard deviations and a its k coordinates; its length |e|·‖a‖ is cut
to ``norm``. A step then estimates coefficients with the variance (in units of σ²/n)

    sampling   E[min(e², norm²/‖a‖²)·‖a‖²]/k ÷ κ²        κ = E[‖a‖²; |e|·‖a‖ ≤ norm]/k,
    privacy    (2·norm)²/(2ρn) ÷ κ²,

and a bias, because no table follows a straight line with normal errors: what is cut is E(|e|·‖a‖ − norm)₊ long in all.
*Lemma.* The bias of the score along any unit vector is at most that. *Proof.* It is E[s·(q·a)/‖a‖·(|e|·‖a‖ − norm)₊]
with s = ±1 and |q·a| ≤ ‖a‖. ∎ Of normal errors the parts cut on both sides cancel, so what counts is the excess over
those. For the same noise every row keeps more of its score than if residuals and lengths were clipped separately, as
min(|e|·‖a‖, c·l) ≥ min(|e|, c)·min(‖a‖, l).

Before the fit the lengths are taken as those of normal rows; paid histograms then take their place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erf, gammaincinv, ndtr, ndtri

from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray

#: Upper ends of the bins of a row's length ‖a‖/√k, and of a score's length |e|·‖a‖/√k; the last bin has none.
LENGTHS = tuple(float(0.5 * 2 ** (j / 2)) for j in range(10))
SIZES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 24.0)
_NORMS = np.geomspace(0.8, 40.0, 40)
_QUANTILES = (np.arange(60) + 0.5) / 60


def clipped_square(most: FloatArray | float) -> FloatArray:
    """E min(e², most) of a standard normal e.

    >>> round(float(clipped_square(1.0)), 4), float(clipped_square(math.inf))
    (0.5161, 1.0)
    """
    square = np.minimum(most, 1e3)
    c = np.sqrt(square)
    density = np.exp(-square / 2) / math.sqrt(2 * math.pi)
    return np.asarray(erf(c / math.sqrt(2)) - 2 * c * density + 2 * square * ndtr(-c))


class Clips(NamedTuple):
    """Where scores are clipped, and what they then keep: of their slope ``kappa``, of their square ``square``."""

    norm: float
    kappa: float
    square: float

    @property
    def sampling(self) -> float:
        """By how much the sampling variance exceeds that of least squares."""
        return self.square / self.kappa**2


#: Without privacy.
NO_CLIPS = Clips(math.inf, 1.0, 1.0)


class Lengths(NamedTuple):
    """The law of ‖a‖ of k coordinates: values and their shares."""

    value: FloatArray
    share: FloatArray
    k: int

    def kappa(self, norm: FloatArray) -> FloatArray:
        """What is left of the score's slope where it is clipped at these lengths, for normal errors."""
        kept = erf(norm[:, None] / self.value / math.sqrt(2))
        return np.asarray(kept @ self._weights)

    def square(self, norm: FloatArray) -> FloatArray:
        """What is left of its mean square."""
        return np.asarray(clipped_square((norm[:, None] / self.value) ** 2) @ self._weights)

    def lost(self, norm: FloatArray | float) -> FloatArray:
        """E(|e|·‖a‖ − norm)₊ for normal errors."""
        c = np.asarray(norm)[..., None] / self.value
        density = np.exp(-(c**2) / 2) / math.sqrt(2 * math.pi)
        return np.asarray(2 * (density - c * ndtr(-c)) @ (self.share * self.value))

    def beyond(self, norm: FloatArray) -> FloatArray:
        """The share of rows whose score is longer, for normal errors."""
        return np.asarray(2 * ndtr(-norm[:, None] / self.value) @ self.share)

    @property
    def _weights(self) -> FloatArray:
        weights = self.share * self.value**2
        return np.asarray(weights / weights.sum())


def normal_lengths(p: int) -> Lengths:
    """That of normal rows with p columns."""
    value = np.sqrt(1 + 2 * gammaincinv(p / 2, _QUANTILES))
    return Lengths(value, np.full(len(value), 1 / len(value)), p + 1)


#: Spreads of log ‖a‖ that lengths are taken from, and the quantiles that stand for a law.
_SPREADS = np.geomspace(0.08, 1.2, 12)
_STEPS = ndtri((np.arange(25) + 0.5) / 25)


def released_lengths(shares: FloatArray, noise: float, p: int, n: int, k: int) -> Lengths:
    """Lognormal laws with E‖a‖² = p + 1, of k coordinates of which p + 1 are used, each as likely as a noisy histogram
    over :data:`LENGTHS` of n rows makes it: noise
    in far bins would ruin the clips if the histogram itself were taken for the law.
    """
    middle = math.log((p + 1) / k) / 2 - _SPREADS**2
    below = ndtr((np.log(LENGTHS)[:, None] - middle) / _SPREADS)
    expected = np.diff(below, axis=0, prepend=0.0, append=1.0)
    apart = (shares[:, None] / max(float(shares.sum()), 0.2) - expected) ** 2 / (noise**2 + expected / n)
    usual = np.log(_SPREADS / TUNING.length_spread)
    likely = -apart.sum(axis=0) / 2 - usual**2 / 2
    weight = np.exp(likely - likely.max())
    value = math.sqrt(k) * np.exp(middle[:, None] + _SPREADS[:, None] * _STEPS)
    return Lengths(value.ravel(), np.repeat(weight / weight.sum() / len(_STEPS), len(_STEPS)), k)


#: Laws that tails are taken from: the share of scores longer than 3√k, more than normal ones; the mean of what lies
#: beyond any length, as a part of that length, and where that ends.
_SHARE, _MEAN, _END = (
    each.ravel()
    for each in np.meshgrid(
        np.append(0.0, np.geomspace(0.002, 0.12, 16)),
        np.geomspace(0.2, 1.6, 7),
        np.array([5.0, 15.0, math.inf]),
        indexing="ij",
    )
)


def _beyond(b: FloatArray) -> FloatArray:
    """The share beyond each of b, a row each, for each law."""
    b = b[:, None]
    return np.asarray(np.minimum(_SHARE * (b / 3) ** (-1 - 1 / _MEAN) * np.exp((3 - b) / _END), 0.5))


def _usual() -> FloatArray:
    apart = np.log(_MEAN / (TUNING.tail_mean + TUNING.tail_slope * _SHARE)) / TUNING.tail_spread
    weight = np.exp(-(apart**2) / 2) * np.where(_SHARE > 0, 1.0, TUNING.no_tails)
    return np.asarray(weight / weight.sum())


_PLACES = np.geomspace(0.8, 120.0, 100)
_CUT = np.vstack(
    [(_beyond(_PLACES)[1:] + _beyond(_PLACES)[:-1]) / 2 * np.diff(_PLACES)[:, None], np.zeros(len(_SHARE))]
)
_CUT = np.cumsum(_CUT[::-1], axis=0)[::-1]


class Tails(NamedTuple):
    """How likely each law of the tails is. The share of scores longer than b√k exceeds that of normal errors by
    share·(b/3)^(−1 − 1/mean)·exp((3 − b)/end) up to ``farthest``: a tempered Pareto law, heavier on most tables the
    larger the share is.
    """

    weight: FloatArray
    farthest: float = 30.0

    def lost(self, norm: FloatArray | float, lengths: Lengths) -> FloatArray:
        """How much of what is cut off, E(|e|·‖a‖ − norm)₊, may not cancel: all that exceeds normal errors (the root of
        its mean square over the laws), and a part of the rest, as errors may be skewed.
        """
        cut = np.maximum(_CUT - _CUT[np.searchsorted(_PLACES, self.farthest)], 0.0)
        tails = np.interp(np.asarray(norm) / math.sqrt(lengths.k), _PLACES, np.sqrt(cut**2 @ self.weight))
        return np.asarray(np.hypot(math.sqrt(lengths.k) * tails, TUNING.uneven * lengths.lost(norm)))


#: Before anything is known, and of normal errors.
USUAL_TAILS = Tails(_usual())
NO_TAILS = Tails(np.where(_SHARE > 0, 0.0, 1 / np.sum(_SHARE == 0)))


def released_tails(shares: FloatArray, noise: float, lengths: Lengths, n: int, farthest: float) -> Tails:
    """How likely each law is after a noisy histogram over :data:`SIZES` of n rows.

    >>> shares = np.zeros(len(SIZES) + 1); shares[[0, -1]] = 0.95, 0.05
    >>> rows = normal_lengths(3)
    >>> bool(released_tails(shares, 0.001, rows, 10**4, 30.0).lost(20.0, rows) > 0.1)
    True
    """
    sizes = np.array([size for size in SIZES if size >= TUNING.tails_from])
    found = shares[-len(sizes) :] / max(float(shares.sum()), 0.2)
    normal = lengths.beyond(sizes * math.sqrt(lengths.k))
    above = normal[:, None] + _beyond(sizes)
    expected = above - np.vstack([above[1:], np.zeros(above.shape[1])])
    apart = (found[:, None] - expected) ** 2 / (noise**2 + expected / n + (TUNING.tail_shape * expected) ** 2)
    likely = np.log(np.maximum(USUAL_TAILS.weight, 1e-300)) - apart.sum(axis=0) / 2
    weight = np.exp(likely - likely.max())
    return Tails(weight / weight.sum(), min(max(farthest, SIZES[5]), 100.0))


def choose_clips(n: int, rho: float, lengths: Lengths, rows_per_person: int = 1, tails: Tails = USUAL_TAILS) -> Clips:
    """The best clip for steps of price ρ in all on n rows with these lengths.

    >>> rows = normal_lengths(5)
    >>> choose_clips(2000, 0.004, rows).norm < choose_clips(10**6, 0.004, rows).norm
    True
    >>> choose_clips(2000, math.inf, rows).norm
    inf
    """
    if math.isinf(rho):
        return NO_CLIPS
    norms = _NORMS * math.sqrt(lengths.k)
    kappa, square = lengths.kappa(norms), lengths.square(norms)
    noise = (2 * norms * rows_per_person) ** 2 / (2 * rho * n)
    bias = tails.lost(norms, lengths)
    part = (TUNING.tails_along**2 + TUNING.tails_beside**2) / lengths.k
    i = int(np.argmin((square + noise) / kappa**2 + n * part * bias**2))
    return Clips(float(norms[i]), float(kappa[i]), float(square[i]))


def choose_length(n: int, rho: float, lengths: Lengths, rows_per_person: int = 1) -> float:
    """Where to clip rows in the information: the mean square of what noise, and what long rows lack, do to its product
    with a unit vector is least.

    >>> choose_length(10**4, 0.001, normal_lengths(5)) < choose_length(10**6, 0.001, normal_lengths(5))
    True
    """
    if math.isinf(rho):
        return math.inf
    radii = _NORMS[_NORMS < 10] * math.sqrt(lengths.k)
    noise = math.sqrt(2.0) * radii**2 * rows_per_person / (n * math.sqrt(2 * rho))
    lacking = np.maximum(lengths.value**2 - radii[:, None] ** 2, 0.0) @ lengths.share
    return float(radii[np.argmin(lengths.k * noise**2 / 2 + lacking**2 / lengths.k)])


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
