"""A verdict as a page of Markdown. Every number on it comes from the CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from studies.paper.reproduce.curves import SEED
from studies.paper.reproduce.runner import Experiment, Verdict
from studies.paper.reproduce.store import Cell, Results


def mean_sd(cell: Cell) -> str:
    """
    >>> mean_sd(Cell(2, 1.0, 0.5, 1.0))
    '1.00 (0.50)'
    """
    digits = 2 if cell.mean >= 0.995 else 3
    return f"{cell.mean:.{digits}f} ({cell.sd:.{digits}f})"


def span(values: Iterable[float]) -> str:
    """The smallest and the largest, or the one there is.

    >>> span([0.51234, 2.0]), span([0.04, 0.0401])
    ('0.512 to 2.00', '0.040')
    """
    ordered = sorted(values)
    low, high = (f"{v:.2f}" if v >= 0.995 else f"{v:.3f}" for v in (ordered[0], ordered[-1]))
    return low if low == high else f"{low} to {high}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def command(name: str, reps: str) -> str:
    return f"python -m studies.paper.reproduce {name} --reps {reps.split()[-1]} --out results"


def page(experiment: Experiment, verdict: Verdict, results: Results) -> str:
    """The whole page: title, command, sentences, picture, table."""
    reps = results.reps(experiment.settings)
    parts = [
        f"# {experiment.name}: {experiment.title}",
        f"`{command(experiment.name, reps)}`: {reps} repetitions of each setting, seed {SEED}. Means and standard "
        f"deviations are in [{experiment.name}.csv]({experiment.name}.csv).",
        *verdict.sentences,
        f"![{experiment.name}]({experiment.name}.png)",
        table(verdict.header, verdict.rows),
        *verdict.notes,
    ]
    return "\n\n".join(parts) + "\n"
