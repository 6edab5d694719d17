"""Latent classes at their public settings: which steps fit them, how likely rows are, and what to expect before
anything is paid.
"""

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

#: The most classes that are tried, and the number that a plan supposes while it is not known.
MOST, SUPPOSED = 6, 3
ADVICE = "Fewer classes, more rows or a larger epsilon may show them; perhaps there are none."
#: What is assumed of an item in a class: one answer has this probability, the others share the rest.
TYPICAL = 0.7
EFFECT = Effect("chance of the answer that is typical of a class", TYPICAL, (0.6, 0.7, 0.8), percent=True)
#: By how much that probability is larger in classes that are clear.
CLEARER = 0.1
#: Rows that are drawn to see the information in the scores, and the most effects of items that are looked at.
ROWS, MOST_EFFECTS = 4096, 48
#: By how much errors scatter over fits, on the log scale; the error of a fit that finds other classes; how clearly
#: classes must stand out of the pairs' noise to be found surely, and in every other fit.
SCATTER, FAILED, CLEAR, EVEN = 0.25, 0.25, 1.5, 0.6
#: By how much errors of clear classes are smaller than the noise of the scores alone leaves them, since the pairs say
#: something, too; by how much those of overlapping classes are larger, and those of nine public tables of ten larger
#: still (``python -m studies.latent_class --tables tuning``).
WITH_PAIRS, OVERLAPPING, PUBLIC = 0.8, 1.2, 5.0


@dataclass(frozen=True)
class LatentClass(SurrogateModel):
    """K classes; in each the items are answered independently. ``n_classes`` 0: their number is found too."""

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
        final = Check(check, against="independent answers (one class)", advice=ADVICE, most=TUNING.clamp)
        return (PairStep(pairs), *steps, *([final] if sizes.check else []))

    def start(self) -> ClassState:
        return ClassState()

    def refitted(self, state: ClassState, step: ScoreStep, rng: np.random.Generator) -> SurrogateFit[Classes]:
        return refitted(state.fit, state.independent, [state.fit.theta], step.number + 1)

    def published(self, state: ClassState, n: int) -> Parameters:
        return published(state.fit, state.family, state.path, n)

    @property
    def most(self) -> int:
        """How many classes are tried where their number is to be found."""
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
        """The probability of each class given a row's answers."""
        return theta.classes.membership(xp, answers(xp, x, self.items))

    def simpler(self, theta: Parameters) -> Parameters:
        """Independent answers with the probabilities that the classes have together: those released alone are noisier,
        and classes would win by that.
        """
        return replace(theta, weights=np.ones(1), probabilities=(theta.weights @ theta.probabilities)[None])


def most_classes(items: Items) -> int:
    """How many classes there can be: no more parameters than there are patterns of answers, and at least 3 items.

    >>> most_classes(Items((2, 2, 2))), most_classes(Items((2, 2))), most_classes(Items((2,) * 12))
    (2, 1, 315)
    """
    if len(items.levels) < 3:
        return 1
    return math.prod(items.levels) // (1 + sum(items.levels) - len(items.levels))


def assumed(items: Items, K: int, typical: float = TYPICAL) -> Classes:
    """Nearly equal shares; every class has a typical answer to every item. The same ones in every plan."""
    p = np.zeros((K, items.first[-1]))
    places, jitter, w = normal(0, (K, len(items.levels))), normal(1, (K, len(items.levels))), normal(2, (K,))
    for j, L in enumerate(items.levels):
        rank = np.argsort(np.argsort(places[:, j]))  # every level is typical of as many classes as any other
        chance = np.clip(typical + 0.05 * jitter[:, j], typical - 0.1, min(typical + 0.1, 0.98))
        p[:, items.first[j] : items.first[j] + L] = ((1 - chance) / (L - 1))[:, None]
        p[np.arange(K), items.first[j] + rank % L] = chance
    w = np.exp(0.2 * w)
    return Classes(w / w.sum(), p)


def overlapping(items: Items, K: int, typical: float = TYPICAL) -> Classes:
    """Classes as on real tables: not clear, and each about half as large as the one before."""
    w = 0.55 ** np.arange(K)
    return Classes(w / w.sum(), assumed(items, K, typical).probabilities)


