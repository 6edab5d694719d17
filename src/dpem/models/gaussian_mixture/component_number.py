"""The number of components that a released sketch asks for.

Many components describe one correlated Gaussian, or independent columns of any shape, better than one of them does. So
a number of components is believed only where neither of these describes the sketch as well at fewer parameters.
"""

from __future__ import annotations

import math

import numpy as np

from dpem.models.gaussian_mixture.sketch_fit import ComplexArray, Expansion, Target, descend, expansion, fitted
from dpem.query import FloatArray

#: The most components that are tried.
MOST = 8


def price(target: Target) -> float:
    """What a parameter must bring, in units of misfit, to be believed."""
    return math.log(2 * len(target.values))


def number_of_components(target: Target, lines: FloatArray, q: int) -> tuple[FloatArray, FloatArray]:
    """The point of the number of components with the least score, and the path of scores; ``q`` directions count, and
    ``lines`` (F × d) are the frequencies of the columns.

    Two scores stand before those of 1, 2, …: one correlated Gaussian, and independent columns. If either is the
    least there is no sign of components, and the number is 1.
    """
    points: list[FloatArray] = []
    path = [score_of_one(target, q), score_of_independent(target, lines, q)]
    for K in range(1, MOST + 1):
        points.append(fitted(target, K, restarts=3))
        path.append(target.misfit(points[-1]) + price(target) * K * (q + 1.5))
        if int(np.argmin(path[2:])) + 2 < K:
            break
    return points[max(int(np.argmin(path)) - 2, 0)], np.array(path)


def score_of_one(target: Target, q: int) -> float:
    """The score of one Gaussian with any correlation, of q coordinates that matter."""
    w = target.frequencies
    a, b = np.triu_indices(w.shape[1])
    features: ComplexArray = np.hstack([1j * w, -w[:, a] * w[:, b]])
    start = np.concatenate([np.zeros(w.shape[1]), 0.5 * (a == b)])

    def loss(point: FloatArray) -> Expansion:
        wave = np.exp(features @ point) / target.errors
        found = expansion(wave - target.values / target.errors, wave[:, None] * features)
        return _drawn(found, point - start, 1e-3)

    return 2 * descend(loss, start, 60)[0] + price(target) * (q + q * (q + 1) / 2)


def score_of_independent(target: Target, lines: FloatArray, q: int) -> float:
    """The score of independent columns, each a mixture of two, priced as one component is: shapes of columns are free,
    as only what columns say together is a sign of components.
    """
    w, d = lines, lines.shape[1]

    def loss(point: FloatArray) -> Expansion:
        """Of Π_j φ_j(w_j), φ_j the characteristic function of a mixture of two."""
        logit, first, second, size1, size2 = np.clip(point.reshape(5, d), -8.0, 8.0)
        share = 1 / (1 + np.exp(-logit))
        one = share * np.exp(1j * w * first - 0.5 * w**2 * np.exp(size1))
        two = (1 - share) * np.exp(1j * w * second - 0.5 * w**2 * np.exp(size2))
        each = one + two
        each = np.where(np.abs(each) < 1e-12, 1e-12 + 0j, each)
        whole = np.prod(each, axis=1) / target.errors
        by = [one * (1 - share) - two * share, 1j * w * one, 1j * w * two]
        by += [-0.5 * w**2 * np.exp(size1) * one, -0.5 * w**2 * np.exp(size2) * two]
        J = whole[:, None] * np.hstack([own / each for own in by], dtype=complex)
        return _drawn(expansion(whole - target.values / target.errors, J), point, 1e-3)

    start = np.tile(np.array([0.0, -0.5, 0.5, math.log(0.75), math.log(0.75)])[:, None], d)
    found = []
    for tilt in (0.0, -1.5, 1.5):
        start[0] = tilt
        found.append(descend(loss, start.ravel(), 60)[0])
    return 2 * min(found) + price(target) * (q + 1.5)


def _drawn(own: Expansion, away: FloatArray, weight: float) -> Expansion:
    """With a weak penalty, left out of scores by being small."""
    hessian = own.hessian + weight * np.eye(len(away))
    return Expansion(own.loss + 0.5 * weight * float(away @ away), own.gradient + weight * away, hessian)
