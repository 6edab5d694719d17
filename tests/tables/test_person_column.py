"""A person as the unit: nobody's rows beyond the limit count, whatever holds the table."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from dpem import Budget, DPLinearRegression, DPStandardScaler, load_model, read_table, save_model
from dpem.tables.inputs import source_of
from dpem.tables.persons import Counts, hash_people

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # what a fit of so few rows says of itself

N, MOST = 500, 3


def visits(seed=0, ids=None):
    rng = np.random.default_rng(seed)
    who = rng.integers(0, 60, N) if ids is None else ids
    return pd.DataFrame({"id": who, "age": rng.uniform(0, 100, N), "dose": rng.uniform(0, 1, N)})


def first_rows(frame, most=MOST):
    return frame[frame.groupby("id").cumcount() < most][["age", "dose"]].to_numpy()


def hive(frame, path):
    for part, rows in frame.groupby(np.arange(N) // 200):
        folder = path / f"part={part}"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), folder / "rows.parquet", row_group_size=37)
    return read_table(path, person="id", exclude=["part"])


def written(frame, path):
    frame.to_csv(path, index=False)
    return read_table(path, person="id")


def stored(frame, path, write):
    write(pa.Table.from_pandas(frame, preserve_index=False), path)
    return read_table(path, person="id")


def in_groups(table, path):
    pq.write_table(table, path, row_group_size=77)


WAYS = {
    "pandas": lambda frame, path: frame,
    "objects": lambda frame, path: frame.astype({"id": object}),
    "texts": lambda frame, path: frame.astype({"id": str}),
    "categories": lambda frame, path: frame.astype({"id": "category"}),
    "floats": lambda frame, path: frame.astype({"id": float}),
    "polars": lambda frame, path: pl.from_pandas(frame),
    "Arrow": lambda frame, path: pa.Table.from_pandas(frame, preserve_index=False),
    "CSV": lambda frame, path: written(frame, path / "t.csv"),
    "Parquet": lambda frame, path: stored(
        frame, path / "t.parquet", lambda t, p: pq.write_table(t, p, row_group_size=77)
    ),
    "Feather": lambda frame, path: stored(frame, path / "t.feather", pa.feather.write_feather),
    "hive": lambda frame, path: hive(frame, path / "t"),
    "Dask": lambda frame, path: dd.from_pandas(frame, npartitions=7, sort=False),
}
MATRICES = {
    "array": lambda X: X,
    "CSR": sparse.csr_array,
    "float32": lambda X: X.astype(np.float32),
    "array of objects": lambda X: X.astype(object),
    "Dask array": lambda X: da.from_array(X, chunks=(99, 3)),
}


def rows_of(X, person, most=MOST):
    source = source_of(DPStandardScaler(), X, needs_y=False, person=person, rows_per_person=most)
    if hasattr(source, "chunks"):
        parts = (chunk.X for chunk in source.chunks())
        found = np.concatenate([np.array(part.toarray() if sparse.issparse(part) else part) for part in parts])
    else:
        found = source._X.compute()
    assert source.n_rows == len(found)
    assert source.n_features == found.shape[1] == 2
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("most", [1, MOST, N])
def test_the_first_rows_of_each_person_count(way, most, tmp_path):
    frame = visits()
    np.testing.assert_allclose(rows_of(WAYS[way](frame, tmp_path), "id", most), first_rows(frame, most), rtol=1e-12)


@pytest.mark.parametrize("way", MATRICES)
def test_in_matrices_a_person_is_a_column(way):
    frame = visits()
    found = rows_of(MATRICES[way](frame.to_numpy(dtype=float)), "x0")
    np.testing.assert_allclose(found, first_rows(frame), rtol=1e-6)


@pytest.mark.parametrize("way", ["pandas", "CSV", "Parquet", "Dask"])
def test_neighbours_keep_the_same_positions(way, tmp_path):
    """The lemma: if all rows of a person become another person's, at most MOST kept rows change."""
    frame = visits()
    mine = frame["id"] == 7
    assert mine.sum() > MOST
    other = frame.copy()
    other.loc[mine, ["id", "age", "dose"]] = [999, 50.0, 0.5]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    one, two = rows_of(WAYS[way](frame, tmp_path / "a"), "id"), rows_of(WAYS[way](other, tmp_path / "b"), "id")
    assert one.shape == two.shape
    assert (one != two).any(axis=1).sum() == MOST


def test_equal_identifiers_of_any_type_are_one_person():
    secret = b"1" * 16
    alike = [7, 7.0, np.int8(7), np.float32(7), "7", "7.0", True + 6]
    others = ["07", "seven", 8, None, "", -7, 7.5, "NA"]
    found = hash_people(np.array([*alike, *others], dtype=object), secret)
    assert (found[: len(alike)] == found[0]).all()
    assert not (found[len(alike) :] == found[0]).all(axis=1).any()
    by_type = [
        pa.array([7, None]),
        pa.array([7.0, None]),
        pa.array(["7", None]),
        pa.array(["7", None]).dictionary_encode(),
    ]
    for column in by_type:
        np.testing.assert_array_equal(hash_people(column, secret), hash_people(pa.array(["7.0", None]), secret))
    assert not (hash_people(np.array([7]), b"2" * 16) == found[0]).any()


LONG = 1234567890123456789


