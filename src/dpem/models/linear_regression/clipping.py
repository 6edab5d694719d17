"""The clip of a regression's scores that minimises sampling error, privacy noise and bias together.

A row adds e·a to the score, e its residual in standard deviations and a its k coordinates; its length |e|·‖a‖ is
clipped at ``norm``. A step then estimates coefficients with the variance (in units of σ²/n)

    sampling   E[min(e², norm²/‖a‖²)·‖a‖²]/k ÷ κ²        κ = E[‖a‖²; |e|·‖a‖ ≤ norm]/k,
    privacy    (2·norm)²/(2ρn) ÷ κ²,

and a bias, because no table follows a straight line with normal errors: the excess (|e|·‖a‖ − norm)₊ is lost.
*Lemma.* The bias of the score along any unit vector is at most the mean excess. *Proof.* It is
E[s·(q·a)/‖a‖·(|e|·‖a‖ − norm)₊] with s = ±1 and |q·a| ≤ ‖a‖. ∎ Most of the excess of
normal errors cancels between the two signs: a fraction of it counts, and all of the excess beyond that of normal
errors. For the same noise every row keeps more of its score than if residuals and lengths were clipped separately, as
min(|e|·‖a‖, c·l) ≥ min(|e|, c)·min(‖a‖, l).

Before the fit rows are assumed to be normal; released histograms then replace that assumption.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erf, gammaincinv, ndtr, ndtri, softmax

from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray

#: Upper ends of the bins of a row's length ‖a‖/√k, and of a score's length |e|·‖a‖/√k; the last bin has none. Both have
#: the same bins from where tails begin.
_TAIL_EDGES = (2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 24.0, 36.0, 54.0, 80.0, 120.0, 200.0, 350.0, 600.0)
ROW_EDGES = (0.5, 0.7, 1.0, 1.4, 2.0, *_TAIL_EDGES)
SCORE_EDGES = (1.0, 1.5, 2.0, *_TAIL_EDGES)


def clipped_square(most: FloatArray | float) -> FloatArray:
    """E min(e², most) of a standard normal e.

    >>> round(float(clipped_square(1.0)), 4), float(clipped_square(math.inf))
    (0.5161, 1.0)
    """
    square = np.minimum(most, 1e3)
    c = np.sqrt(square)
    density = np.exp(-square / 2) / math.sqrt(2 * math.pi)
    return np.asarray(erf(c / math.sqrt(2)) - 2 * c * density + 2 * square * ndtr(-c))


class Lengths(NamedTuple):
    """A discrete distribution of ‖a‖ for k coordinates: values and their probabilities. Errors e are standard
    normal.
    """

    value: FloatArray
    share: FloatArray
    k: int

    def kappa(self, norm: FloatArray) -> FloatArray:
        """The fraction of the score's slope that remains after clipping at these norms."""
        unclipped = erf(norm[:, None] / self.value / math.sqrt(2))
        return np.asarray(unclipped @ self._square_weights)

    def square(self, norm: FloatArray) -> FloatArray:
        """The fraction of the score's mean square that remains after clipping."""
        return np.asarray(clipped_square((norm[:, None] / self.value) ** 2) @ self._square_weights)

    def excess(self, norm: FloatArray | float) -> FloatArray:
        """E(|e|·‖a‖ − norm)₊."""
        c = np.asarray(norm)[..., None] / self.value
        density = np.exp(-(c**2) / 2) / math.sqrt(2 * math.pi)
        return np.asarray(2 * (density - c * ndtr(-c)) @ (self.share * self.value))

    def square_excess(self, radius: FloatArray | float) -> FloatArray:
        """E(‖a‖² − radius²)₊."""
        return np.asarray(np.maximum(self.value**2 - np.asarray(radius)[..., None] ** 2, 0.0) @ self.share)

    def tail_probability(self, norm: FloatArray) -> FloatArray:
        """P(|e|·‖a‖ > norm)."""
        return np.asarray(2 * ndtr(-norm[:, None] / self.value) @ self.share)

    @property
    def _square_weights(self) -> FloatArray:
        weights = self.share * self.value**2
        return np.asarray(weights / weights.sum())


_QUANTILES = (np.arange(30) + 0.5) / 30


@lru_cache(maxsize=256)
def normal_lengths(p: int) -> Lengths:
    """The distribution of the length of normal rows with p columns."""
    value = np.sqrt(1 + 2 * gammaincinv(p / 2, _QUANTILES))
    return Lengths(value, np.full(len(value), 1 / len(value)), p + 1)


# --- tails ------------------------------------------------------------------------------------------------------------

