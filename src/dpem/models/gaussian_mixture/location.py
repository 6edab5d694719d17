"""The queries about single columns and their second moments, and what a fit reads from the answers: centres, shares of
missing values, spreads, histograms, correlations.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, into_ball, packed, rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like

#: The least share of rows with a value that a column is assumed to have.
LEAST_SEEN = 0.05
#: The largest share of rows without any value.
MOST_EMPTY = 0.95
#: Edges of the cells of |x − c| in unit coordinates, half an octave apart, and the spreads that are tried on them.
SPREAD_EDGES = 2.0 ** np.arange(-8, 1.01, 0.5)
SPREADS = 2.0 ** np.arange(-8, 0.01, 0.125)
#: Inner edges of the cells of a histogram, in spreads from the column's centre: a quarter of a spread wide in the
#: middle, wider outside, up to more than the bounds for the least spread.
OUTER_EDGES = np.array([3.0, 4, 6, 10, 16, 25, 40, 64, 100, 160, 256])
CELL_EDGES = np.concatenate([-OUTER_EDGES[::-1], np.arange(-2.5, 2.51, 0.25), OUTER_EDGES])
#: With more columns than this, histograms have no edges beyond 10 spreads: the noise of so many cells would take too
#: many of the principal components that tilt the surrogate rows.
COLUMNS_WITH_TAILS, LAST_EDGE = 5, 10.0
#: Cells from this number of spreads on belong to the tails, where their share exceeds this number of standard
#: deviations of the noise.
TAIL, TAIL_NOISE = 4.0, 4.0


@dataclass(frozen=True)
class Centres(NarrowQuery):
    """Σ (z, ½·o, c·e): z is the row with missing values as 0, scaled into a ball of radius ½√d; o is 1 in each column
    that is seen; e is 1 for a row without any value, c = √(d/2).

    *Lemma.* Replacing a row moves the sum by at most √(5d)/2. *Proof.* Two rows with values: the z differ by at most
    √d, the ½·o by at most ½√d, e not at all, and the squares add. A row with values and one without: ‖z‖² ≤ d/4,
    ‖½·o‖² ≤ d/4 and c² = d/2, together d. ∎
    """

    @property
    def label(self) -> str:
        return "centres and shares of missing values"

    @property
    def bound(self) -> Bound:
        size = math.sqrt(self.schema.width / 2)
        change = math.sqrt(5 * self.schema.width) / 2
        return rounded(Bound(linf=change, l2=change, size_linf=size, size_l2=size), 2 * self.schema.width + 1)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        d = self.schema.width
        z = into_ball(xp, zero_nonfinite(xp, x), 0.5 * math.sqrt(d))
        seen = xp.astype(xp.isfinite(x), xp.float64)
        empty = xp.astype(xp.max(seen, axis=1) < 0.5, xp.float64)
        n_empty = xp.reshape(math.sqrt(d / 2) * xp.sum(empty), (1,))
        return xp.concat([xp.sum(z, axis=0), 0.5 * xp.sum(seen, axis=0), n_empty])

    def read(self, mean: FloatArray, noise: float) -> tuple[FloatArray, Presence]:
        """Centres and shares of values present, from the answer and the standard deviation of its noise.

        A share of values within 2.5 standard deviations of 1 becomes 1, a share of empty rows within 4 of 0 becomes 0.
        """
        d = self.schema.width
        seen = 2 * mean[d : 2 * d]
        seen = np.where(seen > 1 - 5 * noise, 1.0, np.clip(seen, LEAST_SEEN, 1.0))  # the noise of 2·mean is 2·noise
        empty, noise = float(mean[-1]) / math.sqrt(d / 2), noise / math.sqrt(d / 2)
        empty = 0.0 if empty < 4 * noise or np.any(seen >= 1) else min(empty, MOST_EMPTY, 1 - float(seen.max()))
        return np.clip(mean[:d] / seen, -1.0, 1.0), Presence(seen, max(empty, 0.0))


@dataclass(frozen=True)
class CellCounts(NarrowQuery):
    """How many rows have their position in each cell, for every column; missing values are in no cell.

    *Lemma.* Replacing a row moves the sum by at most √(2d). *Proof.* A column counts 1 in one cell or, where it is
    missing, in none. ∎ Counts are exact in float64.
    """

    @property
    @abstractmethod
    def edges(self) -> FloatArray:
        """The inner edges of the cells; the first and the last cell are open."""

    @abstractmethod
    def position(self, xp: Namespace, x: Array) -> Array:
        """The number that the edges divide, for each row and column."""

    @property
    def bound(self) -> Bound:
        d = self.schema.width
        return Bound(linf=1.0, l2=math.sqrt(2 * d), size_linf=1.0, size_l2=math.sqrt(d))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        position = self.position(xp, x)
        known = _count(xp, ~xp.isnan(position))
        above = [known, *(_count(xp, position >= edge) for edge in self.edges.tolist())]
        return xp.concat([*(low - high for low, high in pairwise(above)), above[-1]])

    def shares(self, mean: FloatArray) -> FloatArray:
        """The answer by column (d × cells)."""
        return mean.reshape(-1, self.schema.width).T


def _count(xp: Namespace, mask: Array) -> Array:
    """In how many rows the mask is true, for each column; in memory a column at a time."""
    if isinstance(mask, np.ndarray):
        return np.array([np.count_nonzero(column) for column in mask.T], dtype=float)
    return xp.sum(xp.astype(mask, xp.float64), axis=0)


@dataclass(frozen=True)
class Spreads(CellCounts):
    """The cells of |x_j − c_j|."""

    centre: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return "spreads: cells of |x − centre|"

    @property
    def edges(self) -> FloatArray:
        return SPREAD_EDGES

    def position(self, xp: Namespace, x: Array) -> Array:
        return xp.abs(x - like(xp, self.centre, x))

    def read(self, mean: FloatArray, noise: float) -> FloatArray:
        """A standard deviation of each column: the posterior mean of its logarithm.

        The likelihood is that of a half-normal's cell shares; the prior over columns is normal on the log scale, with
        mean and standard deviation by empirical Bayes (the median and 0.7 to begin with, at least 0.05).
        """
        shares, log_spread = self.shares(mean), np.log(SPREADS)
        edges = np.concatenate([[0.0], self.edges, [np.inf]])
        expected = np.diff(2 * ndtr(edges[None] / SPREADS[:, None]) - 1, axis=1)
        seen = np.clip(shares.sum(axis=1), LEAST_SEEN, 1.05)
        misfit = ((shares[:, None, :] - seen[:, None, None] * expected[None]) ** 2).sum(axis=-1)
        log_likelihood = -0.5 * misfit / (noise**2 + 1e-6)
        prior_mean, prior_sd = float(np.median(log_spread[np.argmax(log_likelihood, axis=1)])), 0.7
        for _ in range(5):
            log_posterior = log_likelihood - 0.5 * ((log_spread - prior_mean) / prior_sd) ** 2
            posterior = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
            posterior /= posterior.sum(axis=1, keepdims=True)
            means = posterior @ log_spread
            variances = (posterior * (log_spread - means[:, None]) ** 2).sum(axis=1)
            prior_mean = float(means.mean())
            prior_sd = math.sqrt(max(float(np.mean((means - prior_mean) ** 2 + variances)), 0.0025))
        return np.exp(means)


@dataclass(frozen=True)
class Margins(CellCounts):
    """A histogram of every column: the cells of (x_j − c_j)/spread_j."""

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return f"histogram of every column, {len(self.edges) + 1} cells"

    @property
    def edges(self) -> FloatArray:
        return CELL_EDGES if self.schema.width <= COLUMNS_WITH_TAILS else CELL_EDGES[np.abs(CELL_EDGES) <= LAST_EDGE]

    def position(self, xp: Namespace, x: Array) -> Array:
        return (x - like(xp, self.centre, x)) / like(xp, self.spread, x)

    def each(self, xp: Namespace, x: Array) -> Array:
        """The contribution of each row (m × cells·d)."""
        position = self.position(xp, x)
        cell = sum(xp.astype(position >= edge, xp.float64) for edge in self.edges.tolist())
        cell = xp.where(xp.isfinite(position), cell, xp.full_like(position, -1.0))
        return xp.concat([xp.astype(cell == float(k), xp.float64) for k in range(len(self.edges) + 1)], axis=1)

    def tail_cells(self, mean: FloatArray, noise: float) -> TailCells:
        """The cells in the tails whose shares clearly exceed the noise."""
        edges = np.concatenate([[-np.inf], self.edges, [np.inf]])
        ends = np.clip(self.centre[:, None] + self.spread[:, None] * edges, -1.0, 1.0)
        shares, in_tail = self.shares(mean), (edges[:-1] >= TAIL) | (edges[1:] <= -TAIL)
        column, cell = np.nonzero((shares > TAIL_NOISE * noise) & in_tail & (ends[:, 1:] > ends[:, :-1]))
        return TailCells(column, ends[column, cell], ends[column, cell + 1], np.minimum(shares[column, cell], 0.5))

    def constant_columns(self, mean: FloatArray, noise: float) -> tuple[ConstantColumn, ...]:
        """Columns with at least 90 % of their values in one cell, and all of them as far as the noise shows."""
        edges = np.concatenate([[-np.inf], self.edges, [np.inf]])
        columns = []
        for j, shares in enumerate(self.shares(mean)):
            cell, total = int(np.argmax(shares)), float(shares.sum())
            if shares[cell] >= max(0.9 * total, total - 2 * noise * math.sqrt(len(shares))):
                low, high = np.clip(self.centre[j] + self.spread[j] * edges[cell : cell + 2], -1.0, 1.0)
                columns.append(ConstantColumn(j, float(low), float(high)))
        return tuple(columns)


@dataclass(frozen=True)
class SecondMoments(NarrowQuery):
    """Σ (√κ·R·z, zzᵀ packed), z = (x − centre)/spread with missing values as 0, in a ball of radius R.

    *Lemma.* Replacing a row moves the sum by at most √2·R²(1 + κ/2), for κ ≤ 2. *Proof.* Let z, z′ have lengths a, b ≤
    R and inner product t. The squared distance is κR²(a² + b² − 2t) + a⁴ + b⁴ − 2t². For a given t it grows with a
    and b, so let a = b = R; with τ = t/R² it is R⁴(2κ(1 − τ) + 2(1 − τ²)), largest at τ = −κ/2, where it is
    R⁴(2 + 2κ + κ²/2) = 2R⁴(1 + κ/2)². ∎ The means are nearly free: κ = 0.2 costs a tenth.
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    radius: float
    kappa: float = 0.2

    @property
    def label(self) -> str:
        return f"second moments of {self.schema.width} columns"

    @property
    def bound(self) -> Bound:
        R2 = self.radius**2
        change, size = math.sqrt(2) * R2 * (1 + self.kappa / 2), R2 * math.sqrt(1 + self.kappa)
        return rounded(Bound(linf=change, l2=change, size_linf=size, size_l2=size), 4 * self.schema.width)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        z = (x - like(xp, self.centre, x)) / like(xp, self.spread, x)
        z = into_ball(xp, zero_nonfinite(xp, z), self.radius)
        first = math.sqrt(self.kappa) * self.radius * xp.sum(z, axis=0)
        return xp.concat([first, packed(xp, over_rows(xp, z, z))])


