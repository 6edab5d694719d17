"""How many rows the noise of a fit moves to another component: post-processing, at no price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.optimize import linear_sum_assignment

from dpem.fitting.surrogate.family import Family
from dpem.fitting.surrogate.rows import Surrogate
from dpem.query import FloatArray

Theta = TypeVar("Theta")


def share_moved(
    family: Family[Theta],
    theta: Theta,
    x: FloatArray,
    y: FloatArray | None,
    weights: FloatArray,
    whitener: FloatArray,
    scale: float,
    rng: np.random.Generator,
    repeats: int = 10,
) -> float:
    """The mean share of weight that changes component when θ moves by W·N(0, scale²·I).

    An answer of W·S with noise of that scale moves the solution of E[W·S] = 0 by (WJ)⁻¹ times the noise, which is W
    times it where W = J^(−1/2).
    """
    before = np.argmax(family.joint(numpy_api, theta, x, y), axis=1)
    found = []
    for _ in range(repeats):
        step = whitener @ (scale * rng.standard_normal(len(whitener)))
        after = np.argmax(family.joint(numpy_api, family.moved(theta, step), x, y), axis=1)
        found.append(float(weights[before != after].sum()))
    return float(np.mean(found))


def error_root(
    family: Family[Theta], theta: Theta, x: FloatArray, y: FloatArray | None, whitener: FloatArray, step: float = 1e-4
) -> FloatArray:
    """H⁻¹W⁻¹: by it noise in an answer of W·S moves the solution of E[W·S] = 0; H is the derivative of −E[S].

    Where the rows follow the model H is the information and this is W; where they do not it is the sandwich form.
    """
    base = np.mean(family.scores(numpy_api, theta, x, y), axis=0)
    columns = []
    for direction in np.eye(len(whitener)):
        moved = family.moved(theta, step * direction)
        columns.append((base - np.mean(family.scores(numpy_api, moved, x, y), axis=0)) / step)
    values, axes = np.linalg.eigh((np.array(columns) + np.array(columns).T) / 2)
    inverse = (axes / np.maximum(values, 0.01)) @ axes.T
    return np.asarray(inverse @ np.linalg.inv(whitener))


def regrouped(
    family: Family[Theta], surrogate: Surrogate, runs: Sequence[tuple[float, Theta]], near: float = 0.02
) -> float:
    """The largest share of weight that a run of EM within ``near`` of the best, in mean log-likelihood, puts into other
    components than the best one does; components are matched as well as they can be.
    """
    best, theta = runs[0]
    before = np.argmax(family.joint(numpy_api, theta, surrogate.x, surrogate.y), axis=1)
    found = 0.0
    for value, other in runs[1:]:
        if value < best - near:
            continue
        logs = family.joint(numpy_api, other, surrogate.x, surrogate.y)
        table = np.zeros((logs.shape[1], logs.shape[1]))
        np.add.at(table, (before, np.argmax(logs, axis=1)), surrogate.weights)
        found = max(found, 1 - float(table[linear_sum_assignment(-table)].sum()))
    return found
