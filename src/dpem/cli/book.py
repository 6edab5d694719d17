"""A ledger as an officer's book: one line for each entry, or one page with a bar of what is spent and by whom."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from dpem.privacy.accounting import largest_price
from dpem.privacy.ledger import DatasetState, Debit, Refusal

#: Colours that people who see few colours tell apart; those beyond share grey.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem }
.bar { display: flex; height: 1.6rem; background: #e8e8e8; border-radius: .3rem; overflow: hidden; margin: .5rem 0 }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; margin: 0 .3rem 0 1rem }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .85rem }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } code { font-size: .8rem }
footer { margin-top: 3rem; color: #555; font-size: .85rem }
@media print { body { margin: 0 } .bar, .key { print-color-adjust: exact } }
"""


class Account(NamedTuple):
    """A dataset and everything that was asked of it."""

    state: DatasetState
    debits: list[Debit]
    refusals: list[Refusal]


def as_csv(accounts: Sequence[Account]) -> str:
    """Every entry on a line of its own, oldest first within a dataset."""
    names = [field.name for field in fields(Debit) if field.name != "id"]
    text = io.StringIO()
    rows = csv.DictWriter(text, ["entry", *names, "private", "reason"], lineterminator="\n", restval="")
    rows.writeheader()
    for account in accounts:
        entries: list[tuple[datetime, dict[str, object]]] = []
        for debit in account.debits:
            told = {name: getattr(debit, name) for name in names}
            entries.append((debit.time, {"entry": "charged", **told, "private": debit.private}))
        for refusal in account.refusals:
            told = {name: getattr(refusal, name) for name in names if hasattr(refusal, name)}
            entries.append((refusal.time, {"entry": "refused", **told, "reason": refusal.reason}))
        for time, entry in sorted(entries, key=lambda pair: pair[0]):
            rows.writerow({name: _safe(value) for name, value in {**entry, "time": time.isoformat()}.items()})
    return text.getvalue()


def _safe(value: object) -> object:
    """Texts that a spreadsheet would run as formulas begin with a quote."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value else value


def as_html(where: str, accounts: Sequence[Account]) -> str:
    """One page, offline: for each dataset what is spent, by whom and for what, and what was refused."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = "\n".join(map(_section, accounts)) or "<p>The ledger holds no dataset yet.</p>"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Privacy budgets</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Privacy budgets</h1>
<p>The book of <code>{escape(where)}</code> on {now}. Fits that were charged stay charged, whatever became of them.</p>
{parts}
<footer>Names of people and machines are as their systems gave them; purposes are as they were stated.</footer>
</body>
</html>
"""


def _section(account: Account) -> str:
    state = account.state
    unit = "one row" if state.rows_per_person == 1 else f"one person with up to {state.rows_per_person} rows"
    entries = sorted(
        [(debit.time, _charged(debit)) for debit in account.debits]
        + [(refusal.time, _refused(refusal)) for refusal in account.refusals]
    )
    head = ("time", "ε", "δ", "outcome", "who", "on", "purpose", "model", "dpem")
    table = "<p>Nothing was asked of it yet.</p>"
    if entries:
        cells = "".join(f"<th>{name}</th>" for name in head)
        table = (
            f'<div class="wide"><table><thead><tr>{cells}</tr></thead>\n'
            f"<tbody>{''.join(row for _, row in entries)}</tbody></table></div>"
        )
    return f"""<h2>{escape(state.name)}</h2>
<p>Total ε = {state.epsilon:g}, δ = {state.delta:g} for {unit}, opened {state.opened:%Y-%m-%d}.
Spent: ε = {state.spent_epsilon:.4g} by {state.n_charges} fit(s). One more fit could ask for ε = {state.left:.4g}.</p>
{_bar(account)}
{table}"""


def _bar(account: Account) -> str:
    """What was spent of the price that the total buys, by whom: prices add, ε's do not."""
    state, spent = account.state, dict[str, float]()
    whole = largest_price(state.epsilon, state.delta, gaussian=False).rho
    for debit in account.debits:
        spent[debit.who or "unknown"] = spent.get(debit.who or "unknown", 0.0) + debit.rho
    whole = max(whole, sum(spent.values()))
    largest = sorted(spent.items(), key=lambda pair: -pair[1])
    colours = dict(zip((name for name, _ in largest), COLOURS, strict=False))
    bars, keys = "", ""
    for name, rho in largest:
        colour, share = colours.get(name, "#777"), 100 * rho / whole
        label = f"{escape(name)}: {share:.0f} % of the price"
        bars += f'<div style="width:{share:.2f}%;background:{colour}" title="{label}"></div>'
        keys += f'<span class="key" style="background:{colour}"></span>{label}'
    left = 100 * (1 - sum(spent.values()) / whole)
    keys += f'<span class="key" style="background:#e8e8e8"></span>left: {left:.0f} %'
    return f'<div class="bar">{bars}</div>\n<p>{keys}</p>'


def _charged(debit: Debit) -> str:
    outcome = debit.outcome if debit.private else f"{debit.outcome}, not private"
    model = debit.model.removeprefix("sha256:")[:16]
    cells = (outcome, debit.who, debit.host, debit.purpose)
    return _row(debit.time, debit.epsilon, debit.delta, cells, model, debit.version)


def _refused(refusal: Refusal) -> str:
    outcome = f"refused: {'over the budget' if refusal.reason == 'budget' else 'protects too few rows'}"
    cells = (outcome, refusal.who, refusal.host, refusal.purpose)
    return _row(refusal.time, refusal.epsilon, refusal.delta, cells, "", "")


def _row(time: datetime, epsilon: float, delta: float, cells: Sequence[str], model: str, version: str) -> str:
    texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return (
        f'<tr><td>{time:%Y-%m-%d %H:%M}</td><td class="n">{epsilon:g}</td><td class="n">{delta:g}</td>{texts}'
        f"<td><code>{escape(model)}</code></td><td>{escape(version)}</td></tr>\n"
    )
