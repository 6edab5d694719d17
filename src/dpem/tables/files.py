"""A table from a path: which reader goes with which kind of file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpem._validation import ArgumentError
from dpem.tables import csv
from dpem.tables.base import CHUNK_ROWS
from dpem.tables.batches import BatchSource
from dpem.tables.columns import select
from dpem.tables.dataset import FORMATS, DatasetSource, schema_of, stored_columns
from dpem.tables.entries import checked_levels
from dpem.tables.frame import FrameSource

#: Bytes of rows of a .npy file that are held at once.
MAPPED_BYTES = 64 << 20


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    target: str | int | None = None,
    exclude: Sequence[str] = (),
    levels: Mapping[str, Sequence[Any]] | None = None,
    person: str | None = None,
    sep: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
    encoding: str = "utf-8",
    strict: bool = False,
) -> DatasetSource | BatchSource | FrameSource:
    """The rows of a file or folder, to be given to ``fit``.

    - ``.parquet`` and ``.arrow``, ``.feather``, ``.ipc`` files, or a folder of them: read in stretches, of any size;
    - ``.npy``: mapped, of any size; columns are called x0, x1, …, and ``target`` may be a column's number;
    - ``.csv``, ``.tsv``, ``.txt`` and all with ``.gz``, ``.bz2`` or ``.zip``: read into memory, with a header; empty
      entries, NA, NaN and null are missing, and so is what is no number in a column without levels.

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
        Of a column of texts: the texts that it can hold; any other is missing. Levels that are numbers need not be
        given here.
    person : str, optional
        The column that says whose row it is, for estimators with ``person=``. It is no feature.
    sep, decimal, thousands : str
        What stands between the entries of a text file, a comma (a tab in ``.tsv`` and ``.txt``) if not given, before
        decimals, and between thousands (nothing, if not given).
    encoding : str
        Of a text file.
    strict : bool
        Look at a text file's cells and refuse those that are neither numbers nor levels. What it says depends on rows,
        and no guarantee covers that: use it while a table is being made.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "visits.csv"
    >>> _ = path.write_text("age,dose,cost\\n31,0.5,1\\n44,NA,2\\n")
    >>> read_table(path, target="cost").feature_names
    ['age', 'dose']
    """
    where = Path(path)
    kind = csv.kind_of(where)
    if not where.exists():
        raise FileNotFoundError(f"{where} cannot be read: there is no such file or folder.")
    texts = checked_levels(levels)
    if where.is_file() and kind not in (*FORMATS, ".npy", *csv.TEXTS):
        known = ", ".join([*FORMATS, ".npy", *csv.TEXTS]) + ", also with " + ", ".join(csv.COMPRESSED)
        raise ValueError(f"{where} is of an unknown kind; the names of files that can be read end in {known}.")
    if kind == ".npy" and where.is_file():
        return _mapped(where, [*columns, person] if columns and person else columns, target, exclude)
    if isinstance(target, int):
        raise ArgumentError(
            "target", f"must be the name of a column, got the number {target}; only .npy columns have one."
        )
    chosen: dict[str, Any] = {"columns": columns, "target": target, "exclude": exclude, "levels": texts}
    chosen["person"] = person
    if kind in csv.TEXTS and where.is_file():
        return csv.read_csv(where, csv.TextFormat.of(where, sep, decimal, thousands, encoding), chosen, strict=strict)
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
            raise ArgumentError(
                "target", f"must be a column's name or a number from 0 to {len(names) - 1}, got {target}."
            )
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


def columns_of(path: Path, sep: str | None = None, encoding: str = "utf-8") -> list[str]:
    """The names in the first line of a text file, or of the columns of any other."""
    kind = csv.kind_of(path)
    if kind in csv.TEXTS:
        return csv.header(path, csv.TextFormat.of(path, sep, ".", None, encoding))
    if kind == ".npy":
        return [f"x{j}" for j in range(_load(path).shape[1])]
    return list(schema_of(path).names)


def kept_columns(
    path: str | os.PathLike[str], names: Sequence[str], sep: str | None = None, encoding: str = "utf-8"
) -> pa.Table:
    """Columns of a file as they are, in the order of its rows, to stand beside what a model says of them."""
    where = Path(path)
    if not names:
        return pa.table({})
    known = columns_of(where, sep, encoding)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ArgumentError("keep", f"must name columns of {where}, which has no {unknown[0]!r}.")
    kind = csv.kind_of(where)
    if kind in csv.TEXTS:
        return csv.kept_columns(where, csv.TextFormat.of(where, sep, ".", None, encoding), names)
    if kind == ".npy":
        table = _load(where)
        return pa.table({name: np.asarray(table[:, known.index(name)]) for name in names})
    return stored_columns(where, names)
