"""A fitted estimator as plain data and back: what a file holds of it, and what its parts must say of each other.

Everything written was released or is public. What is read is rebuilt from declared types, and then everything that
was not stored is computed anew from it, so that a file cannot contradict itself.
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
from dpem.fitting.formula import CompiledFormula, compiled
from dpem.fitting.plan import Plan
from dpem.fitting.step import State
from dpem.fitting.uncertainty import KINDS, Uncertainty
from dpem.privacy import Charge, Guarantee
from dpem.tables.bounds import Pair, checked_pair
from dpem.tables.entries import OTHER, Levels, checked_levels

if TYPE_CHECKING:
    from dpem.fitting.results import Fitted, UnitModel

E = TypeVar("E", bound=Any)

#: The most columns that are believed of a file.
MOST_COLUMNS = 10**8


def fingerprint(estimator: Fitted) -> str:
    """SHA-256 of everything a fitted estimator publishes: the same for a model and for what was loaded from its file.

    Standard errors are no part of it: they follow from the rest.
    """
    return checksum(content_of(estimator))


def content_of(estimator: Fitted) -> dict[str, Any]:
    """What a file holds of a fitted estimator."""
    kind = _parameters_of(type(estimator))
    if type(estimator.theta_) is not kind:
        raise ValueError(f"this model cannot be saved: its parameters are no {kind.__name__} of its own module.")
    given = estimator.get_params(deep=False)
    return {
        "estimator": type(estimator).__name__,
        "parameters": plain({name: value for name, value in given.items() if name not in estimator._not_written}),
        "features": estimator._features_written(),
        "fitted": {
            "theta": plain(estimator.theta_),
            "chosen": plain(estimator.chosen_),
            "check": plain(estimator.fit_check_),
        },
        "plan": estimator.plan_.to_dict(),
        "guarantee": plain(estimator.guarantee_),
    }


def name_model(charge: Any, estimator: Fitted) -> None:
    """Record in the ledger which model a fit became; one that cannot be written to a file has no fingerprint."""
    if isinstance(charge, Charge):
        with suppress(ValueError):
            charge.released(fingerprint(estimator))


# --- estimators of columns without bounds -----------------------------------------------------------------------------


def features_written(estimator: Fitted) -> dict[str, Any]:
    """The number of columns and their names, of an estimator that knows no more of them."""
    names = getattr(estimator, "feature_names_in_", None)
    return {"count": estimator.n_features_in_, "names": None if names is None else list(map(str, names))}


def read(kind: type[E], content: Mapping[str, Any], guarantee: Guarantee) -> E:
    """The fitted estimator that the content describes, or a ValueError that names the field."""
    features = record(content["features"], "features", ("count", "names"))
    d = rebuild(int, features["count"], "features.count")
    if d > MOST_COLUMNS:
        raise ValueError(f"features.count must be at most {MOST_COLUMNS:,}")
    estimator = kind(**_arguments(kind, content["parameters"]))
    estimator.n_features_in_ = d
    if features["names"] is not None:
        names = rebuild(tuple[str, ...], features["names"], "features.names")
        if len(names) != d:
            raise ValueError(f"features.names must have {d} entries, it has {len(names)}")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    state, plan = _state(kind, content["fitted"]), Plan.from_dict(content["plan"], kind._step_kinds)
    estimator._check_arguments()
    estimator._set_fitted(state, plan, guarantee)
    _agree(estimator, plan, guarantee, state.check, d)
    return estimator


def _state(kind: type[Any], value: Any) -> State:
    fitted = record(value, "fitted", ("theta", "chosen", "check"))
    theta = rebuild(_parameters_of(kind), fitted["theta"], "fitted.theta", {})
    check = None if fitted["check"] is None else rebuild(FitCheck, fitted["check"], "fitted.check", {})
    return State(theta, None if fitted["chosen"] is None else _chosen(fitted["chosen"]), check)


# --- general models ---------------------------------------------------------------------------------------------------


def columns_written(estimator: UnitModel) -> dict[str, Any]:
    """The columns, each with its bounds or its levels, and the response."""
    columns = [_column(estimator, name) for name in estimator.columns_]
    response = None
    if estimator.y_bounds_ is not None:
        response = {"name": estimator.y_name_, "bounds": list(estimator.y_bounds_)}
    named = hasattr(estimator, "feature_names_in_")
    return {"named": named, "columns": columns, "response": response, **_raw_written(estimator)}


def _raw_written(estimator: Fitted) -> dict[str, Any]:
    """The raw columns of a formula, with their bounds or levels."""
    formula: CompiledFormula | None = getattr(estimator, "_formula_", None)
    if formula is None:
        return {}
    both = [(name, formula.levels[name].given) for name in formula.raw if name in formula.levels]
    levels = [{"name": name, "levels": own} for name, own in both]
    return {"raw": [*levels, *({"name": name, "bounds": list(own)} for name, own in formula.bounds.items())]}


def _raw_read(value: Any, formula: Any, needs_y: bool) -> CompiledFormula:
    """The formula over the raw columns of a file."""
    bounds, levels, _ = _columns(value)
    return compiled(formula, bounds, _given(levels), needs_y=needs_y)


def _column(estimator: Fitted, name: str) -> dict[str, Any]:
    own: Levels | None = estimator.levels_.get(name)
    if own is None:
        return {"name": name, "bounds": list(estimator.bounds_[name])}
    return {"name": name, "levels": own.given}


def read_columns(kind: type[E], content: Mapping[str, Any], guarantee: Guarantee) -> E:
    """The fitted general model that the content describes, or a ValueError that names the field."""
    formula = _formula_text(content)
    keys = ("named", "columns", "response", *(() if formula is None else ("raw",)))
    features = record(content["features"], "features", keys)
    bounds, levels, names = _columns(features["columns"])
    y_name, y_bounds = _response(features["response"], kind._needs_y)
    declared = {"bounds": bounds or None, "levels": _given(levels) or None, "y_bounds": y_bounds}
    raw = None if formula is None else _raw_read(features["raw"], formula, kind._needs_y)
    if raw is not None:
        declared = {"bounds": dict(raw.bounds), "levels": _given(raw.levels)}
        if raw.names != names:
            raise ValueError("features.columns does not agree with parameters.formula")
    known = inspect.signature(kind).parameters
    if levels and "levels" not in known:
        raise ValueError("features.columns must have no levels for this estimator")
    of_columns = {name: value for name, value in declared.items() if name in known}
    estimator = kind(**_arguments(kind, content["parameters"]), **of_columns)
    estimator._check_arguments()
    schema = estimator._coordinates(names, levels, bounds, y_bounds)
    model = estimator._model(schema)
    state, plan = _state(kind, content["fitted"]), Plan.from_dict(content["plan"])
    if state.chosen is not None and not (state.chosen < schema.width).all():
        raise ValueError(f"fitted.chosen must name coordinates from 0 to {schema.width - 1}, each once")
    _agree(estimator, plan, guarantee, state.check, len(names))
    _describes_rows(model, state)
    estimator.n_features_in_ = len(names)
    if raw is not None:
        estimator._formula_, estimator.n_features_in_ = raw, len(raw.covariates)
        estimator.feature_names_in_ = np.array(raw.covariates, dtype=object)
    elif rebuild(bool, features["named"], "features.named"):
        estimator.feature_names_in_ = np.array(names, dtype=object)
    facts = {"columns_": names, "levels_": levels, "bounds_": bounds, "y_bounds_": y_bounds, "y_name_": y_name}
    try:
        with np.errstate(all="ignore"):
            estimator._set_fitted(state, schema, facts, plan, guarantee)
    except Exception:
        raise ValueError("fitted.theta does not agree with features and parameters") from None
    return estimator


def _formula_text(content: Mapping[str, Any]) -> Any:
    given = content["parameters"]
    return given.get("formula") if isinstance(given, dict) else None


def errors_written(estimator: Fitted) -> dict[str, Any] | None:
    """Standard errors that were computed, so that they need not be again; None if they were not, or are not finite."""
    errors: Uncertainty | None = getattr(estimator, "_uncertainty_", None)
    plainly = type(errors) is Uncertainty  # a model with errors of a kind of its own computes them again
    if errors is None or not plainly or not all(np.isfinite(p).all() for p in (errors.estimate, errors.total)):
        return None
    found: dict[str, Any] = plain(errors)
    return found


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
    """The record of parameters that the module of the estimator, or of the class that it extends, declares."""
    for own in kind.__mro__:
        found: type[Any] | None = getattr(sys.modules.get(own.__module__), "Parameters", None)
        if found is not None:
            return found
    raise ValueError(f"{kind.__name__} cannot be saved: its module declares no Parameters.")


def refuse_unsavable(kind: type[Any]) -> None:
    """Refuse, before a fit is paid for, a model whose parameters no file could give back."""
    parameters = _parameters_of(kind)
    if not is_dataclass(parameters):
        raise ValueError(f"{kind.__name__} cannot be saved: Parameters of its module must be a dataclass.")
    try:
        refuse_undeclared(parameters, "Parameters")
    except ValueError as error:
        raise ValueError(f"{kind.__name__} cannot be saved: {error}.") from None


def _columns(value: Any) -> tuple[dict[str, Pair], dict[str, Levels], tuple[str, ...]]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_COLUMNS:
        raise ValueError("features.columns must be a list of at least one column")
    bounds: dict[str, Pair] = {}
    levels: dict[str, Levels] = {}
    for j, column in enumerate(value):
        where = f"features.columns[{j}]"
        has_levels = isinstance(column, dict) and "levels" in column
        found = record(column, where, ("name", "levels" if has_levels else "bounds"))
        name = rebuild(str, found["name"], f"{where}.name")
        if name in bounds or name in levels:
            raise ValueError(f"{where}.name is given twice")
        if has_levels:
            levels[name] = _levels(found["levels"], f"{where}.levels")
        else:
            bounds[name] = _pair(found["bounds"], f"{where}.bounds")
    return bounds, levels, tuple(column["name"] for column in value)


def _levels(value: Any, where: str) -> Levels:
    if not isinstance(value, list) or not (
        _all(value, str) or _all([level for level in value if level != OTHER], int, float)
    ):
        raise ValueError(f"{where} must be a list of texts or of numbers")
    return checked_levels({where: value})[where]


def _pair(value: Any, where: str) -> Pair:
    if not isinstance(value, list) or len(value) != 2 or not _all(value, int, float):
        raise ValueError(f"{where} must be a list of two numbers")
    return checked_pair(where, value)


def _all(values: list[Any], *kinds: type) -> bool:
    return all(type(value) in kinds for value in values)


def _response(value: Any, needed: bool) -> tuple[str | None, Pair | None]:
    if value is None or not needed:
        if needed or value is not None:
            raise ValueError("features.response must be there if and only if the model has a response")
        return None, None
    found = record(value, "features.response", ("name", "bounds"))
    name: Any = rebuild(str | None, found["name"], "features.response.name")  # type: ignore[arg-type]
    return name, _pair(found["bounds"], "features.response.bounds")


def _given(levels: Mapping[str, Levels]) -> dict[str, Any]:
    """Levels as a user gives them."""
    return {name: own.given for name, own in levels.items()}


def _arguments(kind: type[Any], value: Any) -> dict[str, Any]:
    """The constructor's arguments: numbers, texts and lists of them; the estimator itself refuses what is wrong."""
    names = tuple(name for name in inspect.signature(kind).parameters if name not in kind._not_written)
    found = record(value, "parameters", names)
    return {name: _argument(found[name], f"parameters.{name}") for name in names}


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


