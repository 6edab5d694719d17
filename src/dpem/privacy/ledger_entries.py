"""What a ledger's entries say: charges, refusals, the state of a dataset."""

from __future__ import annotations

import difflib
import getpass
import json
import math
import platform
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpem._validation import ArgumentError
from dpem.privacy.accounting import Price
from dpem.privacy.budget import Charge, Total
from dpem.privacy.ledger_chain import Entry
from dpem.privacy.ledger_policy import Policy
from dpem.privacy.ledger_schema import LONGEST, LedgerError

#: The outcome of a charge whose fit has not said how it ended.
NO_ANSWER = "no answer"


@dataclass(frozen=True)
class FitEntry:
    """One fit that was charged. ``id`` is the number of its entry in the dataset's chain; ``time`` is the clock of
    whoever charged, in UTC.

    ``who`` is the role of a PostgreSQL server or else the user's name, ``host`` the machine's name, ``model`` the
    fingerprint of the model that the fit became (empty if it became none, or none that can be saved), ``estimator`` the
    model's name, ``n`` the number of rows and ``columns`` a digest of what is declared of each column, where the fit
    stated them.
    """

    id: int
    dataset: str
    epsilon: float
    delta: float
    rho: float
    gaussian: bool
    rows_per_person: int
    purpose: str
    digest: str
    who: str
    host: str
    version: str
    time: datetime
    outcome: str
    model: str
    estimator: str = ""
    n: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether the noise was private: a ledger takes no fit with seeded noise, so only an infinite ε is not."""
        return math.isfinite(self.epsilon)

    @property
    def charge(self) -> Charge:
        """What was charged; a ValueError if the price does not convert to (ε, δ)."""
        price = Price(self.rho, self.gaussian)
        return Charge(self.epsilon, self.delta, price, rows_per_person=self.rows_per_person)


@dataclass(frozen=True)
class Refusal:
    """A fit that was not accepted, and why: the ``reason`` of :class:`~dpem.BudgetExceeded`."""

    id: int
    dataset: str
    epsilon: float
    delta: float
    rows_per_person: int
    reason: str
    purpose: str
    who: str
    host: str
    time: datetime


@dataclass(frozen=True)
class DatasetState:
    """A dataset's total and what has become of it.

    ``left`` is the largest ε that one more fit may use at the total's δ, ``explained`` how the fits add up, line by
    line. ``head`` is the digest of the last of ``n_entries`` entries: who keeps it can later tell whether any of them
    was changed. ``policy`` is what the dataset's policy states.
    """

    name: str
    epsilon: float
    delta: float
    rows_per_person: int
    spent_epsilon: float
    left: float
    n_charges: int
    opened: datetime
    head: str
    n_entries: int
    explained: tuple[str, ...]
    policy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def left_shown(self) -> str:
        """What is left as it is shown everywhere: to three digits after the point, rounded down."""
        return f"{math.floor(1e3 * self.left + 1e-9) / 1e3:g}"

    @property
    def spent_shown(self) -> str:
        """What is spent, likewise, rounded up."""
        return f"{math.ceil(1e3 * self.spent_epsilon - 1e-9) / 1e3:g}"


@dataclass(frozen=True)
class DatasetEntries:
    """Everything that a dataset's chain says, in records."""

    name: str
    total: Total
    opened: datetime
    policy: Policy
    fits: tuple[FitEntry, ...]
    refusals: tuple[Refusal, ...]
    charges: tuple[Charge, ...]
    chain: tuple[Entry, ...]

    @property
    def state(self) -> DatasetState:
        """The total, what is spent and what is left."""
        total, charges = self.total, self.charges
        return DatasetState(
            name=self.name,
            epsilon=total.epsilon,
            delta=total.delta,
            rows_per_person=total.rows_per_person,
            spent_epsilon=total.spent(charges),
            left=total.left(charges, total.delta),
            n_charges=len(charges),
            opened=self.opened,
            head=f"sha256:{self.chain[-1].digest}",
            n_entries=len(self.chain),
            explained=tuple(total.explain(charges)),
            policy=self.policy.to_dict(),
        )

    @classmethod
    def of(cls, name: str, chain: Sequence[Entry]) -> DatasetEntries:
        """The records of a chain whose digests hold; a LedgerError if an entry is none of ours all the same."""
        entry = chain[0]
        try:
            first = _body(entry)
            total = Total.checked("dataset", first["epsilon"], first["delta"], first["rows_per_person"])
            opened, policy = _time(first), Policy()
            fits, refusals = dict[int, dict[str, Any]](), list[Refusal]()
            for entry in chain[1:]:
                body = _body(entry)
                if entry.kind == "fit":
                    body |= {"time": _time(body), "outcome": NO_ANSWER, "model": ""}
                    fits[entry.number] = {"id": entry.number, "dataset": name, **body}
                elif entry.kind == "refusal":
                    body |= {"time": _time(body), "epsilon": float(body["epsilon"])}
                    refusals.append(Refusal(id=entry.number, dataset=name, **body))
                elif entry.kind == "policy":
                    policy = Policy.from_dict(body["policy"])
                else:
                    fits[body["fit"]][entry.kind] = str(body[entry.kind])
            made = tuple(FitEntry(**fields) for fields in fits.values())
            charges = tuple(fit.charge for fit in made)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            raise LedgerError(
                f"entry {entry.number} of dataset {name!r} is not as dpem writes one: restore a backup."
            ) from None
        return cls(name, total, opened, policy, made, tuple(refusals), charges, tuple(chain))


