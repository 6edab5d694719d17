"""The columns of general models in files: bounds, levels, formulas, and the models that are read back with them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem._json import rebuild, record
from dpem.fitting.formula import CompiledFormula, compiled
from dpem.fitting.model import Model
from dpem.fitting.plan import Plan
from dpem.fitting.serialization import MOST_COLUMNS, E, check_agreement, read_arguments, read_state
from dpem.fitting.step import State
from dpem.privacy import Guarantee
from dpem.tables.bounds import Pair, checked_pair
from dpem.tables.entries import OTHER, Levels, checked_levels

if TYPE_CHECKING:
    from dpem.fitting.results import Fitted, UnitModel


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
    levels = _user_levels({name: formula.levels[name] for name in formula.raw if name in formula.levels})
    with_levels = [{"name": name, "levels": values} for name, values in levels.items()]
    with_bounds = [{"name": name, "bounds": list(pair)} for name, pair in formula.bounds.items()]
    return {"raw": with_levels + with_bounds}


def _column(estimator: Fitted, name: str) -> dict[str, Any]:
    levels: Levels | None = estimator.levels_.get(name)
    if levels is None:
        return {"name": name, "bounds": list(estimator.bounds_[name])}
    return {"name": name, "levels": levels.given}


def _user_levels(levels: Mapping[str, Levels]) -> dict[str, Any]:
    """Levels in the form in which a user gives them."""
    return {name: column.given for name, column in levels.items()}


def read_columns(kind: type[E], content: Mapping[str, Any], guarantee: Guarantee) -> E:
    """The fitted general model that the content describes, or a ValueError that names the field."""
    parameters = content["parameters"]
    formula = parameters.get("formula") if isinstance(parameters, dict) else None
    keys = ("named", "columns", "response", *(() if formula is None else ("raw",)))
    features = record(content["features"], "features", keys)
    bounds, levels, names = _columns(features["columns"])
    y_name, y_bounds = _response(features["response"], kind._needs_y)
    declared = {"bounds": bounds or None, "levels": _user_levels(levels) or None, "y_bounds": y_bounds}
    raw: CompiledFormula | None = None
    if formula is not None:
        raw_bounds, raw_levels, _ = _columns(features["raw"])
        raw = compiled(formula, raw_bounds, _user_levels(raw_levels), needs_y=kind._needs_y)
        declared = {"bounds": dict(raw.bounds), "levels": _user_levels(raw.levels)}
        if raw.names != names:
            raise ValueError("features.columns does not agree with parameters.formula")
    arguments = inspect.signature(kind).parameters
    if levels and "levels" not in arguments:
        raise ValueError("features.columns must have no levels for this estimator")
    of_columns = {name: value for name, value in declared.items() if name in arguments}
    estimator = kind(**read_arguments(kind, parameters), **of_columns)
    estimator._check_arguments()
    schema = estimator._coordinates(names, levels, bounds, y_bounds)
    model = estimator._model(schema)
    state, plan = read_state(kind, content["fitted"]), Plan.from_dict(content["plan"])
    if state.chosen is not None and not (state.chosen < schema.width).all():
        raise ValueError(f"fitted.chosen must name coordinates from 0 to {schema.width - 1}, each once")
    check_agreement(estimator, plan, guarantee, state.check, len(names))
    _check_density(model, state)
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


def _columns(value: Any) -> tuple[dict[str, Pair], dict[str, Levels], tuple[str, ...]]:
    """The bounds and the levels of a file's columns, by name, and all their names in order."""
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
            bounds[name] = _pair(entry["bounds"], f"{where}.bounds")
    return bounds, levels, tuple(column["name"] for column in value)


def _levels(value: Any, where: str) -> Levels:
    numbers = [level for level in value if level != OTHER] if isinstance(value, list) else []
    if not isinstance(value, list) or not (_all(value, str) or _all(numbers, int, float)):
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
    entry = record(value, "features.response", ("name", "bounds"))
    name: Any = rebuild(str | None, entry["name"], "features.response.name")  # type: ignore[arg-type]
    return name, _pair(entry["bounds"], "features.response.bounds")


def _check_density(model: Model, state: State) -> None:
    """Refuse parameters without a log-density: arrays of the wrong shape, weights of zero."""
    width = model.schema_of(state).width
    try:
        with np.errstate(all="ignore"):
            density = np.asarray(model.log_density(numpy_api, state.theta, np.zeros((2, width)), np.zeros(2)))
        valid = density.shape == (2,) and bool((density < math.inf).all())
    except Exception:
        valid = False
    if not valid:
        raise ValueError("fitted.theta does not agree with features and parameters")
