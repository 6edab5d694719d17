"""The records of a ledger's entries: charges, refusals, policies, and the state of a dataset."""

from __future__ import annotations

import difflib
import getpass
import json
import math
import platform
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpem._validation import ArgumentError
from dpem.privacy.accounting import Price
from dpem.privacy.budget import BudgetExceeded, Charge, Total
from dpem.privacy.ledger_chain import LONGEST, Entry
from dpem.privacy.ledger_store import LedgerError

#: The kinds of entries. "model" has the fingerprint of a fitted model.
KINDS = ("opened", "policy", "fit", "outcome", "model", "refusal")
#: The outcome of a charge whose fit has recorded none.
NO_ANSWER = "no answer"


@dataclass(frozen=True)
class Policy:
    """Limits on each fit of a dataset, checked before the charge; None allows everything.

    A policy is checked against what a fit states (ε, number of rows, model, the system's user name). It prevents
    mistakes; whoever has the rows can fit them without dpem.

    Attributes
    ----------
    largest_epsilon : float or None
        The largest ε of one fit.
    smallest_n : int or None
        The fewest rows that a table must have.
    models : tuple of str or None
        The models that may be fitted, by the names of ``dpem fit``.
    who : tuple of str or None
        The users who may fit, as their systems name them.

    Examples
    --------
    >>> Policy.from_dict({"largest_epsilon": 1, "models": ["linear-regression"]})
    Policy(largest_epsilon=1.0, smallest_n=None, models=('linear-regression',), who=None)
    """

    largest_epsilon: float | None = None
    smallest_n: int | None = None
    models: tuple[str, ...] | None = None
    who: tuple[str, ...] | None = None

    @classmethod
    def from_dict(cls, limits: Mapping[str, Any]) -> Policy:
        """The policy with these limits; a ValueError that names the field if one is wrong."""
        from dpem._json import rebuild  # here, so that a ledger without policies loads no NumPy

        none = dict.fromkeys(field.name for field in fields(cls))
        try:
            policy: Policy = rebuild(cls, {**none, **limits}, "policy")
        except ValueError as error:
            raise ValueError(f"{error}; its keys are {', '.join(none)}.") from None
        return policy

    def to_dict(self) -> dict[str, object]:
        """The limits that the policy has, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def admit(self, dataset: str, *, epsilon: float, n: int | None, model: str, who: str) -> None:
        """Raise :class:`~dpem.BudgetExceeded` with the reason ``"policy"`` unless the fit is allowed."""
        reason = ""
        if self.largest_epsilon is not None and epsilon > self.largest_epsilon * (1 + 1e-9):
            reason = f"allows a fit up to epsilon={self.largest_epsilon:g}, but this one needs {epsilon:g}"
        elif self.smallest_n is not None and (n is None or n < self.smallest_n):
            rows = "does not state its number" if n is None else f"has {n:,}"
            reason = f"requires at least {self.smallest_n:,} rows, but this table {rows}"
        elif self.models is not None and model not in self.models:
            reason = f"allows the models {', '.join(self.models) or 'none'}, but this is {model or 'another fit'}"
        elif self.who is not None and who not in self.who:
            reason = f"does not allow fits by {who or 'an unknown user'}"
        if reason:
            raise BudgetExceeded(f"the policy of dataset {dataset!r} {reason}. Nothing was computed.", "policy")


@dataclass(frozen=True)
class FitEntry:
    """A charged fit. ``id`` is the number of its entry in the dataset's chain; ``time`` is that of the charging
    machine, in UTC.

    ``who`` is the PostgreSQL role or else the user's name, ``host`` the machine's name, ``model`` the fingerprint of
    the fitted model (empty if there is none, or none that can be saved). ``estimator`` is the model's name, ``n`` the
    number of rows and ``columns`` the digest of each column's declared bounds or levels, where the fit stated them.
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
        """Whether the fit was private: only one with an infinite ε is not, since seeded noise is never charged."""
        return math.isfinite(self.epsilon)

    @property
    def charge(self) -> Charge:
        """The charge; a ValueError if its price does not convert to (ε, δ)."""
        price = Price(self.rho, self.gaussian)
        return Charge(self.epsilon, self.delta, price, rows_per_person=self.rows_per_person)


