"""Tables in text files (CSV), read once into memory. A cell that does not fit its column is missing.

Messages quote no cell, as Arrow's own do, and of the first line, which may be a record, only names in the arguments.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import mmap
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dpem._validation import Argument, ArgumentError, raise_alone
from dpem.tables.base import CACHE_BYTES
from dpem.tables.bounds import suggestion
from dpem.tables.columns import Selection, select
from dpem.tables.entries import MISSING, Levels, number
from dpem.tables.frame import Frame, FrameSource
from dpem.tables.persons import new_secret

#: The separator of a text file, by the ending of its name.
SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
#: Endings of the names of compressed text files.
COMPRESSED = (".gz", ".bz2", ".zip")

#: Bytes that are parsed at a time. No row may be longer than a block, so longer blocks are tried in turn.
BLOCK_SIZES = (1 << 20, 1 << 26, 2**31 - 1)

_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error, zipfile.BadZipFile)


class TextFormat(NamedTuple):
    """The separator, decimal mark, thousands separator and encoding of a text file."""

    sep: str
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"

    @classmethod
    def of(cls, path: Path, sep: str | None = None, decimal: str = ".", *more: Any) -> TextFormat:
        """The format that the file's name implies, unless arguments override it."""
        return cls(SEPARATORS[kind_of(path)] if sep is None else sep, decimal, *more)


def kind_of(path: Path) -> str:
    """The ending of a file's name, without the ending of a compression.

    >>> kind_of(Path("visits.CSV.gz"))
    '.csv'
    """
    name = path.name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    kind = Path(name).suffix
    return kind if kind in SEPARATORS else path.suffix.lower()


def read_csv(path: Path, layout: TextFormat, choice: Mapping[str, Any]) -> FrameSource:
    """The selected columns in memory; ``choice`` holds the arguments of :func:`~dpem.tables.columns.select`."""
    names = header(path, layout)
    columns, target, person = (choice.get(key) for key in ("columns", "target", "person"))
    levels: Mapping[str, Levels] = choice.get("levels") or {}
    requested = () if columns is None or isinstance(columns, str) else columns
    chosen = {name for name in (*requested, *choice["exclude"], *levels, target, person) if isinstance(name, str)}
    unknown = sorted(chosen - set(names))
    if unknown:
        _refuse_separator(path, names, layout)
        # A first line with one of the chosen names is a header and may be quoted; another may be a record.
        hint = suggestion(unknown[0], names if chosen & set(names) else [], ": its first line must name the columns.")
        raise ValueError(f"{path} has no column {unknown[0]!r}{hint}")
    schema = pa.schema([(name, pa.float64()) for name in names])
    selection = select(schema, columns, target, exclude=choice["exclude"], levels=levels, person=person)
    _refuse_separator(path, names, layout)
    table = _cells(path, layout, selection, names)
    if table.num_rows == 0:
        raise ValueError(f"{path} has a header but no rows.")
    lookups = {name for name, own in levels.items() if own.needs_lookup}
    converted = {}
    cells = {name: table.column(name) for name in selection.read}
    in_one_piece = table.num_rows * selection.row_bytes > CACHE_BYTES  # else each pass would join the chunks again
    del table  # so that the chunks of a column can be freed
    for name in selection.read:
        column = cells.pop(name)
        if name == person:
            converted[name] = _decoded(column)
            continue
        if pa.types.is_binary(column.type):
            column = _decoded(column)
            column = pa.array(selection.numbers(name, column if name in lookups else _standard_numbers(column, layout)))
        converted[name] = column.combine_chunks() if in_one_piece and isinstance(column, pa.ChunkedArray) else column
    numeric = Selection(selection.features, target, selection.dtype, person=person)
    source = FrameSource(Frame(pa.table(converted)), numeric)
    source.text_levels = dict(selection.levels)
    return source


def kept_columns(path: Path, layout: TextFormat, names: Sequence[str]) -> pa.Table:
    """Columns of the file as texts."""
    table = _table(path, layout, dict.fromkeys(names, pa.binary()), header(path, layout))
    return pa.table({name: _decoded(table.column(name)) for name in names})


