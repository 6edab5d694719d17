"""All timings that have a floor, in one table: the measured time, the floor of the same run, the goal.

    python -m studies.benchmarks.table [--repeats 9] [--only PART ...] [--out FILE.csv]

A measurement and its floor are timed in turns in random order, so that a slow phase of the machine affects both. The
first ratio is of the best times by the clock, which means little on a busy machine (the table has its load). The second
is of the best processor times of all threads together, which is what the clock shows on one idle core.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpem._threads import thread_count
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.tables import ArraySource
from studies.benchmarks.fits import csv_fits, fits, score_query
from studies.benchmarks.timing import Line, Times, Work, in_turns


def wide(repeats: int) -> Iterator[Line]:
    tables = [(200_000, 1000, "float32", "C"), (1_000_000, 20, "float32", "C"), (25_000, 4000, "float32", "C")]
    tables += [(100_000, 1000, "float64", "C"), (25_000, 4000, "float32", "F"), (50_000, 1000, "float64", "F")]
    for n, d, dtype, order in tables:
        rng = np.random.default_rng(0)
        X = np.asarray(rng.standard_normal((n, d), dtype=np.float32), dtype=dtype, order=order)  # type: ignore[call-overload]
        a, y, beta = rng.standard_normal(n).astype(dtype), rng.standard_normal(n), np.zeros(d)
        beta[np.linspace(0, d - 1, 10).astype(int)] = 0.3
        rows, pairs, clip = ArraySource(X), ArraySource(X, y), Clip(entry=1.0, residual=1.0)
        mixture, regression, missing = SymmetricMixture(0.5), SymmetricRegression(0.5), MissingRegression(0.5)
        figures = {
            "mixture": (rows, mixture.gradient(beta, clip)),
            "regressions": (pairs, regression.gradient(beta, clip)),
            "missing covariates": (pairs, missing.gradient(beta, clip)),
            "screening": (rows, mixture.screening(1.0, 10)),
        }
        work: dict[str, Work] = {"floor": lambda: a @ X}  # noqa: B023
        work |= {name: lambda own=own: own[0].total(own[1]) for name, own in figures.items()}  # type: ignore[misc]
        taken = in_turns(work, repeats)
        goal = "<= 1.0" if (n, d) == (200_000, 1000) else "<= 1.15" if d > 20 else ""
        where = f"{n:,} x {d:,} {dtype}, {'columns' if order == 'F' else 'rows'} together"
        for name in figures:
            yield Line.of(f"wide: {name}, {where}", "a @ X", taken[name], taken["floor"], goal)


def narrow(repeats: int) -> Iterator[Line]:
    from sklearn.mixture import GaussianMixture

    n, d, K = 200_000, 10, 5
    rng = np.random.default_rng(0)
    X = np.clip(0.3 * rng.standard_normal((n, d)), -1.0, 1.0)
    means, source = rng.uniform(-0.5, 0.5, (K, d)), ArraySource(X)
    for kind in ("diag", "spherical", "full", "tied"):
        square = kind in ("full", "tied")
        covariances = np.tile(0.05 * np.eye(d), (K, 1, 1)) if square else np.full((K, d), 0.05)
        query = score_query(kind, Gaussians(np.full(K, 1 / K), means, covariances), bound=1.0)
        theirs = GaussianMixture(K, covariance_type=kind, max_iter=1, init_params="random", random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs.fit(X[:1000])

        def iteration(theirs: GaussianMixture = theirs) -> None:
            theirs._m_step(X, theirs._e_step(X)[1])

        taken = in_turns({"floor": iteration, "own": lambda query=query: source.total(query)}, repeats)  # type: ignore[misc]
        figure, floor = f"narrow: {kind}, K = 5, 10 columns, 200,000 rows", "one EM iteration of scikit-learn"
        yield Line.of(figure, floor, taken["own"], taken["floor"], "<= 1.0")


def dask(repeats: int) -> Iterator[Line]:
    from studies.benchmarks import dask_workers  # here, since clusters change the environment

    yield from dask_workers.dask(repeats)


def parquet(repeats: int) -> Iterator[Line]:
    """One query over all columns against Arrow's own decoding, and queries over fewer columns against all."""
    from dpem.tables import DatasetSource
    from studies.benchmarks.parquet import by_row_group, by_scanner, write

    n, d = 250_000, 1000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write(path, n, d, 65_536, "plain")
        source, beta = DatasetSource(path), np.zeros(d)
        beta[:10] = 0.3
        model = SymmetricMixture(0.5)
        on = {s: model.on_support(beta, np.arange(s), 1.0) for s in (10, 100, 500, 1000)}
        work: dict[str, Work] = {
            "scanner": lambda: by_scanner(path),
            "row groups": lambda: by_row_group(path),
            "query": lambda: source.total(model.gradient(beta, Clip(1.0))),
        }
        work |= {f"{s} columns": lambda query=query: source.total(query) for s, query in on.items()}  # type: ignore[misc]
        taken = in_turns(work, repeats)
    arrow = min(taken["scanner"], taken["row groups"], key=min)
    yield Line.of("Parquet: one query, 1 GB", "Arrow's own decoding", taken["query"], arrow, ">= 0.85", speed=True)
    for s in (10, 100, 500):
        figure, goal = f"Parquet: a query that reads {s} of 1,000 columns", f"about {s / 1000:g}"
        yield Line.of(figure, "all columns", taken[f"{s} columns"], taken["1000 columns"], goal)


