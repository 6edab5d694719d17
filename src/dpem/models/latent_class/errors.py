"""The published parameters of latent classes, and their standard errors by sampling and by privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from dpem.fitting.surrogate import SurrogateFit, error_units
from dpem.models.latent_class.family import TUNING, Classes, ClassFamily
from dpem.query import FloatArray


@dataclass(frozen=True)
class Parameters:
    """The shares of the classes, the probability of each level in each class, and the other releases.

    ``observed`` holds the share of rows that answer each item. Standard errors have two rows: by sampling, and by
    privacy. ``path`` holds the criterion for 1, 2, … classes if their number was estimated. ``moved`` is the share of
    rows that a second private fit may put into another class.
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
        """The same classes in the order of their shares."""
        order = np.argsort(-self.weights, kind="stable")
        return replace(
            self,
            weights=self.weights[order],
            probabilities=self.probabilities[order],
            weights_errors=self.weights_errors[:, order],
            probabilities_errors=self.probabilities_errors[:, order],
        )


def published(fit: SurrogateFit[Classes], family: ClassFamily, path: FloatArray, n: int) -> Parameters:
    """The solution of a fit to n rows, with its standard errors."""
    theta, K, noise = fit.theta, family.K, fit.noise
    units = error_units(
        fit.query,
        fit.surrogate,
        lambda classes: np.append(classes.weights, classes.probabilities),
        0.0,
        TUNING.base if noise else 0.0,
    )
    sampling, privacy = units[1] / math.sqrt(n), TUNING.widening * np.hypot(noise * units[0], units[2])
    errors = np.minimum([sampling, privacy], 1.0)
    probabilities = errors[:, K:].reshape(2, *theta.probabilities.shape)
    if noise:
        probabilities[1] = np.minimum(np.hypot(probabilities[1], family.floor), 1.0)
    moved = fit.share_unstable(n, TUNING.moving, TUNING.near, queries=1) if noise else 0.0
    return Parameters(theta.weights, theta.probabilities, family.observed, errors[:, :K], probabilities, path, moved)
