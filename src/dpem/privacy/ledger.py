"""A budget that outlives the process: one entry per charge, in a SQLite file or a PostgreSQL database.

*Lemma.* However many processes and machines charge a dataset, and wherever any of them dies, every fit that touched
data is in the ledger, and the charges in the ledger are covered by the dataset's total. *Proof.* A charge reads all
earlier charges, decides by :meth:`~dpem.privacy.budget.Total.admit` and appends, in one transaction that excludes every
other writer (:mod:`dpem.privacy.ledger_schema`); so charges are decided one after another, each in sight of all before
it. The fit goes on only after the commit has been confirmed, and a committed entry is never changed or removed. A
process that dies before the commit leaves no entry and has touched nothing; one that dies later leaves a charge without
an outcome. If the confirmation is lost, the entry may be there, and the fit does not go on. ∎ Changes by other means
are found by the chain of digests (:mod:`dpem.privacy.ledger_chain`), which every use of a ledger checks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpem import _validation as arguments
from dpem._validation import ArgumentError, shown
from dpem._version import __version__
from dpem.privacy import ledger_chain
from dpem.privacy.accounting import Price
from dpem.privacy.budget import BudgetExceeded, Charge, Total
from dpem.privacy.ledger_entries import (
    NO_ANSWER,
    DatasetEntries,
    DatasetState,
    FitEntry,
    Refusal,
    alike,
    changed_table,
    checked_text,
    now,
    signature,
)
from dpem.privacy.ledger_policy import Policy
from dpem.privacy.ledger_schema import LedgerError, Store, altered, datasets

#: Columns of which a charge keeps a digest each.
MOST_COLUMNS = 1000


class LedgerWarning(RuntimeWarning):
    """A fit or a dataset that the keeper of its ledger should check."""


@dataclass(frozen=True)
class LedgerCharge(Charge):
    """A charge that is in a ledger, as entry ``id`` of its dataset."""

    id: int
    ledger: Ledger = field(repr=False)

    def close(self, outcome: str) -> None:
        """Append how the fit ended. If that cannot be written the fit has still been paid for: a warning says so."""
        super().close(outcome)
        try:
            self.ledger._append("outcome", fit=self.id, outcome=outcome)
        except LedgerError as error:
            said = f'charge {self.id} stays charged and shows as "{NO_ANSWER}", since {error}'
            warnings.warn(said, LedgerWarning, stacklevel=3)

    def released(self, fingerprint: str) -> None:
        """Append which model the fit became. If that cannot be written, a warning says so."""
        try:
            self.ledger._append("model", fit=self.id, model=checked_text("fingerprint", fingerprint))
        except LedgerError as error:
            warnings.warn(f"charge {self.id} does not name its model, since {error}", LedgerWarning, stacklevel=3)


@dataclass(frozen=True)
class Verification:
    """What was found of a dataset's entries: ``faults`` is empty if they are as they were written."""

    dataset: str
    head: str
    n_entries: int
    faults: tuple[str, ...]