def predicted(
    items: Items, K: int, sizes: Sizes, steps: tuple[Step, ...], pairs: float, supposed: bool = False
) -> PredictedFit:
    """The prediction for classes as assumed; ``pairs`` is the sensitivity of the pairs of answers."""
    n, typical = sizes.n, sizes.effect or TYPICAL
    some = _some(items, K)
    theta = assumed(some, K, typical + CLEARER)
    mu = theta.probabilities @ some.effects
    noise = _noise(pairs, steps[0].rho, sizes)
    edge = 2 * math.sqrt(mu.shape[1]) * math.sqrt(noise**2 + 0.5 / n)
    clearance = weakest(theta.weights, mu) / edge
    smallest = min(1.0, CLEAR * edge / float(np.mean(np.sum((mu - theta.weights @ mu) ** 2, axis=1))))
    failure = 1 / (1 + (clearance / EVEN) ** 4)
    scores = [step.rho for step in steps if isinstance(step, ScoreStep)]
    median, low, high = 0.0, 0.0, 0.0
    if scores:
        clear = WITH_PAIRS * _error(some, theta, scores, sizes)
        typical_error = OVERLAPPING * _error(some, overlapping(some, K, typical), scores, sizes)
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
        f"Assumed: {K} classes{' (their number is to be found)' if supposed else ''}, each about half as large as the "
        f"one before, with an answer to every item that has a chance of about {100 * typical:.0f} %.",
    )
    if clearance >= CLEAR:
        return PredictedFit(prediction)
    factor = CLEAR / clearance
    need = f"about {_round(n * factor):,} rows, or an epsilon about {factor:.2g} times as large, or fewer classes"
    remark = (
        f"{K} classes may not be found: the noise hides the weakest direction in which they differ; {need} would do."
    )
    return PredictedFit(prediction, (remark,), clearance >= 0.5, need)


def weakest(w: FloatArray, mu: FloatArray) -> float:
    """How much the classes differ in the weakest of the directions that they span: an eigenvalue."""
    spread = mu - w @ mu
    values = np.linalg.svd(spread * np.sqrt(w)[:, None], compute_uv=False)
    return float(max(values[len(w) - 2], 1e-3) ** 2) if len(values) >= len(w) - 1 else 1e-6


def _noise(sensitivity: float, rho: float, sizes: Sizes) -> float:
    return 0.0 if math.isinf(rho) else sizes.rows_per_person * sensitivity / (sizes.n * math.sqrt(2 * rho))


def _error(items: Items, theta: Classes, scores: list[float], sizes: Sizes) -> float:
    """The root mean square by which the noise of the scores moves probabilities, to first order."""
    K = len(theta.weights)
    family = ClassFamily(K, items, np.ones(len(items.levels)), theta.weights @ theta.probabilities)
    S = np.asarray(family.scores(numpy_api, theta, family.draw(theta, ROWS, generator(0))))
    W = whitener(information(S, np.full(ROWS, 1 / ROWS)))
    norms = np.sqrt(np.einsum("ij,ij->i", S @ W, S @ W))
    radius = float(np.quantile(norms, TUNING.levels[0]))
    kept = float(np.sum(np.minimum(norms, radius) * norms) / np.sum(norms**2))
    noise = combined_noise(_noise(2 * radius, rho, sizes) for rho in scores)
    square, at = 0.0, K - 1
    for turn in theta.turned(items):
        square += float(np.sum((turn @ W[at : at + turn.shape[1]]) ** 2))
        at += turn.shape[1]
    return noise / kept * math.sqrt(square / theta.probabilities.size)


def _some(items: Items, K: int) -> Items:
    """The items, or the first of them where all take long: classes are clear then, and more items change little."""
    effects = np.cumsum([level - 1 for level in items.levels])
    return Items(items.levels[: max(3, K // 2, int(np.sum(effects <= MOST_EFFECTS)))])


def _round(value: float) -> int:
    """Two leading digits."""
    size = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return math.ceil(value / size) * size
