"""How sure latent classes are: standard errors by sampling and by privacy, and whether the classes are stable.

The surrogate rows stand in for the table: the same queries are asked of them, answered with noise of their own, and EM
follows. How far the classes then come out from the fitted ones is what the noise does to them, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.optimize import linear_sum_assignment

from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate import Converged, Surrogate, information, share_apart, share_moved, whitener
from dpem.fitting.surrogate.rows import Features, combined_noise
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


def standard_errors(
    family: ClassFamily, theta: Classes, surrogate: Surrogate, noises: tuple[float, ...], n: int, again: list[Classes]
) -> tuple[FloatArray, FloatArray, float]:
    """Standard errors of weights and of probabilities, each by sampling (first) and by privacy, and the share of rows
    that errors of the size of both put into another class.

    In the coordinates of the scores the covariance by sampling is J⁻¹/n. An answer of W·S with noise τ moves θ by
    (WJ)⁻¹ times the noise, which is W times it where W = J^(−1/2), and answers add their precisions: τ²W² with the
    combined τ. Clipping, curvature, the pairs and the pull of the base weights are left out there; so this is scaled to
    the mean square of what ``again`` shows and averaged with it, parameter by parameter, and the larger one counts.
    """
    S = np.asarray(family.scores(numpy_api, theta, surrogate.x))
    W = whitener(information(S, surrogate.weights), TUNING.ridge)
    shares, levels = (np.zeros((2, *own.shape)) for own in (theta.weights, theta.probabilities))
    shares[0], levels[0] = _published(family, theta, W @ W / n)
    moved = 0.0
    if noises:
        noise = combined_noise(noises)
        linear = _published(family, theta, noise**2 * W @ W)
        far = [(own.weights - theta.weights, own.probabilities - theta.probabilities) for own in again]
        for errors, part, off in zip((shares, levels), linear, zip(*far, strict=True), strict=True):
            seen = np.mean(np.square(off), axis=0)
            scaled = part**2 * seen.mean() / max(float(np.mean(part**2)), 1e-300)
            pooled = (TUNING.pooled * scaled + len(again) * seen) / (TUNING.pooled + len(again))
            errors[1] = TUNING.widening * np.sqrt(np.maximum(pooled, part**2))
        levels[1] = np.hypot(levels[1], family.floor)
        scale = float(np.hypot(TUNING.moving * noise, n**-0.5))
        moved = share_moved(family, theta, surrogate.x, surrogate.weights, W, scale, generator(0), repeats=20)
    return np.minimum(shares, 1.0), np.minimum(levels, 1.0), moved


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


def replayed(family: ClassFamily, surrogate: Surrogate, found: list[Converged[Classes]]) -> tuple[list[Classes], float]:
    """What other noise would have led to if the surrogate rows were the table: the classes that EM finds from the
    fitted ones, matched to them, for each of several repeats, and the mean share of rows in another class of the best
    that EM finds from all solutions in ``found``.
    """
    rng, theta, rows = generator(0), found[0].theta, surrogate.features.rows
    expected, again, moved = surrogate.weights @ rows, [], []
    for _ in range(TUNING.repeats):
        features = Features(rows, expected + rng.standard_normal(len(expected)))
        weights = surrogate.blocks[-1].tilted(surrogate.base, features)
        repeat = heaviest(surrogate.x, weights)
        near = repeat.fit(family, [theta], short=100, tolerance=1e-5)[0]
        others = repeat.fit(family, [own.theta for own in found[1:3]], short=20, kept=1, most=100, tolerance=1e-5)
        again.append(near.theta)
        best = max([near, *others], key=lambda own: own.log_likelihood)
        moved.append(share_apart(family, surrogate, theta, best.theta))
    return [_matched(theta, own) for own in again], float(np.mean(moved))


def heaviest(x: FloatArray, weights: FloatArray) -> Surrogate:
    """Weighted rows without the lightest, which together weigh less than 10⁻⁵: EM is as good and faster."""
    order = np.argsort(weights)
    kept = order[np.cumsum(weights[order]) > 1e-5]
    return Surrogate.of(x[kept], weights[kept])


def _matched(theta: Classes, other: Classes) -> Classes:
    """The other classes in the order in which they are nearest to θ's."""
    gaps = np.sum((theta.probabilities[:, None] - other.probabilities) ** 2, axis=2)
    order = linear_sum_assignment(gaps)[1]
    return Classes(other.weights[order], other.probabilities[order])
