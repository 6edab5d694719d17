"""What a fit will be charged, to which ledger, and what that leaves.

*Lemma.* A preview spends nothing and reads no row. *Proof.* It computes from the ledger's public records and the price
of the plan, which is made of public numbers. The debit itself is decided by the ledger, in one transaction, whatever
the preview said. ∎
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from dpem._html import number
from dpem.cli.common import ENDED, Exit, Refused, Session, refusing
from dpem.cli.ledger import where
from dpem.privacy import BudgetExceeded, Charge, Ledger, LedgerError, Price, largest_price, together
from dpem.privacy.budget import Total
from dpem.privacy.ledger import LedgerCharge
from dpem.tables import progress


class WatchedLedger(Ledger):
    """A ledger that tells the session what has been charged, should somebody interrupt it."""

    def __init__(self, url: str, dataset: str, session: Session, purpose: str) -> None:
        super().__init__(url, dataset)
        self._session, self.purpose = session, purpose

    def debit(self, *charge: Any, **said: Any) -> LedgerCharge:
        self._session.charged = None
        if self.purpose:
            said["purpose"] = self.purpose
        try:
            made = super().debit(*charge, **said)
        except BudgetExceeded:
            self._session.charged = False
            raise
        self._session.charged = True
        return made


@dataclass(frozen=True)
class Quote:
    """What a further fit at the same δ could ask for at least, whatever its kind, before and after this one."""

    ledger: str
    dataset: str
    left_before: float
    left_after: float


def ledger_of(url: str | None, dataset: str | None, session: Session, purpose: str = "") -> WatchedLedger | None:
    """The ledger to charge, checked: it can be read and the dataset is open. None if none was named."""
    if not url:
        if dataset is not None:
            raise click.UsageError("--dataset goes with --ledger, and DPEM_LEDGER is not set.")
        return None
    if dataset is None:
        raise click.UsageError("A ledger needs --dataset: the name that dpem ledger open gave these rows.")
    with refusing(Exit.USAGE):
        ledger = WatchedLedger(url, dataset, session, purpose)
        ledger.state()
    return ledger


def refuse_at_any_price(
    ledger: WatchedLedger | None, epsilon: float, delta: float, rows_per_person: int, *, noting: bool = False
) -> None:
    """Raise BudgetExceeded if neither a sparse nor a dense fit would be accepted, before anything takes time."""
    if ledger is None:
        return
    try:
        quoted(ledger, epsilon, delta, largest_price(epsilon, delta, gaussian=True), rows_per_person)
    except BudgetExceeded:
        quoted(ledger, epsilon, delta, largest_price(epsilon, delta, gaussian=False), rows_per_person, noting=noting)


def quoted(
    ledger: WatchedLedger, epsilon: float, delta: float, price: Price, rows_per_person: int, *, noting: bool = False
) -> Quote:
    """What the fit would leave, or BudgetExceeded in the ledger's words; with ``noting``, the ledger keeps that too."""
    state, charges = ledger.state(), [_charge(debit) for debit in ledger.history()]
    total = Total(state.epsilon, state.delta, state.rows_per_person)
    new = Charge(epsilon, delta, price, rows_per_person=rows_per_person)
    try:
        total.admit(charges, new, f"dataset {state.name!r} with")
    except BudgetExceeded:
        if noting:
            ledger.note_refusal(new, purpose=ledger.purpose)
        raise
    before, after = total.left(charges, delta), total.left([*charges, new], delta)
    return Quote(where(ledger), state.name, before, after)


def announce(session: Session, epsilon: float, delta: float, quote: Quote | None) -> None:
    """Say what is about to be spent, of what, and what is left."""
    spends = f"epsilon = {epsilon:g}, delta = {delta:g}"
    if quote is None:
        session.warn(f"no --ledger: nothing remembers that this fit spends {spends} of these rows (dpem ledger --help)")
        return
    session.say(
        f"this fit spends {spends} of {quote.dataset} in {quote.ledger}; at this delta at least epsilon = "
        f"{quote.left_before:.4g} is left before it and {quote.left_after:.4g} after it"
    )


def would(epsilon: float, delta: float, quote: Quote | None) -> str:
    """What a dry run says of the price."""
    spends = f"A fit would spend epsilon = {epsilon:g}, delta = {delta:g}"
    if quote is None:
        return f"{spends}; no ledger was named. Nothing was spent."
    left = f"at least epsilon = {quote.left_before:.4g} is left, and {quote.left_after:.4g} would be"
    adding = "Fits add up by their prices, not by their epsilons."
    return f"{spends} of {quote.dataset} in {quote.ledger}: at this delta {left}. {adding} Nothing was spent."


@contextmanager
def paying(session: Session) -> Iterator[None]:
    """Around a fit: a bar on a terminal, and refusals that say whether anything was spent."""
    try:
        with refusing(Exit.DATA), progress(disable=True if session.json else None):
            yield
    except Refused as error:
        raise Refused(error.code, f"{error} {ENDED[session.charged]}") from None
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise Refused(Exit.FAILED, str(error)) from None  # a cluster that failed, in a sentence of dpem.tables.dask


def left(session: Session, ledger: WatchedLedger | None, delta: float) -> float | None:
    """What is left once the fit is done and written: a ledger that has gone away since is only a warning."""
    if ledger is None:
        return None
    try:
        return ledger.left(delta=delta)
    except LedgerError as error:
        session.warn(str(error).rstrip("."))
        return None


def left_in_words(ledger: Ledger, dataset: str | None = None) -> str:
    """What is left of a dataset's total, for the first screen of a report."""
    state = ledger.state(dataset)
    return f"ε = {math.floor(1e3 * state.left) / 1e3:g} of {state.epsilon:g} at δ = {number(state.delta)}"


def with_scaler(estimator: Any, scaler: Any) -> str | None:
    """What the model and the scaler it was fitted with promise together; ε is rounded up."""
    if scaler is None:
        return None
    both = together([scaler.guarantee_, estimator.guarantee_])
    promise = f"both together are ({math.ceil(1e4 * both.epsilon) / 1e4:g}, {both.delta:g})-differentially private"
    alike = both.rows_per_person == 1 == estimator.guarantee_.rows_per_person
    return promise if alike else f"{promise} for {both.unit}"


def _charge(debit: Any) -> Charge:
    price = Price(debit.rho, debit.gaussian)
    return Charge(debit.epsilon, debit.delta, price, rows_per_person=debit.rows_per_person)
