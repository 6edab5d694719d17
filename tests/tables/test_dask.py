"""Rows on a cluster: the same totals as in memory, whoever sums them, and one sentence when it cannot be done."""

from __future__ import annotations

import threading
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from dask.callbacks import Callback

from dpem import Budget, DPLinearRegression
from dpem._threads import run_in_parallel, thread_limit
from dpem.fitting.scaler import ColumnMoments
from dpem.paper import DPSymmetricMixture
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.paper.sigma import SizeHistogram
from dpem.query import Bound
from dpem.tables import ArraySource
from dpem.tables.base import ScaledSource
from dpem.tables.dask import DaskSource
from dpem.tables.dask_tasks import FAN_IN, FETCHED
from dpem.tables.entries import number
from dpem.tables.progress import progress

BETA = np.array([0.7, -0.4, 0.0])
N = 3_001


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with thread_limit(1):
        yield


def table(n=N, dtype=np.float64):
    """Rows near the centre of one component, so that sums do not cancel, and responses."""
    rng = np.random.default_rng(1)
    X = BETA + 0.3 * rng.standard_normal((n, 3))
    return X.astype(dtype), 2.0 * np.abs(X @ BETA) + 0.1 * rng.standard_normal(n)


def queries():
    support = np.arange(3)
    mixture, regressions, missing = SymmetricMixture(0.8), SymmetricRegression(0.8), MissingRegression(0.8)
    return [
        mixture.gradient(BETA, Clip(0.9)),
        mixture.on_support(BETA, support, 0.7),
        mixture.screening(1.0, 2),
        mixture.moments(support, 0.9, 1.0),
        regressions.gradient(BETA, Clip(0.9, 0.7)),
        regressions.truncated(BETA, 0.9),
        regressions.screening(1.0, 2),
        missing.gradient(BETA, Clip(0.9, 0.7, 1.1)),
        SizeHistogram(of_response=True),
        ColumnMoments(np.full(3, -3.0), np.full(3, 3.0)),
    ]


def agree(ours, theirs, relative=1e-12):
    assert ours.dtype == np.float64
    assert np.max(np.abs(ours - theirs)) <= relative * np.max(np.abs(theirs))


def repr_of(odd):
    return f"{odd!r:.20}"


class PlainSum:
    label = "plain sum"
    bound = Bound.symmetric(linf=1.0)
    blocked = False

    def sum(self, chunk):
        return np.asarray(chunk.X, dtype=float).sum(axis=0)


# --- The same totals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 64, 1_000, N, (0, 5, 0, 0, N - 5, 0)], ids=str)
def test_a_total_does_not_depend_on_the_blocks(rows, dtype):
    X, y = table(200 if rows == 1 else N, dtype)
    source = DaskSource(da.from_array(X, chunks=(rows, 3)), da.from_array(y, chunks=77))
    assert (source.n_rows, source.n_features, source.has_response, source.dtype) == (len(X), 3, True, dtype)
    for query in queries()[:-1]:
        # float32 sums of at most BLOCK rows are rounded in float32, in another order for other blocks.
        agree(source.total(query), ArraySource(X, y).total(query), 1e-12 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("blocks", [1, FETCHED, FETCHED + 1, FAN_IN * FETCHED + 1])
def test_blocks_are_added_with_compensation(blocks):
    """Partial sums of ±1e16 cancel across the tree: without compensation, the ones between them are lost."""
    X = np.ones((2 * blocks, 1))
    X[0], X[-1] = 1e16, -1e16
    assert DaskSource(da.from_array(X, chunks=(1, 1))).total(PlainSum()) == 2 * blocks - 2
    assert X.cumsum()[-1] != 2 * blocks - 2 or blocks == 1


def test_long_blocks_are_read_in_chunks(monkeypatch):
    """The lemma on the slack assumes chunks of at most CHUNK_ROWS rows, whatever the blocks are."""
    lengths = []

    class Watched(PlainSum):
        def sum(self, chunk):
            lengths.append(len(chunk.X))
            return super().sum(chunk)

    monkeypatch.setattr("dpem.tables.array.CHUNK_ROWS", 100)
    with dask.config.set(scheduler="sync"):
        agree(DaskSource(da.ones((1_000, 3), chunks=(750, 3))).total(Watched()), np.full(3, 1_000.0))
    assert sorted(lengths) == [50, 50, *[100] * 9]


@pytest.mark.parametrize("parts", [1, 3, 40])
def test_split_is_that_of_an_array_in_memory(parts):
    X, y = table(500)
    query = SymmetricRegression(0.8).gradient(BETA, Clip(0.9, 0.7))
    batches = DaskSource(da.from_array(X, chunks=(33, 3)), y).split(parts)
    for ours, theirs in zip(batches, ArraySource(X, y).split(parts), strict=True):
        assert ours.n_rows == theirs.n_rows
        agree(ours.total(query), theirs.total(query))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaled_rows_are_those_of_an_array_in_memory(dtype):
    X, y = table(500, dtype)
    mean, scale = np.array([0.5, -0.1, 0.2]), np.array([2.0, 0.3, 1.0])
    source = DaskSource(da.from_array(X, chunks=(500, 3)), y).scaled(mean, scale)
    memory = ScaledSource(ArraySource(X, y), mean, scale)
    query = SymmetricRegression(0.8).gradient(BETA, Clip(0.9, 0.7))
    assert (source.n_rows, source.has_response, source.dtype) == (500, True, dtype)
    agree(source.total(query), memory.total(query))


def test_one_compute_for_one_query():
    source = DaskSource(da.ones((100, 2), chunks=(10, 2)))
    runs = []
    with Callback(start=runs.append), dask.config.set(scheduler="sync"):
        source.total(PlainSum())
    assert len(runs) == 1


def test_progress_counts_rows():
    source = DaskSource(da.ones((100, 2), chunks=(10, 2)))
    with progress(disable=False):
        from dpem.tables.progress import _bar

        source.total(PlainSum())
        source.total(PlainSum())
        assert _bar.get().n == 200


def test_repr_hides_values():
    source = DaskSource(da.full((4, 2), 7123.25, chunks=(2, 2)), np.full(4, -918273.5))
    assert repr(source) == "DaskSource(4 rows in 2 blocks, 2 columns, float64)"


# --- What may be given ------------------------------------------------------------------------------------------------


def frame(n=N):
    X, y = table(n)
    return dd.from_pandas(pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y), npartitions=4), X, y


