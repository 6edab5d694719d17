"""The selection of features, response and person among the columns of a named table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpem._validation import Argument, ArgumentError
from dpem.query import Chunk
from dpem.tables.bounds import NAMED, list_columns, list_names, suggestion
from dpem.tables.entries import Levels, checked_levels, convert, is_numeric, is_text

if TYPE_CHECKING:
    from dpem.tables.entries import Column


@dataclass(frozen=True)
class Selection:
    """The columns to read: features in order, the response, declared levels, and the dtype of the rows."""

    features: tuple[str, ...]
    target: str | None
    dtype: np.dtype
    levels: Mapping[str, Levels] = field(default_factory=dict)
    person: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.features if self.target is None else (*self.features, self.target)

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that are read."""
        return self.names if self.person is None else (*self.names, self.person)

    @property
    def row_bytes(self) -> int:
        return len(self.features) * self.dtype.itemsize + (self.target is not None) * 8

    def numbers(self, name: str, column: Column) -> NDArray[np.floating]:
        """The entries of a selected column as numbers."""
        return convert(column, self.levels.get(name), np.dtype(np.float64) if name == self.target else self.dtype)

    def double(self) -> Selection:
        """The selection with rows in float64."""
        return replace(self, dtype=np.dtype(np.float64))


def select(
    schema: pa.Schema,
    columns: Sequence[str] | None,
    target: str | None,
    *,
    exclude: Sequence[str] = (),
    levels: Mapping[str, Any] | None = None,
    numeric: Collection[str] = (),
    person: str | None = None,
) -> Selection:
    """The selected columns, or an error of one sentence that names the columns at fault.

    Rows are float32 if every feature is, and float64 otherwise. Without ``columns`` every column but the target and
    those in ``exclude`` is a feature and must be numeric or have ``levels``: none is left out silently. ``person`` is
    the column that identifies people; it is not a feature. In the columns ``numeric``, numbers are also read from
    texts. A column of type null may contain anything.

    >>> schema = pa.schema([("age", pa.int32()), ("dose", pa.float32()), ("name", pa.string())])
    >>> select(schema, ["age"], target="dose").features
    ('age',)
    >>> select(schema, None, target="dose")
    Traceback (most recent call last):
    ValueError: column 'name' is not numeric (text); leave it out, or declare its levels.
    """
    refuse_repeated(schema.names)
    if isinstance(columns, str) or (columns is not None and not all(isinstance(name, str) for name in columns)):
        raise ArgumentError("columns", "must be a list of column names or None.")
    if target is not None and not isinstance(target, str):
        raise ArgumentError("target", f"must be the name of a column or None, got {type(target).__name__}.")
    if target is not None:
        _check_column(target, schema.names)
    if exclude and columns is not None:
        raise ArgumentError("columns", "and ", Argument("exclude"), " must not both be given.")
    for name in exclude:
        _check_column(name, schema.names)
    if person is not None:
        if person not in schema.names:
            raise ArgumentError(
                "person", f"must be a column of the table, which has no {person!r}{_hint(person, schema.names)}"
            )
        kind = schema.field(person).type
        if not (is_readable(kind, True) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))):
            raise ArgumentError("person", f"must be a column of numbers or texts; {person!r} is {_type_name(kind)}.")
        if person == target or person in (columns or ()):
            raise ArgumentError(
                "person", f"must be another column than target and columns, but {person!r} is one of them."
            )
    others = {target, person, *exclude}
    features = [n for n in schema.names if n not in others] if columns is None else list(columns)
    for name in features:
        _check_column(name, schema.names)
    if _repeated(features) or target in features:
        repeated = _repeated(features) or [str(target)]
        raise ArgumentError(
            "columns", "and ", Argument("target"), f" must name each column once; {list_names(repeated)} is repeated."
        )
    if not features:
        raise ValueError("the table has no column of features.")
    declared = {name: own for name, own in checked_levels(levels).items() if name in (*features, target)}
    read_as_text = [*numeric, *declared]
    names = features if target is None else [*features, target]
    _refuse_unreadable(schema, names, read_as_text, explicit=columns is not None)
    single = not set(declared) & set(features) and all(schema.field(name).type == pa.float32() for name in features)
    return Selection(tuple(features), target, np.dtype(np.float32 if single else np.float64), declared, person)


def select_declared(
    schema: pa.Schema, levels: Mapping[str, Any] | None, numeric: Collection[str] = (), person: str | None = None
) -> Selection:
    """The selection of every column of X."""
    try:
        return select(schema, None, None, levels=levels, numeric=numeric, person=person)
    except ArgumentError:
        raise
    except ValueError as error:
        raise ValueError(f"X must hold numbers or declared levels: {error}") from None


def refuse_repeated(names: Sequence[str]) -> None:
    repeated = _repeated(names)
    if repeated:
        raise ValueError(f"column names must differ, but these are repeated: {list_names(repeated)}.")


def rows_of(
    column: Callable[[str], Column],
    selection: Selection,
    rows: slice = slice(None),
    reads: Collection[int] | None = None,
) -> Chunk:
    """The selected rows; ``column`` returns a column by its name. X is column-major: columns are copied, not
    transposed. If ``reads`` is given, only these features are converted; the others have arbitrary values.
    """
    target, block = selection.target, None
    for j, name in enumerate(selection.features):
        if reads is not None and j not in reads:
            continue
        values = selection.numbers(name, column(name))[rows]
        block = np.empty((len(selection.features), len(values)), dtype=selection.dtype) if block is None else block
        block[j] = values
    assert block is not None
    return Chunk(block.T, None if target is None else selection.numbers(target, column(target))[rows])


def _check_column(name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ValueError(f"there is no column {name!r}{_hint(name, names)}")


def _hint(name: str, names: Sequence[str]) -> str:
    return suggestion(name, names, f"; the table has {list_names(names)}.")


def _refuse_unreadable(schema: pa.Schema, names: Sequence[str], as_text: Collection[str], *, explicit: bool) -> None:
    """Refuse columns by their types: texts without levels, and types that are neither numbers nor texts."""
    unreadable = [name for name in names if not is_readable(schema.field(name).type, name in as_text)]
    if unreadable:
        single = len(unreadable) == 1
        types = ", ".join(dict.fromkeys(_type_name(schema.field(name).type) for name in unreadable[:NAMED]))
        remedy = "name only numeric columns" if explicit else f"leave {'it' if single else 'them'} out"
        if any(is_readable(schema.field(name).type, True) for name in unreadable):
            remedy += ", or declare its levels" if single else ", or declare levels for the texts"
        raise ValueError(f"{list_columns(unreadable)} {'is' if single else 'are'} not numeric ({types}); {remedy}.")


def is_readable(kind: pa.DataType, texts: bool) -> bool:
    """Whether columns of this type can be read: numbers always, texts if ``texts`` is True."""
    if pa.types.is_dictionary(kind):
        return texts and is_readable(kind.value_type, True)
    return is_numeric(kind) or pa.types.is_null(kind) or (texts and is_text(kind))


def _type_name(kind: pa.DataType) -> str:
    """A type for a message, without its categories, field names or time zone, which may come from rows."""
    if pa.types.is_nested(kind):
        return "nested"
    if pa.types.is_temporal(kind):
        return "dates or times"
    return "categories" if pa.types.is_dictionary(kind) else "text" if is_text(kind) else str(kind)


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
