"""Fitted estimators as JSON values and back: the content of a model file, and which of its fields must agree.

Everything in a file was released or is public. Values are rebuilt from declared types. What follows from them is not
stored but computed again.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray

from dpem._json import checksum, plain, rebuild, record, refuse_undeclared
from dpem.fitting.check import FitCheck
from dpem.fitting.columns import Columns
from dpem.fitting.formula import CompiledFormula
from dpem.fitting.model import Model
from dpem.fitting.plan import Plan
from dpem.fitting.step import State
from dpem.fitting.uncertainty import KINDS, Uncertainty
from dpem.privacy import Charge, Guarantee
from dpem.tables.bounds import Pair, checked_pair
from dpem.tables.entries import OTHER, Levels, checked_levels

if TYPE_CHECKING:
    from dpem.fitting.results import Fitted, UnitModel

E = TypeVar("E", bound=Any)

#: Files that state more columns than this are refused.
MOST_COLUMNS = 10**8

# --- writing ----------------------------------------------------------------------------------------------------------


def fingerprint(estimator: Fitted) -> str:
    """SHA-256 of everything that a fitted estimator publishes; a model loaded from a file has that of the saved one.

    Standard errors are left out: they follow from the rest.
    """
    return checksum(content_of(estimator))


def name_model(charge: Charge | None, estimator: Fitted) -> None:
    """Record the model's fingerprint with its charge, if the model can be written to a file."""
    if isinstance(charge, Charge):
        with suppress(ValueError):
            charge.released(fingerprint(estimator))


def content_of(estimator: Fitted) -> dict[str, object]:
    """The content of a fitted estimator's file."""
    kind = _parameters_of(type(estimator))
    if type(estimator.theta_) is not kind:
        raise ValueError(
            f"this model cannot be saved: theta_ must be a {kind.__name__}, not {type(estimator.theta_).__name__}."
        )
    parameters = estimator.get_params(deep=False)
    return {
        "estimator": type(estimator).__name__,
        "parameters": plain({name: parameters[name] for name in parameters if name not in estimator._not_written}),
        "features": estimator._features_written(),
        "fitted": plain({"theta": estimator.theta_, "chosen": estimator.chosen_, "check": estimator.fit_check_}),
        "plan": estimator.plan_.to_dict(),
        "guarantee": plain(estimator.guarantee_),
    }


def columns_written(estimator: UnitModel) -> dict[str, object]:
    """The declared columns with their bounds or levels, the response, and the columns that a formula reads."""
    levels, bounds, limits = estimator.levels_, estimator.bounds_, estimator.y_bounds_
    response = None if limits is None else {"name": estimator.y_name_, "bounds": list(limits)}
    columns = [_column(name, levels.get(name), bounds.get(name)) for name in estimator.columns_]
    features = {"named": hasattr(estimator, "feature_names_in_"), "columns": columns, "response": response}
    formula: CompiledFormula | None = getattr(estimator, "_formula_", None)
    if formula is not None:
        raw = [_column(name, formula.levels[name], None) for name in formula.raw if name in formula.levels]
        features["raw"] = raw + [_column(name, None, pair) for name, pair in formula.bounds.items()]
    return features


def _column(name: str, levels: Levels | None, bounds: Pair | None) -> dict[str, object]:
    limits = {"bounds": list(bounds or ())} if levels is None else {"levels": levels.given}
    return {"name": name, **limits}


def errors_written(estimator: Fitted) -> dict[str, object] | None:
    """The standard errors if they are computed and finite, so that a loaded model need not compute them again."""
    errors: Uncertainty | None = getattr(estimator, "_uncertainty_", None)
    if type(errors) is not Uncertainty:  # None, or a subclass, which a loaded model computes again
        return None
    finite = np.isfinite(errors.estimate).all() and np.isfinite(errors.total).all()
    return plain(errors) if finite else None


def refuse_unsavable(kind: type) -> None:
    """Refuse a model, before its charge, whose parameters could not be read from a file."""
    parameters = _parameters_of(kind)
    if not is_dataclass(parameters):
        raise ValueError(f"{kind.__name__} cannot be saved: Parameters of its module must be a dataclass.")
    try:
        refuse_undeclared(parameters, "Parameters")
    except ValueError as error:
        raise ValueError(f"{kind.__name__} cannot be saved: {error}.") from None