def every_pair():
    data, X, y = frame()
    columns, response = data[["a", "b", "c"]], data["y"]
    known, unknown = da.from_array(X, chunks=(700, 3)), columns.to_dask_array()
    return {
        "array, array": (known, da.from_array(y, chunks=999)),
        "array, numpy": (known, y),
        "array, series": (known, response),
        "unknown lengths, unknown lengths": (unknown, response.to_dask_array()),
        "unknown lengths, numpy": (unknown, y),
        "frame, series": (columns, response),
        "frame, array": (columns, da.from_array(y, chunks=999)),
        "frame, numpy": (columns, y),
        "frame, list": (columns, y.tolist()),
    }


@pytest.mark.parametrize("given", list(every_pair()))
def test_rows_keep_their_responses(given):
    _, X, y = frame()
    query = SymmetricRegression(0.8).gradient(BETA, Clip(0.9, 0.7))
    source = DaskSource(*every_pair()[given])
    assert source.n_rows == N
    assert source.feature_names == (["a", "b", "c"] if given.startswith("frame") else None)
    agree(source.total(query), ArraySource(X, y).total(query))


def test_parquet_whose_columns_are_read_in_different_partitions(tmp_path):
    """Dask joins partitions if few columns are read: X and y would then have different blocks."""
    _, X, y = frame()
    for i, rows in enumerate(np.array_split(np.arange(N), 9)):
        pd.DataFrame(X[rows], columns=["a", "b", "c"]).assign(y=y[rows]).to_parquet(tmp_path / f"{i}.parquet")
    data = dd.read_parquet(tmp_path)
    assert len(data["y"].to_delayed()) != len(data[["a", "b", "c"]].to_delayed())
    query = SymmetricRegression(0.8).gradient(BETA, Clip(0.9, 0.7))
    agree(DaskSource(data[["a", "b", "c"]], data["y"]).total(query), ArraySource(X, y).total(query))


def destroy(path, columns):
    """Overwrite the pages of these columns in a Parquet file, which can then be opened, but the columns not read."""
    footer = pq.read_metadata(path)
    with path.open("r+b") as file:
        for group in range(footer.num_row_groups):
            for chunk in map(footer.row_group(group).column, range(footer.num_columns)):
                if chunk.path_in_schema in columns:
                    file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
                    file.write(b"\xff" * chunk.total_compressed_size)


