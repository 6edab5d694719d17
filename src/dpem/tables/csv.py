"""Tables in text files (CSV), read once into memory. A cell that is not what its column holds is missing.

Arrow's own messages quote cells and rows; these do not, and of the first line, which may be a record, they repeat only
what the caller named.
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

#: Files of text by how their names end, and what stands between entries.
TEXTS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
#: How a compressed one's name ends.
COMPRESSED = (".gz", ".bz2", ".zip")

#: Bytes that are parsed at a time: no row may be longer, so more are tried where one is.
BLOCKS = (1 << 20, 1 << 26, 2**31 - 1)

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
        return cls(TEXTS[kind_of(path)] if sep is None else sep, decimal, *more)


def kind_of(path: Path) -> str:
    """The ending of a file's name, without that of a compression.

    >>> kind_of(Path("visits.CSV.gz"))
    '.csv'
    """
    name = path.name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    kind = Path(name).suffix
    return kind if kind in TEXTS else path.suffix.lower()


def read_csv(path: Path, layout: TextFormat, wanted: Mapping[str, Any]) -> FrameSource:
    """The wanted columns in memory."""
    _check(layout)
    names = header(path, layout)
    columns, target, person = (wanted.get(what) for what in ("columns", "target", "person"))
    levels: Mapping[str, Levels] = wanted.get("levels") or {}
    requested = () if columns is None or isinstance(columns, str) else columns
    declared = {name for name in (*requested, *wanted["exclude"], *levels, target, person) if isinstance(name, str)}
    unknown = sorted(declared - set(names))
    if unknown:
        _refuse_separator(path, names, layout)
        # A first line that has another of the names is a header, and may be quoted; else it may be a record.
        hint = suggestion(unknown[0], names if declared & set(names) else [], ": its first line must name the columns.")
        raise ValueError(f"{path} has no column {unknown[0]!r}{hint}")
    schema = pa.schema([(name, pa.float64()) for name in names])
    selection = select(schema, columns, target, exclude=wanted["exclude"], levels=levels, person=person)
    _refuse_separator(path, names, layout)
    table = _cells(path, layout, selection, names)
    if table.num_rows == 0:
        raise ValueError(f"{path} has a header but no rows.")
    lookups = {name for name, each in levels.items() if each.needs_lookup}
    converted = {}
    cells = {name: table.column(name) for name in selection.read}
    many_passes = table.num_rows * selection.row_bytes > CACHE_BYTES  # each would join a column's pieces again
    del table  # a column's pieces go as soon as they are one
    for name in selection.read:
        column = cells.pop(name)
        if name == person:
            converted[name] = _decoded(column)
            continue
        if pa.types.is_binary(column.type):
            column = _decoded(column)
            column = pa.array(selection.numbers(name, column if name in lookups else _standard_numbers(column, layout)))
        converted[name] = column.combine_chunks() if many_passes and isinstance(column, pa.ChunkedArray) else column
    plain = Selection(selection.features, target, selection.dtype, person=person)
    source = FrameSource(Frame(pa.table(converted)), plain)
    source.text_levels = dict(selection.levels)
    return source


def kept_columns(path: Path, layout: TextFormat, names: Sequence[str]) -> pa.Table:
    """Columns of the file, unconverted."""
    known = header(path, layout)
    table = _table(path, layout, dict.fromkeys(names, pa.binary()), known)
    return pa.table({name: _decoded(table.column(name)) for name in names})


def _cells(path: Path, layout: TextFormat, selection: Selection, names: Sequence[str]) -> pa.Table:
    """The cells of the columns that are read: as numbers where every one is a number, else as they are written."""
    lookups = {name for name, each in selection.levels.items() if each.needs_lookup}
    texts = {name: pa.binary() for name in selection.read if name in lookups or name == selection.person}
    if layout.thousands is None:
        numeric = {name: pa.float64() for name in selection.read} | texts
        try:
            return _table(path, layout, numeric, names)
        except _NotNumbers:
            pass
    return _table(path, layout, dict.fromkeys(selection.read, pa.binary()), names)


class _NotNumbers(ValueError):
    """A cell is no number."""


def _table(path: Path, layout: TextFormat, kinds: Mapping[str, pa.DataType], names: Sequence[str]) -> pa.Table:
    options = pa.csv.ConvertOptions(
        include_columns=list(kinds),
        column_types=dict(kinds),
        null_values=list(MISSING),
        decimal_point=layout.decimal,
        check_utf8=False,
    )
    mark = new_secret().hex()  # no line of the file is equal to it
    end, ended = mark if len(names) > 1 else f"{mark}{layout.sep}", False

    def other_length(row: Any) -> str:
        nonlocal ended
        ended = ended or row.text == end
        return "skip" if row.text == end else "error"

    quotes = _has_quotes(path)
    # Where there is one column, an empty line is a row whose entry is missing.
    parsing = pa.csv.ParseOptions(
        delimiter=layout.sep,
        ignore_empty_lines=len(names) > 1,
        newlines_in_values=quotes,
        invalid_row_handler=other_length if quotes else None,  # Arrow's threads may call it until the process ends
    )
    message = ""
    for block in BLOCKS:
        reading = pa.csv.ReadOptions(block_size=block)
        try:
            with _opened(path, layout) as file, _hide_rows():
                text = _Ended(file, end) if quotes else file
                table = pa.csv.read_csv(text, read_options=reading, parse_options=parsing, convert_options=options)
        except (pa.ArrowException, *_UNREADABLE) as error:
            message = str(error)
            if "straddling" not in message:
                break
        else:
            if quotes and not ended:
                raise ValueError(f"{path} has an entry with an opening quote but no closing one.")
            return table
    if re.search(r"[Ii]n CSV column #\d+", message):
        raise _NotNumbers
    raise ValueError(_plain_message(message, path, names))


@contextmanager
def _hide_rows() -> Iterator[None]:
    """Keep quiet about a row of another length that is no UTF-8: Python would print a byte of it."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _has_quotes(path: Path) -> bool:
    """Whether entries may be in quotes: then a line need not be a row, and reading takes half as long again."""
    if path.suffix.lower() not in TEXTS:
        return True
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(b'"') >= 0
        except (OSError, ValueError):  # an empty file, or one that cannot be mapped
            return True


