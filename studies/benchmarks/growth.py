"""How run time grows with rows, columns, sparsity and threads, relative to a matrix product timed in the same run.

    python -m studies.benchmarks.growth [--repeats 7] [--out results/growth.csv] [--plot results/growth.png]

One query is one EM gradient over all coordinates. The floor is BLAS ``a @ X`` on the same array with the same number of
threads. Memory is the peak that a query adds to the process, beyond the array itself. Also timed are a default fit
(per pass), the same query for every kind of array in memory, and selection among a million columns.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from dpem._threads import thread_count, thread_limit
from dpem.paper import DPSymmetricMixture
from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.privacy import PrivateNoise, mechanisms
from dpem.privacy.accounting import Price
from dpem.tables import ArraySource
from dpem.tables.base import ChunkedSource
from studies.benchmarks.timing import processor_seconds

Row = tuple[str, str, float, float, float | None, str]  # section, case, seconds, ratio to the floor, MB added, floor


def rows_of(n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = np.empty((n, d), dtype=np.float32)
    for first in range(0, n, 10_000):
        X[first : first + 10_000] = rng.standard_normal((min(10_000, n - first), d), dtype=np.float32)
    return X


def gradient(d: int, s: int = 10):
    beta = np.zeros(d)
    beta[np.linspace(0, d - 1, s).astype(int)] = 1 / math.sqrt(s)
    return SymmetricMixture(0.5).gradient(beta, Clip(entry=1.0))


def peak_added(work: Callable[[], object]) -> float | None:
    """MB by which the process's resident memory grew at most while it worked; None where the system cannot say."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        reset.write_text("5")
        before = _status(status, "VmRSS")
        work()
        return (_status(status, "VmHWM") - before) / 1024
    except OSError:
        return None


def _status(path: Path, name: str) -> float:
    return float(next(line for line in path.read_text().splitlines() if line.startswith(name)).split()[1])


@contextmanager
def threads(count: int) -> Iterator[None]:
    with thread_limit(count), threadpool_limits(limits=count, user_api="blas"):
        yield


def against_blas(section: str, case: str, X: np.ndarray, source: ChunkedSource, s: int, repeats: int) -> Row:
    a = np.ones(len(X), dtype=X.dtype)
    query = gradient(X.shape[1], s)
    source.total(query)  # compile, and touch the pages
    best = processor_seconds({"floor": lambda: a @ X, "query": lambda: source.total(query)}, repeats)
    ratio = best["query"] / best["floor"]
    return section, case, best["query"], ratio, peak_added(lambda: source.total(query)), "a @ X"


def growth(repeats: int) -> Iterator[Row]:
    whole = rows_of(400_000, 1000)
    for n in (50_000, 100_000, 200_000, 400_000):
        X = whole[:n]
        yield against_blas("rows", f"{n:,} x 1,000", X, ArraySource(X), 10, repeats)
    X = whole[:200_000]
    for s in (1, 10, 100, 1000):
        yield against_blas("sparsity", f"s = {s}", X, ArraySource(X), s, repeats)
    for count in sorted({1, thread_count()}):
        with threads(count):
            yield against_blas("threads", f"{count} thread(s)", X, ArraySource(X), 10, repeats)
    yield from whole_fit(X, repeats)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        mapped = np.load(Path(folder) / "X.npy", mmap_mode="r")
        yield against_blas("arrays", "mapped from a .npy file", mapped, ArraySource(mapped), 10, repeats)
        del mapped
    del whole, X
    for d in (250, 1000, 4000):
        X = rows_of(100_000_000 // d, d)
        yield against_blas("columns", f"{len(X):,} x {d:,}", X, ArraySource(X), 10, repeats)
    X = rows_of(100_000, 1000)
    yield against_blas("arrays", "float32, rows together", X, ArraySource(X), 10, repeats)
    double = X.astype(np.float64)
    yield against_blas("arrays", "float64, rows together", double, ArraySource(double), 10, repeats)
    columns = np.asfortranarray(X)
    yield against_blas("arrays", "float32, columns together", columns, ArraySource(columns), 10, repeats)
    yield from selection()


def whole_fit(X: np.ndarray, repeats: int) -> Iterator[Row]:
    """A default fit against its number of passes times a @ X: validation is one pass, every query one."""
    n, d = X.shape
    settings = {"epsilon": 0.5, "delta": 1 / (2 * n), "sparsity": 10, "sigma": 0.5}
    a = np.ones(n, dtype=X.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        start = time.perf_counter()
        DPSymmetricMixture(**settings).plan(n, d)
        planning = time.perf_counter() - start
        model = DPSymmetricMixture(**settings).fit(X)  # compile; the plan is kept
        best = processor_seconds(
            {"floor": lambda: a @ X, "fit": lambda: DPSymmetricMixture(**settings).fit(X)}, repeats
        )
    passes = 1 + len(model.releases_)
    ratio = best["fit"] / (passes * best["floor"])
    yield "fit", f"default fit, {passes} passes, plan kept", best["fit"], ratio, None, f"{passes} times a @ X"
    yield "fit", "its plan (reads no data)", planning, planning / best["floor"], None, "a @ X"


def selection() -> Iterator[Row]:
    """Ten of a million coordinates with private noise, with no signal and with ten scores far out."""
    flat = np.random.default_rng(0).standard_normal(1_000_000)
    signal = flat.copy()
    signal[:10] += 50.0
    for case, v in (("flat scores", flat), ("ten scores far out", signal)):
        best = processor_seconds(
            {"top": lambda v=v: mechanisms.noisy_top_k(PrivateNoise(), v, 10, 1.0, Price(5.0), 60.0)}, 5
        )["top"]
        yield "selection", f"10 of 1,000,000, {case}", best, math.nan, None, "one second allowed"


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sections = ("rows", "columns", "sparsity", "threads", "arrays", "fit")
    figure, axes = plt.subplots(2, 3, figsize=(13, 6.5), constrained_layout=True)
    for axis, section in zip(axes.flat, sections, strict=True):
        cases = [row for row in rows if row[0] == section and not row[1].startswith("its plan")]
        names, ratios = [row[1] for row in cases], [row[3] for row in cases]
        bars = axis.barh(range(len(cases)), ratios, color="#0072b2")
        axis.bar_label(bars, fmt="%.2f", padding=3)
        axis.set_yticks(range(len(cases)), names)
        axis.invert_yaxis()
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_xlim(0, 1.3 * max([*ratios, 1.15]))
        axis.set_title(section)
        axis.set_xlabel("time / floor of the same run")
    figure.suptitle("One query over all rows against BLAS a @ X on the same array (1 is the floor)")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    for row in growth(options.repeats):
        rows.append(row)
        section, case, seconds, ratio, added, floor = row
        memory = "" if added is None else f"  +{added:6.1f} MB"
        against = floor if math.isnan(ratio) else f"{ratio:5.2f} x {floor}"
        print(f"{section:<10} {case:<58} {seconds * 1e3:9.1f} ms  {against}{memory}", flush=True)
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["section", "case", "seconds", "ratio", "megabytes_added", "floor"])
            writer.writerows(rows)
    if options.plot:
        draw(rows, options.plot)


if __name__ == "__main__":
    main()
