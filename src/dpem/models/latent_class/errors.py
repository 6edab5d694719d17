"""What is published of latent classes, and how sure it is: standard errors by sampling and by privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate import ScoreQuery, Surrogate, combined_noise, error_roots, share_unstable
from dpem.models.latent_class.family import TUNING, Classes, ClassFamily
from dpem.query import FloatArray

#: Rows of the surrogate that standard errors are taken over.
ROWS = 2000


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
    exact = replace(query, family=replace(family, floor=1e-12))  # the floor would stop small moves
    noise = combined_noise(noises) if noises else 0.0
    x = surrogate.resampled(ROWS, generator(9))
    by_noise, by_rows, by_surrogate = error_roots(exact, x, 0.0, TUNING.base if noises else 0.0)
    by_noise = noise * query.kept(x, np.full(ROWS, 1 / ROWS)) * by_noise
    shares, levels = (
        np.array(own)
        for own in zip(
            *(
                _published(family, theta, root)
                for root in (by_rows / math.sqrt(n), np.hstack([by_noise, by_surrogate]))
            ),
            strict=True,
        )
    )
    if noises:
        shares[1], levels[1] = TUNING.widening * shares[1], np.hypot(TUNING.widening * levels[1], family.floor)
    moved = share_unstable(query, surrogate, others, TUNING.moving * math.hypot(noise, n**-0.5)) if noises else 0.0
    return Parameters(
        theta.weights,
        theta.probabilities,
        family.observed,
        np.minimum(shares, 1.0),
        np.minimum(levels, 1.0),
        path,
        moved,
    )


def _published(family: ClassFamily, theta: Classes, root: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard deviations of shares and probabilities where the scores' coordinates move by root·N(0, I)."""
    K = family.K
    change = np.zeros((K, K - 1))
    change[: K - 1] = np.diag(1 / np.sqrt(theta.weights[:-1]))
    change = theta.weights[:, None] * (change - theta.weights @ change)
    shares = np.linalg.norm(change @ root[: K - 1], axis=1)
    steps = root[K - 1 :].reshape(K, -1, root.shape[1])
    levels = [np.linalg.norm(turn @ own, axis=1) for turn, own in zip(theta.turned(family.items), steps, strict=True)]
    return shares, np.array(levels)
