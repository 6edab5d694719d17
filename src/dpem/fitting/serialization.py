"""Fitted estimators as plain data and back: what a file contains, and which of its fields must agree.

Everything that is written was released or is public. What is read is rebuilt from declared types; everything that is
not stored is computed from it again, so that a file cannot contradict itself.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpem._json import checksum, plain, rebuild, record, refuse_undeclared
from dpem.fitting.check import FitCheck
from dpem.fitting.plan import Plan
from dpem.fitting.step import State
from dpem.fitting.uncertainty import KINDS, Uncertainty
from dpem.privacy import Charge, Guarantee

if TYPE_CHECKING:
    from dpem.fitting.results import Fitted

E = TypeVar("E", bound=Any)

#: Files that state more columns than this are refused.
MOST_COLUMNS = 10**8


def fingerprint(estimator: Fitted) -> str:
    """SHA-256 of everything a fitted estimator publishes: the same for a model and for what was loaded from its file.

    Standard errors are no part of it: they follow from the rest.
    """
    return checksum(content_of(estimator))


def content_of(estimator: Fitted) -> dict[str, Any]:
    """The content of a fitted estimator's file."""
    kind = _parameters_of(type(estimator))
    if type(estimator.theta_) is not kind:
        raise ValueError(f"this model cannot be saved: its parameters are no {kind.__name__} of its own module.")
    parameters = estimator.get_params(deep=False)
    return {
        "estimator": type(estimator).__name__,
        "parameters": plain({name: parameters[name] for name in parameters if name not in estimator._not_written}),
        "features": estimator._features_written(),
        "fitted": {
            "theta": plain(estimator.theta_),
            "chosen": plain(estimator.chosen_),
            "check": plain(estimator.fit_check_),
        },
        "plan": estimator.plan_.to_dict(),
        "guarantee": plain(estimator.guarantee_),
    }


def name_model(charge: Charge | None, estimator: Fitted) -> None:
    """Record the model's fingerprint with its charge; a model that cannot be written to a file has none."""
    if isinstance(charge, Charge):
        with suppress(ValueError):
            charge.released(fingerprint(estimator))


def read(kind: type[E], content: Mapping[str, Any], guarantee: Guarantee) -> E:
    """The fitted estimator that the content describes, or a ValueError that names the field."""
    features = record(content["features"], "features", ("count", "names"))
    d = rebuild(int, features["count"], "features.count")
    if d > MOST_COLUMNS:
        raise ValueError(f"features.count must be at most {MOST_COLUMNS:,}")
    estimator = kind(**read_arguments(kind, content["parameters"]))
    estimator.n_features_in_ = d
    if features["names"] is not None:
        names = rebuild(tuple[str, ...], features["names"], "features.names")
        if len(names) != d:
            raise ValueError(f"features.names must have {d} entries, it has {len(names)}")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    state, plan = read_state(kind, content["fitted"]), Plan.from_dict(content["plan"], kind._step_kinds)
    estimator._check_arguments()
    estimator._set_fitted(state, plan, guarantee)
    check_agreement(estimator, plan, guarantee, state.check, d)
    return estimator


def read_state(kind: type[Any], value: Any) -> State:
    """The state after a fit, from a file."""
    fitted = record(value, "fitted", ("theta", "chosen", "check"))
    theta = rebuild(_parameters_of(kind), fitted["theta"], "fitted.theta", {})
    check = None if fitted["check"] is None else rebuild(FitCheck, fitted["check"], "fitted.check", {})
    return State(theta, None if fitted["chosen"] is None else _chosen(fitted["chosen"]), check)


def errors_written(estimator: Fitted) -> dict[str, Any] | None:
    """The standard errors, if they have been computed and are finite: a loaded model need not compute them again."""
    errors: Uncertainty | None = getattr(estimator, "_uncertainty_", None)
    if errors is None or type(errors) is not Uncertainty:  # a model with its own class of errors computes them again
        return None
    finite = np.isfinite(errors.estimate).all() and np.isfinite(errors.total).all()
    return plain(errors) if finite else None