def _body(entry: Entry) -> dict[str, Any]:
    found = json.loads(entry.body)
    if not isinstance(found, dict) or entry.kind not in KINDS or (entry.kind == "opened") != (entry.number == 1):
        raise ValueError
    return found


def _time(body: Mapping[str, Any]) -> datetime:
    found = datetime.fromisoformat(body["time"])
    if found.tzinfo is None:
        raise ValueError
    return found


#: What an entry can be. "model" holds the fingerprint of the model that a fit became.
KINDS = ("opened", "policy", "fit", "outcome", "model", "refusal")


def changed_table(fits: Sequence[FitEntry], n: int | None, columns: Mapping[str, str] | None) -> str:
    """What differs between a table and the one of the latest fit that stated its own; empty if nothing does."""
    sized = next((fit for fit in reversed(fits) if fit.n is not None), None)
    if n is not None and sized is not None and sized.n != n:
        return f"this table has {n:,} rows, and that of the fit before had {sized.n:,}"
    stated = [fit for fit in fits if fit.columns]
    if not columns or not stated:
        return ""
    known = {name: digest for fit in stated for name, digest in fit.columns.items()}
    if not set(known) & set(columns):
        return "this table has none of the columns of the fits before"
    other = [name for name, digest in columns.items() if known.get(name, digest) != digest]
    return f"the bounds or levels of {other[0]!r} differ from those of the fits before" if other else ""


def alike(one: str, other: str) -> bool:
    """Whether two names are easily taken for each other: equal but for case, accents, spaces and marks, or one letter.

    >>> alike("patients", "Patients"), alike("patients", "patient"), alike("survey 2023", "survey 2024")
    (True, True, False)
    """

    def plain(name: str) -> str:
        return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", name).casefold()))

    a, b = plain(one), plain(other)
    digits = [list(filter(str.isdigit, name)) for name in (a, b)]
    close = min(len(a), len(b)) >= 5 and difflib.SequenceMatcher(None, a, b).ratio() > 0.9
    return a == b or (digits[0] == digits[1] and close)


def signature(connection: Connection) -> dict[str, str]:
    """Who writes, from which machine: the role that a PostgreSQL server has authenticated, or else the user's name as
    the system gives it.
    """
    if connection.dialect.name == "postgresql":
        who = str(connection.execute(sa.text("SELECT session_user")).scalar_one())
    else:
        try:
            who = getpass.getuser()
        except (OSError, KeyError, ImportError):
            who = ""
    found = {"who": who, "host": platform.node()}
    return {name: "".join(filter(str.isprintable, text)).strip()[:LONGEST] for name, text in found.items()}


def now() -> str:
    """The time, as ledgers write it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def checked_text(argument: str, value: object, *, empty: bool = False) -> str:
    """A name or a remark that any database stores and any screen shows."""
    if not isinstance(value, str):
        raise ArgumentError(argument, f"must be a string, got {type(value).__name__}.")
    if not value.isprintable() or len(value) > LONGEST or value != value.strip() or not (value or empty):
        raise ArgumentError(
            argument, f"must be up to {LONGEST} printable characters without spaces around them, got {value[:40]!a}."
        )
    return value
