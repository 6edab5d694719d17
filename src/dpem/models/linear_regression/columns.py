"""Centres and spreads of columns and shares of levels, from one release of noisy histograms, and the coding of columns.

A factor with the shares p of its levels but the baseline is coded as z = C(p)^(−½)(d − p), d its dummies and C(p) =
diag(p) − ppᵀ their covariance. *Lemma.* A row of level k has ‖z‖² = 1/p_k − 1, the baseline too, so lengths and inner
products do not depend on which level is the baseline. *Proof.* C(p)⁻¹ = diag(1/p) + 11ᵀ/p₀ with p₀ = 1 − Σp, hence
(e_k − p)ᵀC⁻¹(e_l − p) = [k = l]/p_k − 1 for all levels, with e₀ = 0. ∎ Another baseline therefore only rotates the
coordinates, and clips and noise depend on lengths alone. Second moments within a factor follow from the shares, so they
need no release of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from dpem.models.linear_regression.tuning import TUNING
from dpem.queries.histograms import BINS, EDGES, MIDDLES, OCCUPIED, bin_counts, occupied_bins, with_response
from dpem.queries.narrow import NarrowQuery, weighted
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.schema import Schema

#: The smallest spread that can be distinguished, half a bin.
LEAST = 0.5 / BINS


def factors(schema: Schema) -> list[NDArray[np.intp]]:
    """The coordinates of each categorical column, those of its levels but the baseline."""
    level = np.flatnonzero(schema.level >= 0)
    return [level[schema.column[level] == column] for column in dict.fromkeys(schema.column[level].tolist())]


@dataclass(frozen=True)
class ColumnHistograms(NarrowQuery):
    """The number of rows in each bin of every column and of the response. A numeric column has BINS bins and one for
    missing values; a categorical column has a bin for each of its coordinates, one for all other levels and one for
    missing values. Rows without a response count as missing everywhere.

    *Lemma.* ℓ∞ sensitivity 1 and ℓ2 sensitivity √(2k) for k columns, the response among them, however many levels
    there are. *Proof.* The coordinates of a categorical column are computed from one entry and at most one of them is
    +1, so a row is counted in exactly one bin of each column. Replacing it takes one from a bin of each column and adds
    one to another. Counts are whole numbers, so nothing is rounded. ∎
    """

    with_response: bool = True

    @property
    def label(self) -> str:
        return f"histogram of every column: {BINS} bins of a numeric one, the levels of a categorical one"

    @property
    def bound(self) -> Bound:
        k = len(np.unique(self.schema.column)) + self.with_response
        return Bound(linf=1.0, l2=math.sqrt(2.0 * k), size_linf=1.0, size_l2=math.sqrt(k))

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        numeric = [int(j) for j in np.flatnonzero(self.schema.level < 0)]
        entries = with_response(xp, x, y, numeric) + ([y] if self.with_response else [])
        parts = [bin_counts(xp, entries, shares)] if entries else []
        for factor in factors(self.schema):
            entries = with_response(xp, x, y, map(int, factor))
            inside = [xp.sum(weighted(xp.astype(entry == 1.0, xp.float64), shares)) for entry in entries]
            absent = xp.sum(weighted(xp.astype(xp.isnan(entries[0]), xp.float64), shares))
            others = xp.sum(weighted(xp.ones_like(y), shares)) - absent - sum(inside[1:], start=inside[0])
            parts.append(xp.stack([*inside, others, absent]))
        return xp.concat(parts)

    def split(self, shares: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """The shares of the numeric columns and the response, one row each, and those of each factor."""
        rows = int(np.sum(self.schema.level < 0)) + self.with_response
        ends = np.cumsum([rows * (BINS + 1), *(len(factor) + 2 for factor in factors(self.schema))])
        first, *others = np.split(shares, ends[:-1])
        return first.reshape(rows, BINS + 1), others


class Columns(NamedTuple):
    """Released summaries of each coordinate, the response last.

    ``seen`` is the share of rows in which it is observed (for columns, of the rows that have a response); ``low_end``,
    ``high_end`` and ``fullest`` are its shares at the bounds and in the fullest two adjacent bins; ``noise`` is the
    standard deviation of a share's noise; ``least`` is the least spread at which its far rows are not clipped (0 where
    none are far); ``share`` is the share at the upper bound of a coordinate with two values, else NaN.
    """

    centre: FloatArray
    spread: FloatArray
    seen: FloatArray
    low_end: FloatArray
    high_end: FloatArray
    fullest: FloatArray
    noise: FloatArray
    least: FloatArray
    share: FloatArray

    @property
    def rarely_seen(self) -> NDArray[np.bool_]:
        """Which coordinates are observed too rarely to estimate anything about them."""
        return np.asarray(self.seen < np.maximum(TUNING.rarely_seen, 3 * self.noise))

    @property
    def crowded(self) -> NDArray[np.bool_]:
        """Which numeric coordinates have nearly all rows in two adjacent bins, so that bounds are much too wide."""
        return np.asarray((self.fullest > TUNING.crowded) & np.isnan(self.share))

    @property
    def binary_response(self) -> bool:
        return not math.isnan(self.share[-1])

    def take(self, some: slice) -> Columns:
        """The summaries of some coordinates."""
        return Columns(*(part[some] for part in self))

    def of_present(self, response: Columns) -> Columns:
        """Shares of all rows turned into shares of the rows that have a response."""
        present = float(response.seen[-1])
        return self._replace(seen=np.minimum(self.seen / present, 1.0), noise=self.noise / present)

    def with_columns(self, new: Columns) -> Columns:
        """These summaries with further coordinates before the response."""
        return Columns(*(np.concatenate([old[:-1], added, old[-1:]]) for old, added in zip(self, new, strict=True)))


def column_summaries(query: ColumnHistograms, shares: FloatArray, noise: float) -> Columns:
    """Summaries of the coordinates in their order, and of the response if it was counted, from noisy shares."""
    schema = query.schema
    numeric, levels = query.split(shares)
    indicator = np.append((schema.middle == 0.5) & (schema.half == 0.5), schema.y_middle == schema.y_half == 0.5)
    order = np.flatnonzero(schema.level < 0)
    numeric_fields = [*order, *([schema.width] if query.with_response else [])]
    fields = np.full((9, schema.width + query.with_response), np.nan)
    if numeric_fields:
        fields[:, numeric_fields] = numeric_columns(numeric, noise, indicator[numeric_fields])
    for factor, released in zip(factors(schema), levels, strict=True):
        fields[:, factor] = _level_summaries(released, noise)
    return Columns(*fields)


def numeric_columns(shares: FloatArray, noise: float, indicator: NDArray[np.bool_] | None = None) -> Columns:
    """Summaries of numeric columns from one row of noisy shares each; the last share is that of missing values.

    Centre and spread come from quantiles as far out as the noise allows, and from bins beyond them that are clearly not
    empty, since a column of zeros and a few ones has its quantiles at 0. If noise may hide such ones, the spread is
    what they would make it: with too small a spread they would outweigh all other rows. ``indicator`` marks columns
    with the bounds 0 and 1; one without clear shares between has two values and is centred at its mean.

    >>> shares = np.zeros((1, BINS + 1)); shares[0, [0, BINS - 1]] = 0.9, 0.1
    >>> numeric_columns(shares, 0.001).spread.round(1).tolist()
    [0.6]
    """
    seen = np.clip(1 - shares[:, -1], max(0.02, 2 * noise), 1.0)
    summaries = [_centre_and_spread(row[:-1] / part, noise / part) for row, part in zip(shares, seen, strict=True)]
    centre, spread = np.array(summaries).T
    ends = np.clip(shares[:, [0, BINS - 1]] / seen[:, None], 0.0, 1.0)
    hidden = 3.5 * noise / seen  # a share that noise may hide: 3.5 standard deviations
    others, rare_end = 1 - np.max(ends, axis=1), np.min(ends, axis=1)
    two = (rare_end > hidden) & (rare_end > 0.5 * others)
    binary = (False if indicator is None else indicator) & (two | (others - rare_end < 1.5 * hidden))
    share = np.where(binary, np.clip(ends[:, 1] / np.maximum(ends.sum(axis=1), 0.02), 0.0, 1.0), np.nan)
    lopsided = two & ~binary & (others < 1 - TUNING.lopsided)
    least = np.where(lopsided, (1 + np.abs(centre)) / TUNING.reach, 0.0)
    one_bin = np.max(shares[:, :-1], axis=1) / seen > TUNING.crowded
    least = np.maximum(least, np.where(one_bin & (spread > LEAST) & ~two & ~binary, spread, 0.0))
    fullest = np.clip(np.max(shares[:, :-2] + shares[:, 1:-1], axis=1) / seen, 0.0, 1.0)
    centre = np.where(binary, 2 * share - 1, centre)
    spread = np.where(binary, np.sqrt(np.maximum(4 * share * (1 - share), hidden)), np.maximum(spread, least))
    low, high = ends.T
    return Columns(centre, spread, seen, low, high, fullest, np.full(len(seen), noise), least, share)


def _level_summaries(released: FloatArray, noise: float) -> FloatArray:
    """The fields of :class:`Columns` for the levels of a factor, from noisy shares that add up to 1: of its levels, of
    all other levels and of missing values.

    >>> _level_summaries(np.array([0.3, 0.1, 0.6, 0.0]), 0.0)[-1].round(2).tolist()
    [0.3, 0.1]
    """
    seen = float(np.clip(1 - released[-1], max(0.02, 2 * noise), 1.0))
    shares, count = released[:-1] / seen, len(released) - 1
    shares = np.maximum(shares + (1 - shares.sum()) / count, 0.0)
    share, zero = (shares / shares.sum())[:-1], np.zeros(count - 1)
    spread = 2 * np.sqrt(np.maximum(share * (1 - share), max(noise, 1e-6)))
    rest = (np.full(count - 1, seen), zero, zero, zero, np.full(count - 1, noise), zero, share)
    return np.array([2 * share - 1, spread, *rest])


def _centre_and_spread(shares: FloatArray, noise: float) -> tuple[float, float]:
    """Centre and spread from the quantiles q and 1 − q, and from clearly occupied bins beyond them."""
    shares = occupied_bins(shares, noise)
    q = min(max(2 * noise * math.sqrt(BINS / 4), 0.05), 0.25)  # twice the noise of a cumulative share
    below = np.concatenate([[0.0], isotonic_regression(np.cumsum(shares)).x])
    below = np.clip(below / max(below[-1], 0.2), 0.0, 1.0)
    low, high = (float(np.interp(level, below, EDGES)) for level in (q, 1 - q))
    centre, spread = (low + high) / 2, (high - low) / (2 * float(ndtri(1 - q)))
    outer = ((low - 2 / BINS > MIDDLES) | (high + 2 / BINS < MIDDLES)) & (shares > OCCUPIED * noise)
    square = spread**2 + float(np.sum(shares[outer] * (MIDDLES[outer] - centre) ** 2))
    if max(shares) > 0.5 or spread <= 1 / BINS:  # a share that the noise hides may lie at the far end
        square = max(square, noise * (1 + abs(centre)) ** 2)
    return centre, max(math.sqrt(square), LEAST)


BoolArray = NDArray[np.bool_]


class Coding(NamedTuple):
    """The coding z = scale·(u − centre) of unit coordinates u.

    ``from_shares`` marks the second moments that follow from shares of levels; ``gram`` holds these, ``gram_variance``
    and ``mean_variance`` the variances of their errors and of the errors of the means, which are 0. Rows with a level
    in ``excluded``, which is too rare, do not count. ``unused`` marks these levels and columns that are hardly
    observed.
    """

    centre: FloatArray
    scale: FloatArray
    from_shares: BoolArray
    gram: FloatArray
    gram_variance: FloatArray
    mean_variance: FloatArray
    excluded: tuple[int, ...]
    unused: BoolArray


def column_coding(schema: Schema, columns: Columns, *, jointly: bool) -> Coding:
    """The coding of columns with these summaries; without ``jointly`` each level is coded on its own."""
    p = schema.width
    share, noise = columns.share[:p], columns.noise[:p]
    private = bool(noise.any())
    rare = (share < TUNING.rare_level * noise) & (share < 1 / (4 * (p + 1)))  # not where it is NaN, of numeric columns
    scale, from_shares = np.diag(1 / columns.spread[:p]), np.zeros((p, p), dtype=bool)
    gram, gram_variance, mean_variance = np.eye(p), np.zeros((p, p)), np.zeros(p)
    two_valued = [np.array([j]) for j in np.flatnonzero(~np.isnan(share) & (schema.level < 0))]
    levels = factors(schema) if jointly else [np.array([j]) for j in np.flatnonzero(schema.level >= 0)]
    for factor in (*levels, *two_valued) if private else ():
        for part in (factor[~rare[factor]], *(factor[[i]] for i in np.flatnonzero(rare[factor]))):
            if not len(part):
                continue
            root = _inverse_root(_share_floor(share[part], p))
            block, squares = np.ix_(part, part), root**2
            scale[block] = root / 2
            from_shares[block] = True
            gram[block] = root @ _level_covariance(share[part]) @ root
            gram_variance[block] = squares @ (noise[part, None] ** 2 * squares.T)
            mean_variance[part] = squares @ noise[part] ** 2
    unused = (rare | columns.rarely_seen[:p]) if private else np.zeros(p, dtype=bool)
    excluded = tuple(int(j) for j in np.flatnonzero(rare)) if private else ()
    return Coding(columns.centre[:p], scale, from_shares, gram, gram_variance, mean_variance, excluded, unused)


def _share_floor(share: FloatArray, p: int) -> FloatArray:
    """Shares raised to a least share, that of the baseline too, so that rows of rare levels are not too long."""
    shares = np.maximum(np.append(share, 1 - share.sum()), 1 / (2 * (p + 1)))
    return np.asarray((shares / shares.sum())[:-1])


def _level_covariance(share: FloatArray) -> FloatArray:
    """C(p) = diag(p) − ppᵀ."""
    return np.diag(share) - np.outer(share, share)


def _inverse_root(share: FloatArray) -> FloatArray:
    """C(p)^(−½)."""
    values, vectors = np.linalg.eigh(_level_covariance(share))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
