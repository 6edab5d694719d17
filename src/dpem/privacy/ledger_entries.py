"""What a ledger's entries are and what may stand in them: debits, refusals, the state of a dataset."""

from __future__ import annotations

import getpass
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.engine import Row

from dpem.privacy.budget import Charge, Total
from dpem.privacy.ledger_schema import LONGEST, LedgerError

#: The outcome of a debit whose fit has not said how it ended.
NO_ANSWER = "no answer"


@dataclass(frozen=True)
class Debit:
    """One row of a ledger. ``id`` orders debits; ``time`` is the clock of whoever debited, in UTC.

    ``who`` and ``host`` are the user's and the machine's names as the system gave them, ``model`` the fingerprint of
    the model that the fit became (empty if it became none, or none that can be saved).
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

    @property
    def private(self) -> bool:
        """Whether the noise was private: a book takes no fit with seeded noise, so only an infinite ε is not."""
        return math.isfinite(self.epsilon)


@dataclass(frozen=True)
class Refusal:
    """A fit that was not accepted, and why: ``"budget"``, or ``"rows per person"`` if it protects too few."""

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
    """A dataset's total and what has become of it; ``left`` is :meth:`Ledger.left` at the total's δ."""

    name: str
    epsilon: float
    delta: float
    rows_per_person: int
    spent_epsilon: float
    left: float
    n_charges: int
    opened: datetime


def state_of(name: str, total: Total, opened: datetime, charges: Sequence[Charge]) -> DatasetState:
    """A dataset's state, worked out from its charges."""
    spent, left = total.spent(charges), total.left(charges, total.delta)
    return DatasetState(
        name, total.epsilon, total.delta, total.rows_per_person, spent, left, n_charges=len(charges), opened=opened
    )


def debit_of(row: Row[Any]) -> Debit:
    """The debit that a row of the database is."""
    fields = {name: value for name, value in row._mapping.items() if name not in ("number", "fingerprint")}
    fields["model"] = row.fingerprint or ""
    try:
        fields |= {"time": datetime.fromisoformat(row.time), "outcome": row.outcome or NO_ANSWER}
    except (TypeError, ValueError):
        raise LedgerError(f"the time of debit {row.id} is not as it was written: restore a backup.") from None
    return Debit(**fields)


def hands() -> dict[str, str]:
    """Who is at work, on which machine, as the system tells it."""
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
        raise ValueError(f"{argument} must be a string, got {type(value).__name__}.")
    if not value.isprintable() or len(value) > LONGEST or value != value.strip() or not (value or empty):
        raise ValueError(
            f"{argument} must be up to {LONGEST} printable characters without spaces around them, got {value[:40]!a}."
        )
    return value
