"""Rows that are exactly what a plan supposes, one simulation for each general model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dpem
from dpem.models.gaussian_mixture import planning
from dpem.models.latent_class import planning as classes
from dpem.models.latent_class.queries import Items
from dpem.models.linear_regression.planning import ASSUMED, BOUNDS
from dpem.models.mixture_regression import planning as lines
from studies.calibration.simulations import Drawn, Simulation


def typical_linear(columns: int = 5, check: bool = True) -> Simulation:
    """Uncorrelated normal columns that explain what is supposed, slopes of either sign."""
    slopes = math.sqrt(ASSUMED / columns) * (-1.0) ** np.arange(columns)

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        x = rng.standard_normal((n, columns))
        mean = x @ slopes
        return Drawn(x, mean + math.sqrt(1 - ASSUMED) * rng.standard_normal(n), mean=mean)

    def estimator(**given: Any) -> Any:
        given.setdefault("check", check)
        return dpem.DPLinearRegression(bounds=(-BOUNDS, BOUNDS), y_bounds=(-BOUNDS, BOUNDS), **given)

    name = f"{columns} columns"
    return Simulation("linear-regression", name, draw, estimator, lambda model: np.array([0.0, *slopes, 1 - ASSUMED]))


def typical_mixture(K: int = 3, d: int = 2, kind: str = "diag") -> Simulation:
    """Round components of equal size, neighbours as far apart as is supposed."""
    middle, ends = planning.centres(K, d), planning.width(K, d)

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        group = rng.integers(K, size=n)
        return Drawn(middle[group] + rng.standard_normal((n, d)), group=group)

    def estimator(**given: Any) -> Any:
        return dpem.DPGaussianMixture(K, covariance_type=kind, bounds=(-ends, ends), **given)

    return Simulation("gaussian-mixture", f"K = {K}, d = {d}", draw, estimator, lambda model: middle.ravel())


def typical_classes(K: int = 3, items: int = 8, levels: int = 2) -> Simulation:
    """Classes of nearly equal size, each with a typical answer to every item, as is supposed."""
    known = Items((levels,) * items)
    theta = classes.overlapping(known, K)
    shares, chances = theta.weights, theta.probabilities
    upto = np.cumsum(chances.reshape(K, items, levels), axis=2)

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        group = rng.choice(K, size=n, p=shares)
        answer = np.sum(rng.random((n, items, 1)) > upto[group][:, :, :-1], axis=2)
        return Drawn(answer.astype(float), group=group)

    def estimator(**given: Any) -> Any:
        return dpem.DPLatentClass(K, levels={f"x{j}": list(range(levels)) for j in range(items)}, **given)

    return Simulation("latent-class", f"K = {K}, {items} items", draw, estimator, lambda model: chances.ravel())


def typical_lines(K: int = 2, d: int = 2) -> Simulation:
    """Equal classes whose slopes lie as far apart as is supposed, over uncorrelated normal columns."""
    coefficients = lines.assumed(K, d + 1).coefficients

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        x, group = rng.standard_normal((n, d)), rng.integers(K, size=n)
        chosen = coefficients[group]
        return Drawn(x, chosen[:, 0] + np.sum(chosen[:, 1:] * x, axis=1) + rng.standard_normal(n), group)

    def estimator(**given: Any) -> Any:
        return dpem.DPMixtureRegression(K, bounds=(-6, 6), y_bounds=(-10, 10), **given)

    label = f"K = {K}, d = {d}"
    return Simulation("mixture-regression", label, draw, estimator, lambda model: coefficients.ravel())
