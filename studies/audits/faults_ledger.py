"""Shared by the campaigns of faults: a small fit with hooks, and checks of a ledger's entries without the library.

*Invariants* after any fault: (1) The ledger opens and its history replays. (2) Every charge that was confirmed to a fit
is recorded, so the sum of the charges is at least the cost of all fits that can have queried data. (3) The charges are
within the dataset's total. (4) A fit without an answer is shown as such. The sums are computed from the database's rows
by code of this module, independently of the library.
"""

from __future__ import annotations

import json
import math
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dpem import Ledger, LedgerError
from dpem.paper import DPSymmetricMixture
from dpem.paper.published import printed_price
from dpem.privacy import Account, Curator, Noise, Price
from dpem.query import FloatArray, Query
from dpem.tables import Source

#: A fit that takes a hundredth of a second, since its plan has no free settings.
SETTINGS: dict[str, Any] = {
    **{"epsilon": 0.5, "delta": 1e-5, "method": "published"},
    **{"sparsity": 2, "sigma": 1.0, "start": "equal", "n_iter": 2},
}
DATASET = "patients"
#: A total that admits more fits than a campaign makes.
AMPLE: dict[str, Any] = {"epsilon": 100.0, "delta": 1e-3}


def table(rows: int = 300) -> FloatArray:
    return np.random.default_rng(0).standard_normal((rows, 4))


@dataclass
class Findings:
    """A campaign's counts, and a sentence about each failed check."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.broken.append(otherwise)

    def sentence(self, message: object, *parts: str) -> None:
        """Check that a message is one sentence with these parts."""
        text = str(message)
        one = text.endswith(".") and "\n" not in text and "Traceback" not in text
        self.check(one and all(part in text for part in parts), f"not the sentence that was expected: {text!r}")

    def add(self, counts: Mapping[str, int], broken: Sequence[str]) -> None:
        self.counts.update(counts)
        self.broken += broken

    def print(self) -> None:
        """Print a line that :mod:`studies.audits.faults_apart` reads."""
        print("found", json.dumps({"counts": self.counts, "broken": self.broken}), flush=True)


class WatchedSource:
    """A source that calls ``act`` with the number of each query before it is answered, also in batches."""

    def __init__(self, source: Source, act: Callable[[int], None], queries: list[Query] | None = None) -> None:
        self._source, self._act, self._queries = source, act, [] if queries is None else queries
        self.n_rows, self.n_features = source.n_rows, source.n_features
        self.order_may_depend_on_values = source.order_may_depend_on_values

    def total(self, query: Query) -> FloatArray:
        self._queries.append(query)
        self._act(len(self._queries))
        return self._source.total(query)

    def slack(self, query: Query) -> float:
        return self._source.slack(query)

    def split(self, parts: int) -> Sequence[WatchedSource]:
        return [WatchedSource(part, self._act, self._queries) for part in self._source.split(parts)]


class Watched(DPSymmetricMixture):
    """A fit that calls a function before each query."""

    def before_queries(self, act: Callable[[int], None]) -> Watched:
        self._act = act
        return self

    def _curator(self, source: Source, account: Account, noise: Noise) -> Curator:
        return super()._curator(WatchedSource(source, self._act), account, noise)


def price() -> float:
    """ρ of one fit with these settings."""
    return printed_price(SETTINGS["epsilon"], SETTINGS["delta"], SETTINGS["sparsity"]).rho


def room_for(fits: int) -> dict[str, Any]:
    """A total that admits exactly this number of fits."""
    return {"epsilon": Price(price() * fits).epsilon(1e-5) * (1 + 1e-6), "delta": 1e-5}


class Row(NamedTuple):
    """A charge in the database."""

    id: int
    number: int
    epsilon: float
    delta: float
    rho: float
    outcome: str | None


_ENTRIES = "SELECT number, kind, body FROM dpem_entries WHERE dataset = {} ORDER BY number"
_TOTAL = "SELECT body FROM dpem_datasets WHERE dataset = {} AND kind = 'opened'"


def _rows(entries: Sequence[Any]) -> list[Row]:
    bodies = [(number, kind, json.loads(body)) for number, kind, body in entries]
    outcomes = {body["fit"]: body["outcome"] for _, kind, body in bodies if kind == "outcome"}
    charges = [(number, body) for number, kind, body in bodies if kind == "fit"]
    return [
        Row(number, place, body["epsilon"], body["delta"], body["rho"], outcomes.get(number))
        for place, (number, body) in enumerate(charges, start=1)
    ]


def _total(body: str) -> tuple[float, float]:
    return json.loads(body)["epsilon"], json.loads(body)["delta"]


def read(url: str, dataset: str = DATASET) -> tuple[list[Row], tuple[float, float]]:
    """The charges of a dataset and its total, read by the database's driver."""
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
        try:
            whole = file.execute("PRAGMA integrity_check").fetchall()
            assert whole == [("ok",)], whole
            entries = file.execute(_ENTRIES.format("?"), [dataset]).fetchall()
            return _rows(entries), _total(file.execute(_TOTAL.format("?"), [dataset]).fetchone()[0])
        finally:
            file.close()
    import psycopg

    with psycopg.connect(url) as connection:
        entries = connection.execute(_ENTRIES.format("%s").encode(), [dataset]).fetchall()
        total = connection.execute(_TOTAL.format("%s").encode(), [dataset]).fetchone()
        assert total is not None
        return _rows(entries), _total(total[0])


