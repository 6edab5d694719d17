"""The smallest coefficient that a planned fit can detect."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from dpem.paper.improved.planning.simulate import Problem
from dpem.paper.improved.steps import Refine, Select, Step
from dpem.paper.models import MissingRegression, SymmetricMixture
from dpem.privacy.mechanisms import gaussian_scale, top_k_scale
from dpem.query import FloatArray


def detectable(problem: Problem, steps: tuple[Step, ...]) -> float:
    """The coefficient whose mean score equals the level of the best null columns.

    Among d − s null columns about s exceed b·log(d/s) through their Gumbel noise; a coefficient c has the mean score
    E Π_T(c + noise), times the residual's clipping loss. Without a selection it is twice the standard deviation of a
    released coefficient.
    """
    select = next((step for step in steps if isinstance(step, Select)), None)
    last = steps[-1]
    if select is None:
        assert isinstance(last, Refine)
        return 2 * _coefficient_noise(problem, last)
    T, residual = select.clip.entry, select.clip.residual
    size = T * (residual if math.isfinite(residual) else 1.0)
    sensitivity = problem.rows_per_person * 2 * size / problem.n
    level = top_k_scale(select.s, sensitivity, select.rho) * math.log(problem.d / problem.s)
    grid = np.geomspace(1e-6, 10.0, 300) * problem.signal
    reached = np.flatnonzero(_scores(problem, grid, T, residual) >= level)
    return float(grid[reached[0]]) if reached.size else math.inf


def trim_threshold(problem: Problem, steps: tuple[Step, ...]) -> float:
    """A level below which the largest of s null coefficients stays in more than half of all fits.

    The last step's noise is known, and a coefficient's sampling error is about σ/√n; the largest of s such numbers is
    about √(2·log 2s) standard deviations.
    """
    last = steps[-1]
    assert isinstance(last, Refine)
    noise = _coefficient_noise(problem, last)
    return math.sqrt(2 * math.log(2 * problem.s)) * math.hypot(noise, problem.model.sigma / math.sqrt(problem.n))


def _coefficient_noise(problem: Problem, last: Refine) -> float:
    """Standard deviation of the noise that the last step puts on a coefficient."""
    return last.step * gaussian_scale(problem.rows_per_person * 2 * last.radius / problem.n, last.rho)


def _scores(problem: Problem, coefficients: FloatArray, T: float, residual: float) -> FloatArray:
    """Mean selection score of a coordinate with each coefficient, the other coefficients as assumed."""
    model = problem.model
    if isinstance(model, SymmetricMixture):
        return _clipped_mean(coefficients, model.sigma, T)
    # The response is c·x_j plus the rest: E clip(residual)·clip(x_j), by quadrature over x_j.
    rest = math.hypot(model.sigma, problem.signal if isinstance(model, MissingRegression) else model.sigma)
    x = np.linspace(-4.0, 4.0, 161)
    weight = _density(x) / _density(x).sum()
    scores = _clipped_mean(np.multiply.outer(coefficients, x), rest, residual) @ (weight * np.clip(x, -T, T))
    return np.asarray(scores * (1 - problem.missing if isinstance(model, MissingRegression) else 1.0))


def _clipped_mean(mean: FloatArray, sd: float, T: float) -> FloatArray:
    """E Π_T(N(mean, sd²))."""
    a, b = (-T - mean) / sd, (T - mean) / sd
    inside = ndtr(b) - ndtr(a)
    return np.asarray(mean * inside - sd * (_density(b) - _density(a)) + T * ndtr(-b) - T * ndtr(a))


def _density(x: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))
