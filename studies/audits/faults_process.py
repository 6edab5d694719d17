"""A clock that is set back, and memory that is exhausted during a query.

The time of a charge is recorded, but order and totals depend on the charges' numbers only.

A query that runs out of memory fails after the charge: the charge stays, is shown as failed, and the next fit works.

``main``, with a URL as its argument, limits the memory of its process before a sum over five million columns.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Self
from unittest import mock

import numpy as np

from dpem import Budget, Ledger
from dpem.paper import DPSymmetricMixture
from dpem.privacy import Account, Curator, Noise, Price
from dpem.query import Chunk, FloatArray, Query
from dpem.tables import Source
from studies.audits.faults_ledger import (
    AMPLE,
    DATASET,
    SETTINGS,
    Attempts,
    Findings,
    Watched,
    WatchedSource,
    check_ledger,
    table,
)

MONTHS = timedelta(days=30)


class Clock(datetime):
    """A clock that shows the time it is set to."""

    says = datetime(2030, 1, 1, tzinfo=UTC)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromisoformat(Clock.says.isoformat())


def clock_set_back(url: str, charges: int, tick: Callable[[int], object]) -> Findings:
    """A clock that jumps by years in both directions, compared with a dataset with a steady clock."""
    found, chance = Findings(), Random(0)
    jumping, steady = (Ledger(url).open(name, epsilon=50.0, delta=1e-3) for name in ("jumping", "steady"))
    prices = [chance.uniform(1e-3, 8e-3) for _ in range(charges)]
    times = []
    with mock.patch("dpem.privacy.ledger_entries.datetime", Clock):
        for turn, rho in enumerate(prices):
            Clock.says = datetime(2030, 1, 1, tzinfo=UTC) + chance.randint(-500, 500) * MONTHS
            times.append(Clock.says)
            jumping.charge(0.5, 1e-5, Price(rho), purpose=f"{turn}").close("answered")
            tick(1)
    for turn, rho in enumerate(prices):
        steady.charge(0.5, 1e-5, Price(rho), purpose=f"{turn}").close("answered")
    history = jumping.history()
    found.check([charge.time for charge in history] == times, "the clock that was set was not the ledger's")
    found.check([charge.purpose for charge in history] == [f"{turn}" for turn in range(charges)], "the order changed")
    ours, theirs = jumping.state(), steady.state()
    same = (ours.spent_epsilon, ours.left) == (theirs.spent_epsilon, theirs.left)
    found.check(same, "the totals depend on the clock")
    check_ledger(found, url, {charge.id: "answered" for charge in history}, min(prices), "jumping")
    found.counts["fits"] = charges
    found.counts["clock set back"] = sum(later < sooner for sooner, later in pairwise(times))
    return found


class Starving:
    """A query whose sum runs out of memory in its second chunk."""

    def __init__(self, query: Query) -> None:
        self._query, self._chunks = query, 0
        self.label, self.bound, self.blocked = query.label, query.bound, query.blocked

    def sum(self, chunk: Chunk) -> FloatArray:
        self._chunks += 1
        if self._chunks == 2:
            raise MemoryError
        return self._query.sum(chunk)


class Starved(DPSymmetricMixture):
    """A fit one of whose queries runs out of memory."""

    def starving(self, query: int) -> Starved:
        self._query = query
        return self

    def _curator(self, source: Source, account: Account, noise: Noise) -> Curator:
        starve, queries = self._query, []

        class Rows(WatchedSource):
            def total(self, query: Query) -> FloatArray:
                queries.append(query)
                return self._source.total(Starving(query) if len(queries) == starve else query)

            def split(self, parts: int) -> list[WatchedSource]:
                return [Rows(part, self._act) for part in self._source.split(parts)]

        return super()._curator(Rows(source, lambda _: None), account, noise)


def out_of_memory(url: str, rounds: int, tick: Callable[[int], object]) -> Findings:
    """Fits in each of which another query runs out of memory."""
    found, X = Findings(), table()
    ledger, budget = Ledger(url).open(DATASET, **AMPLE), Budget(**AMPLE)
    before, failed = 0, 0
    for turn in range(rounds):
        for money in (ledger, budget):
            try:
                with mock.patch("dpem.tables.array.CHUNK_ROWS", 64):  # three chunks in each of two batches
                    Starved(**SETTINGS, budget=money).starving(1 + turn % 2).fit(X)
                found.broken.append("a fit without memory gave an answer")
            except MemoryError:
                failed += 1
        outcomes = [charge.outcome for charge in ledger.history()]
        found.check(outcomes[before:] == ["failed"], "a fit without memory is not charged once and shown as failed")
        found.check(budget.n_charges == len(outcomes), "a fit without memory is not charged once to a Budget")
        for money in (ledger, budget):
            Watched(**SETTINGS, budget=money).before_queries(lambda _: None).fit(X)
        before = len(outcomes) + 1
        tick(1)
    Attempts(found, url, {charge.id: "confirmed" for charge in ledger.history()}).look()
    found.counts["chunks out of memory"] = failed
    found.counts["fits answered afterwards"] = 2 * rounds
    return found


def starve(query: int) -> None:
    """Limit this process to 8 MiB more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    more = pages * resource.getpagesize() + (8 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (more, resource.RLIM_INFINITY))


def real_limit(url: str) -> Findings:
    """A sum that needs 40 MB with 8 MB available."""
    found, ledger = Findings(), Ledger(url, DATASET)
    settings: dict[str, Any] = {**SETTINGS, "n_iter": 1}
    X = np.zeros((4, 5_000_000), dtype=np.float32)
    DPSymmetricMixture(**settings).fit(X[:, :8])  # what a fit loads is loaded before memory is short
    charges = len(ledger.history())
    try:
        Watched(**settings, budget=ledger).before_queries(starve).fit(X)
        found.broken.append("a fit without memory gave an answer")
    except MemoryError as error:
        found.check("\n" not in str(error), "the message is not one line")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    outcomes = [charge.outcome for charge in ledger.history()][charges:]
    found.check(outcomes == ["failed"], f"a fit whose process ran out of memory is shown as {outcomes}")
    del X
    found.check(Attempts(found, url).fit() == "answered", "the budget no longer serves")
    found.counts["processes out of memory"] = 1
    return found


def main(arguments: Sequence[str]) -> None:
    real_limit(*arguments).print()
