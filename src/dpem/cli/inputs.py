"""What a command reads: a table of rows, a start, a model. Refusals come before anything is spent."""

from __future__ import annotations

import difflib
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dpem._json import parse_json
from dpem.cli.common import Exit, Refused, Session, refusing
from dpem.cli.settings import is_a_setting
from dpem.fitting.scaler import DPStandardScaler
from dpem.persistence import load_model
from dpem.query import FloatArray
from dpem.tables import Source
from dpem.tables.entries import checked_levels
from dpem.tables.files import read_table


@contextmanager
def table(
    session: Session, asked: Mapping[str, Any], *, scaler: DPStandardScaler | None = None, levels: Any = None
) -> Iterator[Any]:
    """The rows that were asked for: of a file, or, with a scheduler, of a Parquet table that its cluster reads; scaled,
    with a scaler. Texts of columns with levels are read as places among them.
    """
    path, scheduler = asked["data"], asked.get("scheduler")
    chosen: dict[str, Any] = {name: asked.get(name) for name in ("columns", "target", "person")}
    chosen["exclude"] = () if chosen["columns"] and is_a_setting("exclude") else asked.get("exclude") or ()
    with ExitStack() as open_until_the_end:
        if scheduler is not None:
            source = open_until_the_end.enter_context(
                _on_cluster(session, path, **chosen, levels=levels, address=scheduler)
            )
        else:
            given = ("sep", "decimal", "thousands", "encoding", "strict")
            looks = {name: asked[name] for name in given if asked.get(name) is not None}
            with session.waiting(f"reading {Path(path).name}"), refusing(Exit.DATA):
                source = read_table(path, **chosen, levels=levels, **looks)
        yield source if scaler is None else _scaled(source, scaler)


def _scaled(source: Any, scaler: DPStandardScaler) -> Any:
    names, theirs = feature_names(source), columns_of(scaler)
    if source.n_features != scaler.n_features_in_ or (names and theirs and names != theirs):
        raise Refused(Exit.DATA, "--scaler was fitted to other columns than those that are used here.")
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
    try:
        with session.waiting(f"connecting to {address}"):
            gc.collect()  # a client that failed before, collected while this one starts, would wait for it for ever
            client = Client(address, timeout="10s")
    except (OSError, ValueError):
        raise Refused(Exit.DATA, f"the Dask scheduler at {address} cannot be reached.") from None
    with client:
        try:
            frame = dd.read_parquet(path)
        except Exception as error:  # what others say may quote anything
            raise Refused(Exit.DATA, f"{path!r} cannot be read as Parquet ({type(error).__name__}).") from None
        names = list(map(str, frame.columns))
        unused = {target, person, *exclude}
        chosen = [name for name in names if name not in unused] if columns is None else list(columns)
        for name in [*chosen, *exclude, *(one for one in (target, person) if one is not None)]:
            if name not in names:
                raise Refused(Exit.DATA, f"{path!r} has no column {name!r}{nearest(name, names)}.")
        with session.waiting("counting rows"):
            try:
                kept = [*chosen, *([] if person is None else [person])]
                declared = checked_levels({name: own for name, own in (levels or {}).items() if name in chosen})
                response = None if target is None else frame[target]
                source = DaskSource(frame[kept], response, levels=declared, person=person)
            except (RuntimeError, ValueError) as error:
                raise Refused(Exit.DATA, str(error)) from None
        yield source


def nearest(name: str, names: Sequence[str]) -> str:
    """A suggestion after a name that is not there, if another one resembles it.

    >>> nearest("hieght", ["age", "height"])
    "; did you mean 'height'?"
    """
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def feature_names(source: Any) -> list[str] | None:
    """The columns' names, if they have any."""
    names = getattr(source, "feature_names", None)
    return None if names is None else list(map(str, names))


def model(path: str) -> Any:
    """The fitted model in a file."""
    with refusing(Exit.DATA):
        return load_model(path)


