"""The long audit: every mechanism and every kind of fit, at several claimed ε, with a table and a page of results.

    python -m studies.audits.campaign [--part all] [--out results] [--share 1] [--quick] [--seed 0] [--workers N]

The noise is private and has no seed, so another run gives slightly other bounds. The seed is that of the simulated rows
of the audit of one run; all other tables are fixed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dpem import __version__, registry
from dpem._threads import thread_limit
from dpem.audit.bounds import Finding, Subject, findings
from dpem.audit.general import subject as model_fit
from dpem.query import FloatArray
from studies.audits.canaries import case
from studies.audits.mechanisms import GaussianSampler, GumbelSampler, Peeling, Selection, Values
from studies.audits.one_run import Canaries, one_run
from studies.csv_files import write_rows
from studies.paper.reproduce.runner import processes

DELTA = 1e-5
#: Smaller than DELTA, since the theorem's term for δ grows with the number of canaries.
ONE_RUN_DELTA = 1e-7
ONE_RUN_SIZE = (100_000, 1_000)
ONE_RUN_EPSILONS = (1.0, 4.0, 8.0, 16.0)
#: The fraction of the runs that is made with ``--quick``.
QUICK = 0.02
#: The tables of the general models and of the search: small, since the bound does not depend on their size.
MODEL_ROWS, MODEL_COLUMNS, MODEL_RUNS = 50, 3, 4000

Planned = list[tuple[Subject, int]]


def mechanisms() -> Planned:
    """Mechanisms alone, with the number of runs that proves half of the claimed ε where the price is exact."""
    return [
        (kind(epsilon, DELTA), runs)
        for kind, plan in (
            (Values, {4.0: 160_000, 2.0: 240_000, 1.0: 500_000}),
            (Selection, {4.0: 400_000, 2.0: 500_000, 1.0: 1_000_000}),
            (Peeling, {4.0: 20_000, 2.0: 20_000}),
            (GaussianSampler, {4.0: 400_000, 2.0: 500_000, 1.0: 1_000_000, 0.5: 1_600_000}),
            (GumbelSampler, {4.0: 400_000, 2.0: 500_000, 1.0: 1_000_000, 0.5: 2_000_000}),
        )
        for epsilon, runs in plan.items()
    ]


def paper() -> Planned:
    """Fits of the scaler and of the paper's models to adversarial tables."""
    planned: Planned = []
    for epsilon in (1.0, 4.0):
        planned.append((case("scaler", epsilon=epsilon, delta=DELTA), 20_000))
        for model in ("symmetric-mixture", "symmetric-regression", "missing-regression"):
            common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA}
            planned.append((case(model, **common), 12_000))
            planned.append((case(model, **common, columns=16, sparsity=4), 8_000))
            if epsilon == 4.0:
                planned.append((case(model, **common, method="published"), 8_000))
                planned.append((case(model, **common, method="published", columns=16, sparsity=4), 4_000))
    return planned


def models(names: Sequence[str] = ()) -> Planned:
    """Fits of the general models and of the search, or of the named ones, at epsilon = 4."""
    size: dict[str, Any] = {"rows": MODEL_ROWS, "columns": MODEL_COLUMNS}
    chosen = names or (*registry.general(), "search")
    return [(model_fit(name, epsilon=4.0, delta=DELTA, **size), MODEL_RUNS) for name in chosen]


PARTS: dict[str, Callable[[], Planned]] = {"mechanisms": mechanisms, "paper": paper, "models": models}


#: Runs of one task, so many that starting a task takes little time beside them.
BATCH = 2000
Task = tuple[Subject, bool, int]


