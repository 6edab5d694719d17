"""What the parts of a saved model must say of each other: a file that contradicts itself is refused."""

from __future__ import annotations

import math

import numpy as np

from dpem.algorithms.paper import PaperEM
from dpem.algorithms.reference import ReferenceEM
from dpem.algorithms.tight import Refine
from dpem.estimators.base import PrivateEM
from dpem.privacy import Guarantee, total_price


def check_model(model: PrivateEM, d: int, guarantee: Guarantee) -> None:
    """Raise a ValueError that names the first two fields found at odds."""
    plan = model.plan_
    size = model.max_sparsity if model.sparsity == "auto" else model.sparsity
    steps = [step for step in plan.steps if isinstance(step, Refine | PaperEM | ReferenceEM)]
    count = sum(1 if isinstance(step, Refine) else step.n_iter for step in steps)
    method = "reference" if math.isinf(plan.epsilon) else model.method
    whole = [release for release in guarantee.mechanisms if release.batch is None]
    differ = {
        ("plan.model", "estimator"): plan.model != model._model_name,
        ("plan.d", "features.count"): plan.d != d,
        ("plan.sparsity", "parameters.sparsity"): plan.sparsity != size,
        ("plan.sparsity", "fitted.support"): len(model.support_) > (plan.sparsity or d),
        ("plan.method", "parameters.method"): plan.method != method or model.method not in ("tight", "paper"),
        ("plan.signal", "parameters.signal"): plan.signal != model.signal,
        ("plan.sigma", "fitted.sigma"): plan.sigma != model.sigma_,
        ("parameters.sigma", "fitted.sigma"): model.sigma not in (None, model.sigma_),
        ("plan.steps", "parameters.n_iter"): model.n_iter not in (None, count),
        ("plan.steps", "parameters.step_size"): any(model.step_size not in (None, step.step) for step in steps),
        ("plan.epsilon", "guarantee.epsilon"): plan.epsilon != guarantee.epsilon,
        ("plan.delta", "guarantee.delta"): plan.delta != guarantee.delta,
        ("plan.n", "guarantee.mechanisms"): any(r.n_rows > plan.n for r in guarantee.mechanisms)
        or any(release.n_rows != plan.n for release in whole),
    }
    for (one, other), at_odds in differ.items():
        if at_odds:
            raise ValueError(f"{one} does not agree with {other}")


def check_guarantee(guarantee: Guarantee) -> None:
    """*Lemma.* A file cannot state less than its releases cost. *Proof.* Their total price is converted here as it was
    when they were charged, and a δ above the stated one is refused. ∎
    """
    if guarantee.neighbours != "replace-one" or not guarantee.unit:
        raise ValueError("guarantee.neighbours must be replace-one, and guarantee.unit must not be empty")
    if math.isinf(guarantee.epsilon):
        if guarantee.private:
            raise ValueError("guarantee.private must be false where epsilon is infinite")
        return
    try:
        with np.errstate(all="ignore"):
            paid = total_price(list(guarantee.mechanisms)).delta(guarantee.epsilon) <= guarantee.delta * (1 + 1e-9)
    except (ArithmeticError, ValueError):
        paid = False
    if not paid:
        raise ValueError("guarantee.mechanisms cost more than guarantee.epsilon and guarantee.delta state")
