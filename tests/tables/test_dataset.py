"""Tables in files: the rows are those that were written, whatever the layout, and bad files get one sentence."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from dpem.query import Bound
from dpem.tables import DatasetSource
from dpem.tables import dataset as dataset_module
from dpem.tables import frame as frame_module
from dpem.tables import parquet as parquet_module
from dpem.tables.entries import number

NAMES = ["a", "b", "c"]


def table(X, names=None, kind=None):
    names = names or [f"x{j}" for j in range(X.shape[1])]
    return pa.table({name: pa.array(column, type=kind) for name, column in zip(names, X.T, strict=True)})


def rows(source):
    """All rows, and the responses. A chunk is overwritten by the next, hence the copies."""
    chunks = [(np.array(chunk.X), None if chunk.y is None else np.array(chunk.y)) for chunk in source.chunks()]
    X = np.concatenate([X for X, _ in chunks])
    return (X, np.concatenate([y for _, y in chunks])) if source.has_response else X


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((1_003, 3))


@pytest.mark.parametrize("group", [1, 7, 100, 1_003, 5_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parquet_gives_the_rows_that_were_written(tmp_path, X, dtype, group):
    X = X.astype(dtype)
    pq.write_table(table(X, NAMES), tmp_path / "t.parquet", row_group_size=group)
    source = DatasetSource(tmp_path / "t.parquet")
    assert (source.n_rows, source.n_features, source.dtype, source.feature_names) == (1_003, 3, dtype, NAMES)
    assert not source.has_response
    read = rows(source)
    assert read.dtype == dtype
    np.testing.assert_array_equal(read, X)
    np.testing.assert_array_equal(rows(source), X)  # and again


@pytest.mark.parametrize(
    ("small", "largest", "group"), [(0, 240, 24), (240, 480, 24), (10**6, 10**6, 10**9), (0, 1, 1)]
)
@pytest.mark.parametrize("parts", [1, 3, 10])
def test_any_ranges_and_any_split_give_the_same_rows(tmp_path, monkeypatch, X, small, largest, group, parts):
    """Row groups read together, alone and in several stretches; one or all columns at a time."""
    for name, value in (("SMALL", small), ("LARGEST", largest), ("GROUP", group)):
        monkeypatch.setattr(parquet_module, name, value)
    X = X[:23]
    pq.write_table(table(X, NAMES), tmp_path / "t.parquet", row_group_size=7)
    batches = DatasetSource(tmp_path / "t.parquet", target="b").split(parts)
    for t, batch in enumerate(batches):
        read, y = rows(batch)
        np.testing.assert_array_equal(read, X[t::parts][:, [0, 2]])
        np.testing.assert_array_equal(y, X[t::parts, 1])
        assert batch.n_rows == len(y)
    again = batches[-1].split(2)[1]
    np.testing.assert_array_equal(rows(again)[1], X[parts - 1 :: parts, 1][1::2])


def test_chunks_are_bounded_and_the_same_on_every_pass(tmp_path):
    X = np.arange(150_000, dtype=np.float32)[:, None]
    pq.write_table(table(X), tmp_path / "t.parquet")
    source = DatasetSource(tmp_path / "t.parquet")
    lengths = [chunk.X.shape[0] for chunk in source.chunks()]
    assert max(lengths) <= parquet_module.CHUNK_ROWS
    assert lengths == [chunk.X.shape[0] for chunk in source.chunks()]
    assert len(lengths) == 3
    np.testing.assert_array_equal(rows(source), X)


def test_columns_come_in_the_order_wanted_and_no_others_are_read(tmp_path, X, monkeypatch):
    pq.write_table(table(X, NAMES).append_column("text", pa.array(["u"] * len(X))), tmp_path / "t.parquet")
    columns_read = []
    read = dataset_module._ParquetReader.read
    monkeypatch.setattr(
        dataset_module._ParquetReader,
        "read",
        lambda self, file, groups, names: columns_read.extend(names) or read(self, file, groups, names),
    )
    source = DatasetSource(tmp_path / "t.parquet", columns=["c", "a"])
    np.testing.assert_array_equal(rows(source), X[:, [2, 0]])
    assert columns_read == ["c", "a"]


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_a_large_table_is_read_as_needed_and_a_small_one_once(tmp_path, X, monkeypatch, kept):
    monkeypatch.setattr(frame_module, "CACHE_BYTES", kept)
    pq.write_table(table(X, NAMES), tmp_path / "t.parquet", row_group_size=100)
    source = DatasetSource(tmp_path / "t.parquet", columns=["c", "a"], target="b")
    columns_read = set()
    read = dataset_module._ParquetReader.read

    def spied(self, file, groups, names):
        columns_read.update(names)
        return read(self, file, groups, names)

    monkeypatch.setattr(dataset_module._ParquetReader, "read", spied)

    class Products:
        label, bound, blocked, reads = "products", Bound.symmetric(linf=9.0), False, np.array([1])

        def sum(self, chunk):
            return np.array([chunk.X[:, 1] @ chunk.y])

    np.testing.assert_allclose(source.total(Products()), X[:, 0] @ X[:, 1], rtol=1e-12)
    assert columns_read == ({"a", "b", "c"} if kept else {"a", "b"})
    columns_read.clear()
    np.testing.assert_array_equal(rows(source)[0], X[:, [2, 0]])
    assert columns_read == (set() if kept else {"a", "b", "c"})
    np.testing.assert_array_equal(rows(source.split(2)[1])[1], X[1::2, 1])


def test_every_numeric_type_is_read(tmp_path):
    columns = {
        "bool": pa.array([True, None, False]),
        "int": pa.array([1, None, -3], type=pa.int16()),
        "half": pa.array(np.array([0.5, 1.5, 2.5], dtype=np.float16)),
        "single": pa.array([0.25, None, 1.0], type=pa.float32()),
        "decimal": pa.array([Decimal("1.10"), None, Decimal("-2.30")]),
        "empty": pa.array([None, None, None], type=pa.float64()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    nan = np.nan
    expected = [[1, 1, 0.5, 0.25, 1.1, nan], [nan, nan, 1.5, nan, nan, nan], [0, -3, 2.5, 1, -2.3, nan]]
    source = DatasetSource(tmp_path / "t.parquet")
    assert source.dtype == np.float64
    np.testing.assert_allclose(rows(source), expected, rtol=3e-16)  # decimals: to the last bit but one


def test_folders_partitions_and_the_order_of_files(tmp_path, X):
    """Files in the order of their names; what a folder's name says is a column; notes of writers are left alone."""
    for year, (first, last) in {2024: (500, 1_003), 2021: (0, 500)}.items():
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        pq.write_table(table(X[first:last], NAMES), folder / "part-0.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.txt").write_text("")
    years = np.where(np.arange(1_003) < 500, 2021.0, 2024.0)
    source = DatasetSource(tmp_path)
    assert source.feature_names == [*NAMES, "year"]
    np.testing.assert_array_equal(rows(source), np.column_stack([X, years]))
    read, y = rows(DatasetSource(tmp_path, columns=["b"], target="year"))
    np.testing.assert_array_equal(y, years)
    np.testing.assert_array_equal(read, X[:, [1]])
    part = DatasetSource(tmp_path, columns=["year"]).split(3)[1]
    np.testing.assert_array_equal(rows(part)[:, 0], years[1::3])


