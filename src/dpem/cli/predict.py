"""``dpem predict``: apply a fitted model to new rows; :mod:`dpem.cli.applying` does the work."""

from __future__ import annotations

import click

from dpem.cli.common import Session
from dpem.cli.fit import scaler_option, target_option
from dpem.cli.options import json_option


@click.command(short_help="Apply a fitted model to new rows.")
@click.argument("model", metavar="MODEL.JSON")
@click.argument("data")
@target_option
@scaler_option
@click.option("--out", metavar="FILE", help="A .csv, .parquet or .arrow file; CSV on standard output if not given.")
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@json_option
@click.pass_obj
def predict(
    session: Session, model: str, data: str, target: str | None, scaler: str | None, out: str | None, force: bool
) -> None:
    """Apply a fitted model to the rows of DATA, in their order.

    \b
    symmetric-mixture     component (0 or 1) and the probability of component 1
    symmetric-regression   prediction, the mean response of component 1 (component 0 has
                         the opposite); with --target also the probability of component 1
    missing-regression   prediction, the mean response given the cells that are not empty

    \b
    Examples:
      dpem predict model.json new.csv --out components.csv
      dpem predict model.json new.parquet --target outcome --out predictions.parquet
      dpem predict model.json new.csv --scaler scaler.json

    A model that was fitted with --scaler needs the same one here, and is refused without it.

    The model's guarantee covers the model. What it predicts for the rows that it was fitted to is about those rows,
    and publishing it is not covered.
    """
    if session.json and out is None:
        raise click.UsageError("--json needs --out: both would go to standard output.")
    from dpem.cli import applying

    applying.run(session, model, data, target, scaler, out, force)
