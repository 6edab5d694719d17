"""The page of a ledger: the budget of each dataset, how its fits add up, who spent it, and links to every fit.

*Lemma.* The page costs nothing. *Proof.* It is a function of the ledger, which holds public facts about fits, and of
fitted models, which were released. No row is read. ∎
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dpem import _html
from dpem._html import number
from dpem.fitting.results import FittedModel
from dpem.privacy.accounting import largest_price
from dpem.privacy.budget import unit
from dpem.privacy.ledger_entries import DatasetState

#: The colours of users, which colour-blind readers can distinguish; further users share grey.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
#: The reason of a refusal, for a heading.
REASONS = {
    "budget": "over the budget",
    "delta": "δ above the total’s",
    "rows per person": "protects too few rows",
    "policy": "against the policy",
}


@dataclass(frozen=True)
class PublishedModel:
    """A fitted model, and the links from the page to its file and its report."""

    model: FittedModel
    file: str
    report: str | None = None


def ledger_page(where: str, datasets: Sequence[DatasetState], models: Mapping[str, PublishedModel]) -> str:
    """One HTML page about all fits of the datasets, which works offline.

    Parameters
    ----------
    where : str
        The ledger's URL, without a password.
    datasets : sequence of DatasetState
        The datasets.
    models : mapping of str to PublishedModel
        The published models, by their fingerprints.
    """
    return _html.page(
        "ledger.html",
        style=_html.source("style.css"),
        script=_html.source("page.js"),
        metas=[pair for one in datasets for pair in (("dataset", one.name), ("head", one.head))],
        title=f"Privacy budget of {datasets[0].name}" if len(datasets) == 1 else "Privacy budgets",
        where=where,
        now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        datasets=[(one, _spending(one)) for one in datasets],
        models=models,
        refusals=REASONS,
        unit=unit,
    )


def _spending(state: DatasetState) -> dict[str, object]:
    """The price of the dataset's total, the part that each user spent, largest first, and a table row for each fit."""
    spent: dict[str, float] = {}
    for fit in state.fits:
        spent[fit.who or "unknown"] = spent.get(fit.who or "unknown", 0.0) + fit.rho
    used = math.fsum(spent.values())
    total_rho = max(largest_price(state.total.epsilon, state.total.delta, gaussian=False).rho, used)
    colours = (*COLOURS, *["#777777"] * len(spent))
    users = sorted(spent.items(), key=lambda pair: -pair[1])
    parts = [(name, rho, colour) for (name, rho), colour in zip(users, colours, strict=False)]
    rows = [
        (
            f"{fit.time:%Y-%m-%d %H:%M}",
            *(number(fit.epsilon), number(fit.delta), number(fit.rho)),
            *(fit.outcome, fit.who, fit.purpose),
            fit.model.removeprefix("sha256:")[:16] or "–",
            fit.version,
        )
        for fit in state.fits
    ]
    return {"total_rho": total_rho, "parts": parts, "left": max(0.0, total_rho - used), "rows": rows}
