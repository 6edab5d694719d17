"""Private centres and spreads from a shell: refuse, quote, say, spend, write, as :mod:`dpem.cli.fitting` does."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from dpem import DPStandardScaler
from dpem import _validation as arguments
from dpem._json import parse_json
from dpem.cli import inputs, outputs, spending
from dpem.cli.common import Exit, Refused, Session, aligned, refusing, wrapped
from dpem.privacy import largest_price
from dpem.privacy.budget import checked_rows_per_person

#: How many columns are shown; all of them are in the scaler's file.
SHOWN = 20


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    data: str
    epsilon: float
    delta: float
    rows_per_person: int
    bounds: str
    target: str | None
    columns: list[str] | None
    out: str
    force: bool
    url: str | None
    dataset: str | None
    scheduler: str | None
    dry_run: bool


def run(session: Session, asked: Request) -> None:
    """The whole command."""
    with refusing(Exit.USAGE):
        epsilon, delta = arguments.privacy_parameters(asked.epsilon, asked.delta)
        rows_per_person = checked_rows_per_person("rows_per_person", asked.rows_per_person)
    if math.isinf(epsilon):
        raise Refused(Exit.USAGE, "--epsilon must be finite: the command releases private numbers only.")
    if not asked.dry_run:
        outputs.check([asked.out], [asked.data, asked.bounds], asked.force)
    ledger = spending.ledger_of(asked.url, asked.dataset, session)
    price = largest_price(epsilon, delta, gaussian=True)
    quote = None if ledger is None else spending.quoted(ledger, epsilon, delta, price, rows_per_person)
    with inputs.table(session, asked.data, asked.columns, asked.target, asked.scheduler) as source:
        names = inputs.feature_names(source)
        bounds = _bounds(asked.bounds, names)
        scaler = DPStandardScaler(
            epsilon=epsilon, delta=delta, bounds=bounds, rows_per_person=rows_per_person, budget=ledger
        )
        with refusing(Exit.USAGE):
            arguments.rows_per_person(rows_per_person, source.n_rows)
            scaler._bounds(source.n_features)
        facts = {
            "data": {"path": asked.data, "rows": source.n_rows, "columns": source.n_features},
            "price": {"epsilon": epsilon, "delta": delta, "rho": price.rho},
            "ledger": None if quote is None else asdict(quote),
        }
        if asked.dry_run:
            session.result({**facts, "dry_run": True}, wrapped(spending.would(epsilon, delta, quote)))
            return
        session.say(f"{asked.data} has {source.n_rows:,} rows; {source.n_features:,} columns are measured")
        spending.announce(session, epsilon, delta, quote)
        with spending.paying(session):
            scaler.fit(source)
    outputs.save(scaler, asked.out)
    left = spending.left(session, ledger, delta)
    _show(session, asked, scaler, facts, left)


def _bounds(value: str, names: list[str] | None) -> Any:
    """Two numbers, or for each column two numbers from a file."""
    if not value.endswith(".json"):
        try:
            low, high = map(float, value.split(","))
        except ValueError:
            raise click.UsageError(
                f"--bounds must be two numbers such as 0,100 or a .json file, got {value!r}."
            ) from None
        return low, high
    with refusing(Exit.DATA):
        found = parse_json(Path(inputs.file(value)).read_text(encoding="utf-8"))
    if not isinstance(found, dict) or names is None:
        raise Refused(Exit.DATA, f"{value!r} must hold an object of column names, each with [low, high].")
    lacking = [name for name in names if name not in found]
    if lacking:
        raise Refused(Exit.DATA, f"{value!r} lacks column {lacking[0]!r}{inputs.nearest(lacking[0], list(found))}.")
    pairs = [found[name] for name in names]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise Refused(Exit.DATA, f"{value!r} must give [low, high] for each column.")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _show(
    session: Session, asked: Request, scaler: DPStandardScaler, facts: dict[str, Any], left: float | None
) -> None:
    names = inputs.columns_of(scaler) or [str(j) for j in range(len(scaler.mean_))]
    rows = [(name, f"{m:.4g}", f"{s:.4g}") for name, m, s in zip(names, scaler.mean_, scaler.scale_, strict=True)]
    lines = [aligned(("column", "centre", "spread"), rows[:SHOWN])]
    if len(rows) > SHOWN:
        lines.append(f"and {len(rows) - SHOWN} more in {asked.out}")
    lines += [
        "",
        wrapped(str(scaler.guarantee_)),
        "",
        f"Wrote {asked.out}: give it to fit and predict as --scaler {asked.out}.",
    ]
    if left is not None:
        lines.append(f"At least epsilon = {left:.4g} is left of {asked.dataset} at this delta.")
    document = {
        **facts,
        "fitted": {name: [float(m), float(s)] for name, m, s in zip(names, scaler.mean_, scaler.scale_, strict=True)},
        "guarantee": str(scaler.guarantee_),
        "left": left,
        "out": asked.out,
    }
    session.result(document, "\n".join(lines))
