"""The public bounds of columns, from arguments or files, with one sentence for each mistake."""

from __future__ import annotations

import csv
import difflib
import fnmatch
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpem._validation import Argument, ArgumentError, describe, is_number

#: A message names at most this many columns.
NAMED = 8
#: Bounds lie within ±this: their squares are ordinary floats.
LARGEST = 1e15

Pair = tuple[float, float]


def column_bounds(bounds: Any, names: Sequence[str], levels: Mapping[str, Any]) -> dict[str, Pair]:
    """The bounds of every column without levels. ``bounds`` is a dict by name (or by pattern, such as ``"lab_*"``), a
    pair (low, high) of numbers or vectors, or the path of a JSON or CSV file that holds such a dict.
    """
    needed = [name for name in names if name not in levels]
    if bounds is None:
        if not needed:
            return {}
        raise ArgumentError(
            "bounds", f"must be given: public limits of {list_columns(needed)}, never computed from the rows."
        )
    declared = read_bounds(bounds) if isinstance(bounds, str | os.PathLike) else bounds
    if not isinstance(declared, Mapping):
        return _from_pair(declared, names, needed)
    pairs = {name: match for name in needed if (match := declared_entry(declared, name)) is not None}
    absent = [name for name in needed if name not in pairs]
    if absent and not any(declared_entry(declared, name) is not None for name in names):
        # The names are not quoted: they may be a record, the first line of a file without a header.
        raise ArgumentError(
            "bounds", f"must name every column of X ({len(names)} in all), but no name in them is one of these."
        )
    if absent:
        others = [key for key in declared if isinstance(key, str) and key not in names]
        close = difflib.get_close_matches(absent[0], others, n=1)
        hint = f" (is {close[0]!r} misspelt?)" if close else ""
        raise ArgumentError(
            "bounds",
            f"must name every numeric column, but lack {list_columns(absent)}{hint}; categorical columns need levels.",
        )
    return {name: checked_pair("bounds", pair, f"of {name!r} ") for name, pair in pairs.items()}


def response_bounds(y_bounds: Any, bounds: Any, y_name: str | None) -> Pair:
    """The bounds of the response: ``y_bounds``, or those that ``bounds`` has under the response's name."""
    if y_bounds is not None:
        return checked_pair("y_bounds", y_bounds)
    declared = read_bounds(bounds) if isinstance(bounds, str | os.PathLike) else bounds
    if isinstance(declared, Mapping) and y_name is not None and y_name in declared:
        return checked_pair("bounds", declared[y_name], f"of the response {y_name!r} ")
    why = ": public limits of the response, never computed from the rows."
    if y_name is None:
        raise ArgumentError("y_bounds", f"must be given{why}")
    raise ArgumentError("y_bounds", "must be given, or ", Argument("bounds"), f" must have an entry {y_name!r}{why}")


def checked_pair(argument: str, pair: Any, of: str = "") -> Pair:
    """(low, high) as finite floats with low below high, or an ArgumentError; ``of`` names their column."""
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise ArgumentError(argument, f"{of}must be (low, high), two numbers; got {describe(pair)}.") from None
    if not all(is_number(side) and math.isfinite(side) for side in (low, high)):
        raise ArgumentError(argument, f"{of}must be two finite numbers, got {describe(low)} and {describe(high)}.")
    if not low < high:
        raise ArgumentError(argument, f"{of}must have low below high, got {describe(low)} and {describe(high)}.")
    if max(abs(low), abs(high)) > LARGEST or high - low < 1e-12 * max(abs(low), abs(high), 1e-12):
        raise ArgumentError(
            argument, f"{of}must lie within ±{LARGEST:g} and not be equal but for rounding: change the unit."
        )
    return float(low), float(high)


