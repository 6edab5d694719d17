"""``dpem reproduce``: the paper's figures and tables from this code."""

from __future__ import annotations

import sys

import click

from dpem.cli.common import Exit, Refused, Session, refusing
from dpem.cli.options import json_option


@click.command(short_help="The paper's figures and tables again.")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--reps", type=int, metavar="N", help="Repetitions of each setting; 50 if not given.")
@click.option("--quick", is_flag=True, help="3 repetitions: minutes instead of half an hour.")
@click.option("--out", default="results", show_default=True, metavar="FOLDER", help="Where to write.")
@click.option("--workers", type=int, metavar="N", help="Processes; one per core if not given.")
@json_option
@click.pass_obj
def reproduce(
    session: Session, names: tuple[str, ...], reps: int | None, quick: bool, out: str, workers: int | None
) -> None:
    """Compute figures and tables of the paper again: a CSV, a picture and a page with a verdict for each.

    Without a NAME it lists those there are; "all" is every one. A run that was interrupted continues where it was.

    \b
    Examples:
      dpem reproduce
      dpem reproduce fig1 --quick
      dpem reproduce all --out results
    """
    try:
        from dpem.experiments import reproduce as experiments
    except ImportError as error:
        raise Refused(Exit.FAILED, f"this needs {error.name}: pip install 'dpem[reproduce]'.") from None
    known = experiments.EXPERIMENTS
    if not names:
        width = max(map(len, known))
        listed = "\n".join(f"{name:<{width}}  {experiment.title}" for name, experiment in known.items())
        session.result({"experiments": {name: experiment.title for name, experiment in known.items()}}, listed)
        return
    shown = False if session.json else sys.stderr.isatty()
    with refusing(Exit.USAGE):
        experiments.reproduce(names, reps=reps, quick=quick, out=out, workers=workers, progress=shown)
    done = [name for name in known if name in names or "all" in names]
    written = [f"{out.rstrip('/')}/{name}.{suffix}" for name in done for suffix in ("csv", "png", "md")]
    session.result({"written": written}, "Wrote " + ", ".join(written) + ".")
