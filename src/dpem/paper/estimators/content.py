"""A fitted estimator of the paper as plain data and back, and what its parts must say of each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpem._json import plain, rebuild, record
from dpem.fitting.serialization import features_read, features_written, vector
from dpem.paper.fit_plan import Plan
from dpem.paper.improved.steps import Refine
from dpem.paper.published import PublishedEM
from dpem.paper.reference import ReferenceEM
from dpem.privacy import Guarantee
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.paper.estimators.base import PrivateEM

E = TypeVar("E", bound="PrivateEM")

#: What is kept of the constructor's arguments, with the type each has in a file; start has its own.
ARGUMENTS: dict[str, Any] = {
    "epsilon": float,
    "delta": float,
    "sparsity": int | str | None,
    "max_sparsity": int | None,
    "sigma": float | None,
    "signal": float,
    "method": str,
    "n_iter": int | None,
    "step_size": float | None,
    "clip": float | None,
    "person": str | None,
    "rows_per_person": int,
}


def written(model: PrivateEM) -> dict[str, Any]:
    """The content of a fitted model."""
    if np.count_nonzero(model.coef_) > np.count_nonzero(model.coef_[model.support_]):
        raise ValueError("this model cannot be saved: coef_ is not zero outside support_.")
    given = {name: rebuild(hint, plain(getattr(model, name)), name) for name, hint in ARGUMENTS.items()}
    start = model.start
    if start is not None and not isinstance(start, str):
        dense = np.array(start, dtype=float)
        places = np.flatnonzero(dense)
        start = {"support": places.tolist(), "values": dense[places].tolist()}
    sigma = float(model.sigma_)
    return {
        "parameters": plain({**given, "start": start}),
        "features": features_written(model),
        "fitted": {"support": model.support_.tolist(), "values": model.coef_[model.support_].tolist(), "sigma": sigma},
        "plan": model.plan_.to_dict(),
    }


def read(kind: type[E], content: Mapping[str, Any], guarantee: Guarantee) -> E:
    """The fitted model that the content describes, or a ValueError that names the field."""
    d, names = features_read(content["features"])
    given = record(content["parameters"], "parameters", (*ARGUMENTS, "start"))
    arguments = {name: rebuild(hint, given[name], f"parameters.{name}") for name, hint in ARGUMENTS.items()}
    start = given["start"]
    if start is not None and start != "equal":
        start = _sparse(start, "parameters.start", d)
    model = kind(**arguments, start=start)
    plan = Plan.from_dict(content["plan"])
    fitted = record(content["fitted"], "fitted", ("support", "values", "sigma"))
    model.coef_ = _sparse({key: fitted[key] for key in ("support", "values")}, "fitted", d)
    model.support_ = np.array(fitted["support"], dtype=np.intp)
    model.sigma_ = rebuild(float, fitted["sigma"], "fitted.sigma")
    model.plan_, model.n_iter_ = plan, plan.em_steps
    model.n_features_in_, model.scaler_ = d, None
    if names is not None:
        model.feature_names_in_ = names
    model.releases_, model.guarantee_ = guarantee.mechanisms, guarantee
    _agree(model, d, guarantee)
    return model


def _agree(model: PrivateEM, d: int, guarantee: Guarantee) -> None:
    """Raise a ValueError that names the first two fields found at odds."""
    plan = model.plan_
    size = model.max_sparsity if model.sparsity == "auto" else model.sparsity
    method = "reference" if math.isinf(plan.epsilon) else model.method
    whole = [release for release in guarantee.mechanisms if release.batch is None]
    lengths = [step.step for step in plan.steps if isinstance(step, Refine | PublishedEM | ReferenceEM)]
    count = sum(step.em_steps for step in plan.steps if step.refines)
    differ = {
        ("plan.model", "estimator"): plan.model != model._model_name,
        ("plan.d", "features.count"): plan.d != d,
        ("plan.sparsity", "parameters.sparsity"): plan.sparsity != size,
        ("plan.sparsity", "fitted.support"): len(model.support_) > (plan.sparsity or d),
        ("plan.method", "parameters.method"): plan.method != method or model.method not in ("improved", "published"),
        ("plan.signal", "parameters.signal"): plan.signal != model.signal,
        ("plan.sigma", "fitted.sigma"): plan.sigma != model.sigma_,
        ("parameters.sigma", "fitted.sigma"): model.sigma not in (None, model.sigma_),
        ("plan.steps", "parameters.n_iter"): model.n_iter not in (None, count),
        ("plan.steps", "parameters.step_size"): any(model.step_size not in (None, length) for length in lengths),
        ("plan.rows_per_person", "parameters.rows_per_person"): plan.rows_per_person != model.rows_per_person,
        ("plan.epsilon", "guarantee.epsilon"): plan.epsilon != guarantee.epsilon,
        ("plan.delta", "guarantee.delta"): plan.delta != guarantee.delta,
        ("plan.n", "guarantee.mechanisms"): any(r.n_rows > plan.n for r in guarantee.mechanisms)
        or any(release.n_rows != plan.n for release in whole),
    }
    for (one, other), at_odds in differ.items():
        if at_odds:
            raise ValueError(f"{one} does not agree with {other}")


def _sparse(value: Any, where: str, d: int) -> FloatArray:
    """A vector of length d that is zero but for the values at its support."""
    found = record(value, where, ("support", "values"))
    support = found["support"]
    if not isinstance(support, list) or any(type(place) is not int for place in support):
        raise ValueError(f"{where}.support must be a list of whole numbers")
    if any(not 0 <= place < d for place in support) or any(a >= b for a, b in pairwise(support)):
        raise ValueError(f"{where}.support must increase and name columns from 0 to {d - 1}")
    dense = np.zeros(d)
    dense[support] = vector(found["values"], f"{where}.values", len(support))
    return dense
