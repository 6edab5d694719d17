"""A budget that outlives the process: one entry per charge, in a SQLite file or a PostgreSQL database.

*Lemma.* However many processes and machines charge a dataset, and whenever any of them stops, every fit that read data
is in the ledger, and the dataset's total covers the charges in the ledger. *Proof.* A charge reads all earlier charges,
decides by :meth:`~dpem.privacy.budget.Total.admit` and appends, in one transaction that excludes every other writer
(:mod:`dpem.privacy.ledger_store`). So charges are decided one after another, each with knowledge of all earlier ones.
The fit continues only after the commit has been confirmed, and a committed entry is never changed or removed. A process
that stops before the commit leaves no entry and has read nothing; one that stops later leaves a charge without an
outcome. If the confirmation is lost, the entry may exist, and the fit does not continue. ∎ Changes by other means
are detected by the chain of digests (:mod:`dpem.privacy.ledger_chain`), which every use of a ledger checks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem._version import __version__
from dpem.privacy import ledger_chain
from dpem.privacy.accounting import Price
from dpem.privacy.budget import BudgetExceeded, Charge, Total
from dpem.privacy.ledger_entries import (
    NO_ANSWER,
    DatasetState,
    FitEntry,
    Policy,
    changed_table,
    checked_text,
    confusable,
    now,
    signature,
)
from dpem.privacy.ledger_store import LedgerError, Store

#: A charge records the digests of at most this many columns.
MOST_COLUMNS = 1000


class LedgerWarning(RuntimeWarning):
    """Something about a fit or a dataset that the keeper of its ledger should check."""


@dataclass(frozen=True)
class LedgerCharge(Charge):
    """A charge in a ledger: entry ``id`` of its dataset."""

    id: int
    ledger: Ledger = field(repr=False)

    def close(self, outcome: str) -> None:
        """Append the outcome of the fit. If that fails, a warning is issued, and the charge stays."""
        super().close(outcome)
        try:
            self.ledger._append("outcome", fit=self.id, outcome=outcome)
        except LedgerError as error:
            warnings.warn(
                f'charge {self.id} stays, with the outcome "{NO_ANSWER}": {error}', LedgerWarning, stacklevel=3
            )

    def released(self, fingerprint: str) -> None:
        """Append the fingerprint of the fitted model. If that fails, a warning is issued."""
        try:
            self.ledger._append("model", fit=self.id, model=checked_text("fingerprint", fingerprint))
        except LedgerError as error:
            warnings.warn(f"the model of charge {self.id} was not recorded: {error}", LedgerWarning, stacklevel=3)


@dataclass(frozen=True)
class Verification:
    """The verification of a dataset's entries: ``faults`` is empty if none was altered."""

    dataset: str
    head: str
    n_entries: int
    faults: tuple[str, ...]


