"""Plans with nothing to choose: the paper's own prescription, and the non-private reference. ``assumed`` are the other
fields of :class:`~dpem.paper.fit_plan.Plan`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpem._validation import Argument, ArgumentError
from dpem.paper.fit_plan import Plan
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
    epsilon: float,
    delta: float,
    sparsity: int | None,
    n_iter: int | None = None,
    step: float | None = None,
    T: float | None = None,
    **assumed: Any,
) -> Plan:
    """The paper's own prescription: N₀ ≈ log n, T ≈ √log n, and η = 0.5 as in its experiments; or the values given.

    >>> published_plan(
    ...     "symmetric-mixture", n=4000, d=9, epsilon=0.5, delta=1e-4, sparsity=3, sigma=1.0, signal=1.0
    ... ).steps[0].n_iter
    8
    """
    price = printed_price(epsilon, delta, sparsity)
    if price.delta(epsilon) > delta:
        reason = f"must be smaller (the paper's printed noise does not honour {epsilon:g} at delta={delta:g}); or use "
        raise ArgumentError("epsilon", reason, Argument("method", "improved"), ".")
    em = PublishedEM.priced(
        epsilon,
        delta,
        sparsity,
        n_iter=max(1, round(math.log(n))) if n_iter is None else n_iter,
        step=0.5 if step is None else step,
        T=math.sqrt(math.log(n)) if T is None else T,
    )
    sizes = {**assumed, "n": n, "sparsity": sparsity}
    return Plan(model, "published", epsilon=epsilon, delta=delta, missing=0.0, steps=(em,), price=price, **sizes)


def reference_plan(
    model: str, *, has_start: bool, n_iter: int | None = None, step: float | None = None, **assumed: Any
) -> Plan:
    """Non-private EM, for comparison: the start of a private fit but without noise, then many exact steps."""
    n, d, sparsity = assumed["n"], assumed["d"], assumed["sparsity"]
    starting: tuple[Screen | Start, ...] = ()
    if not has_start and model != "missing-regression":
        problem = Problem(MODELS[model](assumed["sigma"]), n, d, sparsity or d, assumed["signal"])
        pipeline = Pipeline(problem, private_start=True, sparse=sparsity is not None and sparsity < d)
        private = pipeline.steps(Knobs(start_radius=4.0), rho=1.0)
        starting = tuple(replace(part, rho=math.inf) for part in private if isinstance(part, Screen | Start))
    em = ReferenceEM(math.inf, sparsity, 50 if n_iter is None else n_iter, 1.0 if step is None else step)
    free, steps = Price(math.inf), (*starting, em)
    return Plan(model, "reference", epsilon=math.inf, missing=0.0, steps=steps, price=free, **assumed)
