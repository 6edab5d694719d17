"""Rows on a cluster: the same totals as in memory, whoever sums them, and one sentence when it cannot be done."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from dask.callbacks import Callback
from distributed import Client, LocalCluster

from dpem import Budget, DPLinearRegression
from dpem._threads import at_most, side_by_side
from dpem.fitting.scaler import ColumnMoments
from dpem.fitting.step import run_steps
from dpem.paper import DPSymmetricMixture
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.paper.sigma import SizeHistogram
from dpem.paper.steps import PaperState, Refine, Select
from dpem.privacy import Account, Curator, SeededNoise
from dpem.query import Bound
from dpem.tables import ArraySource
from dpem.tables import dask_tasks as tasks
from dpem.tables.base import ScaledSource
from dpem.tables.dask import DaskSource
from dpem.tables.dask_tasks import DIED, FAN_IN, FETCHED, LOST
from dpem.tables.entries import number
from dpem.tables.progress import progress

BETA = np.array([0.7, -0.4, 0.0])
N = 3_001
#: Seconds after which a test gives up; a busy machine may take long to start a process.
PATIENCE = 600


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with at_most(1):
        yield


@pytest.fixture(scope="module")
def workers():
    """Two worker processes, shared by the tests that need real ones."""
    with (
        quiet(),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local,
    ):
        yield local


@pytest.fixture
def client(workers):
    with Client(workers) as client:
        client.wait_for_workers(1)  # a test may have killed the other
        yield client


class quiet:
    """Dask's own account of lost connections, which these tests bring about on purpose."""

    def __enter__(self):
        logging.getLogger("distributed").setLevel(logging.CRITICAL)

    def __exit__(self, *_):
        logging.getLogger("distributed").setLevel(logging.NOTSET)


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


def test_totals_on_workers_are_those_in_memory(client):
    X, y = table()
    source = DaskSource(da.from_array(X, chunks=(250, 3)).persist(), da.from_array(y, chunks=400).persist())
    memory = ArraySource(X, y)
    for query in queries():
        agree(source.total(query), memory.total(query))
        assert source.slack(query) == memory.slack(query)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 64, 1_000, N, (0, 5, 0, 0, N - 5, 0)], ids=str)
def test_blocks_do_not_matter(rows, dtype):
    X, y = table(200 if rows == 1 else N, dtype)
    source = DaskSource(da.from_array(X, chunks=(rows, 3)), da.from_array(y, chunks=77))
    assert (source.n_rows, source.n_features, source.has_response, source.dtype) == (len(X), 3, True, dtype)
    for query in queries()[:-1]:
        # float32 sums of at most BLOCK rows are rounded in float32, in another order for other blocks.
        agree(source.total(query), ArraySource(X, y).total(query), 1e-12 if dtype == np.float64 else 1e-6)


def test_the_total_does_not_depend_on_who_summed_what(client):
    """The same blocks give the same bits: on workers, on threads, in a loop, and every time."""
    X, _ = table()
    query = SymmetricMixture(0.8).gradient(BETA, Clip(0.9))
    source = DaskSource(da.from_array(X, chunks=(100, 3)))
    totals = [source.total(query) for _ in range(3)]
    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            totals.append(source.total(query))
    assert len({total.tobytes() for total in totals}) == 1


@pytest.mark.parametrize("blocks", [1, FETCHED, FETCHED + 1, FAN_IN * FETCHED + 1])
def test_blocks_are_added_with_compensation(blocks):
    """Partial sums of 1e16 that cancel across the tree: plain float64 loses the ones."""
    X = np.ones((2 * blocks, 1))
    X[0], X[-1] = 1e16, -1e16
    assert DaskSource(da.from_array(X, chunks=(1, 1))).total(PlainSum()) == 2 * blocks - 2
    assert X.cumsum()[-1] != 2 * blocks - 2 or blocks == 1


def test_long_blocks_are_read_in_chunks(monkeypatch):
    """The slack's lemma is about chunks of at most CHUNK_ROWS rows, whatever the blocks are."""
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
    """Dask joins partitions where few columns are read: X and y then come in different pieces."""
    _, X, y = frame()
    for i, rows in enumerate(np.array_split(np.arange(N), 9)):
        pd.DataFrame(X[rows], columns=["a", "b", "c"]).assign(y=y[rows]).to_parquet(tmp_path / f"{i}.parquet")
    data = dd.read_parquet(tmp_path)
    assert len(data["y"].to_delayed()) != len(data[["a", "b", "c"]].to_delayed())
    query = SymmetricRegression(0.8).gradient(BETA, Clip(0.9, 0.7))
    agree(DaskSource(data[["a", "b", "c"]], data["y"]).total(query), ArraySource(X, y).total(query))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "persisted", "pandas"])