def _cells(path: Path, layout: TextFormat, selection: Selection, names: Sequence[str]) -> pa.Table:
    """The cells of the columns that are read, as numbers if all are numbers, else as bytes."""
    lookups = {name for name, own in selection.levels.items() if own.needs_lookup}
    texts = {name: pa.binary() for name in selection.read if name in lookups or name == selection.person}
    if layout.thousands is None:
        numeric = {name: pa.float64() for name in selection.read} | texts
        try:
            return _table(path, layout, numeric, names)
        except _NotNumbers:
            pass
    return _table(path, layout, dict.fromkeys(selection.read, pa.binary()), names)


class _NotNumbers(ValueError):
    """A cell is not a number."""


def _table(path: Path, layout: TextFormat, kinds: Mapping[str, pa.DataType], names: Sequence[str]) -> pa.Table:
    options = pa.csv.ConvertOptions(
        include_columns=list(kinds),
        column_types=dict(kinds),
        null_values=list(MISSING),
        decimal_point=layout.decimal,
        check_utf8=False,
    )
    mark = new_secret().hex()  # no line of the file equals it
    last_line, reached_end = mark if len(names) > 1 else f"{mark}{layout.sep}", False

    def handle_invalid_row(row: Any) -> str:
        nonlocal reached_end
        reached_end = reached_end or row.text == last_line
        return "skip" if row.text == last_line else "error"

    quotes = _has_quotes(path)
    parsing = pa.csv.ParseOptions(
        delimiter=layout.sep,
        ignore_empty_lines=len(names) > 1,  # in a single column, an empty line is a row with a missing entry
        newlines_in_values=quotes,
        invalid_row_handler=handle_invalid_row if quotes else None,  # Arrow keeps it until the process ends
    )
    message = ""
    for block_size in BLOCK_SIZES:
        reading = pa.csv.ReadOptions(block_size=block_size)
        try:
            with _opened(path, layout) as file, _no_unraisable_messages():
                text = _WithLastLine(file, last_line) if quotes else file
                table = pa.csv.read_csv(text, read_options=reading, parse_options=parsing, convert_options=options)
        except (pa.ArrowException, *_UNREADABLE) as error:
            message = str(error)
            if not message.startswith("straddling"):
                break
        else:
            if quotes and not reached_end:
                raise ValueError(f"{path} has an entry with an opening quote but no closing one.")
            return table
    if re.match(r"[Ii]n CSV column #", message):  # at its beginning: what follows may quote cells
        raise _NotNumbers
    raise ValueError(_plain_message(message, path, names))


@contextmanager
def _no_unraisable_messages() -> Iterator[None]:
    """Suppress Python's message about a row of another length that is not UTF-8, which would quote a byte of it."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _has_quotes(path: Path) -> bool:
    """Whether entries may be in quotes: then a row may have several lines, and reading takes 1.5 times as long."""
    if path.suffix.lower() not in SEPARATORS:
        return True
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(b'"') >= 0
        except (OSError, ValueError):  # the file is empty or cannot be mapped
            return True


class _WithLastLine(io.RawIOBase):
    """A file with an additional last line. Arrow reports it as an invalid row if every quote before it was closed."""

    def __init__(self, file: Any, line: str) -> None:
        self._file, self._line, self._last_byte = file, line, b"\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read(size))
        if data:
            self._last_byte = data[-1:]
        elif self._line:
            line_end = "" if self._last_byte in b"\r\n" else "\n"
            data, self._line = f"{line_end}{self._line}\n".encode(), ""
        return data


def _opened(path: Path, layout: TextFormat) -> Any:
    """The file's bytes, decompressed, in UTF-8; bytes that are invalid in another encoding are replaced."""
    if path.suffix.lower() == ".zip":
        archive = zipfile.ZipFile(path)
        members = [name for name in archive.namelist() if not name.endswith("/")]
        if len(members) != 1:
            raise ValueError(f"{path} must contain one file, but it contains {len(members)}.")
        file: Any = archive.open(members[0])
    else:
        file = pa.input_stream(str(path), compression="detect")
    if codecs.lookup(layout.encoding).name == "utf-8":
        return file
    with file:
        return io.BytesIO(file.read().decode(layout.encoding, "replace").encode())


