"""Latent classes as the engine of surrogate rows wants them: draws, scores, and the two halves of an EM step."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpem.fitting.surrogate import Family
from dpem.models.latent_class.queries import Items, answers
from dpem.queries.narrow import zero_nonfinite
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class Tuning:
    """Numbers that studies have set, not the user: by ``python -m studies.latent_class --tables tuning`` unless another
    study is named, which is the half of the public tables that is not reported on.

    Attributes
    ----------
    pairs : float
        The part of ρ (less the fit check's) that the pairs of answers get; .30 to .60 differ by less than .01 of the
        lead kept.
    scores : int
        Score queries; 2 to 6 differ by less than .01.
    growth : float
        How many times a score query's price exceeds the one before it.
    levels : tuple of float
        The quantile of the scores' norms at which they are clipped; .80 to .95 make no difference.
    floor : float
        The least probability; with 1e-4 probabilities are further off, .061 instead of .047.
    pseudo : float
        Rows with the overall probabilities that are added to every class, in units of the noise of sums by class.
    most_cells, drawn : int
        Up to so many cells all possible rows are surrogate rows; beyond, so many are drawn.
    redraws : int
        How often drawn rows are drawn again, from ``drawn_classes`` classes fitted to them.
    model_part : float
        The part of the fitted classes in base weights, where these suit the answers; the rest is independent answers.
    components : int
        Principal components to which the features of a block of answers are reduced.
    restarts : int
        Random starts of EM after each query, beside the classes that were found before it.
    base : float
        The error of the base rows in the part of the scores that the clip hides.
    widening : float
        By how much standard errors due to privacy exceed their linear form: the surrogate rows are not the table.
    moving : float
        By how much errors exceed their linear form where the rows that they move are counted.
    clamp : float
        Where a row's lead over independent answers is clamped in the fit check: with 1, classes that are worse than
        independent answers could pass.
    near : float
        Another solution may be that of a second fit if its mean log-likelihood is less than that lower.
    unstable : float
        Classes are called unstable if a second fit may put more than this share of rows into another class.
    """

    pairs: float = 0.35
    scores: int = 3
    growth: float = 1.3
    levels: tuple[float, ...] = (0.85,)
    floor: float = 1e-3
    pseudo: float = 0.3
    most_cells: int = 4096
    drawn: int = 4000
    redraws: int = 2
    drawn_classes: int = 8
    model_part: float = 0.95
    components: int = 150
    restarts: int = 8
    base: float = 0.01
    widening: float = 1.15
    moving: float = 1.3
    clamp: float = 3.0
    near: float = 0.001
    unstable: float = 0.05


TUNING = Tuning()


@dataclass(frozen=True)
class Classes:
    """Shares of the classes, and the probability of each level in each class (classes × levels)."""

    weights: FloatArray
    probabilities: FloatArray

    def turned(self, items: Items) -> list[FloatArray]:
        """For each class √p∘B (levels × effects), B the orthonormal complement of √p item by item: moving p by √p∘Bη
        keeps the sum of every item's probabilities.
        """
        known = self._turned.get(items.levels)
        if known is None:
            known = self._turned[items.levels] = [np.sqrt(p)[:, None] * _complement(p, items) for p in self._inside]
        return known

    @cached_property
    def _turned(self) -> dict[tuple[int, ...], list[FloatArray]]:
        return {}

    @property
    def _inside(self) -> FloatArray:
        return np.maximum(self.probabilities, 1e-12)

    def log_joint(self, xp: Namespace, h: Array) -> Array:
        """Log of the probability of a class and of the row's answers in it: rows × classes."""
        return xp.matmul(h, like(xp, np.log(self._inside).T, h)) + like(xp, np.log(self.weights), h)

    def membership(self, xp: Namespace, h: Array) -> Array:
        """The probability of each class given the answers, clamped: at least 0, and together at most 1."""
        joint = self.log_joint(xp, h)
        r = xp.exp(joint - xp.max(joint, axis=1, keepdims=True))
        r = xp.clip(zero_nonfinite(xp, r / xp.sum(r, axis=1, keepdims=True)), 0.0, 1.0)
        return r / xp.clip(xp.sum(r, axis=1, keepdims=True), 1.0, None)


def _complement(p: FloatArray, items: Items) -> FloatArray:
    """Orthonormal columns orthogonal to each item's part of √p."""
    B = np.zeros((len(p), len(p) - len(items.levels)))
    for j, L in enumerate(items.levels):
        own = slice(items.first[j], items.first[j + 1])
        start = items.first[j] - j
        B[own, start : start + L - 1] = np.linalg.qr(np.column_stack([np.sqrt(p[own]), np.eye(L)[:, 1:]]))[0][:, 1:]
    return B


@dataclass(frozen=True)
class ClassFamily(Family[Classes]):
    """K latent classes. ``observed`` is the share of rows that answer each item, ``overall`` the probabilities without
    classes. No probability is below ``floor``; ``pseudo`` rows (a part of all) with the overall probabilities are added
    to every class.
    """

    K: int
    items: Items
    observed: FloatArray = field(repr=False)
    overall: FloatArray = field(repr=False)
    floor: float = 1e-12
    pseudo: float = 0.0

    @property
    def parameters(self) -> int:
        """How many free parameters there are."""
        return self.K * (1 + self.items.effects.shape[1]) - 1

    def cell_weights(self, theta: Classes, x: FloatArray) -> FloatArray:
        """The probability of one-hot rows, missing values included, as far as they are missing independently."""
        seen = np.where(x @ self.items.of_level > 0.5, self.observed, 1 - self.observed)
        weights = np.prod(seen, axis=1) * np.sum(np.exp(theta.log_joint(np, x)), axis=1)
        return np.asarray(weights / weights.sum())

    def draw(self, theta: Classes, m: int, rng: np.random.Generator) -> FloatArray:
        """m rows, ±1 for each level and NaN where a value is missing."""
        first, group = self.items.first, rng.choice(len(theta.weights), size=m, p=theta.weights)
        x = -np.ones((m, first[-1]))
        for j, L in enumerate(self.items.levels):
            below = np.cumsum(theta.probabilities[:, first[j] : first[j + 1]], axis=1)[group, :-1]
            level = np.sum(rng.random((m, 1)) > below, axis=1)
            x[np.arange(m), first[j] + level] = 1.0
            x[rng.random(m) >= self.observed[j], first[j] : first[j] + L] = np.nan
        return x

    def joint(self, xp: Namespace, theta: Classes, x: Array) -> Array:
        return theta.log_joint(xp, answers(xp, x, self.items))

    def scores(self, xp: Namespace, theta: Classes, x: Array) -> Array:
        """(r_k − α_k)/√α_k for all but the last class, then r_k·Bᵀ(h/√p_k) for each class: the derivatives along
        log α_k + η/√α_k and p_k + √p_k∘Bη.
        """
        h = answers(xp, x, self.items)
        r = theta.membership(xp, h)
        alpha = theta.weights[:-1]
        alone = (r[:, :-1] - like(xp, alpha, h)) / like(xp, np.sqrt(alpha), h)
        parts = [
            r[:, k : k + 1] * xp.matmul(h, like(xp, turn / theta._inside[k][:, None], h))
            for k, turn in enumerate(theta.turned(self.items))
        ]
        return xp.concat([alone, *parts], axis=1)

    def moved(self, theta: Classes, step: FloatArray) -> Classes:
        logits = np.log(theta.weights)
        logits[:-1] += np.clip(step[: self.K - 1] / np.sqrt(theta.weights[:-1]), -3.0, 3.0)
        weights = np.exp(logits - logits.max())
        steps = step[self.K - 1 :].reshape(self.K, -1)
        p = theta.probabilities + np.array(
            [turn @ own for turn, own in zip(theta.turned(self.items), steps, strict=True)]
        )
        return Classes(weights / weights.sum(), self.items.floored(p, 1e-12))

    def statistics(self, xp: Namespace, theta: Classes, x: Array, weights: Array) -> Array:
        """Σ r_k for each class, Σ r_k·h, and the log-likelihood. Rows with weights are surrogate rows, one-hot already;
        classes are kept as rows of arrays: reductions over few columns are slow.
        """
        h = answers(xp, x, self.items) if weights is None else x
        joint = xp.matmul(like(xp, np.log(theta._inside), h), h.T) + like(xp, np.log(theta.weights), h)[:, None]
        top = xp.max(joint, axis=0)
        raw = xp.exp(joint - top)
        whole = xp.sum(raw, axis=0)
        each = 1.0 / whole if weights is None else weights / whole
        density = top + xp.log(whole)
        r = raw * each
        likelihood = xp.reshape(xp.sum(density if weights is None else density * weights), (1,))
        return xp.concat([xp.sum(r, axis=1), xp.reshape(xp.matmul(r, h), (-1,)), likelihood])

    def m_step(self, theta: Classes, statistics: FloatArray) -> Classes:
        counts = statistics[: self.K] + self.pseudo
        sums = statistics[self.K : -1].reshape(self.K, -1) + self.pseudo * self.overall
        weights = np.maximum(counts, 1e-9)
        return Classes(weights / weights.sum(), self.items.floored(self.items.proportions(sums), self.floor))

    def random_start(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> Classes:
        """The overall probabilities times e^(normal), for each class and level."""
        p = np.maximum(self.overall, 0.01) * np.exp(rng.standard_normal((self.K, len(self.overall))))
        return Classes(rng.dirichlet(np.full(self.K, 4.0)), self.items.floored(self.items.proportions(p), 1e-3))
