"""The CSV, one line for each problem and method, and what the documentation shows of it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from studies.peers.own import Outcome
from studies.peers.tables import PROBLEMS, Problem

FIELDS = (
    *("problem", "method", "measure", "middle", "worst", "reps", "guarantee", "seconds", "tuning_seconds"),
    *("settings", "scores"),
)
SHOWN = ("problem", "method", "measure", "middle", "worst", "reps", "seconds", "settings")


def row(problem: Problem, method: str, outcome: Outcome) -> dict[str, str]:
    """Median and worst score over the tables; CPU seconds of a fit."""
    scores = np.array(outcome.scores)
    return {
        "problem": problem.key,
        "method": method,
        "measure": problem.measure,
        "middle": f"{np.median(scores):.4g}",
        "worst": f"{scores.min():.4g}",
        "reps": str(len(scores)),
        "guarantee": outcome.guarantee,
        "seconds": f"{np.median(outcome.seconds):.3g}",
        "tuning_seconds": f"{outcome.tuning_seconds:.3g}",
        "settings": ", ".join(f"{name} {value}" for name, value in outcome.settings.items()),
        "scores": " ".join(f"{score:.5g}" for score in scores),
    }


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def merge(new: dict[str, str], path: Path) -> None:
    """Put one line into the CSV, in the place of an older one of the same problem and method."""
    rows = {(old["problem"], old["method"]): old for old in read(path)}
    rows[new["problem"], new["method"]] = new
    order = [problem.key for problem in PROBLEMS]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=lambda r: order.index(r["problem"])))
