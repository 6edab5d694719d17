"""Every figure that has a floor, in one run and one table: what was measured, the floor of the same run, the goal.

    python studies/benchmarks/table.py [--repeats 9] [--only wide narrow dask parquet] [--out results/bench.csv]

A figure and its floor take turns, so that a slow spell of the machine hits both; the table gives the ratio of the best
times and, beside it, of the medians. On a busy machine neither is worth much: the table says how busy it was.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpem._threads import available
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.models.base import Clip
from dpem.questions.gaussians import Gaussians
from dpem.questions.lifted import LiftedMoments
from dpem.questions.schema import Schema
from dpem.sources import ArraySource

Work = Callable[[], object]


class Line(NamedTuple):
    """``ratio`` (of best times) and ``median`` are times over the floor's, or speeds where more is better."""

    figure: str
    floor: str
    seconds: float
    ratio: float
    median: float
    goal: str

    @classmethod
    def of(cls, figure: str, floor: str, own: list[float], under: list[float], goal: str, *, speed: bool) -> Line:
        ratio, median = min(own) / min(under), float(np.median(own) / np.median(under))
        return cls(figure, floor, min(own), *((1 / ratio, 1 / median) if speed else (ratio, median)), goal)


def in_turns(work: dict[str, Work], repeats: int) -> dict[str, list[float]]:
    """Seconds of each piece of work, in turns; a pause lets the threads of the one before come to rest."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeats + 1):
        for name, run in work.items():
            time.sleep(0.3)
            start = time.perf_counter()
            run()
            if turn:  # the first compiles and warms
                taken[name].append(time.perf_counter() - start)
    return taken


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
        asked = {
            "mixture": (rows, mixture.gradient(beta, clip)),
            "regressions": (pairs, regression.gradient(beta, clip)),
            "missing covariates": (pairs, missing.gradient(beta, clip)),
            "screening": (rows, mixture.screening(1.0, 10)),
        }
        work: dict[str, Work] = {"floor": lambda: a @ X}  # noqa: B023
        work |= {name: lambda own=own: own[0].total(own[1]) for name, own in asked.items()}  # type: ignore[misc]
        taken = in_turns(work, repeats)
        goal = "<= 1.0" if (n, d) == (200_000, 1000) else "<= 1.15" if d > 20 else ""
        where = f"{n:,} x {d:,} {dtype}, {'columns' if order == 'F' else 'rows'} together"
        for name in asked:
            yield Line.of(f"wide: {name}, {where}", "a @ X", taken[name], taken["floor"], goal, speed=False)


def narrow(repeats: int) -> Iterator[Line]:
    from sklearn.mixture import GaussianMixture

    n, d, K = 200_000, 10, 5
    rng = np.random.default_rng(0)
    X = np.clip(0.3 * rng.standard_normal((n, d)), -1.0, 1.0)
    names, means, source = [f"x{j}" for j in range(d)], rng.uniform(-0.5, 0.5, (K, d)), ArraySource(X)
    schema = Schema.of(names, dict.fromkeys(names, (-1.0, 1.0)), {})
    for kind in ("diag", "spherical", "full", "tied"):
        square = kind in ("full", "tied")
        covariances = np.tile(0.05 * np.eye(d), (K, 1, 1)) if square else np.full((K, d), 0.05)
        query = LiftedMoments(schema, kind, Gaussians(np.full(K, 1 / K), means, covariances), 4.0, 16.0)
        theirs = GaussianMixture(K, covariance_type=kind, max_iter=1, init_params="random", random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs.fit(X[:1000])

        def iteration(theirs: GaussianMixture = theirs) -> None:
            theirs._m_step(X, theirs._e_step(X)[1])

        taken = in_turns({"floor": iteration, "own": lambda query=query: source.total(query)}, repeats)  # type: ignore[misc]
        figure, floor = f"narrow: {kind}, K = 5, 10 columns, 200,000 rows", "one EM iteration of scikit-learn"
        yield Line.of(figure, floor, taken["own"], taken["floor"], "<= 1.0", speed=False)


def dask(repeats: int) -> Iterator[Line]:
    """Two threads against one in one process, and two workers of one thread against one."""
    from dask_workers import asked, held_by
    from distributed import Client, LocalCluster

    query = SymmetricMixture(0.5).gradient(np.full(500, 0.05), Clip(entry=1.0))
    for figure, workers, threads in (("two threads of one worker", 1, 2), ("two workers of one thread", 2, 1)):
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as lone,
            LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=":0") as pair,
            Client(lone, set_as_default=False) as first,
            Client(pair, set_as_default=False) as second,
        ):
            tables = [held_by(client, 16, 60_000, 500) for client in (first, second)]
            work: dict[str, Work] = {
                "one": lambda: asked(first, tables[0], query),  # noqa: B023
                "two": lambda: asked(second, tables[1], query),  # noqa: B023
            }
            taken = in_turns(work, repeats)
        yield Line.of(f"Dask: {figure}", "one thread", taken["two"], taken["one"], ">= 1.7", speed=True)


def parquet(repeats: int) -> Iterator[Line]:
    """One question over all columns against Arrow's own decoding, and questions over fewer columns against all."""
    from parquet import by_row_group, by_scanner, write

    from dpem.sources import DatasetSource

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
            "question": lambda: source.total(model.gradient(beta, Clip(1.0))),
        }
        work |= {f"{s} columns": lambda query=query: source.total(query) for s, query in on.items()}  # type: ignore[misc]
        taken = in_turns(work, repeats)
    arrow = min(taken["scanner"], taken["row groups"], key=min)
    yield Line.of(
        "Parquet: one question, 1 GB", "Arrow's own decoding", taken["question"], arrow, ">= 0.85", speed=True
    )
    for s in (10, 100, 500):
        figure, goal = f"Parquet: a question that reads {s} of 1,000 columns", f"about {s / 1000:g}"
        yield Line.of(figure, "all columns", taken[f"{s} columns"], taken["1000 columns"], goal, speed=False)


PARTS = {"wide": wide, "narrow": narrow, "dask": dask, "parquet": parquet}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, help="a CSV file for the table")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    print(f"{available()} cores, {busy:.1f} processes were busy before the run; best of {options.repeats} (median)")
    lines = []
    for part in options.only:
        for line in PARTS[part](options.repeats):
            lines.append(line)
            print(
                f"{line.figure:<72} {line.ratio:6.2f} ({line.median:5.2f})  {line.goal:<8} of {line.floor}", flush=True
            )
    if options.out is not None:
        with open(options.out, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*Line._fields, "cores", "busy before"])
            writer.writerows([*line, available(), round(busy, 1)] for line in lines)


if __name__ == "__main__":
    main()
