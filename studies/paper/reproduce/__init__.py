"""Every figure and table of the paper from this code, with a verdict.

    python -m studies.paper.reproduce fig1 --quick --out results

Each experiment writes three files: a CSV that sums up its repetitions, a picture in the paper's layout, and a page that
says what the numbers show. The repetitions themselves are kept in another folder, from which a run continues. Curves:
the paper as printed, the paper corrected, the improved method from the same start and with none, non-private EM.
Noise is seeded, data are simulated (or, for Table 1, public): nothing here is a private fit.
"""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from studies.paper.reproduce import runner
from studies.paper.reproduce.figures import FIG1, FIGS1, MISSING_FIGURE
from studies.paper.reproduce.lowdim import FIG2
from studies.paper.reproduce.noise import NOISE
from studies.paper.reproduce.rates_report import RATES
from studies.paper.reproduce.runner import Experiment
from studies.paper.reproduce.store import Results, Store
from studies.paper.reproduce.table1 import TABLE1
from studies.paper.reproduce.verdict import page

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (FIG1, FIGS1, MISSING_FIGURE, FIG2, TABLE1, RATES, NOISE)}
FULL, QUICK = 50, 3
#: Where repetitions are kept.
RAW = Path("build/reproduce")


def reproduce(
    names: Sequence[str],
    *,
    reps: int | None = None,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    raw: str | os.PathLike[str] = RAW,
    workers: int | None = None,
    progress: bool = True,
) -> None:
    """Run experiments and write NAME.csv, NAME.png and NAME.md for each into the folder ``out``.

    ``names`` are keys of :data:`EXPERIMENTS`, or "all". ``reps`` is 50 if not given, 3 with ``quick``; ``out`` is
    "results" if not given, "build/quick" with ``quick``. Results that rest on more repetitions are never replaced.
    Repetitions that the folder ``raw`` already holds are not computed again, so an interrupted run continues, and a
    full run builds on a quick one. ``workers`` processes share the work (one per core if not given).
    """
    chosen = _chosen(names)
    count = (QUICK if quick else FULL) if reps is None else reps
    processes = runner.default_workers() if workers is None else workers
    for name, value in (("reps", count), ("workers", processes)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}.")
    target = Path("build/quick" if quick else "results") if out is None else Path(out)
    for experiment in chosen:
        _refuse_fewer(target / f"{experiment.name}.csv", count)
    folder, repetitions = _writable(target), _writable(Path(raw))
    stores = {e.name: Store(repetitions / f"{e.name}.csv", e.name, e.protocol) for e in chosen}
    with runner.processes(processes) as parallel:
        for experiment in chosen:
            results = runner.run(experiment, stores[experiment.name], count, parallel, progress)
            (folder / f"{experiment.name}.csv").write_text(results.summary(), encoding="utf-8")
            draw([experiment.name], folder)


def draw(names: Sequence[str], folder: Path = Path("results")) -> None:
    """Write NAME.png and NAME.md again from the summaries NAME.csv in the folder."""
    for experiment in _chosen(names):
        results = Results.read(folder / f"{experiment.name}.csv")
        experiment.draw(results, folder / f"{experiment.name}.png")
        text = page(experiment, experiment.judge(results), results)
        (folder / f"{experiment.name}.md").write_text(text, encoding="utf-8")


def _chosen(names: Sequence[str]) -> list[Experiment]:
    if isinstance(names, str):
        names = [names]
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown or not names:
        known = ", ".join([*EXPERIMENTS, "all"])
        raise ValueError(f"{unknown[0] if unknown else 'nothing'!r} is not a figure or table; known are {known}.")
    return [e for name, e in EXPERIMENTS.items() if name in names or "all" in names]


def _refuse_fewer(summary: Path, count: int) -> None:
    """Refuse to replace a summary that rests on more repetitions than requested."""
    if not summary.exists():
        return
    with summary.open(newline="", encoding="utf-8") as file:
        there = max((int(row["reps"]) for row in csv.DictReader(file)), default=0)
    if there > count:
        raise ValueError(
            f"{summary} rests on {there} repetitions; {count} would replace it: use --out or --reps {there}."
        )


def _writable(folder: Path) -> Path:
    """The folder, made if need be; or a refusal, before anything is computed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise ValueError(f"out={str(folder)!r} cannot be written to: {problem.strerror}.") from None
    return folder
