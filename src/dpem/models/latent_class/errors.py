"""What is published of latent classes, and how sure it is: standard errors by sampling and by privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpem.fitting.surrogate import ScoreQuery, Surrogate, combined_noise, error_units, share_unstable
from dpem.models.latent_class.family import TUNING, Classes, ClassFamily
from dpem.query import FloatArray


@dataclass(frozen=True)
class Parameters:
    """Shares of the classes, a probability for each class and level, and what else was released.

    ``observed`` is the share of rows that answer each item; the errors are standard errors of weights and
    probabilities, by sampling (first) and by privacy; ``path`` has the scores of 1, 2, … classes where their number was
    found. ``moved`` is the share of rows that errors of the size that is to be expected put into another class.
    """

    weights: FloatArray
    probabilities: FloatArray
    observed: FloatArray
    weights_errors: FloatArray
    probabilities_errors: FloatArray
    path: FloatArray = field(default_factory=lambda: np.zeros(0))
    moved: float = 0.0

    @property
    def classes(self) -> Classes:
        return Classes(self.weights, self.probabilities)

    def largest_first(self) -> Parameters:
        """The same classes, by their shares."""
        order = np.argsort(-self.weights, kind="stable")
        return replace(
            self,
            weights=self.weights[order],
            probabilities=self.probabilities[order],
            weights_errors=self.weights_errors[:, order],
            probabilities_errors=self.probabilities_errors[:, order],
        )


def parameters(
    family: ClassFamily,
    query: ScoreQuery,
    surrogate: Surrogate,
    noises: Sequence[float],
    others: Iterable[Classes],
    path: FloatArray,
    n: int,
) -> Parameters:
    """What is published of the classes at which the query stands; ``noises`` are those of the scores, each over the
    part that its clip kept, ``others`` are other solutions that the fit might have ended at.
    """
    theta: Classes = query.theta
    K, noise = family.K, combined_noise(noises) if noises else 0.0
    units = error_units(
        query, surrogate, lambda own: np.append(own.weights, own.probabilities), 0.0, TUNING.base if noises else 0.0
    )
    sampling, privacy = units[1] / math.sqrt(n), TUNING.widening * np.hypot(noise * units[0], units[2])
    errors = np.minimum([sampling, privacy], 1.0)
    probabilities = errors[:, K:].reshape(2, *theta.probabilities.shape)
    if noises:
        probabilities[1] = np.minimum(np.hypot(probabilities[1], family.floor), 1.0)
    moved = share_unstable(query, surrogate, others, TUNING.moving * math.hypot(noise, n**-0.5)) if noises else 0.0
    return Parameters(theta.weights, theta.probabilities, family.observed, errors[:, :K], probabilities, path, moved)
