"""A table from a path: which reader goes with which kind of file."""

from __future__ import annotations

import csv
import gzip
import math
import mmap
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from dpem.tables.arrow_table import TableSource
from dpem.tables.base import CHUNK_ROWS
from dpem.tables.batches import BatchSource
from dpem.tables.columns import select
from dpem.tables.dataset import FORMATS, DatasetSource, schema_of, stored_columns
from dpem.tables.entries import MISSING, checked_levels, number

#: Files of text by how their names end, and what stands between entries.
TEXTS = {".csv": ",", ".tsv": "\t"}
#: Bytes of rows of a .npy file that are held at once.
MAPPED_BYTES = 64 << 20


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    target: str | int | None = None,
    exclude: Sequence[str] = (),
    levels: Mapping[str, Sequence[Any]] | None = None,
    sep: str | None = None,
    decimal: str = ".",
) -> DatasetSource | BatchSource | TableSource:
    """The rows of a file or folder, to be given to ``fit``.

    - ``.parquet`` and ``.arrow``, ``.feather``, ``.ipc`` files, or a folder of them: read in stretches, of any size;
    - ``.npy``: mapped, of any size; columns are called x0, x1, …, and ``target`` may be a column's number;
    - ``.csv``, ``.tsv`` and both with ``.gz``: read into memory, with a header; empty entries, NA, NaN and null are
      missing.

    Parameters
    ----------
    path : str or path
        The file or folder.
    columns : sequence of str, optional
        The features in the order wanted; by default all columns but the target and those in ``exclude``.
    target : str or int, optional
        The response.
    exclude : sequence of str
        Columns that are not read, such as a name or a number of a person.
    levels : dict, optional
        Of a column of texts: the texts that it can hold. Each is read as its place among them, any other as missing.
        Levels that are numbers need not be given here.
    sep, decimal : str
        What stands between the entries of a text file, a comma (a tab in ``.tsv``) if not given, and before decimals.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "visits.csv"
    >>> _ = path.write_text("age,dose,cost\\n31,0.5,1\\n44,NA,2\\n")
    >>> read_table(path, target="cost").feature_names
    ['age', 'dose']
    """
    where = Path(path)
    kind = Path(where.name.lower().removesuffix(".gz")).suffix
    kind = kind if kind in TEXTS else where.suffix.lower()
    if not where.exists():
        raise FileNotFoundError(f"{where} cannot be read: there is no such file or folder.")
    texts = {name: own for name, own in checked_levels(levels).items() if own.texts or own.other}
    if where.is_file() and kind not in (*FORMATS, ".npy", *TEXTS):
        known = ", ".join([*FORMATS, ".npy", *TEXTS, *(f"{kind}.gz" for kind in TEXTS)])
        raise ValueError(f"{where} is of an unknown kind; the names of files that can be read end in {known}.")
    if kind == ".npy" and where.is_file():
        return _mapped(where, columns, target, exclude)
    if isinstance(target, int):
        raise ValueError(f"target must be the name of a column, got the number {target}; only .npy columns have one.")
    chosen: dict[str, Any] = {"columns": columns, "target": target, "exclude": exclude, "levels": texts}
    if kind in TEXTS and where.is_file():
        looks = Looks(TEXTS[kind] if sep is None else sep, decimal)
        return _csv(where, looks, chosen)
    return DatasetSource(where, **chosen)