#: A grid of tail distributions: the share of scores longer than 3√k in excess of normal errors, and the power with
#: which the share beyond b√k falls at b = 3; farther out that power grows as b to :data:`_GROWTH`.
_SHARE, _POWER = (grid.ravel() for grid in np.meshgrid(np.geomspace(0.0003, 0.3, 8), np.geomspace(0.4, 8.0, 5)))
_GROWTH = 0.3
_LOW = np.array(_TAIL_EDGES)
_HIGH = np.append(_LOW[1:], 1.6 * _LOW[-1])
#: Lengths over √k that stand for each bin.
_INSIDE = _LOW[:, None] * (_HIGH / _LOW)[:, None] ** ((np.arange(8) + 0.5) / 8)
#: The share in each bin under each tail distribution.
_SURVIVAL = _SHARE[:, None] * np.exp(-(_POWER / _GROWTH)[:, None] * ((_LOW / 3) ** _GROWTH - 1))
_EXPECTED = np.maximum(-np.diff(_SURVIVAL, axis=1, append=0.0), 1e-12)
#: The log prior of the tail distributions: most tables have hardly any tails.
_USUAL_POWER = 1 + 1 / (TUNING.tail_mean + TUNING.tail_slope * _SHARE)
_LOG_PRIOR = -((np.log(_POWER / _USUAL_POWER) / TUNING.tail_spread) ** 2) / 2 - np.log(_SHARE) / 2


class Excess(NamedTuple):
    """The mean length of the clipped part of scores that need not cancel, and its root mean square over the
    posterior.
    """

    mean: FloatArray
    root_mean_square: FloatArray


class Tails(NamedTuple):
    """A posterior of the shares of scores, in excess of normal errors, in each bin of :data:`SCORE_EDGES` from 2.5 on:
    the probability of each tail distribution, and means and variances of the shares under it.
    """

    weight: FloatArray
    mean: FloatArray
    variance: FloatArray

    def excess(self, norm: FloatArray | float, lengths: Lengths) -> Excess:
        """E(|e|·‖a‖ − norm)₊; for normal errors only the fraction :attr:`Tuning.not_cancelled` of it."""
        root, norms = math.sqrt(lengths.k), np.atleast_1d(np.asarray(norm, dtype=float))
        bin_excess = np.mean(np.maximum(root * _INSIDE - norms[:, None, None], 0.0), axis=2).T
        mean = self.mean @ bin_excess + TUNING.not_cancelled * lengths.excess(norms)
        square = self.weight @ (mean**2 + self.variance @ bin_excess**2)
        return Excess((self.weight @ mean).reshape(np.shape(norm)), np.sqrt(square).reshape(np.shape(norm)))

    def square(self, low: float, high: float) -> float:
        """The increase of E min(|e|·‖a‖, b√k)²/k from these scores as b grows from ``low`` to ``high``."""
        added = np.mean(np.minimum(_INSIDE, high) ** 2 - np.minimum(_INSIDE, low) ** 2, axis=1)
        return float(self.weight @ self.mean @ added)


#: Light tails, assumed until scores are released; and no tails.
USUAL_TAILS = Tails(
    softmax(np.where((_SHARE > 0.005) & (_SHARE < 0.015), _LOG_PRIOR, -np.inf)), _EXPECTED, 0 * _EXPECTED
)
NO_TAILS = Tails(softmax(_LOG_PRIOR), 0 * _EXPECTED, 0 * _EXPECTED)


def tail_posterior(shares: FloatArray, normal: FloatArray, noise: float, n: int, farthest: float) -> Tails:
    """The posterior of the tails given noisy shares of n rows in their bins. ``normal`` are the shares for normal
    errors; no row is longer than ``farthest``√k. Under a tail distribution the share in a bin is normal, with its
    expectation as standard deviation; the released share is normal around it.
    """
    expected = np.where(farthest > _LOW, _EXPECTED, 1e-12)
    prior, error = expected**2, noise**2 + (normal + np.maximum(shares, 0.0)) / n
    difference, variance = shares - normal - expected, prior + error
    log_likelihood = -np.sum(difference**2 / variance + np.log(variance), axis=1) / 2
    mean = np.maximum(expected + prior / variance * difference, 0.0)
    return Tails(softmax(_LOG_PRIOR + log_likelihood), mean, prior * error / variance)


def score_tails(shares: FloatArray, noise: float, lengths: Lengths, n: int, farthest: float) -> Tails:
    """The posterior of the tails given a noisy histogram of scores over :data:`SCORE_EDGES`.

    >>> shares = np.zeros(len(SCORE_EDGES) + 1); shares[[0, -1]] = 0.95, 0.05
    >>> rows = normal_lengths(3)
    >>> bool(score_tails(shares, 0.001, rows, 10**4, 4000.0).excess(20.0, rows).root_mean_square > 0.1)
    True
    """
    survival = normal_lengths(lengths.k - 1).tail_probability(_LOW * math.sqrt(lengths.k))
    in_tail = shares[-len(_LOW) :] / max(float(shares.sum()), 0.2)
    return tail_posterior(in_tail, -np.diff(survival, append=0.0), noise, n, farthest)


# --- rows -------------------------------------------------------------------------------------------------------------

