"""Which columns of a named table become features and response, and how an Arrow column becomes numbers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpem.query import Chunk


@dataclass(frozen=True)
class Selection:
    """The columns to read: features in the order asked, the response, and the dtype that rows will have.

    A text of a column with ``levels`` is read as its place among them; any other text is a hole.
    """

    features: tuple[str, ...]
    target: str | None
    dtype: np.dtype
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return self.features if self.target is None else (*self.features, self.target)

    @property
    def row_bytes(self) -> int:
        return len(self.features) * self.dtype.itemsize + (self.target is not None) * 8

    def numbers(self, name: str, column: pa.Array | pa.ChunkedArray) -> NDArray[np.floating]:
        """The entries of a selected column as numbers."""
        if name in self.levels:
            return codes(column, self.levels[name], self.dtype)
        return numbers(column, np.dtype(np.float64) if name == self.target else self.dtype)


def select(
    schema: pa.Schema,
    columns: Sequence[str] | None,
    target: str | None,
    *,
    exclude: Sequence[str] = (),
    levels: Mapping[str, Sequence[str]] | None = None,
) -> Selection:
    """The columns asked for, or a refusal in one sentence that names the columns at fault.

    Rows are float32 if every feature is, and float64 otherwise. Without ``columns`` every column but the target and
    those in ``exclude`` is a feature, so each of them must be numeric or have ``levels``: none is left out silently.

    >>> schema = pa.schema([("age", pa.int32()), ("dose", pa.float32()), ("name", pa.string())])
    >>> select(schema, ["age"], target="dose").features
    ('age',)
    >>> select(schema, None, target="dose")
    Traceback (most recent call last):
    ValueError: column 'name' is not numeric (string); leave it out with exclude=, or give the levels of texts.
    """
    refuse_repeated(schema.names)
    if isinstance(columns, str) or (columns is not None and not all(isinstance(name, str) for name in columns)):
        raise ValueError("columns must be a list of column names or None.")
    if target is not None and not isinstance(target, str):
        raise ValueError(f"target must be the name of a column or None, got {type(target).__name__}.")
    if target is not None:
        _known(target, schema.names)
    if exclude and columns is not None:
        raise ValueError("columns and exclude must not both be given: one names what is used, the other what is not.")
    for name in exclude:
        _known(name, schema.names)
    unused = {target, *exclude}
    features = [n for n in schema.names if n not in unused] if columns is None else list(columns)
    for name in features:
        _known(name, schema.names)
    if _repeated(features) or target in features:
        twice = _repeated(features) or [str(target)]
        raise ValueError(f"columns and target must name each column once, but {_named(twice)} is named twice.")
    if not features:
        raise ValueError("no column is left to be a feature; columns must name at least one.")
    texts = {name: tuple(own) for name, own in (levels or {}).items() if name in features}
    rest = [name for name in features if not (name in texts and textual(schema.field(name).type))]
    _all_numeric(schema, rest if target is None else [*rest, target], chosen=columns is not None)
    wrong = [name for name in texts if name in rest]
    if wrong:
        raise ValueError(f"levels of {_plural(wrong)} {_named(wrong)} are texts, but the entries are numbers.")
    single = not texts and all(schema.field(name).type == pa.float32() for name in features)
    return Selection(tuple(features), target, np.dtype(np.float32 if single else np.float64), texts)


def refuse_repeated(names: Sequence[str]) -> None:
    repeated = _repeated(names)
    if repeated:
        raise ValueError(f"column names must differ, but these are repeated: {_named(repeated)}.")


def numeric(kind: pa.DataType) -> bool:
    """Types that become floating-point numbers; integers above 2⁵³ and decimals are rounded."""
    t = pa.types
    return t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind) or t.is_decimal(kind)


def textual(kind: pa.DataType) -> bool:
    """Types that hold texts."""
    t = pa.types
    return t.is_string(kind) or t.is_large_string(kind) or (t.is_dictionary(kind) and textual(kind.value_type))


def codes(column: pa.Array | pa.ChunkedArray, levels: Sequence[str], dtype: np.dtype) -> NDArray[np.floating]:
    """The place of each text among its levels, NaN where it is none of them.

    >>> codes(pa.array(["south", "north", "east", None]), ["north", "south"], np.dtype(np.float64))
    array([ 1.,  0., nan, nan])
    """
    texts = column.cast(pa.string()) if column.type != pa.string() else column
    return numbers(pc.index_in(texts, value_set=pa.array(list(levels), pa.string())), dtype)


def numbers(column: pa.Array | pa.ChunkedArray, dtype: np.dtype) -> NDArray[np.floating]:
    """A numeric Arrow column as a float array, nulls as NaN; not copied where it already is one.

    >>> numbers(pa.array([1, None, 3]), np.dtype(np.float64))
    array([ 1., nan,  3.])
    """
    wanted = pa.float32() if dtype == np.float32 else pa.float64()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if column.type != wanted:
        column = column.cast(wanted, safe=False)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks])
    return np.asarray(column.to_numpy(zero_copy_only=False))


def rows_of(batch: pa.RecordBatch | pa.Table, selection: Selection, rows: slice = slice(None)) -> Chunk:
    """The selected columns and rows of a batch. X is column-major: columns are copied, not transposed."""
    picked = [selection.numbers(name, batch.column(name))[rows] for name in selection.features]
    block = np.empty((len(picked), len(picked[0])), dtype=selection.dtype)
    for j, values in enumerate(picked):
        block[j] = values
    target = selection.target
    return Chunk(block.T, None if target is None else selection.numbers(target, batch.column(target))[rows])


def _known(name: str, names: Sequence[str]) -> None:
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the table has {_named(names)}."
    raise ValueError(f"there is no column {name!r}; {hint}")


def _all_numeric(schema: pa.Schema, names: Sequence[str], *, chosen: bool) -> None:
    empty = [name for name in names if pa.types.is_null(schema.field(name).type)]
    if empty:
        raise ValueError(f"{_subject(empty)} no values at all (type null); leave {_it(empty)} out with columns=.")
    text = [name for name in names if not numeric(schema.field(name).type)]
    if text:
        kinds = ", ".join(dict.fromkeys(str(schema.field(name).type) for name in text[:_SHOWN]))
        remedy = "name only numeric columns" if chosen else f"leave {_it(text)} out with exclude="
        if any(textual(schema.field(name).type) for name in text):
            remedy += ", or give the levels of texts"
        verb = "is" if len(text) == 1 else "are"
        raise ValueError(f"{_plural(text)} {_named(text)} {verb} not numeric ({kinds}); {remedy}.")


_SHOWN = 8


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name if len(name) <= 40 else f"{name[:37]}...") for name in names[:_SHOWN]) + more


def _plural(names: Sequence[Any]) -> str:
    return "column" if len(names) == 1 else "columns"


def _subject(names: Sequence[str]) -> str:
    return f"{_plural(names)} {_named(names)} {'has' if len(names) == 1 else 'have'}"


def _it(names: Sequence[Any]) -> str:
    return "it" if len(names) == 1 else "them"


def _repeated(names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return list(dict.fromkeys(name for name in names if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
