"""Fitted models as ``model.json``: a documented, versioned text format. Loading never runs code.

What is written is what was released: parameters, plan, guarantee, column names and the public arguments. So a file is
covered by the model's own guarantee (post-processing) and may be published with it. Two arguments are left out: the
``budget``, which lives in its process, and ``random_state``, with which seeded noise could be subtracted.

A
file is refused, in one sentence that names the field, unless it is exactly what :func:`save_model` writes; the class it
names must be one of :func:`dpem.registry.classes`.
"""

from __future__ import annotations

import math
import os
import re
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
#: Files longer than this are neither written nor read: room for about two million coefficients.
LARGEST_FILE = 64 * 2**20

_CONTENT = ("estimator", "parameters", "features", "fitted", "plan", "guarantee")
_KEYS = ("format", "format_version", "dpem_version", "created", *_CONTENT, "uncertainty", "scaler", "checksum")


def save_model(model: BaseEstimator, path: str | os.PathLike[str], scaler: Any = None) -> None:
    """Write a fitted estimator to ``path``. The file appears whole or not at all.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of this package.
    path : str or path
        The file; it is replaced if it is there.
    scaler : DPStandardScaler, optional
        For the paper's models: the scaler whose output the model was fitted to. The file then holds the scaler's
        fingerprint (not the scaler: save that too), which is ``scaler_`` of the loaded model, and ``dpem predict``
        refuses rows that were not scaled by it.

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
    if hasattr(model, "best_estimator_") or _chosen_by_search(model):
        raise ValueError(
            "what a search chose is not saved: a file states the epsilon of one fit, and the choice looked at several; "
            "write_report(search.best_estimator_, path) states the whole, and joblib keeps it."
        )
    if type(model).__name__ not in registry.classes() or not hasattr(model, "_from_content"):
        known = ", ".join(registry.classes())
        raise ValueError(f"a model must be one of {known}, got {type(model).__name__}.")
    check_is_fitted(model)
    content, errors = content_of(model), errors_written(model)
    behind = _behind(model, scaler)
    try:
        again = _model({**content, "uncertainty": errors})
        if fingerprint(again) != checksum(content):
            raise ValueError("its parts do not come back as they are")
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
        "uncertainty": errors,
        "scaler": behind,
    }
    text = readable({**document, "checksum": checksum(document)}) + "\n"
    if len(text) > LARGEST_FILE:
        raise ValueError(f"this model takes {len(text):,} bytes; a file may have at most {LARGEST_FILE:,}.")
    write_text(path, text)


def load_model(path: str | os.PathLike[str]) -> BaseEstimator:
    """The fitted estimator in the file at ``path``: it predicts, bit for bit, what the saved one did.

    Anything but an unchanged file of a known version is a ValueError of one sentence. The arguments ``budget`` and
    ``random_state`` are None in the loaded estimator. ``scaler_`` of one of the paper's models is the
    :func:`fingerprint` of the scaler that its rows must pass first, or None.
    """
    name = os.fspath(path)
    try:
        document = _checked(parse_json(read_text(path, LARGEST_FILE)))
        model, behind = _model(document), _fingerprint_in(document["scaler"])
        if behind is not None:
            if not getattr(model, "_takes_scaler", False):
                raise ValueError("scaler must be null for this estimator")
            model.scaler_ = behind
        return model
    except ValueError as error:
        raise ValueError(f"{name!r} cannot be loaded: {str(error).rstrip('.')}.") from None
    except RecursionError:
        raise ValueError(f"{name!r} cannot be loaded: it is nested too deeply.") from None


def _chosen_by_search(model: BaseEstimator) -> bool:
    """Whether the statement is about more than this fit: a search gives the fit that it chose its own."""
    guarantee = getattr(model, "guarantee_", None)
    return guarantee is not None and any("candidates" in release.query for release in guarantee.mechanisms)


def _behind(model: BaseEstimator, scaler: BaseEstimator) -> str | None:
    """The fingerprint of the scaler that a model was fitted behind: the one given, or the one its file named."""
    known: str | None = getattr(model, "scaler_", None)
    if scaler is None:
        return known
    if not getattr(model, "_takes_scaler", False) or not hasattr(scaler, "inverse_transform"):
        raise ValueError("scaler must be the DPStandardScaler whose output the model was fitted to, or None.")
    check_is_fitted(scaler)
    ours, theirs = (getattr(one, "feature_names_in_", None) for one in (model, scaler))
    renamed = ours is not None and theirs is not None and list(ours) != list(theirs)
    if model.n_features_in_ != scaler.n_features_in_ or renamed:
        raise ValueError("scaler must be fitted to the columns that the model was fitted to.")
    given = fingerprint(scaler)
    if known not in (None, given):
        raise ValueError("scaler must be the one that the model was fitted behind; its file names another.")
    return given


def _checked(document: Any) -> dict[str, Any]:
    """A document whose format, version and checksum are right."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'it is not a model file: "format" is not "{FORMAT}"')
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


def _model(content: dict[str, Any]) -> BaseEstimator:
    """The estimator that the content describes, or a ValueError that names the field."""
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
    """*Lemma.* A file cannot state less than its releases cost. *Proof.* Their total price is at most the stated price,
    which is converted here as it was when it was charged, and a δ above the stated one is refused. ∎
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
            "guarantee.mechanisms cost more than guarantee.price, or that more than guarantee.epsilon and "
            "guarantee.delta state"
        )


def _fingerprint_in(value: Any) -> str | None:
    """The fingerprint of a scaler in a file, or None."""
    if value is None:
        return None
    found = rebuild(str, value, "scaler")
    if re.fullmatch("sha256:[0-9a-f]{64}", found) is None:
        raise ValueError("scaler must be null, or sha256: and 64 hexadecimal digits")
    return found