def test_arrow_files_and_datasets(tmp_path, X):
    pa.feather.write_feather(table(X, NAMES), tmp_path / "t.feather", chunksize=100)
    for data in (tmp_path / "t.feather", str(tmp_path / "t.feather"), ds.dataset(table(X, NAMES))):
        read, y = rows(DatasetSource(data, columns=["c", "a"], target="b"))
        np.testing.assert_array_equal(read, X[:, [2, 0]])
        np.testing.assert_array_equal(y, X[:, 1])
        parts = [rows(part)[1] for part in DatasetSource(data, target="b").split(7)]
        for t, y in enumerate(parts):
            np.testing.assert_array_equal(y, X[t::7, 1])


def test_subset_of_row_groups(tmp_path, X):
    pq.write_table(table(X, NAMES), tmp_path / "t.parquet", row_group_size=100)
    (fragment,) = ds.dataset(tmp_path / "t.parquet").get_fragments()
    some = fragment.subset(row_group_ids=[1, 4])
    data = ds.FileSystemDataset([some], some.physical_schema, some.format, some.filesystem)
    np.testing.assert_array_equal(rows(DatasetSource(data)), np.concatenate([X[100:200], X[400:500]]))


# --- Refusals: one sentence each, before a row is read ----------------------------------------------------------------


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "columns 'text', 'when' are not numeric (text, dates or times); leave them out, or declare levels for the "
            "texts.",
        ),
        (
            {"columns": ["x", "text"]},
            "column 'text' is not numeric (text); name only numeric columns, or declare its levels.",
        ),
        ({"columns": ["wieght"]}, "there is no column 'wieght'; did you mean 'weight'?"),
        ({"columns": ["x"], "target": "wight"}, "there is no column 'wight'; did you mean 'weight'?"),
        ({"columns": ["x", "x"]}, "columns and target must name each column once; 'x' is repeated."),
        ({"columns": ["x"], "target": "x"}, "columns and target must name each column once; 'x' is repeated."),
        ({"columns": []}, "the table has no column of features."),
        ({"columns": "x"}, "columns must be a list of column names or None."),
        ({"target": 3}, "target must be the name of a column or None, got int."),
    ],
)
def test_refused_columns(tmp_path, options, message):
    columns = {"x": [1.0], "weight": [2.0], "text": ["secret"], "when": pa.array([0], pa.date32())}
    with pytest.raises(ValueError, match="column") as refusal:
        DatasetSource(write(tmp_path / "t.parquet", **columns), **options)
    assert str(refusal.value) == message


