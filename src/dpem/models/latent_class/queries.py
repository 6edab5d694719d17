"""The items of a questionnaire, how answers become numbers, and the bounded queries about them.

The answers of a row are coded twice: as *one-hot* h, a coordinate for each level of each item, and as *effects*
c = h·V, where the levels of an item are the corners of a regular simplex of radius 1 (±1 for two levels). A missing
value is 0 in every coordinate of its item. Nothing is clipped: an answer counts once, whatever it is.
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
    """How many levels each item has, and the matrices that lead from one-hot answers to effects."""

    levels: tuple[int, ...]

    @cached_property
    def first(self) -> list[int]:
        """Where each item's one-hot coordinates begin, and where the last one's end."""
        return [0, *np.cumsum(self.levels).tolist()]

    @cached_property
    def of_level(self) -> FloatArray:
        """levels × items: 1 where the level is the item's."""
        return np.repeat(np.eye(len(self.levels)), self.levels, axis=0)

    @cached_property
    def effects(self) -> FloatArray:
        """V: the effects of each level. An item's rows are the corners of a simplex: unit vectors that sum to 0."""
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
        """Probabilities when every level is as likely as the others."""
        return self.of_level @ (1 / np.array(self.levels, dtype=float))

    def floored(self, p: FloatArray, least: float) -> FloatArray:
        """Probabilities of at least that (nearly), which add up to 1 for each item."""
        kept = np.clip(p, least, 1.0)
        return kept / ((kept @ self.of_level) @ self.of_level.T)

    def proportions(self, sums: FloatArray) -> FloatArray:
        """Sums of one-hot answers as probabilities of each item's levels; equal ones where nobody answers."""
        whole = (sums @ self.of_level) @ self.of_level.T
        return np.where(whole > 1e-300, sums / np.where(whole > 1e-300, whole, 1.0), self.even)

    def cells(self, missing: NDArray[np.bool_]) -> int:
        """How many different rows there are, where values of some items may be missing."""
        return math.prod(L + int(may) for L, may in zip(self.levels, missing, strict=True))

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
    """One-hot answers h of rows in unit coordinates (or one-hot already): a missing value is 0 everywhere.

    *Lemma.* h ≥ 0, and no item's entries add up to more than 1 (but for rounding). *Proof.* Entries are 0 or 1, and
    divided by their item's sum if that is more. ∎
    """
    h = xp.astype(x > 0, xp.float64)
    own = like(xp, items.of_level, x)
    return h / xp.matmul(xp.clip(xp.matmul(h, own), 1.0, None), own.T)


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
        """What each row contributes."""
        h = answers(xp, x, self.items)
        c = xp.matmul(h, like(xp, self.items.effects, x))
        i, j = self.items.pairs
        return xp.concat([h, c[:, i] * c[:, j], self._answered(xp, h)], axis=1)

    def _answered(self, xp: Namespace, h: Array) -> Array:
        """One-hot numbers of answered items, 0 to J."""
        numbers = like(xp, np.arange(len(self.items.levels) + 1.0), h)
        seen = xp.sum(h, axis=1)[:, None]
        return xp.astype((seen > numbers - 0.5) & (seen <= numbers + 0.5), xp.float64)


@dataclass(frozen=True)
class CellCounts(NarrowQuery):
    """How many rows are in each of the cells that answers and missing values form: for the fit without privacy.

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
            own = h[:, self.items.first[j] : self.items.first[j + 1]]
            level = xp.argmax(xp.concat([own, xp.full_like(own[:, :1], 0.5)], axis=1), axis=1)
            cell = cell * (L + 1) + xp.astype(level, xp.float64)
        edges = like(xp, np.arange(-0.5, self.items.cells(self.missing) + 1.0), cell)
        ends = xp.searchsorted(xp.sort(cell), edges)
        return xp.astype(ends[1:] - ends[:-1], xp.float64)
