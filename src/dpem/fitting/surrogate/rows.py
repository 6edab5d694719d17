r"""Surrogate rows: public rows whose weights agree with every answer so far, as far as the noise asks for.

Rows i have base weights w₀ and features f_i; a noisy mean a of the features is known, everything in units of its
noise. The tilted weights are w ∝ w₀·exp(Fλ) with λ the minimiser of

    log Σ w₀ exp(Fλ) − λ·a + (κ/2)‖λ‖².

*Lemma.* They minimise κ·KL(w‖w₀) + ½‖E_w f − a‖². *Proof.* Setting the derivative of the former to 0 gives
E_w f − a + κλ = 0. The latter is convex in w; its Lagrange condition is κ·log(w/w₀) + f·(E_w f − a) = constant, which
holds for w ∝ w₀·exp(Fλ) with λ = (a − E_w f)/κ: the same equation. ∎

So κ says how much the base weights count. With λ near 0 the prior that belongs to it is E_w f ~ N(E_0 f, Cov₀ f/κ),
and the answer is N(E_0 f, I + Cov₀ f/κ): κ is the one under which the answer is most probable.
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

#: Newton steps of the tilt at most.
NEWTON = 40
#: The most that a row counts where two mixtures are compared, in log-density.
MOST_GAIN = 5.0


class RowQuery(Protocol):
    """A query that also says what each row contributes."""

    def each(self, xp: Namespace, x: Array) -> Array:
        """Clipped contributions, row by row (m × p)."""


class Answer(NamedTuple):
    """The noisy mean of a query and the standard deviation of its noise, one for all entries or one each."""

    query: RowQuery
    mean: FloatArray
    noise: FloatArray | float


@dataclass(frozen=True)
class Features:
    """What each row contributes to some queries (m × p) and their answers (p), in units of the noise and centred under
    the base weights; ``covariance`` (p × p) is that of the rows under these.
    """

    rows: FloatArray
    answer: FloatArray
    covariance: FloatArray

    @classmethod
    def none(cls, m: int) -> Features:
        return cls(np.zeros((m, 0)), np.zeros(0), np.zeros((0, 0)))

    @cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray]:
        """The variances of the principal components, and the answer along them."""
        variances, axes = np.linalg.eigh(self.covariance)
        return np.maximum(variances, 0.0), self.answer @ axes

    def extended(self, rows: FloatArray, answer: FloatArray, base: FloatArray) -> Features:
        """With further features and their answer."""
        middle = base @ rows
        rows = np.hstack([self.rows, rows - middle])
        own = rows[:, len(self.answer) :]
        across = (base[:, None] * own).T @ rows
        covariance = np.vstack([np.hstack([self.covariance, across[:, : len(self.answer)].T]), across])
        return Features(rows, np.concatenate([self.answer, answer - middle]), covariance)

    def principal(self, most: int) -> Features:
        """Turned to at most so many principal components. A rotation leaves independent unit noise what it is."""
        if len(self.answer) <= most:
            return self
        variances, axes = np.linalg.eigh(self.covariance)
        axes = axes[:, -most:]
        return Features(self.rows @ axes, self.answer @ axes, np.diag(np.maximum(variances[-most:], 0.0)))


@dataclass(frozen=True)
class Block:
    """Answers that share one κ, between ``low`` and ``high``. Their features are reduced to at most ``components``
    principal ones.
    """

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
        rows, mean = np.asarray(answer.query.each(numpy_api, x)) / answer.noise, answer.mean / answer.noise
        if rows.shape[1] > 4 * self.components:
            axes = main_axes(rows, base, self.components + 20)
            rows, mean = rows @ axes, mean @ axes
        return features.extended(rows, mean, base).principal(self.components)

    def tilted(self, base: FloatArray, features: Features) -> Tilted:
        """The weights that agree with the answers."""
        if not features.answer.size:
            return Tilted(base, self.high)
        kappa = evidence_kappa(features, self.low, self.high)
        return Tilted(tilt(base, features, kappa), kappa)


class Tilted(NamedTuple):
    """Tilted weights, and the κ that they were tilted with."""

    weights: FloatArray
    kappa: float


@dataclass(frozen=True)
class Surrogate:
    """Rows, and blocks of answers that tilt their weights one after the other: the weights after one block are the base
    of the next. ``base`` and ``features`` are those of the last block.
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
        """The surrogate that agrees with one more answer, of the last block."""
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
        """The tilted weights; they add up to 1."""
        return self.tilted.weights

    @property
    def log_evidence(self) -> float:
        """The log-density of the last block's answers under its base weights, up to a constant."""
        return log_evidence(self.features, self.tilted.kappa)

    @property
    def effective_share(self) -> float:
        """1/(m·Σw²): the share of the rows that carry the weights."""
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
        """EM to convergence from the given starts and from random ones, the best first.

        With a ``margin`` a random start comes before the best of the given ones only if it gains more than that in mean
        log-likelihood: noise in the answers alone lets some mixture gain. What it gains or loses is then counted up to
        :data:`MOST_GAIN` in each row: the answers hardly tell how much the few rows weigh that no component describes.
        """
        given, expect = list(starts), family.expectation(self.x, self.weights)
        found = best_of(family, given, expect, **options)
        first = found[0] if given else None
        if restarts and rng is not None:
            random = [family.random_start(self.x, self.weights, rng) for _ in range(restarts)]
            found += best_of(family, random, expect, **options)
        if first is not None and margin:
            logs = self._log_density(family, first.theta)
            for place, own in enumerate(found):
                if own.log_likelihood > first.log_likelihood:
                    gains = np.clip(self._log_density(family, own.theta) - logs, -MOST_GAIN, MOST_GAIN)
                    counted = first.log_likelihood + float(self.weights @ gains)
                    found[place] = own._replace(log_likelihood=min(counted, own.log_likelihood))
        return sorted(found, key=lambda own: margin * (own is not first) - own.log_likelihood)

    def _log_density(self, family: Family[Theta], theta: Theta) -> FloatArray:
        return np.asarray(logsumexp(family.joint(numpy_api, theta, self.x), axis=1))

    def resampled(self, m: int, rng: np.random.Generator) -> FloatArray:
        """m rows drawn by their weights, systematically: none comes in much more or less often than its weight says."""
        ends = np.cumsum(self.weights)
        at = np.searchsorted(ends / ends[-1], (np.arange(m) + rng.random()) / m)
        return np.asarray(self.x[np.minimum(at, len(self.x) - 1)])


