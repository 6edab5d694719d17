"""The number of components, by a penalised misfit to the released sketch.

Several diagonal components can describe one correlated Gaussian, or independent columns of any shape, better than one
component does. So these two models without components are compared too.
"""

from __future__ import annotations

import math

import numpy as np

from dpem.models.gaussian_mixture.sketch_fit import ComplexArray, Expansion, Target, descend, expansion, fitted
from dpem.query import FloatArray

#: The largest number of components that is tried.
MOST = 8
#: Levenberg–Marquardt steps for the models without components, and the weight of their regularisation.
STEPS, RIDGE = 60, 1e-3


def penalty(target: Target) -> float:
    """The penalty of one parameter in units of misfit, as in the Bayesian information criterion."""
    return math.log(2 * len(target.values))


def number_of_components(target: Target, lines: FloatArray, q: int) -> tuple[FloatArray, FloatArray]:
    """The fitted point of the number of components with the least score, and the scores.

    The first two scores are of one correlated Gaussian and of independent columns; if one of them is the least, the
    number is 1. Then come those of 1, 2, … components. ``q`` directions count as parameters of a component; ``lines``
    (F × d) are the frequencies of the columns.
    """
    points: list[FloatArray] = []
    path = [score_of_one(target, q), score_of_independent(target, lines, q)]
    for K in range(1, MOST + 1):
        points.append(fitted(target, K))
        path.append(target.misfit(points[-1]) + penalty(target) * K * (q + 1.5))
        if int(np.argmin(path[2:])) + 2 < K:
            break
    return points[max(int(np.argmin(path)) - 2, 0)], np.array(path)


def score_of_one(target: Target, q: int) -> float:
    """The score of one correlated Gaussian, with the parameters of q coordinates."""
    w = target.frequencies
    a, b = np.triu_indices(w.shape[1])
    features: ComplexArray = np.hstack([1j * w, -w[:, a] * w[:, b]])
    start = np.concatenate([np.zeros(w.shape[1]), 0.5 * (a == b)])

    def loss(point: FloatArray) -> Expansion:
        wave = np.exp(features @ point) / target.errors
        misfit = expansion(wave - target.values / target.errors, wave[:, None] * features)
        return _regularised(misfit, point - start)

    return 2 * descend(loss, start, STEPS)[0] + penalty(target) * (q + q * (q + 1) / 2)


def score_of_independent(target: Target, lines: FloatArray, q: int) -> float:
    """The score of independent columns, each a mixture of two Gaussians, with the penalty of one component: components
    show in the dependence of columns, so the shapes of columns have no penalty.
    """
    w, d = lines, lines.shape[1]

    def loss(point: FloatArray) -> Expansion:
        """Of Π_j φ_j(w_j), φ_j the characteristic function of a mixture of two."""
        logit, mean1, mean2, log_variance1, log_variance2 = np.clip(point.reshape(5, d), -8.0, 8.0)
        share = 1 / (1 + np.exp(-logit))
        one = share * np.exp(1j * w * mean1 - 0.5 * w**2 * np.exp(log_variance1))
        two = (1 - share) * np.exp(1j * w * mean2 - 0.5 * w**2 * np.exp(log_variance2))
        of_columns = one + two
        of_columns = np.where(np.abs(of_columns) < 1e-12, 1e-12 + 0j, of_columns)
        product = np.prod(of_columns, axis=1) / target.errors
        derivatives = [one * (1 - share) - two * share, 1j * w * one, 1j * w * two]
        derivatives += [-0.5 * w**2 * np.exp(log_variance1) * one, -0.5 * w**2 * np.exp(log_variance2) * two]
        J = product[:, None] * np.hstack([derivative / of_columns for derivative in derivatives], dtype=complex)
        return _regularised(expansion(product - target.values / target.errors, J), point)

    start = np.tile(np.array([0.0, -0.5, 0.5, math.log(0.75), math.log(0.75)])[:, None], d)
    losses = []
    for logit in (0.0, -1.5, 1.5):  # equal shares, or a small first or second one
        start[0] = logit
        losses.append(descend(loss, start.ravel(), STEPS)[0])
    return 2 * min(losses) + penalty(target) * (q + 1.5)


def _regularised(misfit: Expansion, away: FloatArray) -> Expansion:
    """With a quadratic penalty that is too weak to change scores and keeps the Hessian regular."""
    hessian = misfit.hessian + RIDGE * np.eye(len(away))
    return Expansion(misfit.loss + 0.5 * RIDGE * float(away @ away), misfit.gradient + RIDGE * away, hessian)