#: Standard deviations of log ‖a‖ of lognormal distributions, and the quantiles that represent each.
_SPREADS = np.geomspace(0.08, 1.2, 8)
_NORMAL_QUANTILES = ndtri((np.arange(15) + 0.5) / 15)


def row_lengths(shares: FloatArray, noise: float, p: int, n: int, k: int, farthest: float) -> Lengths:
    """The distribution of the lengths of k coordinates, of which p + 1 are used, given a noisy histogram of n rows over
    :data:`ROW_EDGES`.

    The bulk is a mixture of lognormal distributions with E‖a‖² = p + 1, weighted by posterior probability, because
    noise in bins with few rows would spoil the clips if the histogram itself were used. The tail is that of
    :func:`tail_posterior`.
    """
    middle = math.log((p + 1) / k) / 2 - _SPREADS**2
    below = ndtr((np.log(ROW_EDGES)[:, None] - middle) / _SPREADS)
    expected = np.diff(below, axis=0, prepend=0.0, append=1.0)
    bulk = len(ROW_EDGES) - len(_LOW) + 1
    shares = shares / max(float(shares.sum()), 0.2)
    inside = shares[:bulk, None] / max(float(shares[:bulk].sum()), 0.2)
    difference = inside - expected[:bulk] / below[bulk - 1]
    log_likelihood = -np.sum(difference**2 / (noise**2 + expected[:bulk] / n), axis=0) / 2
    weight = softmax(log_likelihood - np.log(_SPREADS / TUNING.length_spread) ** 2 / 2)
    tails = tail_posterior(shares[bulk:], expected[bulk:] @ weight, noise, n, farthest)
    in_tail = tails.weight @ tails.mean
    value = math.sqrt(k) * np.exp(middle[:, None] + _SPREADS[:, None] * _NORMAL_QUANTILES)
    share = np.repeat(weight * max(1 - float(in_tail.sum()), 0.1) / len(_NORMAL_QUANTILES), len(_NORMAL_QUANTILES))
    tail_share = np.repeat(in_tail / _INSIDE.shape[1], _INSIDE.shape[1])
    return Lengths(np.append(value, math.sqrt(k) * _INSIDE), np.append(share, tail_share), k)


_NORMS = np.geomspace(0.8, 800.0, 50)


class Clips(NamedTuple):
    """The clip of the scores, and the fractions of their slope (``kappa``) and of their mean square that remain."""

    norm: float
    kappa: float
    square: float

    @property
    def sampling(self) -> float:
        """The sampling variance over that of least squares without clipping."""
        return self.square / self.kappa**2


NO_CLIPS = Clips(math.inf, 1.0, 1.0)


def optimal_clip(
    n: int,
    rho: float,
    lengths: Lengths,
    rows_per_person: int = 1,
    tails: Tails = USUAL_TAILS,
    direction_variance: float = TUNING.tails_fitted**2 + TUNING.tails_slope_sd**2,
    direction_square: float = 0.0,
) -> Clips:
    """The best clip for score steps of total price ρ on n rows with these lengths. The mean of the clipped part of the
    scores over its mean length has the variance ``direction_variance`` and the squared mean ``direction_square``, for
    which scores are corrected.

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
    mean, bias = tails.excess(norms, lengths)
    misfit = (direction_variance * bias**2 + direction_square * (bias**2 - mean**2)) / lengths.k
    i = int(np.argmin((square + noise) / kappa**2 + n * misfit))
    return Clips(float(norms[i]), float(kappa[i]), float(square[i]))


def optimal_radius(n: int, rho: float, lengths: Lengths, rows_per_person: int = 1) -> float:
    """The clip of rows in the information that minimises the mean squared error, from noise and from clipped long rows,
    of its product with a unit vector.

    >>> optimal_radius(10**4, 0.001, normal_lengths(5)) < optimal_radius(10**6, 0.001, normal_lengths(5))
    True
    """
    if math.isinf(rho):
        return math.inf
    radii = _NORMS * math.sqrt(lengths.k)
    noise = math.sqrt(2.0) * radii**2 * rows_per_person / (n * math.sqrt(2 * rho))
    return float(radii[np.argmin(lengths.k * noise**2 / 2 + lengths.square_excess(radii) ** 2 / lengths.k)])


def level_clip(n: int, rho: float, rows_per_person: int = 1) -> float:
    """The clip of residuals, in standard deviations, in the last release of their mean and mean square: as large as the
    noise allows, so that σ includes the tails.

    >>> level_clip(2000, 0.001), round(level_clip(20_000, 0.001), 1), round(level_clip(10**6, 0.001), 1)
    (3.5, 4.4, 30.8)
    """
    nearest, farthest = TUNING.level_clips
    if math.isinf(rho):
        return nearest
    noise = rows_per_person * math.sqrt(2.0) / (n * math.sqrt(2 * rho))
    return min(max(math.sqrt(TUNING.level_noise / noise), nearest), farthest)