def test_a_null_column_is_missing(tmp_path):
    """Whether a column has any value at all may depend on one row."""
    source = DatasetSource(write(tmp_path / "t.parquet", x=[1.0], n=pa.nulls(1)))
    np.testing.assert_array_equal(next(source.chunks()).X, [[1.0, np.nan]])


def test_repeated_names(tmp_path):
    pq.write_table(pa.table([pa.array([1.0]), pa.array([2.0])], names=["x", "x"]), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"^column names must differ, but these are repeated: 'x'\.$"):
        DatasetSource(tmp_path / "t.parquet")


@pytest.mark.parametrize("keep", [0, 3, 100, -1])
@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_files_cut_short(tmp_path, X, keep, suffix):
    whole, cut = tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
    (pq.write_table if suffix == ".parquet" else pa.feather.write_feather)(table(X), whole)
    cut.write_bytes(whole.read_bytes()[:keep])
    with pytest.raises(
        OSError, match=r"cut\.\w+ cannot be read: it is damaged, cut short or not what its name says\.$"
    ):
        DatasetSource(cut)


def test_damage_that_shows_while_reading(tmp_path):
    """Pages whose checksum is wrong: the sentence comes from the reading thread, and quotes nothing."""
    path = tmp_path / "t.parquet"
    pq.write_table(
        table(np.full((5_000, 1), 123.25)), path, use_dictionary=False, write_page_checksum=True, compression="none"
    )
    content = bytearray(path.read_bytes())
    content[20_000:20_008] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"t\.parquet cannot be read") as refusal:
        rows(DatasetSource(path))
    assert "123" not in str(refusal.value)
    assert refusal.value.__context__ is None


