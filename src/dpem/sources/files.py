"""A table from a path: which reader goes with which kind of file."""

from __future__ import annotations

import csv
import gzip
import mmap
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
from numpy.typing import NDArray

from dpem.sources.base import CHUNK_ROWS
from dpem.sources.batches import BatchSource
from dpem.sources.columns import select
from dpem.sources.dataset import FORMATS, DatasetSource

#: Entries of a CSV file that stand for a missing number.
MISSING = ("", "NA", "NaN", "nan", "null")
#: Bytes of rows of a .npy file that are held at once.
MAPPED_BYTES = 64 << 20


def read_table(
    path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, target: str | int | None = None
) -> DatasetSource | BatchSource:
    """The rows of a file or folder, to be given to ``fit``.

    - ``.parquet`` and ``.arrow``, ``.feather``, ``.ipc`` files, or a folder of them: read in stretches, of any size;
    - ``.npy``: mapped, of any size; columns are called x0, x1, …, and ``target`` may be a column's number;
    - ``.csv`` and ``.csv.gz``: read into memory, with a header; empty entries, NA, NaN and null are missing.

    ``columns`` names the features in the order wanted, by default all but the ``target``, which is the response.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "visits.csv"
    >>> _ = path.write_text("age,dose,cost\\n31,0.5,1\\n44,NA,2\\n")
    >>> read_table(path, target="cost").feature_names
    ['age', 'dose']
    """
    where = Path(path)
    kind = ".csv" if where.name.lower().endswith(".csv.gz") else where.suffix.lower()
    if not where.exists():
        raise FileNotFoundError(f"{where} cannot be read: there is no such file or folder.")
    if where.is_file() and kind not in (*FORMATS, ".npy", ".csv"):
        known = ", ".join([*FORMATS, ".npy", ".csv", ".csv.gz"])
        raise ValueError(f"{where} is of an unknown kind; the names of files that can be read end in {known}.")
    if kind == ".npy" and where.is_file():
        return _mapped(where, columns, target)
    if isinstance(target, int):
        raise ValueError(f"target must be the name of a column, got the number {target}; only .npy columns have one.")
    if kind == ".csv" and where.is_file():
        return DatasetSource(ds.dataset(_csv(where, columns, target)), columns=columns, target=target)
    return DatasetSource(where, columns=columns, target=target)


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


def _mapped(path: Path, columns: Sequence[str] | None, target: str | int | None) -> BatchSource:
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
    chosen = select(pa.schema([(name, pa.float64()) for name in names]), columns, target)
    place = {name: j for j, name in enumerate(names)}
    batches = _Mapped(
        path, [place[n] for n in chosen.features], None if chosen.target is None else place[chosen.target]
    )
    return BatchSource(batches, n_rows=table.shape[0], feature_names=chosen.features)


def _load(path: Path) -> NDArray:
    try:
        return np.lib.format.open_memmap(path, mode="r")  # knows neither pickles nor archives
    except Exception:  # what a damaged header makes numpy raise is not documented
        raise OSError(f"{path} cannot be read: it is damaged, cut short or not an array of numbers.") from None


def _csv(path: Path, columns: Sequence[str] | None, target: str | None) -> pa.Table:
    """The wanted columns as float64. Arrow's own messages quote entries and rows; these do not, and of the first line,
    which may be a record, they repeat only what the caller named.
    """
    names = _header(path)
    listed = () if columns is None or isinstance(columns, str) else columns
    named = {name for name in (*listed, target) if isinstance(name, str)}
    unknown = sorted(named - set(names))
    if unknown:
        raise ValueError(f"the first line of {path}, which must name the columns, has no {unknown[0]!r}.")
    chosen = select(pa.schema([(name, pa.float64()) for name in names]), columns, target)
    options = pa.csv.ConvertOptions(
        include_columns=list(chosen.names),
        column_types=dict.fromkeys(chosen.names, pa.float64()),
        null_values=list(MISSING),
    )
    try:
        table = pa.csv.read_csv(path, convert_options=options)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(_plainly(str(error), path, names, named)) from None
    if table.num_rows == 0:
        raise ValueError(f"{path} has a header but no rows.")
    return table


def _plainly(said: str, path: Path, names: Sequence[str], named: Collection[str] = ()) -> str:
    if "Expected" in said and "columns, got" in said:
        return f"every row of {path} must have {len(names)} entries, as its first line has, but one has not."
    column = re.search(r"[Ii]n CSV column #(\d+)", said)
    if column is not None and int(column[1]) < len(names):
        place = int(column[1])
        which = f"column {names[place]!r}" if names[place] in named else f"column number {place + 1}"
        return f"{which} of {path} holds an entry that is not a number; leave it out by columns=."
    return f"{path} cannot be read as CSV: it is damaged or not UTF-8 text with one row on each line."


def _header(path: Path) -> list[str]:
    """The column names. A line of numbers is a record, not a header, and no message may quote it."""
    open_text = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig") as file:
            names = next(csv.reader(file), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error):
        raise OSError(_plainly("", path, [])) from None
    if not names:
        raise ValueError(
            f"{path} must begin with a line of column names, but it is empty or begins with an empty line."
        )
    if any(name in MISSING or _is_number(name) for name in names):
        raise ValueError(f"the first line of {path} must name the columns, but it holds numbers or empty entries.")
    if len(set(names)) < len(names):
        raise ValueError(f"the first line of {path} must name the columns, but an entry of it is there twice.")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