def read_bounds(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Bounds from a file: a JSON object ``{"age": [0, 110]}``, or a CSV with the columns name, low, high."""
    where = Path(path)
    kind = where.suffix.lower()
    if kind not in (".json", ".csv"):
        raise ArgumentError("bounds", f"must be a file that ends in .json or .csv, got {where.name!r}.")
    try:
        text = where.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ArgumentError("bounds", f"cannot be read from {str(where)!r}: no such file, or not UTF-8 text.") from None
    try:
        bounds = _from_csv(text, where) if kind == ".csv" else json.loads(text)
    except json.JSONDecodeError:
        raise ArgumentError("bounds", f"cannot be read from {str(where)!r}: it is not valid JSON.") from None
    if not isinstance(bounds, dict) or not all(isinstance(name, str) for name in bounds):
        raise ValueError(f"{str(where)!r} must contain a JSON object with two numbers for each column's name.")
    return bounds


def _from_csv(text: str, where: Path) -> dict[str, Any]:
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    columns = set(rows[0]) if rows else set()
    if not {"name", "low", "high"} <= columns:
        raise ValueError(f"{str(where)!r} must have a header with name, low and high, and a line for each column.")
    try:
        return {row["name"].strip(): (float(row["low"]), float(row["high"])) for row in rows if row["low"].strip()}
    except (TypeError, ValueError, AttributeError):
        raise ValueError(f"{str(where)!r} must have a number under low and under high in every line.") from None


def _from_pair(declared: Any, names: Sequence[str], needed: Sequence[str]) -> dict[str, Pair]:
    try:
        low, high = (np.asarray(side, dtype=float) for side in declared)
        ok = all(side.shape in ((), (len(names),)) for side in (low, high))
    except (TypeError, ValueError):
        ok = False
    if not ok:
        raise ArgumentError(
            "bounds",
            f"must be a dict by column, a file, or (low, high) of two numbers or two vectors of {len(names)}; "
            f"got {describe(declared)}.",
        )
    lows, highs = (np.broadcast_to(side, (len(names),)) for side in (low, high))
    pairs = {name: (float(lows[j]), float(highs[j])) for j, name in enumerate(names)}
    return {name: checked_pair("bounds", pairs[name], f"of {name!r} ") for name in needed}


def declared_entry(declared: Mapping[str, Any], name: str) -> Any:
    """The entry of the column, by its name or by the first pattern that matches it."""
    if name in declared:
        return declared[name]
    return next((pair for key, pair in declared.items() if is_pattern(key) and fnmatch.fnmatchcase(name, key)), None)


def is_pattern(key: object) -> bool:
    return isinstance(key, str) and any(mark in key for mark in "*?[")


def list_names(names: Sequence[str]) -> str:
    """The first names, for a message; long names are shortened."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(repr(name if len(name) <= 40 else f"{name[:37]}...") for name in names[:NAMED]) + more


def list_columns(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {list_names(names)}"


def suggestion(name: str, names: Sequence[str], otherwise: str = "") -> str:
    """The suggestion of a similar name, for the end of a message.

    >>> suggestion("hieght", ["age", "height"])
    "; did you mean 'height'?"
    """
    matches = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else otherwise


def column_differences(names: Sequence[str], fitted: Sequence[str]) -> str:
    """How the columns of a table differ from those that a model was fitted to, in a sentence.

    >>> column_differences(["a", "c"], ["a", "b"])
    "X lacks column 'b' of the fit, and has column 'c', which the fit did not have."
    >>> column_differences(["b", "a"], ["a", "b"])
    "X has its columns in another order than the fit; give them as 'a', 'b'."
    """
    missing = [name for name in fitted if name not in set(names)]
    more = [name for name in names if name not in set(fitted)]
    if not missing and not more:
        return f"X has its columns in another order than the fit; give them as {', '.join(map(repr, fitted))}."
    differences = [f"lacks {list_columns(missing)} of the fit"] if missing else []
    differences += [f"has {list_columns(more)}, which the fit did not have"] if more else []
    return f"X {', and '.join(differences)}."
