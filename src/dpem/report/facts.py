"""What a report states of any fit, worked out from what was released and from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dpem._html import number
from dpem.fitting.scaler import DPStandardScaler
from dpem.fitting.sequence import PrivateFit
from dpem.fitting.summary import FitSummary
from dpem.privacy import Guarantee, Release
from dpem.privacy import together as joint

if TYPE_CHECKING:
    from dpem.privacy import DatasetState


class Query(NamedTuple):
    """A release, its place in the order of queries, and its part of the price of the fit."""

    place: int
    release: Release
    share: float

    @property
    def kind(self) -> str:
        """Whether it measured values with Gaussian noise ("measure") or chose among candidates ("select")."""
        return "measure" if self.release.price.gaussian else "select"


class Unit(NamedTuple):
    """Words about the rows that the guarantee protects together."""

    taken: str
    others: str
    these: str
    differs: str
    pays: str


@dataclass(frozen=True)
class About:
    """What a reader wants to know of the occasion, where it is known: none of it comes from rows.

    ``state`` is that of the dataset in its ledger, after the fit.
    """

    dataset: str | None = None
    date: str | None = None
    purpose: str | None = None
    ledger: str | None = None
    state: DatasetState | None = None

    @property
    def left(self) -> str | None:
        """What is left of the dataset's total, at the total's δ."""
        if self.state is None:
            return None
        s = self.state
        return f"ε = {s.left_shown} of {s.epsilon:g} at δ = {number(s.delta)}"

    def lines(self) -> list[tuple[str, str]]:
        """What is known, named."""
        named = (
            ("dataset", self.dataset),
            ("date", self.date),
            ("purpose", self.purpose),
            ("ledger", self.ledger),
            ("left of the budget", self.left),
        )
        return [(name, value) for name, value in named if value]


def joint_guarantee(model: PrivateFit, scaler: DPStandardScaler | None) -> Guarantee:
    """The one statement for everything that was released to make the model: what a scaler before it released too."""
    guarantee: Guarantee = model.guarantee_
    return guarantee if scaler is None else joint([scaler.guarantee_, guarantee])


def rounded_up(epsilon: float) -> float:
    """ε with four digits after the point, never less than it is.

    >>> rounded_up(1.00001), rounded_up(2.0)
    (1.0001, 2.0)
    """
    return epsilon if math.isinf(epsilon) else math.ceil(1e4 * epsilon - 1e-6) / 1e4


def unit_in_words(guarantee: Guarantee) -> Unit:
    """What is replaced between neighbours, in the forms that sentences need."""
    rows = guarantee.rows_per_person
    if guarantee.unit == "one person":
        return Unit(
            "all rows of any one person",
            "those of another",
            "these rows",
            "the rows of one person, whatever their number",
            "those that hold rows of one person cost together at most as much as the most expensive one",
        )
    if rows == 1:
        pays = "a row is in one batch, and no other batch costs it anything"
        return Unit("any one row of the table", "another", "this row", "one row", pays)
    return Unit(
        f"the rows of any one person, up to {rows:,},",
        "others",
        "these rows",
        f"the rows of one person, at most {rows:,}",
        "those that hold rows of one person cost together at most as much as the most expensive one",
    )


def queries(model: PrivateFit) -> list[Query]:
    """Every query, with its part of the ρ that was charged. Batches are disjoint, so each is weighed against the
    whole: all batches together cost one person no more than the most expensive one (:func:`dpem.privacy.total_price`).
    """
    releases = list(model.releases_)
    whole = model.guarantee_.price.rho
    shares = [r.price.rho / whole if 0 < whole < math.inf else math.nan for r in releases]
    return [Query(i, r, share) for i, (r, share) in enumerate(zip(releases, shares, strict=True), start=1)]


def bill(priced: list[Query]) -> list[Query]:
    """What one person pays at most: every query of the whole table, and those of the most expensive batch."""
    batches = {q.release.batch for q in priced if q.release.batch is not None}
    cost = {b: math.fsum(q.share for q in priced if q.release.batch == b) for b in batches}
    worst = max(cost, key=lambda b: (round(cost[b], 9), -b)) if cost else None
    return [q for q in priced if q.release.batch is None or q.release.batch == worst]


def grouped(priced: Sequence[Query]) -> list[list[Query]]:
    """Queries with the same words and mechanism together, in the order of the first of each."""
    groups: dict[tuple[str, str], list[Query]] = {}
    for query in priced:
        groups.setdefault((query.release.query, query.release.mechanism), []).append(query)
    return list(groups.values())


def best_guess(epsilon: float, delta: float) -> float:
    """The most often that a guess which of two neighbouring tables was used is right, both equally likely before.

    *Lemma.* At most (e^ε + δ)/(1 + e^ε). *Proof.* Let a test say D′ with probability p under D and q under D′. Then q ≤
    e^ε·p + δ and 1 − p ≤ e^ε·(1 − q) + δ. Adding them, (1 + e^ε)(q − p) ≤ e^ε − 1 + 2δ, and the guess is right with
    probability (1 + q − p)/2. ∎

    >>> round(best_guess(1.0, 1e-5), 3)
    0.731
    """
    return min(1.0, 1 / (1 + math.exp(-epsilon)) + delta / (1 + math.exp(min(epsilon, 700.0))))


def guesses(epsilon: float, delta: float) -> str:
    """How often that guess is right, in words; a percentage that rounds to all of them is not given.

    >>> guesses(1.0, 1e-5), guesses(12.0, 1e-5)
    ('at most 73.2 of 100 cases', 'all but about 1 in 160,000 cases, so the guarantee is nearly empty')
    """
    miss = 1 - best_guess(epsilon, delta)
    if miss < 0.001:
        missed = f"{float(f'{1 / miss:.2g}'):,.0f}" if miss > 1e-12 else "10¹²"
        return f"all but about 1 in {missed} cases, so the guarantee is nearly empty"
    return f"at most {100 - math.floor(1000 * miss) / 10:.1f} of 100 cases"


def statement(model: PrivateFit, summary: FitSummary, scaler: DPStandardScaler | None) -> dict[str, Any]:
    """The one statement for all that was released, in words and in symbols."""
    plan, together = model.plan_, joint_guarantee(model, scaler)
    epsilon, delta = number(rounded_up(together.epsilon), 5), number(together.delta, 4)
    verdict = f"A {summary.name} was fitted to {plan.n:,} rows, and {summary.released} were released"
    if together.private:
        both = "model and scaling together" if scaler is not None else "the whole fit"
        verdict += f"; any {together.unit} is protected within ε = {epsilon}, δ = {number(together.delta)} ({both})"
    else:
        verdict += ", without privacy"
    banner = None
    if math.isinf(model.guarantee_.epsilon):
        banner = "No noise was added (ε = ∞): this is the non-private reference fit, and it protects nobody."
    elif not model.guarantee_.private:
        banner = (
            "The noise came from a seed (random_state): whoever knows the seed can subtract it. This page shows a "
            "simulation, and what it would guarantee with private noise."
        )
    symbols = None
    if math.isfinite(together.epsilon):
        factor = number(math.exp(min(together.epsilon, 700.0)), 4)
        right = guesses(together.epsilon, together.delta)
        symbols = {"epsilon": epsilon, "delta": delta, "factor": factor, "guesses": right}
    parts = () if scaler is None else (scaler.guarantee_, model.guarantee_)
    person = "one row" if together.unit == "one row" else "one person"
    return {
        "verdict": verdict,
        "banner": banner,
        "guarantee": together if scaler is not None else model.guarantee_,
        "statement": str(together),
        "symbols": symbols,
        "unit": unit_in_words(together),
        "rows_per_person": plan.rows_per_person,
        "scaled": [f"ε = {number(g.epsilon, 4)}, δ = {number(g.delta, 4)}" for g in parts],
        "unscaled": getattr(model, "scaler_", None) if scaler is None else None,
        "figures": [
            ("ε", epsilon),
            ("δ", number(together.delta)),
            ("protects", person),
            ("rows", f"{plan.n:,}"),
            ("columns", f"{plan.d:,}"),
        ],
    }


def outcome(model: PrivateFit) -> dict[str, Any]:
    """What the plan said beside what happened."""
    plan, check = model.plan_, getattr(model, "fit_check_", None)
    found = plan.prediction
    price = model.guarantee_.price.rho
    rows, note = [], ""
    if found is None:
        rows.append(("predicted accuracy", "none", ""))
    else:
        ends = f"{number(found.median)}, and between {number(found.low)} and {number(found.high)} in nine fits of ten"
        rows.append((found.quantity, ends, "not measured: to measure it would cost budget"))
        note = " ".join(filter(None, (found.meaning, found.assumed)))
        note += " If what is assumed is wrong, so is the prediction, and the guarantee still holds."
        if found.failure >= 0.005:
            rows.append(("fits that find no structure", f"about {100 * found.failure:.0f} of 100", ""))
    if check is not None:
        rows.append(("fit check", "to be better than the simpler model", check.verdict))
    if math.isfinite(price):
        rows.append(("price ρ", number(plan.price.rho), number(price)))
    steps = len(plan.steps)
    rows.append(("queries", f"{steps} step{'' if steps == 1 else 's'}", f"{len(model.releases_)} noisy answers"))
    return {"outcome": rows, "prediction": note}