@pytest.mark.parametrize("filesystem", ["fsspec", "arrow"])
def test_a_fit_needs_only_its_own_columns_of_a_parquet_file(filesystem, tmp_path):
    """Counting rows and persons, limiting, scaling and splitting read no other column: the others are destroyed."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame({name: rng.random(900) for name in "abcdef"} | {"who": np.arange(900) // 2})
    names = ["a", "b", "c", "d", "who"]
    for i, part in enumerate((table[:400], table[400:700], table[700:])):
        part.to_parquet(tmp_path / f"{i}.parquet", index=False)
        destroy(tmp_path / f"{i}.parquet", ["b", "d"])
    X = dd.read_parquet(tmp_path, filesystem=filesystem)
    model = DPLinearRegression(
        epsilon=1.0, delta=1e-6, bounds=(0, 1), y_bounds=(0, 1), person="who", rows_per_person=1, random_state=0
    )
    with dask.config.set(scheduler="sync"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[["a", "c", "who"]], X["f"])
        query = SymmetricMixture(0.5).on_support(np.array([0.3, 0, 0.3, 0]), np.array([0, 2]), 1.0)
        source = DaskSource(X[names], person="who").scaled(np.zeros(4), np.ones(4)).limit_rows_per_person("who", 1)
        first, second = source.split(2)
        later = DaskSource(X[["who", *names[:4]]]).limit_rows_per_person("who", 1)  # whose row it is was a feature
        kept = ArraySource(table[["a", "b", "c", "d"]].to_numpy()[::2])
        agree(later.total(query), kept.total(query))
        agree(first.total(query) + second.total(query), kept.total(query))
        with pytest.raises(RuntimeError, match="could not be computed"):
            DaskSource(X[names]).total(PlainSum())
    assert model.n_features_in_ == 2


def test_numbers_of_other_kinds_are_read_as_float64():
    columns = {
        "whole": pd.array([1, None, 3, 4], dtype="Int64"),
        "single": np.array([0.5, 1.5, 2.5, 3.5], dtype=np.float32),
        "flag": [True, False, True, True],
    }
    source = DaskSource(dd.from_pandas(pd.DataFrame(columns), npartitions=2))
    assert source.dtype == np.float64
    total = source.total(ColumnMoments(np.full(3, -4.0), np.full(3, 4.0)))
    np.testing.assert_allclose(total[:3], [8 / 4, 8 / 4, 3 / 4])
    np.testing.assert_allclose(total[6:] / 0.85, [3, 4, 4])  # NA is missing
    single = dd.from_pandas(pd.DataFrame({"a": columns["single"]}), npartitions=2)
    assert DaskSource(single, fixed_order=True).dtype == np.float32
    assert DaskSource(da.ones((4, 2), chunks=2, dtype=int).rechunk((2, 2))).dtype == np.float64


@dask.delayed
def never():
    raise AssertionError("a refusal must not compute anything")


def lazy(*shape, dtype=float, chunks=None):
    array = da.from_delayed(never(), shape, dtype=dtype)
    return array if chunks is None else array.rechunk(chunks)


TEXT = dd.from_pandas(pd.DataFrame({"x": [1.0, 2.0], "city": ["Rome", "Oslo"], "day": pd.NaT}), npartitions=1)

REFUSED = {
    "columns": (lazy(4, 4, chunks=(2, 2)), None, r"along its rows only, got 2 blocks of columns: use X.rechunk\({1"),
    "vector": (lazy(4), None, "X must be a table of rows and columns, got a Dask array of 1 dim"),
    "no columns": (da.zeros((4, 0)), None, "at least one"),
    "complex": (lazy(4, 2, dtype=complex), None, "X must hold real numbers, got complex128"),
    "objects": (lazy(4, 2, dtype=object), None, "X must hold real numbers, got object"),
    "masked": (da.ma.masked_array(da.ones((4, 2))), None, "blocks that are numpy arrays, got MaskedArray"),
    "delayed": (never(), None, "X must be a Dask array or a Dask DataFrame, got a Dask Delayed"),
    "series": (TEXT["x"], None, "X must be a Dask array or a Dask DataFrame, got a Dask Series"),
    "text": (TEXT, None, "X must hold numbers or declared levels: columns 'city', 'day' are not numeric"),
    "text in y": (TEXT[["x"]], TEXT["city"], "y must hold real numbers"),
    "text in memory": (lazy(2, 2), np.array(["Rome", "Oslo"]), "y must hold real numbers"),
    "two columns of y": (lazy(4, 2), lazy(4, 2), "y must be a vector"),
    "two columns in memory": (lazy(4, 2), np.ones((4, 2)), "y must be a vector"),
    "frame as y": (lazy(4, 2), TEXT[["x"]], "y must be a vector"),
    "lengths": (lazy(4, 2), lazy(5), "one response for each of the 4 rows, got 5"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refusals(case):
    X, y, sentence = REFUSED[case]
    with pytest.raises(ValueError, match=sentence) as refusal:
        DaskSource(X, y)
    message = str(refusal.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert "Rome" not in message
    assert "Oslo" not in message


def test_a_fit_that_is_refused_spends_nothing():
    budget = Budget(1.0, 1e-5)
    model = DPSymmetricMixture(epsilon=0.5, delta=1e-5, sigma=0.5, start="equal", budget=budget)
    with pytest.raises(ValueError, match="along its rows only"):
        model.fit(lazy(400, 10, chunks=(100, 5)))
    text = dd.from_pandas(pd.DataFrame({"a": [1.0] * 4, "b": ["x"] * 4}), npartitions=2)
    lying = text.map_partitions(lambda part: part, meta={"a": float, "b": float})
    assert budget.n_charges == 0
    with pytest.warns(UserWarning, match="little more than noise"):
        model.fit(lying)  # its types said otherwise: such entries are missing
    assert budget.n_charges == 1


def test_a_block_of_another_shape_is_refused():
    lying = da.from_delayed(dask.delayed(np.ones)((3, 2)), (4, 2), dtype=float)
    with pytest.raises(ValueError, match="another shape"):
        DaskSource(lying).total(PlainSum())


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_fit_equals_the_fit_in_memory(kind):
    rng = np.random.default_rng(4)
    X = rng.choice([-1, 1], 600)[:, None] * np.array([0.8, 0.4, 0.2, 0, 0]) + 0.5 * rng.standard_normal((600, 5))
    settings = {"epsilon": 1.0, "delta": 1e-5, "sigma": 0.5, "start": "equal", "random_state": 0, "sparsity": 3}
    expected = DPSymmetricMixture(**settings).fit(X)
    rows = da.from_array(X, chunks=(70, 5))
    if kind == "frame":
        rows = dd.from_pandas(pd.DataFrame(X, columns=list("abcde")), npartitions=5)
    fitted = DPSymmetricMixture(**settings).fit(rows)
    agree(fitted.coef_, expected.coef_)
    if kind == "array":
        assert fitted.releases_ == expected.releases_
    else:  # a frame's rows may move, so its sums have more room for rounding
        pairs = zip(fitted.releases_, expected.releases_, strict=True)
        assert all(0 <= ours.sensitivity / theirs.sensitivity - 1 < 1e-9 for ours, theirs in pairs)
    assert fitted.n_features_in_ == 5
    assert getattr(fitted, "feature_names_in_", np.empty(0)).tolist() == (list("abcde") if kind == "frame" else [])


def holding(*entries):
    block = np.empty((len(entries), 1), dtype=object)
    block[:, 0] = entries
    return block


@pytest.mark.parametrize("odd", ["x", "1_000", " 3", None, 2 + 1j, 10**400, pd.NA, [1.0], pd.Timestamp(0)], ids=repr_of)
def test_an_unexpected_entry_of_a_block_is_converted_alone(odd):
    """The collection declared floats. Nothing fails after the charge, and the entry is read as in a list."""
    X = da.from_delayed(dask.delayed(holding)(0.5, odd), (2, 1), dtype=float)
    y = da.from_delayed(dask.delayed(lambda: holding(0.5, odd)[:, 0])(), (2,), dtype=float)
    source = DaskSource(X, y)
    for rows in (source, source.scaled(np.zeros(1), np.ones(1))):
        np.testing.assert_array_equal(rows.total(Entries()), [0.5, number(odd), 0.5, number(odd)])


class Entries(PlainSum):
    def sum(self, chunk):
        return np.append(np.asarray(chunk.X, dtype=float).ravel(), chunk.y)


def test_a_block_takes_one_thread():
    """Dask assigns it one; the other threads are for other blocks."""

    class Where:
        label, bound, blocked = "threads", Bound.symmetric(linf=1.0, l2=1.0), False

        def sum(self, chunk):
            used = set()
            run_in_parallel(lambda task: used.add(threading.get_ident()), 64)
            return np.array([float(used == {threading.get_ident()})])

    with dask.config.set(scheduler="threads", num_workers=2):
        assert DaskSource(da.ones((10, 3), chunks=(5, 3))).total(Where()) == 2.0


def test_a_frame_of_delayed_parts_is_read():
    """Their divisions are unknown, their graph has wrongly named aliases, and parts may contain any entries."""
    parts = [
        pd.DataFrame({"a": [1, 2], "b": 0.5}),
        pd.DataFrame({"a": ["x", "3"], "b": 1}),
        pd.DataFrame(columns=["a", "b"]),
    ]
    meta = pd.DataFrame({"a": pd.Series([], dtype=object), "b": pd.Series([], dtype=float)})
    frame = dd.from_delayed([dask.delayed(part) for part in parts], meta=meta, verify_meta=False)
    source = DaskSource(frame, numeric=["a"])
    assert source.n_rows == 4
    np.testing.assert_array_equal(source._X.compute(), [[1, 0.5], [2, 0.5], [np.nan, 1], [3, 1]])
