"""Latent classes at their public settings: which steps fit them, how likely rows are, what to expect."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpem._validation import ArgumentError
from dpem.fitting.check import CHECK_SHARE, Check
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.step import Step, prices
from dpem.models.latent_class import planning
from dpem.models.latent_class.errors import Parameters
from dpem.models.latent_class.family import ClassFamily
from dpem.models.latent_class.items import Items, answers
from dpem.models.latent_class.number_of_classes import MOST, SUPPOSED
from dpem.models.latent_class.queries import PairMoments
from dpem.models.latent_class.steps import AskPairs, AskScores, ClassState, Converge
from dpem.models.latent_class.tuning import TUNING
from dpem.query import Array, FloatArray, Namespace

ADVICE = "Fewer classes, more rows or a larger epsilon may show them; perhaps there are none."


@dataclass(frozen=True)
class LatentClass(Model):
    """K classes; in each the items are answered independently. ``n_classes`` 0: their number is found too."""

    n_classes: int
    items: Items
    effect = planning.EFFECT

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        check, rest = prices(sizes.rho, (CHECK_SHARE, 1 - CHECK_SHARE)) if sizes.check else (0.0, sizes.rho)
        growing = TUNING.growth ** np.arange(TUNING.scores)
        pairs, *scores = prices(rest, (TUNING.pairs, *((1 - TUNING.pairs) * growing / growing.sum())))
        last = [Converge(math.inf)] if math.isinf(sizes.rho) else [AskScores(rho, rho is scores[-1]) for rho in scores]
        final = Check(check, against="independent answers (one class)", advice=ADVICE, most=TUNING.clamp)
        return (AskPairs(pairs), *last, *([final] if sizes.check else []))

    def start(self) -> ClassState:
        return ClassState()

    @property
    def most(self) -> int:
        """How many classes are tried where their number is to be found."""
        return min(MOST, planning.most_classes(self.items))

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        K = self.n_classes or min(SUPPOSED, self.most)
        if sizes.n < K:
            raise ArgumentError("n_classes", f"must be at most the number of rows ({sizes.n}), got {K}.")
        pairs = PairMoments(self.schema, self.items).bound.l2
        return planning.predict_fit(self.items, K, sizes, steps, pairs, supposed=self.n_classes == 0)

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

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, None]:
        family = ClassFamily(len(theta.weights), self.items, theta.observed, theta.weights @ theta.probabilities)
        return family.draw(theta.classes, n, rng)