def combined_noise(noises: Iterable[float]) -> float:
    """The standard deviation of the precision-weighted mean of independent answers."""
    return 1 / math.sqrt(math.fsum(1 / noise**2 for noise in noises))


def main_axes(rows: FloatArray, weights: FloatArray, most: int) -> FloatArray:
    """About the ``most`` principal axes of many features, from every third row."""
    third = np.sqrt(weights[::3, None]) * (rows[::3] - weights @ rows)
    return np.asarray(randomized_svd(third, most, n_iter=2, random_state=0)[2].T)


def evidence_kappa(features: Features, low: float, high: float) -> float:
    """The κ in [low, high] that makes the answers most probable, on a grid."""
    return float(max(np.geomspace(low, high, 13), key=lambda kappa: log_evidence(features, kappa)))


def log_evidence(features: Features, kappa: float) -> float:
    """The log-density of the answers, up to a constant, if the base weights count κ."""
    variances, answer = features.spectrum
    spread = 1 + variances / kappa
    return -0.5 * float(np.sum(np.log(spread) + answer**2 / spread))


def tilt(base: FloatArray, features: Features, kappa: float) -> FloatArray:
    """The tilted weights, by Newton steps that are halved until the objective falls."""
    rows, answer, covariance = features.rows, features.answer, features.covariance
    log_base = np.log(np.maximum(base, 1e-300))

    def at(point: FloatArray) -> tuple[float, FloatArray]:
        """The objective at λ, and the weights."""
        logs = log_base + rows @ point
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        value = top + np.log(total) - float(point @ answer) + 0.5 * kappa * float(point @ point)
        return value, weights / total

    point = np.zeros(len(answer))
    value, weights = at(point)
    for number in range(NEWTON):
        middle = weights @ rows
        gradient = middle - answer + kappa * point
        if float(np.max(np.abs(gradient))) < 1e-3:  # a thousandth of the noise
            break
        if number:  # the first step starts from the base weights
            root = np.sqrt(weights)[:, None] * rows
            covariance = root.T @ root - np.outer(middle, middle)
        step = np.linalg.solve(covariance + kappa * np.eye(len(point)), gradient)
        size, slope = 1.0, float(gradient @ step)
        new, tilted = at(point - step)
        while new > value - 1e-4 * size * slope and size >= 1e-6:
            size /= 2
            new, tilted = at(point - size * step)
        if size < 1e-6:
            break
        point, value, weights = point - size * step, new, tilted
    return weights
