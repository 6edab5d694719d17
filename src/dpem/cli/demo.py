"""``dpem demo``: a regression and latent classes on a table of real people."""

from __future__ import annotations

import click

from dpem.cli import options
from dpem.cli.common import Exit, Refused, Session


@click.command(short_help="A private regression and latent classes on a table of real people.")
@click.option("--out", metavar="FOLDER", help="Where the two reports go; a temporary folder if not given.")
@options.json
@click.pass_obj
def demo(session: Session, out: str | None) -> None:
    """Plan, fit and report on the RAND Health Insurance Experiment, each fit beside the same one without privacy.

    Takes less than a minute and needs no input. It needs statsmodels, which the table comes with.

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