def tasks(subject: Subject, runs: int) -> list[Task]:
    """The runs of an audit, half of them on each table, in batches for different processes."""
    each = runs // 2
    sizes = [BATCH] * (each // BATCH) + ([each % BATCH] if each % BATCH else [])
    return [(subject, neighbour, size) for size in sizes for neighbour in (False, True)]


def perform(task: Task) -> tuple[Task, FloatArray, float]:
    """The task, its scores and their processor seconds."""
    subject, neighbour, runs = task
    begun = time.process_time()
    with thread_limit(1):  # a second thread does not speed up tables this small
        scores = subject.scores(neighbour, runs)
    return task, scores, time.process_time() - begun


def conclude(subject: Subject, done: list[tuple[Task, FloatArray, float]]) -> list[Finding]:
    """One finding for each adversary, from tasks that were performed."""
    parts: dict[bool, list[FloatArray]] = {False: [], True: []}
    for (_, neighbour, _), scores, _ in done:
        parts[neighbour].append(scores)
    return findings(subject, *map(np.concatenate, parts.values()), sum(took for _, _, took in done))


def _perform(numbered: tuple[int, Task]) -> tuple[int, tuple[Task, Any, float]]:
    place, task = numbered
    (_, neighbour, size), scores, seconds = perform(task)
    return place, ((task[0], neighbour, size), scores, seconds)


def audit_all(
    chosen: Sequence[tuple[Subject, int]], *, workers: int = 1, progress: bool = False
) -> Iterator[list[Finding]]:
    """The findings on each subject, in the order in which they are finished."""
    work = [(place, task) for place, (subject, runs) in enumerate(chosen) for task in tasks(subject, runs)]
    missing = {place: sum(1 for at, _ in work if at == place) for place in range(len(chosen))}
    done: dict[int, list[Any]] = {place: [] for place in missing}
    total = sum(runs for _, (_, _, runs) in work)
    with processes(workers) as parallel, tqdm(total=total, unit=" runs", unit_scale=True, disable=not progress) as bar:
        for place, result in parallel(_perform, work):
            bar.update(len(result[1]))
            done[place].append(result)
            missing[place] -= 1
            if missing[place] == 0:
                yield conclude(chosen[place][0], done.pop(place))


def write_page(findings: Sequence[Finding], path: Path, command: str, seconds: float, workers: int) -> None:
    """The table of findings as Markdown."""
    wrong = [finding for finding in findings if not finding.consistent]
    took = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} seconds"
    verdict = f"{len(wrong)} of the claims are VIOLATED." if wrong else "No claim is violated."
    lines = [
        "# Audit: claimed ε and lower bounds",
        "",
        f"dpem {__version__}, `{command}`, {took} on {workers} core(s). The noise has no seed, so another run gives "
        "slightly other bounds; the seed is that of the simulated rows. Each bound holds with the confidence of its "
        f"line ([CSV]({path.stem}.csv)).",
        "",
        f"{len(findings)} lower bounds on ε. {verdict}",
        "",
        "| audited | adversary | δ | claimed ε | at least | share | confidence | runs | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for f in findings:
        who = f.adversary + (f" ({f.note})" if f.note else "")
        lines.append(
            f"| {f.subject} | {who} | {f.delta:g} | {f.epsilon:g} | {f.lower:.3f} | {f.lower / f.epsilon:.0%} "
            f"| {f.confidence * 100:g} % | {f.runs:,} | {f.seconds:.0f} |"
        )
    path.write_text("\n".join(lines) + "\n")


def write(
    findings: Sequence[Finding], out: Path, command: str, seconds: float, workers: int, part: str = "all"
) -> list[Path]:
    """Write ``audit.csv`` and ``audit.md`` into a folder, or of one part ``audit_PART.csv`` and ``audit_PART.md``."""
    out.mkdir(parents=True, exist_ok=True)
    stem = "audit" if part == "all" else f"audit_{part}"
    paths = [out / f"{stem}.{suffix}" for suffix in ("csv", "md")]
    numbers = [{"lower": f"{one.lower:.4f}", "seconds": f"{one.seconds:.1f}"} for one in findings]
    write_rows(paths[0], [asdict(one) | shown for one, shown in zip(findings, numbers, strict=True)])
    write_page(findings, paths[-1], command, seconds, workers)
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.audits.campaign", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--part", choices=("all", *PARTS), default="all", help="what is audited")
    parser.add_argument("--models", nargs="+", default=(), help="these models only")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder to write to")
    parser.add_argument("--share", type=float, default=1.0, help="the fraction of the runs that is made")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the runs: a minute or two")
    parser.add_argument("--seed", type=int, default=0, help="of the simulated rows of the audit of one run")
    parser.add_argument("--workers", type=int, help="processes (one per core if not given)")
    options = parser.parse_args(arguments)
    workers = options.workers or len(os.sched_getaffinity(0))
    begun = time.monotonic()
    command = " ".join(["python -m studies.audits.campaign", *(sys.argv[1:] if arguments is None else arguments)])
    share, smaller = (QUICK, 5) if options.quick else (options.share, 1)
    parts = list(PARTS.values()) if options.part == "all" else [PARTS[options.part]]
    planned = models(options.models) if options.models else [one for part in parts for one in part()]
    chosen = [(subject, max(400, round(runs * share))) for subject, runs in planned]
    findings: list[Finding] = []

    def keep(found: Sequence[Finding]) -> None:
        findings.extend(found)
        for finding in found:
            print(finding, flush=True)
        write(findings, options.out, command, time.monotonic() - begun, workers, options.part)

    if options.part == "all":
        n, d = ONE_RUN_SIZE
        canaries = Canaries(n // smaller, d // smaller, seed=options.seed)
        for epsilon in ONE_RUN_EPSILONS:
            keep(one_run(canaries, epsilon, ONE_RUN_DELTA))
        del canaries
    for found in audit_all(chosen, workers=workers, progress=sys.stderr.isatty()):
        keep(found)
    return 0 if all(finding.consistent for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
