"""How many latent classes there are, from the pairs of answers that were released: nothing more is paid.

For each number of classes those are found that come closest to the released pairs. A number scores its squared
distance, in units of the pairs' errors, plus log(values released) for every parameter; the least score is taken. One
class means independent answers. Pairs identify no more classes than the rank of their matrix, plus one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate import Surrogate
from dpem.models.latent_class.family import Classes, ClassFamily
from dpem.query import FloatArray

#: The most classes that are tried, and the number that a plan supposes while it is not known.
MOST, SUPPOSED = 6, 3
#: Steps of the search for the closest classes, and how weakly these are drawn to where it begins.
STEPS, PULL = 12, 0.1


@dataclass(frozen=True)
class Released:
    """The released means of pairs, of answers, the noise of both, and the number of rows."""

    pairs: FloatArray
    levels: FloatArray
    noise: float
    n: int

    def misfit(self, family: ClassFamily, theta: Classes) -> FloatArray:
        """What the classes say less what was released, in units of its error: the noise, and the half of the sampling
        variance that a fit to the same rows does not take up.
        """
        items, (i, j) = family.items, family.items.pairs
        o, mu = items.of_effect @ family.observed, theta.probabilities @ items.effects
        pairs = o[i] * o[j] * (theta.weights @ (mu[:, i] * mu[:, j]))
        levels = (items.of_level @ family.observed) * (theta.weights @ theta.probabilities)
        gaps = np.concatenate([pairs - self.pairs, levels - self.levels])
        return np.asarray(gaps / math.sqrt(self.noise**2 + 0.5 / self.n))

    def distance(self, family: ClassFamily, theta: Classes) -> float:
        """The squared misfit of the closest classes near θ."""
        K, items = family.K, family.items
        start = np.concatenate([np.log(theta.weights), np.log(theta.probabilities).ravel()])

        def classes(point: FloatArray) -> Classes:
            weights = np.exp(point[:K] - point[:K].max())
            p = np.exp(np.minimum(point[K:].reshape(K, -1), 30.0))
            return Classes(weights / weights.sum(), items.floored(items.proportions(p), 1e-6))

        def far(point: FloatArray) -> FloatArray:
            return np.concatenate([self.misfit(family, classes(point)), PULL * (point - start)])

        found = least_squares(far, start, max_nfev=STEPS)
        return float(np.sum(self.misfit(family, classes(found.x)) ** 2))


def choose(family: ClassFamily, surrogate: Surrogate, released: Released, most: int) -> tuple[ClassFamily, FloatArray]:
    """The family of the number of classes with the least score, and the scores of 1, 2, … classes."""
    values = len(released.pairs) + len(released.levels)
    price = (1 + family.items.effects.shape[1]) * math.log(values)
    path = []
    for K in range(1, most + 1):
        own = replace(family, K=K)
        options: dict[str, Any] = {"short": 20, "kept": 2, "most": 100, "tolerance": 1e-6}
        found = surrogate.fit(own, [], restarts=1 if K == 1 else 6, rng=generator(K), **options)
        path.append(released.distance(own, found[0].theta) + price * K)
    return replace(family, K=int(np.argmin(path)) + 1), np.array(path)