def header(path: Path, layout: TextFormat) -> list[str]:
    """The column names. A first line with a number is a record, and no message quotes it."""
    _check(layout)
    try:
        with _opened(path, layout) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            names = next(csv.reader(text, delimiter=layout.sep), [])
    except (*_UNREADABLE, pa.ArrowException, ValueError) as error:
        if isinstance(error, ValueError) and "must contain one file" in str(error):
            raise
        raise_alone(OSError(_plain_message("", path, [])))
    if not names:
        raise ValueError(
            f"{path} must begin with a line of column names, but it is empty or begins with an empty line."
        )
    if any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        raise ArgumentError(
            "encoding", f"must be another one than {layout.encoding} for {path}, such as cp1252 or utf-16."
        )
    if any(name in MISSING or _is_record(part) for name in names for part in re.split(r"[,;|\t]", name)):
        raise ValueError(f"the first line of {path} must name the columns, but it holds numbers or empty entries.")
    if len(set(names)) < len(names):
        repeated = [str(j + 1) for j, name in enumerate(names) if name in names[:j]]
        raise ValueError(
            f"the first line of {path} must name each column once, but column {', '.join(repeated)} has the name "
            "of an earlier one: rename it in the file."
        )
    return names


def _check(layout: TextFormat) -> None:
    for name, value in (("sep", layout.sep), ("decimal", layout.decimal), ("thousands", layout.thousands)):
        if value is None and name == "thousands":
            continue
        if not isinstance(value, str) or len(value) != 1 or value in '"\r\n' or value.isalnum():
            raise ArgumentError(name, "must be one character that is neither a letter, a digit nor a quote.")
    if layout.sep == layout.decimal:
        raise ArgumentError("sep", "and ", Argument("decimal"), " must differ.")
    if layout.thousands in (layout.sep, layout.decimal):
        raise ArgumentError("thousands", "must differ from sep and decimal.")
    try:
        "".encode(layout.encoding)  # raises for codecs that do not encode texts
    except (LookupError, TypeError):
        raise ArgumentError(
            "encoding", "must be the name of a text encoding, such as utf-8, cp1252 or latin-1."
        ) from None


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes as texts; invalid UTF-8 is replaced, cell by cell."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _standard_numbers(column: pa.ChunkedArray, layout: TextFormat) -> pa.ChunkedArray:
    """Numbers spelled with a decimal point and without a thousands separator."""
    if layout.thousands is not None:
        column = pc.replace_substring(column, layout.thousands, "")
    if layout.decimal != ".":
        column = pc.replace_substring(pc.replace_substring(column, ".", "?"), layout.decimal, ".")
    return column


def _refuse_separator(path: Path, names: Sequence[str], layout: TextFormat) -> None:
    """Raise an error if the only column seems to be several columns with another separator."""
    other = next((mark for mark in (";", "\t", "|", ",") if mark != layout.sep and mark in names[0]), None)
    if len(names) == 1 and other is not None:
        mark = "a tab" if other == "\t" else repr(other)
        raise ArgumentError("sep", f"must be {mark}, by which the entries of {path} seem to be separated.")


def _plain_message(message: str, path: Path, names: Sequence[str]) -> str:
    if "Expected" in message and "columns, got" in message:
        return f"every row of {path} must have {len(names)} entries, as its first line has, but one has not."
    return f"{path} cannot be read as CSV: it is damaged or not text with one row on each line."


def _is_record(text: str) -> bool:
    """Whether an entry of the first line cannot be a name: a number, a date, a time, an e-mail address."""
    text = text.strip(" \"'")
    dated = re.fullmatch(r"[\d\s.:/TZ+-]*\d[\d\s.:/TZ+-]*|.*@.*", text)
    return not math.isnan(number(text.replace(",", "."))) or bool(dated)
