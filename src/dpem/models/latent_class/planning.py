"""Latent classes at their public settings: steps, densities, simulated rows, and the prediction of a fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem._validation import ArgumentError
from dpem.fitting.check import CHECK_SHARE, Check
from dpem.fitting.model import Effect, PredictedFit, Sizes
from dpem.fitting.plan import Prediction
from dpem.fitting.rehearsal import generator, normal, with_failures
from dpem.fitting.step import Step, prices
from dpem.fitting.surrogate import ScoreStep, SurrogateFit, SurrogateModel, combined_noise, information, whitener
from dpem.models.latent_class.errors import Parameters, published
from dpem.models.latent_class.family import TUNING, Classes, ClassFamily
from dpem.models.latent_class.queries import Items, PairMoments, answers
from dpem.models.latent_class.steps import ClassState, Converge, PairStep, refitted
from dpem.query import Array, FloatArray, Namespace

#: With "auto": the largest number of classes that is tried, and the number that a plan assumes.
MOST, SUPPOSED = 6, 3
ADVICE = "Fewer classes, more rows or a larger epsilon may show them; perhaps there are none."
#: The assumed probability of the typical answer to an item in a class; the other answers share the rest.
TYPICAL = 0.7
EFFECT = Effect("chance of the answer that is typical of a class", TYPICAL, (0.6, 0.7, 0.8), percent=True)
#: The increase of that probability in clear classes.
CLEARER = 0.1
#: The number of rows that are drawn to compute the information, and the largest number of effects that is considered.
ROWS, MOST_EFFECTS = 4096, 48
#: The standard deviation of the log error over fits, and the error of a fit that finds other classes.
SCATTER, FAILED = 0.25, 0.25
#: The strength of the classes in the pairs, over the largest eigenvalue of the noise, at which nearly all fits find
#: them; at which half of the fits do; at which few do; and the exponent of the chance.
CLEAR, HALF_FAIL, INFEASIBLE, EXPONENT = 1.5, 0.6, 0.5, 4
#: The error over that by the noise of the scores alone: for clear classes, to which the pairs contribute; for
#: overlapping classes; and the factor that nine of ten public tables stay below, relative to overlapping classes
#: (``python -m studies.latent_class --tables tuning``).
WITH_PAIRS, OVERLAPPING, PUBLIC = 0.8, 1.2, 5.0
#: The share of a class over that of the one before it, where classes are unequal.
DECLINE = 0.55


@dataclass(frozen=True)
class LatentClass(SurrogateModel):
    """Classes in each of which the items are answered independently; ``n_classes`` 0: their number is estimated."""

    n_classes: int
    items: Items
    effect = EFFECT
    queries = TUNING.scores
    clip_quantiles = TUNING.levels

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        check, rest = prices(sizes.rho, (CHECK_SHARE, 1 - CHECK_SHARE)) if sizes.check else (0.0, sizes.rho)
        growing = TUNING.growth ** np.arange(TUNING.scores)
        pairs, *scores = prices(rest, (TUNING.pairs, *((1 - TUNING.pairs) * growing / growing.sum())))
        steps: list[Step] = [ScoreStep(rho, t, t == TUNING.scores - 1) for t, rho in enumerate(scores)]
        if math.isinf(sizes.rho):
            steps = [Converge(math.inf)]
        final = Check(
            check, against="independent answers with its own overall probabilities", advice=ADVICE, most=TUNING.clamp
        )
        return (PairStep(pairs), *steps, *([final] if sizes.check else []))

    def start(self) -> ClassState:
        return ClassState()

    def refitted(self, state: ClassState, step: ScoreStep, rng: np.random.Generator) -> SurrogateFit[Classes]:
        return refitted(state.fit, state.independent, [state.fit.theta], step.number + 1)

    def published(self, state: ClassState, n: int) -> Parameters:
        return published(state.fit, state.family, state.path, n)

    @property
    def most(self) -> int:
        """The largest number of classes that is tried if their number is estimated."""
        return min(MOST, most_classes(self.items))

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        K = self.n_classes or min(SUPPOSED, self.most)
        if sizes.n < K:
            raise ArgumentError("n_classes", f"must be at most the number of rows ({sizes.n}), got {K}.")
        pairs = PairMoments(self.schema, self.items).bound.l2
        return predicted(self.items, K, sizes, steps, pairs, supposed=self.n_classes == 0)

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        joint = theta.classes.log_joint(xp, answers(xp, x, self.items))
        most = xp.max(joint, axis=1, keepdims=True)
        return (most + xp.log(xp.sum(xp.exp(joint - most), axis=1, keepdims=True)))[:, 0]

    def membership(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        """The posterior probability of each class given the answers."""
        return theta.classes.membership(xp, answers(xp, x, self.items))

    def simpler(self, theta: Parameters) -> Parameters:
        """Independent answers with the overall probabilities of the classes. The released overall probabilities are
        noisier, so that a comparison with them would favour the classes.
        """
        return replace(theta, weights=np.ones(1), probabilities=(theta.weights @ theta.probabilities)[None])


def most_classes(items: Items) -> int:
    """The largest number of classes: no more parameters than patterns of answers; 1 with fewer than 3 items.

    >>> most_classes(Items((2, 2, 2))), most_classes(Items((2, 2))), most_classes(Items((2,) * 12))
    (2, 1, 315)
    """
    if len(items.levels) < 3:
        return 1
    return math.prod(items.levels) // (1 + sum(items.levels) - len(items.levels))


def assumed(items: Items, K: int, typical: float = TYPICAL) -> Classes:
    """Clear classes of nearly equal shares with a typical answer to every item, the same in every plan."""
    p = np.zeros((K, items.first[-1]))
    order, jitter, w = normal(0, (K, len(items.levels))), normal(1, (K, len(items.levels))), normal(2, (K,))
    for j, L in enumerate(items.levels):
        rank = np.argsort(np.argsort(order[:, j]))  # every level is typical of the same number of classes
        chance = np.clip(typical + 0.05 * jitter[:, j], typical - 0.1, min(typical + 0.1, 0.98))
        p[:, items.first[j] : items.first[j] + L] = ((1 - chance) / (L - 1))[:, None]
        p[np.arange(K), items.first[j] + rank % L] = chance
    w = np.exp(0.2 * w)
    return Classes(w / w.sum(), p)


def overlapping(items: Items, K: int, typical: float = TYPICAL) -> Classes:
    """Classes as on real tables: overlapping, and each about half as large as the one before."""
    w = DECLINE ** np.arange(K)
    return Classes(w / w.sum(), assumed(items, K, typical).probabilities)


def predicted(
    items: Items, K: int, sizes: Sizes, steps: tuple[Step, ...], pairs: float, supposed: bool = False
) -> PredictedFit:
    """The prediction for the assumed classes; ``pairs`` is the sensitivity of the pairs of answers."""
    n, typical = sizes.n, sizes.effect or TYPICAL
    considered = _first_items(items, K)
    theta = assumed(considered, K, typical + CLEARER)
    mu = theta.probabilities @ considered.effects
    noise = _noise(pairs, steps[0].rho, sizes)
    noise_edge = 2 * math.sqrt(mu.shape[1]) * math.sqrt(noise**2 + 0.5 / n)
    strength = weakest(theta.weights, mu) / noise_edge
    smallest = min(1.0, CLEAR * noise_edge / float(np.mean(np.sum((mu - theta.weights @ mu) ** 2, axis=1))))
    failure = 1 / (1 + (strength / HALF_FAIL) ** EXPONENT)
    scores = [step.rho for step in steps if isinstance(step, ScoreStep)]
    median, low, high = 0.0, 0.0, 0.0
    if scores:
        clear = WITH_PAIRS * _error(considered, theta, scores, sizes)
        typical_error = OVERLAPPING * _error(considered, overlapping(considered, K, typical), scores, sizes)
        median, _, high = with_failures(min(typical_error, FAILED), SCATTER, failure, FAILED)
        low, high = min(clear, median), max(high, min(PUBLIC * typical_error, FAILED))
    prediction = Prediction(
        "error that privacy adds to the probabilities of a class",
        median,
        low,
        high,
        failure,
        "The error is the root mean square distance of the probabilities from those without privacy. The lower end is "
        "for clear classes of equal size; nine public tables of ten stayed below the upper end. "
        f"Classes with less than about {100 * smallest:.2g} % of the rows will not be found.",
        f"Assumed: {K} classes{' (their number will be estimated)' if supposed else ''}, each about half as large as "
        f"the one before, with an answer to every item that has a chance of about {100 * typical:.0f} %.",
    )
    if strength >= CLEAR:
        return PredictedFit(prediction)
    factor = CLEAR / strength
    need = f"about {_round(n * factor):,} rows, or an epsilon about {factor:.2g} times as large, or fewer classes"
    remark = (
        f"{K} classes may not be found: the noise hides the weakest direction in which they differ; {need} would do."
    )
    return PredictedFit(prediction, (remark,), strength >= INFEASIBLE, need)


def weakest(w: FloatArray, mu: FloatArray) -> float:
    """The smallest of the K − 1 eigenvalues of the covariance of the class means."""
    deviations = mu - w @ mu
    values = np.linalg.svd(deviations * np.sqrt(w)[:, None], compute_uv=False)
    return float(max(values[len(w) - 2], 1e-3) ** 2) if len(values) >= len(w) - 1 else 1e-6


def _noise(sensitivity: float, rho: float, sizes: Sizes) -> float:
    return 0.0 if math.isinf(rho) else sizes.rows_per_person * sensitivity / (sizes.n * math.sqrt(2 * rho))


def _error(items: Items, theta: Classes, scores: list[float], sizes: Sizes) -> float:
    """The root mean square error of the probabilities by the noise of the scores, to first order."""
    K = len(theta.weights)
    family = ClassFamily(K, items, np.ones(len(items.levels)), theta.weights @ theta.probabilities)
    S = np.asarray(family.scores(numpy_api, theta, family.draw(theta, ROWS, generator(0))))
    W = whitener(information(S, np.full(ROWS, 1 / ROWS)))
    norms = np.sqrt(np.einsum("ij,ij->i", S @ W, S @ W))
    radius = float(np.quantile(norms, TUNING.levels[0]))
    retained = float(np.sum(np.minimum(norms, radius) * norms) / np.sum(norms**2))
    noise = combined_noise(_noise(2 * radius, rho, sizes) for rho in scores)
    square, first = 0.0, K - 1
    for tangent in theta.tangents(items):
        square += float(np.sum((tangent @ W[first : first + tangent.shape[1]]) ** 2))
        first += tangent.shape[1]
    return noise / retained * math.sqrt(square / theta.probabilities.size)


def _first_items(items: Items, K: int) -> Items:
    """The first items, at most as many as have ``MOST_EFFECTS`` effects: with more, classes are clear in any case."""
    effects = np.cumsum([level - 1 for level in items.levels])
    return Items(items.levels[: max(3, K // 2, int(np.sum(effects <= MOST_EFFECTS)))])


def _round(value: float) -> int:
    """The number rounded up to two leading digits."""
    size = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return math.ceil(value / size) * size
