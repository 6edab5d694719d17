"""Quotes: the charge of a fit, the ledger that it goes to, and what is left.

*Lemma.* A quote spends nothing and reads no row. *Proof.* It is computed from the ledger's public records and the price
of the plan, which depends on public numbers. The ledger decides on the charge itself, in one transaction, whatever the
quote was. ∎
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import click

from dpem.cli.common import ENDED, Exit, Refused, Session, refusing
from dpem.privacy import BudgetExceeded, Charge, DatasetState, Ledger, LedgerError, Price, largest_price, together
from dpem.privacy.ledger import LedgerCharge
from dpem.tables import Source, progress


class WatchedLedger(Ledger):
    """A ledger that records in the session that something was charged, in case the command is interrupted."""

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
    """The largest ε that one more fit may use at the total's δ, before this fit and after it."""

    ledger: str
    dataset: str
    epsilon: float
    delta: float
    left_before: float
    left_after: float


def ledger_of(url: str | None, dataset: str | None, session: Session, purpose: str = "") -> WatchedLedger | None:
    """The ledger to charge, after a check that it can be read and the dataset is open; None without a URL."""
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
    ledger: WatchedLedger | None, epsilon: float, delta: float, rows_per_person: int, *, record_refusal: bool = False
) -> None:
    """Raise BudgetExceeded if neither a sparse nor a dense fit would be accepted, before anything takes time."""
    if ledger is None:
        return

    def dearest(gaussian: bool) -> Charge:
        return Charge(epsilon, delta, largest_price(epsilon, delta, gaussian=gaussian), rows_per_person=rows_per_person)

    try:
        quoted(ledger, dearest(gaussian=True))
    except BudgetExceeded:
        quoted(ledger, dearest(gaussian=False), record_refusal=record_refusal)


def quoted(
    ledger: WatchedLedger, charge: Charge, *, fit: tuple[str, int] | None = None, record_refusal: bool = False
) -> Quote:
    """What is left before the charge and after it; raises BudgetExceeded as the charge would, and with
    ``record_refusal`` the ledger records it. ``fit`` is the model's name and the number of rows, for the dataset's
    policy.
    """
    entries = ledger.entries()
    total, charges = entries.total, entries.charges
    try:
        if fit is not None:
            entries.policy.admit(entries.name, epsilon=charge.epsilon, model=fit[0], n=fit[1], who=ledger.user())
        total.admit(charges, charge, f"dataset {entries.name!r}")
    except BudgetExceeded as refusal:
        if record_refusal:
            ledger.note_refusal(charge, refusal.reason, purpose=ledger.purpose)
        raise
    left_before, left_after = total.left(charges, total.delta), total.left([*charges, charge], total.delta)
    return Quote(ledger.where, entries.name, total.epsilon, total.delta, left_before, left_after)


def announce(session: Session, epsilon: float, delta: float, quote: Quote | None) -> None:
    """Print what is about to be spent, from which total, and what is left."""
    spends = f"epsilon = {epsilon:g}, delta = {delta:g}"
    if quote is None:
        session.warn(f"no --ledger: nothing remembers that this fit spends {spends} of these rows (dpem ledger --help)")
        return
    session.say(
        f"this fit spends {spends} of {quote.dataset} in {quote.ledger}; {_left(quote.left_before, quote)} before it "
        f"and {_down(quote.left_after)} after it"
    )


def would(epsilon: float, delta: float, quote: Quote | None) -> str:
    """The price of a fit, as a dry run prints it."""
    spends = f"A fit would spend epsilon = {epsilon:g}, delta = {delta:g}"
    if quote is None:
        return f"{spends}; no ledger was named. Nothing was spent."
    left = f"{_left(quote.left_before, quote)} now, and {_down(quote.left_after)} would be left"
    return f"{spends} of {quote.dataset} in {quote.ledger}: {left}. Prices add, not epsilons. Nothing was spent."


def _left(left: float, total: Quote | DatasetState) -> str:
    """What is left, as every command prints it."""
    return f"epsilon = {_down(left)} of {total.epsilon:g} is left at delta = {total.delta:g}"


def _down(epsilon: float) -> str:
    """ε, rounded down to three decimals."""
    return f"{math.floor(1e3 * epsilon + 1e-9) / 1e3:g}"


@contextmanager
def paying(session: Session) -> Iterator[None]:
    """The context of a fit: progress on a terminal or in lines, and errors that state whether anything was spent."""
    lines = nullcontext() if sys.stderr.isatty() else session.waiting("fitting")
    try:
        with refusing(Exit.DATA), progress(disable=True if session.json else None), lines:
            yield
    except Refused as error:
        raise Refused(error.code, f"{error} {ENDED[session.charged]}") from None
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise Refused(Exit.FAILED, str(error)) from None  # a failed cluster, described by dpem.tables.dask


def state(session: Session, ledger: WatchedLedger | None) -> DatasetState | None:
    """The dataset after the fit; only a warning if the ledger cannot be read any more."""
    if ledger is None:
        return None
    try:
        return ledger.state()
    except LedgerError as error:
        session.warn(str(error).rstrip("."))
        return None


def after(state: DatasetState | None) -> list[str]:
    """What has been spent and what is left, and the head of the ledger, for the end of a fit."""
    if state is None:
        return []
    fits = "one fit has" if state.n_charges == 1 else f"{state.n_charges} fits have"
    spent = f"Of {state.name}, {fits} spent epsilon = {state.spent_shown}; {_left(state.left, state)}."
    return [spent, f"Head of the ledger: {state.head}"]


def facts(options: dict[str, Any], price: Price, quote: Quote | None, source: Source) -> dict[str, Any]:
    """The fields that the JSON of every fit and of its dry run have."""
    return {
        "data": {"path": options["data"], "rows": source.n_rows, "columns": source.n_features},
        "price": {"epsilon": options["epsilon"], "delta": options["delta"], "rho": price.rho},
        "ledger": None if quote is None else asdict(quote),
    }


def with_scaler(estimator: Any, scaler: Any) -> str | None:
    """The joint guarantee of the model and its scaler, with ε rounded up."""
    if scaler is None:
        return None
    joint = together([scaler.guarantee_, estimator.guarantee_])
    sentence = f"both together are ({math.ceil(1e4 * joint.epsilon) / 1e4:g}, {joint.delta:g})-differentially private"
    one_row = joint.rows_per_person == 1 == estimator.guarantee_.rows_per_person
    return sentence if one_row else f"{sentence} for {joint.unit}"
