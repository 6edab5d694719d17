"""``dpem audit``: a fit replayed on neighbouring tables, and lower bounds on ε from runs beside the claim."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from dpem import registry
from dpem.cli.common import Exit, Session, refusing
from dpem.cli.options import json_option

GENERAL = (*registry.general(), "search")
PAPER = tuple(name for name in registry.modules() if name not in registry.general())
FITS = (*GENERAL, *PAPER, "scaler")
SUBJECTS = (*FITS, "mechanisms", "all")
#: Options that only some audits have, and which.
GOES_WITH = {
    "runs": SUBJECTS,
    "rows": (*FITS, "all"),
    "columns": (*FITS, "all"),
    "sparsity": (*PAPER, "all"),
    "method": (*PAPER, "all"),
}
#: Runs where none are given: a general model's fit takes a tenth of a second or more.
RUNS, RUNS_GENERAL = 2000, 400


@click.command(short_help="Check the claimed epsilon against what runs prove.")
@click.argument("model", type=click.Choice(SUBJECTS), metavar="MODEL")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="The claim to be audited.")
@click.option("--delta", type=float, default=1e-5, show_default=True, help="Its delta.")
@click.option(
    "--runs",
    type=click.IntRange(min=40),
    help=f"Runs of each audit, on both tables; {RUNS_GENERAL} for a general model if not given, else {RUNS}.",
)
@click.option("--rows", type=click.IntRange(min=2), help="Rows of the tables.")
@click.option("--columns", type=click.IntRange(min=2), help="Their columns; 4 if not given.")
@click.option("--sparsity", type=click.IntRange(min=1), help="Coefficients that may be non-zero; all if not given.")
@click.option("--method", type=click.Choice(["improved", "published"]), help="How the paper's models are fitted.")
@json_option
@click.pass_obj
def audit(session: Session, /, model: str, epsilon: float, delta: float, **given: Any) -> int:
    """Replay a fit on neighbouring tables, then run it many times on two of them and bound its epsilon from below.

    MODEL is the name of a model, search (DPGridSearch), scaler, mechanisms (the noise of one answer) or all. The tables
    are invented and hard: no data are read, and no budget is spent.

    \b
    Examples:
      dpem audit linear-regression --epsilon 4
      dpem audit gaussian-mixture --epsilon 4 --columns 8 --runs 2000
      dpem audit symmetric-mixture --epsilon 4 --columns 16 --sparsity 4 --runs 10000
      dpem audit mechanisms --epsilon 2 --runs 100000 --json

    A replay plays a recorded fit again on every kind of neighbour, with the answers frozen: whatever is public must be
    equal, and each statistic must have moved by no more than its sensitivity. The bound on epsilon holds with 99.9 %
    confidence. One above the claim proves the claim wrong; one below it is consistent with the claim and proves nothing
    more, and few runs give a small bound. The exit status is 1 if a replay finds a fault or a bound is above its claim.
    """
    for name, value in given.items():
        if value is not None and model not in GOES_WITH[name]:
            raise click.UsageError(f"--{name} does not go with {model}.")
    with refusing(Exit.USAGE):
        replays, findings = _results(session, model, epsilon, delta, given)
    document: dict[str, Any] = {
        "replays": [{"subject": name, **asdict(verdict)} for name, verdict in replays.items()],
        "findings": [{**asdict(finding), "consistent": finding.consistent} for finding in findings],
        "consistent": all(f.consistent for f in findings) and not any(v.faults for v in replays.values()),
    }
    lines = [line for name, verdict in replays.items() for line in _shown(name, verdict)]
    session.result(document, "\n".join([*lines, *map(str, findings)]))
    return 0 if document["consistent"] else int(Exit.FAILED)


def _shown(name: str, verdict: Any) -> list[str]:
    faults = f"{len(verdict.faults)} FAULTS" if verdict.faults else "no fault"
    largest = max(verdict.used.values())
    head = f"{name}, replayed on {verdict.neighbours} neighbours: {faults}; moved up to {largest:.0%} of a sensitivity"
    return [head, *(f"  {fault}" for fault in verdict.faults[:20])]


def _results(
    session: Session, model: str, epsilon: float, delta: float, given: dict[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    from tqdm import tqdm

    from dpem._validation import privacy_parameters
    from dpem.audit.general import replay_model
    from dpem.audit.subject import audit as audited

    privacy_parameters(epsilon, delta)
    size = {key: given[key] for key in ("rows", "columns") if given[key] is not None}
    replays, findings = {}, []
    for name in GENERAL if model == "all" else (model,) if model in GENERAL else ():
        with session.waiting(f"replays of {name}"):
            replays[name] = replay_model(name, epsilon=epsilon, delta=delta, **size)
    with session.waiting("tables that show the most"):
        chosen = _subjects(model, epsilon, delta, given, size)
    made = [(subject, given["runs"] or (RUNS_GENERAL if subject.name in GENERAL else RUNS)) for subject in chosen]
    total = sum(runs // 2 * 2 for _, runs in made)
    hidden = session.json or not sys.stderr.isatty()
    with tqdm(total=total, unit=" runs", unit_scale=True, disable=hidden, leave=False) as bar:
        for subject, runs in made:
            bar.set_description(subject.name)
            findings += audited(subject, runs, tick=bar.update)
    return replays, findings


def _subjects(model: str, epsilon: float, delta: float, given: dict[str, Any], size: dict[str, Any]) -> list[Any]:
    """What many runs are made of."""
    from dpem.audit.fits import case
    from dpem.audit.general import subject
    from dpem.audit.mechanisms import Peeling, Selection, Values

    found: list[Any] = []
    if model in ("mechanisms", "all"):
        found += [kind(epsilon, delta) for kind in (Values, Selection, Peeling)]
    for name in FITS if model == "all" else (model,) if model in FITS else ():
        if name in GENERAL:
            found.append(subject(name, epsilon=epsilon, delta=delta, **size))
        else:
            own = {key: given[key] for key in ("sparsity", "method") if given[key] is not None}
            found.append(case(name, epsilon=epsilon, delta=delta, **size, **own))
    return found
