"""The distribution of each coordinate between its bounds, from a noisy histogram."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpem.queries.histograms import BINS, EDGES, MIDDLES, occupied_bins
from dpem.query import FloatArray
from dpem.tables.schema import Schema

#: Columns are at a bound if more than this is in the last bin, or in the first; not if nearly all values are in these
#: two, with so many in each.
LAST, FIRST, BOTH, EACH = 0.5, 0.95, 0.9, 0.02
#: Levels are rare if their share is below so many standard deviations of its noise.
RARE = 2.0
#: And below this part of the share of a level, if there were as many as columns, that were all of one share.
RARE_PART = 0.25
#: Columns of which so many of the values lie in two bins are said to have bounds that are too wide.
CROWDED = 0.9


class Marginals(NamedTuple):
    """Of each coordinate: the shares of its bins, its mean and standard deviation, whether it is a level (−1 or 1), and
    the standard deviation of the noise of a share.
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

    def completed(self, drawn: NDArray[np.intp], u: FloatArray) -> Marginals:
        """Those of all coordinates of surrogate rows, of which these are the ``drawn`` ones."""
        place = np.clip(np.floor((u + 1) * (BINS / 2)), 0, BINS - 1)
        shares = (place[:, :, None] == np.arange(BINS)).mean(axis=0)
        centre, spread, level = u.mean(axis=0), np.maximum(u.std(axis=0), 0.5 / BINS), np.zeros(u.shape[1])
        shares[drawn], centre[drawn], spread[drawn], level[drawn] = self[:4]
        return Marginals(shares, centre, spread, level, self.noise)

    @property
    def crowded(self) -> NDArray[np.bool_]:
        """Which numeric coordinates have nearly all values in two adjacent bins."""
        fullest = np.max(self.shares[:, :-1] + self.shares[:, 1:], axis=1)
        return np.asarray((fullest > CROWDED) & (self.level == 0) & ~self.at_bound & ~self.two_valued)

    @property
    def rare(self) -> NDArray[np.bool_]:
        """Which levels have a share that may be noise, and is too small to matter for the other coefficients."""
        most = min(RARE * self.noise, RARE_PART / max(len(self.level), 1))
        return np.asarray((self.level > 0) & (self.shares[:, -1] < most))

    @property
    def at_bound(self) -> NDArray[np.bool_]:
        """Which numeric coordinates have most values at a bound."""
        first, last = self.shares[:, 0], self.shares[:, -1]
        return np.asarray(((last > LAST) | (first > FIRST)) & (self.level == 0) & ~self.two_valued)

    @property
    def one_end(self) -> NDArray[np.bool_]:
        """Which coordinates seem to have nearly all values at one bound."""
        return np.asarray(np.maximum(self.shares[:, 0], self.shares[:, -1]) > BOTH)

    @property
    def two_valued(self) -> NDArray[np.bool_]:
        """Which coordinates have nearly all values at their two bounds."""
        first, last = self.shares[:, 0], self.shares[:, -1]
        return np.asarray((first + last > BOTH) & (np.minimum(first, last) > EACH))


NONE = Marginals(np.empty((0, BINS)), np.empty(0), np.empty(0), np.empty(0), 0.0)


def marginals(shares: FloatArray, noise: float, schema: Schema) -> Marginals:
    """What noisy shares of bins (without that of missing values) say of each coordinate."""
    level = (schema.level >= 0).astype(float)
    likely = np.array(
        [
            _level(each, noise) if is_level else denoised(each, noise)
            for each, is_level in zip(shares, level, strict=True)
        ]
    )
    values = np.where(level[:, None] > 0, np.where(np.arange(BINS) == 0, -1.0, 1.0), MIDDLES)
    within = np.where(level > 0, 0.0, (2 / BINS) ** 2 / 12)
    centre = np.sum(likely * values, axis=1)
    spread = np.sqrt(np.sum(likely * values**2, axis=1) - centre**2 + within)
    return Marginals(likely, centre, np.maximum(spread, 0.5 / BINS), level, noise)


def denoised(shares: FloatArray, noise: float) -> FloatArray:
    """The shares of bins that are probably not empty, which add up to 1.

    >>> shares = np.full(BINS, 0.004); shares[[10, 11, 12]] = 0.3, 0.5, 0.2
    >>> denoised(shares, 0.005).round(1)[[9, 10, 11, 12, 13]].tolist()
    [0.0, 0.3, 0.5, 0.2, 0.0]
    """
    out = np.maximum(occupied_bins(shares, noise), 0.0)
    return np.asarray(out / out.sum()) if out.sum() > 0 else np.full(BINS, 1 / BINS)


def _level(shares: FloatArray, noise: float) -> FloatArray:
    """Shares of a level's coordinate, which is −1 or 1: the first and last bin. A share is at least half its noise."""
    least = max(0.5 * noise, 1e-4)
    yes = min(max(shares[-1] / max(shares[0] + shares[-1], 0.05), least), 1 - least)
    out = np.zeros(BINS)
    out[0], out[-1] = 1 - yes, yes
    return out


def quantiles(marginals: Marginals, normal: FloatArray) -> FloatArray:
    """Rows of standard normal scores as coordinates with these marginals, by inverse distribution functions that are
    straight within a bin.
    """
    uniform = ndtr(normal)
    out = np.empty_like(normal)
    for j, shares in enumerate(marginals.shares):
        bins = np.flatnonzero(shares > 0)
        upto = np.cumsum(shares[bins])
        place = np.minimum(np.searchsorted(upto, uniform[:, j]), len(bins) - 1)
        part = (uniform[:, j] - upto[place] + shares[bins][place]) / shares[bins][place]
        out[:, j] = EDGES[bins[place]] + np.clip(part, 0.0, 1.0) * (2 / BINS)
    return out


def threshold(share: float) -> float:
    """The normal score above which a part ``share`` of rows lies."""
    return float(-ndtri(min(max(share, 1e-9), 1 - 1e-9)))
