"""The outputs of a command: checked before anything is spent, and saved elsewhere if they cannot be written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import click

from dpem._files import check_writable
from dpem._json import plain
from dpem.cli.common import Exit, Refused, refusing
from dpem.fitting.serialization import content_of
from dpem.persistence import save_model


def check(written: Sequence[str], read: Sequence[str], force: bool) -> None:
    """Refuse files that cannot be written, exist already, or would replace one another or an input."""
    try:
        places = [os.path.realpath(path) for path in (*written, *read)]
    except ValueError:
        raise click.UsageError("A file cannot have such a name.") from None
    if len(set(places[: len(written)]) - set(places[len(written) :])) < len(written):
        raise click.UsageError("A file to be written must be another one than those that are read or written besides.")
    for path in written:
        if os.path.lexists(path) and not force:
            raise Refused(Exit.OUTPUT, f"{path!r} is there already; {_instead(path)}.")
        with refusing(Exit.OUTPUT):
            check_writable(path)


def _instead(path: str) -> str:
    context = click.get_current_context(silent=True)
    options = {} if context is None else context.params
    return "--out names another, --force replaces it" if options.get("out") == path else "--force replaces it"


def save(model: Any, path: str, scaler: Any = None) -> None:
    """Write a model that was paid for; if its file cannot be written, write it elsewhere and say where."""
    try:
        save_model(model, path, scaler)
    except (OSError, ValueError) as error:
        raise Refused(Exit.OUTPUT, f"{str(error).rstrip('.')}; {_rescued(model, scaler)}") from None


def _rescued(model: Any, scaler: Any) -> str:
    try:
        path = os.path.join(tempfile.mkdtemp(prefix="dpem-"), "model.json")
        save_model(model, path, scaler)
    except (OSError, ValueError):
        return f"what was paid for is {json.dumps(_released(model))}."
    return f"what was paid for is in {path}: move it to a safe place."


def _released(model: Any) -> dict[str, Any]:
    """The released numbers and the guarantee, for one line of output."""
    try:
        fitted = content_of(model)["fitted"]
    except ValueError:  # even an invalid model must not be lost
        fitted = plain({name: value for name, value in vars(model).items() if name in ("coef_", "mean_", "theta_")})
    return {"fitted": fitted, "guarantee": str(model.guarantee_)}
