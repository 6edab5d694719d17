"""``dpem audit``: replays of a fit on neighbouring tables, and lower bounds on ε from repeated runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dpem import registry
from dpem.cli import options as shared
from dpem.cli.common import Exit, Session, refusals
from dpem.cli.options import Number, option

if TYPE_CHECKING:
    from dpem.audit.bounds import Finding
    from dpem.audit.replay import Verdict

SUBJECTS = (*registry.modules(), "search", "scaler")


@click.command(
    params=[
        click.Argument(["model"], type=click.Choice((*SUBJECTS, "all")), metavar="MODEL"),
        option("--epsilon", "The epsilon that the fit claims.", Number(), default=1.0),
        option("--delta", "The delta that the fit claims.", Number(), default=1e-5),
        option("--runs", "The number of fits, on both tables together.", click.IntRange(min=40), default=400),
        option("--rows", "The number of rows of each table.", click.IntRange(min=2), default=200),
        option("--columns", "The number of columns of each table.", click.IntRange(min=1), default=4),
        shared.json,
    ]
)
@click.pass_obj
def audit(session: Session, /, model: str, runs: int, **claim: Any) -> int:
    """Replay a fit on neighbouring tables, then run it many times on two of them and bound its epsilon from below.

    MODEL is the name of a model, search (DPGridSearch), scaler or all. The tables are simulated worst cases: no data
    are read, and no budget is spent.

    \b
    Examples:
      dpem audit linear-regression --epsilon 4
      dpem audit gaussian-mixture --epsilon 4 --columns 8 --runs 2000
      dpem audit all --epsilon 1 --json

    A replay repeats a recorded fit on neighbouring tables, with the recorded answers: everything public must be equal,
    and each statistic may change by at most its sensitivity. The lower bound on epsilon holds with 99.9 % confidence. A
    bound above the claim disproves the claim; a bound below it does not prove it, and few runs give a small bound. The
    exit status is 1 if a replay finds a fault or a bound is above its claim.
    """
    from tqdm import tqdm

    from dpem._validation import privacy_parameters
    from dpem.audit.bounds import audit as bounds_of
    from dpem.audit.general import replay_model, subject

    replays: dict[str, Verdict] = {}
    findings: list[Finding] = []
    hidden = session.json or not sys.stderr.isatty()
    with refusals(Exit.USAGE):
        privacy_parameters(claim["epsilon"], claim["delta"])
        for name in SUBJECTS if model == "all" else (model,):
            with session.notice(f"replays of {name}"):
                replays[name] = replay_model(name, **claim)
                mechanism = subject(name, **claim)
            with tqdm(total=runs // 2 * 2, unit=" runs", desc=name, disable=hidden, leave=False) as bar:
                findings += bounds_of(mechanism, runs, tick=bar.update)
    consistent = all(finding.consistent for finding in findings) and not any(
        verdict.faults for verdict in replays.values()
    )
    document = {
        "replays": [{"subject": name, **vars(verdict)} for name, verdict in replays.items()],
        "findings": [{**vars(finding), "consistent": finding.consistent} for finding in findings],
        "consistent": consistent,
    }
    lines = []
    for name, verdict in replays.items():
        faults = f"{len(verdict.faults)} FAULTS" if verdict.faults else "no fault"
        used = f"the largest change was {100 * max(verdict.used.values()):.0f} % of a sensitivity"
        lines.append(f"{name}, replayed on {verdict.neighbours} neighbours: {faults}; {used}")
        lines += [f"  {fault}" for fault in verdict.faults[:20]]
    session.result(document, "\n".join([*lines, *map(str, findings)]))
    return int(Exit.DONE if consistent else Exit.FAILED)
