"""Bounded questions about categorical answers: pairs of answers, waves of them, and sums by latent class.

The answers of a row are coded twice: as *one-hot* h, a coordinate for each level of each item, and as *effects*
c = h·V, where the levels of an item are the corners of a regular simplex of radius 1 (±1 for yes and no). A hole is 0
in every coordinate of its item. Nothing needs to be clipped: an answer counts once, whatever it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.queries.narrow import NarrowQuery, like, over_rows, rounded, zero_nonfinite
from dpem.query import Bound, FloatArray


@dataclass(frozen=True)
class Items:
    """How many levels each item has, and the matrices that lead from one-hot to effects and back."""

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
    def back(self) -> FloatArray:
        """effects × levels: what an effect adds to the probabilities of its item's levels."""
        L = self.of_level @ np.array(self.levels, dtype=float)
        return (self.effects * ((L - 1) / L)[:, None]).T

    @cached_property
    def even(self) -> FloatArray:
        """Probabilities when every level is as likely as the others."""
        return self.of_level @ (1 / np.array(self.levels, dtype=float))

    def probabilities(self, mu: FloatArray) -> FloatArray:
        """Of each class and level; not yet within [0, 1]."""
        return self.even + mu @ self.back

    def within(self, p: FloatArray, least: float) -> FloatArray:
        """Probabilities of at least that (nearly), which add up to 1 for each item."""
        kept = np.clip(p, least, 1.0)
        return kept / ((kept @ self.of_level) @ self.of_level.T)


def answers(xp: Any, x: Any, items: Items) -> Any:
    """One-hot answers h of rows in unit coordinates: a hole is 0 everywhere. *Lemma.* h ≥ 0, and no item's entries add
    up to more than 1 (but for rounding). *Proof.* Entries are 0 or 1, and divided by their item's sum if that is
    more. ∎
    """
    h = xp.astype(x > 0, xp.float64)
    own = like(xp, items.of_level, x)
    return h / xp.matmul(xp.clip(xp.matmul(h, own), 1.0, None), own.T)


@dataclass(frozen=True)
class PairMoments(NarrowQuery):
    """Σ (h, the products c_i·c_j of effects of different items), each product once.

    *Lemma.* ℓ2 sensitivity √(J(J + 2)) for J items. *Proof.* An item's effects c_j are within the unit ball, being a
    mean of unit vectors and 0. So with t_j = ⟨c_j, c′_j⟩ ∈ [−1, 1], the products of two rows have the inner product
    Σ_{i<j} t_i t_j = ((Σt)² − Σt²)/2 ≥ −J/2, their one-hot answers one ≥ 0; and a contribution's square is at most
    J(J − 1)/2 + J. Hence |v − v′|² ≤ J(J − 1) + 2J + J. ∎
    """

    items: Items
    label: str = "answers, and products of the effects of two items"

    @property
    def bound(self) -> Bound:
        J = len(self.items.levels)
        size = math.sqrt(J * (J + 1) / 2)
        return rounded(Bound(2.0, math.sqrt(J * (J + 2)), 1.0, size), 4 * self.schema.width**2)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        h = answers(xp, x, self.items)
        c = xp.matmul(h, like(xp, self.items.effects, x))
        products = over_rows(xp, c, c)
        later = np.cumsum(np.array(self.items.levels) - 1).repeat(np.array(self.items.levels) - 1)
        return xp.concat([xp.sum(h, axis=0), *(products[i, int(first) :] for i, first in enumerate(later))])


@dataclass(frozen=True)
class Waves(NarrowQuery):
    """Σ (cos s, sin s, cos 2s, sin 2s) for the angles s = h·phases, one for each of M directions.

    *Lemma.* ℓ2 sensitivity 5√M/2. *Proof.* In a direction two rows differ by 2(1 − cos u) + 2(1 − cos 2u), u = s − s′,
    and with a = cos u that is 2(3 − a − 2a²) ≤ 2·(3 + 1/8) = 25/4. ∎
    """

    items: Items
    phases: FloatArray = field(repr=False)
    label: str = "waves along the directions in which items go together"

    @property
    def bound(self) -> Bound:
        M = self.phases.shape[1]
        return rounded(Bound(2.0, 2.5 * math.sqrt(M), 1.0, math.sqrt(2 * M)), 4 * M)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        s = xp.matmul(answers(xp, x, self.items), like(xp, self.phases, x))
        waves = [xp.cos(s), xp.sin(s), xp.cos(2 * s), xp.sin(2 * s)]
        return xp.concat([xp.sum(wave, axis=0) for wave in waves])


@dataclass(frozen=True)
class ClassSums(NarrowQuery):
    """Σ r_k·(1, h) for every class k, with r the chance of each class given the row's answers.

    *Lemma.* ℓ2 sensitivity √(2(J + 1)). *Proof.* Contributions are ≥ 0, so inner products are; a contribution's square
    is Σ r_k²·(1 + |h|²) ≤ 1 + J, since r ≥ 0 adds up to at most 1 and the entries of each item to at most 1. ∎
    """

    items: Items
    weights: FloatArray = field(repr=False)
    probabilities: FloatArray = field(repr=False)
    label: str = "answers by class"

    @property
    def bound(self) -> Bound:
        size = math.sqrt(1 + len(self.items.levels))
        return rounded(Bound(1.0, math.sqrt(2.0) * size, 1.0, size), 4 * self.probabilities.size)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        h = answers(xp, x, self.items)
        r = chances(xp, h, self.weights, self.probabilities)
        return xp.concat([xp.sum(r, axis=0), xp.reshape(over_rows(xp, r, h), (-1,))])


def log_joint(xp: Any, h: Any, weights: FloatArray, probabilities: FloatArray) -> Any:
    """Log of the chance of a class and of the row's answers in it: rows × classes."""
    return xp.matmul(h, like(xp, np.log(probabilities).T, h)) + like(xp, np.log(weights), h)


def chances(xp: Any, h: Any, weights: FloatArray, probabilities: FloatArray) -> Any:
    """The chance of each class given the answers, clamped: at least 0, and together at most 1."""
    joint = log_joint(xp, h, weights, probabilities)
    r = xp.exp(joint - xp.max(joint, axis=1, keepdims=True))
    r = xp.clip(zero_nonfinite(xp, r / xp.sum(r, axis=1, keepdims=True)), 0.0, 1.0)
    return r / xp.clip(xp.sum(r, axis=1, keepdims=True), 1.0, None)