_EXCESS = np.exp(np.linspace(-12.0, 14.0, 20_001))


def smallest_delta(rho: float, epsilon: float) -> float:
    """δ of ρ-zCDP at ε: the minimum of the bound on a grid of orders."""
    alpha = 1 + _EXCESS
    log_delta = _EXCESS * (alpha * rho - epsilon) - np.log(_EXCESS) - alpha * np.log1p(1 / _EXCESS)
    return float(min(1.0, math.exp(min(0.0, log_delta.min()))))


def check_ledger(
    found: Findings, url: str, confirmed: Mapping[int, str], cost: float, dataset: str = DATASET
) -> list[Row]:
    """Check invariants (1) to (4). ``confirmed`` has the charges that were confirmed to fits, with "answered" if so."""
    try:
        ledger = Ledger(url, dataset)
        history, state = ledger.history(), ledger.state()
    except LedgerError as error:
        found.broken.append(f"the ledger does not open: {error}")
        return []
    rows, (epsilon, delta) = read(url, dataset)
    replayed = [(charge.id, charge.rho, charge.outcome) for charge in history]
    found.check(
        replayed == [(row.id, row.rho, row.outcome or "no answer") for row in rows], "history differs from the rows"
    )
    found.check([row.number for row in rows] == list(range(1, len(rows) + 1)), "numbers of charges have a gap")
    outcomes = {row.id: row.outcome for row in rows}
    for charge, answer in confirmed.items():
        found.check(charge in outcomes, f"charge {charge} was reported to a fit and is not in the ledger")
        found.check(
            answer != "answered" or outcomes.get(charge) == "answered",
            f"charge {charge} was answered and is not shown so",
        )
    rho = math.fsum(row.rho for row in rows)
    found.check(rho >= cost * len(confirmed) * (1 - 1e-12), "the rows add up to less than the fits cost")
    found.check(
        state.left >= 0 and len(state.fits) == len(rows), "what is left is negative, or a charge is not counted"
    )
    if len(rows) > 1:
        found.check(smallest_delta(rho, epsilon) <= delta * (1 + 1e-6), "the charges are beyond the dataset's total")
        close = smallest_delta(rho, state.spent_epsilon)
        found.check(delta * (1 - 1e-4) <= close <= delta * (1 + 1e-4), "what is stated as spent differs from the rows")
    return rows


@dataclass
class Attempts:
    """Fits against a ledger that may fail, and their confirmed charges."""

    found: Findings
    url: str
    confirmed: dict[int, str] = field(default_factory=dict)
    perhaps: int = 0

    def fit(self, act: Callable[[int], None] = lambda _: None) -> str:
        """One fit: "answered", "answered, not closed" or "refused", and checks of the messages."""
        queries: list[int] = []

        def seen(number: int) -> None:
            queries.append(number)
            act(number)

        ledger = NotingLedger(self.url, DATASET)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", RuntimeWarning)
            try:
                Watched(**SETTINGS, budget=ledger).before_queries(seen).fit(table())
            except LedgerError as error:
                self._refused(error, queries)
                return "refused"
            finally:
                if ledger.noted:
                    self.confirmed[ledger.noted] = "confirmed"
        unnamed, unclosed = [], []
        for one in warned:
            if "that of the previous fit had" in str(one.message):
                continue  # tables of other sizes under one name are part of the campaign
            (unnamed if "was not recorded" in str(one.message) else unclosed).append(one.message)
        for message in unnamed:
            self.found.sentence(message, "was not recorded: ")
        if unclosed:
            self.found.sentence(unclosed[0], 'with the outcome "no answer"')
            return "answered, not closed"
        self.confirmed[ledger.noted] = "answered"
        return "answered"

    def _refused(self, error: LedgerError, queries: list[int]) -> None:
        self.found.check(not queries, "rows were queried after the ledger had failed")
        sure = "nothing was recorded" in str(error)
        self.perhaps += not sure
        self.found.sentence(error, "nothing was recorded" if sure else "it may have been recorded")

    def look(self) -> list[Row]:
        """Check that the ledger has every confirmed charge, and no others than may have been recorded."""
        rows = check_ledger(self.found, self.url, self.confirmed, price())
        besides = len(rows) - len(self.confirmed)
        self.found.check(0 <= besides <= self.perhaps, f"{besides} row(s) of charges stated not to be recorded")
        return rows


class NotingLedger(Ledger):
    """A ledger that remembers the number of its last charge."""

    noted = 0

    def charge(self, epsilon: float, delta: float, price: Price, **details: Any) -> Any:
        charge = super().charge(epsilon, delta, price, **details)
        self.noted = charge.id
        return charge