class _Ended(io.RawIOBase):
    """A file with one more line. Arrow reports this line if it begins a row, that is if all quotes were closed."""

    def __init__(self, file: Any, line: str) -> None:
        self._file, self._line, self._last = file, line, b"\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read(size))
        if data:
            self._last = data[-1:]
        elif self._line:
            before = "" if self._last in b"\r\n" else "\n"
            data, self._line = f"{before}{self._line}\n".encode(), ""
        return data


def _opened(path: Path, layout: TextFormat) -> Any:
    """The file's bytes, decompressed, in UTF-8; what another encoding has no letter for is replaced."""
    if path.suffix.lower() == ".zip":
        archive = zipfile.ZipFile(path)
        inside = [name for name in archive.namelist() if not name.endswith("/")]
        if len(inside) != 1:
            raise ValueError(f"{path} must hold one file, but it holds {len(inside)}.")
        file: Any = archive.open(inside[0])
    else:
        file = pa.input_stream(str(path), compression="detect")
    if codecs.lookup(layout.encoding).name == "utf-8":
        return file
    with file:
        return io.BytesIO(file.read().decode(layout.encoding, "replace").encode())


def header(path: Path, layout: TextFormat) -> list[str]:
    """The column names. A line of numbers is a record, not a header, and no message may quote it."""
    _check(layout)
    try:
        with _opened(path, layout) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            names = next(csv.reader(text, delimiter=layout.sep), [])
    except (*_UNREADABLE, pa.ArrowException, ValueError) as error:
        if isinstance(error, ValueError) and "must hold one file" in str(error):
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
        twice = [str(place + 1) for place, name in enumerate(names) if name in names[:place]]
        raise ValueError(
            f"the first line of {path} must name each column once, but the name of column number {', '.join(twice)} is "
            "that of an earlier one: rename it in the file."
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
        "".encode(layout.encoding)  # refuses codecs that are not of texts
    except (LookupError, TypeError):
        raise ArgumentError(
            "encoding", "must be the name of a text encoding, such as utf-8, cp1252 or latin-1."
        ) from None


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes as texts; what is no UTF-8 is replaced, cell by cell."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _standard_numbers(column: pa.ChunkedArray, layout: TextFormat) -> pa.ChunkedArray:
    """Numbers spelled with a point before decimals and nothing between thousands."""
    if layout.thousands is not None:
        column = pc.replace_substring(column, layout.thousands, "")
    if layout.decimal != ".":
        column = pc.replace_substring(pc.replace_substring(column, ".", "?"), layout.decimal, ".")
    return column


def _refuse_separator(path: Path, names: Sequence[str], layout: TextFormat) -> None:
    """Refuse a file of which one column seems to be several."""
    other = next((mark for mark in (";", "\t", "|", ",") if mark != layout.sep and mark in names[0]), None)
    if len(names) == 1 and other is not None:
        mark = "a tab" if other == "\t" else repr(other)
        raise ArgumentError("sep", f"must be {mark}, by which the entries of {path} seem to be separated.")


def _plain_message(message: str, path: Path, names: Sequence[str]) -> str:
    if "Expected" in message and "columns, got" in message:
        return f"every row of {path} must have {len(names)} entries, as its first line has, but one has not."
    return f"{path} cannot be read as CSV: it is damaged or not text with one row on each line."


def _is_record(text: str) -> bool:
    """Whether an entry of the first line cannot be a name: a number, a date, a time, an address."""
    text = text.strip(" \"'")
    dated = re.fullmatch(r"[\d\s.:/TZ+-]*\d[\d\s.:/TZ+-]*|.*@.*", text)
    return not math.isnan(number(text.replace(",", "."))) or bool(dated)
