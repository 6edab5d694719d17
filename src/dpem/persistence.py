"""Fitted models as ``model.json``: a documented, versioned text format. Loading never runs code.

What is written is what was released: coefficients, plan, guarantee, column names and the public arguments. So a file is
covered by the model's own guarantee (post-processing) and may be published with it. Two arguments are left out: the
``budget``, which lives in its process, and ``random_state``, with which seeded noise could be subtracted.

A file is refused, in one sentence that names the field, unless it is exactly what :func:`save_model` writes: see
:mod:`dpem._json` for the reading of records and :mod:`dpem.consistency` for what the parts must
say of each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem._files import check_writable, read_text, write_text
from dpem._json import checksum, parse_json, readable, rebuild, record, without_infinity
from dpem._version import __version__
from dpem.consistency import check_guarantee, check_model, check_scaler, fingerprint_in
from dpem.estimators.scaler import DPStandardScaler
from dpem.paper.estimators.base import PrivateEM, em_steps
from dpem.paper.estimators.missing_regression import DPMissingRegression
from dpem.paper.estimators.symmetric_mixture import DPSymmetricMixture
from dpem.paper.estimators.symmetric_regression import DPSymmetricRegression
from dpem.paper.planning import Plan
from dpem.privacy import Guarantee
from dpem.query import FloatArray

__all__ = ["check_writable", "fingerprint", "load_model", "save_model"]

Estimator = DPSymmetricMixture | DPSymmetricRegression | DPMissingRegression | DPStandardScaler

FORMAT, FORMAT_VERSION = "dpem-model", 1
#: Files longer than this are neither written nor read: room for about two million coefficients.
LARGEST_FILE = 64 * 2**20
#: A sparse file is short however many columns it claims; this is the most that are believed.
MOST_COLUMNS = 10**8

_KINDS: dict[str, type[Estimator]] = {
    kind.__name__: kind for kind in (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression, DPStandardScaler)
}
#: What is kept of the constructor's arguments, with the type each has in a file; start and bounds have their own.
_ARGUMENTS: dict[str, Any] = {
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
    "rows_per_person": int,
}
_CONTENT = ("estimator", "parameters", "features", "fitted", "plan", "guarantee")
_KEYS = ("format", "format_version", "dpem_version", "created", *_CONTENT, "scaler", "checksum")


def save_model(model: Estimator, path: str | os.PathLike[str], scaler: DPStandardScaler | None = None) -> None:
    """Write a fitted estimator to ``path``. The file appears whole or not at all.

    A model that was fitted to what a ``scaler`` returned is saved with it. The file then holds the scaler's fingerprint
    (not the scaler: save that too), which is ``scaler_`` of the loaded model, and ``dpem predict`` refuses rows that
    were not scaled by it.

    >>> import tempfile
    >>> from dpem import DPStandardScaler
    >>> X = np.random.default_rng(0).normal(50, 10, size=(5000, 3))
    >>> scaler = DPStandardScaler(epsilon=1.0, delta=1e-5, bounds=(0, 100)).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(scaler, f"{folder}/scaler.json")
    ...     loaded = load_model(f"{folder}/scaler.json")
    >>> bool((loaded.mean_ == scaler.mean_).all()), loaded.guarantee_ == scaler.guarantee_
    (True, True)
    """
    content, behind = _content(model), _behind(model, scaler)
    try:
        _model(content)
    except ValueError as error:
        raise ValueError(
            f"this model cannot be saved, because it is not as fit left it: {str(error).rstrip('.')}."
        ) from None
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dpem_version": __version__,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{key: content[key] for key in _CONTENT},
        "scaler": behind,
    }
    text = readable({**document, "checksum": checksum(document)}) + "\n"
    if len(text) > LARGEST_FILE:
        raise ValueError(f"this model takes {len(text):,} bytes; a file may have at most {LARGEST_FILE:,}.")
    write_text(path, text)


def load_model(path: str | os.PathLike[str]) -> Estimator:
    """The fitted estimator in the file at ``path``: it predicts, bit for bit, what the saved one did.

    Anything but an unchanged file of a known version is a ValueError of one sentence. The arguments ``budget`` and
    ``random_state`` are None in the loaded estimator. ``scaler_`` of a model is the :func:`fingerprint` of the scaler
    that its rows must pass first, or None.
    """
    name = os.fspath(path)
    try:
        document = _checked(parse_json(read_text(path, LARGEST_FILE)))
        model, behind = _model(document), fingerprint_in(document["scaler"])
        if not isinstance(model, DPStandardScaler):
            model.scaler_ = behind
        elif behind is not None:
            raise ValueError("scaler must be null for a scaler")
        return model
    except ValueError as error:
        raise ValueError(f"{name!r} cannot be loaded: {str(error).rstrip('.')}.") from None
    except RecursionError:
        raise ValueError(f"{name!r} cannot be loaded: it is nested too deeply.") from None


def fingerprint(model: Estimator) -> str:
    """SHA-256 of everything a model publishes: the same for a model and for what was loaded from its file."""
    return checksum(_content(model))


def _behind(model: Estimator, scaler: DPStandardScaler | None) -> str | None:
    """The fingerprint of the scaler that a model was fitted behind: the one given, or the one its file named."""
    known: str | None = getattr(model, "scaler_", None)
    if scaler is None:
        return known
    check_scaler(model, scaler)
    given = fingerprint(scaler)
    if known not in (None, given):
        raise ValueError("scaler must be the one that the model was fitted behind; its file names another.")
    return given


def _content(model: Estimator) -> dict[str, Any]:
    if type(model) not in _KINDS.values():
        raise ValueError(f"a model must be one of {', '.join(_KINDS)}, got {type(model).__name__}.")
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    common = {
        "estimator": type(model).__name__,
        "parameters": _plain_arguments(model),
        "features": {"count": model.n_features_in_, "names": None if names is None else list(names)},
        "guarantee": without_infinity(asdict(model.guarantee_)),
    }
    if isinstance(model, DPStandardScaler):
        return {**common, "fitted": {"mean": _plain(model.mean_), "scale": _plain(model.scale_)}, "plan": None}
    fitted = {"support": model.support_.tolist(), "values": _plain(model.coef_[model.support_]), "sigma": model.sigma_}
    if np.count_nonzero(model.coef_) > np.count_nonzero(model.coef_[model.support_]):
        raise ValueError("this model cannot be saved: coef_ is not zero outside support_.")
    return {**common, "fitted": fitted, "plan": model.plan_.to_dict()}


def _plain_arguments(model: Estimator) -> dict[str, Any]:
    if isinstance(model, DPStandardScaler):
        bounds = [_plain(side) for side in model.bounds]
        privacy = {"epsilon": without_infinity(float(model.epsilon)), "delta": float(model.delta)}  # type: ignore[arg-type]
        return {**privacy, "rows_per_person": int(model.rows_per_person), "bounds": bounds}
    plain: dict[str, Any] = {}
    for name in _ARGUMENTS:
        value = getattr(model, name)
        whole = name in ("sparsity", "max_sparsity", "n_iter", "rows_per_person")
        plain[name] = value if value is None or isinstance(value, str) else int(value) if whole else float(value)
    start = model.start
    if start is not None and not isinstance(start, str):
        vector = np.array(start, dtype=float)
        places = np.flatnonzero(vector)
        start = {"support": places.tolist(), "values": vector[places].tolist()}
    return without_infinity({**plain, "start": start})


def _checked(document: Any) -> dict[str, Any]:
    """A document whose format, version and checksum are right."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'it is not a model file: "format" is not "{FORMAT}"')
    version = document.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise ValueError("format_version must be a whole number")
    if version != FORMAT_VERSION:
        advice = "update dpem" if version > FORMAT_VERSION else "there was never such a version, save the model again"
        raise ValueError(f"it has format version {version}, and dpem {__version__} reads {FORMAT_VERSION}; {advice}")
    record(document, "the file", _KEYS)
    if document["checksum"] != checksum({key: value for key, value in document.items() if key != "checksum"}):
        raise ValueError("the file was changed after it was written (its checksum does not match)")
    rebuild(str, document["dpem_version"], "dpem_version")
    try:
        datetime.strptime(rebuild(str, document["created"], "created"), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise ValueError("created must be a time such as 2030-01-31T12:00:00Z") from None
    return document


def _model(content: dict[str, Any]) -> Estimator:
    """The estimator that the content describes, or a ValueError that names the field."""
    name = rebuild(str, content["estimator"], "estimator")
    if name not in _KINDS:
        raise ValueError(f"estimator must be one of {', '.join(_KINDS)}")
    kind = _KINDS[name]
    features = record(content["features"], "features", ("count", "names"))
    d = rebuild(int, features["count"], "features.count")
    if d > MOST_COLUMNS:
        raise ValueError(f"features.count must be at most {MOST_COLUMNS:,}")
    guarantee = rebuild(Guarantee, content["guarantee"], "guarantee")
    check_guarantee(guarantee)
    build: Callable[..., Estimator] = _scaler if kind is DPStandardScaler else _estimator
    model = build(kind, content, d, guarantee)
    model.n_features_in_ = d
    if features["names"] is not None:
        names = rebuild(tuple[str, ...], features["names"], "features.names")
        if len(names) != d:
            raise ValueError(f"features.names must have {d} entries, it has {len(names)}")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.releases_, model.guarantee_ = guarantee.mechanisms, guarantee
    if (model.epsilon, model.delta) != (guarantee.epsilon, guarantee.delta):
        raise ValueError("parameters and guarantee state different epsilon or delta")
    if guarantee.rows_per_person != model.rows_per_person:
        raise ValueError("guarantee.rows_per_person does not agree with parameters.rows_per_person")
    return model


def _estimator(kind: type[PrivateEM], content: dict[str, Any], d: int, guarantee: Guarantee) -> PrivateEM:
    plain = record(content["parameters"], "parameters", (*_ARGUMENTS, "start"))
    arguments = {name: rebuild(hint, plain[name], f"parameters.{name}") for name, hint in _ARGUMENTS.items()}
    start = plain["start"]
    if start is not None and start != "equal":
        start = _sparse(start, "parameters.start", d)
    model = kind(**arguments, start=start)
    plan = Plan.from_dict(content["plan"])
    fitted = record(content["fitted"], "fitted", ("support", "values", "sigma"))
    model.coef_ = _sparse({key: fitted[key] for key in ("support", "values")}, "fitted", d)
    model.support_ = np.array(fitted["support"], dtype=np.intp)
    model.sigma_ = rebuild(float, fitted["sigma"], "fitted.sigma")
    model.plan_, model.n_iter_ = plan, sum(map(em_steps, plan.steps))
    check_model(model, d, guarantee)
    return model


def _scaler(kind: type[DPStandardScaler], content: dict[str, Any], d: int, guarantee: Guarantee) -> DPStandardScaler:
    plain = record(content["parameters"], "parameters", ("epsilon", "delta", "rows_per_person", "bounds"))
    rows_per_person = rebuild(int, plain["rows_per_person"], "parameters.rows_per_person")
    epsilon, delta = (rebuild(float, plain[name], f"parameters.{name}") for name in ("epsilon", "delta"))
    if not isinstance(plain["bounds"], list) or len(plain["bounds"]) != 2:
        raise ValueError("parameters.bounds must be a list of two")
    low, high = (
        _vector(side, "parameters.bounds", d) if isinstance(side, list) else rebuild(float, side, "parameters.bounds")
        for side in plain["bounds"]
    )
    if content["plan"] is not None:
        raise ValueError("plan must be null for a scaler")
    fitted = record(content["fitted"], "fitted", ("mean", "scale"))
    scaler = kind(epsilon=epsilon, delta=delta, bounds=(low, high), rows_per_person=rows_per_person)
    scaler._bounds(d)
    scaler.mean_, scaler.scale_ = (_vector(fitted[key], f"fitted.{key}", d) for key in ("mean", "scale"))
    if not (scaler.scale_ > 0).all():
        raise ValueError("fitted.scale must be positive")
    return scaler


def _plain(values: Any) -> Any:
    """A number or a vector as JSON has it; floats keep every bit."""
    return np.asarray(values, dtype=float).tolist()


def _vector(value: Any, where: str, length: int) -> FloatArray:
    if not isinstance(value, list) or len(value) != length:
        raise ValueError(f"{where} must be a list of {length} numbers")
    if any(type(entry) not in (int, float) for entry in value):
        raise ValueError(f"{where} must hold numbers only")
    return np.array(value, dtype=float)


def _sparse(value: Any, where: str, d: int) -> FloatArray:
    """A vector of length d that is zero but for the values at its support."""
    found = record(value, where, ("support", "values"))
    support = found["support"]
    if not isinstance(support, list) or any(type(place) is not int for place in support):
        raise ValueError(f"{where}.support must be a list of whole numbers")
    if any(not 0 <= place < d for place in support) or any(a >= b for a, b in pairwise(support)):
        raise ValueError(f"{where}.support must increase and name columns from 0 to {d - 1}")
    vector = np.zeros(d)
    vector[support] = _vector(found["values"], f"{where}.values", len(support))
    return vector
