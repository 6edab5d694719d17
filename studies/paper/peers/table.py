"""The table: one row per problem and method, as CSV and as a page."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.paper.peers.data import PROBLEMS, Problem
from studies.paper.peers.own import Outcome

FIELDS = ("problem", "method", "start", "guarantee", "error", "sd", "seconds", "tuning_seconds", "reps", "settings")
#: Errors beyond this are not worth a number on a page; the CSV has them.
HOPELESS = 10.0


def row(problem: Problem, outcome: Outcome) -> dict[str, str]:
    """Mean and standard deviation of the error, median CPU seconds of a fit."""
    errors = np.array([problem.setting.error(beta) for beta in outcome.estimates])
    needs_start = problem.setting.model != "missing-regression"
    return {
        "problem": problem.key,
        "method": outcome.method,
        "start": "given" if outcome.start and needs_start else "none",
        "guarantee": outcome.guarantee,
        "error": f"{errors.mean():.4g}",
        "sd": f"{errors.std():.4g}",
        "seconds": f"{np.median(outcome.seconds):.3g}",
        "tuning_seconds": f"{outcome.tuning_seconds:.3g}",
        "reps": str(len(errors)),
        "settings": ", ".join(f"{name} {_short(value)}" for name, value in outcome.settings.items()),
    }


def from_peer(name: str, answer: dict[str, Any]) -> Outcome:
    """What a peer's script answered for one method."""
    return Outcome(
        name,
        answer["start"],
        answer["guarantee"],
        tuple(np.array(beta) for beta in answer["estimates"]),
        tuple(answer["seconds"]),
        answer["tuning_seconds"],
        answer["settings"],
    )


def page(rows: list[dict[str, str]], versions: dict[str, str], command: str) -> str:
    """The table in Markdown, with the command that made it."""
    lines = [
        "# dpem, its baselines and its peers",
        "",
        f"Written by `{command}`.",
        "",
        "‖β‖ = 1, σ = 0.5, δ = 1/(2n). Error is ‖β̂ − β‖, up to sign for mixtures, mean (sd): **an error above 1 is",
        "worse than answering zero**. Seconds are CPU seconds: the median of a fit, and what choosing the",
        "settings took once per problem. Every method was given σ, ‖β‖, n, d and, where there is one, the sparsity.",
        "Mixtures with a start begin at distance 0.5 from the truth, regressions with missing covariates at 0.",
        "",
        "| method | start | (ε, δ), neighbours | error (sd) | seconds | choosing | tables | settings |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for problem in PROBLEMS:
        own = [r for r in rows if r["problem"] == problem.key]
        if own:
            lines.append(f"| **{problem.title}** | | | | | | | |")
        lines += [f"| {' | '.join(_cells(r))} |" for r in own]
    lines += ["", "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".", ""]
    return "\n".join(lines)


def _cells(row: dict[str, str]) -> list[str]:
    names = ("seconds", "tuning_seconds", "reps", "settings")
    return [row["method"], row["start"], row["guarantee"], _shown(row), *(row[name] for name in names)]


def _shown(row: dict[str, str]) -> str:
    error = float(row["error"])
    return f"{error:.3f} ({float(row['sd']):.3f})" if error <= HOPELESS else f"> {HOPELESS:g}"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
