"""How far noise moves a mixture that was fitted to surrogate rows: standard errors, and rows that change component."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.optimize import linear_sum_assignment

from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate.em import Family
from dpem.fitting.surrogate.rows import Surrogate
from dpem.fitting.surrogate.scores import ScoreQuery
from dpem.query import FloatArray

Theta = TypeVar("Theta")

#: The least derivative along a direction, over the median one: along flatter ones the solution moves no straight line.
LEAST = 0.02


def error_roots(
    query: ScoreQuery, x: FloatArray, scatter: float = 0.0, base: float = 0.0, step: float = 1e-4
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """D⁻¹, D⁻¹·Cov(ψ)^½ and the root of what the surrogate leaves open.

    ψ is the clipped whitened score, D the derivative of −E[ψ] by θ over the rows.

    Noise z in an answer of ψ moves the solution of E[ψ] = 0 by D⁻¹z, sampling of n rows by D⁻¹·Cov(ψ)^½·N(0, I)/√n.
    Where the rows follow the model and nothing is clipped both are W; where they do not, this is the sandwich form.
    The answers say nothing of the part of the score that ψ does not explain, with covariance C: there the solution has
    the scatter of the weighted rows (variance ``scatter``, Σw²), and C times the error of the base rows (``base``).
    """
    own = np.asarray(query.each(numpy_api, x))
    mean = own.mean(axis=0)
    columns = []
    for direction in query.whitener:  # steps along whitened coordinates, where D is near a multiple of the identity
        moved = replace(query, theta=query.family.moved(query.theta, step * direction))
        columns.append((mean - np.mean(moved.each(numpy_api, x), axis=0)) / step)
    values, axes = np.linalg.eigh((np.array(columns) + np.array(columns).T) / 2)
    by_noise = query.whitener @ (axes / np.maximum(values, max(LEAST * float(np.median(values)), 1e-9))) @ axes.T
    small = 1e-9 * np.eye(len(mean))
    whole = np.asarray(replace(query, radius=1e9).each(numpy_api, x))
    left = whole - own @ np.linalg.solve(own.T @ own / len(x) + small, own.T @ whole / len(x))
    open_ = left.T @ left / len(x)
    by_rows = by_noise @ _root(np.cov(own.T))
    by_surrogate = query.whitener @ _root(scatter * open_ + base * open_ @ open_)
    return by_noise, np.asarray(by_rows), np.asarray(by_surrogate)


def _root(matrix: FloatArray) -> FloatArray:
    """A root of a positive semidefinite matrix."""
    values, axes = np.linalg.eigh(matrix)
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0)))


def share_unstable(query: ScoreQuery, surrogate: Surrogate, others: Iterable[Theta], scale: float) -> float:
    """The largest share of weight that errors of that scale, or one of the other solutions, put into another component
    than the solution θ of the query does.
    """
    shares = [share_apart(query.family, surrogate, query.theta, other) for other in others]
    return max([share_moved(query, surrogate.x, surrogate.weights, scale), *shares])


def share_moved(query: ScoreQuery, x: FloatArray, weights: FloatArray, scale: float, repeats: int = 10) -> float:
    """The mean share of weight that changes component when θ moves by W·N(0, scale²·I).

    An answer of W·S with noise of that scale moves the solution of E[W·S] = 0 by (WJ)⁻¹ times the noise, which is W
    times it where W = J^(−1/2).
    """
    family, theta, rng = query.family, query.theta, generator(7)
    before = np.argmax(family.joint(numpy_api, theta, x), axis=1)
    found = []
    for _ in range(repeats):
        step = query.whitener @ (scale * rng.standard_normal(len(query.whitener)))
        after = np.argmax(family.joint(numpy_api, family.moved(theta, step), x), axis=1)
        found.append(float(weights[before != after].sum()))
    return float(np.mean(found))


def share_apart(family: Family[Theta], surrogate: Surrogate, one: Theta, other: Theta) -> float:
    """The share of weight that two solutions put into different components, matched as well as they can be."""
    logs = [family.joint(numpy_api, theta, surrogate.x) for theta in (one, other)]
    table = np.zeros((logs[0].shape[1], logs[0].shape[1]))
    np.add.at(table, tuple(np.argmax(own, axis=1) for own in logs), surrogate.weights)
    return max(0.0, 1 - float(table[linear_sum_assignment(-table)].sum()))
