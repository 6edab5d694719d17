"""The conversion of entries to numbers.

The number depends on the entry and on the declaration of its column alone: not on the type that a library inferred for
the column, on other rows, or on the source of the rows.

    number, Boolean   that number (0 or 1); infinite beyond the largest float; a complex number must be real
    text              the number that it spells ("3", " 3.0 ", "3e0"; "true" is 1), else missing
    anything else     missing

In a column with levels, a text that is a declared level has that level. So has a number, or a text that spells one, if
a level is or spells the same number: 1, 1.0 and "1" are one level. Any other entry is missing or, if :data:`OTHER` is
among the levels, has the level "other"; a missing entry (None, NaN, NA, an empty text) stays missing.

:func:`number` and :meth:`Levels.value` convert one entry, :func:`numbers` and :func:`level_values` a column of Arrow's
by the same rule; tests compare them.
"""

from __future__ import annotations

import math
import numbers as kinds
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpem._validation import ArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

    #: The entries of a column, as Arrow data or as an array of Python objects.
    Column: TypeAlias = pa.Array | pa.ChunkedArray | NDArray[Any]

#: The level, in a list of levels, of every entry that has none of the others and is not missing.
OTHER = "<other>"
#: Texts that stand for a missing entry, unless they are declared levels.
MISSING = ("", "NA", "NaN", "nan", "null", "None", "<NA>")

_SPACE = " \t\n\r\v\f"
_NUMBER = r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))"
_SPELLED = re.compile(_NUMBER)


def number(entry: object) -> float:
    """The number that an entry is or spells, else NaN.

    >>> [number(entry) for entry in (3, True, Decimal("0.5"), " 3e0 ", "true", 10**400)]
    [3.0, 1.0, 0.5, 3.0, 1.0, inf]
    >>> [number(entry) for entry in (None, "three", "1_000", 1j, [3.0])]
    [nan, nan, nan, nan, nan]
    """
    if isinstance(entry, str):
        text = str.strip(entry, _SPACE)  # not entry.strip, which a subclass may override; likewise below
        if _SPELLED.fullmatch(text):
            return float(text)
        return {"true": 1.0, "false": 0.0}.get(text.lower(), math.nan)
    if isinstance(entry, float):
        return float.__float__(entry)
    if isinstance(entry, complex) and entry.imag == 0:  # one complex entry makes a column of pandas complex
        return entry.real
    if not isinstance(entry, kinds.Real | Decimal | np.bool_):
        return math.nan
    try:
        return float(entry)
    except OverflowError:
        return math.inf if entry > 0 else -math.inf  # type: ignore[operator]
    except Exception:  # a signalling NaN, or a class of the user's
        return math.nan


@dataclass(frozen=True)
class Levels:
    """The levels of a categorical column: their numbers in the rows, and their names.

    If all levels are or spell numbers, these are their numbers; else (``texts``) they are numbered 0, 1, …
    :data:`OTHER` is infinite.
    """

    values: tuple[float, ...]
    labels: tuple[str, ...]
    texts: bool

    @cached_property
    def other(self) -> bool:
        return self.values[-1] == math.inf

    @property
    def needs_lookup(self) -> bool:
        """Whether entries must be compared with the levels, not only read as numbers."""
        return self.texts or self.other

    @property
    def given(self) -> list[str | float]:
        """The levels as a user writes them."""
        are_numbers = not self.texts and all(label == _shortest_text(value) for value, label in self._declared)
        last = [OTHER] if self.other else []
        return [*(value if are_numbers else label for value, label in self._declared), *last]

    @cached_property
    def by_text(self) -> dict[str, float]:
        return {} if not self.texts else {text: value for value, text in self._declared}

    @cached_property
    def by_number(self) -> dict[float, float]:
        """The value of the level that is or spells a number; if several spell it, of the shortest spelling."""
        by_number: dict[float, float] = {}
        for value, label in self._declared:
            key = number(label) if self.texts else value
            if key == key and (key not in by_number or label == _shortest_text(key)):
                by_number[key] = value
        return by_number

    @property
    def _declared(self) -> list[tuple[float, str]]:
        return [pair for pair in zip(self.values, self.labels, strict=True) if pair[0] != math.inf]

    def value(self, entry: object) -> float:
        """The number of an entry's level.

        >>> levels = checked_levels({"region": ["north", "2", OTHER]})["region"]
        >>> [levels.value(entry) for entry in ("north", 2, "2.0", "south", None, "")]
        [0.0, 1.0, 1.0, inf, nan, nan]
        """
        if isinstance(entry, str):
            entry = str.__str__(entry)  # a subclass may override comparison
            if entry in self.by_text:
                return self.by_text[entry]
        value = self.by_number.get(number(entry))
        if value is not None:
            return value
        return math.inf if self.other and not is_missing(entry) else math.nan


def checked_levels(levels: object) -> dict[str, Levels]:
    """The levels of each column, from ``{"region": ["north", "south"], "smoker": [0, 1]}``, or an ArgumentError."""
    if levels is None:
        return {}
    if not isinstance(levels, Mapping) or not all(isinstance(name, str) for name in levels):
        kind = type(levels).__name__
        raise ArgumentError("levels", f"must be a dict with a list of levels for each column's name, got a {kind}.")
    return {name: own if isinstance(own, Levels) else _levels(name, own) for name, own in levels.items()}


