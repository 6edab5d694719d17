"""Which columns of a table a fit uses where a settings file says what is known of them.

A column whose bounds and levels stay commented out in ``dpem.toml`` is not used: numbers of people, dates and remarks
need no line of their own. What decides is public: names in the settings, names in the table's first line.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpem.cli.common import Exit, Refused, Session, refusing
from dpem.cli.inputs import nearest
from dpem.cli.settings import is_a_setting


def settled(session: Session, kind: type[Any], asked: Mapping[str, Any]) -> list[str] | None:
    """The columns that bounds and levels of a settings file name, in the table's order, less the response and what is
    excluded; None where other options decide. The session says which columns are left aside.
    """
    takes = inspect.signature(kind).parameters
    tables = {name: asked[name] for name in ("bounds", "levels") if name in takes and asked.get(name) is not None}
    if asked["columns"] is not None or not tables:
        return None
    if not all(is_a_setting(name) and isinstance(own, dict) for name, own in tables.items()):
        return None
    from dpem.tables.files import columns_of

    with refusing(Exit.DATA):
        if not Path(asked["data"]).exists():
            raise FileNotFoundError(f"{asked['data']!r} cannot be read: there is no such file or folder.")
        known = columns_of(Path(asked["data"]), asked["sep"], asked.get("encoding") or "utf-8")
    target = asked.get("target") if kind._needs_y else None
    excluded = [*(asked["exclude"] or []), *([] if asked.get("person") is None else [asked["person"]])]
    named = [name for own in tables.values() for name in known if _names(own, name)]
    _refuse_unknown({**tables, "exclude": dict.fromkeys(excluded)}, known, asked["data"])
    weight = asked.get("weights")
    used = [name for name in known if name == weight or (name in named and name not in excluded and name != target)]
    aside = [name for name in known if name not in (*named, *excluded, target, weight)]
    if used and aside:
        lack = " or ".join(tables)
        session.say(f"not used, as dpem.toml has no {lack} for them: {', '.join(aside)}")
    return used or None


def levels_of_used(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The settings' levels of the columns that are used, as an argument: a settings file is about the whole table."""
    levels, columns = asked.get("levels"), asked["columns"]
    if columns is None or not isinstance(levels, dict) or not is_a_setting("levels"):
        return {}
    return {"levels": {name: own for name, own in levels.items() if name in columns} or None}


def _names(own: Mapping[str, Any], name: str) -> bool:
    from dpem.tables.bounds import matching

    return matching(own, name) is not None


def _refuse_unknown(tables: Mapping[str, Mapping[str, Any]], known: Sequence[str], data: str) -> None:
    """Refuse names that the table has not. Of its first line, which may be a record, a message repeats nothing, unless
    other names were found there: then it is a header, and names are public.
    """
    from dpem.tables.bounds import is_pattern

    header = any(name in known for own in tables.values() for name in own)
    for what, own in tables.items():
        for name in own:
            if name not in known and not is_pattern(name):
                hint = nearest(name, known) if header else ""
                raise Refused(Exit.USAGE, f"{what} name {name!r}, but {data} has no such column{hint}.")
