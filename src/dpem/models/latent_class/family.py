"""Latent classes as a family of mixtures: simulated rows, scores, E-step and M-step."""

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
        The share of ρ (after the fit check's) for the pairs of answers; .30 to .60 differ by less than .01 of the lead
        kept.
    scores : int
        The number of score queries; 2 to 6 differ by less than .01.
    growth : float
        The price of a score query over the price of the one before it.
    levels : tuple of float
        The quantile of the scores' norms at which they are clipped; .80 to .95 make no difference.
    floor : float
        The least probability; with 1e-4 the error of the probabilities is .061 instead of .047.
    pseudo : float
        Rows with the overall probabilities that are added to every class, in units of the noise of sums by class.
    most_cells, drawn : int
        With at most ``most_cells`` cells all possible rows are surrogate rows; otherwise ``drawn`` rows are drawn.
    redraws : int
        The number of times that drawn rows are replaced by rows from ``drawn_classes`` classes fitted to them.
    model_part : float
        The weight of the fitted classes in the base weights, if these describe the answers better; independent answers
        have the rest.
    components : int
        Principal components to which the features of a block of answers are reduced.
    restarts : int
        Random starts of EM after each query, beside the previous solution.
    base : float
        The relative error of the base rows in the clipped part of the scores.
    widening : float
        The factor of standard errors due to privacy over their linear form: the surrogate rows are not the table.
    moving : float
        The factor of all errors over their linear form, where the rows that they move are counted.
    clamp : float
        The clamp of a row's lead over independent answers in the fit check; with 1, classes that are worse than
        independent answers could pass.
    near : float
        A second fit may end in any solution whose mean log-likelihood is lower by less than this.
    unstable : float
        Classes are reported as unstable if a second fit may put more than this share of rows into another class.
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
    """The shares of the classes, and the probability of each level in each class (classes × levels)."""

    weights: FloatArray
    probabilities: FloatArray

    def tangents(self, items: Items) -> list[FloatArray]:
        """For each class √p∘B (levels × effects), where B is the orthonormal complement of √p within each item. A move
        of p by √p∘Bη keeps the sum of the probabilities of every item.
        """
        if items.levels not in self._tangents:
            self._tangents[items.levels] = [np.sqrt(p)[:, None] * _complement(p, items) for p in self._inside]
        return self._tangents[items.levels]

    @cached_property
    def _tangents(self) -> dict[tuple[int, ...], list[FloatArray]]:
        return {}

    @property
    def _inside(self) -> FloatArray:
        return np.maximum(self.probabilities, 1e-12)

    def log_joint(self, xp: Namespace, h: Array) -> Array:
        """The log-probability of each class together with the row's answers (rows × classes)."""
        return xp.matmul(h, like(xp, np.log(self._inside).T, h)) + like(xp, np.log(self.weights), h)

    def membership(self, xp: Namespace, h: Array) -> Array:
        """The posterior probability of each class, clamped: at least 0, with a sum of at most 1."""
        joint = self.log_joint(xp, h)
        r = xp.exp(joint - xp.max(joint, axis=1, keepdims=True))
        r = xp.clip(zero_nonfinite(xp, r / xp.sum(r, axis=1, keepdims=True)), 0.0, 1.0)
        return r / xp.clip(xp.sum(r, axis=1, keepdims=True), 1.0, None)


def _complement(p: FloatArray, items: Items) -> FloatArray:
    """Orthonormal columns that are orthogonal to √p within each item."""
    B = np.zeros((len(p), len(p) - len(items.levels)))
    for j, L in enumerate(items.levels):
        of_item = slice(items.first[j], items.first[j + 1])
        basis = np.linalg.qr(np.column_stack([np.sqrt(p[of_item]), np.eye(L)[:, 1:]]))[0]
        start = items.first[j] - j
        B[of_item, start : start + L - 1] = basis[:, 1:]
    return B


@dataclass(frozen=True)
class ClassFamily(Family[Classes]):
    """K latent classes. ``observed`` holds the share of rows that answer each item, ``overall`` the probabilities over
    all classes. No probability is below ``floor``. The M-step adds to every class ``pseudo`` rows, as a fraction of all
    rows, with the overall probabilities.
    """

    K: int
    items: Items
    observed: FloatArray = field(repr=False)
    overall: FloatArray = field(repr=False)
    floor: float = 1e-12
    pseudo: float = 0.0

    @property
    def parameters(self) -> int:
        """The number of free parameters."""
        return self.K * (1 + self.items.effects.shape[1]) - 1

    def cell_weights(self, theta: Classes, x: FloatArray) -> FloatArray:
        """The probability of one-hot rows and of their missing values, which are taken as independent."""
        missingness = np.where(x @ self.items.of_level > 0.5, self.observed, 1 - self.observed)
        weights = np.prod(missingness, axis=1) * np.sum(np.exp(theta.log_joint(np, x)), axis=1)
        return np.asarray(weights / weights.sum())

    def draw(self, theta: Classes, m: int, rng: np.random.Generator) -> FloatArray:
        """m rows of ±1 for each level, with NaN where a value is missing."""
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
        shares = (r[:, :-1] - like(xp, alpha, h)) / like(xp, np.sqrt(alpha), h)
        probabilities = [
            r[:, k : k + 1] * xp.matmul(h, like(xp, tangent / theta._inside[k][:, None], h))
            for k, tangent in enumerate(theta.tangents(self.items))
        ]
        return xp.concat([shares, *probabilities], axis=1)

    def moved(self, theta: Classes, step: FloatArray) -> Classes:
        logits = np.log(theta.weights)
        logits[:-1] += np.clip(step[: self.K - 1] / np.sqrt(theta.weights[:-1]), -3.0, 3.0)
        weights = np.exp(logits - logits.max())
        steps = step[self.K - 1 :].reshape(self.K, -1)
        moves = [tangent @ eta for tangent, eta in zip(theta.tangents(self.items), steps, strict=True)]
        p = theta.probabilities + np.array(moves)
        return Classes(weights / weights.sum(), self.items.floored(p, 1e-12))

    def statistics(self, xp: Namespace, theta: Classes, x: Array, weights: Array) -> Array:
        """Σ r_k and Σ r_k·h for each class, and the log-likelihood. Rows with weights are surrogate rows, which are
        one-hot. Arrays have classes as rows, since reductions over few columns are slow.
        """
        h = answers(xp, x, self.items) if weights is None else x
        joint = xp.matmul(like(xp, np.log(theta._inside), h), h.T) + like(xp, np.log(theta.weights), h)[:, None]
        top = xp.max(joint, axis=0)
        relative = xp.exp(joint - top)
        total = xp.sum(relative, axis=0)
        log_density = top + xp.log(total)
        r = relative * (1.0 / total if weights is None else weights / total)
        log_likelihood = xp.reshape(xp.sum(log_density if weights is None else log_density * weights), (1,))
        return xp.concat([xp.sum(r, axis=1), xp.reshape(xp.matmul(r, h), (-1,)), log_likelihood])

    def m_step(self, theta: Classes, statistics: FloatArray) -> Classes:
        counts = statistics[: self.K] + self.pseudo
        sums = statistics[self.K : -1].reshape(self.K, -1) + self.pseudo * self.overall
        weights = np.maximum(counts, 1e-9)
        return Classes(weights / weights.sum(), self.items.floored(self.items.proportions(sums), self.floor))

    def random_start(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> Classes:
        """The overall probabilities times log-normal numbers, one for each class and level."""
        p = np.maximum(self.overall, 0.01) * np.exp(rng.standard_normal((self.K, len(self.overall))))
        return Classes(rng.dirichlet(np.full(self.K, 4.0)), self.items.floored(self.items.proportions(p), 1e-3))