def test_folders_without_a_table_are_refused(tmp_path):
    with pytest.raises(ValueError, match="contains no Parquet or Arrow file"):
        DatasetSource(tmp_path)
    write(tmp_path / "a.parquet", x=[1.0], y=[1.0])
    pa.feather.write_feather(pa.table({"x": [1.0]}), tmp_path / "b.arrow")
    with pytest.raises(ValueError, match="contains both Parquet and Arrow files"):
        DatasetSource(tmp_path)
    (tmp_path / "b.arrow").unlink()
    write(tmp_path / "b.parquet", x=[1.0])
    with pytest.raises(ValueError, match=r"b\.parquet lacks the column 'y' that the table's first file has"):
        DatasetSource(tmp_path)
    assert DatasetSource(tmp_path, columns=["x"]).n_rows == 2
    write(tmp_path / "b.parquet", x=[1.0], y=[1.0], z=[1.0])
    with pytest.raises(ValueError, match=r"b\.parquet has a column 'z' that the table's first file lacks"):
        DatasetSource(tmp_path)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
@pytest.mark.parametrize(
    "other",
    [[None, None], [7, 2**62], ["1e1", "x"], [True, None], [[1.0], [2.0]], [dt.date(2020, 1, 1), None]],
    ids=str,
)
def test_a_type_inferred_for_a_file_does_not_change_entries(suffix, other, tmp_path):
    """A writer infers a file's types from its rows: each entry of each file is read by itself."""
    found = pa.table({"x": other, "y": [1.0, 2.0]})
    for name, part in (("a", pa.table({"x": [0.5, None], "y": [3.0, 4.0]})), ("b", found)):
        (pq.write_table if suffix == ".parquet" else pa.feather.write_feather)(part, tmp_path / f"{name}{suffix}")
    source = DatasetSource(tmp_path, columns=["x"], target="y")
    X = np.concatenate([np.array(chunk.X) for chunk in source.chunks()])
    np.testing.assert_array_equal(X[:, 0], [0.5, np.nan, *map(number, other)])


def test_paths_and_datasets_that_are_not_tables_are_refused(tmp_path):
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(ValueError, match=r"neither a folder nor a file whose name ends in \.parquet, \.pq, \.arrow"):
        DatasetSource(tmp_path / "t.json")
    with pytest.raises(OSError, match="there is no such file"):
        DatasetSource(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="has no rows"):
        DatasetSource(write(tmp_path / "none.parquet", x=pa.array([], pa.float64())))
    data = ds.dataset(write(tmp_path / "t.parquet", x=[1.0])).filter(ds.field("x") > 0)
    with pytest.raises(ValueError, match="filtered or sorted dataset"):
        DatasetSource(data)


def test_files_that_change_between_passes(tmp_path):
    path = write(tmp_path / "t.parquet", x=[1.0, 2.0])
    source = DatasetSource(path)
    rows(source)
    write(path, x=[1.0, 2.0, 3.0])
    with pytest.raises(OSError, match="has changed or vanished since it was opened"):
        rows(source)
    source = DatasetSource(path)
    status = os.stat(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    with pytest.raises(OSError, match="has changed or vanished"):
        rows(source)
    source = DatasetSource(path)
    path.unlink()
    with pytest.raises(OSError, match="has changed or vanished"):
        rows(source)


def test_repr_hides_values(tmp_path):
    source = DatasetSource(write(tmp_path / "t.parquet", x=[7123.25, 7123.25]))
    assert repr(source) == "DatasetSource(2 rows, 1 columns, float64)"


def test_a_pass_that_ends_early_does_not_change_the_next(tmp_path, X):
    pq.write_table(table(X, NAMES), tmp_path / "t.parquet", row_group_size=100)
    source = DatasetSource(tmp_path / "t.parquet")
    for _ in source.chunks():
        break
    np.testing.assert_array_equal(rows(source), X)