class Ledger:
    """Budgets of datasets, kept in a database that processes and machines share.

    A dataset is opened once with its total (ε, δ). Every fit is charged durably before data are read, or refused with
    :class:`~dpem.BudgetExceeded`, which states the ε that is left. Charges add up as in a :class:`~dpem.Budget`. A copy
    is the same ledger, and an unpickled ledger connects to the same database, so fits of clones and of worker processes
    are counted. The pickle contains the URL: keep passwords in a password file.

    Parameters
    ----------
    url : str
        ``"sqlite:///budget.db"``, a file, or ``"postgresql://user@host/database"``. Nothing is connected until the
        first use.
    dataset : str or None
        The dataset that fits are charged to, if the ledger is an estimator's ``budget=``.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(f"sqlite:///{tempfile.mkdtemp()}/budget.db").open("patients", epsilon=1.0, delta=1e-5)
    >>> with ledger.charge(0.9, 1e-6, Price(0.019), purpose="a fit"):
    ...     pass  # query the data
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
        """The URL without password and options."""
        return self._store.where

    def dataset(self, name: str) -> Ledger:
        """This ledger, bound to a dataset."""
        return Ledger(self._store.url_with_password, name)

    def open(
        self, dataset: str, epsilon: float, delta: float, *, rows_per_person: int = 1, policy: Policy | None = None
    ) -> Ledger:
        """Open a dataset with its total, once and for all, and return the ledger bound to it.

        ``rows_per_person`` is the largest number of rows of one person. The total protects all of them together, and a
        fit that protects fewer is refused. ``policy`` limits each fit. A missing ledger is created.
        A name that is easily confused with that of another dataset causes a :class:`LedgerWarning`.
        """
        name, total = checked_text("dataset", dataset), Total.checked("dataset", epsilon, delta, rows_per_person)
        if math.isinf(total.epsilon):
            raise ArgumentError("epsilon", "of a dataset must be finite, got inf.")
        with self._store.write_transaction("", make=True) as connection:
            names = _names(connection)
            if name in names:
                total = self._state(connection, name).total
                raise LedgerError(
                    f"dataset {name!r} is open already, with epsilon={total.epsilon:g} and delta={total.delta:g}: "
                    "a total is set once."
                )
            body = {**asdict(total), "version": __version__, "time": now()}
            chain = [ledger_chain.append(connection, [], name, "opened", body)]
            if policy is not None:
                body = {"policy": policy.to_dict(), **signature(connection)}
                ledger_chain.append(connection, chain, name, "policy", body)
        if similar := [other for other in names if confusable(name, other)]:
            message = f"dataset {name!r} is named like {similar[0]!r}: two names for the same rows have two budgets."
            warnings.warn(message, LedgerWarning, stacklevel=2)
        return self.dataset(name)

    def set_policy(self, policy: Policy, dataset: str | None = None) -> None:
        """Set the policy for all later fits of a dataset; it becomes an entry of the chain, as a charge does."""
        name = self._name(dataset)
        with self._store.write_transaction(name) as connection:
            chain = self._state(connection, name).chain
            body = {"policy": policy.to_dict(), **signature(connection)}
            ledger_chain.append(connection, chain, name, "policy", body)

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

        ``model`` is the model's name, ``n`` the number of rows and ``columns`` the digest of each column's declared
        bounds or levels. They are checked against the dataset's policy, and a table that differs from the previous one
        causes a :class:`LedgerWarning`.
        """
        name = self._name(None)
        price = Price(float(price.rho), bool(price.gaussian))
        rows = arguments.rows_per_person(rows_per_person)
        charge = Charge(float(epsilon), float(delta), price, rows_per_person=rows)
        columns = columns if columns is not None and len(columns) <= MOST_COLUMNS else {}
        body: dict[str, object] = {
            **{"epsilon": charge.epsilon, "delta": charge.delta, "rho": price.rho, "gaussian": price.gaussian},
            "rows_per_person": rows,
            "purpose": checked_text("purpose", purpose, empty=True),
            "digest": checked_text("digest", digest, empty=True),
            "estimator": checked_text("model", model, empty=True),
            "n": n,
            "columns": dict(columns),
            "version": __version__,
        }
        try:
            with self._store.write_transaction(name) as connection:
                state = self._state(connection, name)
                author = signature(connection)
                state.policy.admit(name, epsilon=charge.epsilon, n=n, model=model, who=author["who"])
                state.total.admit(state.charges, charge, f"dataset {name!r}")
                body |= author
                entry = ledger_chain.append(connection, state.chain, name, "fit", body)
        except BudgetExceeded as refusal:
            self.note_refusal(charge, refusal.reason, purpose=purpose)
            raise
        if change := changed_table(state.fits, n, columns):
            message = f"dataset {name!r}: {change}. Fits of other rows under the same name draw on the same total."
            warnings.warn(message, LedgerWarning, stacklevel=3)
        return LedgerCharge(charge.epsilon, charge.delta, price, entry.number, self, rows_per_person=rows)

    def note_refusal(self, charge: Charge, reason: str = "budget", *, purpose: str = "") -> None:
        """Record that a fit was refused. If the record cannot be written, the fit is refused all the same."""
        with suppress(LedgerError):
            name = self._name(None)
            with self._store.write_transaction(name) as connection:
                chain = self._state(connection, name).chain
                body = {
                    "epsilon": charge.epsilon if math.isfinite(charge.epsilon) else "inf",
                    "delta": charge.delta,
                    "rows_per_person": charge.rows_per_person,
                    "reason": reason,
                    "purpose": checked_text("purpose", purpose, empty=True),
                    **signature(connection),
                }
                ledger_chain.append(connection, chain, name, "refusal", body)

    def state(self, dataset: str | None = None) -> DatasetState:
        """One dataset, from one snapshot of the ledger: its total, its fits, what is spent and what is left."""
        name = self._name(dataset)
        with self._store.read_transaction() as connection:
            return self._state(connection, name)

    def history(self, dataset: str | None = None) -> list[FitEntry]:
        """All charges of a dataset, oldest first, with the outcomes ``"answered"``, ``"failed"`` or ``"no answer"``."""
        return list(self.state(dataset).fits)

    def user(self) -> str:
        """The user that this ledger's entries name: the PostgreSQL role, or else the user of the system."""
        with self._store.read_transaction() as connection:
            return signature(connection)["who"]

    def names(self) -> list[str]:
        """The names of the datasets."""
        with self._store.read_transaction() as connection:
            return _names(connection)

    def left(self, dataset: str | None = None, delta: float | None = None) -> float:
        """The largest ε at which one more fit with this ``delta`` (by default the total's) would be accepted.

        It is exact for a fit that costs the full price of its (ε, δ), as all do except the paper's
        ``method="published"``, with the kind of noise whose price is higher.
        """
        state = self.state(dataset)
        return state.left if delta is None else state.total.left(state.charges, arguments.is_fraction("delta", delta))

    def verify(self, dataset: str | None = None, heads: Sequence[str] = ()) -> list[Verification]:
        """Check every entry of a dataset, or of all: the digests, each ρ against its (ε, δ), the sum against the total.

        Parameters
        ----------
        dataset : str, optional
            The dataset; all of them if not given.
        heads : sequence of str
            Heads that were printed earlier. Each must still be the digest of an entry; this detects a recomputed chain
            and the removal of its last entries.

        Returns
        -------
        list of Verification
            One for each dataset.
        """
        with self._store.read_transaction() as connection:
            tables = (ledger_chain.datasets, ledger_chain.entries)
            names = _names(connection, *tables) if dataset is None else [checked_text("dataset", dataset)]
            chains = {name: ledger_chain.read(connection, name) for name in names}
            altered = ledger_chain.signs_of_tampering(connection)
        all_entries = [entry for chain in chains.values() for entry in chain]
        common_faults = (*altered, *ledger_chain.unknown_heads(all_entries, heads))
        verifications = []
        for name, chain in chains.items():
            faults = ledger_chain.faults(chain) or (_price_faults(name, chain) if chain else ["no such dataset"])
            head = f"sha256:{chain[-1].digest}" if chain else ""
            verifications.append(Verification(name, head, len(chain), (*faults, *common_faults)))
        return verifications or [Verification("", "", 0, common_faults)]

    def _append(self, kind: str, *, fit: int, **content: str) -> None:
        """Append an entry about a charge; each kind at most once."""
        name = self._name(None)
        with self._store.write_transaction(name) as connection:
            state = self._state(connection, name)
            charged = next(entry for entry in state.fits if entry.id == fit)
            if (before := getattr(charged, kind)) not in ("", NO_ANSWER):
                raise ValueError(f"charge {fit} was closed already, as {before!r}.")
            ledger_chain.append(connection, state.chain, name, kind, {"fit": fit, **content, "time": now()})

    def _state(self, connection: Connection, name: str) -> DatasetState:
        """A dataset; a LedgerError if the digests of its entries do not hold."""
        chain = ledger_chain.read(connection, name)
        if not chain:
            raise LedgerError(f"dataset {name!r} is not open in this ledger: Ledger.open or dpem ledger open opens it.")
        if faults := ledger_chain.faults(chain):
            raise LedgerError(
                f"entries of dataset {name!r} were altered ({faults[0]}): run dpem ledger verify, and restore a backup."
            )
        return DatasetState.of(name, chain)

    def _name(self, dataset: str | None) -> str:
        name = self.name if dataset is None else checked_text("dataset", dataset)
        if name is None:
            raise ValueError('this ledger is bound to no dataset: use Ledger(url, "patients") or .dataset("patients").')
        return name

    def __repr__(self) -> str:
        return f"Ledger({self._store.where!r}, dataset={self.name!r})"

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[type[Ledger], tuple[str, str | None]]:
        return Ledger, (self._store.url_with_password, self.name)


def _price_faults(name: str, chain: Sequence[ledger_chain.Entry]) -> list[str]:
    """Faults of entries whose digests hold: a price above its (ε, δ), or charges beyond the total."""
    try:
        state = DatasetState.of(name, chain)
    except LedgerError as error:
        return [str(error).rstrip(".")]
    return [] if state.total.fits(state.charges) else ["the charges exceed the total"]


def _names(connection: Connection, *tables: sa.Table) -> list[str]:
    """The names of the datasets with entries in these tables; by default of those that have been opened."""
    tables = tables or (ledger_chain.datasets,)
    columns = [connection.execute(sa.select(table.c.dataset).distinct()).scalars() for table in tables]
    return sorted({str(name) for names in columns for name in names})
