"""Tables in files, read through Arrow: Parquet and Arrow IPC (Feather), a file, a folder or a partitioned dataset."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from dpem.query import Chunk
from dpem.tables.base import CHUNK_ROWS
from dpem.tables.columns import Selection, refuse_repeated, rows_of, select
from dpem.tables.frame import ConvertingSource

#: Formats by how a file's name ends.
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
#: Bytes of rows that are converted at a time.
BATCH_BYTES = 384 << 20


class DatasetSource(ConvertingSource):
    """A table in Parquet or Arrow IPC files, of any size: only the named columns are read, a stretch of rows at a time.

    ``data`` is a file, a folder (also one with hive partitions, ``year=2024/part-0.parquet``) or a
    ``pyarrow.dataset.Dataset``. ``columns`` names the features in the order wanted, by default all columns but the
    ``target``, which is the response, and those in ``exclude``. Numbers of every kind are taken: float32 if all
    features are, else float64, to which large integers and decimals are rounded; nulls become NaN. ``levels`` declares
    what the texts of a column can be: each is read as its place among them, and any other text as missing.

    Files are read in the order of their names, so the rows and their order are the same on every pass; if a file has
    changed in between, the pass is refused. The number of rows is taken from the files' metadata and is public. In a
    table with partitions, or one whose files say that they are sorted, a row's place depends on what it holds: it is
    read in float64 and cannot be split into batches.

    >>> import tempfile
    >>> import pyarrow.parquet as pq
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
        dataset = data if isinstance(data, ds.Dataset) else _dataset(Path(data))
        fragments = _fragments(dataset)
        folders = {name for fragment in fragments for name in ds.get_partition_keys(fragment.partition_expression)}
        chosen: dict[str, Any] = {"exclude": exclude, "levels": levels, "spelled": folders, "person": person}
        selection = select(dataset.schema, columns, target, **chosen)
        self.order_may_depend_on_values = any(map(_moves_rows, fragments))
        self._select(selection.double() if self.order_may_depend_on_values else selection)  # see slack
        self._files = [_File(fragment, self._selection) for fragment in fragments]
        if columns is None and not exclude:
            for file in self._files:
                file.refuse_other_columns(dataset.schema)
        self._rows = sum(file.n_rows for file in self._files)
        if self._rows == 0:
            raise ValueError(f"{self._name} has no rows.")

    @property
    def n_rows(self) -> int:
        return self._every.count(self._rows)

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
        selection, begin = self._selection, 0
        names = [
            n for j, n in enumerate(selection.names) if self._reads is None or j in (*self._reads, self.n_features)
        ]
        length = max(1, min(CHUNK_ROWS, BATCH_BYTES // selection.row_bytes))
        for file in self._files:
            for table in file.tables(names, length):
                chunk = rows_of(table.column, selection, self._every.within(begin), self._reads)
                begin += table.num_rows
                if chunk.X.shape[0]:
                    yield chunk

    def people(self) -> Iterator[Any]:
        """Whose row each is, in the order of the rows."""
        self._check_unchanged()
        for file in self._files:
            for table in file.tables([self._selection.person or ""], CHUNK_ROWS):
                yield table.column(0)


class _File:
    """One file of a table (Arrow's fragment), with what is expected of it on every pass."""

    def __init__(self, fragment: ds.Fragment, selection: Selection) -> None:
        self.fragment = fragment
        self.name = without_values(str(getattr(fragment, "path", "the dataset")))
        self.is_parquet = isinstance(fragment, ds.ParquetFileFragment)
        self._folders = ds.get_partition_keys(fragment.partition_expression)
        with one_sentence(self.name):
            stored = fragment.physical_schema
            groups = [group.num_rows for group in fragment.row_groups] if self.is_parquet else [fragment.count_rows()]
            if min(groups, default=0) < 0:
                raise OSError("a row group of negative length")
            self.n_rows = sum(groups)
            self._stamp = self._stamp_now()
        for name in selection.read:
            if name not in self._folders and stored.get_field_index(name) < 0:
                raise ValueError(f"{self.name} lacks the column {name!r} that the table's first file has.")

    def refuse_other_columns(self, schema: pa.Schema) -> None:
        """Where all columns are wanted, refuse one that the table's first file lacks."""
        with one_sentence(self.name):
            other = [name for name in self.fragment.physical_schema.names if schema.get_field_index(name) < 0]
        if other:
            raise ValueError(
                f"{self.name} has a column {other[0]!r} that the table's first file lacks: choose columns."
            )

    def _stamp_now(self) -> tuple[int, int] | None:
        """The file's size and time of change, if it is one."""
        path = getattr(self.fragment, "path", None)
        if path is None:
            return None
        info = self.fragment.filesystem.get_file_info(path)
        return info.size, info.mtime_ns

    def check_unchanged(self) -> None:
        with one_sentence(self.name):
            stamp = self._stamp_now()
        if stamp != self._stamp:
            raise OSError(f"{self.name} has changed or vanished since it was opened.")

    def tables(self, names: Sequence[str], length: int) -> Iterator[pa.Table]:
        """Some of the columns, ``length`` rows at a time, however they are cut in the file."""
        stored, rows = [name for name in names if name not in self._folders], 0
        pages = ds.ParquetFragmentScanOptions(
            use_buffered_stream=True, pre_buffer=False, page_checksum_verification=True
        )
        with one_sentence(self.name):
            scanner = self.fragment.scanner(
                columns=stored,
                batch_size=length,
                batch_readahead=1,
                fragment_readahead=1,
                use_threads=getattr(self.fragment, "path", None) is not None,  # in memory there is nothing to decode
                fragment_scan_options=pages if self.is_parquet else None,
            )
            for table in _of_length(scanner.to_batches(), length):
                rows += table.num_rows
                for name in names:
                    if name in self._folders:
                        table = table.append_column(name, _repeated(self._folders[name], table.num_rows))
                yield table
            if rows != self.n_rows:
                raise OSError("another number of rows than its metadata says")


def _of_length(batches: Iterable[pa.RecordBatch], length: int) -> Iterator[pa.Table]:
    """Tables of ``length`` rows, the last one shorter. Where Arrow cuts batches may depend on how long texts are."""
    pieces, missing = list[pa.RecordBatch](), length
    for batch in batches:
        while batch.num_rows:
            pieces.append(batch.slice(0, missing))
            batch, missing = batch.slice(pieces[-1].num_rows), missing - pieces[-1].num_rows
            if not missing:
                yield pa.Table.from_batches(pieces)
                pieces, missing = [], length
    if pieces:
        yield pa.Table.from_batches(pieces)


def _repeated(value: Any, rows: int) -> pa.Array:
    """The column that a folder's name stands for."""
    return pa.nulls(rows) if value is None else pa.repeat(value, rows)


@contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """One sentence for whatever goes wrong in a file; what Arrow says may quote what is in it."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{name} cannot be read: there is no such file.") from None
    except PermissionError:
        raise PermissionError(f"{name} cannot be read: permission is denied.") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise OSError(f"{name} cannot be read: it is damaged, cut short or not what its name says.") from None


def without_values(path: str) -> str:
    """A file's name for a message: a hive partition's value is an entry of the rows in it.

    >>> without_values("visits/age=93/part-0.parquet")
    'visits/age=…/part-0.parquet'
    """
    return re.sub(r"(?<=/)([^/=]+)=[^/]*(?=/)", r"\1=…", path)


def _dataset(path: Path) -> ds.Dataset:
    """Arrow's view of a file, or of all files of one format in a folder."""
    if path.is_dir():
        # Files that begin with a dot or an underscore are a writer's notes.
        files = (file for file in path.rglob("*") if file.suffix.lower() in FORMATS and file.is_file())
        found = sorted(f for f in files if not any(part[0] in "._" for part in f.relative_to(path).parts))
        formats = {FORMATS[file.suffix.lower()] for file in found}
        if not found:
            raise ValueError(f"{path} holds no Parquet or Arrow file; their names end in {', '.join(FORMATS)}.")
        if len(formats) > 1:
            raise ValueError(f"{path} holds both Parquet and Arrow files; a table must be in one format.")
    elif path.suffix.lower() in FORMATS:
        found, formats = [path], {FORMATS[path.suffix.lower()]}
    else:
        raise ValueError(f"{path} is neither a folder nor a file whose name ends in {', '.join(FORMATS)}.")
    base = str(path if path.is_dir() else path.parent)
    layout = ds.ParquetFileFormat() if formats == {"parquet"} else ds.IpcFileFormat()
    with one_sentence(without_values(str(found[0]))):
        names = layout.inspect(str(found[0]), filesystem=LocalFileSystem()).names
    refuse_repeated(names)  # Arrow would refuse them as damage
    # Columns that folders stand for, ``year`` of ``year=2024``, are read as texts: Arrow would choose a type by looking
    # at all of their values.
    parts = [part for file in found for part in file.relative_to(base).parts[:-1] if "=" in part]
    keys = dict.fromkeys(part.partition("=")[0] for part in parts)
    folders = ds.partitioning(pa.schema([(name, pa.string()) for name in keys]), flavor="hive")
    with one_sentence(str(path)):
        return ds.dataset(list(map(str, found)), format=layout, partitioning=folders, partition_base_dir=base)


def schema_of(path: Path) -> pa.Schema:
    """The names and types of a table's columns: metadata, no row is read."""
    return _dataset(path).schema


def stored_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Columns as they are stored, file by file in the order in which a source reads them."""
    with one_sentence(str(path)):
        return pa.concat_tables([part.to_table(columns=list(names)) for part in _fragments(_dataset(path))])


def _fragments(dataset: ds.Dataset) -> list[ds.Fragment]:
    """The dataset's files in the order of their names."""
    try:
        return sorted(dataset.get_fragments(), key=lambda fragment: str(getattr(fragment, "path", "")))
    except ValueError:
        raise ValueError("a filtered or sorted dataset cannot be read twice alike; write it to a file first.") from None


def _moves_rows(fragment: ds.Fragment) -> bool:
    """Whether a row of this file would be elsewhere if it held something else: in another folder, or further down."""
    if ds.get_partition_keys(fragment.partition_expression):
        return True
    if not isinstance(fragment, ds.ParquetFileFragment):
        return False
    with one_sentence(without_values(str(fragment.path))):
        footer = fragment.metadata
        return footer.num_row_groups > 0 and bool(footer.row_group(0).sorting_columns)
