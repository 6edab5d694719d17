"""``dpem scale``: centres and spreads of columns, released privately, in the order of a fit."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dpem.cli.common import EXIT_CODES, Exit, Refused, Session, aligned, refusing, wrapped
from dpem.cli.options import (
    PATH,
    Bounds,
    dataset_option,
    delta_option,
    epsilon_option,
    force_option,
    json_option,
    ledger_option,
    purpose_option,
    rows_per_person_option,
    scheduler_option,
    table_options,
)

#: How many columns are shown; all of them are in the scaler's file.
SHOWN = 20


@click.command(epilog=EXIT_CODES, short_help="Measure centres and spreads of columns privately, for --scaler.")
@click.argument("data", type=PATH)
@epsilon_option
@delta_option
@rows_per_person_option
@click.option("--bounds", required=True, type=Bounds(), help="Public limits of all columns, or a .json by column.")
@click.option("--target", metavar="COLUMN", help="The response, which is left as it is.")
@table_options
@click.option(
    "--out", default="scaler.json", show_default=True, type=PATH, metavar="FILE", help="Where the scaler is written."
)
@force_option
@ledger_option
@dataset_option
@purpose_option
@scheduler_option
@click.option("--dry-run", is_flag=True, help="Show the price; spend nothing, write nothing.")
@json_option
@click.pass_obj
def scale(session: Session, /, **asked: Any) -> None:
    """Measure the centre and spread of each column of DATA under differential privacy, and write scaler.json.

    The paper's models expect columns that are centred and of similar spread; the others do not need this. Give what it
    writes to fit and to predict as --scaler. It is charged like a fit, and the ledger adds up both. --bounds must be
    public knowledge, such as what an instrument can show, not the least and largest entry of these rows.

    \b
    Example:
      dpem scale patients.csv --bounds 0,300 --epsilon 0.2 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
      dpem fit symmetric-mixture patients.csv --scaler scaler.json --epsilon 0.8 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
    """
    run(session, asked)


def run(session: Session, asked: dict[str, Any]) -> None:
    """The whole command."""
    from dpem import DPStandardScaler
    from dpem import _validation as arguments
    from dpem.cli import inputs, outputs, spending
    from dpem.privacy import largest_price

    with refusing(Exit.USAGE):
        epsilon, delta = arguments.privacy_parameters(asked["epsilon"], asked["delta"])
        rows_per_person = arguments.rows_per_person(asked["rows_per_person"])
    if math.isinf(epsilon):
        raise Refused(Exit.USAGE, "--epsilon must be finite: the command releases private numbers only.")
    if not asked["dry_run"]:
        read = [path for path in (asked["data"], asked["bounds"]) if isinstance(path, str)]
        outputs.check([asked["out"]], read, asked["force"])
    ledger = spending.ledger_of(asked["url"], asked["dataset"], session, asked["purpose"])
    price = largest_price(epsilon, delta, gaussian=True)
    quote = None
    if ledger is not None:
        quote = spending.quoted(ledger, epsilon, delta, price, rows_per_person, noting=not asked["dry_run"])
    with inputs.table(session, asked) as source:
        bounds = _bounds(asked["bounds"], inputs.feature_names(source))
        scaler = DPStandardScaler(
            epsilon=epsilon,
            delta=delta,
            bounds=bounds,
            person=asked["person"],
            rows_per_person=rows_per_person,
            budget=ledger,
        )
        with refusing(Exit.USAGE):
            arguments.rows_per_person(rows_per_person, source.n_rows)
            scaler._bounds(source.n_features)
        facts = {
            "data": {"path": asked["data"], "rows": source.n_rows, "columns": source.n_features},
            "price": {"epsilon": epsilon, "delta": delta, "rho": price.rho},
            "ledger": None if quote is None else asdict(quote),
        }
        if asked["dry_run"]:
            session.result({**facts, "dry_run": True}, wrapped(spending.would(epsilon, delta, quote)))
            return
        session.say(f"{asked['data']} has {source.n_rows:,} rows; {source.n_features:,} columns are measured")
        spending.announce(session, epsilon, delta, quote)
        with spending.paying(session):
            scaler.fit(source)
    outputs.save(scaler, asked["out"])
    _show(session, asked, scaler, facts, spending.state(session, ledger))


def _bounds(value: Any, names: list[str] | None) -> Any:
    """Two numbers, or for each column two numbers from a file or a table."""
    from dpem.cli import inputs
    from dpem.tables.bounds import column_bounds

    if isinstance(value, tuple):
        return value
    if isinstance(value, str):
        with refusing(Exit.DATA):
            inputs.file(value)
    where = "the settings" if isinstance(value, dict) else repr(Path(value).name)
    if names is None:
        raise Refused(Exit.DATA, f"bounds by column, from {where}, need columns with names.")
    with refusing(Exit.DATA):
        pairs = column_bounds(value, names, {})
    return [pairs[name][0] for name in names], [pairs[name][1] for name in names]


def _show(session: Session, asked: dict[str, Any], scaler: Any, facts: dict[str, Any], state: Any) -> None:
    from dpem.cli import inputs, spending

    names = inputs.columns_of(scaler) or [str(j) for j in range(len(scaler.mean_))]
    found = list(zip(names, scaler.mean_, scaler.scale_, strict=True))
    out = asked["out"]
    errors = list(zip(scaler.mean_error_, scaler.scale_error_, scaler.only_noise_, strict=True))
    shown = [
        (name, f"{m:.4g} ± {a:.2g}", f"at most {s:.4g} (noise)" if floor else f"{s:.4g} ± {b:.2g}")
        for (name, m, s), (a, b, floor) in zip(found[:SHOWN], errors, strict=False)
    ]
    lines = [aligned(("column", "centre", "spread"), shown)]
    if len(found) > SHOWN:
        lines.append(f"and {len(found) - SHOWN} more in {out}")
    lines += ["", wrapped(str(scaler.guarantee_)), "", f"Wrote {out}: give it to fit and predict as --scaler {out}."]
    if state is not None:
        lines += [spending.left_in_words(state), f"Head of the ledger: {state.head}"]
    document = {
        **facts,
        "fitted": {name: [float(m), float(s)] for name, m, s in found},
        "only_noise": [name for (name, _, _), (_, _, floor) in zip(found, errors, strict=True) if floor],
        "guarantee": str(scaler.guarantee_),
        "left": None if state is None else state.left,
        "out": out,
    }
    session.result(document, "\n".join(lines))
