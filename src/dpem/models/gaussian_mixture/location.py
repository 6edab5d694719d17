"""Where the columns lie and how wide they are: centres, shares of missing values, spreads, histograms, correlations."""

from __future__ import annotations

import math
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

#: The least share of rows with a value that a column is supposed to have.
LEAST_SEEN = 0.05
#: Edges of the cells of |x − c|, in unit coordinates: half an octave each.
EDGES = 2.0 ** np.arange(-8, 1.01, 0.5)
#: Inner edges of the cells of a column's histogram, in spreads from its centre: wider cells far out, beyond the bounds
#: for the least spread.
_OUTER = np.array([3.0, 4, 6, 10, 16, 25, 40, 64, 100, 160, 256])
CELL_EDGES = np.concatenate([-_OUTER[::-1], np.arange(-2.5, 2.51, 0.25), _OUTER])
#: Up to so many columns cells reach to the bounds; of more, cells beyond 10 spreads crowd out what tilts the rows.
FEW = 5
_GRID = 2.0 ** np.arange(-8, 0.01, 0.125)


@dataclass(frozen=True)
class Centres(NarrowQuery):
    """Σ (z, ½·o, c·e): the row with missing values as 0, in a ball of radius ½√d; o is 1 in each column that is seen;
    e is 1 for a row without any value, c = √(d/2).

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
        one = xp.reshape(math.sqrt(d / 2) * xp.sum(empty), (1,))
        return xp.concat([xp.sum(z, axis=0), 0.5 * xp.sum(seen, axis=0), one])

    def read(self, mean: FloatArray, scale: float) -> tuple[FloatArray, Presence]:
        """Centres and shares of values present, of an answer with noise of that scale; a share that may well be 1 is 1,
        one of empty rows that may well be 0 is 0.
        """
        d = self.schema.width
        seen = 2 * mean[d : 2 * d]
        seen = np.where(seen > 1 - 5 * scale, 1.0, np.clip(seen, LEAST_SEEN, 1.0))
        empty, noise = float(mean[-1]) / math.sqrt(d / 2), scale / math.sqrt(d / 2)
        empty = 0.0 if empty < 4 * noise or np.any(seen >= 1) else min(empty, 0.95, 1 - float(seen.max()))
        return np.clip(mean[:d] / seen, -1.0, 1.0), Presence(seen, max(empty, 0.0))


@dataclass(frozen=True)
class Spreads(NarrowQuery):
    """In which cell of widths |x_j − c_j| lies, for every column that is seen.

    *Lemma.* Replacing a row moves the sum by at most √(2d). *Proof.* A column counts 1 in one cell or, where
    it is missing, in none. ∎ Counts are exact in float64.
    """

    centre: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return "spreads: cells of |x − centre|"

    @property
    def bound(self) -> Bound:
        d = self.schema.width
        return Bound(linf=1.0, l2=math.sqrt(2 * d), size_linf=1.0, size_l2=math.sqrt(d))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        away = xp.abs(x - like(xp, self.centre, x))
        counts = [_as_many(xp, away >= edge) for edge in (0.0, *EDGES.tolist())]
        return xp.concat([*(low - high for low, high in pairwise(counts)), counts[-1]])

    def read(self, mean: FloatArray, scale: float) -> FloatArray:
        """A spread of each column: least squares of a half-normal's cells, columns drawn to each other by as much as
        the noise asks for (empirical Bayes on the log scale).
        """
        cells = mean.reshape(-1, self.schema.width).T
        edges = np.concatenate([[0.0], EDGES, [np.inf]])
        shape = np.diff(2 * ndtr(edges[None] / _GRID[:, None]) - 1, axis=1)
        seen = np.clip(cells.sum(axis=1), 0.05, 1.05)
        misfit = ((cells[:, None, :] - seen[:, None, None] * shape[None]) ** 2).sum(axis=-1)
        evidence = -0.5 * misfit / (scale**2 + 1e-6)
        log_spread = np.log(_GRID)
        level, width = float(np.median(log_spread[np.argmax(evidence, axis=1)])), 0.7
        for _ in range(5):
            posterior = evidence - 0.5 * ((log_spread - level) / width) ** 2
            chance = np.exp(posterior - posterior.max(axis=1, keepdims=True))
            chance /= chance.sum(axis=1, keepdims=True)
            found = chance @ log_spread
            spread2 = (chance * (log_spread - found[:, None]) ** 2).sum(axis=1)
            level = float(found.mean())
            width = math.sqrt(max(float(np.mean((found - level) ** 2 + spread2)), 0.0025))
        return np.exp(found)


@dataclass(frozen=True)
class Margins(NarrowQuery):
    """In which cell (x_j − c_j)/spread_j lies, for every column that is seen; the outer cells are open.

    *Lemma.* Replacing a row moves the sum by at most √(2d). *Proof.* A column counts 1 in one cell or, where it is
    missing, in none. ∎ Counts are exact in float64.
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return f"histogram of every column, {self.cells} cells"

    @property
    def edges(self) -> FloatArray:
        return CELL_EDGES if self.schema.width <= FEW else CELL_EDGES[np.abs(CELL_EDGES) <= 10]

    @property
    def cells(self) -> int:
        return len(self.edges) + 1

    @property
    def bound(self) -> Bound:
        d = self.schema.width
        return Bound(linf=1.0, l2=math.sqrt(2 * d), size_linf=1.0, size_l2=math.sqrt(d))

    def _cell(self, xp: Namespace, x: Array) -> Array:
        """The number of each entry's cell, −1 where it is missing."""
        away = (x - like(xp, self.centre, x)) / like(xp, self.spread, x)
        cell = xp.full_like(away, 0.0)
        for edge in self.edges.tolist():
            cell = cell + xp.astype(away >= edge, xp.float64)
        return xp.where(xp.isfinite(away), cell, xp.full_like(away, -1.0))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        cell = self._cell(xp, x)
        return xp.concat([_as_many(xp, cell == float(number)) for number in range(self.cells)])

    def far(self, mean: FloatArray, noise: float) -> Far:
        """The cells beyond four spreads whose shares exceed four standard deviations of the noise."""
        edges = np.concatenate([[-np.inf], self.edges, [np.inf]])
        ends = np.clip(self.centre[:, None] + self.spread[:, None] * edges, -1.0, 1.0)
        shares = mean.reshape(self.cells, -1).T
        outer = (edges[:-1] >= 4) | (edges[1:] <= -4)
        column, cell = np.nonzero((shares > 4 * noise) & outer & (ends[:, 1:] > ends[:, :-1]))
        return Far(column, ends[column, cell], ends[column, cell + 1], np.minimum(shares[column, cell], 0.5))

    def constant(self, mean: FloatArray, noise: float) -> tuple[tuple[int, float, float], ...]:
        """Columns whose values all lie in one cell, as far as the noise lets it be seen, and the ends of that cell."""
        edges = np.concatenate([[-np.inf], self.edges, [np.inf]])
        found = []
        for j, shares in enumerate(mean.reshape(self.cells, -1).T):
            cell = int(np.argmax(shares))
            if shares[cell] >= max(0.9 * float(shares.sum()), float(shares.sum()) - 2 * noise * math.sqrt(self.cells)):
                low, high = np.clip(self.centre[j] + self.spread[j] * edges[cell : cell + 2], -1.0, 1.0)
                found.append((j, float(low), float(high)))
        return tuple(found)

    def each(self, xp: Namespace, x: Array) -> Array:
        """What each row contributes (m × cells·d)."""
        cell = self._cell(xp, x)
        return xp.concat([xp.astype(cell == float(number), xp.float64) for number in range(self.cells)], axis=1)


