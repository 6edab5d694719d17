"""A budget that outlives the process: one row per debit, in a SQLite file or a PostgreSQL database.

*Lemma.* However many processes and machines debit a dataset, and wherever any of them dies, every fit that touched data
is in the ledger, and the debits in the ledger are covered by the dataset's total. *Proof.* A debit reads all earlier
debits, decides by :meth:`~dpem.privacy.budget.Total.admit` and appends, in one transaction that excludes every other
writer (:mod:`dpem.privacy.ledger_schema`); so debits are decided one after another, each in sight of all before it. The
fit goes on only after the commit has been confirmed, and a committed row is never changed or removed. A process that
dies before the commit leaves no row and has touched nothing; one that dies later leaves a row without an outcome. If
the confirmation is lost, the row may be there, and the fit does not go on. ∎
"""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpem._version import __version__
from dpem.privacy.accounting import Price
from dpem.privacy.budget import BudgetExceeded, Charge, Total, checked_rows_per_person, shown
from dpem.privacy.ledger_entries import (
    NO_ANSWER,
    DatasetState,
    Debit,
    Refusal,
    checked_text,
    debit_of,
    hands,
    now,
    state_of,
)
from dpem.privacy.ledger_schema import (
    LedgerError,
    Store,
    datasets,
    debits,
    models,
    outcomes,
    refusals,
)


class LedgerWarning(RuntimeWarning):
    """Something about a fit that was paid for could not be written down."""


@dataclass(frozen=True)
class LedgerCharge(Charge):
    """A charge that is in a ledger, as debit ``id``."""

    id: int
    ledger: Ledger = field(repr=False)

    def close(self, outcome: str) -> None:
        """Append how the fit ended. If that cannot be written the fit has still been paid for: a warning says so."""
        super().close(outcome)
        try:
            self.ledger._append(outcomes, debit=self.id, outcome=outcome)
        except LedgerError as error:
            said = f'debit {self.id} stays charged and shows as "{NO_ANSWER}", since {error}'
            warnings.warn(said, LedgerWarning, stacklevel=3)

    def released(self, fingerprint: str) -> None:
        """Append which model the fit became. If that cannot be written, a warning says so."""
        try:
            self.ledger._append(models, debit=self.id, fingerprint=checked_text("fingerprint", fingerprint))
        except LedgerError as error:
            warnings.warn(f"debit {self.id} does not name its model, since {error}", LedgerWarning, stacklevel=3)