@dataclass(frozen=True)
class Presence:
    """Shares of rows with a value in each column, and of rows without any value."""

    seen: FloatArray
    empty: float = 0.0

    @property
    def seen_if_any(self) -> FloatArray:
        """The shares with a value in each column among rows that have any."""
        return np.minimum(self.seen / (1 - self.empty), 1.0)

    @property
    def seen_pairs(self) -> FloatArray:
        """Shares of rows with values in both of two columns, if rows that have any value miss others independently."""
        both = (1 - self.empty) * np.outer(self.seen_if_any, self.seen_if_any)
        both[np.diag_indices(len(both))] = self.seen
        return both

    def patterns(self, count: int, rng: np.random.Generator) -> FloatArray | None:
        """Random patterns of rows that have any value (1 where one is seen); None where no value is missing."""
        if np.all(self.seen_if_any >= 1):
            return None
        patterns = (rng.random((20 * count, len(self.seen))) < self.seen_if_any).astype(float)
        patterns = patterns[patterns.sum(axis=1) > 0]
        return patterns[:count] if len(patterns) else np.ones((1, len(self.seen)))


class ConstantColumn(NamedTuple):
    """A column with all its values in one cell of the histogram, and the ends of that cell in unit coordinates."""

    column: int
    low: float
    high: float