def test_only_the_columns_that_a_query_reads_are_read(kind, tmp_path, monkeypatch):
    rows = np.random.default_rng(7).standard_normal((900, 30))
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(30)])
    X = dd.from_pandas(table, npartitions=3)
    if kind in ("parquet", "arrow"):
        for i, part in enumerate((table[:400], table[400:700], table[700:])):
            part.to_parquet(tmp_path / f"{i}.parquet")
        X = dd.read_parquet(tmp_path, **({"filesystem": "arrow"} if kind == "arrow" else {}))
    X = X.persist(scheduler="sync") if kind == "persisted" else X
    source, beta = DaskSource(X), np.zeros(30)
    beta[[4, 21]] = 0.3
    query = SymmetricMixture(0.5).on_support(beta, np.array([4, 21]), 1.0)
    seen = []

    def noted(part, *given, read=tasks.numbers):
        seen.append(list(part.columns))
        return read(part, *given)

    monkeypatch.setattr("dpem.tables.dask_tasks.numbers", noted)
    with dask.config.set(scheduler="sync"):
        found, again = source.total(query), source.total(query)
    assert seen == 6 * [["x4", "x21"]]
    np.testing.assert_array_equal(found, again)
    np.testing.assert_allclose(found, ArraySource(rows).total(query), rtol=1e-12)


def destroy(path, columns):
    """Overwrite what a Parquet file stores of these columns: it can be opened, and they cannot be read."""
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
        source = DaskSource(X[names], person="who").scaled(np.zeros(4), np.ones(4)).limited("who", 1)
        first, second = source.split(2)
        later = DaskSource(X[["who", *names[:4]]]).limited("who", 1)  # whose row it is was a feature
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


def test_a_block_of_another_shape_is_noticed():
    lying = da.from_delayed(dask.delayed(np.ones)((3, 2)), (4, 2), dtype=float)
    with pytest.raises(ValueError, match="another shape"):
        DaskSource(lying).total(PlainSum())


# --- Noise and budget -------------------------------------------------------------------------------------------------

STEPS = (Select(0.02, 2, Clip(0.9), 1.0), Refine(0.02, 0.9, 1.0), Refine(0.02, 0.9, 1.0))


class HomeNoise(SeededNoise):
    """Noise that cannot be sent anywhere."""

    def __reduce__(self):
        raise AssertionError("noise is drawn at the client")


def improved(source):
    account = Account(5.0, 1e-5)
    state = run_steps(
        Curator(source, account, HomeNoise(3)), SymmetricMixture(0.8), STEPS, PaperState.at(BETA, len(BETA))
    )
    return state.beta, account.releases


def test_noise_is_drawn_once_and_at_the_client(client):
    """The same seed gives the fit that it gives in memory; an array of workers draws nothing of its own."""
    X, _ = table()
    beta, releases = improved(DaskSource(da.from_array(X, chunks=(500, 3)).persist()))
    expected, theirs = improved(ArraySource(X))
    agree(beta, expected)
    assert releases == theirs


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_fit_is_that_in_memory(kind):
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


# --- What travels -----------------------------------------------------------------------------------------------------


class Counted(PlainSum):
    """Notes in which processes it was unpacked."""

    def __init__(self, folder):
        self.folder = folder

    def __setstate__(self, state):
        self.__dict__ |= state
        (Path(self.folder) / f"{os.getpid()}-{time.time_ns()}").touch()


def test_a_query_travels_once_to_each_worker(client, tmp_path):
    source = DaskSource(da.ones((4_000, 3), chunks=(100, 3)).persist())
    np.testing.assert_array_equal(source.total(Counted(str(tmp_path))), np.full(3, 4_000.0))
    here = [note for note in tmp_path.iterdir() if note.name.startswith(f"{os.getpid()}-")]
    there = len(list(tmp_path.iterdir())) - len(here)
    assert 1 <= there <= 3  # two workers; one of them may unpack it both as a task and as data


# --- Failures ---------------------------------------------------------------------------------------------------------