def _as_many(xp: Namespace, held: Array) -> Array:
    """In how many rows it holds, for each column; in memory a column at a time."""
    if isinstance(held, np.ndarray):
        return np.array([np.count_nonzero(column) for column in held.T], dtype=float)
    return xp.sum(xp.astype(held, xp.float64), axis=0)


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
    def given(self) -> FloatArray:
        """The shares with a value among rows that are not empty."""
        return np.minimum(self.seen / (1 - self.empty), 1.0)

    @property
    def complete(self) -> bool:
        return bool(np.all(self.given >= 1))

    @property
    def pairs(self) -> FloatArray:
        """Shares of rows with values in both of two columns, if rows that are not empty miss them independently."""
        both = (1 - self.empty) * np.outer(self.given, self.given)
        both[np.diag_indices(len(both))] = self.seen
        return both

    def patterns(self, P: int, rng: np.random.Generator) -> FloatArray | None:
        """P patterns of rows that are not empty (1 where a value is seen), None where no value is missing."""
        if self.complete:
            return None
        found = (rng.random((20 * P, len(self.seen))) < self.given).astype(float)
        found = found[found.sum(axis=1) > 0]
        return found[:P] if len(found) else np.ones((1, len(self.seen)))


class Far(NamedTuple):
    """Cells far from a column's centre that hold rows: the column, the ends in unit coordinates, the share of rows."""

    column: NDArray[np.intp]
    low: FloatArray
    high: FloatArray
    share: FloatArray

    def moments(self, centre: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the columns, what lies far from the centres added to centre and spread."""
        away = (self.low + self.high) / 2 - centre[self.column]
        first, second, share = np.zeros(len(centre)), np.zeros(len(centre)), np.zeros(len(centre))
        np.add.at(first, self.column, self.share * away)
        np.add.at(second, self.column, self.share * away**2)
        np.add.at(share, self.column, self.share)
        share = np.minimum(share, 0.9)
        return centre + first, np.sqrt((1 - share) * spread**2 + np.maximum(second - first**2, 0.0))

    def rows(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The rows with values in far cells, each in one of them at least: the cells by their shares, and every
        further column that has such cells in half of the rows.
        """
        rows = rows.copy()
        first = rng.choice(len(self.share), size=len(rows), p=self.share / self.share.sum())
        for j in np.unique(self.column):
            cells = np.flatnonzero(self.column == j)
            cell = rng.choice(cells, size=len(rows), p=self.share[cells] / self.share[cells].sum())
            own = self.column[first] == j
            cell = np.where(own, first, cell)
            value = self.low[cell] + rng.random(len(rows)) * (self.high - self.low)[cell]
            rows[:, j] = np.where(own | (rng.random(len(rows)) < 0.5), value, rows[:, j])
        return rows


class Moments(NamedTuple):
    """What the second moments imply, in coordinates of unit spread: variances along directions between centres.

    ``directions`` are columns, ``between`` the variance of centres along each, ``within`` that of a component in any,
    ``edge`` what noise alone can look like, ``correlation`` that of all rows together.
    """

    directions: FloatArray
    between: FloatArray
    within: float
    edge: float
    correlation: FloatArray
