"""The files of a command: it reads tables, levels, models and scalers, and writes models and scalers.

Refusals come before anything is spent. If the file of a fitted model cannot be written, the model is saved elsewhere.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from dpem._files import check_writable
from dpem._json import parse_json, plain
from dpem.cli.common import Exit, Options, Refused, Session, refusals
from dpem.cli.settings import TEXT, is_from_settings
from dpem.fitting.scaler import DPStandardScaler
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.serialization import content_of
from dpem.persistence import load_model, save_model
from dpem.tables import ChunkedSource
from dpem.tables.files import read_table

#: An example of a file of levels.
LEVELS = '{"sex": ["f", "m"]}'


def table(
    session: Session,
    options: Options,
    *,
    scaler: DPStandardScaler | None = None,
    levels: Mapping[str, Sequence[object]] | None = None,
) -> ChunkedSource:
    """The table that the options name, scaled by ``scaler``. In columns with ``levels``, texts become the numbers of
    their levels.
    """
    selection: Options = {name: options.get(name) for name in ("columns", "target", "person")}
    exclude = () if selection["columns"] and is_from_settings("exclude") else options.get("exclude") or ()
    text_format = {name: options[name] for name in TEXT if options.get(name) is not None}
    with session.notice(f"reading {Path(options['data']).name}"), refusals(Exit.DATA):
        source = read_table(options["data"], **selection, exclude=exclude, levels=levels, **text_format)
    if scaler is None:
        return source
    scaler_names = columns_of(scaler)
    if source.n_features != scaler.n_features_in_ or (scaler_names and feature_names(source) != scaler_names):
        raise Refused(Exit.DATA, "--scaler was fitted to other columns: name those with --columns.")
    with refusals(Exit.DATA):
        return scaler.transform(source)


def feature_names(source: ChunkedSource) -> list[str]:
    return list(map(str, source.feature_names or ()))


def model(path: str) -> PrivateFit:
    with refusals(Exit.DATA):
        return load_model(path)


def scaler(path: str | None) -> DPStandardScaler | None:
    fitted = None if path is None else model(path)
    if fitted is not None and not isinstance(fitted, DPStandardScaler):
        raise Refused(Exit.DATA, f"{path!r} is a model, not a scaler: dpem scale writes scalers.")
    return fitted


def columns_of(fitted: PrivateFit) -> list[str] | None:
    """The names of the columns that a model or a scaler was fitted to, or None."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else list(map(str, names))


def levels(declared: str | Mapping[str, Sequence[object]] | None) -> Mapping[str, Sequence[object]] | None:
    """The levels of columns, from a table in a settings file or from a JSON file."""
    if not isinstance(declared, str):
        return declared
    with refusals(Exit.DATA):
        if not Path(declared).is_file():
            raise FileNotFoundError(f"--levels must be a JSON file such as {LEVELS}; there is no file {declared!r}.")
        try:
            document = parse_json(Path(declared).read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise ValueError(f"--levels cannot be read from {declared!r}: {error}.") from None
        if not isinstance(document, dict) or not all(isinstance(values, list) for values in document.values()):
            raise ValueError(f"--levels: {declared!r} must contain a JSON object such as {LEVELS}.")
    return document


def check_outputs(written: Sequence[str], read: Sequence[str], force: bool) -> None:
    """Refuse files that cannot be written, exist already, or would replace one another or an input."""
    try:
        outputs, inputs = ({os.path.realpath(path) for path in paths} for paths in (written, read))
    except ValueError:
        raise click.UsageError("The name of a file must not contain a null character.") from None
    if len(outputs - inputs) < len(written):
        raise click.UsageError("The files to be written must differ from one another and from the files that are read.")
    for path in written:
        if os.path.lexists(path) and not force:
            is_out = click.get_current_context().params.get("out") == path
            way_out = "choose another file with --out, or replace it with --force" if is_out else "--force replaces it"
            raise Refused(Exit.OUTPUT, f"{path!r} exists already; {way_out}.")
        with refusals(Exit.OUTPUT):
            check_writable(path)


def save(model: PrivateFit, path: str, scaler: DPStandardScaler | None = None) -> None:
    """Write a fitted model. If its file cannot be written, write it to a temporary folder and report the error; if that
    fails too, print the released numbers with the error.
    """
    try:
        save_model(model, path, scaler)
        return
    except (OSError, ValueError) as error:
        reason = str(error).rstrip(".")
    try:
        other_path = os.path.join(tempfile.mkdtemp(prefix="dpem-"), "model.json")
        save_model(model, other_path, scaler)
        rescued = f"in {other_path}: move it to a safe place"
    except (OSError, ValueError):
        try:
            fitted = content_of(model)["fitted"]
        except ValueError:  # even an invalid model must not be lost
            fitted = plain({name: value for name, value in vars(model).items() if name in ("coef_", "mean_", "theta_")})
        rescued = json.dumps({"fitted": fitted, "guarantee": str(model.guarantee_)})
    raise Refused(Exit.OUTPUT, f"{reason}; the model that was paid for is {rescued}.")
