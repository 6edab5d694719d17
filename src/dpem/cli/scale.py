"""``dpem scale``: centres and spreads of columns, released privately; :mod:`dpem.cli.scaling` does the work."""

from __future__ import annotations

from typing import Any

import click

from dpem.cli.common import EXIT_CODES, Session
from dpem.cli.fit import names
from dpem.cli.options import (
    dataset_option,
    delta_option,
    epsilon_option,
    json_option,
    ledger_option,
    rows_per_person_option,
)


@click.command(epilog=EXIT_CODES, short_help="Measure centres and spreads of columns privately, for --scaler.")
@click.argument("data")
@epsilon_option
@delta_option
@rows_per_person_option
@click.option(
    "--bounds",
    required=True,
    metavar="LOW,HIGH|FILE",
    help='Public limits: of all columns, or a .json file such as {"age": [0, 120], "height": [0, 250]}.',
)
@click.option("--target", metavar="COLUMN", help="The response, which is left as it is.")
@click.option("--columns", callback=names, metavar="A,B,...", help="Columns to use; all (but the target) if not given.")
@click.option("--out", default="scaler.json", show_default=True, metavar="FILE", help="Where the scaler is written.")
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@ledger_option
@dataset_option
@click.option("--scheduler", metavar="URL", help="tcp://host:port of a Dask cluster that reads the Parquet DATA.")
@click.option("--dry-run", is_flag=True, help="Show the price; spend nothing, write nothing.")
@json_option
@click.pass_obj
def scale(session: Session, /, **given: Any) -> None:
    """Measure the centre and spread of each column of DATA under differential privacy, and write scaler.json.

    The models expect columns that are centred and of similar spread. Give what this writes to fit and to predict as
    --scaler. It is charged like a fit, and the ledger adds up both. --bounds must be public knowledge, such as what
    an instrument can show, not the least and largest entry of these rows.

    \b
    Example:
      dpem scale patients.csv --bounds 0,300 --epsilon 0.2 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
      dpem fit symmetric-mixture patients.csv --scaler scaler.json --epsilon 0.8 --delta 1e-6 \\
          --ledger sqlite:///budget.db --dataset patients
    """
    from dpem.cli import scaling

    scaling.run(session, scaling.Request(**given))