def scaler(path: str | None) -> DPStandardScaler | None:
    """The fitted scaler in a file."""
    found = None if path is None else model(path)
    if found is not None and not isinstance(found, DPStandardScaler):
        raise Refused(Exit.DATA, f"{path!r} holds a model, not a scaler as dpem scale writes it.")
    return found


def columns_of(fitted: Any) -> list[str] | None:
    """The names of the columns that a model or a scaler was fitted to, if they have any."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else list(map(str, names))


#: What a file of levels looks like.
LEVELS = '{"sex": ["f", "m"]}'


def levels(value: Any) -> dict[str, list[Any]] | None:
    """Levels by column, from a table of a settings file, or a JSON file of one."""
    if value is None or isinstance(value, dict):
        return value
    with refusing(Exit.DATA):
        if not Path(value).is_file():
            raise FileNotFoundError(f"--levels must be a JSON file such as {LEVELS}; there is no file {value!r}.")
        try:
            found = parse_json(Path(value).read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise ValueError(f"--levels cannot be read from {value!r}: {error}.") from None
        if not isinstance(found, dict) or not all(isinstance(own, list) for own in found.values()):
            raise ValueError(f"--levels: {value!r} must hold an object such as {LEVELS}.")
    return found


def start(value: str | None, source: Source) -> dict[str, Any]:
    """Where EM begins, as an argument, for models that begin anywhere."""
    return {} if value is None else {"start": _start(value, source)}


def _start(value: str, source: Source) -> FloatArray | str:
    """From "equal" or a file: a vector, an object of columns and numbers, or a fitted model."""
    if value == "equal":
        return value
    names, suffix = feature_names(source), Path(value).suffix
    with refusing(Exit.DATA):
        if suffix == ".npy":
            return _vector(_array(file(value)), value, source.n_features)
        if suffix == ".json":
            return _of_json(value, names, source.n_features)
        if suffix == ".csv":
            entries = Path(file(value)).read_text(encoding="utf-8").replace(",", " ").split()
            return _vector(entries, value, source.n_features)
    raise Refused(Exit.USAGE, f"--start must be equal or a .npy, .csv or .json file, got {value!r}.")


def _of_json(path: str, names: list[str] | None, d: int) -> FloatArray:
    try:
        found = parse_json(Path(file(path)).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path!r} cannot be read: {error}.") from None
    if isinstance(found, list):
        return _vector(found, path, d)
    if isinstance(found, dict) and "format" in found:
        fitted = model(path)
        if not hasattr(fitted, "coef_"):
            raise ValueError(f"{path!r} holds no coefficients to start from.")
        theirs = getattr(fitted, "feature_names_in_", None)
        if theirs is None or names is None:
            return _vector(fitted.coef_, path, d)
        found = dict(zip(map(str, theirs), fitted.coef_.tolist(), strict=True))
        found = {name: number for name, number in found.items() if number}
    if not isinstance(found, dict) or names is None:
        raise ValueError(
            f"{path!r} must hold a list of {d} numbers" + (", as the rows have no names." if names is None else ".")
        )
    for name in found:
        if name not in names:
            raise ValueError(f"{path!r} names a column that is not used, {name!r}{nearest(name, names)}.")
    return _vector([found.get(name, 0.0) for name in names], path, d)


def _vector(values: Any, path: str, d: int) -> FloatArray:
    try:
        vector = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{path!r} must hold numbers only.") from None
    if vector.size != d or not np.isfinite(vector).all():
        raise ValueError(f"{path!r} must hold {d} finite numbers, one for each column; it has {vector.size} entries.")
    return vector.reshape(d)


def _array(path: str) -> Any:
    try:
        with open(path, "rb") as stored:
            return np.lib.format.read_array(stored, allow_pickle=False)
    except Exception:  # what a damaged header makes numpy raise is not documented
        raise ValueError(f"{path!r} cannot be read: it is damaged or not an array of numbers.") from None


def file(path: str) -> str:
    """The path, if there is a file."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path!r} cannot be read: there is no such file.")
    return path
