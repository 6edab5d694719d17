"""The files of a command: it reads tables, levels, starting values, models and scalers, and writes models and scalers.

Refusals come before anything is spent. If the file of a fitted model cannot be written, the model is saved elsewhere.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import numpy as np

from dpem._files import check_writable
from dpem._json import parse_json, plain
from dpem.cli.common import Exit, Options, Refused, Session, refusing
from dpem.cli.settings import is_a_setting
from dpem.fitting.scaler import DPStandardScaler
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.serialization import content_of
from dpem.persistence import load_model, save_model
from dpem.tables import Source
from dpem.tables.bounds import similar
from dpem.tables.entries import checked_levels
from dpem.tables.files import read_table

#: An example of a file of levels.
LEVELS = '{"sex": ["f", "m"]}'


@contextmanager
def table(
    session: Session, options: Options, *, scaler: DPStandardScaler | None = None, levels: Any = None
) -> Iterator[Source]:
    """The table that the options name: a file, or with a scheduler a Parquet table that its cluster reads.

    A scaler is applied to it. In columns with levels, texts become the numbers of their levels.
    """
    path, scheduler = options["data"], options.get("scheduler")
    chosen: Options = {name: options.get(name) for name in ("columns", "target", "person")}
    chosen["exclude"] = () if chosen["columns"] and is_a_setting("exclude") else options.get("exclude") or ()
    with ExitStack() as stack:
        if scheduler is not None:
            source = stack.enter_context(_on_cluster(session, path, **chosen, levels=levels, address=scheduler))
        else:
            names = ("sep", "decimal", "thousands", "encoding", "strict")
            text_format = {name: options[name] for name in names if options.get(name) is not None}
            with session.waiting(f"reading {Path(path).name}"), refusing(Exit.DATA):
                source = read_table(path, **chosen, levels=levels, **text_format)
        yield source if scaler is None else _scaled(source, scaler)


def _scaled(source: Source, scaler: DPStandardScaler) -> Source:
    names, scaler_names = feature_names(source), columns_of(scaler)
    if source.n_features != scaler.n_features_in_ or (names and scaler_names and names != scaler_names):
        raise Refused(Exit.DATA, "--scaler was fitted to other columns than those used here.")
    with refusing(Exit.DATA):
        return scaler.transform(source)


@contextmanager
def _on_cluster(
    session: Session,
    path: str,
    columns: Sequence[str] | None,
    target: str | None,
    person: str | None,
    exclude: Sequence[str],
    levels: Any,
    address: str,
) -> Iterator[Source]:
    try:
        import dask.dataframe as dd
        from distributed import Client

        from dpem.tables.dask import DaskSource
    except ImportError:
        raise Refused(Exit.FAILED, "--scheduler needs Dask: pip install 'dpem[dask]'.") from None
    client: Any = None
    with session.waiting(f"connecting to {address}"), suppress(OSError, ValueError):
        gc.collect()  # collecting an earlier failed client while this one starts would deadlock
        client = Client(address, timeout="10s")
    if client is None:
        gc.collect()  # until then the failed client is the default of everything that follows
        raise Refused(Exit.DATA, f"the Dask scheduler at {address} cannot be reached.")
    with client:
        try:
            frame = dd.read_parquet(path)
        except Exception as error:  # other libraries' messages may quote rows
            raise Refused(Exit.DATA, f"{path!r} cannot be read as Parquet ({type(error).__name__}).") from None
        names, others = list(map(str, frame.columns)), [name for name in (target, person) if name is not None]
        chosen = columns or [name for name in names if name not in (*others, *exclude)]
        for name in [*chosen, *exclude, *others]:
            if name not in names:
                raise Refused(Exit.DATA, f"{path!r} has no column {name!r}{similar(name, names)}.")
        with session.waiting("counting rows"):
            try:
                needed = [*chosen, *([] if person is None else [person])]
                declared = checked_levels({name: levels[name] for name in levels or {} if name in chosen})
                response = None if target is None else frame[target]
                source = DaskSource(frame[needed], response, levels=declared, person=person)
            except (RuntimeError, ValueError) as error:
                raise Refused(Exit.DATA, str(error)) from None
        yield source


def feature_names(source: Source) -> list[str] | None:
    names = getattr(source, "feature_names", None)
    return None if names is None else list(map(str, names))


def model(path: str) -> PrivateFit:
    with refusing(Exit.DATA):
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


def levels(value: Any) -> dict[str, list[Any]] | None:
    """Levels by column, from a table in a settings file or from a JSON file."""
    if value is None or isinstance(value, dict):
        return value
    with refusing(Exit.DATA):
        if not Path(value).is_file():
            raise FileNotFoundError(f"--levels must be a JSON file such as {LEVELS}; there is no file {value!r}.")
        try:
            document = parse_json(Path(value).read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise ValueError(f"--levels cannot be read from {value!r}: {error}.") from None
        if not isinstance(document, dict) or not all(isinstance(values, list) for values in document.values()):
            raise ValueError(f"--levels: {value!r} must hold an object such as {LEVELS}.")
    return document


def start(value: str | None, source: Source) -> Options:
    """The argument ``start``: "equal", or from a file a vector, numbers by column, or a fitted model."""
    if value is None or value == "equal":
        return {} if value is None else {"start": value}
    suffix, names, d = Path(value).suffix, feature_names(source), source.n_features
    if suffix not in (".npy", ".csv", ".json"):
        raise Refused(Exit.USAGE, f"--start must be equal or a .npy, .csv or .json file, got {value!r}.")
    with refusing(Exit.DATA):
        numbers = _numbers(existing(value), suffix, names)
        try:
            vector = np.asarray(numbers, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"{value!r} must hold numbers only.") from None
        if vector.size != d or not np.isfinite(vector).all():
            entries = f"it has {vector.size} entries"
            raise ValueError(f"{value!r} must hold {d} finite numbers, one for each column; {entries}.")
    return {"start": vector.reshape(d)}


def _numbers(path: str, suffix: str, names: list[str] | None) -> Any:
    """The numbers in a file; those that are by column in the order of the columns, 0 for others."""
    try:
        if suffix == ".npy":
            with open(path, "rb") as stored:
                return np.lib.format.read_array(stored, allow_pickle=False)
        text = Path(path).read_text(encoding="utf-8")
        content = parse_json(text) if suffix == ".json" else text.replace(",", " ").split()
    except Exception:  # NumPy does not document what a damaged header raises
        reason = "not valid JSON" if suffix == ".json" else "damaged or not an array of numbers"
        raise ValueError(f"{path!r} cannot be read: it is {reason}.") from None
    if isinstance(content, dict) and "format" in content:
        fitted = model(path)
        if not hasattr(fitted, "coef_"):
            raise ValueError(f"{path!r} has no coefficients to start from.")
        if (model_names := columns_of(fitted)) is None or names is None:
            return fitted.coef_
        content = {name: number for name, number in zip(model_names, fitted.coef_.tolist(), strict=True) if number}
    if not isinstance(content, dict):
        return content
    if names is None:
        raise ValueError(f"{path!r} must hold a list of numbers, as the columns have no names.")
    for name in content:
        if name not in names:
            raise ValueError(f"{path!r} names {name!r}, a column that is not used{similar(name, names)}.")
    return [content.get(name, 0.0) for name in names]


def existing(path: str) -> str:
    """The path, if there is a file."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path!r} cannot be read: there is no such file.")
    return path