def plans(repeats: int) -> Iterator[Line]:
    """Plans of the paper's models, with new sizes each time so that none is cached."""
    from dpem import plan

    for name in ("symmetric-mixture", "symmetric-regression", "missing-regression"):
        seconds: Times = []
        for turn in range(min(repeats, 4) + 1):
            start, busy = time.perf_counter(), time.process_time()
            plan(name, n=20_000 + turn, d=200, epsilon=1.0, delta=1e-6, sparsity=5, sigma=0.5)
            seconds.append((time.perf_counter() - start, time.process_time() - busy))
        clock, own = np.min(seconds[1:], axis=0)
        yield Line(f"plan: {name}, warm", "seconds", clock, own, "<= 1")
        start, busy = time.perf_counter(), time.process_time()
        for epsilon in np.geomspace(0.1, 3.0, 9):
            plan(name, n=20_000, d=200, epsilon=epsilon, delta=1e-6, sparsity=5, sigma=0.5)
        taken = time.perf_counter() - start, time.process_time() - busy
        yield Line(f"plan: {name}, nine values of epsilon", "seconds", *taken, "<= 3")


def starts(repeats: int) -> Iterator[Line]:
    """Commands in processes of their own: seconds, and the largest resident memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        book = ["--ledger", f"sqlite:///{folder}/book.db"]
        _spent(["ledger", "open", *book, "--dataset", "people", "--epsilon", "1", "--delta", "1e-6"], {})
        sizes = ["--n", "4000", "--d", "1000", "--epsilon", "0.5", "--delta", "1e-4", "--sparsity", "10"]
        mixture = ["plan", "symmetric-mixture", *sizes]
        figures = {
            "dpem --help": (["--help"], "<= 0.4", {}),
            "dpem ledger show": (["ledger", "show", *book], "<= 0.4", {}),
            "dpem plan symmetric-mixture": (mixture, "<= 2", {}),
            "dpem plan symmetric-mixture, nothing compiled yet": (mixture, "<= 2", {"NUMBA_CACHE_DIR": folder}),
        }
        for figure, (arguments, goal, more) in figures.items():
            taken = [_spent(arguments, more) for _ in range(1 if more else min(repeats, 4))]
            clock, busy, mebibytes = np.min(taken, axis=0)
            yield Line(f"start: {figure}", "seconds", clock, busy, goal)
            if goal == "<= 0.4":
                yield Line(f"start: {figure}, memory", "MiB", mebibytes, math.nan, "<= 90")


#: Runs the command, then prints the processor seconds and the largest resident memory (kiB) of its own process.
MEASURED = """
import atexit, os, runpy, sys
def measure():
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
    print(sum(os.times()[:2]), peak, file=sys.stderr)
atexit.register(measure)
sys.argv[0] = "dpem"
runpy.run_module("dpem", run_name="__main__")
"""


def _spent(command: list[str], more: dict[str, str]) -> tuple[float, float, float]:
    """Seconds by the clock, processor seconds and largest resident memory in MiB of a command."""
    start = time.perf_counter()
    run = [sys.executable, "-c", MEASURED, *command]
    child = subprocess.run(run, capture_output=True, text=True, check=True, env={**os.environ, **more})
    busy, peak = child.stderr.split()[-2:]
    return time.perf_counter() - start, float(busy), int(peak) / 1024


PARTS = {
    "wide": wide,
    "narrow": narrow,
    "parquet": parquet,
    "fits": fits,
    "csv": csv_fits,
    "plan": plans,
    "start": starts,
    "dask": dask,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, help="a CSV file for the table")
    options = parser.parse_args()
    busy = round(os.getloadavg()[0], 1)
    print(
        f"{thread_count()} threads, {busy:.1f} processes busy before the run; best of {options.repeats} by the clock "
        "(by processor time)"
    )
    with open(options.out or os.devnull, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Line._fields, "threads", "busy before"])
        for part in options.only:
            for line in PARTS[part](options.repeats):
                seconds = (f"{line.clock:.3f}", f"{line.processor:.3f}")
                writer.writerow([*line[:2], *seconds, line.goal, thread_count(), busy])
                file.flush()
                shown = f"{line.figure:<72} {line.clock:6.2f} ({line.processor:5.2f})"
                print(f"{shown}  {line.goal:<8} of {line.floor}", flush=True)


if __name__ == "__main__":
    main()