class Ledger:
    """Budgets of datasets, kept in a database that processes and machines share.

    A dataset is opened once with its total (ε, δ). Every fit is charged, durably, before data are touched, or refused
    with :class:`~dpem.BudgetExceeded` and what is left. Fits are priced together by the rule of :class:`~dpem.Budget`.
    Copies are the same ledger, and a pickled ledger connects again where it is unpickled, so ``clone`` and worker
    processes count right. The pickle holds the URL: keep passwords out of it, in a password file.

    Parameters
    ----------
    url : str
        ``"sqlite:///budget.db"``, a file, or ``"postgresql://user@host/database"``. Nothing is connected until the
        first use.
    dataset : str or None
        The dataset that fits draw on, when the ledger is given to an estimator as ``budget=``.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(f"sqlite:///{tempfile.mkdtemp()}/budget.db").open("patients", epsilon=1.0, delta=1e-5)
    >>> with ledger.charge(0.9, 1e-6, Price(0.019), purpose="a fit"):
    ...     pass  # ask the data
    >>> [(fit.purpose, fit.outcome) for fit in ledger.history()]
    [('a fit', 'answered')]
    >>> ledger.charge(0.9, 1e-6, Price(0.019))
    Traceback (most recent call last):
        ...
    dpem.privacy.budget.BudgetExceeded: this fit needs epsilon=0.9 ... Nothing was computed.
    """

    def __init__(self, url: str, dataset: str | None = None) -> None:
        self._store = Store(url)
        #: The dataset this ledger is bound to, or None.
        self.name = None if dataset is None else checked_text("dataset", dataset)

    @property
    def where(self) -> str:
        """The URL without password and options, for people to read."""
        return self._store.where

    def dataset(self, name: str) -> Ledger:
        """This ledger, bound to a dataset."""
        return Ledger(self._store.url_with_password, name)

    def open(
        self, dataset: str, epsilon: float, delta: float, *, rows_per_person: int = 1, policy: Policy | None = None
    ) -> Ledger:
        """Open a dataset with its total, once and for all, and return the ledger bound to it.

        ``rows_per_person`` is the most rows of the dataset that one person has. The total is about all of them
        together, and a fit that protects fewer is refused. ``policy`` limits each fit. A ledger that is not there yet
        is created; a name that is easily taken for another dataset's is opened with a :class:`LedgerWarning`.
        """
        name, total = checked_text("dataset", dataset), Total.checked("dataset", epsilon, delta, rows_per_person)
        if math.isinf(total.epsilon):
            raise ArgumentError("epsilon", "of a dataset must be finite, got inf.")
        with self._store.making() as connection:
            names = _names(connection)
            if name in names:
                known = self._entries(connection, name).total
                raise LedgerError(
                    f"dataset {name!r} is open already, with epsilon={known.epsilon:g} and delta={known.delta:g}: "
                    "a total is set once."
                )
            body = {**asdict(total), "version": __version__, "time": now()}
            chain = [ledger_chain.append(connection, [], name, "opened", body)]
            if policy is not None:
                ledger_chain.append(connection, chain, name, "policy", _stated(policy, connection))
        if close := [other for other in names if alike(name, other)]:
            said = f"dataset {name!r} is now open beside {close[0]!r}: two names for the same rows are two budgets."
            warnings.warn(said, LedgerWarning, stacklevel=2)
        return self.dataset(name)

    def set_policy(self, policy: Policy, dataset: str | None = None) -> None:
        """Put a policy in force for all later fits of a dataset. It is an entry of the chain, as a charge is."""
        name = self._name(dataset)
        with self._store.writing(name) as connection:
            chain = self._entries(connection, name).chain
            ledger_chain.append(connection, chain, name, "policy", _stated(policy, connection))

    def charge(
        self,
        epsilon: float,
        delta: float,
        price: Price,
        *,
        purpose: str = "",
        digest: str = "",
        rows_per_person: int = 1,
        model: str = "",
        n: int | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> LedgerCharge:
        """Charge one fit that is (ε, δ)-private for up to ``rows_per_person`` rows and costs ``price``, or raise
        :class:`~dpem.BudgetExceeded` and charge nothing. When this returns, the charge is on disk.

        ``model`` is the model's name, ``n`` the number of rows and ``columns`` a digest of what is declared of each
        column: the dataset's policy is checked against them, and a table that differs from the one before is reported
        by a :class:`LedgerWarning`.
        """
        name = self._name(None)
        price = Price(float(price.rho), bool(price.gaussian))
        rows = arguments.rows_per_person(rows_per_person)
        charge = Charge(float(epsilon), float(delta), price, rows_per_person=rows)
        stated = dict(columns or {}) if len(columns or {}) <= MOST_COLUMNS else {}
        body = {
            "epsilon": charge.epsilon,
            "delta": charge.delta,
            "rho": price.rho,
            "gaussian": price.gaussian,
            "rows_per_person": rows,
            "purpose": checked_text("purpose", purpose, empty=True),
            "digest": checked_text("digest", digest, empty=True),
            "estimator": checked_text("model", model, empty=True),
            "n": n,
            "columns": stated,
            "version": __version__,
        }
        try:
            with self._store.writing(name) as connection:
                known = self._entries(connection, name)
                signed = signature(connection)
                known.policy.admit(name, epsilon=charge.epsilon, n=n, model=model, who=signed["who"])
                known.total.admit(known.charges, charge, f"dataset {name!r}")
                made = ledger_chain.append(connection, known.chain, name, "fit", {**body, **signed, "time": now()})
        except BudgetExceeded as refusal:
            self.note_refusal(charge, refusal.reason, purpose=purpose)
            raise
        if differs := changed_table(known.fits, n, stated):
            said = f"dataset {name!r}: {differs}. Fits of other rows under the same name draw on the same total."
            warnings.warn(said, LedgerWarning, stacklevel=3)
        return LedgerCharge(charge.epsilon, charge.delta, price, made.number, self, rows_per_person=rows)

    def note_refusal(self, charge: Charge, reason: str = "budget", *, purpose: str = "") -> None:
        """Write down that a fit was not accepted. Where that fails the fit is refused all the same."""
        with suppress(LedgerError):
            name = self._name(None)
            with self._store.writing(name) as connection:
                chain = self._entries(connection, name).chain
                body = {
                    "epsilon": charge.epsilon if math.isfinite(charge.epsilon) else "inf",
                    "delta": charge.delta,
                    "rows_per_person": charge.rows_per_person,
                    "reason": reason,
                    "purpose": checked_text("purpose", purpose, empty=True),
                    **signature(connection),
                    "time": now(),
                }
                ledger_chain.append(connection, chain, name, "refusal", body)

    def entries(self, dataset: str | None = None) -> DatasetEntries:
        """Everything that the ledger says about a dataset, from one moment."""
        name = self._name(dataset)
        with self._store.reading() as connection:
            return self._entries(connection, name)

    def refusals(self, dataset: str | None = None) -> list[Refusal]:
        """Every fit to a dataset that was not accepted, oldest first."""
        return list(self.entries(dataset).refusals)

    def history(self, dataset: str | None = None) -> list[FitEntry]:
        """Every charge of a dataset, oldest first. An outcome is ``"answered"``, ``"failed"`` or ``"no answer"``."""
        return list(self.entries(dataset).fits)

    def user(self) -> str:
        """Who this ledger's entries will name: a PostgreSQL server's role, or else the user of the system."""
        with self._store.reading() as connection:
            return signature(connection)["who"]

    def names(self) -> list[str]:
        """The names of the datasets."""
        with self._store.reading() as connection:
            return _names(connection)

    def datasets(self) -> list[DatasetState]:
        """Every dataset, by name."""
        with self._store.reading() as connection:
            return [self._entries(connection, name).state for name in _names(connection)]

    def state(self, dataset: str | None = None) -> DatasetState:
        """One dataset: its total, what is spent and what is left."""
        return self.entries(dataset).state

    def left(self, dataset: str | None = None, delta: float | None = None) -> float:
        """The largest ε that one more fit of ``method="improved"`` at ``delta`` may use and be accepted.

        ``delta`` is the total's unless given; a smaller one leaves room for a larger ε. It is exact for a fit that
        spends its (ε, δ) to the full, as the estimators do, for the dearer of sparse and dense fits.
        """
        known = self.entries(dataset)
        if delta is not None and not 0 < delta < 1:
            raise ArgumentError("delta", f"must lie strictly between 0 and 1, got {shown(delta)}.")
        return known.total.left(known.charges, known.total.delta if delta is None else delta)

    def verify(self, dataset: str | None = None, heads: Sequence[str] = ()) -> list[Verification]:
        """Check every entry of a dataset, or of all: the digests, each ρ against its (ε, δ), the sum against the total.

        Parameters
        ----------
        dataset : str, optional
            The dataset; all of them if not given.
        heads : sequence of str
            Heads that were printed earlier. Each must still be the digest of an entry; this shows what somebody who
            recomputed the chain, or removed its last entries, cannot hide.

        Returns
        -------
        list of Verification
            One for each dataset.
        """
        with self._store.reading() as connection:
            names = _names(connection, *ledger_chain.TABLES) if dataset is None else [checked_text("dataset", dataset)]
            chains = {name: ledger_chain.read(connection, name) for name in names}
            beside = altered(connection)
        every = [entry for chain in chains.values() for entry in chain]
        lost = ledger_chain.unknown_heads(every, heads)
        found = []
        for name, chain in chains.items():
            said = ledger_chain.faults(chain) or (_unsound(name, chain) if chain else ["the dataset is not there"])
            head = f"sha256:{chain[-1].digest}" if chain else ""
            found.append(Verification(name, head, len(chain), (*said, *beside, *lost)))
        return found or [Verification("", "", 0, (*beside, *lost))]

    def _append(self, kind: str, *, fit: int, **said: str) -> None:
        """One entry about a charge, once."""
        name = self._name(None)
        with self._store.writing(name) as connection:
            known = self._entries(connection, name)
            own = next(one for one in known.fits if one.id == fit)
            if (before := getattr(own, kind)) not in ("", NO_ANSWER):
                raise ValueError(f"charge {fit} was closed already, as {before!r}.")
            ledger_chain.append(connection, known.chain, name, kind, {"fit": fit, **said, "time": now()})

    def _entries(self, connection: Connection, name: str) -> DatasetEntries:
        """A dataset's entries, checked."""
        chain = ledger_chain.read(connection, name)
        if not chain:
            raise LedgerError(f"dataset {name!r} is not open in this ledger: Ledger.open or dpem ledger open opens it.")
        if faults := ledger_chain.faults(chain):
            raise LedgerError(
                f"the entries of dataset {name!r} are not as they were written ({faults[0]}): see dpem ledger "
                "verify, and restore a backup."
            )
        return DatasetEntries.of(name, chain)

    def _name(self, dataset: str | None) -> str:
        name = self.name if dataset is None else checked_text("dataset", dataset)
        if name is None:
            raise ValueError('this ledger is bound to no dataset: name one, as in Ledger(url, "patients").')
        return name

    def __repr__(self) -> str:
        return f"Ledger({self._store.where!r}, dataset={self.name!r})"

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[type[Ledger], tuple[str, str | None]]:
        return Ledger, (self._store.url_with_password, self.name)


def _names(connection: Connection, *tables: sa.Table) -> list[str]:
    """The datasets that tables name: those that are open, unless others are given."""
    found = [connection.execute(sa.select(table.c.dataset).distinct()).scalars() for table in tables or (datasets,)]
    return sorted({str(name) for names in found for name in names})


def _stated(policy: Policy, connection: Connection) -> dict[str, Any]:
    return {"policy": policy.to_dict(), **signature(connection), "time": now()}


def _unsound(name: str, chain: Sequence[ledger_chain.Entry]) -> list[str]:
    """What entries with sound digests get wrong: a price above its (ε, δ), or charges beyond the total."""
    try:
        known = DatasetEntries.of(name, chain)
    except LedgerError as error:
        return [str(error).rstrip(".")]
    return [] if known.total.fits(known.charges) else ["the charges come to more than the total"]
