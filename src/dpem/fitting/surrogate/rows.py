r"""Surrogate rows: public rows, reweighted so that they agree with every noisy answer as closely as its noise allows.

Row i has base weight w₀ᵢ and features Fᵢ, its contributions to the queries; a are the answers. F and a are divided by
the standard deviations of the noise, and centred: E₀ F = 0 under the base weights. The tilted weights are
w ∝ w₀·exp(Fλ) with

    λ = argmin log Σ w₀ exp(Fλ) − λ·a + (κ/2)‖λ‖².

*Lemma.* They minimise κ·KL(w‖w₀) + ½‖E_w F − a‖². *Proof.* Setting the derivative by λ to 0 gives
E_w F − a + κλ = 0. The second objective is convex in w; its Lagrange condition is κ·log(w/w₀) + F·(E_w F − a) =
constant, which holds for w ∝ w₀·exp(Fλ) with λ = (a − E_w F)/κ: the same equation. ∎

The larger κ, the more the base weights count. To first order κ belongs to the prior E_w F ~ N(0, C/κ), C = Cov₀ F, so
that a ~ N(0, I + C/κ): the κ is used under which the answers are most probable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.special import logsumexp
from sklearn.utils.extmath import randomized_svd

from dpem.fitting.surrogate.em import Converged, Family, best_of
from dpem.query import Array, FloatArray, Namespace

Theta = TypeVar("Theta")

#: Newton's method for λ: the most steps, the largest gradient at which it stops (answers have noise 1), Armijo's
#: constant, and the shortest step along a direction.
NEWTON_STEPS, GRADIENT, ARMIJO, SHORTEST_STEP = 40, 1e-3, 1e-4, 1e-6
#: Values of κ that are tried, evenly spaced on the log scale.
KAPPAS = 13
#: The largest gain in log-density that one row can contribute where two mixtures are compared: the answers hardly
#: determine the weights of the few rows that no component describes.
LARGEST_GAIN = 5.0


class RowQuery(Protocol):
    """A query whose contributions are also available row by row."""

    def each(self, xp: Namespace, x: Array) -> Array:
        """The clipped contribution of each row (m × p)."""


class Answer(NamedTuple):
    """The noisy mean of a query and the standard deviation of its noise: one number, or one for each entry."""

    query: RowQuery
    mean: FloatArray
    noise: FloatArray | float


@dataclass(frozen=True)
class Features:
    """Features F (m × p) and answers a (p) in units of the noise, centred under the base weights; C = Cov₀ F."""

    F: FloatArray
    a: FloatArray
    C: FloatArray

    @classmethod
    def none(cls, m: int) -> Features:
        return cls(np.zeros((m, 0)), np.zeros(0), np.zeros((0, 0)))

    @cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray]:
        """The eigenvalues of C, and the answers along its eigenvectors."""
        variances, axes = np.linalg.eigh(self.C)
        return np.maximum(variances, 0.0), self.a @ axes

    def extended(self, new_F: FloatArray, new_a: FloatArray, base: FloatArray) -> Features:
        """The features with further columns and their answers, not yet centred."""
        mean = base @ new_F
        F = np.hstack([self.F, new_F - mean])
        new_rows = (base[:, None] * F[:, len(self.a) :]).T @ F  # of C
        C = np.vstack([np.hstack([self.C, new_rows[:, : len(self.a)].T]), new_rows])
        return Features(F, np.concatenate([self.a, new_a - mean]), C)

    def principal(self, count: int) -> Features:
        """The first ``count`` principal components. The noise stays independent with variance 1 under a rotation."""
        if len(self.a) <= count:
            return self
        variances, axes = np.linalg.eigh(self.C)
        axes = axes[:, -count:]
        return Features(self.F @ axes, self.a @ axes, np.diag(np.maximum(variances[-count:], 0.0)))


@dataclass(frozen=True)
class Block:
    """Answers that share one κ between ``low`` and ``high``, reduced to at most ``components`` principal components."""

    low: float
    high: float
    components: int = 300
    answers: tuple[Answer, ...] = ()

    def features(self, x: FloatArray, base: FloatArray) -> Features:
        features = Features.none(len(x))
        for answer in self.answers:
            features = self.extended(features, answer, x, base)
        return features

    def extended(self, features: Features, answer: Answer, x: FloatArray, base: FloatArray) -> Features:
        """The features with those of one more answer."""
        F, a = np.asarray(answer.query.each(numpy_api, x)) / answer.noise, answer.mean / answer.noise
        if F.shape[1] > 4 * self.components:  # from here on a randomised SVD is faster than C's eigenvectors
            axes = main_axes(F, base, self.components + 20)
            F, a = F @ axes, a @ axes
        return features.extended(F, a, base).principal(self.components)

    def tilted(self, base: FloatArray, features: Features) -> Tilted:
        """The weights that agree with the answers."""
        if not features.a.size:
            return Tilted(base, self.high)
        kappa = evidence_kappa(features, self.low, self.high)
        return Tilted(tilt(base, features, kappa), kappa)


class Tilted(NamedTuple):
    """Tilted weights and their κ."""

    weights: FloatArray
    kappa: float


@dataclass(frozen=True)
class Surrogate:
    """Rows, and blocks of answers that tilt their weights one after the other: the weights after one block are the base
    weights of the next. ``base`` and ``features`` are those of the last block.
    """

    x: FloatArray
    base: FloatArray
    blocks: tuple[Block, ...]
    features: Features = field(repr=False)

    @classmethod
    def of(cls, x: FloatArray, base: FloatArray, blocks: Iterable[Block] = ()) -> Surrogate:
        """The surrogate of rows with base weights of any sum."""
        surrogate = cls(x, np.asarray(base) / np.sum(base), (), Features.none(len(x)))
        for block in blocks:
            weights = surrogate.weights
            surrogate = cls(x, weights, (*surrogate.blocks, block), block.features(x, weights))
        return surrogate

    def add(self, query: RowQuery, mean: FloatArray, noise: FloatArray | float) -> Surrogate:
        """The surrogate with one more answer in its last block."""
        last, answer = self.blocks[-1], Answer(query, mean, np.maximum(noise, 1e-12))
        block = replace(last, answers=(*last.answers, answer))
        features = block.extended(self.features, answer, self.x, self.base)
        return replace(self, blocks=(*self.blocks[:-1], block), features=features)

    def redrawn(self, x: FloatArray, base: FloatArray) -> Surrogate:
        """The same answers on other rows."""
        return Surrogate.of(x, base, self.blocks)

    @cached_property
    def tilted(self) -> Tilted:
        return self.blocks[-1].tilted(self.base, self.features) if self.blocks else Tilted(self.base, 1.0)

    @property
    def weights(self) -> FloatArray:
        """The tilted weights; they sum to 1."""
        return self.tilted.weights

    @property
    def log_evidence(self) -> float:
        """The log-density of the last block's answers given its base weights, up to a constant."""
        return log_evidence(self.features, self.tilted.kappa)

    @property
    def effective_share(self) -> float:
        """The effective sample size 1/Σw² over the number of rows."""
        return 1 / (len(self.x) * float(self.weights @ self.weights))

    def fit(
        self,
        family: Family[Theta],
        starts: Iterable[Theta],
        *,
        restarts: int = 0,
        rng: np.random.Generator | None = None,
        margin: float = 0.0,
        **options: Any,
    ) -> list[Converged[Theta]]:
        """EM to convergence from the given starts and from random ones, the best solution first.

        A random start wins over the best given one only if it gains more than ``margin`` in mean log-likelihood: by the
        noise in the answers alone some mixture gains. With a margin the gain of a row counts up to
        :data:`LARGEST_GAIN`.
        """
        starts, e_step = list(starts), family.e_step(self.x, self.weights)
        solutions = best_of(family, starts, e_step, **options)
        first = solutions[0] if starts else None
        if restarts and rng is not None:
            random_starts = [family.random_start(self.x, self.weights, rng) for _ in range(restarts)]
            solutions += best_of(family, random_starts, e_step, **options)
        if first is not None and margin:
            solutions = self._with_bounded_gains(family, solutions, first)
        return sorted(solutions, key=lambda solution: margin * (solution is not first) - solution.log_likelihood)

    def _with_bounded_gains(
        self, family: Family[Theta], solutions: list[Converged[Theta]], first: Converged[Theta]
    ) -> list[Converged[Theta]]:
        """The solutions, where better than ``first``, with log-likelihoods in which no row gains more than
        :data:`LARGEST_GAIN`.
        """
        log_density = self._log_density(family, first.theta)
        bounded = []
        for solution in solutions:
            if solution.log_likelihood > first.log_likelihood:
                gains = self._log_density(family, solution.theta) - log_density
                gain = float(self.weights @ np.clip(gains, -LARGEST_GAIN, LARGEST_GAIN))
                solution = solution._replace(log_likelihood=min(first.log_likelihood + gain, solution.log_likelihood))
            bounded.append(solution)
        return bounded

    def _log_density(self, family: Family[Theta], theta: Theta) -> FloatArray:
        return np.asarray(logsumexp(family.joint(numpy_api, theta, self.x), axis=1))

    def resampled(self, m: int, rng: np.random.Generator) -> FloatArray:
        """m rows drawn by their weights, by systematic resampling."""
        cumulative = np.cumsum(self.weights)
        rows = np.searchsorted(cumulative / cumulative[-1], (np.arange(m) + rng.random()) / m)
        return np.asarray(self.x[np.minimum(rows, len(self.x) - 1)])