def _parameters_of(kind: type) -> type:
    """The class ``Parameters`` in the module of the estimator or of a base class."""
    for base in kind.__mro__:
        parameters: type | None = getattr(sys.modules.get(base.__module__), "Parameters", None)
        if parameters is not None:
            return parameters
    raise ValueError(f"{kind.__name__} cannot be saved: its module declares no Parameters.")


# --- reading ----------------------------------------------------------------------------------------------------------


def read(kind: type[E], content: Mapping[str, object], guarantee: Guarantee) -> E:
    """The fitted estimator that the content describes; a ValueError names a wrong field."""
    features = record(content["features"], "features", ("count", "names"))
    d = rebuild(int, features["count"], "features.count")
    if d > MOST_COLUMNS:
        raise ValueError(f"features.count must be at most {MOST_COLUMNS:,}")
    estimator = kind(**_arguments(kind, content["parameters"]))
    estimator.n_features_in_ = d
    if (names := rebuild(tuple[str, ...] | None, features["names"], "features.names")) is not None:
        if len(names) != d:
            raise ValueError(f"features.names must have {d} entries, it has {len(names)}")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    state, plan = _state(kind, content["fitted"]), Plan.from_dict(content["plan"], kind._step_kinds)
    estimator._check_arguments()
    estimator._set_fitted(state, plan, guarantee)
    _check_agreement(estimator, plan, guarantee, state.check, d)
    return estimator


def read_columns(kind: type[E], content: Mapping[str, object], guarantee: Guarantee) -> E:
    """The same for an estimator with declared columns."""
    parameters = content["parameters"]
    formula = parameters.get("formula") if isinstance(parameters, dict) else None
    keys = ("named", "columns", "response", *(() if formula is None else ("raw",)))
    features = record(content["features"], "features", keys)
    bounds, levels, names = _columns(features["columns"])
    if (features["response"] is not None) != kind._needs_y:
        raise ValueError(f"features.response must {'not ' if kind._needs_y else ''}be null for this estimator")
    y_name, y_bounds = None, None
    if kind._needs_y:
        response = record(features["response"], "features.response", ("name", "bounds"))
        y_name = rebuild(str | None, response["name"], "features.response.name")
        pair = rebuild(tuple[float, float], response["bounds"], "features.response.bounds")
        y_bounds = checked_pair("features.response.bounds", pair)
    declared = {"bounds": bounds or None, "levels": _user_levels(levels) or None, "y_bounds": y_bounds}
    if formula is not None:
        raw_bounds, raw_levels, _ = _columns(features["raw"])
        declared = {"bounds": raw_bounds, "levels": _user_levels(raw_levels)}
    accepted = inspect.signature(kind).parameters
    if levels and "levels" not in accepted:
        raise ValueError("features.columns must have no levels for this estimator")
    of_columns = {name: value for name, value in declared.items() if name in accepted}
    estimator = kind(**_arguments(kind, parameters), **of_columns)
    estimator._check_arguments()
    raw: CompiledFormula | None = estimator._compiled()
    if raw is not None and raw.names != names:
        raise ValueError("features.columns does not agree with parameters.formula")
    columns = Columns(names, levels, bounds, y_name, y_bounds)
    schema = columns.schema(estimator._every_level)
    state, plan = _state(kind, content["fitted"]), Plan.from_dict(content["plan"])
    if state.chosen is not None and not (state.chosen < schema.width).all():
        raise ValueError(f"fitted.chosen must be a list of different coordinates from 0 to {schema.width - 1}")
    model = estimator._model(schema)
    _check_agreement(estimator, plan, guarantee, state.check, len(names))
    estimator.n_features_in_ = len(names)
    if raw is not None:
        estimator._formula_, estimator.n_features_in_ = raw, len(raw.covariates)
        estimator.feature_names_in_ = np.array(raw.covariates, dtype=object)
    elif rebuild(bool, features["named"], "features.named"):
        estimator.feature_names_in_ = np.array(names, dtype=object)
    try:
        with np.errstate(all="ignore"):
            valid = _has_density(model, state)
            estimator._set_fitted(state, columns, plan, guarantee)
    except Exception:
        valid = False
    if not valid:
        raise ValueError("fitted.theta does not agree with features and parameters")
    return estimator