def _agree(estimator: Fitted, plan: Plan, guarantee: Guarantee, check: FitCheck | None, d: int) -> None:
    """Raise a ValueError that names the first two fields found at odds."""
    differ = {
        ("plan.model", "estimator"): plan.model != estimator._name(),
        ("plan.settings", "parameters"): plan.settings != plain(estimator._settings()),
        ("plan.d", "features"): plan.d > d,
        ("plan.epsilon", "guarantee.epsilon"): plan.epsilon != guarantee.epsilon,
        ("plan.delta", "guarantee.delta"): plan.delta != guarantee.delta,
        ("plan.rows_per_person", "parameters.rows_per_person"): plan.rows_per_person != estimator.rows_per_person,
        ("plan.n", "plan.rows_per_person"): plan.n < plan.rows_per_person,
        ("plan.n", "guarantee.mechanisms"): any(r.n_rows > plan.n for r in guarantee.mechanisms)
        or any(release.n_rows != plan.n for release in guarantee.mechanisms if release.batch is None),
        ("fitted.check", "parameters.check"): check is not None and not getattr(estimator, "check", False),
    }
    for (one, other), at_odds in differ.items():
        if at_odds:
            raise ValueError(f"{one} does not agree with {other}")


def _describes_rows(model: Any, state: State) -> None:
    """Refuse parameters that give no row a density: arrays of the wrong shape, weights of zero."""
    width = model.schema_of(state).width
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(model.log_density(numpy_api, state.theta, np.zeros((2, width)), np.zeros(2)))
        fine = found.shape == (2,) and bool((found < math.inf).all())
    except Exception:
        fine = False
    if not fine:
        raise ValueError("fitted.theta does not agree with features and parameters")
