"""``dpem demo``: a private fit to public data, to see what one looks like."""

from __future__ import annotations

import click

from dpem.cli.common import Exit, refusing


@click.command(short_help="A private fit to public data.")
@click.option("--epsilon", type=float, default=0.5, show_default=True, help="Privacy loss of one row.")
@click.option("--sparsity", type=int, default=10, show_default=True, help="Coefficients that may be non-zero.")
def demo(epsilon: float, sparsity: int) -> None:
    """Fit the private mixture to the Breast Cancer Wisconsin data and say what came out. Takes about half a minute.

    \b
    Example:
      dpem demo --epsilon 1
    """
    from dpem.experiments.demo import main

    with refusing(Exit.USAGE):
        main(["--epsilon", str(epsilon), "--sparsity", str(sparsity)])