def _has_density(model: Model, state: State) -> bool:
    """Whether rows have a log-density under the parameters; not if arrays have wrong shapes or all weights are 0."""
    width = model.schema_of(state).width
    density = np.asarray(model.log_density(numpy_api, state.theta, np.zeros((2, width)), np.zeros(2)))
    return density.shape == (2,) and bool((density < math.inf).all())


def _arguments(kind: type[Fitted], value: object) -> dict[str, object]:
    """The constructor's arguments, whose values the estimator checks."""
    names = tuple(name for name in inspect.signature(kind).parameters if name not in kind._not_written)
    values = record(value, "parameters", names)
    return {name: _argument(values[name], f"parameters.{name}") for name in names}


def _argument(value: object, where: str, depth: int = 0) -> Any:
    if isinstance(value, list) and depth < 2:
        return tuple(_argument(part, where, depth + 1) for part in value)
    if value is not None and type(value) not in (str, int, float, bool):
        raise ValueError(f"{where} must be a number, a text, true, false, null or a list of these")
    return math.inf if value == "inf" else value


def _state(kind: type, value: object) -> State:
    """The state after a fit."""
    fitted = record(value, "fitted", ("theta", "chosen", "check"))
    theta = rebuild(_parameters_of(kind), fitted["theta"], "fitted.theta", {})
    check = rebuild(FitCheck | None, fitted["check"], "fitted.check", {})
    chosen = rebuild(NDArray[np.intp] | None, fitted["chosen"], "fitted.chosen")
    if chosen is not None and (chosen.ndim != 1 or (chosen < 0).any() or len(np.unique(chosen)) != len(chosen)):
        raise ValueError("fitted.chosen must be a list of different coordinates")
    return State(theta, chosen, check)


def _columns(value: object) -> tuple[dict[str, Pair], dict[str, Levels], tuple[str, ...]]:
    """The bounds and the levels of a file's columns by name, and all names in order."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_COLUMNS:
        raise ValueError("features.columns must be a list of at least one column")
    bounds: dict[str, Pair] = {}
    levels: dict[str, Levels] = {}
    for j, column in enumerate(value):
        where = f"features.columns[{j}]"
        has_levels = isinstance(column, dict) and "levels" in column
        entry = record(column, where, ("name", "levels" if has_levels else "bounds"))
        name = rebuild(str, entry["name"], f"{where}.name")
        if name in bounds or name in levels:
            raise ValueError(f"{where}.name is given twice")
        if has_levels:
            levels[name] = _levels(entry["levels"], f"{where}.levels")
        else:
            pair = rebuild(tuple[float, float], entry["bounds"], f"{where}.bounds")
            bounds[name] = checked_pair(f"{where}.bounds", pair)
    return bounds, levels, tuple(column["name"] for column in value)


def _user_levels(levels: Mapping[str, Levels]) -> dict[str, object]:
    """Levels in the form in which a user gives them."""
    return {name: column.given for name, column in levels.items()}


def _levels(value: object, where: str) -> Levels:
    kinds = {type(level) for level in value if level != OTHER} if isinstance(value, list) else {dict}
    if not (kinds <= {str} or kinds <= {int, float}):
        raise ValueError(f"{where} must be a list of texts or of numbers")
    return checked_levels({where: value})[where]


def errors_read(value: object) -> Uncertainty:
    """The standard errors of a file."""
    errors: Uncertainty = rebuild(Uncertainty, value, "uncertainty", {})
    parts = (errors.estimate, errors.sampling, errors.privacy, errors.total, errors.misfit)
    if not all(part.shape == (len(errors.names),) for part in parts) or any((part < 0).any() for part in parts[1:]):
        raise ValueError("uncertainty must have a number for each of its names, and no negative error")
    if len(errors.kinds) not in (0, len(errors.names)) or any(kind not in KINDS for kind in errors.kinds):
        raise ValueError(f"uncertainty.kinds must be empty or have one of {', '.join(map(repr, KINDS))} for each name")
    return errors


def _check_agreement(estimator: Fitted, plan: Plan, guarantee: Guarantee, check: FitCheck | None, d: int) -> None:
    """Raise a ValueError if two fields contradict each other."""
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
