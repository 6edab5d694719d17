"""Bounded queries about categorical answers. Nothing is clipped: an answer counts once, whatever it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpem.models.latent_class.items import Items, answers
from dpem.queries.narrow import NarrowQuery, like, over_rows, rounded
from dpem.query import Array, Bound, Namespace


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

    def each(self, xp: Namespace, x: Array, y: Array) -> Array:
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
