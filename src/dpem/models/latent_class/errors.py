"""How sure latent classes are: standard errors by sampling and by privacy, and whether the classes are stable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate import Surrogate, information, whitener
from dpem.fitting.surrogate.rows import combined_noise
from dpem.models.latent_class.family import Classes, ClassFamily
from dpem.models.latent_class.tuning import TUNING
from dpem.query import FloatArray

#: Draws of the parameters by which the share of rows that the noise moves is found.
DRAWS = 20


@dataclass(frozen=True)
class Parameters:
    """Shares of the classes, a probability for each class and level, and what else was released.

    ``observed`` is the share of rows that answer each item, ``overall`` the probabilities without classes; the errors
    are standard errors of weights and probabilities, by sampling (first) and by privacy; ``path`` has the scores of 1,
    2, … classes where their number was found. ``moved`` is the share of rows that the noise puts into another class,
    ``regrouped`` the share that an almost equally likely solution does. ``follows`` is whether the answers suit rows
    with such classes better than others (see :func:`~dpem.models.latent_class.steps.with_base`).
    """

    weights: FloatArray
    probabilities: FloatArray
    observed: FloatArray
    overall: FloatArray
    weights_errors: FloatArray
    probabilities_errors: FloatArray
    path: FloatArray = field(default_factory=lambda: np.zeros(0))
    moved: float = 0.0
    regrouped: float = 0.0
    follows: bool = False

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


def standard_errors(
    family: ClassFamily, theta: Classes, surrogate: Surrogate, noises: tuple[float, ...], n: int, follows: bool
) -> tuple[FloatArray, FloatArray, float]:
    """Standard errors of weights and of probabilities, each by sampling (first) and by privacy, and the share of rows
    that the noise puts into another class.

    In the coordinates of the scores the covariance by sampling is J⁻¹/n. An answer of W·S with noise τ moves θ by
    (WJ)⁻¹ times the noise, which is W times it where W = J^(−1/2), and answers add their precisions: τ²W² with the
    combined τ, times a factor², since clipping, curvature and the earlier θ are left out; it is larger where rows do
    not follow the classes (``follows``).
    """
    S = np.asarray(family.scores(numpy_api, theta, surrogate.x, None))
    W = whitener(information(S, surrogate.weights), TUNING.ridge)
    noise = combined_noise(noises) if noises else 0.0
    factor = TUNING.widening if follows else TUNING.widening_otherwise
    found = [_published(family, theta, scale**2 * W @ W) for scale in (n**-0.5, factor * noise)]
    shares, levels = (np.minimum(np.array(part), 1.0) for part in zip(*found, strict=True))
    if not noises:
        return shares, levels, 0.0
    levels[1] = np.hypot(levels[1], family.floor)
    return shares, levels, share_moved(family, theta, surrogate, W * float(np.hypot(TUNING.moving * noise, n**-0.5)))


def _published(family: ClassFamily, theta: Classes, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard errors of shares and probabilities from the covariance of the scores' coordinates."""
    K = family.K
    change = np.zeros((K, K - 1))
    change[: K - 1] = np.diag(1 / np.sqrt(theta.weights[:-1]))
    change = theta.weights[:, None] * (change - theta.weights @ change)
    shares = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", change, covariance[: K - 1, : K - 1], change), 0.0))
    levels, at = [], K - 1
    for turn in theta.turned(family.items):
        own = slice(at, at + turn.shape[1])
        levels.append(np.sqrt(np.maximum(np.einsum("li,ij,lj->l", turn, covariance[own, own], turn), 0.0)))
        at += turn.shape[1]
    return shares, np.array(levels)


def share_moved(family: ClassFamily, theta: Classes, surrogate: Surrogate, root: FloatArray) -> float:
    """The mean share of rows that change class when θ moves by the root of a covariance times normal errors."""
    rng, before = generator(0), _labels(family, theta, surrogate)
    found = []
    for _ in range(DRAWS):
        after = _labels(family, family.moved(theta, root @ rng.standard_normal(len(root))), surrogate)
        found.append(float(surrogate.weights[before != after].sum()))
    return float(np.mean(found))


def classes_apart(family: ClassFamily, one: Classes, other: Classes, surrogate: Surrogate) -> float:
    """The share of rows that two solutions put into different classes, matched as well as can be."""
    first, second = (_labels(family, own, surrogate) for own in (one, other))
    table = np.zeros((family.K, family.K))
    np.add.at(table, (first, second), surrogate.weights)
    rows, columns = linear_sum_assignment(-table)
    return float(max(0.0, 1 - table[rows, columns].sum()))


def _labels(family: ClassFamily, theta: Classes, surrogate: Surrogate) -> NDArray[np.intp]:
    return np.asarray(np.argmax(family.joint(numpy_api, theta, surrogate.x, None), axis=1))
