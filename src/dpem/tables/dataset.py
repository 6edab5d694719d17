"""Tables in Parquet and Arrow IPC (Feather) files: a file, a folder, or a partitioned dataset of Arrow's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from dpem._validation import raise_alone
from dpem.query import Chunk
from dpem.tables.base import CHUNK_ROWS, Stride
from dpem.tables.columns import Selection, refuse_repeated, rows_of, select
from dpem.tables.entries import number
from dpem.tables.frame import ConvertingSource
from dpem.tables.parquet import RowRange, cut_rows, read_ranges

if TYPE_CHECKING:
    from dpem.tables.entries import Column

#: The format of a file, by the ending of its name.
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
#: Bytes of a batch from an IPC file.
BATCH_BYTES = 64 << 20


class DatasetSource(ConvertingSource):
    """A table of any size in Parquet or Arrow IPC files; only the selected columns are read, some rows at a time.

    ``data`` is a file, a folder (also one with hive partitions, ``year=2024/part-0.parquet``) or a
    ``pyarrow.dataset.Dataset``. ``columns`` names the features in the order wanted, by default all columns but the
    ``target``, which is the response, and those in ``exclude``. Rows are float32 if all features are, else float64, to
    which large integers and decimals are rounded; nulls become NaN. ``levels`` declares the texts of a column: each is
    read as the number of its level, and any other text as missing.

    Files are read in the order of their names, so the rows and their order are the same on every pass; if a file has
    changed in between, the pass is refused. The number of rows is taken from the files' metadata and is public. In a
    table with partitions, or with files that are declared as sorted, the position of a row depends on its values: such
    a table is read in float64 and cannot be split into batches.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "visits.parquet"
    >>> pq.write_table(pa.table({"age": [31, 44, 60], "dose": [0.5, None, 2.0], "cost": [1.0, 2.0, 3.0]}), path)
    >>> source = DatasetSource(path, columns=["age", "dose"], target="cost")
    >>> source.n_rows, source.feature_names, source.dtype
    (3, ['age', 'dose'], dtype('float64'))
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | ds.Dataset,
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        exclude: Sequence[str] = (),
        levels: Mapping[str, Any] | None = None,
        person: str | None = None,
    ) -> None:
        self._name = type(data).__name__ if isinstance(data, ds.Dataset) else str(data)
        dataset = data if isinstance(data, ds.Dataset) else _open_dataset(Path(data))
        fragments = _fragments(dataset)
        folders = {name for fragment in fragments for name in ds.get_partition_keys(fragment.partition_expression)}
        options: dict[str, Any] = {"exclude": exclude, "levels": levels, "numeric": folders, "person": person}
        selection = select(dataset.schema, columns, target, **options)
        self.order_may_depend_on_values = any(map(_is_ordered_by_values, fragments))
        self._select(selection.double() if self.order_may_depend_on_values else selection)  # slack requires float64
        self._files = [_File(fragment, self._selection) for fragment in fragments]
        if columns is None and not exclude:
            for file in self._files:
                file.refuse_other_columns(dataset.schema)
        self._rows = sum(file.n_rows for file in self._files)
        if self._rows == 0:
            raise ValueError(f"{self._name} has no rows.")

    @property
    def n_rows(self) -> int:
        return self._stride.count(self._rows)

    def chunks(self) -> Iterator[Chunk]:
        self._check_unchanged()
        yield from super().chunks()

    def chunks_in_memory(self) -> Sequence[Chunk]:
        self._check_unchanged()
        return super().chunks_in_memory()

    def _check_unchanged(self) -> None:
        for file in self._files:
            file.check_unchanged()

    def _converted(self) -> Iterator[Chunk]:
        begin, ranges, reader = 0, [], _ParquetReader()
        for file in self._files:
            if file.is_parquet:
                ranges += file.row_ranges(begin, reader)
            else:
                yield from file.batches(begin, self._stride)
            begin += file.n_rows
        names = self._selection.names
        needed = [name for j, name in enumerate(names) if self._reads is None or j in (*self._reads, self.n_features)]
        yield from read_ranges(ranges, self._selection, self._stride, needed)

    def people(self) -> Iterator[Column]:
        """The column that identifies people, batch by batch in the order of the rows."""
        self._check_unchanged()
        for file in self._files:
            yield from file.column(self._selection.person or "")