# --- Outputs ----------------------------------------------------------------------------------------------------------


def check_outputs(written: Sequence[str], read: Sequence[str], force: bool) -> None:
    """Refuse files that cannot be written, exist already, or would replace one another or an input."""
    try:
        places = [os.path.realpath(path) for path in (*written, *read)]
    except ValueError:
        raise click.UsageError("The name of a file must not contain a null character.") from None
    if len(set(places[: len(written)]) - set(places[len(written) :])) < len(written):
        raise click.UsageError("The files to be written must differ from one another and from the files that are read.")
    for path in written:
        if os.path.lexists(path) and not force:
            context = click.get_current_context(silent=True)
            is_out = context is not None and context.params.get("out") == path
            way_out = "choose another file with --out, or replace it with --force" if is_out else "--force replaces it"
            raise Refused(Exit.OUTPUT, f"{path!r} exists already; {way_out}.")
        with refusing(Exit.OUTPUT):
            check_writable(path)


def save(model: PrivateFit, path: str, scaler: DPStandardScaler | None = None) -> None:
    """Write a fitted model. If its file cannot be written, write it to a temporary folder and report the error; if that
    fails too, report the released numbers.
    """
    try:
        save_model(model, path, scaler)
        return
    except (OSError, ValueError) as error:
        reason = str(error).rstrip(".")
    try:
        elsewhere = os.path.join(tempfile.mkdtemp(prefix="dpem-"), "model.json")
        save_model(model, elsewhere, scaler)
        outcome = f"in {elsewhere}: move it to a safe place"
    except (OSError, ValueError):
        try:
            fitted = content_of(model)["fitted"]
        except ValueError:  # even an invalid model must not be lost
            fitted = plain({name: value for name, value in vars(model).items() if name in ("coef_", "mean_", "theta_")})
        outcome = json.dumps({"fitted": fitted, "guarantee": str(model.guarantee_)})
    raise Refused(Exit.OUTPUT, f"{reason}; the model that was paid for is {outcome}.")
