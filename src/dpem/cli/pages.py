"""``dpem report``, ``planner`` and ``demo``: the commands that read no table."""

from __future__ import annotations

import click

from dpem.cli import options as shared
from dpem.cli.common import Exit, Refused, Session, refusals
from dpem.cli.options import PATH, option


@click.command(
    params=[
        click.Argument(["model"], metavar="MODEL.JSON"),
        click.Option(
            ["-o", "--out"], metavar="FILE", default="report.html", show_default=True, help="The page to write."
        ),
        option("--scaler", "The scaler that the model was fitted with.", PATH),
        option("--purpose", "The purpose of the fit, for the top of the page.", metavar="TEXT"),
        *(shared.ledger, shared.dataset, shared.force, shared.json),
    ]
)
@click.pass_obj
def report(
    session: Session, model: str, out: str, scaler: str | None, purpose: str | None,
    url: str | None, dataset: str | None, force: bool,
) -> None:  # fmt: skip
    """Write one page about the model in MODEL.JSON: its guarantee, its estimates, its queries and their prices.

    The page works offline and can be printed. It shows only what the file contains, which has been released.

    \b
    Examples:
      dpem report model.json
      dpem report model.json -o report.html --purpose "annual survey, table 3"
      dpem report model.json --ledger sqlite:///budget.db --dataset patients
    """
    from dpem._files import read_text
    from dpem._json import parse_json
    from dpem.cli import files
    from dpem.cli.ledger import read
    from dpem.persistence import LARGEST_FILE
    from dpem.report import About, write_report

    files.check_outputs([out], [model, *([] if scaler is None else [scaler])], force)
    fitted, fitted_scaler = files.model(model), files.scaler(scaler)
    day = parse_json(read_text(model, LARGEST_FILE))["created"][:10]
    where, states = (None, [None]) if url is None or dataset is None else read(url, dataset)
    with refusals(Exit.DATA):
        write_report(fitted, out, fitted_scaler, About(dataset, day, purpose, where, states[0]))
    session.result({"report": out}, f"Wrote {out}.")


@click.command(params=[option("--html", "Write the page to this file; open nothing.", PATH), shared.force, shared.json])
@click.pass_obj
def planner(session: Session, html: str | None, force: bool) -> None:
    """Open a page that predicts the error of a fit, with sliders for rows, columns and ε.

    No data are read, nothing is sent and nothing is spent. The page works offline.

    \b
    Examples:
      dpem planner
      dpem planner --html planner.html
    """
    import os
    import tempfile
    import webbrowser

    from dpem.cli import files
    from dpem.planner import write_page

    if html is not None:
        files.check_outputs([html], [], force)
    path = html or os.path.join(tempfile.mkdtemp(prefix="dpem-"), "planner.html")
    with refusals(Exit.OUTPUT):
        write_page(path)
    is_open = html is None and webbrowser.open("file://" + os.path.realpath(path))
    session.result({"page": path, "opened": is_open}, f"Opened {path}." if is_open else f"Wrote {path}.")


@click.command(
    params=[
        option("--out", "A folder for the two reports; a temporary one if not given.", metavar="FOLDER"),
        shared.json,
    ]
)
@click.pass_obj
def demo(session: Session, out: str | None) -> None:
    """Fit a regression and latent classes to the RAND Health Insurance Experiment, each beside a fit without privacy.

    The demo takes less than a minute and reads no file of yours. It needs statsmodels, which contains the table.

    \b
    Examples:
      dpem demo
      dpem demo --out reports --json
    """
    from dpem.demo import main

    try:
        result = main(out, (lambda text: None) if session.json else click.echo)
    except RuntimeError as error:
        raise Refused(Exit.FAILED, str(error)) from None
    if session.json:
        session.result(result, "")
