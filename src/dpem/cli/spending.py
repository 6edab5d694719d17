"""Quotes: the price of a fit, the ledger that is charged, and what is left of the budget.

*Lemma.* A quote spends nothing and reads no row. *Proof.* It is computed from the ledger's public records and the price
of the plan, which depends on public numbers. The ledger decides on the charge itself, in one transaction, whatever the
quote was. ∎
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from dpem.cli.common import BUDGET_AFTER_FAILURE, Exit, Refused, Session, refusals
from dpem.fitting.plan import Plan
from dpem.fitting.scaler import DPStandardScaler
from dpem.fitting.sequence import PrivateFit
from dpem.privacy import BudgetExceeded, Charge, DatasetState, Ledger, LedgerError, together
from dpem.privacy.ledger import LedgerCharge
from dpem.privacy.ledger_entries import rounded_down
from dpem.report.facts import rounded_up
from dpem.tables import progress


class SessionLedger(Ledger):
    """A ledger that sets ``session.charged``, so that an interrupted command can state whether it has spent."""

    def __init__(self, url: str, dataset: str, session: Session, purpose: str) -> None:
        super().__init__(url, dataset)
        self._session, self.purpose = session, purpose

    def charge(self, *args: Any, **details: Any) -> LedgerCharge:
        self._session.charged = None
        if self.purpose:
            details["purpose"] = self.purpose
        try:
            charge = super().charge(*args, **details)
        except BudgetExceeded:
            self._session.charged = False
            raise
        self._session.charged = True
        return charge


@dataclass(frozen=True)
class Quote:
    """A dataset's total, and the largest ε that one more fit may use at the total's δ, before this fit and after it."""

    ledger: str
    dataset: str
    epsilon: float
    delta: float
    left_before: float
    left_after: float


def ledger_of(url: str | None, dataset: str | None, session: Session, purpose: str) -> SessionLedger | None:
    """The ledger to charge, after a check that it can be read and the dataset is open; None without a URL."""
    if not url:
        if dataset is not None:
            raise click.UsageError("--dataset needs a ledger: give --ledger or set DPEM_LEDGER.")
        return None
    if dataset is None:
        raise click.UsageError("A ledger needs --dataset: the name that dpem ledger open gave these rows.")
    with refusals(Exit.USAGE):
        ledger = SessionLedger(url, dataset, session, purpose)
        ledger.state()
    return ledger


def quote_of(ledger: SessionLedger, plan: Plan, *, record_refusal: bool) -> Quote:
    """The quote of a planned fit; a BudgetExceeded if the total or the dataset's policy does not allow it, which the
    ledger records if ``record_refusal``.
    """
    charge = Charge(plan.epsilon, plan.delta, plan.price, rows_per_person=plan.rows_per_person)
    state = ledger.state()
    total, charges = state.total, state.charges
    try:
        state.policy.admit(state.name, epsilon=plan.epsilon, model=plan.model, n=plan.n, who=ledger.user())
        total.admit(charges, charge, f"dataset {state.name!r}")
    except BudgetExceeded as refusal:
        if record_refusal:
            ledger.note_refusal(charge, refusal.reason, purpose=ledger.purpose)
        raise
    left_before, left_after = total.left(charges, total.delta), total.left([*charges, charge], total.delta)
    return Quote(ledger.where, state.name, total.epsilon, total.delta, left_before, left_after)


def price_of(plan: Plan) -> str:
    return f"epsilon = {plan.epsilon:g}, delta = {plan.delta:g}"


def announce(session: Session, plan: Plan, quote: Quote | None) -> None:
    """Print what is about to be spent, from which total, and what will be left."""
    spends = f"this fit spends {price_of(plan)}"
    if quote is None:
        session.warn(f"no --ledger: {spends}, which is recorded nowhere (see dpem ledger --help)")
        return
    left = f"{_left(quote)} before it and {rounded_down(quote.left_after)} after it"
    session.say(f"{spends} of {quote.dataset} in {quote.ledger}; {left}")


def dry_run_price(plan: Plan, quote: Quote | None) -> str:
    """The price of a fit, as a dry run prints it."""
    spends = f"A fit would spend {price_of(plan)}"
    if quote is None:
        return f"{spends}; no ledger is named. Nothing was spent."
    left = f"{_left(quote)} now, and {rounded_down(quote.left_after)} would be left"
    return f"{spends} of {quote.dataset} in {quote.ledger}: {left}. Prices add, not epsilons. Nothing was spent."


def _left(quote: Quote) -> str:
    """What is left of the total before the fit, in words."""
    return f"epsilon = {rounded_down(quote.left_before)} of {quote.epsilon:g} is left at delta = {quote.delta:g}"


@contextmanager
def fit_context(session: Session) -> Iterator[None]:
    """Show the progress of a fit, and let a refusal state whether anything was spent."""
    try:
        with refusals(Exit.DATA), progress(disable=True if session.json else None), session.notice("fitting"):
            yield
    except Refused as error:
        raise Refused(error.code, f"{error} {BUDGET_AFTER_FAILURE[session.charged]}") from None


def state(session: Session, ledger: SessionLedger | None) -> DatasetState | None:
    """The dataset after the fit; only a warning if the ledger cannot be read any more."""
    if ledger is None:
        return None
    try:
        return ledger.state()
    except LedgerError as error:
        session.warn(str(error).rstrip("."))
        return None


def spent_and_left(state: DatasetState | None) -> list[str]:
    """The lines on what has been spent, what is left, and the head of the ledger."""
    if state is None:
        return []
    total, fits = state.total, f"{len(state.fits)} fit{'' if len(state.fits) == 1 else 's'}"
    spent = f"{fits} of {state.name} spent epsilon = {state.spent_rounded} of {total.epsilon:g}"
    left = f"one more may use up to {state.left_rounded}"
    return [f"At delta = {total.delta:g}, {spent}; {left}.", f"Head of the ledger: {state.head}"]


def joint_guarantee(estimator: PrivateFit, scaler: DPStandardScaler | None) -> str | None:
    """The joint guarantee of the model and its scaler, with ε rounded up."""
    if scaler is None:
        return None
    joint = together([scaler.guarantee_, estimator.guarantee_])
    sentence = f"both together are ({rounded_up(joint.epsilon):g}, {joint.delta:g})-differentially private"
    one_row = joint.rows_per_person == 1 == estimator.guarantee_.rows_per_person
    return sentence if one_row else f"{sentence} for {joint.unit}"
