"""``dpem report``: the page about a fitted model, made from its file. No query is sent and nothing is spent."""

from __future__ import annotations

import click

from dpem.cli import options
from dpem.cli.common import Exit, Session, refusing


@click.command(short_help="Write the report of a fitted model.")
@click.argument("model", metavar="MODEL.JSON")
@click.option("-o", "--out", metavar="FILE", default="report.html", show_default=True, help="The page to write.")
@click.option("--scaler", metavar="SCALER.JSON", help="The scaler that the model was fitted with.")
@click.option("--purpose", metavar="TEXT", help="The purpose of the fit, for the top of the page.")
@options.ledger
@options.dataset
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@options.json
@click.pass_obj
def report(
    session: Session,
    model: str,
    out: str,
    scaler: str | None,
    purpose: str | None,
    url: str | None,
    dataset: str | None,
    force: bool,
) -> None:
    """Write one page about the model in MODEL.JSON: its guarantee, its estimates, its queries and their prices.

    The page works offline and can be printed. It contains only what the file has, which is released already.

    \b
    Examples:
      dpem report model.json
      dpem report model.json -o report.html --purpose "annual survey, table 3"
      dpem report model.json --ledger sqlite:///budget.db --dataset patients
    """
    from dpem._files import read_text
    from dpem._json import parse_json
    from dpem.cli import inputs, outputs
    from dpem.persistence import LARGEST_FILE, load_model
    from dpem.report import About, write_report

    outputs.check([out], [model, *([] if scaler is None else [scaler])], force)
    with refusing(Exit.DATA):
        fitted = load_model(model)
        created = parse_json(read_text(model, LARGEST_FILE))["created"][:10]
    fitted_scaler, state, where = inputs.scaler(scaler), None, None
    if url is not None and dataset is not None:
        from dpem.privacy import Ledger

        with refusing(Exit.USAGE):
            ledger = Ledger(url)
        state, where = ledger.state(dataset), ledger.where
    with refusing(Exit.DATA):
        write_report(fitted, out, fitted_scaler, About(dataset, created, purpose, where, state))
    session.result({"report": out}, f"Wrote {out}.")
