"""Lost connections: a server that stops without warning and sessions that are ended, during fits and at random.

A fit whose charge was confirmed continues without the server and returns its answer, with a warning if its outcome
cannot be written. A fit whose charge was not confirmed queries no rows; its message is that nothing was recorded or, if
the confirmation was lost, that the charge may have been recorded.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator

from dpem import Ledger
from studies.audits.faults_ledger import AMPLE, DATASET, Attempts, Findings
from studies.audits.postgres import Server


def opened(found: Findings, server: Server) -> tuple[str, Attempts]:
    database = server.fresh()
    Ledger(server.url(database)).open(DATASET, **AMPLE)
    return database, Attempts(found, server.url(database))


def stopped_in_mid_fit(found: Findings, server: Server, rounds: int) -> None:
    """The server stops before the first or the second query, and starts again later."""
    _, attempts = opened(found, server)
    for turn in range(rounds):

        def stop(query: int, turn: int = turn) -> None:
            if query == 1 + turn % 2:
                server.stop()

        how = attempts.fit(stop)
        found.check(how == "answered, not closed", f"a fit whose server stopped in mid-fit was {how}")
        found.counts[f"server stopped in mid-fit: {how}"] += 1
        found.check(attempts.fit() == "refused", "a fit went on without its server")
        server.start()
        rows = attempts.look()
        found.check([row.outcome for row in rows] == [None] * (turn + 1), "the charge is not shown as it is")


def ended_in_mid_fit(found: Findings, server: Server, rounds: int) -> None:
    """All sessions are ended between the charge and its outcome; the ledger connects again."""
    database, attempts = opened(found, server)
    for _ in range(rounds):
        how = attempts.fit(lambda _: void(server.end_sessions(database)))
        found.check(how == "answered", f"a fit whose sessions were ended between charge and close was {how}")
        found.counts[f"sessions ended in mid-fit: {how}"] += 1
    attempts.look()


def void(_: object) -> None:
    """Call a function and return None."""


@contextlib.contextmanager
def meanwhile(act: Callable[[], None], pause: Callable[[], float]) -> Iterator[None]:
    """Call a function repeatedly, with pauses, while the block runs."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause()):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def storm(found: Findings, server: Server, fits: int, chance: random.Random) -> None:
    """Sessions are ended at random moments of fits, some of them during a commit."""
    database, attempts = opened(found, server)
    ended = 0

    def end() -> None:
        nonlocal ended
        ended += server.end_sessions(database)

    started = time.perf_counter()
    for _ in range(5):
        attempts.fit()
    span = (time.perf_counter() - started) / 5
    with meanwhile(end, lambda: chance.uniform(0.0, 4 * span)):
        for _ in range(fits):
            found.counts[f"sessions ended at random: {attempts.fit()}"] += 1
    found.counts["sessions ended at random"] += ended
    found.counts["charges perhaps recorded"] += attempts.perhaps
    attempts.look()


def crashes(found: Findings, server: Server, rounds: int, chance: random.Random) -> None:
    """The server stops at random moments of fits, and starts again."""
    _, attempts = opened(found, server)

    def crash() -> None:
        server.stop()
        server.start()
        found.counts["server stopped at random"] += 1

    before = found.counts["server stopped at random"]
    with meanwhile(crash, lambda: chance.uniform(0.05, 0.4)):
        while found.counts["server stopped at random"] < before + rounds:
            how = attempts.fit()
            found.counts[f"server stopped at random: {how}"] += 1
            time.sleep(0.05 if how == "refused" else 0.0)
    found.counts["charges perhaps recorded"] += attempts.perhaps
    attempts.look()


def campaign(server: Server, quick: bool, tick: Callable[[int], object]) -> Findings:
    found, chance = Findings(), random.Random(0)
    stopped_in_mid_fit(found, server, rounds=1 if quick else 6)
    tick(1)
    ended_in_mid_fit(found, server, rounds=3 if quick else 50)
    tick(1)
    storm(found, server, 20 if quick else 400, chance)
    tick(1)
    crashes(found, server, 1 if quick else 15, chance)
    tick(1)
    return found
