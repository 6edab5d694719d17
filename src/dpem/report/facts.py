"""The facts that a report states about any fit, computed from released and public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dpem._html import number
from dpem.fitting.sequence import PrivateFit
from dpem.privacy import Release

if TYPE_CHECKING:
    from dpem.privacy import DatasetState


class Query(NamedTuple):
    """A release, its number in the order of queries, and its share of the fit's price."""

    place: int
    release: Release
    share: float

    @property
    def kind(self) -> str:
        """Whether it measured values with Gaussian noise ("measure") or chose among candidates ("select")."""
        return "measure" if self.release.price.gaussian else "select"


@dataclass(frozen=True)
class About:
    """When, why and for which dataset a model was fitted, as far as known; none of it comes from rows.

    ``state`` is the state of the dataset in its ledger after the fit.
    """

    dataset: str | None = None
    date: str | None = None
    purpose: str | None = None
    ledger: str | None = None
    state: DatasetState | None = None

    @property
    def left(self) -> str | None:
        """The part of the dataset's total ε that is left, at the total's δ."""
        s = self.state
        return None if s is None else f"ε = {s.left_rounded} of {s.total.epsilon:g} at δ = {number(s.total.delta)}"


def rounded_up(epsilon: float) -> float:
    """ε rounded up to four decimals.

    >>> rounded_up(1.00001), rounded_up(2.0)
    (1.0001, 2.0)
    """
    return epsilon if math.isinf(epsilon) else math.ceil(1e4 * epsilon - 1e-6) / 1e4


def queries(model: PrivateFit) -> list[Query]:
    """Every query with its share of the ρ that was charged.

    All disjoint batches together cost a person no more than the most expensive one
    (:func:`dpem.privacy.total_price`), so the shares of several batches may add up to more than 1.
    """
    rho = model.guarantee_.price.rho
    paid = 0 < rho < math.inf
    return [Query(i, r, r.price.rho / rho if paid else math.nan) for i, r in enumerate(model.releases_, start=1)]


def charged_queries(priced: list[Query]) -> list[Query]:
    """The queries whose prices add up to the fit's: those of the whole table and of the most expensive batch."""
    batches = {q.release.batch for q in priced if q.release.batch is not None}
    cost = {b: math.fsum(q.share for q in priced if q.release.batch == b) for b in batches}
    worst = max(cost, key=lambda b: (round(cost[b], 9), -b)) if cost else None
    return [q for q in priced if q.release.batch is None or q.release.batch == worst]


def best_guess(epsilon: float, delta: float) -> float:
    """The largest probability of guessing right which of two equally likely neighbouring tables was used.

    *Lemma.* At most (e^ε + δ)/(1 + e^ε). *Proof.* Let a test say D′ with probability p under D and q under D′. Then q ≤
    e^ε·p + δ and 1 − p ≤ e^ε·(1 − q) + δ. Adding them, (1 + e^ε)(q − p) ≤ e^ε − 1 + 2δ, and the guess is right with
    probability (1 + q − p)/2. ∎

    >>> round(best_guess(1.0, 1e-5), 3)
    0.731
    """
    return min(1.0, 1 / (1 + math.exp(-epsilon)) + delta / (1 + math.exp(min(epsilon, 700.0))))


def guess_rate(epsilon: float, delta: float) -> str:
    """The rate at which that guess is right, in words; if that is nearly always, the rate at which it is wrong.

    >>> guess_rate(1.0, 1e-5), guess_rate(12.0, 1e-5)
    ('at most 73.2 of 100 cases', 'all but about 1 in 160,000 cases, so the guarantee is nearly empty')
    """
    miss = 1 - best_guess(epsilon, delta)
    if miss < 0.001:
        missed = f"{float(f'{1 / miss:.2g}'):,.0f}" if miss > 1e-12 else "10¹²"
        return f"all but about 1 in {missed} cases, so the guarantee is nearly empty"
    return f"at most {100 - math.floor(1000 * miss) / 10:.1f} of 100 cases"


def outcome(model: PrivateFit) -> list[tuple[str, str, str]]:
    """The rows of a table that compares the plan with the outcome."""
    plan, check, price = model.plan_, model.fit_check_, model.guarantee_.price.rho
    if (p := plan.prediction) is None:
        rows = [("predicted accuracy", "none", "")]
    else:
        interval = f"{number(p.median)}, and between {number(p.low)} and {number(p.high)} in nine fits of ten"
        rows = [(p.quantity, interval, "not measured, since that would cost budget")]
        if p.failure >= 0.005:
            rows.append(("fits that find no structure", f"about {100 * p.failure:.0f} of 100", ""))
    if check is not None:
        rows.append(("fit check", "better than the simpler model", check.verdict))
    if math.isfinite(price):
        rows.append(("price ρ", number(plan.price.rho), number(price)))
    steps = len(plan.steps)
    rows.append(("queries", f"{steps} step{'' if steps == 1 else 's'}", f"{len(model.releases_)} noisy answers"))
    return rows
