"""``dpem.toml``: public facts about a table, from which every command takes the defaults of its options."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from dpem import registry
from dpem.cli.common import Exit, Options, Refused, Session, refusals

if TYPE_CHECKING:
    from dpem.fitting.sequence import PrivateFit

NAME = "dpem.toml"
TEXT = ("sep", "decimal", "thousands", "encoding")
TABLE = ("data", "target", "columns", "exclude", "person", "bounds", *TEXT, "epsilon", "delta", "rows_per_person")
#: The keys of a settings file, and the names of their options.
KEYS = {name: name for name in (*TABLE, "y_bounds", "levels", "dataset", "purpose", "out", "report")} | {
    "ledger": "url"
}
#: The settings that commands other than fit and plan use.
COMMAND_SETTINGS = {
    "ledger": ("url", "dataset"),
    "scale": (*TABLE, "url", "dataset", "purpose"),
    "predict": TEXT,
    "report": ("url", "dataset", "purpose"),
    "doctor": ("url",),
}
LEDGER_COMMANDS = ("open", "show", "history", "explain", "verify", "policy", "export")


def is_from_settings(name: str) -> bool:
    """Whether an option's value comes from a settings file and not from the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.DEFAULT_MAP


def defaults(path: str | None, command: str) -> Options:
    """The settings as click's defaults for a command and its subcommands."""
    file = Path(NAME if path is None else path)
    if path is None and not file.is_file():
        return {}
    settings = {KEYS[key]: value for key, value in _read(file).items()}
    if command in ("fit", "plan"):
        return {command: dict.fromkeys(registry.modules(), settings)}
    used = {name: settings[name] for name in COMMAND_SETTINGS.get(command, ()) if name in settings}
    return {command: dict.fromkeys(LEDGER_COMMANDS, used) if command == "ledger" else used}


def _read(file: Path) -> Options:
    name = repr(str(file))
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(Exit.USAGE, f"{name} cannot be read: there is no such file.") from None
    except tomllib.TOMLDecodeError as error:
        raise Refused(Exit.USAGE, f"{name} cannot be read as settings ({error}).") from None
    except (OSError, UnicodeDecodeError):
        raise Refused(Exit.USAGE, f"{name} cannot be read as settings.") from None
    unknown = [key for key in settings if key not in KEYS]
    if unknown:
        raise Refused(Exit.USAGE, f"{name} has the unknown key {unknown[0]!r}; keys are {', '.join(KEYS)}.")
    for key, kinds in (("bounds", (dict, str, list)), ("levels", (dict, str))):
        if key in settings and not isinstance(settings[key], kinds):
            raise Refused(Exit.USAGE, f"{key} in {name} must be a table with an entry for each column.")
    return {key: value for key, value in settings.items() if value != {}}


def columns_in_settings(session: Session, model_class: type[PrivateFit], options: Options) -> list[str] | None:
    """The columns with bounds or levels in the settings file, in the table's order, without the response and excluded
    columns; None if an option names the columns, or bounds or levels do not come from the settings.

    The unused columns are printed: identifiers, dates and remarks, whose bounds and levels stay commented out, need no
    further option. The choice depends on public facts alone: names in the settings and in the table's header.
    """
    arguments = inspect.signature(model_class).parameters
    tables = {name: options[name] for name in ("bounds", "levels") if name in arguments and options.get(name)}
    if options["columns"] is not None or not tables:
        return None
    if not all(is_from_settings(name) and isinstance(table, dict) for name, table in tables.items()):
        return None
    from dpem.tables.bounds import declared_entry
    from dpem.tables.files import columns_of

    with refusals(Exit.DATA):
        header = columns_of(Path(options["data"]), options["sep"], options["encoding"])
    target, weight = options.get("target"), options.get("weights")
    excluded, person = options["exclude"] or [], [options["person"]] if options["person"] is not None else []
    _refuse_unknown({**tables, "exclude": excluded, "person": person}, header, options["data"])
    declared = [name for table in tables.values() for name in header if declared_entry(table, name) is not None]
    others = (*excluded, *person, target)
    used = [name for name in header if name == weight or (name in declared and name not in others)]
    unused = [name for name in header if name not in (*declared, *others, weight)]
    if not used:
        raise Refused(Exit.USAGE, f"no column is left to use: fill in {' or '.join(tables)} of others in {NAME}.")
    if unused:
        session.say(f"columns without {' or '.join(tables)} in {NAME} are not used: {', '.join(unused)}")
    return used


def levels_in_settings(options: Options, estimator: PrivateFit) -> Options:
    """The argument ``levels`` for the used columns and a categorical response; a settings file may declare more."""
    if options["columns"] is None or not isinstance(options.get("levels"), dict) or not is_from_settings("levels"):
        return {}
    used = [*options["columns"], options.get("target") if hasattr(estimator, "classes") else None]
    return {"levels": {name: values for name, values in estimator.levels.items() if name in used} or None}


def _refuse_unknown(names: Mapping[str, Iterable[str]], header: Sequence[str], data: str) -> None:
    """Refuse names, by the setting that has them, that the table does not have.

    The first line of a file may be a record. A message suggests a name from it only if the line contains another
    declared name, so that it must be a header.
    """
    from dpem.tables.bounds import is_pattern, suggestion

    is_header = any(name in header for group in names.values() for name in group)
    for setting, group in names.items():
        for name in group:
            if name not in header and not is_pattern(name):
                hint = suggestion(name, header, ".") if is_header else "."
                if len(header) == 1:
                    hint = "; it has one column: check the separator, --sep."
                raise Refused(Exit.USAGE, f"{name!r} in {setting} is not a column of {data}{hint}")