class Ledger:
    """Budgets of datasets, kept in a database that processes and machines share.

    A dataset is opened once with its total (ε, δ). Every fit is debited, durably, before data are touched, or refused
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
    >>> with ledger.debit(0.9, 1e-6, Price(0.019), purpose="a fit"):
    ...     pass  # ask the data
    >>> [(debit.purpose, debit.outcome) for debit in ledger.history()]
    [('a fit', 'answered')]
    >>> ledger.debit(0.9, 1e-6, Price(0.019))
    Traceback (most recent call last):
        ...
    dpem.privacy.budget.BudgetExceeded: this fit asks for epsilon=0.9, ... is left. Nothing was computed.
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

    def open(self, dataset: str, epsilon: float, delta: float, *, rows_per_person: int = 1) -> Ledger:
        """Open a dataset with its total, once and for all, and return the ledger bound to it.

        ``rows_per_person`` is the most rows of the dataset that one person has. The total is about all of them
        together, and a fit that protects fewer is refused. A ledger that is not there yet is created.
        """
        name, total = checked_text("dataset", dataset), Total.checked("dataset", epsilon, delta, rows_per_person)
        if math.isinf(total.epsilon):
            raise ValueError("epsilon of a dataset must be finite, got inf.")
        with self._store.making() as connection:
            known = connection.execute(sa.select(datasets).where(datasets.c.name == name)).one_or_none()
            if known is not None:
                raise LedgerError(
                    f"dataset {name!r} is open already, with epsilon={known.epsilon:g} and delta={known.delta:g}: "
                    "a total is set once."
                )
            row = {"name": name, **asdict(total)}
            connection.execute(sa.insert(datasets).values(**row, version=__version__, time=now()))
        return self.dataset(name)

    def debit(
        self,
        epsilon: float,
        delta: float,
        price: Price,
        *,
        purpose: str = "",
        digest: str = "",
        rows_per_person: int = 1,
    ) -> LedgerCharge:
        """Charge one fit that is (ε, δ)-private for up to ``rows_per_person`` rows and costs ``price``, or raise
        :class:`~dpem.BudgetExceeded` and charge nothing. When this returns, the debit is on disk.
        """
        name = self._name(None)
        price = Price(float(price.rho), bool(price.gaussian))
        rows = checked_rows_per_person("rows_per_person", rows_per_person)
        charge = Charge(float(epsilon), float(delta), price, rows_per_person=rows)
        row = {"epsilon": charge.epsilon, "delta": charge.delta, "rho": price.rho, "gaussian": price.gaussian}
        row["rows_per_person"] = rows
        said = {
            "purpose": checked_text("purpose", purpose, empty=True),
            "digest": checked_text("digest", digest, empty=True),
        }
        try:
            with self._store.writing(name) as connection:
                total, _ = self._total(connection, name)
                charges = self._charges(connection, name)
                total.admit(charges, charge, f"dataset {name!r} with")
                values = {"dataset": name, "number": len(charges) + 1, **row, **said, **hands()}
                append = sa.insert(debits).values(**values, version=__version__, time=now()).returning(debits.c.id)
                number = connection.execute(append).scalar_one()
        except BudgetExceeded:
            self.note_refusal(charge, purpose=purpose)
            raise
        return LedgerCharge(charge.epsilon, charge.delta, price, number, self, rows_per_person=rows)

    def note_refusal(self, charge: Charge, *, purpose: str = "") -> None:
        """Write down that a fit was not accepted. Where that fails the fit is refused all the same."""
        with suppress(LedgerError):
            name = self._name(None)
            with self._store.writing(name) as connection:
                total, _ = self._total(connection, name)
                few = charge.rows_per_person < total.rows_per_person
                row = {
                    "dataset": name,
                    "epsilon": charge.epsilon,
                    "delta": charge.delta,
                    "rows_per_person": charge.rows_per_person,
                    "reason": "rows per person" if few else "budget",
                    "purpose": checked_text("purpose", purpose, empty=True),
                }
                connection.execute(sa.insert(refusals).values(**row, **hands(), time=now()))

    def refusals(self, dataset: str | None = None) -> list[Refusal]:
        """Every fit to a dataset that was not accepted, oldest first."""
        name = self._name(dataset)
        with self._store.reading() as connection:
            self._total(connection, name)
            chosen = sa.select(refusals).where(refusals.c.dataset == name).order_by(refusals.c.id)
            rows = connection.execute(chosen).all()
        try:
            return [Refusal(**{**row._mapping, "time": datetime.fromisoformat(row.time)}) for row in rows]
        except (TypeError, ValueError):
            raise LedgerError(f"the refusals of dataset {name!r} are not as they were written.") from None

    def history(self, dataset: str | None = None) -> list[Debit]:
        """Every debit of a dataset, oldest first. An outcome is ``"answered"``, ``"failed"`` or ``"no answer"``."""
        name = self._name(dataset)
        with self._store.reading() as connection:
            self._total(connection, name)
            self._charges(connection, name)
            rows = connection.execute(
                sa.select(debits, outcomes.c.outcome, models.c.fingerprint)
                .outerjoin(outcomes, outcomes.c.debit == debits.c.id)
                .outerjoin(models, models.c.debit == debits.c.id)
                .where(debits.c.dataset == name)
                .order_by(debits.c.number)
            ).all()
        return [debit_of(row) for row in rows]

    def datasets(self) -> list[DatasetState]:
        """Every dataset, by name."""
        with self._store.reading() as connection:
            names = connection.execute(sa.select(datasets.c.name).order_by(datasets.c.name)).scalars().all()
            found = [(name, *self._total(connection, name), self._charges(connection, name)) for name in names]
        return [state_of(*one) for one in found]

    def state(self, dataset: str | None = None) -> DatasetState:
        """One dataset: its total, what is spent and what is left."""
        name = self._name(dataset)
        with self._store.reading() as connection:
            total, opened = self._total(connection, name)
            charges = self._charges(connection, name)
        return state_of(name, total, opened, charges)

    def left(self, dataset: str | None = None, delta: float | None = None) -> float:
        """The largest ε that a further fit of ``method="tight"`` at ``delta`` could ask for and be accepted.

        ``delta`` is the total's unless given; a smaller one leaves room for a larger ε. It is exact for a fit that
        spends its (ε, δ) to the full, as the estimators do, for the dearer of sparse and dense fits.
        """
        name = self._name(dataset)
        with self._store.reading() as connection:
            total, _ = self._total(connection, name)
            charges = self._charges(connection, name)
        if delta is not None and not 0 < delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {shown(delta)}.")
        return total.left(charges, total.delta if delta is None else delta)

    def _append(self, table: sa.Table, *, debit: int, **said: str) -> None:
        """One row about a debit, once."""
        with self._store.writing(self._name(None)) as connection:
            (what,) = said
            known = connection.execute(sa.select(table.c[what]).where(table.c.debit == debit)).scalar()
            if known is not None:
                raise ValueError(f"debit {debit} was closed already, as {known!r}.")
            connection.execute(sa.insert(table).values(debit=debit, **said, time=now()))

    def _total(self, connection: Connection, name: str) -> tuple[Total, datetime]:
        row = connection.execute(sa.select(datasets).where(datasets.c.name == name)).one_or_none()
        if row is None:
            raise LedgerError(
                f"dataset {name!r} is not open in this ledger: Ledger.open(name, epsilon, delta) opens it."
            )
        try:
            total = Total.checked("dataset", row.epsilon, row.delta, row.rows_per_person)
            return total, datetime.fromisoformat(row.time)
        except (TypeError, ValueError):
            raise LedgerError(f"the total of dataset {name!r} is not as it was written: restore a backup.") from None

    def _charges(self, connection: Connection, name: str) -> list[Charge]:
        """What was charged to a dataset, in order. A gap in the numbers is a row that somebody has removed."""
        rows = connection.execute(sa.select(debits).where(debits.c.dataset == name).order_by(debits.c.number)).all()
        try:
            charges = [
                Charge(row.epsilon, row.delta, Price(row.rho, row.gaussian), rows_per_person=row.rows_per_person)
                for row in rows
            ]
        except (TypeError, ValueError):
            charges = []
        if [row.number for row in rows] != list(range(1, len(charges) + 1)):
            raise LedgerError(f"the debits of dataset {name!r} are not as they were written: restore a backup.")
        return charges

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
