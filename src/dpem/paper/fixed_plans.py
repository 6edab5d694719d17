"""Plans with nothing to choose: the paper's own prescription, and the non-private reference."""

from __future__ import annotations

import math
from dataclasses import replace

from dpem import _validation as arguments
from dpem._validation import Argument, ArgumentError
from dpem.paper.fit_plan import Plan
from dpem.paper.improved.planning.candidates import Knobs, Pipeline
from dpem.paper.improved.planning.simulate import Problem
from dpem.paper.improved.steps import Screen, Start, Step
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
    sigma: float,
    signal: float,
    n_iter: int | None = None,
    step: float | None = None,
    T: float | None = None,
    rows_per_person: int = 1,
) -> Plan:
    """The paper's own prescription: N₀ ≈ log n, T ≈ √log n, and η = 0.5 as in its experiments; or the values given.

    >>> published_plan(
    ...     "symmetric-mixture", n=4000, d=9, epsilon=0.5, delta=1e-4, sparsity=3, sigma=1.0, signal=1.0
    ... ).steps[0].n_iter
    8
    """
    rows_per_person = arguments.rows_per_person(rows_per_person, n)
    price = printed_price(epsilon, delta, sparsity)
    if price.delta(epsilon) > delta:
        raise ArgumentError(
            "epsilon",
            f"must be smaller (the paper's printed noise does not honour {epsilon:g} at delta={delta:g}); or use ",
            Argument("method", "improved"),
            ".",
        )
    em = PublishedEM.priced(
        epsilon,
        delta,
        sparsity,
        n_iter=max(1, round(math.log(n))) if n_iter is None else n_iter,
        step=0.5 if step is None else step,
        T=math.sqrt(math.log(n)) if T is None else T,
    )
    return Plan(model, "published", n, d, epsilon, delta, sparsity, sigma, signal, 0.0, (em,), price, rows_per_person)


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
    n_iter: int | None = None,
    step: float | None = None,
    rows_per_person: int = 1,
) -> Plan:
    """Non-private EM, for comparison: the start of a private fit but without noise, then many exact steps."""
    rows_per_person = arguments.rows_per_person(rows_per_person, n)
    steps: list[Step | PublishedEM | ReferenceEM] = []
    if not has_start and model != "missing-regression":
        problem = Problem(MODELS[model](sigma), n, d, sparsity or d, signal)
        pipeline = Pipeline(problem, private_start=True, sparse=sparsity is not None and sparsity < d)
        starting = pipeline.steps(Knobs(start_radius=4.0), rho=1.0)
        steps += [replace(part, rho=math.inf) for part in starting if isinstance(part, Screen | Start)]
    steps.append(ReferenceEM(math.inf, sparsity, 50 if n_iter is None else n_iter, 1.0 if step is None else step))
    assumed = (sparsity, sigma, signal, 0.0)
    return Plan(model, "reference", n, d, math.inf, delta, *assumed, tuple(steps), Price(math.inf), rows_per_person)