def errors_read(value: Any) -> Uncertainty:
    """The standard errors of a file."""
    errors = rebuild(Uncertainty, value, "uncertainty", {})
    parts = (errors.estimate, errors.sampling, errors.privacy, errors.total, errors.misfit)
    if not all(part.shape == (len(errors.names),) for part in parts) or any((part < 0).any() for part in parts[1:]):
        raise ValueError("uncertainty must hold a number for each of its names, and errors that are not negative")
    if len(errors.kinds) not in (0, len(errors.names)) or any(kind not in KINDS for kind in errors.kinds):
        raise ValueError("uncertainty.kinds must be empty, or have a known word for each name")
    return errors


def _parameters_of(kind: type[Any]) -> type[Any]:
    """The class ``Parameters`` of the module of the estimator, or of a class that it extends."""
    for base in kind.__mro__:
        parameters: type[Any] | None = getattr(sys.modules.get(base.__module__), "Parameters", None)
        if parameters is not None:
            return parameters
    raise ValueError(f"{kind.__name__} cannot be saved: its module declares no Parameters.")


def refuse_unsavable(kind: type[Any]) -> None:
    """Refuse, before the charge, a model whose parameters could not be read back from a file."""
    parameters = _parameters_of(kind)
    if not is_dataclass(parameters):
        raise ValueError(f"{kind.__name__} cannot be saved: Parameters of its module must be a dataclass.")
    try:
        refuse_undeclared(parameters, "Parameters")
    except ValueError as error:
        raise ValueError(f"{kind.__name__} cannot be saved: {error}.") from None


def read_arguments(kind: type[Any], value: Any) -> dict[str, Any]:
    """The constructor's arguments: numbers, texts and lists of them. The estimator checks their values."""
    names = tuple(name for name in inspect.signature(kind).parameters if name not in kind._not_written)
    values = record(value, "parameters", names)
    return {name: _argument(values[name], f"parameters.{name}") for name in names}


def _argument(value: Any, where: str, depth: int = 0) -> Any:
    if isinstance(value, list) and depth < 2:
        return tuple(_argument(part, where, depth + 1) for part in value)
    if value is not None and type(value) not in (str, int, float, bool):
        raise ValueError(f"{where} must be a number, a text, true, false, null or a list of such")
    return math.inf if value == "inf" else value


def _chosen(value: Any) -> NDArray[np.intp]:
    places: NDArray[np.intp] = rebuild(NDArray[np.intp], value, "fitted.chosen")
    if places.ndim != 1 or not (places >= 0).all() or len(np.unique(places)) != len(places):
        raise ValueError("fitted.chosen must name coordinates, each once")
    return places


def check_agreement(estimator: Fitted, plan: Plan, guarantee: Guarantee, check: FitCheck | None, d: int) -> None:
    """Raise a ValueError that names the first two fields that contradict each other."""
    releases = guarantee.mechanisms
    contradictions = {
        ("plan.model", "estimator"): plan.model != estimator._name(),
        ("plan.settings", "parameters"): plan.settings != plain(estimator._settings()),
        ("plan.d", "features"): plan.d > d,
        ("plan.epsilon", "guarantee.epsilon"): plan.epsilon != guarantee.epsilon,
        ("plan.delta", "guarantee.delta"): plan.delta != guarantee.delta,
        ("plan.rows_per_person", "parameters.rows_per_person"): plan.rows_per_person != estimator.rows_per_person,
        ("plan.n", "plan.rows_per_person"): plan.n < plan.rows_per_person,
        ("plan.n", "guarantee.mechanisms"): any(release.n_rows > plan.n for release in releases)
        or any(release.n_rows != plan.n for release in releases if release.batch is None),
        ("fitted.check", "parameters.check"): check is not None and not getattr(estimator, "check", False),
    }
    for (field, other), differ in contradictions.items():
        if differ:
            raise ValueError(f"{field} does not agree with {other}")
