"""Fitted models as ``model.json``: a documented, versioned text format. Loading never runs code.

A file contains released and public facts: parameters, plan, guarantee, column names and arguments. So the model's
guarantee covers it (post-processing), and it may be published. Two arguments are left out: ``budget``, which belongs
to its process, and ``random_state``, with which seeded noise could be subtracted.

A file is refused, with the name of the field, unless :func:`save_model` could have written it. The class that it names
must be one of :func:`dpem.registry.classes`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpem import registry
from dpem._files import check_writable, read_text, write_text
from dpem._json import checksum, parse_json, readable, rebuild, record
from dpem._version import __version__
from dpem.fitting.serialization import content_of, errors_read, errors_written, fingerprint
from dpem.privacy import Guarantee, total_price
from dpem.privacy.guarantee import REPLACE_PERSON, REPLACE_ROWS

__all__ = ["check_writable", "fingerprint", "load_model", "save_model"]

FORMAT, FORMAT_VERSION = "dpem-model", 4
#: The largest file that is written or read: about two million coefficients.
LARGEST_FILE = 64 * 2**20

_CONTENT = ("estimator", "parameters", "features", "fitted", "plan", "guarantee")
_KEYS = ("format", "format_version", "dpem_version", "created", *_CONTENT, "uncertainty", "scaler", "checksum")


def save_model(model: BaseEstimator, path: str | os.PathLike[str], scaler: object = None) -> None:
    """Write a fitted estimator to ``path``, as a whole or not at all.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of this package.
    path : str or path
        The file; an existing one is replaced.
    scaler : DPStandardScaler, optional
        For the paper's models: the scaler whose output the model was fitted to. The file then holds the scaler's
        fingerprint, which is ``scaler_`` of the loaded model, and ``dpem predict`` refuses rows that this scaler did
        not scale. Save the scaler too.

    Examples
    --------
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
    guarantee: Guarantee | None = getattr(model, "guarantee_", None)  # of the chosen fit, that of the search
    releases = () if guarantee is None else guarantee.mechanisms
    if hasattr(model, "best_estimator_") or any("candidates" in release.query for release in releases):
        raise ValueError(
            "model must not come from a search: a file states the epsilon of one fit, and a search has several; save "
            "search.best_estimator_ with joblib, or write its report, which states the guarantee of the search."
        )
    if type(model).__name__ not in registry.classes() or not hasattr(model, "_from_content"):
        known = ", ".join(registry.classes())
        raise ValueError(f"model must be one of {known}; got {type(model).__name__}.")
    check_is_fitted(model)
    content, errors = content_of(model), errors_written(model)
    scaler_fingerprint = _scaler_fingerprint(model, scaler)
    try:
        loaded = _model({**content, "uncertainty": errors})
        if fingerprint(loaded) != checksum(content):
            raise ValueError("saving and reloading changed it")
    except ValueError as error:
        raise ValueError(
            f"model cannot be saved, since it was changed after the fit: {str(error).rstrip('.')}."
        ) from None
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dpem_version": __version__,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{key: content[key] for key in _CONTENT},
        "uncertainty": errors,
        "scaler": scaler_fingerprint,
    }
    text = readable({**document, "checksum": checksum(document)}) + "\n"
    if len(text) > LARGEST_FILE:
        raise ValueError(f"model must take at most {LARGEST_FILE:,} bytes in a file; it takes {len(text):,}.")
    write_text(path, text)


def load_model(path: str | os.PathLike[str]) -> BaseEstimator:
    """The fitted estimator in the file at ``path``; its predictions equal those of the saved one, bit for bit.

    A file that was changed, or has another version, is refused with a ValueError. The arguments ``budget`` and
    ``random_state`` of the loaded estimator are None. For the paper's models, ``scaler_`` is the fingerprint of the
    scaler that must scale rows first, or None.
    """
    name = os.fspath(path)
    try:
        document = _checked(parse_json(read_text(path, LARGEST_FILE)))
        model = _model(document)
        if (scaler := rebuild(str | None, document["scaler"], "scaler")) is not None:
            if re.fullmatch("sha256:[0-9a-f]{64}", scaler) is None:
                raise ValueError("scaler must be null, or sha256: and 64 hexadecimal digits")
            if not getattr(model, "_takes_scaler", False):
                raise ValueError("scaler must be null for this estimator")
            model.scaler_ = scaler
        return model
    except ValueError as error:
        raise ValueError(f"{name!r} cannot be loaded: {str(error).rstrip('.')}.") from None
    except RecursionError:
        raise ValueError(f"{name!r} cannot be loaded: it is nested too deeply.") from None


def _scaler_fingerprint(model: BaseEstimator, scaler: BaseEstimator) -> str | None:
    """The fingerprint of ``scaler`` or, without it, that in the file from which the model was loaded."""
    earlier: str | None = getattr(model, "scaler_", None)
    if scaler is None:
        return earlier
    if not getattr(model, "_takes_scaler", False) or not hasattr(scaler, "inverse_transform"):
        raise ValueError("scaler must be the DPStandardScaler whose output the model was fitted to, or None.")
    check_is_fitted(scaler)
    names, scaler_names = (getattr(fitted, "feature_names_in_", None) for fitted in (model, scaler))
    renamed = names is not None and scaler_names is not None and list(names) != list(scaler_names)
    if model.n_features_in_ != scaler.n_features_in_ or renamed:
        raise ValueError("scaler must be fitted to the columns that the model was fitted to.")
    new = fingerprint(scaler)
    if earlier not in (None, new):
        raise ValueError("scaler must be the one that the model was fitted with; the model's file names another.")
    return new


def _checked(document: object) -> dict[str, Any]:
    """The document, after its format, version and checksum have been checked."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'it is not a model file: its "format" is not "{FORMAT}"')
    version = document.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise ValueError("format_version must be a whole number")
    if version != FORMAT_VERSION:
        advice = "update dpem" if version > FORMAT_VERSION else "save the model again with this dpem"
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


def _model(content: Mapping[str, object]) -> BaseEstimator:
    """The estimator that the content describes; a ValueError names a wrong field."""
    name = rebuild(str, content["estimator"], "estimator")
    if name not in registry.classes():
        raise ValueError(f"estimator must be one of {', '.join(registry.classes())}")
    guarantee = rebuild(Guarantee, content["guarantee"], "guarantee")
    _check_guarantee(guarantee)
    model = registry.estimator(name)._from_content(content, guarantee)
    if (model.epsilon, model.delta) != (guarantee.epsilon, guarantee.delta):
        raise ValueError("parameters and guarantee state different epsilon or delta")
    if guarantee.rows_per_person != model.rows_per_person:
        raise ValueError("guarantee.rows_per_person does not agree with parameters.rows_per_person")
    if content["uncertainty"] is not None:
        model._uncertainty_ = errors_read(content["uncertainty"])
    return model


def _check_guarantee(guarantee: Guarantee) -> None:
    """Refuse a guarantee that states less than its releases cost.

    *Lemma.* None passes. *Proof.* The total price of the releases must be at most the stated price, which is converted
    to (ε, δ) as at the charge; a file with a smaller δ than that is refused. ∎
    """
    if guarantee.neighbours not in (REPLACE_ROWS, REPLACE_PERSON):
        raise ValueError(f"guarantee.neighbours must be {REPLACE_ROWS} or {REPLACE_PERSON}")
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
            "guarantee.mechanisms cost more than guarantee.price, or guarantee.price more than guarantee.epsilon and "
            "guarantee.delta"
        )
