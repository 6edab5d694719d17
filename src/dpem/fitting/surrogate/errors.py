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

#: The least derivative along a direction, over the median one: along flatter ones the solution moves no straight line.
LEAST = 0.02
#: Up to so many parameters standard errors take the sandwich form, from so many rows.
MOST_PARAMETERS, SANDWICH_ROWS = 150, 2000


class ErrorRoots(NamedTuple):
    """Matrices B for which the solution moves by B·N(0, I): per unit of noise in the answer, by the sampling of one
    row, and by what the answers leave to the surrogate rows.
    """

    noise: FloatArray
    sampling: FloatArray
    surrogate: FloatArray


def error_roots(query: ScoreQuery, x: FloatArray, scatter: float = 0.0, base: float = 0.0) -> ErrorRoots:
    """The sandwich form: with ψ the clipped whitened score and D the derivative of −E[ψ] by θ over the rows, noise z in
    an answer of ψ moves the solution of E[ψ] = 0 by D⁻¹z, sampling of n rows by D⁻¹·Cov(ψ)^½·N(0, I)/√n. Where the
    rows follow the model and nothing is clipped both are W.

    The answers say nothing of the part of the score that ψ does not explain, with covariance C: there the solution has
    the scatter of the weighted rows (variance ``scatter``, Σw²), and C times the error of the base rows (``base``).
    """
    size, p = 1e-4, len(query.whitener)
    clipped = np.asarray(query.each(numpy_api, x))
    mean = clipped.mean(axis=0)
    columns = []
    for direction in query.whitener:  # steps along whitened coordinates, where D is near a multiple of the identity
        moved = replace(query, theta=query.family.moved(query.theta, size * direction))
        columns.append((mean - np.mean(moved.each(numpy_api, x), axis=0)) / size)
    values, axes = np.linalg.eigh((np.array(columns) + np.array(columns).T) / 2)
    by_noise = query.whitener @ (axes / np.maximum(values, max(LEAST * float(np.median(values)), 1e-9))) @ axes.T
    whole = np.asarray(query.whitened(numpy_api, x))
    explained = np.linalg.solve(clipped.T @ clipped / len(x) + 1e-9 * np.eye(p), clipped.T @ whole / len(x))
    left = whole - clipped @ explained
    unexplained = left.T @ left / len(x)
    by_surrogate = query.whitener @ _root(scatter * unexplained + base * unexplained @ unexplained)
    return ErrorRoots(np.asarray(by_noise), np.asarray(by_noise @ _root(np.cov(clipped.T))), np.asarray(by_surrogate))


def _root(matrix: FloatArray) -> FloatArray:
    """A root of a positive semidefinite matrix."""
    values, axes = np.linalg.eigh(matrix)
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0)))


def error_units(
    query: ScoreQuery, surrogate: Surrogate, values: Callable[[Any], FloatArray], scatter: float, base: float
) -> FloatArray:
    """The standard deviations of the values of θ, to first order: per unit of noise in scores that are not clipped, by
    the sampling of one row, and by what the answers leave to the surrogate rows (3 × values).
    """
    family, theta, W = query.family, query.theta, query.whitener
    roots = ErrorRoots(W, W, 0 * W)
    if len(W) <= MOST_PARAMETERS:
        x = surrogate.resampled(SANDWICH_ROWS, generator(9))
        roots = error_roots(query, x, scatter, base)
        roots = roots._replace(noise=query.kept(x, np.full(len(x), 1 / len(x))) * roots.noise)
    steps = 1e-4 * np.eye(len(W))
    slopes = [(values(family.moved(theta, step)) - values(family.moved(theta, -step))) / 2e-4 for step in steps]
    return np.array([np.linalg.norm(root.T @ slopes, axis=0) for root in roots])


def share_moved(query: ScoreQuery, x: FloatArray, weights: FloatArray, scale: float, repeats: int = 10) -> float:
    """The mean share of weight that changes component when θ moves by W·N(0, scale²·I).

    An answer of W·S with noise of that scale moves the solution of E[W·S] = 0 by (WJ)⁻¹ times the noise, which is W
    times it where W = J^(−1/2).
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
    """The share of weight that two solutions put into different components, matched as well as they can be."""
    logs = [family.joint(numpy_api, theta, surrogate.x) for theta in (one, other)]
    table = np.zeros((logs[0].shape[1], logs[0].shape[1]))
    np.add.at(table, tuple(np.argmax(own, axis=1) for own in logs), surrogate.weights)
    return max(0.0, 1 - float(table[linear_sum_assignment(-table)].sum()))
