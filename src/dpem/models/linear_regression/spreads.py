"""Centres and spreads of columns from noisy histograms between public bounds, however wide the bounds are."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from dpem.queries.histograms import BINS
from dpem.query import FloatArray

_EDGES = np.arange(BINS + 1) / (BINS / 2) - 1
_MIDDLES = (_EDGES[1:] + _EDGES[:-1]) / 2
#: The least spread that is told, half a bin: bounds wider than some sixty spreads are too wide to be told.
LEAST = 0.5 / BINS
#: A coordinate that so few rows have, or no more than noise, is taken as one that no row has.
RARE = 0.05
#: A column of which so many rows lie at one end of the bounds is lopsided, as that of a rare level is.
LOPSIDED = 0.75
#: A lopsided column has its far rows no more than so many spreads away: farther ones would be clipped, and with them
#: all that tells of its slope.
REACH = 3.3
#: Where one bin holds so many of the rows, the few others may lie anywhere: codes such as 9999 often do.
CROWDED = 0.9

#: A bin with a share of so many standard deviations is occupied: noise alone passes this in 0.5 % of histograms
#: (Bonferroni).
OCCUPIED = -float(ndtri(0.005 / BINS))


class Spreads(NamedTuple):
    """Of each coordinate: its centre, spread, the share of rows that have it, the shares at the ends of its bounds, the
    share in its fullest bin, the standard deviation of the noise of a share, and the spread below which its far rows
    would be clipped (0 where they are not far). The response comes last; the shares of the others are of the rows that
    have a response.
    """

    centre: FloatArray
    spread: FloatArray
    seen: FloatArray
    low_end: FloatArray
    high_end: FloatArray
    fullest: FloatArray
    noise: FloatArray
    least: FloatArray

    @property
    def rare(self) -> NDArray[np.bool_]:
        """Which coordinates are seen too rarely to tell anything of them."""
        return np.asarray(self.seen < np.maximum(RARE, 3 * self.noise))

    @property
    def crowded(self) -> NDArray[np.bool_]:
        """Which coordinates have nearly all rows in one bin: what is beside it is hardly seen."""
        return np.asarray(self.fullest > CROWDED)

    def take(self, some: slice) -> Spreads:
        """Those of some coordinates."""
        return Spreads(*(part[some] for part in self))

    def of_present(self, response: Spreads) -> Spreads:
        """These, shares of all rows, as shares of the rows that have the response."""
        present = float(response.seen[-1])
        return self._replace(seen=np.minimum(self.seen / present, 1.0), noise=self.noise / present)

    def with_columns(self, new: Spreads) -> Spreads:
        """These with further coordinates put before the response."""
        return Spreads(*(np.concatenate([old[:-1], more, old[-1:]]) for old, more in zip(self, new, strict=True)))


def spreads(shares: FloatArray, noise: float, indicator: NDArray[np.bool_] | None = None) -> Spreads:
    """Spreads of coordinates of whose bins (and holes) these are the noisy shares, a row for each coordinate.

    Quantiles as far out as the noise allows, and beyond them bins that are clearly not empty: a column of zeros and a
    few ones has its quantiles at 0. Where so few are ones that noise hides them, the spread is what they would make of
    it: too small a spread would let them outweigh all other rows. ``indicator`` tells which columns are publicly
    known to hold zeros and ones, as those of levels do.

    >>> shares = np.zeros((1, BINS + 1)); shares[0, [0, BINS - 1]] = 0.9, 0.1
    >>> spreads(shares, 0.001).spread.round(1).tolist()
    [0.6]
    """
    seen = np.clip(1 - shares[:, -1], max(0.02, 2 * noise), 1.0)
    parts = [_one(own[:-1] / part, noise / part) for own, part in zip(shares, seen, strict=True)]
    centre, spread = (np.array(side) for side in zip(*parts, strict=True))
    ends = np.clip(shares[:, [0, BINS - 1]] / seen[:, None], 0.0, 1.0)
    hidden = 3.5 * noise / seen
    others, far = 1 - np.max(ends, axis=1), np.min(ends, axis=1)
    two = (far > hidden) & (far > 0.5 * others)
    if indicator is not None:
        two |= indicator & (others - far < 1.5 * hidden)  # nothing shows between the ends
        # The columns of a factor's levels add up to at most 1: centred anywhere but at their shares they would all
        # share one large mean, and the error of subtracting it would fall on the baseline.
        share = np.clip(ends[:, 1] / np.maximum(ends.sum(axis=1), 0.02), 0.0, 1.0)
        own = indicator & two
        centre = np.where(own, 2 * share - 1, centre)
        spread = np.where(own, np.sqrt(np.maximum(4 * share * (1 - share), hidden)), spread)
    least = np.where(two & (others < 1 - LOPSIDED), (1 + np.abs(centre)) / REACH, 0.0)
    fullest = np.clip(np.max(shares[:, :-1], axis=1) / seen, 0.0, 1.0)
    least = np.maximum(least, np.where((fullest > CROWDED) & (spread > LEAST) & ~two, spread, 0.0))
    told = (seen, ends[:, 0], ends[:, 1], fullest, np.full(len(seen), noise), least)
    return Spreads(centre, np.maximum(spread, least), *told)


def _cleaned(shares: FloatArray, noise: float) -> FloatArray:
    """The shares without those of bins that are probably empty. A cumulative sum over many empty bins is a random walk,
    and its quantiles wander: spreads came out 4 to 9 times too large in 15 % of fits. Kept are the run of bins that
    maximises Σ(share − noise), and single bins beyond :data:`OCCUPIED`.

    >>> _cleaned(np.array([0.01, -0.02, 0.5, 0.4, 0.02, -0.01]), 0.02).tolist()
    [0.0, 0.0, 0.5, 0.4, 0.0, 0.0]
    """
    total, low, run = np.concatenate([[0.0], np.cumsum(shares - noise)]), 0, (0, len(shares))
    best = -math.inf
    for high in range(1, len(total)):
        if total[high] - total[low] > best:
            best, run = total[high] - total[low], (low, high)
        low = high if total[high] < total[low] else low
    place = np.arange(len(shares))
    kept = ((place >= run[0]) & (place < run[1])) | (shares > OCCUPIED * noise)
    return np.where(kept, shares, 0.0)


def _one(shares: FloatArray, noise: float) -> tuple[float, float]:
    shares = _cleaned(shares, noise)
    level = min(max(2 * noise * math.sqrt(BINS / 4), 0.05), 0.25)
    below = np.concatenate([[0.0], isotonic_regression(np.cumsum(shares)).x])
    below = np.clip(below / max(below[-1], 0.2), 0.0, 1.0)
    low, high = _crossing(below, level), _crossing(below, 1 - level)
    centre, spread = (low + high) / 2, (high - low) / (2 * float(ndtri(1 - level)))
    far = ((low - 2 / BINS > _MIDDLES) | (high + 2 / BINS < _MIDDLES)) & (shares > OCCUPIED * noise)
    square = spread**2 + float(np.sum(shares[far] * (_MIDDLES[far] - centre) ** 2))
    if spread <= 1 / BINS:  # one bin holds nearly all rows: as many as the noise hides may lie at the far end
        square = max(square, noise * (1 + abs(centre)) ** 2)
    return centre, max(math.sqrt(square), LEAST)


def _crossing(below: FloatArray, level: float) -> float:
    """Where an increasing function on the edges of the bins passes the level."""
    i = min(max(int(np.searchsorted(below, level)), 1), BINS)
    rise = below[i] - below[i - 1]
    part = 0.5 if rise <= 0 else min(max((level - below[i - 1]) / rise, 0.0), 1.0)
    return float(_EDGES[i - 1] + part * (_EDGES[i] - _EDGES[i - 1]))
