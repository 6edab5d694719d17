"""What the parts of a saved model must say of each other: a file that contradicts itself is refused."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem._json import rebuild
from dpem.estimators.scaler import DPStandardScaler
from dpem.paper.estimators.base import PrivateEM
from dpem.paper.published import PaperEM
from dpem.paper.reference import ReferenceEM
from dpem.paper.tight import Refine
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
        ("plan.rows_per_person", "parameters.rows_per_person"): plan.rows_per_person != model.rows_per_person,
        ("plan.epsilon", "guarantee.epsilon"): plan.epsilon != guarantee.epsilon,
        ("plan.delta", "guarantee.delta"): plan.delta != guarantee.delta,
        ("plan.n", "guarantee.mechanisms"): any(r.n_rows > plan.n for r in guarantee.mechanisms)
        or any(release.n_rows != plan.n for release in whole),
    }
    for (one, other), at_odds in differ.items():
        if at_odds:
            raise ValueError(f"{one} does not agree with {other}")


def check_guarantee(guarantee: Guarantee) -> None:
    """*Lemma.* A file cannot state less than its releases cost. *Proof.* Their total price is at most the stated price,
    which is converted here as it was when it was charged, and a δ above the stated one is refused. ∎
    """
    if guarantee.neighbours != "replace-one":
        raise ValueError("guarantee.neighbours must be replace-one")
    if math.isinf(guarantee.epsilon):
        if guarantee.private:
            raise ValueError("guarantee.private must be false where epsilon is infinite")
        return
    try:
        with np.errstate(all="ignore"):
            released, price = total_price(list(guarantee.mechanisms)), guarantee.price
            covered = released.rho <= price.rho * (1 + 1e-9) and (released.gaussian or not price.gaussian)
            paid = covered and price.delta(guarantee.epsilon) <= guarantee.delta * (1 + 1e-9)
    except (ArithmeticError, ValueError):
        paid = False
    if not paid:
        raise ValueError(
            "guarantee.mechanisms cost more than guarantee.price, or that more than guarantee.epsilon and "
            "guarantee.delta state"
        )


def check_scaler(model: PrivateEM | DPStandardScaler, scaler: DPStandardScaler) -> None:
    """Refuse a scaler that cannot be the one whose output a model was fitted to."""
    if isinstance(model, DPStandardScaler) or not isinstance(scaler, DPStandardScaler):
        raise ValueError("scaler must be the DPStandardScaler whose output the model was fitted to, or None.")
    check_is_fitted(scaler)
    ours, theirs = (getattr(one, "feature_names_in_", None) for one in (model, scaler))
    renamed = ours is not None and theirs is not None and list(ours) != list(theirs)
    if model.n_features_in_ != scaler.n_features_in_ or renamed:
        raise ValueError("scaler must be fitted to the columns that the model was fitted to.")


def fingerprint_in(value: Any) -> str | None:
    """The fingerprint of a scaler in a file, or None."""
    if value is None:
        return None
    found = rebuild(str, value, "scaler")
    if re.fullmatch("sha256:[0-9a-f]{64}", found) is None:
        raise ValueError("scaler must be null, or sha256: and 64 hexadecimal digits")
    return found
