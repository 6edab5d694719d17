"""kill -9 at random moments of fits against one ledger.

Arguments of ``main``: URL KILLS SEED [late]. With "late" a bug is planted that the campaign must find.

Each round forks two children that fit repeatedly with the same ledger, and kills each at a random moment, uniformly
distributed over the time of two fits. A child reports to a pipe before and after each phase, so that the pipe and the
ledger together show the phase in which it died. A dataset admits some fits only and is followed by a new one, so that
budgets that are nearly spent are tested, too.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpem import BudgetExceeded, Ledger
from dpem.privacy import Charge, Price
from studies.audits.faults_ledger import SETTINGS, Findings, Watched, check_ledger, price, room_for, table

#: Fits that a dataset admits.
ROOM = 60
CHARGING, CONFIRMED, READING, ANSWERED, REFUSED, FAILED = "ADQRXE"
#: Phases of a fit, in order, as the table names them.
PHASES = {
    "": "before the charge",
    CHARGING: "in the charge, no row",
    "written": "in the charge, row written",
    CONFIRMED: "charge confirmed, rows not read",
    READING: "rows read",
    "closed": "closed, answer not given",
    ANSWERED: "before the charge",
    REFUSED: "refused",
}


class ReportingLedger(Ledger):
    """A ledger that reports to a pipe before and after a charge."""

    pipe: int

    def charge(self, epsilon: float, delta: float, price: Price, **details: Any) -> Any:
        os.write(self.pipe, f"{CHARGING}\n".encode())
        charge = super().charge(epsilon, delta, price, **details)
        os.write(self.pipe, f"{CONFIRMED} {charge.id}\n".encode())
        return charge


class LateLedger(ReportingLedger):
    """A planted bug: the charge is written after the fit."""

    def charge(self, epsilon: float, delta: float, price: Price, **details: Any) -> Any:
        ledger, number = self, len(self.history()) + 1

        class Late(Charge):
            def close(self, outcome: str) -> None:
                Ledger.charge(ledger, epsilon, delta, price, **details).close(outcome)

        os.write(self.pipe, f"{CHARGING}\n{CONFIRMED} {number}\n".encode())
        return Late(epsilon, delta, price)


LEDGERS = {"sound": ReportingLedger, "late": LateLedger}


def fit_for_ever(ledger: ReportingLedger, pipe: int) -> None:
    """Fit until killed, or until the total is spent."""
    ledger.pipe = pipe

    def note(number: int) -> None:
        if number == 1:
            os.write(pipe, f"{READING}\n".encode())

    X = table()
    while True:
        try:
            model = Watched(**SETTINGS, budget=ledger).before_queries(note).fit(X)
        except BudgetExceeded:
            os.write(pipe, f"{REFUSED}\n".encode())
            return
        except Exception as error:
            os.write(pipe, f"{FAILED} {type(error).__name__}: {error}\n".encode())
            return
        os.write(pipe, f"{ANSWERED} {model.coef_.tobytes().hex()}\n".encode())


@dataclass
class Child:
    """A process that fits, and its reports."""

    ledger: ReportingLedger
    confirmed: dict[int, str] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    last: str = ""
    error: str = ""

    def __post_init__(self) -> None:
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._read)
            try:
                fit_for_ever(self.ledger, write)
            finally:
                os._exit(0)
        os.close(write)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        with os.fdopen(self._read, "r") as pipe:
            for line in pipe:
                self._hear(line.rstrip("\n"))

    def _hear(self, line: str) -> None:
        self.last, _, rest = line.partition(" ")
        if self.last == CONFIRMED:
            self._charge = int(rest)
            self.confirmed[self._charge] = "confirmed"
        elif self.last == ANSWERED:
            self.confirmed[self._charge] = "answered"
            self.answers.append(rest)
        elif self.last == FAILED:
            self.error = rest


def settled(url: str) -> None:
    """Wait until a server has closed the children's sessions, which may still be committing."""
    if url.startswith("sqlite"):
        return
    import psycopg

    others = b"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(others).fetchone() != (0,):
            time.sleep(0.002)


def phase(child: Child, rows: Mapping[int, str | None], unconfirmed: bool) -> str:
    """The phase in which the child died; ``unconfirmed`` if there is a charge without a report."""
    if child.last == CHARGING and unconfirmed:
        return PHASES["written"]
    if child.last == READING and rows.get(max(child.confirmed)) is not None:
        return PHASES["closed"]
    return PHASES.get(child.last, "failed")


class Campaign:
    """Rounds of two kills, each followed by a check of the ledger."""

    def __init__(self, url: str, seed: int, kind: str = "sound") -> None:
        self._url, self._kind, self._chance = url, kind, random.Random(seed)
        self.found, self._cost, self._total = Findings(), price(), room_for(ROOM)
        self._span = self._four_fits()
        self._answers: set[str] = set()
        self._open_next()

    def _open_next(self) -> None:
        self._name = f"dataset {self.found.counts['datasets'] + 1}"
        Ledger(self._url).open(self._name, **self._total)
        self.found.counts["datasets"] += 1
        self._confirmed: dict[int, str] = {}
        self._unconfirmed = 0

    def _four_fits(self) -> float:
        """Seconds that four fits take, with their charges: two for each of two children."""
        started = time.perf_counter()
        ledger = Ledger(self._url).open("timing", epsilon=100.0, delta=1e-3)
        for _ in range(10):
            Watched(**SETTINGS, budget=ledger).before_queries(lambda _: None).fit(table())
        return (time.perf_counter() - started) / 2.5

    def round(self) -> None:
        children = [Child(LEDGERS[self._kind](self._url, self._name)) for _ in range(2)]
        for child in children:
            time.sleep(self._chance.uniform(0, self._span))
            child.kill()
        settled(self._url)
        self._look(children)
        if any(child.last == REFUSED for child in children):
            self._open_next()

    def _look(self, children: Sequence[Child]) -> None:
        found = self.found
        for child in children:
            self._confirmed |= child.confirmed
            found.check(not child.error, f"a fit failed: {child.error}")
            found.check(self._answers.isdisjoint(child.answers), "two fits drew the same noise")
            self._answers |= set(child.answers)
            found.counts["fits answered"] += len(child.answers)
        rows = check_ledger(found, self._url, self._confirmed, self._cost, self._name)
        unconfirmed = sum(row.id not in self._confirmed for row in rows) - self._unconfirmed
        self._unconfirmed += unconfirmed
        found.check(0 <= unconfirmed <= sum(child.last == CHARGING for child in children), "a row that no fit made")
        outcomes = {row.id: row.outcome for row in rows}
        for child in children:
            where = phase(child, outcomes, unconfirmed > 0)
            unconfirmed -= where == PHASES["written"]
            found.counts[f"killed {where}"] += 1
            found.counts["kills"] += 1


def main(arguments: Sequence[str]) -> None:
    url, kills, seed, *kind = arguments
    campaign = Campaign(url, int(seed), *kind)
    while campaign.found.counts["kills"] < int(kills):
        campaign.round()
        print("step 2", flush=True)
    campaign.found.print()
