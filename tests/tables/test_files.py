"""A path chooses its reader, and what is wrong with a file is refused without quoting it."""

from __future__ import annotations

import bz2
import gzip
import re
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from dpem.tables import read_table

X = np.random.default_rng(0).standard_normal((37, 3))
NAN = np.nan


def rows(source):
    chunks = [(np.array(chunk.X), chunk.y) for chunk in source.chunks()]
    return np.concatenate([X for X, _ in chunks]), np.concatenate([y if y is not None else [] for _, y in chunks])


def save(folder, kind):
    """The same table in each kind of file."""
    path = folder / f"t{kind}"
    table = pa.table({f"x{j}": X[:, j] for j in range(3)})
    text = "x0,x1,x2\n" + "".join(",".join(map(repr, row)) + "\n" for row in X.tolist())
    if kind in (".parquet", ".pq"):
        pq.write_table(table, path)
    elif kind in (".arrow", ".feather", ".ipc"):
        pa.feather.write_feather(table, path)
    elif kind == ".csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("kind", [".parquet", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".csv.gz", ".CSV"])
def test_every_kind_gives_the_same_rows(tmp_path, kind):
    path = save(tmp_path, kind)
    source = read_table(path)
    assert (source.n_rows, source.n_features, source.dtype) == (37, 3, np.float64)
    assert source.feature_names == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(rows(source)[0], X)
    source = read_table(str(path), columns=["x2", "x0"], target="x1")
    assert source.feature_names == ["x2", "x0"]
    for t, part in enumerate(source.split(4)):
        read, y = rows(part)
        np.testing.assert_array_equal(read, X[t::4][:, [2, 0]])
        np.testing.assert_array_equal(y, X[t::4, 1])
    with pytest.raises(ValueError, match=r"no column 'x3'; the table has 'x0', 'x1', 'x2'|has no column 'x3'"):
        read_table(path, target="x3")


def test_missing_entries_of_a_csv(tmp_path):
    (tmp_path / "t.csv").write_text('\ufeffa,b\nNA,1\n,2\nnan,3\nnull,4\n"5",6e0\n', encoding="utf-8")
    read, y = rows(read_table(tmp_path / "t.csv", target="b"))
    np.testing.assert_array_equal(read, [[NAN], [NAN], [NAN], [NAN], [5.0]])
    np.testing.assert_array_equal(y, [1, 2, 3, 4, 6])


OTHER_LENGTH = "every row of {} must have 2 entries, as its first line has, but one has not."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n4242\n", OTHER_LENGTH),
        ("a,b\n1,2\n4242,1,1\n", OTHER_LENGTH),
        ("a,b\n1,2\nIn CSV column #1,1,1\n", OTHER_LENGTH),
        ("", "{} must begin with a line of column names, but it is empty or begins with an empty line."),
        ("\n1,2\n", "{} must begin with a line of column names, but it is empty or begins with an empty line."),
        ("a,b\n", "{} has a header but no rows."),
        ("4242,b\n1,2\n", "the first line of {} must name the columns, but it holds numbers or empty entries."),
        ("a,NA\n1,2\n", "the first line of {} must name the columns, but it holds numbers or empty entries."),
        (
            "a,b,a\n1,2,3\n",
            "the first line of {} must name each column once, but column 3 has the name of an earlier "
            "one: rename it in the file.",
        ),
    ],
)
def test_bad_csv(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message.format(path))) as refusal:
        read_table(path)
    assert str(refusal.value) == message.format(path)
    assert refusal.value.__context__ is None


