"""``dpem.toml``: what is publicly known of a table, so that a command is one short line. Every command reads it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dpem import registry
from dpem.cli.common import Exit, Refused

NAME = "dpem.toml"
#: What a settings file may hold, and what it is called as an option's name.
KEYS = {
    **{key: key for key in ("data", "target", "columns", "exclude", "person", "bounds", "y_bounds", "levels")},
    **{key: key for key in ("sep", "decimal", "thousands", "encoding")},
    **{key: key for key in ("epsilon", "delta", "rows_per_person", "dataset", "purpose", "out", "report")},
    "ledger": "url",
}
LEDGERS = ("open", "show", "history", "explain", "verify", "policy", "export")


def is_a_setting(name: str) -> bool:
    """Whether an option comes from a settings file: the command line wins."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP


def defaults(path: str | None, command: str) -> dict[str, Any]:
    """The settings as click's defaults for a command and its subcommands."""
    file = Path(NAME if path is None else path)
    if path is None and not file.is_file():
        return {}
    found = {KEYS[key]: value for key, value in _read(file).items()}
    if command in ("fit", "plan"):
        return {command: dict.fromkeys(registry.modules(), found)}
    if command == "ledger":
        return {command: dict.fromkeys(LEDGERS, _some(found, "url", "dataset"))}
    if command == "scale":
        return {command: {key: value for key, value in found.items() if key not in ("out", "report", "levels")}}
    texts = ("sep", "decimal", "thousands", "encoding")
    others = {"predict": texts, "report": ("url", "dataset", "purpose"), "doctor": ("url",)}
    return {command: _some(found, *others.get(command, ()))}


def _some(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


def _read(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(Exit.USAGE, f"{str(file)!r} cannot be read: there is no such file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        line = f" ({error})" if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise Refused(Exit.USAGE, f"{str(file)!r} cannot be read as settings{line}.") from None
    unknown = [key for key in found if key not in KEYS]
    if unknown:
        raise Refused(Exit.USAGE, f"{str(file)!r} has the unknown key {unknown[0]!r}; known are {', '.join(KEYS)}.")
    for key, kind, words in (("bounds", (dict, str, list), "a table"), ("levels", (dict, str), "a table")):
        if key in found and not isinstance(found[key], kind):
            raise Refused(Exit.USAGE, f"{key} in {str(file)!r} must be {words} with an entry for each column.")
    return {key: value for key, value in found.items() if value != {}}
