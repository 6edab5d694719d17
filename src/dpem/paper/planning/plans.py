"""Plans of the improved method: every setting is chosen before the data are read, and the error predicted."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from dpem._threads import single_blas
from dpem._validation import ArgumentError
from dpem.fitting.plan import Plan, Prediction
from dpem.paper.missing_regression import MissingRegression
from dpem.paper.models import SymmetricMixture
from dpem.paper.planning.rehearsal import Problem
from dpem.paper.planning.settings import Pipeline, choose, estimate, rough_error
from dpem.paper.steps import Refine, Select, Start, Step, Trim
from dpem.privacy import largest_price
from dpem.privacy.mechanisms import gaussian_scale, top_k_scale
from dpem.query import FloatArray

#: A fit is feasible if its mean error over rehearsals is below this fraction of the signal.
USEFUL = 0.5
#: Wider dense tables are not rehearsed in full; their plan is scaled from one of this width.
WIDEST_DENSE = 30


@lru_cache(maxsize=64)
def improved_plan(
    problem: Problem,
    epsilon: float,
    delta: float,
    fixed: tuple[tuple[str, float], ...] = (),
    trim: bool = False,
    spent: float = 0.0,
) -> Plan:
    """The plan of the improved method: every setting is chosen, and the error predicted. The last plans are kept.

    ``fixed`` sets some of :class:`~dpem.paper.planning.settings.Settings` by name; the search chooses the others.
    ``trim`` drops small coefficients at the end (the sparsity is then an upper bound of their number); ``spent`` is the
    part of ρ already paid for σ. The same arguments give the same plan.

    >>> problem = Problem(SymmetricMixture(0.5), n=4000, d=1000, s=10, signal=1.0)
    >>> plan = improved_plan(problem, 0.5, 1e-4)
    >>> plan.feasible, plan.prediction.median < 0.06
    (True, True)
    """
    p = problem
    price = largest_price(epsilon, delta, gaussian=not p.sparse and spent == 0)
    rho = price.rho - spent
    if not rho > 0:
        raise ArgumentError("spent", f"must be below the price that epsilon and delta buy (rho = {price.rho:.3g}).")
    pipeline = Pipeline(problem, fixed)
    with single_blas(), np.errstate(all="ignore"):  # rehearsals are too short to be worth a second thread
        stand_in = _narrowed(pipeline)
        settings = choose(stand_in, rho)
        errors = estimate(stand_in, settings, rho)
        steps = pipeline.steps(settings, rho)
        feasible = float(np.mean(errors)) <= USEFUL * p.signal
        return Plan(
            *(p.model.name, p.n, p.d, epsilon, delta, p.rows_per_person),
            steps=(*steps, Trim(0.0, trim_threshold(problem, steps))) if trim else steps,
            price=price,
            prediction=_prediction(p, errors, detectable(p, steps)),
            feasible=feasible,
            advice="" if feasible else _advice(pipeline, epsilon, delta, price.gaussian),
            settings={
                "method": "improved",
                "sparsity": p.s if p.sparse else None,
                "sigma": p.model.sigma,
                "signal": p.signal,
            },
        )


def _prediction(problem: Problem, errors: FloatArray, least: float) -> Prediction:
    """The predicted error, from those of the rehearsals."""
    low, median, high = (float(value) for value in np.quantile(errors, [0.05, 0.5, 0.95]))
    part = f"That is {median / problem.signal:.1%} of the assumed length of the coefficients"
    which = f"those below {least:.3g}" if math.isfinite(least) else "all"
    missed = f"{which} {'are mostly missed' if problem.sparse else 'may be noise'}"
    missing = f" and {problem.missing:.0%} of the entries missing" if problem.missing else ""
    assumed = (
        f"Rehearsed on simulated rows of the model with coefficients of length {problem.signal:g}, "
        f"sigma = {problem.model.sigma:g}{missing}; privacy noise and sampling error count."
    )
    return Prediction("distance to the true coefficients", median, low, high, 0.0, f"{part}; {missed}.", assumed, least)


def needs_start(plan: Plan) -> bool:
    """Whether the plan of a mixture of regressions predicts that its private start fails."""
    has_private_start = any(type(step) is Start for step in plan.steps)
    return has_private_start and not plan.feasible and plan.model == "symmetric-regression"


def _narrowed(pipeline: Pipeline) -> Pipeline:
    """A wide dense problem as a narrower one with the same error.

    Dense contributions have norm σ√d and d numbers are released, so the norm of the noise grows as d and the sampling
    error as √d: both are unchanged if columns and rows are reduced by the same factor, at the same number of rows per
    person.
    """
    p = pipeline.problem
    if p.sparse or p.d <= WIDEST_DENSE:
        return pipeline
    n = max(2, round(p.n * WIDEST_DENSE / p.d))
    return replace(pipeline, problem=replace(p, d=WIDEST_DENSE, s=WIDEST_DENSE, n=n))


def _advice(pipeline: Pipeline, epsilon: float, delta: float, gaussian: bool) -> str:
    """The smallest n, and the smallest ε, on a grid of factors √2, at which the default settings are useful.

    (Settings that were chosen for an infeasible problem are no guide to feasible ones.)
    """

    def useful(problem: Problem, epsilon: float) -> bool:
        rho = largest_price(epsilon, delta, gaussian=gaussian).rho
        trial = _narrowed(replace(pipeline, problem=problem))
        return rough_error(trial, trial.first(), rho) <= USEFUL * problem.signal

    def smallest(works: Callable[[float], bool]) -> float:
        """The smallest of the factors at which it works, by bisection; infinite if it is none."""
        factors = [2.0 ** (i / 2) for i in range(1, 25)]
        first = bisect_left(factors, True, key=works)
        return factors[first] if first < len(factors) else math.inf

    p = pipeline.problem
    rows = p.n * smallest(lambda factor: useful(replace(p, n=round(p.n * factor)), epsilon))
    larger_epsilon = epsilon * smallest(lambda factor: useful(p, epsilon * factor))
    parts = [f"about n = {float(f'{rows:.2g}'):,.0f}"] if math.isfinite(rows) else []
    parts += [f"about epsilon = {larger_epsilon:.2g}"] if math.isfinite(larger_epsilon) else []
    requirement = " or ".join(parts)
    return f"a useful fit would take {requirement}" if parts else "more rows or a larger epsilon alone would not help"


def detectable(problem: Problem, steps: tuple[Step, ...]) -> float:
    """The coefficient whose mean score equals the level of the best null columns: smaller ones are mostly missed. (At
    that size 12 % of 60 fits with a private start selected it, and 31 % of 80 without one.)

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