@pytest.mark.parametrize("remark", ['"line\nline, line"', '"a ""word""\n"', '"\n5,1,x\n"', 'of 5" each', '""'])
def test_entries_in_quotes_may_hold_line_ends(tmp_path, remark):
    """Also in files of several megabytes, which Arrow parses one megabyte at a time. Other quotes are characters."""
    rows = [f"{i},{remark}" for i in range(3)] + [f'{i},"{i % 7 * "long "}\n{i}"' for i in range(3, 150_000)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,remark", *rows]), encoding="utf-8")
    source = read_table(path, exclude=["remark"])
    np.testing.assert_array_equal(np.concatenate([chunk.X[:, 0] for chunk in source.chunks()]), np.arange(150_000))


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_quote_that_nothing_closes_swallows_no_rows(tmp_path, end):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,2\n3,"4\n5,6' + end)
    with pytest.raises(ValueError, match=r"t\.csv has an entry with an opening quote but no closing one\.$"):
        read_table(path)
    path.write_text('a\n1\n"2"\n\n3' + end)  # an empty line of one column is a row
    assert read_table(path).n_rows == 4


def test_a_cell_that_is_not_a_number_is_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1.5,2.5\n" * 300_000 + "1.5,secret\n")
    source = read_table(path)
    found = np.concatenate([chunk.X.copy() for chunk in source.chunks()])
    np.testing.assert_array_equal(found[:-1], np.full((300_000, 2), [1.5, 2.5]))
    np.testing.assert_array_equal(found[-1], [1.5, NAN])


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".zip"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_compressed_and_encoded_texts(tmp_path, ending, encoding):
    path = tmp_path / f"t.txt{ending}"
    text = "größe;ort\n1.234,5;süd\n7,25;nord\nx;süd\n".encode(encoding)
    if ending == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("t.txt", text)
    else:
        path.write_bytes({"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending](text))
    looks = {"sep": ";", "decimal": ",", "thousands": ".", "encoding": encoding}
    source = read_table(path, levels={"ort": ["süd", "nord"]}, **looks)
    assert source.feature_names == ["größe", "ort"]
    np.testing.assert_array_equal(next(source.chunks()).X, [[1234.5, 0], [7.25, 1], [NAN, 0]])


def test_invalid_utf8_is_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,north\n2,s\xfcd\n\xff,north\n")
    source = read_table(path, levels={"b": ["north", "süd"]})
    np.testing.assert_array_equal(next(source.chunks()).X, [[1, 0], [2, NAN], [NAN, 0]])


@pytest.mark.filterwarnings("error")
def test_a_row_of_another_length_that_is_no_text_is_not_quoted(tmp_path):
    """Arrow decodes it for its handler, and Python would print the error there, with a byte of the row."""
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n1,"2"\n\xfc3\n4,5\n')
    printed, hook = [], sys.unraisablehook
    sys.unraisablehook = printed.append
    try:
        with pytest.raises(ValueError, match="must have 2 entries"):
            read_table(path)
    finally:
        sys.unraisablehook = hook
    assert printed == []


@pytest.mark.parametrize("choice", [{"target": "cost"}, {"columns": ["age", "Smit"]}])
def test_a_file_without_a_header_is_not_quoted(tmp_path, choice):
    """Its first line is a record: only names that the caller used may be repeated."""
    path = tmp_path / "t.csv"
    path.write_text("Smith,diabetes,north\nJones,asthma,south\nMiller,diabetes,north\n")
    with pytest.raises(ValueError, match=r"cost|age|Smit|column") as refusal:
        read_table(path, **choice)
    message = str(refusal.value).replace(str(path), "")
    named = {name for value in choice.values() for name in ([value] if isinstance(value, str) else value)}
    for entry in {"Smith", "diabetes", "north", "Jones", "asthma", "south", "Miller"} - named:
        assert entry not in message


def test_a_partition_s_value_is_not_quoted(tmp_path, monkeypatch):
    """The folder's name is an entry of the rows in it."""
    for value, content in (("10", pa.table({"x": [1.0]})), ("93", pa.table({"z": [1.0]}))):
        (tmp_path / f"age={value}").mkdir()
        pq.write_table(content, tmp_path / f"age={value}" / "part-0.parquet")
    with pytest.raises(ValueError, match="lacks the column 'x'") as refusal:
        read_table(tmp_path, columns=["x"])
    assert "age=…/part-0.parquet" in str(refusal.value)
    assert "93" not in str(refusal.value).replace(str(tmp_path), "")
    (tmp_path / "age=93" / "part-0.parquet").write_bytes(b"no")
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, "."):
        with pytest.raises(OSError, match="damaged") as damage:
            read_table(folder, columns=["x"])
        assert "93" not in str(damage.value).replace(str(tmp_path), "")
        assert damage.value.__context__ is None  # Arrow's message


def test_unreadable_files(tmp_path):
    for name, content in {
        "t.csv.gz": gzip.compress(b"a,b\n1,2\n" * 1_000)[:30],
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises((OSError, ValueError), match=r"cannot be read.*damaged"):
            read_table(tmp_path / name)


def test_unknown_and_absent_paths(tmp_path):
    (tmp_path / "t.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"end in \.parquet, .*, \.csv, \.tsv, \.txt, also with \.gz, \.bz2, \.zip\.$"):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(FileNotFoundError, match="there is no such file or folder"):
        read_table(tmp_path / "none.parquet")


TABLE = {"id": [7, 8, 9, 10], "age": [31.5, 44.0, None, 60.0], "region": ["north", "süd", "east", None]}
LEVELS = {"region": ["süd", "north"], "smoker": [0, 1]}


def written(folder, kind):
    """The same small table with an identifier, a missing value and texts, in a file of this kind."""
    path = folder / f"t{kind}"
    table = pa.table(TABLE)
    if kind == ".parquet":
        pq.write_table(table.set_column(2, "region", table["region"].dictionary_encode()), path)
    elif kind == ".arrow":
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    else:
        sep, decimal = {".csv": (",", "."), ".tsv": ("\t", "."), ".eu.csv": (";", ",")}[kind]
        rows = [[str(value).replace(".", decimal) if value is not None else "" for value in row]
                for row in zip(*TABLE.values(), strict=True)]  # fmt: skip
        path.write_text("\n".join(sep.join(row) for row in [list(TABLE), *rows]) + "\n")
    return path


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".eu.csv", ".parquet", ".arrow"])
def test_texts_are_read_as_the_numbers_of_their_levels(tmp_path, kind):
    path = written(tmp_path, kind)
    looks = {"sep": ";", "decimal": ","} if kind == ".eu.csv" else {}
    source = read_table(path, exclude=["id"], levels={"region": LEVELS["region"]}, **looks)
    assert source.feature_names == ["age", "region"]
    assert source.text_levels["region"].labels == ("süd", "north")
    rows = np.concatenate([chunk.X.copy() for chunk in source.chunks()])
    np.testing.assert_array_equal(rows, [[31.5, 1], [44, 0], [np.nan, np.nan], [60, np.nan]])


def test_a_file_with_semicolons_is_recognised(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id;age\n1;2\n")
    for options in ({}, {"columns": ["age"]}):
        with pytest.raises(ValueError, match="sep must be ';'") as refusal:
            read_table(path, **options)
        assert "id;age" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ";;"}, "sep must be one character"),
        ({"sep": "a"}, "sep must be one character"),
        ({"decimal": ","}, "sep and decimal must differ"),
        ({"exclude": ["nothing"]}, "has no column 'nothing'"),
        ({"exclude": ["id"], "columns": ["age"]}, "must not both be given"),
        ({"exclude": ["id", "region"], "target": "age"}, "has no column of features"),
    ],
)
def test_refused_options(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, ".csv"), **options)


def test_numbers_have_the_levels_that_spell_them(tmp_path):
    """A number has the level that spells it, whatever the column's type."""
    source = read_table(written(tmp_path, ".parquet"), exclude=["id", "region"], levels={"age": ["a", "44", "31.50"]})
    np.testing.assert_array_equal(next(source.chunks()).X[:, 0], [2, 1, np.nan, np.nan])
