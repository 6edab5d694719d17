"""The property that closes the entrance: whatever one entry is, and whichever way a table comes in, every other row has
the same coordinates to the last bit, the same refusals in the same words, and no name, level or message holds an entry.
"""

import math
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpem import OTHER, DPLinearRegression, read_table
from dpem.tables.entries import checked_levels, level_values, number, numbers
from dpem.tables.inputs import open_table

N, SECRET = 40, "secret-diagnosis"
BOUNDS, LEVELS = {"age": (0, 100)}, {"code": ["1", "2"], "home": ["north", "7", OTHER]}


def people():
    rng = np.random.default_rng(5)
    return {
        "age": rng.integers(0, 100, N).tolist(),
        "code": rng.integers(1, 3, N).tolist(),
        "home": rng.choice(["north", "7", "east"], N).tolist(),
    }


def texts(column):
    return [None if entry is None else str(entry) for entry in column]


def arrow(columns):
    """Typed columns, of texts where the entries have no other type in common."""
    found = {}
    for name, column in columns.items():
        try:
            found[name] = pa.array(column)
        except (pa.ArrowException, OverflowError):
            found[name] = pa.array(texts(column), pa.string())
    return pa.table(found)


def csv(columns, path):
    cells = ([("" if entry is None else f'"{entry}"') for entry in column] for column in columns.values())
    lines = [",".join(columns), *map(",".join, zip(*cells, strict=True))]
    (path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_table(path / "t.csv", levels=LEVELS)


def parquet(columns, path):
    table = arrow(columns)
    if table.schema.field("age").type == pa.string():  # a type that the file declares: not a number, whatever it spells
        pytest.skip("a column of texts")
    pq.write_table(table, path / "t.parquet", row_group_size=11)
    return read_table(path / "t.parquet", levels=LEVELS)


def dask(columns, path):
    frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})
    return dd.from_pandas(frame, npartitions=3, sort=False)


