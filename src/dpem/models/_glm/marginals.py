"""The distribution of each coordinate between its bounds, from a noisy histogram."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpem.queries.histograms import BINS, EDGES, MIDDLES, occupied_bins
from dpem.query import FloatArray
from dpem.tables.schema import Schema

#: A column is at a bound if the last bin, or the first, has a larger share than this.
LAST_BIN, FIRST_BIN = 0.5, 0.95
#: A column has two values, or one, if its two outer bins together, or one of them, have a larger share than the first
#: number; for two values each has at least the second.
OUTER_BINS, EACH_OUTER_BIN = 0.9, 0.02
#: A level is rare if its share is below this number of standard deviations of its noise, and below this fraction of an
#: equal share of all coordinates.
RARE, RARE_FRACTION = 2.0, 0.25
#: The bounds of a column are too wide if two adjacent bins have a larger share than this.
CROWDED = 0.9
#: The least spread of a coordinate: a quarter of a bin.
LEAST_SPREAD = 0.5 / BINS


class Marginals(NamedTuple):
    """For each coordinate: the shares of its bins, its mean and spread, and whether it is a level (−1 or 1).

    ``noise`` is the standard deviation of the noise of a share.
    """

    shares: FloatArray
    centre: FloatArray
    spread: FloatArray
    level: FloatArray
    noise: float

    def joined(self, other: Marginals) -> Marginals:
        """These coordinates, then the others."""
        shares, centre, spread, level = (np.concatenate(pair) for pair in zip(self[:4], other[:4], strict=True))
        return Marginals(shares, centre, spread, level, max(self.noise, other.noise))

    def extended(self, released: NDArray[np.intp], u: FloatArray) -> Marginals:
        """The marginals of all coordinates of surrogate rows u; these are the ``released`` ones."""
        place = np.clip(np.floor((u + 1) * (BINS / 2)), 0, BINS - 1)
        shares = (place[:, :, None] == np.arange(BINS)).mean(axis=0)
        centre, spread, level = u.mean(axis=0), np.maximum(u.std(axis=0), LEAST_SPREAD), np.zeros(u.shape[1])
        shares[released], centre[released], spread[released], level[released] = self[:4]
        return Marginals(shares, centre, spread, level, self.noise)

    @property
    def crowded(self) -> NDArray[np.bool_]:
        """Which numeric coordinates have nearly all values in two adjacent bins."""
        fullest = np.max(self.shares[:, :-1] + self.shares[:, 1:], axis=1)
        return np.asarray((fullest > CROWDED) & (self.level == 0) & ~self.at_bound & ~self.two_valued)

    @property
    def rare(self) -> NDArray[np.bool_]:
        """Which levels have a share that may be noise, and is too small to matter for the other coefficients."""
        largest = min(RARE * self.noise, RARE_FRACTION / max(len(self.level), 1))
        return np.asarray((self.level > 0) & (self.shares[:, -1] < largest))

    @property
    def at_bound(self) -> NDArray[np.bool_]:
        """Which numeric coordinates have most values at a bound."""
        first, last = self.shares[:, 0], self.shares[:, -1]
        return np.asarray(((last > LAST_BIN) | (first > FIRST_BIN)) & (self.level == 0) & ~self.two_valued)

    @property
    def one_valued(self) -> NDArray[np.bool_]:
        """Which coordinates seem to have nearly all values at one bound."""
        return np.asarray(np.maximum(self.shares[:, 0], self.shares[:, -1]) > OUTER_BINS)

    @property
    def two_valued(self) -> NDArray[np.bool_]:
        """Which coordinates have nearly all values at their two bounds."""
        first, last = self.shares[:, 0], self.shares[:, -1]
        return np.asarray((first + last > OUTER_BINS) & (np.minimum(first, last) > EACH_OUTER_BIN))


NO_MARGINALS = Marginals(np.empty((0, BINS)), np.empty(0), np.empty(0), np.empty(0), 0.0)


def marginals_of(shares: FloatArray, noise: float, schema: Schema) -> Marginals:
    """The marginals of coordinates whose bins have these noisy shares; missing values are not among them."""
    level = (schema.level >= 0).astype(float)
    clean = np.array(
        [
            _level_shares(noisy, noise) if is_level else denoise(noisy, noise)
            for noisy, is_level in zip(shares, level, strict=True)
        ]
    )
    values = np.where(level[:, None] > 0, np.where(np.arange(BINS) == 0, -1.0, 1.0), MIDDLES)
    variance_in_bin = np.where(level > 0, 0.0, (2 / BINS) ** 2 / 12)
    centre = np.sum(clean * values, axis=1)
    spread = np.sqrt(np.sum(clean * values**2, axis=1) - centre**2 + variance_in_bin)
    return Marginals(clean, centre, np.maximum(spread, LEAST_SPREAD), level, noise)


def denoise(shares: FloatArray, noise: float) -> FloatArray:
    """The shares of the bins that are probably not empty, scaled to the sum 1.

    >>> shares = np.full(BINS, 0.004); shares[[10, 11, 12]] = 0.3, 0.5, 0.2
    >>> denoise(shares, 0.005).round(1)[[9, 10, 11, 12, 13]].tolist()
    [0.0, 0.3, 0.5, 0.2, 0.0]
    """
    out = np.maximum(occupied_bins(shares, noise), 0.0)
    return np.asarray(out / out.sum()) if out.sum() > 0 else np.full(BINS, 1 / BINS)


def _level_shares(shares: FloatArray, noise: float) -> FloatArray:
    """The shares of −1 and 1, in the first and last bin of a level's coordinate; each is at least half its noise."""
    least = max(0.5 * noise, 1e-4)
    share = min(max(shares[-1] / max(shares[0] + shares[-1], 0.05), least), 1 - least)
    out = np.zeros(BINS)
    out[0], out[-1] = 1 - share, share
    return out


def quantiles(marginals: Marginals, normal: FloatArray) -> FloatArray:
    """Unit coordinates with these marginals, as quantiles of standard normal scores; bins have constant densities."""
    uniform = ndtr(normal)
    out = np.empty_like(normal)
    for j, shares in enumerate(marginals.shares):
        bins = np.flatnonzero(shares > 0)
        cumulative = np.cumsum(shares[bins])
        place = np.minimum(np.searchsorted(cumulative, uniform[:, j]), len(bins) - 1)
        within = (uniform[:, j] - cumulative[place] + shares[bins][place]) / shares[bins][place]
        out[:, j] = EDGES[bins[place]] + np.clip(within, 0.0, 1.0) * (2 / BINS)
    return out


def normal_threshold(share: float) -> float:
    """The normal score that this share of rows exceeds."""
    return float(-ndtri(min(max(share, 1e-9), 1 - 1e-9)))