class _File:
    """One file of a table (Arrow's fragment), with its rows, row groups and time of change."""

    def __init__(self, fragment: ds.Fragment, selection: Selection) -> None:
        self.fragment, self._selection = fragment, selection
        self.name = without_values(str(getattr(fragment, "path", "the dataset")))
        self.is_parquet = isinstance(fragment, ds.ParquetFileFragment)
        keys = ds.get_partition_keys(fragment.partition_expression)
        self._constant = {}
        for name in keys.keys() & set(selection.names):
            levels = selection.levels.get(name)
            self._constant[name] = number(keys[name]) if levels is None else levels.value(keys[name])
        with hide_arrow_message(self.name):
            stored = fragment.physical_schema
            self.row_groups = [(group.id, group.num_rows) for group in fragment.row_groups] if self.is_parquet else []
            if any(rows < 0 for _, rows in self.row_groups):
                raise OSError("a row group of negative length")
            self.n_rows = sum(rows for _, rows in self.row_groups) if self.is_parquet else fragment.count_rows()
            self._stamp = self._current_stamp()
        for name in selection.read:
            if name not in keys and stored.get_field_index(name) < 0:
                raise ValueError(f"{self.name} lacks the column {name!r} that the table's first file has.")

    def refuse_other_columns(self, schema: pa.Schema) -> None:
        """If all columns are features, refuse one that the table's first file lacks."""
        with hide_arrow_message(self.name):
            others = [name for name in self.fragment.physical_schema.names if schema.get_field_index(name) < 0]
        if others:
            raise ValueError(
                f"{self.name} has a column {others[0]!r} that the table's first file lacks: choose columns."
            )

    def _current_stamp(self) -> tuple[int, int] | None:
        """The file's size and time of change; None for data in memory."""
        path = getattr(self.fragment, "path", None)
        if path is None:
            return None
        info = self.fragment.filesystem.get_file_info(path)
        return info.size, info.mtime_ns

    def check_unchanged(self) -> None:
        with hide_arrow_message(self.name):
            stamp = self._current_stamp()
        if stamp != self._stamp:
            raise OSError(f"{self.name} has changed or vanished since it was opened.")

    def row_ranges(self, begin: int, reader: _ParquetReader) -> list[RowRange]:
        """The rows of a Parquet file, whose first row is row ``begin`` of the table, in ranges that fit in memory."""
        ranges = []
        for indices, skip, rows in cut_rows([rows for _, rows in self.row_groups], self._selection.row_bytes):
            groups = tuple(self.row_groups[i][0] for i in indices)
            decoded = sum(self.row_groups[i][1] for i in indices)
            ranges.append(RowRange(partial(reader.read, self), groups, skip, rows, decoded, begin, self._constant))
            begin += rows
        return ranges

    def column(self, name: str) -> Iterator[Column]:
        """One column as it is stored, or from the folder's name."""
        keys = ds.get_partition_keys(self.fragment.partition_expression)
        with hide_arrow_message(self.name):
            if name in keys:
                yield np.full(self.n_rows, keys[name], dtype=object)
                return
            scanner = self.fragment.scanner(columns=[name], batch_readahead=1, fragment_readahead=1)
            for batch in scanner.to_batches():
                yield batch.column(0)

    def batches(self, begin: int, stride: Stride) -> Iterator[Chunk]:
        """The rows of an IPC file, batch by batch as they are stored."""
        rows = max(1, min(CHUNK_ROWS, BATCH_BYTES // self._selection.row_bytes))
        names = list(self._selection.names)
        with hide_arrow_message(self.name):
            in_memory = getattr(self.fragment, "path", None) is None  # then there is nothing to decode
            scanner = self.fragment.scanner(
                columns=names, batch_size=rows, batch_readahead=1, fragment_readahead=1, use_threads=not in_memory
            )
            for batch in scanner.to_batches():
                chunk = rows_of(batch.column, self._selection, stride.within(begin))
                begin += batch.num_rows
                if chunk.X.shape[0]:
                    yield chunk


class _ParquetReader:
    """Reads row groups of Parquet files, with one file open at a time."""

    def __init__(self) -> None:
        self._file: _File | None = None

    def read(self, file: _File, row_groups: tuple[int, ...], names: list[str]) -> pa.Table:
        with hide_arrow_message(file.name):
            if file is not self._file:
                self._stream = file.fragment.open()
                self._parquet = pq.ParquetFile(self._stream, pre_buffer=False, page_checksum_verification=True)
                self._file = file
            table = self._parquet.read_row_groups(list(row_groups), columns=names)
            if names and len(table) != sum(rows for group, rows in file.row_groups if group in row_groups):
                raise OSError("a row group has another number of rows than the footer states")
            return table


@contextmanager
def hide_arrow_message(name: str) -> Iterator[None]:
    """Replace errors while a file is read: Arrow's messages may quote entries."""
    try:
        yield
    except FileNotFoundError:
        raise_alone(FileNotFoundError(f"{name} cannot be read: there is no such file."))
    except PermissionError:
        raise_alone(PermissionError(f"{name} cannot be read: permission is denied."))
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise_alone(OSError(f"{name} cannot be read: it is damaged, cut short or not what its name says."))


def without_values(path: str) -> str:
    """The name of a file for a message, without the values of hive partitions, which are entries of its rows.

    >>> without_values("visits/age=93/part-0.parquet"), without_values("age=93/part-0.parquet")
    ('visits/age=…/part-0.parquet', 'age=…/part-0.parquet')
    """
    return re.sub(r"(^|(?<=/))([^/=]+)=[^/]*(?=/)", r"\2=…", path)


def _open_dataset(path: Path) -> ds.Dataset:
    """Arrow's dataset of a file, or of all files of one format in a folder."""
    if path.is_dir():
        # Names that begin with a dot or an underscore are those of a writer's metadata.
        files = (file for file in path.rglob("*") if file.suffix.lower() in FORMATS and file.is_file())
        paths = sorted(f for f in files if not any(part[0] in "._" for part in f.relative_to(path).parts))
        formats = {FORMATS[file.suffix.lower()] for file in paths}
        if not paths:
            raise ValueError(f"{path} contains no Parquet or Arrow file; their names end in {', '.join(FORMATS)}.")
        if len(formats) > 1:
            raise ValueError(f"{path} contains both Parquet and Arrow files; a table must have one format.")
    elif path.suffix.lower() in FORMATS:
        paths, formats = [path], {FORMATS[path.suffix.lower()]}
    else:
        raise ValueError(f"{path} is neither a folder nor a file whose name ends in {', '.join(FORMATS)}.")
    base = str(path if path.is_dir() else path.parent)
    layout = ds.ParquetFileFormat() if formats == {"parquet"} else ds.IpcFileFormat()
    with hide_arrow_message(without_values(str(paths[0]))):
        names = layout.inspect(str(paths[0]), filesystem=LocalFileSystem()).names
    refuse_repeated(names)  # Arrow's own error would be taken for damage
    # Columns from the names of folders, such as ``year=2024``, are read as texts: Arrow would choose their types by
    # their values.
    parts = [part for file in paths for part in file.relative_to(base).parts[:-1] if "=" in part]
    keys = dict.fromkeys(part.partition("=")[0] for part in parts)
    folders = ds.partitioning(pa.schema([(name, pa.string()) for name in keys]), flavor="hive")
    with hide_arrow_message(str(path)):
        return ds.dataset(list(map(str, paths)), format=layout, partitioning=folders, partition_base_dir=base)


def schema_of(path: Path) -> pa.Schema:
    """The names and types of a table's columns, from its metadata."""
    return _open_dataset(path).schema


def stored_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Columns as they are stored, file by file in the order in which a source reads them."""
    with hide_arrow_message(str(path)):
        return pa.concat_tables([part.to_table(columns=list(names)) for part in _fragments(_open_dataset(path))])


def _fragments(dataset: ds.Dataset) -> list[ds.Fragment]:
    """The dataset's files in the order of their names."""
    try:
        return sorted(dataset.get_fragments(), key=lambda fragment: str(getattr(fragment, "path", "")))
    except ValueError:
        raise ValueError("a filtered or sorted dataset has no fixed order of rows; write it to a file first.") from None


def _is_ordered_by_values(fragment: ds.Fragment) -> bool:
    """Whether the position of a row depends on its values: on the column of its folder, or on a sorted column."""
    if ds.get_partition_keys(fragment.partition_expression):
        return True
    if not isinstance(fragment, ds.ParquetFileFragment):
        return False
    with hide_arrow_message(without_values(str(fragment.path))):
        footer = fragment.metadata
        return footer.num_row_groups > 0 and bool(footer.row_group(0).sorting_columns)