class TailCells(NamedTuple):
    """Cells of the histograms in the tails that hold rows: the column, the ends in unit coordinates, the share."""

    column: NDArray[np.intp]
    low: FloatArray
    high: FloatArray
    share: FloatArray

    def with_tails(self, centre: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the columns: those of the other rows (centre, spread) and the tails."""
        away = (self.low + self.high) / 2 - centre[self.column]
        first, second, share = np.zeros(len(centre)), np.zeros(len(centre)), np.zeros(len(centre))
        np.add.at(first, self.column, self.share * away)
        np.add.at(second, self.column, self.share * away**2)
        np.add.at(share, self.column, self.share)
        share = np.minimum(share, 0.9)
        return centre + first, np.sqrt((1 - share) * spread**2 + np.maximum(second - first**2, 0.0))

    def moved_into(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The rows, each with at least one value moved into a cell of the tails.

        The first cell is drawn by the shares; every other column with such cells is moved too in half of the rows.
        """
        rows = rows.copy()
        first = rng.choice(len(self.share), size=len(rows), p=self.share / self.share.sum())
        for j in np.unique(self.column):
            cells = np.flatnonzero(self.column == j)
            cell = rng.choice(cells, size=len(rows), p=self.share[cells] / self.share[cells].sum())
            is_first = self.column[first] == j
            cell = np.where(is_first, first, cell)
            value = self.low[cell] + rng.random(len(rows)) * (self.high - self.low)[cell]
            rows[:, j] = np.where(is_first | (rng.random(len(rows)) < 0.5), value, rows[:, j])
        return rows


class VarianceComponents(NamedTuple):
    """The second moments of columns of unit spread, divided into the variance of centres and that within components.

    ``directions`` are orthonormal columns, ``between`` the variance of centres along each, ``within`` the variance of a
    component in any direction, ``edge`` the largest eigenvalue that noise alone has, ``correlation`` that of all rows.
    """

    directions: FloatArray
    between: FloatArray
    within: float
    edge: float
    correlation: FloatArray
