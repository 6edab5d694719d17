"""The items of a questionnaire: how answers become numbers, and the cells that all possible rows form.

The answers of a row are coded twice: as *one-hot* h, a coordinate for each level of each item, and as *effects*
c = h·V, where the levels of an item are the corners of a regular simplex of radius 1 (±1 for two levels). A missing
value is 0 in every coordinate of its item.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpem.queries.narrow import like
from dpem.query import Array, FloatArray, Namespace


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