def combined_noise(noises: Iterable[float]) -> float:
    """The standard deviation of the precision-weighted mean of independent answers."""
    return 1 / math.sqrt(math.fsum(1 / noise**2 for noise in noises))


def main_axes(F: FloatArray, weights: FloatArray, count: int) -> FloatArray:
    """Approximately the first ``count`` principal axes of many features, computed from every third row."""
    third = np.sqrt(weights[::3, None]) * (F[::3] - weights @ F)
    return np.asarray(randomized_svd(third, count, n_iter=2, random_state=0)[2].T)


def evidence_kappa(features: Features, low: float, high: float) -> float:
    """The κ in [low, high] under which the answers are most probable, on a grid."""
    return float(max(np.geomspace(low, high, KAPPAS), key=lambda kappa: log_evidence(features, kappa)))


def log_evidence(features: Features, kappa: float) -> float:
    """The log-density of a ~ N(0, I + C/κ), up to a constant."""
    variances, a = features.spectrum
    variances = 1 + variances / kappa
    return -0.5 * float(np.sum(np.log(variances) + a**2 / variances))


def tilt(base: FloatArray, features: Features, kappa: float) -> FloatArray:
    """The tilted weights: Newton's method for λ, each step halved until the objective falls."""
    F, a, covariance = features.F, features.a, features.C
    log_base = np.log(np.maximum(base, 1e-300))

    def objective(lam: FloatArray) -> tuple[float, FloatArray]:
        """log Σ w₀ exp(Fλ) − λ·a + (κ/2)‖λ‖², and the weights."""
        logs = log_base + F @ lam
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        return top + np.log(total) - float(lam @ a) + 0.5 * kappa * float(lam @ lam), weights / total

    lam = np.zeros(len(a))
    value, weights = objective(lam)
    for step_number in range(NEWTON_STEPS):
        mean = weights @ F
        gradient = mean - a + kappa * lam
        if float(np.max(np.abs(gradient))) < GRADIENT:
            break
        if step_number:  # at λ = 0 the weights are w₀ and the covariance is C
            root = np.sqrt(weights)[:, None] * F
            covariance = root.T @ root - np.outer(mean, mean)
        step = np.linalg.solve(covariance + kappa * np.eye(len(lam)), gradient)
        size, slope = 1.0, float(gradient @ step)
        new_value, new_weights = objective(lam - step)
        while new_value > value - ARMIJO * size * slope and size >= SHORTEST_STEP:
            size /= 2
            new_value, new_weights = objective(lam - size * step)
        if size < SHORTEST_STEP:
            break
        lam, value, weights = lam - size * step, new_value, new_weights
    return weights
