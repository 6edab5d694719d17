"""The items of a questionnaire, the coding of answers as numbers, and the queries about them.

The answers of a row are coded twice: *one-hot* h, with a coordinate for each level of each item, and as *effects*
c = h·V, where the levels of an item are the corners of a regular simplex of radius 1 (±1 for two levels). A missing
value is 0 in every coordinate of its item. Answers are bounded by their coding, so nothing is clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, rounded
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class Items:
    """The number of levels of each item, and the matrices that compute effects from one-hot answers."""

    levels: tuple[int, ...]

    @cached_property
    def first(self) -> list[int]:
        """The first one-hot coordinate of each item, and the end of the last item."""
        return [0, *np.cumsum(self.levels).tolist()]

    @cached_property
    def of_level(self) -> FloatArray:
        """levels × items: 1 where the level is the item's."""
        return np.repeat(np.eye(len(self.levels)), self.levels, axis=0)

    @cached_property
    def effects(self) -> FloatArray:
        """V, the effects of each level: an item's rows are the corners of a simplex, unit vectors that sum to 0."""
        V = np.zeros((self.first[-1], self.first[-1] - len(self.levels)))
        for j, L in enumerate(self.levels):
            corners = np.linalg.qr(np.column_stack([np.ones(L), np.eye(L)[:, 1:]]))[0][:, 1:]
            start = self.first[j] - j
            V[self.first[j] : self.first[j + 1], start : start + L - 1] = corners * math.sqrt(L / (L - 1))
        return V

    @cached_property
    def of_effect(self) -> FloatArray:
        """effects × items: 1 where the effect is the item's."""
        return np.repeat(np.eye(len(self.levels)), np.array(self.levels) - 1, axis=0)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of effects that belong to different items, each pair once."""
        item = np.argmax(self.of_effect, axis=1)
        i, j = np.triu_indices(len(item), 1)
        return i[item[i] != item[j]], j[item[i] != item[j]]

    @cached_property
    def even(self) -> FloatArray:
        """Equal probabilities of the levels of each item."""
        return self.of_level @ (1 / np.array(self.levels, dtype=float))

    def floored(self, p: FloatArray, least: float) -> FloatArray:
        """Probabilities of about ``least`` or more that sum to 1 for each item."""
        raised = np.clip(p, least, 1.0)
        return raised / ((raised @ self.of_level) @ self.of_level.T)

    def proportions(self, sums: FloatArray) -> FloatArray:
        """The proportions of each item's levels in sums of one-hot answers; equal ones if nobody answers."""
        total = (sums @ self.of_level) @ self.of_level.T
        return np.where(total > 1e-300, sums / np.where(total > 1e-300, total, 1.0), self.even)

    def cells(self, missing: NDArray[np.bool_]) -> int:
        """The number of different rows, if values of the items ``missing`` may be missing."""
        return math.prod(L + int(may_miss) for L, may_miss in zip(self.levels, missing, strict=True))

    def rows_of(self, cells: NDArray[np.intp], missing: NDArray[np.bool_]) -> FloatArray:
        """The one-hot rows of numbered cells.

        >>> Items((2, 2)).rows_of(np.arange(6), np.array([False, True])).astype(int).tolist()[:3]
        [[1, 0, 1, 0], [1, 0, 0, 1], [1, 0, 0, 0]]
        """
        rows = np.zeros((len(cells), self.first[-1]))
        rest = np.array(cells)
        for j in reversed(range(len(self.levels))):
            rest, level = np.divmod(rest, self.levels[j] + int(missing[j]))
            answered = np.flatnonzero(level < self.levels[j])
            rows[answered, self.first[j] + level[answered]] = 1.0
        return rows


