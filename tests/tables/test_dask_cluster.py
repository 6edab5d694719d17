"""Rows on real workers: the same totals, noise drawn at the client, and one sentence when a worker is lost."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from test_dask import BETA, PlainSum, agree, queries, table

from dpem import Budget
from dpem._threads import thread_limit
from dpem.fitting import sequence
from dpem.fitting.step import run_steps
from dpem.paper import DPSymmetricMixture
from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.paper.steps import PaperState, Refine, Select
from dpem.privacy import Account, Curator, SeededNoise
from dpem.tables import ArraySource
from dpem.tables.dask import DaskSource
from dpem.tables.dask_tasks import DIED, LOST

#: Seconds after which a test gives up; a busy machine may take long to start a process.
PATIENCE = 600


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with thread_limit(1):
        yield


@pytest.fixture(scope="module")
def workers():
    """Two worker processes, shared by the tests that need real ones."""
    with (
        quiet(),
        dask.config.set({"distributed.comm.timeouts.connect": f"{PATIENCE}s"}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local,
    ):
        yield local


@pytest.fixture
def client(workers):
    with Client(workers) as client:
        client.wait_for_workers(1)  # a test may have killed the other
        yield client


class quiet:
    """Suppresses Dask's messages about lost connections, which these tests cause on purpose."""

    def __enter__(self):
        logging.getLogger("distributed").setLevel(logging.CRITICAL)

    def __exit__(self, *_):
        logging.getLogger("distributed").setLevel(logging.NOTSET)


def test_totals_on_workers_are_those_in_memory(client):
    X, y = table()
    source = DaskSource(da.from_array(X, chunks=(250, 3)).persist(), da.from_array(y, chunks=400).persist())
    memory = ArraySource(X, y)
    for query in queries():
        agree(source.total(query), memory.total(query))
        assert source.slack(query) == memory.slack(query)


def test_the_total_does_not_depend_on_the_workers(client):
    """The same blocks give the same bits on workers, on threads and in a loop, every time."""
    X, _ = table()
    query = SymmetricMixture(0.8).gradient(BETA, Clip(0.9))
    source = DaskSource(da.from_array(X, chunks=(100, 3)))
    totals = [source.total(query) for _ in range(3)]
    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler, num_workers=4):
            totals += [source.total(query) for _ in range(3)]
    assert len({total.tobytes() for total in totals}) == 1


STEPS = (Select(0.02, 2, Clip(0.9), 1.0), Refine(0.02, 0.9, 1.0), Refine(0.02, 0.9, 1.0))


class HomeNoise(SeededNoise):
    """Noise that cannot be pickled."""

    def __reduce__(self):
        raise AssertionError("noise is drawn at the client")


def improved(source):
    account = Account(5.0, 1e-5)
    state = run_steps(
        Curator(source, account, HomeNoise(3)), SymmetricMixture(0.8), STEPS, PaperState.at(BETA, len(BETA))
    )
    return state.beta, account.releases


def test_noise_is_drawn_once_and_at_the_client(client):
    """The same seed gives the same fit as in memory; workers draw no noise."""
    X, _ = table()
    beta, releases = improved(DaskSource(da.from_array(X, chunks=(500, 3)).persist()))
    expected, theirs = improved(ArraySource(X))
    agree(beta, expected)
    assert releases == theirs


class Counted(PlainSum):
    """Records the processes in which it was unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __setstate__(self, state):
        self.__dict__ |= state
        (Path(self.folder) / f"{os.getpid()}-{time.time_ns()}").touch()


def test_a_query_is_sent_once_to_each_worker(client, tmp_path):
    source = DaskSource(da.ones((4_000, 3), chunks=(100, 3)).persist())
    np.testing.assert_array_equal(source.total(Counted(str(tmp_path))), np.full(3, 4_000.0))
    here = [note for note in tmp_path.iterdir() if note.name.startswith(f"{os.getpid()}-")]
    there = len(list(tmp_path.iterdir())) - len(here)
    assert 1 <= there <= 3  # two workers; one of them may unpack it both as a task and as data


class Waiting(PlainSum):
    """Records which process sums a block, and waits until it is released."""

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
    """Call a function with the process that sums a block while it does so; then release the block."""

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


def test_a_fit_survives_a_killed_worker_and_is_charged_once(client, interrupted, monkeypatch):
    X, _ = table()
    monkeypatch.setattr("dpem.tables.dask.DaskSource", interrupted)
    budget = Budget(1.0, 1e-5)
    settings = {"epsilon": 0.5, "delta": 1e-5, "sigma": 0.8, "start": BETA, "method": "published", "n_iter": 4}
    monkeypatch.setattr("dpem.fitting.sequence.PrivateNoise", lambda: sequence.SeededNoise(0))
    fitted = DPSymmetricMixture(**settings, budget=budget).fit(da.from_array(X, chunks=(250, 3)))
    agree(fitted.coef_, DPSymmetricMixture(**settings, random_state=0).fit(X).coef_)
    assert budget.n_charges == 1


class Quoting(PlainSum):
    def sum(self, chunk):
        raise ValueError(f"cannot sum {chunk.X[0, 0]}")


def test_no_message_quotes_a_row(client):
    rows = da.full((40, 3), 7123.25, chunks=(10, 3)).persist()
    with pytest.raises(
        RuntimeError, match=r"could not be computed \(ValueError\); the charge for this fit stays"
    ) as error:
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


def read_badly(block_info=None):
    raise KeyError("7123.25")


def test_a_lost_scheduler_ends_in_one_sentence(tmp_path):
    """The scheduler is killed while a block is summed; the charge stays."""
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


def test_a_query_fails_if_all_workers_leave(monkeypatch):
    """All workers leave while a block is summed, and none returns."""
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
