"""Choose every setting of the improved method before the data are read, and predict the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dpem import _validation as arguments
from dpem._threads import single_blas
from dpem._validation import ArgumentError
from dpem.fitting.plan import Plan, Prediction
from dpem.paper.improved.planning.candidates import Pipeline
from dpem.paper.improved.planning.detection import detectable, trim_threshold
from dpem.paper.improved.planning.search import choose, estimate, rough_error
from dpem.paper.improved.planning.simulate import Problem
from dpem.paper.improved.steps import Start, Trim
from dpem.paper.models import MODELS
from dpem.privacy import largest_price
from dpem.query import FloatArray

#: A fit is feasible if its mean error over rehearsals is below this fraction of the signal.
USEFUL = 0.5
#: Wider dense tables are not rehearsed in full; their plan is scaled from one of this width.
WIDEST_DENSE = 30


def plan(
    model: str,
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    sparsity: int | None = None,
    sigma: float = 1.0,
    signal: float = 1.0,
    missing: float = 0.2,
    start_distance: float | None = None,
    fixed: tuple[tuple[str, float], ...] = (),
    trim: bool = False,
    spent: float = 0.0,
    rows_per_person: int = 1,
) -> Plan:
    """Choose every setting of the improved method from public numbers, and predict the error. No data are read.

    ``start_distance`` is the largest distance of a given start from the truth; None means that no start is given.
    ``fixed`` sets some of :class:`~dpem.paper.improved.planning.candidates.Knobs` by name; the search chooses the
    others. ``trim`` drops small coefficients at the end (``sparsity`` is then an upper bound of their number);
    ``spent`` is the part of ρ already paid for σ. ``rows_per_person`` is the largest number of rows of one person:
    noise grows in proportion. The same arguments give the same plan.

    >>> p = plan("symmetric-mixture", n=4000, d=1000, epsilon=0.5, delta=1e-4, sparsity=10, sigma=0.5)
    >>> p.feasible, p.prediction.median < 0.06
    (True, True)
    """
    model = arguments.one_of("model", model, tuple(MODELS))
    epsilon, delta = arguments.privacy_parameters(epsilon, delta)
    n, d = arguments.count("n", n), arguments.count("d", d)
    missing = arguments.fraction("missing", missing)
    sparsity = arguments.sparsity_within(sparsity, d)
    problem = Problem(
        MODELS[model](arguments.positive("sigma", sigma)),
        n,
        d,
        sparsity or d,
        arguments.positive("signal", signal),
        missing if model == "missing-regression" else 0.0,
        arguments.optional_distance("start_distance", start_distance),
        rows_per_person=arguments.rows_per_person(rows_per_person, n),
    )
    spent = arguments.optional_distance("spent", spent) or 0.0
    return _chosen(problem, epsilon, delta, sparsity, fixed, trim, spent)


@lru_cache(maxsize=64)
def _chosen(
    problem: Problem,
    epsilon: float,
    delta: float,
    sparsity: int | None,
    fixed: tuple[tuple[str, float], ...],
    trim: bool,
    spent: float,
) -> Plan:
    p, model = problem, problem.model.name
    private_start = model != "missing-regression" and p.start_distance is None
    sparse = sparsity is not None and sparsity < p.d
    price = largest_price(epsilon, delta, gaussian=not sparse and spent == 0)
    rho = price.rho - spent
    if not rho > 0:
        raise ArgumentError("spent", f"must be below the price that epsilon and delta buy (rho = {price.rho:.3g}).")
    pipeline = Pipeline(problem, private_start, sparse, fixed)
    with single_blas(), np.errstate(all="ignore"):  # rehearsals are too short to be worth a second thread
        stand_in = _narrowed(pipeline)
        knobs = choose(stand_in, rho)
        errors = estimate(stand_in, knobs, rho)
        steps = pipeline.steps(knobs, rho)
        feasible = float(np.mean(errors)) <= USEFUL * p.signal
        return Plan(
            *(model, p.n, p.d, epsilon, delta, p.rows_per_person),
            steps=(*steps, Trim(0.0, trim_threshold(problem, steps))) if trim else steps,
            price=price,
            prediction=_prediction(p, errors, detectable(p, steps)),
            feasible=feasible,
            advice="" if feasible else _advice(pipeline, epsilon, delta, price.gaussian),
            settings={"method": "improved", "sparsity": sparsity, "sigma": p.model.sigma, "signal": p.signal},
        )


def _prediction(problem: Problem, errors: FloatArray, least: float) -> Prediction:
    """The predicted error, from those of the rehearsals."""
    low, median, high = (float(value) for value in np.quantile(errors, [0.05, 0.5, 0.95]))
    part = f"That is {median / problem.signal:.1%} of the assumed length of the coefficients"
    finds = f"those of {least:.3g} and more are found as often as not" if math.isfinite(least) else "none is found"
    missing = f" and {problem.missing:.0%} of the entries missing" if problem.missing else ""
    assumed = (
        f"Rehearsed on simulated rows of the model with coefficients of length {problem.signal:g}, "
        f"sigma = {problem.model.sigma:g}{missing}; privacy noise and sampling error count."
    )
    return Prediction("distance to the true coefficients", median, low, high, 0.0, f"{part}; {finds}.", assumed, least)


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
    if pipeline.sparse or p.d <= WIDEST_DENSE:
        return pipeline
    n = max(2, round(p.n * WIDEST_DENSE / p.d))
    return replace(pipeline, problem=replace(p, d=WIDEST_DENSE, s=WIDEST_DENSE, n=n))


def _advice(pipeline: Pipeline, epsilon: float, delta: float, gaussian: bool) -> str:
    """The smallest n, and the smallest ε, on a grid of factors √2, at which the default knobs are useful.

    (Knobs that were chosen for an infeasible problem are no guide to feasible ones.)
    """

    def useful(problem: Problem, epsilon: float) -> bool:
        rho = largest_price(epsilon, delta, gaussian=gaussian).rho
        trial = _narrowed(replace(pipeline, problem=problem))
        return rough_error(trial, trial.first(), rho) <= USEFUL * problem.signal

    def smallest(works: Callable[[float], bool]) -> float | None:
        """The smallest factor 2^(i/2), i ≤ 24, at which it works, by bisection."""
        low, high = 0, 24
        if not works(2.0 ** (high / 2)):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if works(2.0 ** (middle / 2)) else (middle, high)
        return float(2.0 ** (high / 2))

    p = pipeline.problem
    more_rows = smallest(lambda factor: useful(replace(p, n=round(p.n * factor)), epsilon))
    more_epsilon = smallest(lambda factor: useful(p, epsilon * factor))
    parts = []
    if more_rows is not None:
        parts.append(f"about n = {float(f'{p.n * more_rows:.2g}'):,.0f}")
    if more_epsilon is not None:
        parts.append(f"about epsilon = {epsilon * more_epsilon:.2g}")
    if not parts:
        return "more rows or a larger epsilon alone would not help"
    return f"a useful fit would take {' or '.join(parts)}"
