"""``dpem fit``: the options of a fit; :mod:`dpem.cli.fitting` does the work."""

from __future__ import annotations

import csv
from typing import Any

import click

from dpem.cli.common import EXIT_CODES, Session
from dpem.cli.options import (
    assumptions,
    dataset_option,
    delta_option,
    epsilon_option,
    json_option,
    ledger_option,
    model_argument,
    rows_per_person_option,
)


def names(context: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
    """Names with commas between them; one that holds a comma stands in double quotes."""
    if value is None:
        return None
    found = [name.strip() for name in next(csv.reader([value], skipinitialspace=True), [])]
    if not found or not all(found):
        raise click.BadParameter("give names with commas between them, such as age,height.")
    return found


target_option = click.option("--target", metavar="COLUMN", help="The response; both regressions need one.")


scaler_option = click.option("--scaler", metavar="FILE", help="Centre and scale columns by what dpem scale wrote.")


@click.command(epilog=EXIT_CODES, short_help="Fit a model to rows, and pay for it.")
@model_argument
@click.argument("data")
@epsilon_option
@delta_option
@rows_per_person_option
@assumptions
@click.option(
    "--method",
    type=click.Choice(["tight", "paper"]),
    default="tight",
    show_default=True,
    help="Settings chosen by the plan, or the paper's.",
)
@click.option(
    "--start",
    metavar="FILE|equal",
    help="Where EM begins: a .npy, .csv or .json of one number per column, a model.json, or equal.",
)
@scaler_option
@target_option
@click.option("--columns", callback=names, metavar="A,B,...", help="Columns to use; all (but the target) if not given.")
@click.option("--out", default="model.json", show_default=True, metavar="FILE", help="Where the model is written.")
@click.option("--report", metavar="FILE", help="Where a report to read in a browser is written, such as report.html.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@ledger_option
@dataset_option
@click.option("--scheduler", metavar="URL", help="tcp://host:port of a Dask cluster that reads the Parquet DATA.")
@click.option("--anyway", is_flag=True, help="Fit even where the plan expects little more than noise.")
@click.option("--dry-run", is_flag=True, help="Show the plan and the price; spend nothing, write nothing.")
@json_option
@click.pass_obj
def fit(session: Session, /, **given: Any) -> None:
    """Fit MODEL to the rows of DATA under differential privacy, and write model.json.

    MODEL is symmetric-mixture, symmetric-regression or missing-regression. DATA is a CSV, Parquet, Arrow or .npy file
    of numbers, one row per person, or up to --rows-per-person. Columns should be centred and of similar spread (dpem
    scale); missing-regression takes empty cells as missing.

    \b
    Examples:
      dpem fit symmetric-mixture patients.csv --epsilon 1 --delta 1e-5 --sparsity 2 --dry-run
      dpem fit symmetric-mixture patients.csv --epsilon 1 --delta 1e-5 --sparsity 2 \\
          --ledger sqlite:///budget.db --dataset patients --report report.html
      dpem fit missing-regression trial.parquet --target outcome --columns age,dose,weight \\
          --epsilon 0.5 --delta 1e-6 --out trial.json

    Everything that can be refused is refused before anything is spent. Before it spends, the command says what, on
    which ledger, and what is left. Without a ledger nothing remembers the fit, and it is for you to add up.
    Privacy has no default: choose --epsilon and --delta. --sigma, --signal and --start must be public knowledge, not
    taken from these rows.
    """
    from dpem.cli import fitting

    fitting.run(session, fitting.Request(**given))