def test_a_whole_number_is_the_same_person_in_every_column():
    """With a missing value or without, in which blocks of one table may differ."""
    secret = b"4" * 16
    numbers = [7, -(10**17) - 1, -(10**17), 10**18 - 1, 10**18, LONG, 2**63 - 1, -(2**63)]
    expected = hash_people(pa.array([*map(str, numbers), None]), secret)
    assert len(np.unique(expected, axis=0)) == len(numbers) + 1
    for column in (
        pa.array([*numbers, None]),
        pa.array([*numbers, None]).cast(pa.decimal128(21, 1)),
        pa.array([*(f"{number}.0" for number in numbers), "NA"]),
        np.array([*numbers, np.nan], dtype=object),
    ):
        np.testing.assert_array_equal(hash_people(column, secret), expected)
    np.testing.assert_array_equal(hash_people(np.array(numbers), secret), expected[:-1])
    np.testing.assert_array_equal(hash_people(np.array(numbers[3:-1], np.uint64), secret), expected[3:-2])
    np.testing.assert_array_equal(hash_people(np.array([7.0, 1e18, np.nan]), secret), expected[[0, 4, -1]])


def test_rows_of_a_long_number_are_counted_over_all_row_groups(tmp_path):
    people = [LONG, LONG, LONG, None, LONG, None]
    table = pa.table({"id": people, "age": [1.0, 2, 3, 4, 5, 6], "dose": [0.5] * 6})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    source = read_table(tmp_path / "t.parquet", person="id")
    assert rows_of(source, "id", 1)[:, 0].tolist() == [1.0, 4.0]


def test_blocks_may_have_categories_of_their_own():
    names = [[f"{block}{i}" for i in range(100)] for block in "ab"]
    blocks = [pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), part) for part in names]
    found = hash_people(pa.chunked_array(blocks), b"5" * 16)
    np.testing.assert_array_equal(found, hash_people(pa.array(names[0] + names[1]), b"5" * 16))


def test_a_time_of_an_unknown_zone_identifies_a_person():
    times = pa.array([1, 2, 1], pa.timestamp("s", "No/Where"))
    found = hash_people(times, b"6" * 16)
    assert (found[0] == found[2]).all()
    assert (found[0] != found[1]).any()
    with pytest.raises(ValueError, match="person must be a column of numbers or texts; 'id' is dates or times"):
        rows_of(pa.table({"id": pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "age": [1.0]}), "id")


def test_counts_of_many_persons():
    rng = np.random.default_rng(0)
    people = rng.integers(0, 30_000, 100_000)
    counts = Counts()
    before = np.concatenate([counts.add(hash_people(part, b"3" * 16)) for part in np.array_split(people, 9)])
    np.testing.assert_array_equal(before, pd.Series(people).groupby(people).cumcount())


def test_the_guarantee_says_person(tmp_path):
    frame = visits()
    y = frame["age"] / 100 + frame["dose"]
    known = {"bounds": {"age": (0, 100), "dose": (0, 1)}, "y_bounds": (0, 2), "check": False}
    budget = Budget(2.0, 1e-5)
    model = DPLinearRegression(epsilon=1.0, delta=1e-6, person="id", rows_per_person=2, budget=budget, **known)
    model.fit(frame, y)
    assert model.guarantee_.unit == "one person"
    assert "all rows of one person had been different (replace-one-person neighbours" in str(model.guarantee_)
    assert model.feature_names_in_.tolist() == ["age", "dose"]
    assert model.plan_.n == len(first_rows(frame, 2))
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert again.guarantee_ == model.guarantee_
    np.testing.assert_array_equal(model.predict(frame), again.predict(frame.drop(columns="id")))


@pytest.mark.parametrize(
    ("table", "person", "message"),
    [
        (visits(), "who", "person must be a column of the table, which has no 'who'"),
        (visits().to_numpy(), "id", "person must be a column of X, but there is no 'id'"),
        (visits(), 3, "person must be the name of a column or None, got int"),
    ],
)
def test_refusals(table, person, message):
    with pytest.raises(ValueError, match=message):
        DPStandardScaler(epsilon=1.0, delta=1e-6, bounds=(0, 1), person=person).fit(table)


def test_a_file_must_be_opened_for_the_same_person(tmp_path):
    visits().to_csv(tmp_path / "t.csv", index=False)
    known = {"epsilon": 1.0, "delta": 1e-6, "bounds": (0, 100)}
    with pytest.raises(ValueError, match="person must be 'id', since the table was opened with person='id'"):
        DPStandardScaler(**known).fit(read_table(tmp_path / "t.csv", person="id"))
    with pytest.raises(ValueError, match="person is 'age', but the table was opened with person='id'"):
        DPStandardScaler(**known, person="age").fit(read_table(tmp_path / "t.csv", person="id"))


def test_a_lone_surrogate_identifies_a_person():
    people = hash_people(np.array(["a\udc80", "a", "a\udc80"], dtype=object), b"0" * 16)
    assert (people[0] == people[2]).all()
    assert (people[0] != people[1]).any()


class Unspeakable:
    def __str__(self):
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    "odd", [10**5000, Unspeakable(), "\ud800", [1], b"\xff", np.ma.masked], ids=lambda odd: type(odd).__name__
)
def test_an_odd_identifier_does_not_change_how_others_are_counted(odd):
    usual, changed = (np.array([7, None, "x", 7], dtype=object) for _ in range(2))
    changed[1] = odd
    secret = b"0" * 16
    np.testing.assert_array_equal(hash_people(changed, secret)[[0, 2, 3]], hash_people(usual, secret)[[0, 2, 3]])


def test_an_identifier_may_be_invalid_utf8():
    """A Parquet file may contain one: Arrow does not validate texts."""
    names = pa.array([b"7", b"\xff", b"7.0", "å".encode()]).view(pa.string())
    found = hash_people(names, b"0" * 16)
    assert len(np.unique(found, axis=0)) == 3
    np.testing.assert_array_equal(found[0], found[2])