@dataclass(frozen=True)
class Refusal:
    """A refused fit; ``reason`` is that of :class:`~dpem.BudgetExceeded`."""

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
    """A dataset of a ledger: its total, the policy for its next fit, its fits and refusals, and their chain."""

    name: str
    total: Total
    opened: datetime
    policy: Policy
    fits: tuple[FitEntry, ...]
    refusals: tuple[Refusal, ...]
    charges: tuple[Charge, ...]
    chain: tuple[Entry, ...]

    @cached_property
    def spent_epsilon(self) -> float:
        """The smallest ε that covers all charges, at the total's δ."""
        return self.total.spent(self.charges)

    @cached_property
    def left(self) -> float:
        """The largest ε that one more fit may use, at the total's δ."""
        return self.total.left(self.charges, self.total.delta)

    @property
    def spent_rounded(self) -> str:
        """The spent ε, rounded up to three decimals, as every output shows it."""
        return f"{math.ceil(1e3 * self.spent_epsilon - 1e-9) / 1e3:g}"

    @property
    def left_rounded(self) -> str:
        """The ε that is left, rounded down to three decimals."""
        return rounded_down(self.left)

    @property
    def explained(self) -> list[str]:
        """The sum of the charges, in lines that a reader can recompute."""
        return self.total.explain(self.charges)

    @property
    def head(self) -> str:
        """The digest of the last entry, with which later changes of any entry can be detected."""
        return f"sha256:{self.chain[-1].digest}"

    def to_dict(self) -> dict[str, object]:
        """The state as plain values, without its entries."""
        return {
            **{"name": self.name, **asdict(self.total), "opened": self.opened, "policy": self.policy.to_dict()},
            **{"spent_epsilon": self.spent_epsilon, "left": self.left, "n_charges": len(self.fits)},
            **{"head": self.head, "n_entries": len(self.chain), "explained": self.explained},
        }

    @classmethod
    def of(cls, name: str, chain: Sequence[Entry]) -> DatasetState:
        """The state that a chain with valid digests records; a LedgerError if an entry is not valid."""
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
            fit_entries = tuple(FitEntry(**fields) for fields in fits.values())
            charges = tuple(fit.charge for fit in fit_entries)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            raise LedgerError(f"entry {entry.number} of dataset {name!r} is not valid: restore a backup.") from None
        return cls(name, total, opened, policy, fit_entries, tuple(refusals), charges, tuple(chain))


def rounded_down(epsilon: float) -> str:
    """ε rounded down to three decimals."""
    return f"{math.floor(1e3 * epsilon + 1e-9) / 1e3:g}"


def _body(entry: Entry) -> dict[str, Any]:
    body = json.loads(entry.body)
    if not isinstance(body, dict) or entry.kind not in KINDS or (entry.kind == "opened") != (entry.number == 1):
        raise ValueError
    return body


def _time(body: Mapping[str, Any]) -> datetime:
    time = datetime.fromisoformat(body["time"])
    if time.tzinfo is None:
        raise ValueError
    return time


def changed_table(fits: Sequence[FitEntry], n: int | None, columns: Mapping[str, str]) -> str:
    """A sentence about a difference between a table and those of earlier fits; empty if there is none."""
    last_n = next((fit.n for fit in reversed(fits) if fit.n is not None), None)
    if n is not None and last_n is not None and last_n != n:
        return f"this table has {n:,} rows, but that of the previous fit had {last_n:,}"
    earlier = {name: digest for fit in fits for name, digest in fit.columns.items()}
    if not columns or not earlier:
        return ""
    if not set(earlier) & set(columns):
        return "this table has none of the columns of earlier fits"
    changed = [name for name, digest in columns.items() if earlier.get(name, digest) != digest]
    return f"the bounds or levels of {changed[0]!r} differ from those of earlier fits" if changed else ""


def confusable(one: str, other: str) -> bool:
    """Whether two names are easily confused: they differ in case, accents, spaces and punctuation, or in one letter.

    >>> confusable("patients", "Patients"), confusable("patients", "patient"), confusable("survey 2023", "survey 2024")
    (True, True, False)
    """

    def plain(name: str) -> str:
        return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", name).casefold()))

    a, b = plain(one), plain(other)
    digits = [list(filter(str.isdigit, name)) for name in (a, b)]
    close = min(len(a), len(b)) >= 5 and difflib.SequenceMatcher(None, a, b).ratio() > 0.9
    return a == b or (digits[0] == digits[1] and close)


def signature(connection: Connection) -> dict[str, str]:
    """The time, user and machine of an entry: PostgreSQL's authenticated role, or else the system's user name."""
    if connection.dialect.name == "postgresql":
        who = str(connection.execute(sa.text("SELECT session_user")).scalar_one())
    else:
        try:
            who = getpass.getuser()
        except (OSError, KeyError, ImportError):
            who = ""
    author = {"who": who, "host": platform.node()}
    printable = {name: "".join(filter(str.isprintable, text)).strip()[:LONGEST] for name, text in author.items()}
    return {**printable, "time": now()}


def now() -> str:
    """The present time, in the format of ledgers."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def checked_text(argument: str, value: object, *, empty: bool = False) -> str:
    """The value if it is a printable text that every database can store; an ArgumentError otherwise."""
    if not isinstance(value, str):
        raise ArgumentError(argument, f"must be a string, got {type(value).__name__}.")
    if not value.isprintable() or len(value) > LONGEST or value != value.strip() or not (value or empty):
        raise ArgumentError(
            argument, f"must be up to {LONGEST} printable characters without spaces around them, got {value[:40]!a}."
        )
    return value