class _Mapped:
    """Batches of a .npy file. Pages that have been read are given back, so that memory stays small."""

    def __init__(self, path: Path, features: list[int], target: int | None) -> None:
        self._path, self._features, self._target = path, features, target

    def __iter__(self) -> Iterator[NDArray | tuple[NDArray, NDArray]]:
        table = _load(self._path)
        every_column = self._features == list(range(table.shape[1]))
        length = max(1, min(CHUNK_ROWS, MAPPED_BYTES // max(1, table.strides[0] or table.itemsize)))
        for first in range(0, table.shape[0], length):
            rows = np.asarray(table[first : first + length])
            X = rows if every_column else rows[:, self._features]
            yield X if self._target is None else (X, rows[:, self._target])
            if isinstance(table.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                table.base.madvise(mmap.MADV_DONTNEED)


def _mapped(path: Path, columns: Sequence[str] | None, target: str | int | None, exclude: Sequence[str]) -> BatchSource:
    table = _load(path)
    if table.ndim != 2 or table.dtype.kind not in "fiub":
        raise ValueError(f"{path} must hold a table of numbers, got {table.ndim} dimension(s) of {table.dtype}.")
    if 0 in table.shape:
        raise ValueError(f"{path} has no rows or no columns: its shape is {table.shape}.")
    names = [f"x{j}" for j in range(table.shape[1])]
    if isinstance(target, int):
        if isinstance(target, bool) or not 0 <= target < len(names):
            raise ValueError(f"target must be a column's name or a number from 0 to {len(names) - 1}, got {target}.")
        target = names[target]
    chosen = select(pa.schema([(name, pa.float64()) for name in names]), columns, target, exclude=exclude)
    place = {name: j for j, name in enumerate(names)}
    batches = _Mapped(
        path, [place[n] for n in chosen.features], None if chosen.target is None else place[chosen.target]
    )
    return BatchSource(batches, n_rows=table.shape[0], feature_names=chosen.features, fixed_order=True)


def _load(path: Path) -> NDArray:
    try:
        return np.lib.format.open_memmap(path, mode="r")  # knows neither pickles nor archives
    except Exception:  # what a damaged header makes numpy raise is not documented
        raise OSError(f"{path} cannot be read: it is damaged, cut short or not an array of numbers.") from None


class Looks(NamedTuple):
    """How a text file is written: what stands between entries, and before decimals."""

    sep: str
    decimal: str


def columns_of(path: Path, sep: str | None = None) -> list[str]:
    """The names in the first line of a text file, or of the columns of any other."""
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind in TEXTS:
        return _header(path, Looks(TEXTS[kind] if sep is None else sep, "."))
    if kind == ".npy":
        return [f"x{j}" for j in range(_load(path).shape[1])]
    return list(schema_of(path).names)


def kept_columns(path: str | os.PathLike[str], names: Sequence[str], sep: str | None = None) -> pa.Table:
    """Columns of a file as they are, in the order of its rows, to stand beside what a model says of them."""
    where = Path(path)
    if not names:
        return pa.table({})
    known = columns_of(where, sep)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"keep must name columns of {where}, which has no {unknown[0]!r}.")
    kind = Path(where.name.lower().removesuffix(".gz")).suffix
    if kind in TEXTS:
        looks = Looks(TEXTS[kind] if sep is None else sep, ".")
        try:
            return _arrow(where, looks, list(names), dict.fromkeys(names, pa.string()))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(_plainly(str(error), where, known)) from None
    if kind == ".npy":
        table = _load(where)
        return pa.table({name: np.asarray(table[:, known.index(name)]) for name in names})
    return stored_columns(where, names)


def _csv(path: Path, looks: Looks, wanted: Mapping[str, Any]) -> TableSource:
    """The wanted columns as float64, texts as their places among levels. Arrow's own messages quote entries and rows;
    these do not, and of the first line, which may be a record, they repeat only what the caller named.
    """
    for name, value in looks._asdict().items():
        if not isinstance(value, str) or len(value) != 1 or value in '"\r\n' or value.isalnum():
            raise ValueError(f"{name} must be one character that is neither a letter, a digit nor a quote.")
    if looks.sep == looks.decimal:
        raise ValueError("sep and decimal must differ.")
    names = _header(path, looks)
    columns, target, levels = wanted["columns"], wanted["target"], wanted["levels"]
    listed = () if columns is None or isinstance(columns, str) else columns
    named = {name for name in (*listed, *wanted["exclude"], *levels, target) if isinstance(name, str)}
    unknown = sorted(named - set(names))
    if unknown:
        hint = _separated(names, looks)
        raise ValueError(f"the first line of {path}, which must name the columns, has no {unknown[0]!r}{hint}.")
    kinds = {name: pa.string() if name in levels else pa.float64() for name in names}
    chosen = select(pa.schema(list(kinds.items())), columns, target, exclude=wanted["exclude"], levels=levels)
    if len(names) == 1 and _separated(names, looks):
        raise ValueError(f"{path} was read as a single column{_separated(names, looks)}.")
    kept, odd = list(chosen.names), []
    while True:
        try:
            table = _arrow(path, looks, kept, kinds)
            break
        except (pa.ArrowException, OSError) as error:
            place = _odd_column(str(error), names)
            if place is None or names[place] not in kept:
                raise ValueError(_plainly(str(error), path, names)) from None
            odd.append(place)
            kept.remove(names[place])
            if not kept:
                break
    if odd:
        raise ValueError(_not_numbers(odd, path, names, named))
    if table.num_rows == 0:
        raise ValueError(f"{path} has a header but no rows.")
    return TableSource(table, chosen)


def _arrow(path: Path, looks: Looks, names: list[str], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    options = pa.csv.ConvertOptions(
        include_columns=names,
        column_types={name: kinds[name] for name in names},
        null_values=list(MISSING),
        decimal_point=looks.decimal,
    )
    return pa.csv.read_csv(path, parse_options=pa.csv.ParseOptions(delimiter=looks.sep), convert_options=options)


def _odd_column(said: str, names: Sequence[str]) -> int | None:
    """The place of the column that Arrow stumbled over."""
    column = re.search(r"[Ii]n CSV column #(\d+)", said)
    return int(column[1]) if column is not None and int(column[1]) < len(names) else None


def _not_numbers(places: Sequence[int], path: Path, names: Sequence[str], named: Collection[str]) -> str:
    """Every column that holds anything but numbers, at once; a name is repeated only if the caller gave it."""
    shown = [repr(names[j]) if names[j] in named else f"number {j + 1}" for j in sorted(places)]
    one = len(shown) == 1
    which = f"{'column' if one else 'columns'} {', '.join(shown)}"
    what = "an entry that is not a number" if one else "entries that are not numbers"
    return f"{which} of {path} {'holds' if one else 'hold'} {what}; exclude {'it' if one else 'them'}, or give levels."


def _separated(names: Sequence[str], looks: Looks) -> str:
    """A hint where one column seems to be several."""
    other = next((mark for mark in (";", "\t", "|", ",") if mark != looks.sep and mark in names[0]), None)
    if len(names) > 1 or other is None:
        return ""
    return f"; its entries seem to be separated by {'a tab' if other == chr(9) else repr(other)}: give sep={other!r}"


def _plainly(said: str, path: Path, names: Sequence[str]) -> str:
    if "Expected" in said and "columns, got" in said:
        return f"every row of {path} must have {len(names)} entries, as its first line has, but one has not."
    return f"{path} cannot be read as CSV: it is damaged or not UTF-8 text with one row on each line."


def _header(path: Path, looks: Looks) -> list[str]:
    """The column names. A line of numbers is a record, not a header, and no message may quote it."""
    open_text = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig") as file:
            names = next(csv.reader(file, delimiter=looks.sep), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error):
        raise OSError(_plainly("", path, [])) from None
    if not names:
        raise ValueError(
            f"{path} must begin with a line of column names, but it is empty or begins with an empty line."
        )
    if any(name in MISSING or _is_record(part) for name in names for part in re.split(r"[,;|\t]", name)):
        raise ValueError(f"the first line of {path} must name the columns, but it holds numbers or empty entries.")
    if len(set(names)) < len(names):
        raise ValueError(f"the first line of {path} must name the columns, but an entry of it is there twice.")
    return names


def _is_record(text: str) -> bool:
    """Whether an entry of the first line cannot be a name: a number, a date, a time, an address."""
    text = text.strip(" \"'")
    return not math.isnan(number(text.replace(",", "."))) or bool(
        re.fullmatch(r"[\d\s.:/TZ+-]*\d[\d\s.:/TZ+-]*|.*@.*", text)
    )
