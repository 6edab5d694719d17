"""How far to clip a regression's scores: where sampling error, privacy noise and bias together are least.

A row adds e·a to the score, e its residual in standard deviations and a its k coordinates; its length |e|·‖a‖ is cut
to ``norm``. A step then estimates coefficients with the variance (in units of σ²/n)

    sampling   E[min(e², norm²/‖a‖²)·‖a‖²]/k ÷ κ²        κ = E[‖a‖²; |e|·‖a‖ ≤ norm]/k,
    privacy    (2·norm)²/(2ρn) ÷ κ²,

and a bias, because no table follows a straight line with normal errors: what is cut is E(|e|·‖a‖ − norm)₊ long in all.
*Lemma.* The bias of the score along any unit vector is at most that. *Proof.* It is E[s·(q·a)/‖a‖·(|e|·‖a‖ − norm)₊]
with s = ±1 and |q·a| ≤ ‖a‖. ∎ Of normal errors most of what is cut on both sides cancels: a part of it counts, beside
all of what exceeds it. For the same noise every row keeps more of its score than if residuals and lengths were clipped
separately, as min(|e|·‖a‖, c·l) ≥ min(|e|, c)·min(‖a‖, l).

Before the fit the lengths are taken as those of normal rows; paid histograms then take their place.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erf, gammaincinv, log_ndtr, ndtr, ndtri

from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray

#: Upper ends of the bins of a row's length ‖a‖/√k, and of a score's length |e|·‖a‖/√k; the last bin has none. Both have
#: the same bins from where tails begin.
_FAR = (2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 24.0, 36.0, 54.0, 80.0, 120.0, 200.0, 350.0, 600.0)
LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0, *_FAR)
SIZES = (1.0, 1.5, 2.0, *_FAR)
_NORMS = np.geomspace(0.8, 800.0, 50)
_QUANTILES = (np.arange(30) + 0.5) / 30


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

    def lacking(self, radius: FloatArray | float) -> FloatArray:
        """E(‖a‖² − radius²)₊."""
        return np.asarray(np.maximum(self.value**2 - np.asarray(radius)[..., None] ** 2, 0.0) @ self.share)

    def beyond(self, norm: FloatArray) -> FloatArray:
        """The share of rows whose score is longer, for normal errors."""
        return np.asarray(2 * ndtr(-norm[:, None] / self.value) @ self.share)

    @property
    def _weights(self) -> FloatArray:
        weights = self.share * self.value**2
        return np.asarray(weights / weights.sum())


@lru_cache(maxsize=256)
def normal_lengths(p: int) -> Lengths:
    """That of normal rows with p columns."""
    value = np.sqrt(1 + 2 * gammaincinv(p / 2, _QUANTILES))
    return Lengths(value, np.full(len(value), 1 / len(value)), p + 1)


#: Spreads of log ‖a‖ that lengths are taken from, and the quantiles that stand for a law.
_SPREADS = np.geomspace(0.08, 1.2, 8)
_STEPS = ndtri((np.arange(15) + 0.5) / 15)
#: Laws of the tails: by how much the share of scores longer than 3√k exceeds that of normal errors, and with which
#: power the share beyond b√k falls with b there; beyond that point the power grows as b to :data:`_GROWTH`.
_SHARE, _POWER = (each.ravel() for each in np.meshgrid(np.geomspace(0.0003, 0.3, 8), np.geomspace(0.4, 8.0, 5)))
_GROWTH = 0.3
_LOW = np.array(_FAR)
_HIGH = np.append(_LOW[1:], 1.6 * _LOW[-1])
#: Sizes that stand for each bin.
_INSIDE = _LOW[:, None] * (_HIGH / _LOW)[:, None] ** ((np.arange(8) + 0.5) / 8)
#: What each law expects in each bin.
_BEYOND = _SHARE[:, None] * np.exp(-(_POWER / _GROWTH)[:, None] * ((_LOW / 3) ** _GROWTH - 1))
_EXPECTED = np.maximum(-np.diff(_BEYOND, axis=1, append=0.0), 1e-12)


class Tails(NamedTuple):
    """How many scores, beyond those of normal errors, are in each bin of :data:`SIZES` from 2.5 on: means and variances
    for each law, and how likely each law is.
    """

    weight: FloatArray
    mean: FloatArray
    variance: FloatArray

    def lost(self, norm: FloatArray | float, lengths: Lengths) -> tuple[FloatArray, FloatArray]:
        """What is cut off scores and need not cancel, E(|e|·‖a‖ − norm)₊, of normal scores the part
        :attr:`Tuning.uneven`: its mean, and the root of its mean square.
        """
        root, at = math.sqrt(lengths.k), np.atleast_1d(np.asarray(norm, dtype=float))
        excess = np.mean(np.maximum(root * _INSIDE - at[:, None, None], 0.0), axis=2).T
        cut = self.mean @ excess + TUNING.uneven * lengths.lost(at)
        square = self.weight @ (cut**2 + self.variance @ excess**2)
        return (self.weight @ cut).reshape(np.shape(norm)), np.sqrt(square).reshape(np.shape(norm))

    def square(self, low: float, high: float) -> float:
        """What these scores add to E min(|e|·‖a‖, b√k)²/k as b grows from ``low`` to ``high``."""
        return float(self.weight @ self.mean @ _more(low, high))

    def residuals_show(self, value: float, error: float, low: float, high: float) -> Tails:
        """After a measurement of :meth:`square` for residuals alone: it lies between 0 and that of scores, whose tails
        may be those of the rows' lengths.

        >>> tails = Tails(_PRIOR, _EXPECTED, 0 * _EXPECTED)
        >>> tails.residuals_show(0.3, 0.05, 2.0, 3.5).square(2.0, 3.5) > 0.2 > tails.square(2.0, 3.5)
        True
        """
        most = np.maximum(self.mean @ _more(low, high), 1e-3 * error)
        value = max(value, -2 * error)
        below, inside = log_ndtr(-value / error), log_ndtr((most - value) / error)
        likely = np.log(self.weight + 1e-300) + inside + np.log1p(-np.exp(below - inside)) - np.log(most)
        weight = np.exp(likely - likely.max())
        return self._replace(weight=weight / weight.sum())


def _more(low: float, high: float) -> FloatArray:
    """What a score in each bin adds to :meth:`Tails.square`."""
    return np.asarray(np.mean(np.minimum(_INSIDE, high) ** 2 - np.minimum(_INSIDE, low) ** 2, axis=1))


#: How likely each law is before anything is released: most tables have hardly any tails.
_USUAL_POWER = 1 + 1 / (TUNING.tail_mean + TUNING.tail_slope * _SHARE)
_PRIOR = np.exp(-((np.log(_POWER / _USUAL_POWER) / TUNING.tail_spread) ** 2) / 2) / np.sqrt(_SHARE)
_PRIOR /= _PRIOR.sum()
#: Light tails, which clips are chosen for until scores have been seen; and none.
_LIGHT = np.where((_SHARE > 0.005) & (_SHARE < 0.015), _PRIOR, 0.0)
USUAL_TAILS = Tails(_LIGHT / _LIGHT.sum(), _EXPECTED, 0 * _EXPECTED)
NO_TAILS = Tails(_PRIOR, 0 * _EXPECTED, 0 * _EXPECTED)


def length_distribution(shares: FloatArray, noise: float, p: int, n: int, k: int, farthest: float) -> Lengths:
    """The law of the lengths of k coordinates, of which p + 1 are used, after a noisy histogram over :data:`LENGTHS` of
    n rows: lognormal laws with E‖a‖² = p + 1, each as likely as the near bins make it, because noise in few rows would
    ruin the clips if the histogram itself were taken for the law; and beyond them long rows as the far bins show them
    (:func:`tail_distribution`), none longer than ``farthest``√k.
    """
    middle = math.log((p + 1) / k) / 2 - _SPREADS**2
    below = ndtr((np.log(LENGTHS)[:, None] - middle) / _SPREADS)
    expected = np.diff(below, axis=0, prepend=0.0, append=1.0)
    near = len(LENGTHS) - len(_LOW) + 1
    shares = shares / max(float(shares.sum()), 0.2)
    part = max(float(shares[:near].sum()), 0.2)
    apart = (shares[:near, None] / part - expected[:near] / below[near - 1]) ** 2 / (noise**2 + expected[:near] / n)
    likely = -apart.sum(axis=0) / 2 - np.log(_SPREADS / TUNING.length_spread) ** 2 / 2
    weight = np.exp(likely - likely.max())
    weight /= weight.sum()
    tails = _far_bins(shares[near:], expected[near:] @ weight, noise, n, farthest)
    long = tails.weight @ tails.mean
    value = math.sqrt(k) * np.exp(middle[:, None] + _SPREADS[:, None] * _STEPS)
    bulk = np.repeat(weight * max(1 - float(long.sum()), 0.1) / len(_STEPS), len(_STEPS))
    inside = math.sqrt(k) * _INSIDE
    return Lengths(np.append(value, inside), np.append(bulk, np.repeat(long / _INSIDE.shape[1], _INSIDE.shape[1])), k)


def tail_distribution(shares: FloatArray, noise: float, lengths: Lengths, n: int, farthest: float) -> Tails:
    """The tails after a noisy histogram over :data:`SIZES` of n rows, none of which is longer than ``farthest``√k.

    The share in a bin is normal around what a law expects there, as far as that is from 0, and so is what is released.

    >>> shares = np.zeros(len(SIZES) + 1); shares[[0, -1]] = 0.95, 0.05
    >>> rows = normal_lengths(3)
    >>> bool(tail_distribution(shares, 0.001, rows, 10**4, 4000.0).lost(20.0, rows)[1] > 0.1)
    True
    """
    normal = normal_lengths(lengths.k - 1).beyond(_LOW * math.sqrt(lengths.k))
    far = shares[-len(_LOW) :] / max(float(shares.sum()), 0.2)
    return _far_bins(far, normal - np.append(normal[1:], 0.0), noise, n, farthest)


def _far_bins(far: FloatArray, normal: FloatArray, noise: float, n: int, farthest: float) -> Tails:
    """The tails after noisy shares in the far bins, beyond the shares that there are without tails."""
    expected = np.where(farthest > _LOW, _EXPECTED, 1e-12)
    spread = noise**2 + (normal + np.maximum(far, 0.0)) / n
    own = expected**2
    apart = far - normal - expected
    likely = np.log(_PRIOR) - np.sum(apart**2 / (own + spread) + np.log(own + spread), axis=1) / 2
    mean = np.maximum(expected + own / (own + spread) * apart, 0.0)
    variance = own * spread / (own + spread)
    weight = np.exp(likely - likely.max())
    return Tails(weight / weight.sum(), mean, variance)


def optimal_clip(
    n: int,
    rho: float,
    lengths: Lengths,
    rows_per_person: int = 1,
    tails: Tails = USUAL_TAILS,
    unknown: float = TUNING.tails_along**2 + TUNING.tails_beside**2,
    corrected: float = 0.0,
) -> Clips:
    """The best clip for steps of price ρ in all on n rows with these lengths. ``unknown`` is the variance of the
    direction of what is cut off, and ``corrected`` its squared mean: scores are corrected by that, as far as it is
    known how much is cut off.

    >>> rows = normal_lengths(5)
    >>> optimal_clip(2000, 0.004, rows).norm < optimal_clip(10**6, 0.004, rows).norm
    True
    >>> optimal_clip(2000, math.inf, rows).norm
    inf
    """
    if math.isinf(rho):
        return NO_CLIPS
    norms = _NORMS * math.sqrt(lengths.k)
    kappa, square = lengths.kappa(norms), lengths.square(norms)
    noise = (2 * norms * rows_per_person) ** 2 / (2 * rho * n)
    cut, bias = tails.lost(norms, lengths)
    misfit = (unknown * bias**2 + corrected * (bias**2 - cut**2)) / lengths.k
    i = int(np.argmin((square + noise) / kappa**2 + n * misfit))
    return Clips(float(norms[i]), float(kappa[i]), float(square[i]))


def optimal_radius(n: int, rho: float, lengths: Lengths, rows_per_person: int = 1) -> float:
    """Where to clip rows in the information: the mean square of what noise, and what long rows lack, do to its product
    with a unit vector is least.

    >>> optimal_radius(10**4, 0.001, normal_lengths(5)) < optimal_radius(10**6, 0.001, normal_lengths(5))
    True
    """
    if math.isinf(rho):
        return math.inf
    radii = _NORMS * math.sqrt(lengths.k)
    noise = math.sqrt(2.0) * radii**2 * rows_per_person / (n * math.sqrt(2 * rho))
    return float(radii[np.argmin(lengths.k * noise**2 / 2 + lengths.lacking(radii) ** 2 / lengths.k)])


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
