"""``dpem scale``: release the centre and spread of each column under differential privacy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpem.cli import options
from dpem.cli.common import EXIT_CODES, Exit, Refused, Session, first_lines, refusing, wrapped
from dpem.cli.options import PATH, Bounds

if TYPE_CHECKING:
    from dpem.fitting.scaler import DPStandardScaler
    from dpem.privacy import DatasetState


@click.command(epilog=EXIT_CODES)
@click.argument("data", type=PATH)
@options.epsilon
@options.delta
@options.rows_per_person
@click.option("--bounds", required=True, type=Bounds(), help="The public bounds of all columns, or a file of them.")
@options.target
@options.table
@click.option(
    "--out", default="scaler.json", show_default=True, type=PATH, metavar="FILE", help="The scaler file to write."
)
@options.force
@options.ledger
@options.dataset
@options.purpose
@options.scheduler
@click.option("--dry-run", is_flag=True, help="Show the price; spend nothing, write nothing.")
@options.json
@click.pass_obj
def scale(session: Session, /, **options: Any) -> None:
    """Measure the centre and spread of each column of DATA under differential privacy, and write scaler.json.

    The paper's models expect centred columns of similar spread; the other models do not need this command. Give the
    file to dpem fit and dpem predict as --scaler. The command is charged like a fit. --bounds must be public knowledge,
    such as the range of an instrument, not the smallest and largest entry of these rows.

    \b
    Example:
      dpem scale patients.csv --bounds 0,300 --epsilon 0.2 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
      dpem fit symmetric-mixture patients.csv --scaler scaler.json --epsilon 0.8 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
    """
    from dpem import DPStandardScaler
    from dpem import _validation as arguments
    from dpem.cli import files, spending
    from dpem.privacy import Charge, largest_price

    with refusing(Exit.USAGE):
        epsilon, delta = arguments.privacy_parameters(options["epsilon"], options["delta"])
        rows_per_person = arguments.rows_per_person(options["rows_per_person"])
    if math.isinf(epsilon):
        raise Refused(Exit.USAGE, "--epsilon must be finite: the command releases private numbers only.")
    if not options["dry_run"]:
        read = [path for path in (options["data"], options["bounds"]) if isinstance(path, str)]
        files.check_outputs([options["out"]], read, options["force"])
    ledger = spending.ledger_of(options["url"], options["dataset"], session, options["purpose"])
    price = largest_price(epsilon, delta, gaussian=True)
    quote = None
    if ledger is not None:
        charge = Charge(epsilon, delta, price, rows_per_person=rows_per_person)
        quote = spending.quote_of(ledger, charge, record_refusal=not options["dry_run"])
    with files.table(session, options) as source:
        bounds = _bounds(options["bounds"], files.feature_names(source))
        scaler = DPStandardScaler(
            epsilon=epsilon,
            delta=delta,
            bounds=bounds,
            person=options["person"],
            rows_per_person=rows_per_person,
            budget=ledger,
        )
        with refusing(Exit.USAGE):
            arguments.rows_per_person(rows_per_person, source.n_rows)
            scaler._bounds(source.n_features)
        facts = spending.common_fields(options, price, quote, source)
        if options["dry_run"]:
            session.result({**facts, "dry_run": True}, wrapped(spending.dry_run_price(epsilon, delta, quote)))
            return
        session.say(f"{options['data']} has {source.n_rows:,} rows; {source.n_features:,} columns are measured")
        spending.announce(session, epsilon, delta, quote)
        with spending.paying(session):
            scaler.fit(source)
    files.save(scaler, options["out"])
    _show(session, options, scaler, facts, spending.state(session, ledger))


def _bounds(value: Any, names: list[str] | None) -> Any:
    """Two numbers for all columns, or two vectors, from a file or from the settings."""
    from dpem.cli import files
    from dpem.tables.bounds import column_bounds

    if isinstance(value, tuple):
        return value
    if isinstance(value, str):
        with refusing(Exit.DATA):
            files.file(value)
    where = "the settings" if isinstance(value, dict) else repr(Path(value).name)
    if names is None:
        raise Refused(Exit.DATA, f"the bounds in {where} are by column, but the columns of DATA have no names.")
    with refusing(Exit.DATA):
        pairs = column_bounds(value, names, {})
    return [pairs[name][0] for name in names], [pairs[name][1] for name in names]


def _show(
    session: Session,
    options: dict[str, Any],
    scaler: DPStandardScaler,
    facts: dict[str, Any],
    state: DatasetState | None,
) -> None:
    """Print the released centres and spreads, the guarantee and what is left."""
    from dpem.cli import files, spending

    names, out = files.columns_of(scaler) or [str(j) for j in range(len(scaler.mean_))], options["out"]
    mean, spread, only_noise = scaler.mean_, scaler.scale_, scaler.only_noise_
    mean_error, spread_error = scaler.mean_error_, scaler.scale_error_
    rows = []
    for j, name in enumerate(names):
        shown = f"at most {spread[j]:.4g} (noise)" if only_noise[j] else f"{spread[j]:.4g} ± {spread_error[j]:.2g}"
        rows.append((name, f"{mean[j]:.4g} ± {mean_error[j]:.2g}", shown))
    lines, guarantee = first_lines(("column", "centre", "spread"), rows, out), str(scaler.guarantee_)
    lines += ["", wrapped(guarantee), "", f"Wrote {out}: give it to dpem fit and dpem predict as --scaler {out}."]
    lines += spending.spent_and_left(state)
    document = {
        **facts,
        "fitted": {name: [float(mean[j]), float(spread[j])] for j, name in enumerate(names)},
        "only_noise": [name for name, noise in zip(names, only_noise, strict=True) if noise],
        "guarantee": guarantee,
        "left": None if state is None else state.left,
        "out": out,
    }
    session.result(document, "\n".join(lines))