def answers(xp: Namespace, x: Array, items: Items) -> Array:
    """One-hot answers h of rows in unit coordinates (or one-hot already); a missing value is 0 everywhere.

    *Lemma.* h ≥ 0, and the entries of an item sum to at most 1 but for rounding. *Proof.* Entries are 0 or 1, and are
    divided by the sum of their item if that exceeds 1. ∎
    """
    h = xp.astype(x > 0, xp.float64)
    of_level = like(xp, items.of_level, x)
    return h / xp.matmul(xp.clip(xp.matmul(h, of_level), 1.0, None), of_level.T)


@dataclass(frozen=True)
class PairMoments(NarrowQuery):
    """Σ (h, the products c_i·c_j of effects of different items, each once, the number of answered items as one-hot).

    *Lemma.* ℓ2 sensitivity √(J(J + 2) + 2) for J items. *Proof.* An item's effects c_j are within the unit ball, being
    a mean of unit vectors and 0. So with t_j = ⟨c_j, c′_j⟩ ∈ [−1, 1], the products of two rows have the inner product
    Σ_{i<j} t_i t_j = ((Σt)² − Σt²)/2 ≥ −J/2, their one-hot answers and numbers of answers one ≥ 0; and a
    contribution's square is at most J(J − 1)/2 + J + 1. Hence |v − v′|² ≤ J(J − 1) + 2J + 2 + J. ∎
    """

    items: Items
    label: str = "answers, products of the effects of two items, numbers of answers"

    @property
    def bound(self) -> Bound:
        J = len(self.items.levels)
        size = math.sqrt(J * (J + 1) / 2 + 1)
        return rounded(Bound(2.0, math.sqrt(J * (J + 2) + 2), 1.0, size), 4 * self.schema.width**2)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        h = answers(xp, x, self.items)
        c = xp.matmul(h, like(xp, self.items.effects, x))
        products = over_rows(xp, c, c)
        later = np.cumsum(np.array(self.items.levels) - 1).repeat(np.array(self.items.levels) - 1)
        pairs = [products[i, int(first) :] for i, first in enumerate(later)]
        return xp.concat([xp.sum(h, axis=0), *pairs, xp.sum(self._answered(xp, h), axis=0)])

    def each(self, xp: Namespace, x: Array) -> Array:
        """The contribution of each row."""
        h = answers(xp, x, self.items)
        c = xp.matmul(h, like(xp, self.items.effects, x))
        i, j = self.items.pairs
        return xp.concat([h, c[:, i] * c[:, j], self._answered(xp, h)], axis=1)

    def _answered(self, xp: Namespace, h: Array) -> Array:
        """The number of answered items, 0 to J, one-hot."""
        numbers = like(xp, np.arange(len(self.items.levels) + 1.0), h)
        answered = xp.sum(h, axis=1)[:, None]
        return xp.astype((answered > numbers - 0.5) & (answered <= numbers + 0.5), xp.float64)


@dataclass(frozen=True)
class CellCounts(NarrowQuery):
    """The number of rows with each combination of answers and missing values, for the fit without privacy.

    *Lemma.* ℓ2 sensitivity √2. *Proof.* A row is in one cell. ∎
    """

    items: Items
    label: str = field(default="rows in each cell", repr=False)

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0, l2=math.sqrt(2.0), size_linf=1.0, size_l2=1.0)

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.ones(len(self.items.levels), dtype=bool)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        h = xp.astype(x > 0, xp.float64)
        cell = xp.zeros_like(h[:, 0])
        for j, L in enumerate(self.items.levels):
            of_item = h[:, self.items.first[j] : self.items.first[j + 1]]
            level = xp.argmax(xp.concat([of_item, xp.full_like(of_item[:, :1], 0.5)], axis=1), axis=1)
            cell = cell * (L + 1) + xp.astype(level, xp.float64)
        edges = like(xp, np.arange(-0.5, self.items.cells(self.missing) + 1.0), cell)
        ends = xp.searchsorted(xp.sort(cell), edges)
        return xp.astype(ends[1:] - ends[:-1], xp.float64)
