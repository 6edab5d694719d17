"""The columns that a fit uses if a settings file declares bounds or levels.

A column whose bounds and levels are commented out in ``dpem.toml`` is not used: identifiers, dates and remarks need no
further option. The choice depends on public facts: names in the settings and in the table's header.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpem.cli.common import Exit, Refused, Session, refusing
from dpem.cli.inputs import nearest
from dpem.cli.settings import is_a_setting


def columns_in_settings(session: Session, kind: type[Any], options: Mapping[str, Any]) -> list[str] | None:
    """The columns with bounds or levels in the settings file, in the table's order, without the response and excluded
    ones; None where other options decide. Prints which columns are not used.
    """
    parameters = inspect.signature(kind).parameters
    declared = [name for name in ("bounds", "levels") if name in parameters and options.get(name) is not None]
    tables = {name: options[name] for name in declared}
    if options["columns"] is not None or not tables:
        return None
    if not all(is_a_setting(name) and isinstance(table, dict) for name, table in tables.items()):
        return None
    from dpem.tables.bounds import matching
    from dpem.tables.files import columns_of

    with refusing(Exit.DATA):
        if not Path(options["data"]).exists():
            raise FileNotFoundError(f"{options['data']!r} cannot be read: there is no such file or folder.")
        header = columns_of(Path(options["data"]), options["sep"], options.get("encoding") or "utf-8")
    target = options.get("target") if kind._needs_y else None
    excluded = [*(options["exclude"] or []), *([] if options.get("person") is None else [options["person"]])]
    named = [name for table in tables.values() for name in header if matching(table, name) is not None]
    _refuse_unknown({**tables, "exclude": dict.fromkeys(excluded)}, header, options["data"])
    weight = options.get("weights")
    used = [name for name in header if name == weight or (name in named and name not in excluded and name != target)]
    unused = [name for name in header if name not in (*named, *excluded, target, weight)]
    if used and unused:
        session.say(f"not used, as dpem.toml has no {' or '.join(tables)} for them: {', '.join(unused)}")
    return used or None


def levels_of_used(options: Mapping[str, Any]) -> dict[str, Any]:
    """The argument ``levels`` for the columns that are used: a settings file may declare more."""
    levels, columns = options.get("levels"), options["columns"]
    if columns is None or not isinstance(levels, dict) or not is_a_setting("levels"):
        return {}
    return {"levels": {name: values for name, values in levels.items() if name in columns} or None}


def _refuse_unknown(tables: Mapping[str, Mapping[str, Any]], header: Sequence[str], data: str) -> None:
    """Refuse names that the table does not have. The first line of a file may be a record, so a message quotes it only
    if it contains other declared names and must be a header.
    """
    from dpem.tables.bounds import is_pattern

    is_header = any(name in header for table in tables.values() for name in table)
    for option, table in tables.items():
        for name in table:
            if name not in header and not is_pattern(name):
                hint = nearest(name, header) if is_header else ""
                raise Refused(Exit.USAGE, f"{option} name {name!r}, but {data} has no such column{hint}.")
