"""How far noise moves a mixture that was fitted to surrogate rows: standard errors, and rows that change component."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.optimize import linear_sum_assignment

from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate.em import Family
from dpem.fitting.surrogate.rows import Surrogate
from dpem.fitting.surrogate.scores import ScoreQuery
from dpem.query import FloatArray

Theta = TypeVar("Theta")

#: The step of numerical derivatives, in whitened coordinates or those of the scores.
STEP = 1e-4
#: The least eigenvalue of D over the median one: along flatter directions the solution is no linear function of noise.
LEAST_SLOPE = 0.02
#: The sandwich form is computed for at most this number of parameters, on this number of rows.
SANDWICH_PARAMETERS, SANDWICH_ROWS = 150, 2000


class ErrorRoots(NamedTuple):
    """Matrices B such that an error of θ is B·N(0, I): per unit of noise in the answer, by the sampling of one row,
    and by the surrogate rows where the answers leave θ open.
    """

    noise: FloatArray
    sampling: FloatArray
    surrogate: FloatArray


def error_roots(query: ScoreQuery, x: FloatArray, sampling: float = 0.0, base: float = 0.0) -> ErrorRoots:
    """The sandwich form of the errors of θ.

    With ψ the clipped whitened score and D the derivative of −E[ψ] by θ over the rows x, noise z in the answer moves
    the solution of E[ψ] = 0 by D⁻¹z, and the sampling of n rows by D⁻¹·Cov(ψ)^½·N(0, I)/√n. Where the rows follow the
    model and nothing is clipped both matrices are W.

    The answers do not determine the part of the score that a regression on ψ leaves, with covariance C. There the
    solution has the sampling error of the weighted rows (``sampling``, Σw²) and the error of the base rows:
    W·(sampling·C + base·C²)^½.
    """
    p = len(query.whitener)
    psi = np.asarray(query.each(numpy_api, x))
    mean = psi.mean(axis=0)
    slopes = []
    for direction in query.whitener:  # steps along whitened coordinates, where D is near a multiple of the identity
        moved = replace(query, theta=query.family.moved(query.theta, STEP * direction))
        slopes.append((mean - np.mean(moved.each(numpy_api, x), axis=0)) / STEP)
    values, axes = np.linalg.eigh((np.array(slopes) + np.array(slopes).T) / 2)
    values = np.maximum(values, max(LEAST_SLOPE * float(np.median(values)), 1e-9))
    noise = np.asarray(query.whitener @ (axes / values) @ axes.T)
    whitened = np.asarray(query.whitened(numpy_api, x))
    regression = np.linalg.solve(psi.T @ psi / len(x) + 1e-9 * np.eye(p), psi.T @ whitened / len(x))
    residual = whitened - psi @ regression
    C = residual.T @ residual / len(x)
    return ErrorRoots(
        noise,
        np.asarray(noise @ _root(np.cov(psi.T))),
        np.asarray(query.whitener @ _root(sampling * C + base * C @ C)),
    )


def _root(matrix: FloatArray) -> FloatArray:
    """A root of a positive semidefinite matrix."""
    values, axes = np.linalg.eigh(matrix)
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0)))


def error_units(
    query: ScoreQuery, surrogate: Surrogate, values: Callable[[Any], FloatArray], sampling: float, base: float
) -> FloatArray:
    """The standard deviations of ``values(θ)`` by the delta method (3 × values): per unit of noise in scores that are
    not clipped, by the sampling of one row, and by the surrogate rows where the answers leave θ open.

    Mixtures with many parameters take W, the form under the model, instead of the sandwich.
    """
    family, theta, W = query.family, query.theta, query.whitener
    roots = ErrorRoots(W, W, 0 * W)
    if len(W) <= SANDWICH_PARAMETERS:
        x = surrogate.resampled(SANDWICH_ROWS, generator(9))
        roots = error_roots(query, x, sampling, base)
        roots = roots._replace(noise=query.retained(x, np.full(len(x), 1 / len(x))) * roots.noise)
    steps = STEP * np.eye(len(W))
    slopes = [(values(family.moved(theta, step)) - values(family.moved(theta, -step))) / (2 * STEP) for step in steps]
    return np.array([np.linalg.norm(root.T @ slopes, axis=0) for root in roots])


def share_moved(query: ScoreQuery, x: FloatArray, weights: FloatArray, scale: float, repeats: int = 10) -> float:
    """The mean share of weight that changes component when θ moves by W·N(0, scale²·I).

    That is the effect of noise of this scale in an answer of W·S: it moves the solution of E[W·S] = 0 by (WJ)⁻¹ times
    the noise, and (WJ)⁻¹ = W for W = J^(−1/2).
    """
    family, theta, rng = query.family, query.theta, generator(7)
    before = np.argmax(family.joint(numpy_api, theta, x), axis=1)
    shares = []
    for _ in range(repeats):
        step = query.whitener @ (scale * rng.standard_normal(len(query.whitener)))
        after = np.argmax(family.joint(numpy_api, family.moved(theta, step), x), axis=1)
        shares.append(float(weights[before != after].sum()))
    return float(np.mean(shares))


def share_apart(family: Family[Theta], surrogate: Surrogate, one: Theta, other: Theta) -> float:
    """The share of weight that two solutions put into different components, under the best matching of components."""
    labels = [np.argmax(family.joint(numpy_api, theta, surrogate.x), axis=1) for theta in (one, other)]
    K = family.joint(numpy_api, one, surrogate.x[:1]).shape[1]
    table = np.zeros((K, K))
    np.add.at(table, tuple(labels), surrogate.weights)
    return max(0.0, 1 - float(table[linear_sum_assignment(-table)].sum()))
