"""Simultaneous fits that race for the rest of a budget: exactly as many succeed as the budget admits.

Arguments of ``main``: URL PROCESSES THREADS FITS [crowded].

A dataset admits exactly FITS fits. PROCESSES processes with THREADS threads each start at the same moment, and every
thread fits once. Each fit must end with an answer or with BudgetExceeded, and not because the database is locked. On a
crowded server, which admits fewer sessions than there are racers, a fit may also end with the error that nothing was
recorded; then at most as many succeed as the budget admits.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Sequence

from dpem import BudgetExceeded, Ledger
from dpem.paper import DPSymmetricMixture
from dpem.privacy import ledger_store
from studies.audits.faults_ledger import DATASET, SETTINGS, Findings, check_ledger, price, room_for, table

ANSWERED, REFUSED = "answered", "refused"


def fit_once(url: str) -> str:
    try:
        DPSymmetricMixture(**SETTINGS, budget=Ledger(url, DATASET)).fit(table())
    except BudgetExceeded:
        return REFUSED
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ANSWERED


def racer(url: str, threads: int, ready: int, go: int) -> Counter[str]:
    """Warm up, report, wait, and fit in all threads at once."""
    DPSymmetricMixture(**SETTINGS).fit(table())
    barrier, ended = threading.Barrier(threads + 1), Counter[str]()
    lock = threading.Lock()

    def run() -> None:
        barrier.wait()
        how = fit_once(url)
        with lock:
            ended[how] += 1

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    os.write(ready, b".")
    os.read(go, 1)  # until the parent closes its end
    barrier.wait()
    for thread in running:
        thread.join()
    return ended


def forked(url: str, threads: int, ready: int, go: tuple[int, int]) -> int:
    """Fork a process of racers; returns a pipe with the outcomes of its fits."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        os.close(go[1])
        try:
            os.write(write, json.dumps(racer(url, threads, ready, go[0])).encode())
        finally:
            os._exit(0)
    os.close(write)
    return read


def race(url: str, processes: int, threads: int) -> Counter[str]:
    """The outcomes of all fits. This process has run no compiled kernel before it forks."""
    ready, go = os.pipe(), os.pipe()
    pipes = []
    for _ in range(processes):
        pipes.append(forked(url, threads, ready[1], go))
    for _ in range(processes):
        os.read(ready[0], 1)
    os.close(go[1])
    ended = Counter[str]()
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as end:
            ended.update(json.loads(end.read() or "{}"))
        os.wait()
    return ended


def campaign(url: str, processes: int, threads: int, fits: int, crowded: bool) -> Findings:
    found = Findings()
    Ledger(url).open(DATASET, **room_for(fits))
    ended = race(url, processes, threads)
    found.counts.update({f"fits {ANSWERED}": ended[ANSWERED], "fits refused by BudgetExceeded": ended[REFUSED]})
    found.counts["fits that ended otherwise"] = processes * threads - ended[ANSWERED] - ended[REFUSED]
    rows = check_ledger(found, url, {}, price())
    if crowded:
        found.check(ended[ANSWERED] == len(rows) <= fits, f"{ended[ANSWERED]} fits were answered where {fits} fit")
    else:
        found.check(ended[ANSWERED] == fits, f"{ended[ANSWERED]} fits were answered where {fits} fit")
        found.check(ended[REFUSED] == processes * threads - fits, "not all the others were refused by BudgetExceeded")
        found.check([row.outcome for row in rows] == [ANSWERED] * fits, "the ledger does not show the answered fits")
    for how in set(ended) - {ANSWERED, REFUSED}:
        refused = crowded and how.startswith("LedgerError") and how.endswith("nothing was recorded.")
        found.check(refused, f"{ended[how]} fit(s) ended with {how}")
    return found


def main(arguments: Sequence[str]) -> None:
    url, (processes, threads, fits) = arguments[0], map(int, arguments[1:4])
    ledger_store.PATIENCE = 600.0  # on a busy machine a racer may wait for its turn for more than half a minute
    campaign(url, processes, threads, fits, "crowded" in arguments[4:]).print()