class Waiting(PlainSum):
    """Says which process sums a block, and goes on when it is released."""

    def __init__(self, folder):
        self.folder = folder

    def sum(self, chunk):
        folder = Path(self.folder)
        (folder / f"pid-{os.getpid()}").touch()
        deadline = time.monotonic() + PATIENCE
        while not (folder / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return super().sum(chunk)


def as_soon_as_summing(folder, act):
    """Do something once a block is being summed, with the process that sums it; then let all go on."""

    def wait():
        deadline = time.monotonic() + PATIENCE
        while not (pids := list(folder.glob("pid-*"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        act(int(pids[0].name.removeprefix("pid-")))
        (folder / "go").touch()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.fixture
def interrupted(tmp_path):
    """A source in whose second query the worker that sums a block is killed."""
    sums = []

    class Interrupted(DaskSource):
        def total(self, query):
            sums.append(query)
            if len(sums) == 2:
                super().total(Waiting(str(tmp_path)))
            return super().total(query)

    killer = as_soon_as_summing(tmp_path, lambda pid: os.kill(pid, signal.SIGKILL))
    yield Interrupted
    killer.join()
    assert (tmp_path / "go").exists()
    assert len(sums) > 2


def test_a_killed_worker_leaves_a_fit_right_and_its_budget_charged_once(client, interrupted, monkeypatch):
    X, _ = table()
    monkeypatch.setattr("dpem.tables.dask.DaskSource", interrupted)
    budget = Budget(1.0, 1e-5)
    settings = {"epsilon": 0.5, "delta": 1e-5, "sigma": 0.8, "start": BETA, "method": "published", "n_iter": 4}
    monkeypatch.setattr("dpem.fitting.sequence.PrivateNoise", lambda: SeededNoise(0))
    fitted = DPSymmetricMixture(**settings, budget=budget).fit(da.from_array(X, chunks=(250, 3)))
    agree(fitted.coef_, DPSymmetricMixture(**settings, random_state=0).fit(X).coef_)
    assert budget.n_charges == 1


class Quoting(PlainSum):
    def sum(self, chunk):
        raise ValueError(f"cannot sum {chunk.X[0, 0]}")


def test_no_message_quotes_a_row(client):
    rows = da.full((40, 3), 7123.25, chunks=(10, 3)).persist()
    with pytest.raises(RuntimeError, match=r"could not be computed \(ValueError\); what this fit was charged") as error:
        DaskSource(rows).total(Quoting())
    text = dd.from_pandas(pd.DataFrame({"a": ["7123.25 Rome"] * 4}), npartitions=2)
    lying = DaskSource(text.map_partitions(lambda part: part, meta={"a": float}))
    assert np.isnan(lying.total(PlainSum())).all()
    loader = da.map_blocks(read_badly, chunks=((5, 5), (3,)), dtype=float)
    with pytest.raises(RuntimeError, match=r"could not be computed \(KeyError\)") as failed:
        DaskSource(loader).total(PlainSum())
    for raised in (error.value, failed.value):
        assert raised.__context__ is raised.__cause__ is None
        assert "7123" not in str(raised)
    logs = str({worker: lines for worker, lines in client.get_worker_logs().items()})
    assert "BlockFailed" in logs  # they are kept
    assert "Rome" not in logs
    assert "cannot sum" not in logs


def holding(*entries):
    block = np.empty((len(entries), 1), dtype=object)
    block[:, 0] = entries
    return block


@pytest.mark.parametrize("odd", ["x", "1_000", " 3", None, 2 + 1j, 10**400, pd.NA, [1.0], pd.Timestamp(0)], ids=repr_of)
def test_an_entry_of_another_kind_in_a_block_is_read_by_itself(odd):
    """The collection declared floats. Nothing fails after the charge, and nothing is read otherwise than in a list."""
    X = da.from_delayed(dask.delayed(holding)(0.5, odd), (2, 1), dtype=float)
    y = da.from_delayed(dask.delayed(lambda: holding(0.5, odd)[:, 0])(), (2,), dtype=float)
    source = DaskSource(X, y)
    for rows in (source, source.scaled(np.zeros(1), np.ones(1))):
        np.testing.assert_array_equal(rows.total(Entries()), [0.5, number(odd), 0.5, number(odd)])


class Entries(PlainSum):
    def sum(self, chunk):
        return np.append(np.asarray(chunk.X, dtype=float).ravel(), chunk.y)


def read_badly(block_info=None):
    raise KeyError("7123.25")


def test_a_lost_scheduler_ends_in_one_sentence(tmp_path):
    """The scheduler is killed while a block is summed: the sentence, and what was charged stays charged."""
    with (
        quiet(),
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        a_cluster_in_a_process() as (process, address),
        Client(address, timeout=PATIENCE),
    ):
        account = Account(1.0, 1e-5)
        source = DaskSource(da.ones((100, 3), chunks=(10, 3)))
        killer = as_soon_as_summing(tmp_path, lambda pid: process.kill())
        with pytest.raises(RuntimeError) as error:
            Curator(source, account, SeededNoise(0)).select(Waiting(str(tmp_path)), 1, 0.01)
        killer.join()
    assert str(error.value) == LOST
    assert error.value.__context__ is None
    assert [release.price.rho for release in account.releases] == [0.01]


CLUSTER = """
import time
from distributed import LocalCluster
with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None) as local:
    print(local.scheduler_address, flush=True)
    time.sleep(3600)
"""


@contextmanager
def a_cluster_in_a_process():
    """A scheduler and its worker in one process, which ends with the block, and the scheduler's address."""
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONPATH": here},
    )  # fmt: skip
    with process:
        yield process, process.stdout.readline().strip()
        process.kill()


class Deadly(PlainSum):
    def sum(self, chunk):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_cluster_without_workers_is_given_up(monkeypatch):
    """All workers leave while a block is summed, and none comes back."""
    monkeypatch.setattr("dpem.tables.dask_tasks.PATIENCE", 2.0)
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **quiet) as local, Client(local) as client:
        source = DaskSource(da.ones((10, 3), chunks=(5, 3)))
        local.scale(0)
        while client.nthreads():
            time.sleep(0.05)
        with pytest.raises(RuntimeError, match="no worker") as error:
            source.total(SymmetricMixture(1.0).on_support(np.ones(3), np.arange(3), 1.0))
    assert str(error.value).count(".") == 1


def test_a_block_that_kills_every_worker_ends_in_one_sentence(client, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(RuntimeError) as error:
        DaskSource(da.ones((10, 3), chunks=(10, 3))).total(Deadly())
    assert str(error.value) == DIED


# --- Threads ----------------------------------------------------------------------------------------------------------

SIDE_BY_SIDE = """
import sys
import numpy as np
import dpem
assert "dask" not in sys.modules, "Dask is an extra"
import dask, dask.array as da
from distributed import Client, LocalCluster
from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.tables.dask import DaskSource

def main():
    X = np.random.default_rng(0).standard_normal((40_000, 20))
    query = SymmetricMixture(0.8).gradient(np.full(20, 0.1), Clip(0.9))
    source = DaskSource(da.from_array(X, chunks=(500, 20)))
    with dask.config.set(scheduler="sync"):
        expected = source.total(query).tobytes()
    with dask.config.set(scheduler="threads", num_workers=4):
        for _ in range(3):
            assert source.total(query).tobytes() == expected
    threads = dict(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=None)
    with LocalCluster(**threads) as local, Client(local):
        for _ in range(3):
            assert source.total(query).tobytes() == expected

main()
"""


def test_threads_of_a_worker_sum_side_by_side():
    """Bit for bit what one thread gives, in a process of its own: a crash there would be one here."""
    done = subprocess.run(
        [sys.executable, "-c", SIDE_BY_SIDE], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_block_takes_one_thread():
    """Dask gave it one: others are for other blocks."""

    class Where:
        label, bound, blocked = "threads", Bound.symmetric(linf=1.0, l2=1.0), False

        def sum(self, chunk):
            used = set()
            side_by_side(lambda task: used.add(threading.get_ident()), 64)
            return np.array([float(used == {threading.get_ident()})])

    with dask.config.set(scheduler="threads", num_workers=2):
        assert DaskSource(da.ones((10, 3), chunks=(5, 3))).total(Where()) == 2.0


def test_a_frame_of_delayed_parts():
    """Their divisions are unknown, and Dask names aliases in their graph wrongly; parts may hold what they like."""
    parts = [
        pd.DataFrame({"a": [1, 2], "b": 0.5}),
        pd.DataFrame({"a": ["x", "3"], "b": 1}),
        pd.DataFrame(columns=["a", "b"]),
    ]
    meta = pd.DataFrame({"a": pd.Series([], dtype=object), "b": pd.Series([], dtype=float)})
    frame = dd.from_delayed([dask.delayed(part) for part in parts], meta=meta, verify_meta=False)
    source = DaskSource(frame, spelled=["a"])
    assert source.n_rows == 4
    np.testing.assert_array_equal(source._X.compute(), [[1, 0.5], [2, 0.5], [np.nan, 1], [3, 1]])