def _levels(name: str, values: object) -> Levels:
    listed = [] if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) else list(values)
    declared = [level for level in listed if not (isinstance(level, str) and level == OTHER)]
    n_other = len(listed) - len(declared)
    if len(listed) < 2 or not declared or n_other > 1 or len(set(map(str, declared))) != len(declared):
        raise ArgumentError("levels", f"of {name!r} must be a list of at least two different levels.")
    other, last = ((math.inf,), (OTHER,)) if n_other else ((), ())
    are_texts = [isinstance(level, str) for level in declared]
    spelled = tuple(map(number, declared))
    numeric = all(map(math.isfinite, spelled)) and len(set(spelled)) == len(spelled)
    if all(are_texts):
        numbers = spelled if numeric else tuple(map(float, range(len(declared))))
        return Levels((*numbers, *other), (*declared, *last), not numeric)
    if any(are_texts) or not numeric:
        raise ArgumentError("levels", f"of {name!r} must be texts only or different finite numbers only.")
    return Levels((*spelled, *other), (*map(_shortest_text, spelled), *last), False)


def convert(column: Column, levels: Levels | None, dtype: np.dtype) -> NDArray[np.floating]:
    """A column of Arrow's, or an array of Python objects, as numbers."""
    if isinstance(column, np.ndarray):
        rule = number if levels is None else levels.value
        with np.errstate(over="ignore"):  # a number may be too large for float32
            return np.array([rule(entry) for entry in column]).astype(dtype, copy=False)
    if getattr(column, "num_chunks", 1) > 1:
        return np.concatenate([convert(chunk, levels, dtype) for chunk in column.chunks])
    return numbers(column, dtype) if levels is None or not levels.needs_lookup else level_values(column, levels, dtype)


def numbers(column: pa.Array | pa.ChunkedArray, dtype: np.dtype) -> NDArray[np.floating]:
    """An Arrow column as a float array, not copied if it is one already.

    >>> import pyarrow as pa
    >>> numbers(pa.array([1, None, 3]), np.dtype(np.float64)), numbers(pa.array(["1", "one", " 3."]), np.dtype("f8"))
    (array([ 1., nan,  3.]), array([ 1., nan,  3.]))
    """
    import pyarrow as pa

    column = decode(column)
    wanted = pa.float32() if dtype == np.float32 else pa.float64()
    if pa.types.is_decimal(column.type):  # via texts: Arrow's own cast turns 0.3 into 0.30000000000000004
        column = column.cast(pa.string())
    if is_text(column.type):
        column = _parse_numbers(column)
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif not is_numeric(column.type):
        column = pa.nulls(len(column), wanted)
    if column.type != wanted:
        column = column.cast(wanted, safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def level_values(column: pa.Array | pa.ChunkedArray, levels: Levels, dtype: np.dtype) -> NDArray[np.floating]:
    """The number of the level of each entry of an Arrow column.

    >>> import pyarrow as pa
    >>> levels = checked_levels({"region": ["north", "south"]})["region"]
    >>> level_values(pa.array(["south", "north", "east", None]), levels, np.dtype(np.float64))
    array([ 1.,  0., nan, nan])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = decode(column)
    values, texts = np.full(len(column), math.nan), is_text(column.type)
    entries = numbers(column, values.dtype) if levels.by_number or not texts else values
    for number_of_level, value in levels.by_number.items():
        values[entries == number_of_level] = value
    is_missing = np.isnan(entries)
    if texts:
        by_text = levels.by_text
        index = pc.index_in(column, value_set=pa.array(list(by_text), column.type)).fill_null(len(by_text))
        exact = np.append(list(by_text.values()), math.nan)[np.asarray(index)]
        values = np.where(np.isnan(exact), values, exact)
        is_missing = np.asarray(pc.is_in(column, value_set=pa.array([None, *MISSING], column.type)))
    if levels.other:
        values[np.isnan(values) & ~is_missing] = math.inf
    return values.astype(dtype, copy=False)


def is_numeric(kind: pa.DataType) -> bool:
    """Whether entries of this type are numbers; integers above 2⁵³ and decimals are rounded to floats."""
    from pyarrow import types

    return any(is_type(kind) for is_type in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def is_text(kind: pa.DataType) -> bool:
    from pyarrow import types

    return any(is_type(kind) for is_type in (types.is_string, types.is_large_string, types.is_string_view))


def decode(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array of plain entries: categories are decoded, and so are views, which few functions accept."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        # One by one: the categories of all chunks together could be too many for the type of their codes.
        chunks = [decode(chunk) for chunk in column.chunks] or [decode(pa.array([], column.type))]
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _parse_numbers(column: pa.Array) -> pa.Array:
    """The numbers that texts spell, null elsewhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.ascii_trim_whitespace(column)
    try:
        values = text.cast(pa.float64())
    except pa.ArrowInvalid:
        spells = pc.match_substring_regex(text, f"^(?:{_NUMBER})$")
        values = pc.if_else(spells, text, pa.scalar(None, text.type)).cast(pa.float64())
        for word, value in (("true", 1.0), ("false", 0.0)):
            values = pc.if_else(pc.fill_null(pc.equal(pc.ascii_lower(text), word), False), value, values)
    return values


def _shortest_text(value: float) -> str:
    return f"{value:.15g}"


def as_text(entry: object) -> str | None:
    """An entry as a text that Arrow accepts (lone surrogates are escaped); None if it has no text."""
    try:
        return str(entry).encode(errors="backslashreplace").decode()
    except Exception:  # a whole number of thousands of digits, or a class of the user's
        return None


def is_missing(entry: object) -> bool:
    """Whether an entry is None, NaN, NA, NaT or masked, or a text that stands for a missing entry."""
    if isinstance(entry, str):
        return str.__str__(entry) in MISSING
    if entry is None or type(entry).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    if isinstance(entry, np.datetime64 | np.timedelta64):
        return bool(np.isnat(entry))
    return isinstance(entry, kinds.Complex | Decimal) and not entry.imag and math.isnan(number(entry))
