"""Choose every setting of the improved method before the data are read, and predict the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dpem import _validation as arguments
from dpem._threads import single_blas
from dpem._validation import ArgumentError
from dpem.paper.fit_plan import USEFUL, Plan
from dpem.paper.improved.planning.candidates import Pipeline
from dpem.paper.improved.planning.detection import detectable, trim_threshold
from dpem.paper.improved.planning.search import choose, estimate, rough_error
from dpem.paper.improved.planning.simulate import Problem
from dpem.paper.improved.steps import Trim
from dpem.paper.models import MODELS
from dpem.privacy import largest_price

#: Dense tables wider than this are not rehearsed column by column; the plan is scaled from one of this width.
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

    ``start_distance`` says how far a given start may be from the truth; None means that no start is given. ``fixed``
    sets some of :class:`~dpem.paper.improved.planning.candidates.Knobs` by name; the search chooses the others.
    ``trim`` drops small coefficients at the end (``sparsity`` is then the most there may be); ``spent`` is the part
    of ρ already paid, for σ. ``rows_per_person`` is the most rows that one person has: noise grows in proportion to it.
    The same arguments give the same plan.

    >>> p = plan("symmetric-mixture", n=4000, d=1000, epsilon=0.5, delta=1e-4, sparsity=10, sigma=0.5)
    >>> p.feasible, p.predicted_error < 0.06
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
    assumed = (sparsity, p.model.sigma, p.signal, p.missing)
    draft = Plan(model, "improved", p.n, p.d, epsilon, delta, *assumed, (), price, p.rows_per_person)
    with single_blas(), np.errstate(all="ignore"):  # rehearsals are too short to be worth a second thread
        stand_in = _narrowed(pipeline)
        knobs = choose(stand_in, rho)
        errors = estimate(stand_in, knobs, rho)
        steps = pipeline.steps(knobs, rho)
        mean = float(np.mean(errors))
        low, high = np.quantile(errors, [0.1, 0.9])
        done = replace(
            draft,
            steps=(*steps, Trim(0.0, trim_threshold(problem, steps))) if trim else steps,
            predicted_error=mean,
            interval=(float(low), float(high)),
            detectable=detectable(problem, steps),
        )
        if done.feasible:
            return done
        return replace(
            done, needs_start=private_start and model == "symmetric-regression", advice=_advice(pipeline, done)
        )


def _narrowed(pipeline: Pipeline) -> Pipeline:
    """A wide dense problem as a narrower one with the same error.

    Dense contributions are σ√d long and d numbers are released, so the norm of the noise grows as d and the sampling
    error as √d: with f times fewer columns and f times fewer rows both stay what they were, at the same number of rows
    per person.
    """
    p = pipeline.problem
    if pipeline.sparse or p.d <= WIDEST_DENSE:
        return pipeline
    n = max(2, round(p.n * WIDEST_DENSE / p.d))
    return replace(pipeline, problem=replace(p, d=WIDEST_DENSE, s=WIDEST_DENSE, n=n))


def _advice(pipeline: Pipeline, done: Plan) -> str:
    """The smallest n, and the smallest ε, on a grid of factors √2, at which the default knobs would do.

    (Those chosen where nothing works are no guide to where something does.)
    """

    def useful(problem: Problem, epsilon: float) -> bool:
        rho = largest_price(epsilon, done.delta, gaussian=done.price.gaussian).rho
        trial = _narrowed(replace(pipeline, problem=problem))
        return rough_error(trial, trial.first(), rho) <= USEFUL * done.signal

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
    more_rows = smallest(lambda factor: useful(replace(p, n=round(p.n * factor)), done.epsilon))
    more_epsilon = smallest(lambda factor: useful(p, done.epsilon * factor))
    parts = []
    if more_rows is not None:
        parts.append(f"about n = {float(f'{p.n * more_rows:.2g}'):,.0f}")
    if more_epsilon is not None:
        parts.append(f"about epsilon = {done.epsilon * more_epsilon:.2g}")
    if not parts:
        return "more rows or a larger epsilon alone would not help"
    return f"a useful fit would take {' or '.join(parts)}"
