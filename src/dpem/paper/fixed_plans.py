"""Plans without a search: the paper's own prescription, and the reference without privacy."""

from __future__ import annotations

import math
from dataclasses import replace

from dpem._validation import Argument, ArgumentError
from dpem.fitting.plan import Plan
from dpem.paper.improved.planning.candidates import Knobs, Pipeline
from dpem.paper.improved.planning.simulate import Problem
from dpem.paper.improved.steps import Screen, Start
from dpem.paper.models import MODELS
from dpem.paper.published import PublishedEM, printed_price
from dpem.paper.reference import ReferenceEM
from dpem.privacy import Price


def published_plan(
    model: str,
    *,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    sparsity: int | None,
    rows_per_person: int = 1,
    n_iter: int | None = None,
    step: float | None = None,
    T: float | None = None,
) -> Plan:
    """The paper's own prescription: N₀ ≈ log n, T ≈ √log n, and η = 0.5 as in its experiments; or the values given.

    >>> plan = published_plan("symmetric-mixture", n=4000, d=9, epsilon=0.5, delta=1e-4, sparsity=3)
    >>> plan.steps[0].n_iter
    8
    """
    price = printed_price(epsilon, delta, sparsity)
    if price.delta(epsilon) > delta:
        reason = f"must be smaller (the paper's printed noise does not satisfy {epsilon:g} at delta={delta:g}); or use "
        raise ArgumentError("epsilon", reason, Argument("method", "improved"), ".")
    batches = max(1, round(math.log(n))) if n_iter is None else n_iter
    if n < batches:
        raise ArgumentError("n_iter", f"must be at most the number of rows ({n}), got {batches} batches.")
    clip = math.sqrt(math.log(n)) if T is None else T
    em = PublishedEM(price.rho, epsilon, delta, sparsity, batches, 0.5 if step is None else step, clip)
    return Plan(model, n, d, epsilon, delta, rows_per_person, (em,), price)


def reference_plan(
    model: str,
    *,
    n: int,
    d: int,
    delta: float,
    sparsity: int | None,
    sigma: float,
    signal: float,
    has_start: bool,
    rows_per_person: int = 1,
    n_iter: int | None = None,
    step: float | None = None,
) -> Plan:
    """Non-private EM, for comparison: the start of a private fit but without noise, then many exact steps."""
    starting: tuple[Screen | Start, ...] = ()
    if not has_start and model != "missing-regression":
        problem = Problem(MODELS[model](sigma), n, d, sparsity or d, signal)
        pipeline = Pipeline(problem, private_start=True, sparse=sparsity is not None and sparsity < d)
        private = pipeline.steps(Knobs(start_radius=4.0), rho=1.0)
        starting = tuple(replace(part, rho=math.inf) for part in private if isinstance(part, Screen | Start))
    em = ReferenceEM(math.inf, sparsity, 50 if n_iter is None else n_iter, 1.0 if step is None else step)
    return Plan(model, n, d, math.inf, delta, rows_per_person, (*starting, em), Price(math.inf))
