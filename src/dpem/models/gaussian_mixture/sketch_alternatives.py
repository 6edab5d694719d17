"""Explanations of a sketch that need no components: one correlated Gaussian, or independent columns of any shape.

A mixture with several components describes both better than one round Gaussian does, so a number of components is
believed only where neither of these describes the sketch as well at fewer parameters.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from dpem.models.gaussian_mixture.sketch_fit import Target, fitted
from dpem.models.gaussian_mixture.sketch_shapes import Shared
from dpem.query import FloatArray


def score_of_one(target: Target, q: int) -> float:
    """The score of one Gaussian with any correlation, of q coordinates that matter."""
    family = Shared(target.frequencies, math.log(target.spread2), True)
    one = replace(target, family=family)
    _, point = fitted(one, 1)
    return one.misfit(point, 1) + weight(target) * (q + q * (q + 1) / 2)


def score_of_independent(target: Target, q: int) -> float:
    """The score of independent columns, each a mixture of two, priced as one component is: shapes of columns are free,
    as only what columns say together is a sign of components.
    """
    d = target.frequencies.shape[1]
    start = np.tile([0.0, -0.5, 0.5, math.log(0.75), math.log(0.75)], (d, 1))
    best = math.inf
    for tilt in (0.0, -1.5, 1.5):
        start[:, 0] = tilt
        found = minimize(
            _loss, start.ravel(), (target,), jac=True, method="L-BFGS-B", options={"maxiter": 150, "maxcor": 20}
        )
        best = min(best, 2 * float(found.fun))
    return best + weight(target) * (q + 1.5)


def weight(target: Target) -> float:
    """What a parameter must bring, in units of misfit, to be believed."""
    return math.log(2 * len(target.values))


def _loss(point: FloatArray, target: Target) -> tuple[float, FloatArray]:
    """Half the misfit of Π_j φ_j(w_j), φ_j the characteristic function of a mixture of two, and its gradient (of weak
    penalties on the logarithms too, left out of the score by being small).
    """
    w = target.frequencies
    logit, first, second, size1, size2 = np.clip(point.reshape(-1, 5).T, -8.0, 8.0)
    share = 1 / (1 + np.exp(-logit))
    one = np.exp(1j * w * first - 0.5 * w**2 * np.exp(size1))
    two = np.exp(1j * w * second - 0.5 * w**2 * np.exp(size2))
    each = share * one + (1 - share) * two
    each = np.where(np.abs(each) < 1e-12, 1e-12, each)
    whole = np.prod(each, axis=1)
    residual = (whole - target.values) / target.errors
    back = (np.conj(residual) / target.errors * whole)[:, None] / each
    by = np.stack(
        [
            back * share * (1 - share) * (one - two),
            back * share * one * 1j * w,
            back * (1 - share) * two * 1j * w,
            back * share * one * -0.5 * w**2 * np.exp(size1),
            back * (1 - share) * two * -0.5 * w**2 * np.exp(size2),
        ]
    ).real.sum(axis=1)
    drawn = 1e-3 * point
    value = 0.5 * float(np.sum(np.abs(residual) ** 2)) + 0.5e-3 * float(point @ point)
    return value, by.T.ravel() + drawn
