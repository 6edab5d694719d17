"""What a fit will be charged, to which ledger, and what that leaves.

*Lemma.* A preview spends nothing and reads no row. *Proof.* It computes from the ledger's public records and the price
of the plan, which is made of public numbers. The charge itself is decided by the ledger, in one transaction, whatever
the preview said. ∎
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import click

from dpem.cli.common import ENDED, Exit, Refused, Session, refusing
from dpem.privacy import BudgetExceeded, Charge, DatasetState, Ledger, LedgerError, Price, largest_price, together
from dpem.privacy.ledger import LedgerCharge
from dpem.tables import progress


class WatchedLedger(Ledger):
    """A ledger that keeps the session informed of what has been charged, in case it is interrupted."""

    def __init__(self, url: str, dataset: str, session: Session, purpose: str) -> None:
        super().__init__(url, dataset)
        self._session, self.purpose = session, purpose

    def charge(self, *charge: Any, **said: Any) -> LedgerCharge:
        self._session.charged = None
        if self.purpose:
            said["purpose"] = self.purpose
        try:
            made = super().charge(*charge, **said)
        except BudgetExceeded:
            self._session.charged = False
            raise
        self._session.charged = True
        return made


@dataclass(frozen=True)
class Quote:
    """The largest ε that one more fit may use at the total's δ, before and after this one."""

    ledger: str
    dataset: str
    epsilon: float
    delta: float
    left_before: float
    left_after: float


def ledger_of(url: str | None, dataset: str | None, session: Session, purpose: str = "") -> WatchedLedger | None:
    """The ledger to charge, checked: it can be read and the dataset is open. None if none was named."""
    if not url:
        if dataset is not None:
            raise click.UsageError("--dataset needs a ledger: give --ledger or set DPEM_LEDGER.")
        return None
    if dataset is None:
        raise click.UsageError("A ledger needs --dataset: the name under which dpem ledger open opened these rows.")
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
    ledger: WatchedLedger,
    epsilon: float,
    delta: float,
    price: Price,
    rows_per_person: int,
    *,
    fit: tuple[str, int] | None = None,
    noting: bool = False,
) -> Quote:
    """What the fit would leave, or BudgetExceeded in the ledger's words; with ``noting``, the ledger keeps that too.
    ``fit`` is the model's name and the number of rows, for the dataset's policy.
    """
    known = ledger.entries()
    total, charges = known.total, known.charges
    new = Charge(epsilon, delta, price, rows_per_person=rows_per_person)
    try:
        if fit is not None:
            known.policy.admit(known.name, epsilon=epsilon, model=fit[0], n=fit[1], who=ledger.user())
        total.admit(charges, new, f"dataset {known.name!r}")
    except BudgetExceeded as refusal:
        if noting:
            ledger.note_refusal(new, refusal.reason, purpose=ledger.purpose)
        raise
    left = (total.left(charges, total.delta), total.left([*charges, new], total.delta))
    return Quote(ledger.where, known.name, total.epsilon, total.delta, *left)


def announce(session: Session, epsilon: float, delta: float, quote: Quote | None) -> None:
    """Say what is about to be spent, of what, and what is left."""
    spends = f"epsilon = {epsilon:g}, delta = {delta:g}"
    if quote is None:
        session.warn(f"no --ledger: nothing remembers that this fit spends {spends} of these rows (dpem ledger --help)")
        return
    session.say(
        f"this fit spends {spends} of {quote.dataset} in {quote.ledger}; {_left(quote.left_before, quote)} before it "
        f"and {_down(quote.left_after)} after it"
    )


def would(epsilon: float, delta: float, quote: Quote | None) -> str:
    """What a dry run says of the price."""
    spends = f"A fit would spend epsilon = {epsilon:g}, delta = {delta:g}"
    if quote is None:
        return f"{spends}; no ledger was named. Nothing was spent."
    left = f"{_left(quote.left_before, quote)} now, and {_down(quote.left_after)} would be left"
    return f"{spends} of {quote.dataset} in {quote.ledger}: {left}. Prices add, not epsilons. Nothing was spent."


def _left(left: float, total: Any) -> str:
    """The one number for what is left, wherever the command says it."""
    return f"epsilon = {_down(left)} of {total.epsilon:g} is left at delta = {total.delta:g}"


def _down(epsilon: float) -> str:
    """ε to three digits after the point, never more than it is."""
    return f"{math.floor(1e3 * epsilon + 1e-9) / 1e3:g}"


@contextmanager
def paying(session: Session) -> Iterator[None]:
    """Around a fit: a bar on a terminal, lines without one, and refusals that say whether anything was spent."""
    lines = nullcontext() if sys.stderr.isatty() else session.waiting("fitting")
    try:
        with refusing(Exit.DATA), progress(disable=True if session.json else None), lines:
            yield
    except Refused as error:
        raise Refused(error.code, f"{error} {ENDED[session.charged]}") from None
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise Refused(Exit.FAILED, str(error)) from None  # a cluster that failed, in a sentence of dpem.tables.dask


def state(session: Session, ledger: WatchedLedger | None) -> DatasetState | None:
    """The dataset once the fit is done and written: a ledger that has gone away since is only a warning."""
    if ledger is None:
        return None
    try:
        return ledger.state()
    except LedgerError as error:
        session.warn(str(error).rstrip("."))
        return None


def left_in_words(state: DatasetState) -> str:
    """What was spent in all and what is left, for the end of a fit."""
    fits = "one fit has" if state.n_charges == 1 else f"{state.n_charges} fits have"
    return f"Of {state.name}, {fits} spent epsilon = {state.spent_shown}; {_left(state.left, state)}."


def with_scaler(estimator: Any, scaler: Any) -> str | None:
    """What the model and the scaler it was fitted with guarantee together; ε is rounded up."""
    if scaler is None:
        return None
    both = together([scaler.guarantee_, estimator.guarantee_])
    stated = f"both together are ({math.ceil(1e4 * both.epsilon) / 1e4:g}, {both.delta:g})-differentially private"
    alike = both.rows_per_person == 1 == estimator.guarantee_.rows_per_person
    return stated if alike else f"{stated} for {both.unit}"
