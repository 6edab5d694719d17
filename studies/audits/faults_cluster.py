"""Dask workers that are killed during a query: the answer must be right and charged once.

Noise is seeded, so that the fit on the cluster must equal the fit in memory. Reading a block is slow, so that a killed
worker has unfinished blocks.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from dpem import Ledger
from dpem.paper import DPSymmetricMixture
from dpem.privacy import Noise, SeededNoise
from studies.audits.faults_ledger import AMPLE, DATASET, SETTINGS, Attempts, Findings, Watched, table

#: Seconds of reading one block.
SLOW = 0.04
BLOCKS = 12


def slowly(block: Any) -> Any:
    time.sleep(SLOW)
    return block


def killed(client: Client, pause: float, deaths: list[int]) -> threading.Thread:
    """Kill a worker after a pause."""
    pids = sorted(client.run(os.getpid).values())

    def kill() -> None:
        time.sleep(pause)
        os.kill(pids[0], signal.SIGKILL)
        deaths.append(pids[0])

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def campaign(url: str, rounds: int, tick: Callable[[int], object]) -> Findings:
    """Fits in each of which a worker dies in the first or in the second query."""
    found, chance, X = Findings(), Random(0), table(1200)
    ledger = Ledger(url).open(DATASET, **AMPLE)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    local: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    local["silence_logs"] = logging.CRITICAL
    try:
        for turn in range(rounds):  # a new cluster each: Dask may not replace a worker that dies soon after its start
            with (
                warnings.catch_warnings(),
                dask.config.set({"distributed.comm.timeouts.connect": "5s"}),
                LocalCluster(**local) as workers,
                Client(workers) as client,
            ):
                warnings.simplefilter("ignore", UserWarning)  # seeded noise is not private
                client.wait_for_workers(2, timeout=60)
                _round(found, client, ledger, X, turn, chance.uniform(0, SLOW * BLOCKS / 2))
            tick(1)
    finally:
        logging.getLogger("distributed").setLevel(logging.NOTSET)
    outcomes = [charge.outcome for charge in ledger.history()]
    found.check(outcomes == ["answered"] * rounds, f"{rounds} fits were charged as {outcomes}")
    Attempts(found, url, {charge.id: "answered" for charge in ledger.history()}).look()
    return found


class Repeatable(Watched):
    """An estimator with seeded noise that can be charged, unlike one with ``random_state``."""

    def _noise(self, stacklevel: int = 3) -> Noise:
        return SeededNoise(0)


def _round(found: Findings, client: Client, ledger: Ledger, X: Any, turn: int, pause: float) -> None:
    deaths: list[int] = []
    killers = []

    def act(query: int) -> None:
        if query == 1 + turn % 2:
            killers.append(killed(client, pause, deaths))

    rows = da.from_array(X, chunks=(len(X) // BLOCKS, X.shape[1])).map_blocks(slowly, dtype=float)
    fitted = Repeatable(**SETTINGS, budget=ledger).before_queries(act).fit(rows)
    for killer in killers:
        killer.join()
    expected = DPSymmetricMixture(**SETTINGS, random_state=0).fit(X)
    found.check(np.allclose(fitted.coef_, expected.coef_, rtol=1e-12, atol=1e-12), "another answer than in memory")
    found.check(fitted.releases_ == expected.releases_, "other releases than in memory")
    found.counts["workers killed"] += len(deaths)
    found.counts["fits answered, as in memory"] += 1
