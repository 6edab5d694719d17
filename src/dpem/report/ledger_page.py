"""One page over a ledger: each dataset's budget, how its fits add up, who spent it, and every fit with its links.

*Lemma.* The page costs nothing. *Proof.* It is a function of the ledger, which holds public facts about fits, and of
fitted models, which were released. No row is read. ∎
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dpem import _html
from dpem._html import capital, number, percent
from dpem.privacy.accounting import largest_price
from dpem.privacy.budget import unit
from dpem.privacy.ledger_entries import DatasetEntries, FitEntry, Refusal

#: Colours that people who see few colours can distinguish; those beyond share grey.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
#: Why a fit was refused, in a heading.
REASONS = {
    "budget": "over the budget",
    "delta": "δ above the total’s",
    "rows per person": "protects too few rows",
    "policy": "against the policy",
}


@dataclass(frozen=True)
class Published:
    """A model that is there to be read: the estimator, and how to get to its file and its report from the page."""

    model: Any
    file: str
    report: str | None = None


def ledger_page(where: str, datasets: Sequence[DatasetEntries], models: Mapping[str, Published]) -> str:
    """One page of HTML, offline, over all fits of the datasets.

    Parameters
    ----------
    where : str
        The ledger's place, without a password.
    datasets : sequence of DatasetEntries
        The datasets.
    models : mapping of str to Published
        Models that are known, by their fingerprints.
    """
    return _html.page(
        "ledger.html",
        style=_html.source("style.css"),
        script=_html.source("page.js"),
        metas=[pair for one in datasets for pair in (("dataset", one.name), ("head", one.state.head))],
        title=f"Privacy budget of {datasets[0].name}" if len(datasets) == 1 else "Privacy budgets",
        where=where,
        now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        datasets=[_dataset(one, models) for one in datasets],
    )


def _dataset(one: DatasetEntries, models: Mapping[str, Published]) -> dict[str, Any]:
    state = one.state
    rows = state.rows_per_person
    records: list[FitEntry | Refusal] = sorted((*one.fits, *one.refusals), key=lambda record: record.id)
    return {
        "state": state,
        "spent": state.spent_shown,
        "fits": "one fit" if state.n_charges == 1 else f"{state.n_charges} fits",
        "unit": unit(rows),
        "differs": "one row" if rows == 1 else f"the rows of one person, at most {rows}",
        "figures": [
            ("total ε", number(state.epsilon)),
            ("at δ", number(state.delta)),
            ("spent, ε", state.spent_shown),
            ("left, ε", state.left_shown),
            ("fits", f"{state.n_charges}"),
        ],
        "policy": [
            (name.replace("_", " "), ", ".join(value) if isinstance(value, tuple) else value)
            for name, value in state.policy.items()
        ],
        "entries": [
            _charged(record, models.get(record.model)) if isinstance(record, FitEntry) else _refused(record)
            for record in records
        ],
        "rows": [_line(fit) for fit in one.fits],
        **_bar(one),
    }


def _bar(one: DatasetEntries) -> dict[str, Any]:
    """What was spent of the price that the total is worth, by whom."""
    total, spent = one.total, dict[str, float]()
    whole = largest_price(total.epsilon, total.delta, gaussian=False).rho
    for fit in one.fits:
        spent[fit.who or "unknown"] = spent.get(fit.who or "unknown", 0.0) + fit.rho
    whole = max(whole, math.fsum(spent.values()))
    parts = []
    for place, (name, rho) in enumerate(sorted(spent.items(), key=lambda pair: -pair[1])):
        colour = COLOURS[place] if place < len(COLOURS) else "#777777"
        tip = f"{name}: ρ = {number(rho)} ({percent(rho / whole)} of the total’s)"
        parts.append({"width": f"{100 * rho / whole:.2f}", "colour": colour, "tip": tip})
    left = max(0.0, whole - math.fsum(spent.values()))
    rest = {"colour": "var(--rule)", "tip": f"left: ρ = {number(left)} ({percent(left / whole)})"}
    words = (
        f"Of the total’s price ρ = {number(whole)}: {'; '.join(part['tip'] for part in parts) or 'nothing is spent'}."
    )
    return {"parts": parts, "legend": [*parts, rest], "bar_words": words}


def _charged(fit: FitEntry, known: Published | None) -> dict[str, Any]:
    """A fit: what it was for, what its check found, where to read on."""
    outcome = fit.outcome if fit.private else f"{fit.outcome}, not private"
    first = [f"{fit.time:%Y-%m-%d %H:%M}", f"ε = {number(fit.epsilon)}, δ = {number(fit.delta)}", outcome]
    entry = {"facts": _facts([*first, _who(fit), fit.purpose]), "fingerprint": fit.model, "refused": False}
    if known is None:
        titles = {"answered": "A fit whose file is not here", "failed": "A fit that failed"}
        return {**entry, "title": titles.get(fit.outcome, "A fit"), "check": None, "links": []}
    links = [("report", known.report)] if known.report else []
    title = f"{capital(known.model._fit_summary().name)}, {known.model.plan_.n:,} rows"
    check = getattr(known.model, "fit_check_", None)
    return {**entry, "title": title, "check": check, "links": [*links, ("model file", known.file)]}


def _refused(refusal: Refusal) -> dict[str, Any]:
    first = [f"{refusal.time:%Y-%m-%d %H:%M}", f"ε = {number(refusal.epsilon)}, δ = {number(refusal.delta)}"]
    title = f"Refused: {REASONS.get(refusal.reason, refusal.reason)}"
    facts = _facts([*first, _who(refusal), refusal.purpose])
    return {"title": title, "facts": facts, "refused": True, "check": None, "links": [], "fingerprint": ""}


def _facts(parts: Sequence[str]) -> str:
    return " · ".join(filter(None, parts))


def _who(record: FitEntry | Refusal) -> str:
    return f"{record.who or 'unknown'}{f' on {record.host}' if record.host else ''}"


def _line(fit: FitEntry) -> tuple[str, ...]:
    return (
        f"{fit.time:%Y-%m-%d %H:%M}",
        number(fit.epsilon),
        number(fit.delta),
        number(fit.rho),
        fit.outcome,
        fit.who,
        fit.purpose,
        fit.model.removeprefix("sha256:")[:16] or "–",
        fit.version,
    )