WAYS = {
    "arrays of objects": lambda columns, path: pd.DataFrame(columns, dtype=object),
    "pandas": lambda columns, path: pd.DataFrame(columns),
    "pandas, nullable": lambda columns, path: pd.DataFrame(columns).convert_dtypes(),
    "pandas, Arrow": lambda columns, path: arrow(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, categories": lambda columns, path: pd.DataFrame(columns).astype({"code": "category", "home": "category"}),
    "polars": lambda columns, path: pl.from_arrow(arrow(columns)),
    "Arrow": lambda columns, path: arrow(columns),
    "Arrow, texts": lambda columns, path: pa.table(
        {n: pa.array(texts(own), pa.string()) for n, own in columns.items()}
    ),
    "CSV": csv,
    "Parquet": parquet,
    "Dask": dask,
}
ODD = [
    *(None, math.nan, math.inf, -math.inf, 1.7e308, 10**400, 5e-324, -1, 2.5),
    *(SECRET, "1.0", " 2 ", "1e0", "NA", "", "true", "north", "nord", "7.0", True, 7),
    *(Decimal("1"), Decimal("sNaN")),
]


def model(**more):
    known = {"bounds": BOUNDS, "levels": LEVELS, "y_bounds": (0, 1), **more}
    return DPLinearRegression(epsilon=1.0, delta=1e-6, **known)


def coordinates(X):
    """Unit coordinates of the rows that a fit reads, and the public facts about their columns."""
    one = model()
    table = open_table(one, X, None, needs_y=False, **one._declared())
    schema = one._schema(table.names, table.levels, None, plan=True)
    if hasattr(table.source, "chunks"):
        rows = np.concatenate([np.array(chunk.X, dtype=float) for chunk in table.source.chunks()])
    else:
        rows = table.source._X.compute()
    with np.errstate(all="ignore"):
        return schema.coordinates(np, rows[:, schema.reads]), (table.names, table.levels, schema.names)


def refusal(X):
    """The error for a column without bounds."""
    one = model(bounds={"home": (0, 1)})
    table = open_table(one, X, None, needs_y=False, **one._declared())
    with pytest.raises(ValueError, match="bounds must") as refused:
        one._schema(table.names, table.levels, None)
    return str(refused.value)


def replaced(column, entry):
    columns = people()
    columns[column][0] = entry
    return columns


USUAL, KNOWN = coordinates(WAYS["arrays of objects"](people(), None))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_gives_the_same_coordinates(way, tmp_path):
    found, known = coordinates(WAYS[way](people(), tmp_path))
    np.testing.assert_array_equal(found, USUAL)
    assert known == KNOWN


@pytest.mark.parametrize("column", ["age", "code", "home"])
@pytest.mark.parametrize("way", WAYS)
def test_one_entry_changes_its_own_row_alone(way, column, tmp_path):
    for place, odd in enumerate(ODD):
        if isinstance(odd, Decimal) and way not in ("arrays of objects", "pandas"):
            continue
        columns = replaced(column, odd)
        folder = tmp_path / str(place)
        folder.mkdir()
        try:
            X = WAYS[way](columns, folder)
        except pytest.skip.Exception:
            continue
        found, known = coordinates(X)
        np.testing.assert_array_equal(found[1:], USUAL[1:], err_msg=repr(odd))
        assert known == KNOWN
        expected, _ = coordinates(WAYS["arrays of objects"](columns, None))
        np.testing.assert_array_equal(found[0], expected[0], err_msg=repr(odd))


@pytest.mark.parametrize("way", ["arrays of objects", "pandas", "pandas, nullable", "polars", "Arrow", "CSV"])
def test_refusals_have_the_same_words(way, tmp_path):
    messages = set()
    for place, odd in enumerate([None, math.inf, SECRET, 10**400]):
        (tmp_path / str(place)).mkdir()
        messages.add(refusal(WAYS[way](replaced("code", odd), tmp_path / str(place))))
    assert len(messages) == 1
    assert SECRET not in messages.pop()


def test_folders_of_texts_are_entries(tmp_path):
    columns = people()
    rows = pd.DataFrame(columns).sort_values("home", kind="stable")
    for home, part in rows.groupby("home"):
        (tmp_path / f"home={home}").mkdir()
        pq.write_table(
            pa.Table.from_pandas(part.drop(columns="home"), preserve_index=False),
            tmp_path / f"home={home}" / "p.parquet",
        )
    found, _ = coordinates(read_table(tmp_path, levels=LEVELS))
    np.testing.assert_array_equal(found, coordinates(rows)[0])
    (tmp_path / "home=1.5").mkdir()
    pq.write_table(pa.table({"age": [50], "code": [1]}), tmp_path / "home=1.5" / "p.parquet")
    more, _ = coordinates(read_table(tmp_path, levels=LEVELS))
    assert more[0, -2:].tolist() == [-1.0, 1.0]
    np.testing.assert_array_equal(more[1:], found)


ENTRIES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["1_0", "0x1", " 1", "+1", "1.", ".5", "1e5", "1E-400", "inf", "-Infinity", "nan", "TRUE", "١", "1 2"]
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ENTRIES.filter(lambda entry: entry is None or isinstance(entry, str)), min_size=1, max_size=8))
def test_columns_and_entries_are_converted_by_one_rule(column):
    """For texts, which can spell every other kind of entry."""
    own = checked_levels({"x": ["1", "north", "", OTHER]})["x"]
    given = pa.array(column, pa.string())
    np.testing.assert_array_equal(numbers(given, np.dtype(float)), [number(entry) for entry in column])
    np.testing.assert_array_equal(level_values(given, own, np.dtype(float)), [own.value(entry) for entry in column])


@settings(max_examples=100, deadline=None)
@given(st.lists(ENTRIES, min_size=2, max_size=6), ENTRIES)
def test_an_entry_does_not_change_how_others_are_converted(column, odd):
    frames = [pd.DataFrame({"age": pd.Series(rows)}) for rows in (column, [odd, *column[1:]])]
    known = {"bounds": {"age": (-10, 10)}, "levels": None}
    found = []
    for frame in frames:
        one = model(**known)
        table = open_table(one, frame, None, needs_y=False, **one._declared())
        found.append(np.concatenate([np.array(chunk.X) for chunk in table.source.chunks()]))
    np.testing.assert_array_equal(found[0][1:], found[1][1:])
