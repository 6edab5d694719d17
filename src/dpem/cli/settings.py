"""``dpem.toml``: the public facts about a table, which every command reads as defaults of its options."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dpem import registry
from dpem.cli.common import Exit, Refused

NAME = "dpem.toml"
#: The keys of a settings file, and the names of their options.
KEYS = {
    **{key: key for key in ("data", "target", "columns", "exclude", "person", "bounds", "y_bounds", "levels")},
    **{key: key for key in ("sep", "decimal", "thousands", "encoding")},
    **{key: key for key in ("epsilon", "delta", "rows_per_person", "dataset", "purpose", "out", "report")},
    "ledger": "url",
}
LEDGERS = ("open", "show", "history", "explain", "verify", "policy", "export")


def is_a_setting(name: str) -> bool:
    """Whether an option's value comes from a settings file and not from the command line."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP


def defaults(path: str | None, command: str) -> dict[str, Any]:
    """The settings as click's defaults for a command and its subcommands."""
    file = Path(NAME if path is None else path)
    if path is None and not file.is_file():
        return {}
    settings = {KEYS[key]: value for key, value in _read(file).items()}
    if command in ("fit", "plan"):
        return {command: dict.fromkeys(registry.modules(), settings)}
    if command == "ledger":
        return {command: dict.fromkeys(LEDGERS, _some(settings, "url", "dataset"))}
    if command == "scale":
        return {command: {key: value for key, value in settings.items() if key not in ("out", "report", "levels")}}
    texts = ("sep", "decimal", "thousands", "encoding")
    others = {"predict": texts, "report": ("url", "dataset", "purpose"), "doctor": ("url",)}
    return {command: _some(settings, *others.get(command, ()))}


def _some(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def _read(file: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(Exit.USAGE, f"{str(file)!r} cannot be read: there is no such file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        line = f" ({error})" if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise Refused(Exit.USAGE, f"{str(file)!r} cannot be read as settings{line}.") from None
    unknown = [key for key in settings if key not in KEYS]
    if unknown:
        raise Refused(Exit.USAGE, f"{str(file)!r} has the unknown key {unknown[0]!r}; known are {', '.join(KEYS)}.")
    for key, kind, words in (("bounds", (dict, str, list), "a table"), ("levels", (dict, str), "a table")):
        if key in settings and not isinstance(settings[key], kind):
            raise Refused(Exit.USAGE, f"{key} in {str(file)!r} must be {words} with an entry for each column.")
    return {key: value for key, value in settings.items() if value != {}}
