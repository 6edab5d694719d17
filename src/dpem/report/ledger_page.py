"""A dataset's page: the budget, what is spent and by whom, and every fit with its statement, its fit check and links.

*Lemma.* The page costs nothing. *Proof.* It is a function of the ledger, which holds public facts about fits, and of
fitted models, which were released. No row is read. ∎
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dpem._html import number, percent, table, text
from dpem.privacy.accounting import largest_price
from dpem.privacy.ledger_entries import DatasetEntries, FitEntry, Refusal
from dpem.report.facts import rounded_up
from dpem.report.sections import fit_check, statement
from dpem.report.style import STYLE

#: Colours that people who see few colours tell apart; those beyond share grey.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_RULES = """
.budget { display: flex; height: 1.8rem; background: var(--rule); border-radius: .3rem; overflow: hidden;
  margin: .75rem 0; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.budget div { border-right: 2px solid var(--page); }
.keys { display: flex; flex-wrap: wrap; gap: .2rem 1.25rem; font-size: .9rem; }
.swatch { display: inline-block; width: .85rem; height: .85rem; border-radius: .2rem; margin-right: .4rem;
  -webkit-print-color-adjust: exact; print-color-adjust: exact; }
article { border: 1px solid var(--rule); border-radius: .3rem; padding: .9rem 1.1rem; margin: 0 0 1rem;
  break-inside: avoid; }
article h3 { margin: 0 0 .3rem; font-size: 1.05rem; }
article > :last-child { margin-bottom: 0; }
article.refused { border-style: dashed; color: var(--muted); }
"""


@dataclass(frozen=True)
class Published:
    """A model that is there to be read: the estimator, and how to get to its file and its report from the page."""

    model: Any
    file: str
    report: str | None = None


def ledger_page(where: str, accounts: Sequence[DatasetEntries], models: Mapping[str, Published]) -> str:
    """One page of HTML, offline, over all fits of the datasets.

    Parameters
    ----------
    where : str
        The ledger's place, without a password.
    accounts : sequence of DatasetEntries
        The datasets.
    models : mapping of str to Published
        Models that are known, by their fingerprints.

    Returns
    -------
    str
    """
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    title = f"Privacy budget of {text(accounts[0].state.name)}" if len(accounts) == 1 else "Privacy budgets"
    metas = "".join(
        f'<meta name="dpem-dataset" content="{text(one.name)}">\n<meta name="dpem-head" content="{one.state.head}">\n'
        for one in accounts
    )
    parts = "\n".join(_dataset(account, models) for account in accounts) or "<p>The ledger holds no dataset yet.</p>"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
{metas}<title>{title}</title>
<style>
{STYLE}{_RULES}</style>
</head>
<body>
<main>
<header><h1>{title}</h1>
<p class="kind">The book of <code>{text(where)}</code> on {now}.</p></header>
{parts}
<footer><p>Fits that were charged stay charged, whatever became of them. Names of people and machines are as their
systems gave them; purposes are as they were stated. This page loads nothing and runs no script.</p></footer>
</main>
</body>
</html>
"""


def _dataset(account: DatasetEntries, models: Mapping[str, Published]) -> str:
    state = account.state
    unit = "one row" if state.rows_per_person == 1 else f"one person with up to {state.rows_per_person} rows"
    spent = number(rounded_up(state.spent_epsilon), 5)
    entries = sorted(
        [(fit.time, _charged(fit, models.get(fit.model))) for fit in account.fits]
        + [(refusal.time, _refused(refusal)) for refusal in account.refusals]
    )
    said = (
        f"Everything that {_fits(state.n_charges)} released about these rows is, together, <strong>(ε, δ) = ({spent}, "
        f"{number(state.delta)})</strong>-differentially private for {unit}"
        if state.n_charges
        else f"Nothing was spent of it yet; it counts {unit}"
    )
    tiles = [
        ("budget ε", number(state.epsilon)),
        ("budget δ", number(state.delta)),
        ("spent, ε", spent),
        ("left, ε", number(math.floor(1e3 * state.left) / 1e3)),
        ("fits", f"{state.n_charges}"),
    ]
    figures = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    return f"""<section>
<h2>{text(state.name)}</h2>
<p class="verdict">{said}.</p>
<dl class="figures">{figures}</dl>
{_bar(account)}
<p class="note">Opened {state.opened:%Y-%m-%d}. Fits add up by their prices and not by their ε: what one more fit could
ask for is therefore more than the difference.</p>
<pre>{text_lines(state.explained)}</pre>
<p class="note">Head of the {state.n_entries} entries: <code>{state.head}</code>.</p>
{"".join(entry for _, entry in entries)}
{_lines(account)}
</section>"""


def text_lines(lines: Sequence[str]) -> str:
    """Escaped lines."""
    return "\n".join(text(line) for line in lines)


def _fits(count: int) -> str:
    return "one fit" if count == 1 else f"{count} fits"


def _bar(account: DatasetEntries) -> str:
    """What was spent of the price that the total buys, by whom: prices add, ε's do not."""
    state, spent = account.state, dict[str, float]()
    whole = largest_price(state.epsilon, state.delta, gaussian=False).rho
    for fit in account.fits:
        spent[fit.who or "unknown"] = spent.get(fit.who or "unknown", 0.0) + fit.rho
    whole = max(whole, math.fsum(spent.values()))
    largest = sorted(spent.items(), key=lambda pair: -pair[1])
    colours = dict(zip((name for name, _ in largest), COLOURS, strict=False))
    shown = [(name, rho / whole, colours.get(name, "#777")) for name, rho in largest]
    parts = "".join(f'<div style="width:{100 * part:.2f}%;background:{colour}"></div>' for _, part, colour in shown)
    left = max(0.0, 1 - math.fsum(part for _, part, _ in shown))
    keys = "".join(
        f'<span><span class="swatch" style="background:{colour}"></span>{text(name)}: {percent(part)}</span>'
        for name, part, colour in [*shown, ("left", left, "var(--rule)")]
    )
    words = "; ".join(f"{text(name)} spent {percent(part)}" for name, part, _ in shown) or "nothing is spent"
    return (
        f'<div class="budget" role="img" aria-label="Of the whole price, {words}.">{parts}</div>\n'
        f'<p class="keys">{keys}</p>'
    )


def _charged(fit: FitEntry, known: Published | None) -> str:
    """A fit: what it was for, what it promises, what its check found, where to read on."""
    price = f"ε = {number(fit.epsilon)}, δ = {number(fit.delta)}"
    outcome = fit.outcome if fit.private else f"{fit.outcome}, not private"
    by = f"{text(fit.who or 'unknown')}{f' on {text(fit.host)}' if fit.host else ''}"
    if known is None:
        title = {"answered": "A fit whose file is not here", "failed": "A fit that failed"}.get(fit.outcome, "A fit")
        rest = f"<p>Fingerprint <code>{text(fit.model)}</code>.</p>" if fit.model else ""
    else:
        summary = known.model._fit_summary()
        title = f"{text(summary.name[:1].upper() + summary.name[1:])}, {known.model.plan_.n:,} rows"
        links = [f'<a href="{text(known.report)}">its report</a>'] if known.report else []
        links.append(f'<a href="{text(known.file)}">the model</a>')
        rest = (
            f"{fit_check(getattr(known.model, 'fit_check_', None))}\n<p>{statement(known.model.guarantee_)}</p>\n"
            f"<p>Read on: {' · '.join(links)}.</p>"
        )
    facts = " · ".join((f"{fit.time:%Y-%m-%d %H:%M}", price, text(outcome), by, text(fit.purpose)))
    return f'<article>\n<h3>{title}</h3>\n<p class="note">{facts}</p>\n{rest}\n</article>\n'


def _refused(refusal: Refusal) -> str:
    why = "over the budget" if refusal.reason == "budget" else "protects too few rows"
    return (
        f'<article class="refused">\n<h3>Refused: {why}</h3>\n<p>{refusal.time:%Y-%m-%d %H:%M} · ε = '
        f"{number(refusal.epsilon)}, δ = {number(refusal.delta)} · {text(refusal.who or 'unknown')}"
        f"{f' on {text(refusal.host)}' if refusal.host else ''} · {text(refusal.purpose)}</p>\n</article>\n"
    )


def _lines(account: DatasetEntries) -> str:
    """Every entry on one line each."""
    rows = [
        (
            f"{fit.time:%Y-%m-%d %H:%M}",
            number(fit.epsilon),
            number(fit.delta),
            number(fit.rho),
            text(fit.outcome),
            text(fit.who),
            text(fit.purpose),
            f"<code>{text(fit.model.removeprefix('sha256:')[:16])}</code>" if fit.model else "–",
            text(fit.version),
        )
        for fit in account.fits
    ]
    if not rows:
        return ""
    head = ("time, UTC", "ε", "δ", "price ρ", "outcome", "who", "purpose", "model", "dpem")
    made = table("What was charged, oldest first.", head, rows, (1, 2, 3))
    return f"<details>\n<summary>The entries as a table</summary>\n{made}\n</details>"
