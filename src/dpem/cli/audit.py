"""``dpem audit``: lower bounds on ε from runs, beside the ε that is claimed."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dpem import registry
from dpem.cli.common import Exit, Refused, Session, refusing
from dpem.cli.options import json_option

MODELS = tuple(name for name in registry.modules() if name not in registry.general())
FITS = (*MODELS, "scaler")
SUBJECTS = (*FITS, "mechanisms", "one-run", "all")
#: Options that only some audits have, and which.
GOES_WITH = {
    "runs": (*FITS, "mechanisms", "all"),
    "rows": (*FITS, "one-run", "all"),
    "columns": (*FITS, "one-run", "all"),
    "sparsity": (*MODELS, "all"),
    "method": (*MODELS, "all"),
    "seed": ("one-run", "all"),
}
#: The size of the fit that is its own audit, and its δ, where none is given.
FULL_SIZE, FULL_DELTA = (100_000, 1_000), 1e-7


@click.command(short_help="Check the claimed epsilon against what runs prove.")
@click.argument("model", type=click.Choice(SUBJECTS), metavar="MODEL")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="The claim to be audited.")
@click.option("--delta", type=float, help="Its delta; 1e-5 if not given, and 1e-7 for one-run.")
@click.option("--runs", type=click.IntRange(min=40), help="Runs of each audit, on both tables; 2000 if not given.")
@click.option("--rows", type=click.IntRange(min=2), help="Rows of the tables; 50 if not given, 100000 for one-run.")
@click.option("--columns", type=click.IntRange(min=2), help="Their columns; 4 if not given, 1000 for one-run.")
@click.option("--sparsity", type=click.IntRange(min=1), help="Coefficients that may be non-zero; all if not given.")
@click.option("--method", type=click.Choice(["improved", "published"]), help="How to fit; improved if not given.")
@click.option("--seed", type=int, help="Of one-run's invented rows; 0 if not given. The noise has no seed.")
@click.option("--out", metavar="FOLDER", help="Write audit.csv, audit.png and audit.md there.")
@json_option
@click.pass_obj
def audit(session: Session, /, model: str, epsilon: float, delta: float | None, out: str | None, **given: Any) -> int:
    """Run a mechanism on two neighbouring tables, thousands of times, and bound its epsilon from below.

    MODEL is a model (symmetric-mixture, symmetric-regression, missing-regression), scaler, mechanisms (the noise of one
    answer), one-run (one large fit with a thousand canaries) or all. The tables are invented and hard: no data are
    read, and no budget is spent.

    \b
    Examples:
      dpem audit symmetric-regression --epsilon 4
      dpem audit symmetric-mixture --epsilon 4 --columns 16 --sparsity 4 --runs 10000
      dpem audit mechanisms --epsilon 2 --runs 100000 --out results
      dpem audit one-run --epsilon 8

    The bound holds with 99.9 % confidence. One above the claim proves the claim wrong, and the exit status is 1. One
    below it is consistent with the claim and proves nothing more: few runs give a small bound.
    """
    _applicable(model, given)
    if out is not None:
        _can_write(out)
    begun = time.monotonic()
    with refusing(Exit.USAGE):
        findings = _findings(session, model, epsilon, delta, given)
    document: dict[str, Any] = {
        "findings": [{**asdict(finding), "consistent": finding.consistent} for finding in findings],
        "consistent": all(finding.consistent for finding in findings),
    }
    lines = [str(finding) for finding in findings]
    if out is not None:
        from dpem.audit.run import write

        asked = {"epsilon": epsilon, "delta": delta, **given, "out": out}
        command = " ".join(["dpem audit", model, *(f"--{k} {v}" for k, v in asked.items() if v is not None)])
        with refusing(Exit.OUTPUT):
            document["written"] = list(map(str, write(findings, Path(out), command, time.monotonic() - begun, 1)))
        lines.append("Wrote " + ", ".join(document["written"]) + ".")
    session.result(document, "\n".join(lines))
    return 0 if document["consistent"] else int(Exit.FAILED)


def _applicable(model: str, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None and model not in GOES_WITH[name]:
            raise click.UsageError(f"--{name} does not go with {model}.")


def _can_write(out: str) -> None:
    try:
        import dpem.audit.pictures  # noqa: F401
    except ImportError as error:
        raise Refused(Exit.FAILED, f"--out needs {error.name}: pip install 'dpem[reproduce]'.") from None
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(Exit.OUTPUT, f"the folder {out!r} cannot be made: {(error.strerror or 'no').lower()}.") from None


def _findings(session: Session, model: str, epsilon: float, delta: float | None, given: dict[str, Any]) -> list[Any]:
    from tqdm import tqdm

    from dpem._validation import privacy_parameters
    from dpem.audit.one_run import Canaries, one_run
    from dpem.audit.subject import audit as audited

    privacy_parameters(epsilon, 1e-5 if delta is None else delta)
    runs = given["runs"] or 2000
    chosen = _subjects(model, epsilon, 1e-5 if delta is None else delta, given)
    findings = []
    hidden = session.json or not sys.stderr.isatty()
    with tqdm(total=len(chosen) * (runs // 2 * 2), unit=" runs", unit_scale=True, disable=hidden, leave=False) as bar:
        for subject in chosen:
            bar.set_description(subject.name)
            findings += audited(subject, runs, tick=bar.update)
    if model in ("one-run", "all"):
        rows, columns = (given["rows"], given["columns"]) if model == "one-run" else (None, None)
        with session.waiting("one large fit"):
            canaries = Canaries(rows or FULL_SIZE[0], columns or FULL_SIZE[1], seed=given["seed"] or 0)
            findings += one_run(canaries, epsilon, FULL_DELTA if delta is None else delta)
    return findings


def _subjects(model: str, epsilon: float, delta: float, given: dict[str, Any]) -> list[Any]:
    """What thousands of runs are made of."""
    from dpem.audit.fits import case
    from dpem.audit.mechanisms import Peeling, Selection, Values

    found: list[Any] = []
    if model in ("mechanisms", "all"):
        found += [kind(epsilon, delta) for kind in (Values, Selection, Peeling)]
    for name in FITS if model == "all" else (model,) if model in FITS else ():
        settings = {key: given[key] for key in ("rows", "columns", "sparsity", "method") if given[key] is not None}
        found.append(case(name, epsilon=epsilon, delta=delta, **settings))
    return found
