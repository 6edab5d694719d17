"""Tables in files: the reader for each kind of file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpem._validation import ArgumentError
from dpem.tables import csv
from dpem.tables.dataset import FORMATS, DatasetSource, schema_of, stored_columns
from dpem.tables.entries import checked_levels
from dpem.tables.frame import FrameSource


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    exclude: Sequence[str] = (),
    levels: Mapping[str, Sequence[Any]] | None = None,
    person: str | None = None,
    sep: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
    encoding: str = "utf-8",
) -> DatasetSource | FrameSource:
    """The rows of a file or folder, to be given to ``fit``.

    - ``.parquet``, ``.arrow``, ``.feather`` and ``.ipc`` files of any size, or a folder of them, read piece by piece;
    - ``.csv``, ``.tsv`` and ``.txt`` files with a header, also with ``.gz``, ``.bz2`` or ``.zip``, read into memory.
      Empty entries, NA, NaN and null are missing, and so is every entry that is not a number in a column without
      levels.

    Parameters
    ----------
    path : str or path
        The file or folder.
    columns : sequence of str, optional
        The features in the order wanted; by default all columns but the target and those in ``exclude``.
    target : str, optional
        The response.
    exclude : sequence of str
        Columns that are not read, such as names of people.
    levels : dict, optional
        The levels of each categorical column of texts; any other text is missing. Columns whose levels are numbers may
        be left out here.
    person : str, optional
        The column that identifies the person of each row, for estimators with ``person=``. It is not a feature.
    sep, decimal, thousands : str
        The separator of a text file (if not given, a comma; a tab in ``.tsv`` and ``.txt``), its decimal mark, and its
        thousands separator (none, if not given).
    encoding : str
        The encoding of a text file.

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
    if where.is_file() and kind not in (*FORMATS, *csv.SEPARATORS):
        known = ", ".join([*FORMATS, *csv.SEPARATORS]) + ", also with " + ", ".join(csv.COMPRESSED)
        raise ValueError(f"{where} is of an unknown kind; the names of files that can be read end in {known}.")
    choice: dict[str, Any] = {"columns": columns, "target": target, "exclude": exclude, "person": person}
    choice["levels"] = checked_levels(levels)
    if kind in csv.SEPARATORS and where.is_file():
        return csv.read_csv(where, csv.TextFormat.of(where, sep, decimal, thousands, encoding), choice)
    return DatasetSource(where, **choice)


def columns_of(path: Path, sep: str | None = None, encoding: str = "utf-8") -> list[str]:
    """The names in the first line of a text file, or of the columns of any other."""
    kind = csv.kind_of(path)
    if kind in csv.SEPARATORS:
        return csv.header(path, csv.TextFormat.of(path, sep, ".", None, encoding))
    return list(schema_of(path).names)


def kept_columns(
    path: str | os.PathLike[str], names: Sequence[str], sep: str | None = None, encoding: str = "utf-8"
) -> pa.Table:
    """Columns of a file as they are stored, in the order of its rows, to write beside predictions."""
    where = Path(path)
    if not names:
        return pa.table({})
    existing = columns_of(where, sep, encoding)
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise ArgumentError("keep", f"must name columns of {where}, which has no {unknown[0]!r}.")
    kind = csv.kind_of(where)
    if kind in csv.SEPARATORS:
        return csv.kept_columns(where, csv.TextFormat.of(where, sep, ".", None, encoding), names)
    return stored_columns(where, names)
