"""One EM iteration over sparse rows: time per stored entry, as the table grows wider around the same entries.

python -m studies.benchmarks.csr [--rows 200000] [--entries 50] [--repeats 7]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy import sparse

from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.tables import ArraySource
from dpem.tables.sparse import SparseSource


def table(n: int, d: int, entries: int, rng: np.random.Generator) -> sparse.csr_array:
    """n rows of float32 with so many entries each, one in each of as many stretches of columns."""
    columns = (np.arange(entries) + rng.random((n, entries))) * (d / entries)
    data = rng.standard_normal(n * entries, dtype=np.float32)
    pointers = np.arange(0, n * entries + 1, entries, dtype=np.int32)
    return sparse.csr_array((data, columns.astype(np.int32).ravel(), pointers), shape=(n, d))


def best(run: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--entries", type=int, default=50, help="stored entries in each row")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    rng, n, k = np.random.default_rng(0), options.rows, options.entries
    model = SymmetricMixture(0.5)
    print(f"{n:,} rows of {k} float32 entries, best of {options.repeats}: milliseconds, and nanoseconds per entry")
    for d in (k, 1_000, 10_000, 100_000, 1_000_000):
        X = table(n, d, k, rng)
        beta = np.zeros(d)
        beta[:: d // 10][:10] = 0.3
        work = {
            "all columns": (SparseSource(X), model.gradient(beta, Clip(1.0))),
            "on 10 columns": (SparseSource(X), model.on_support(beta, np.flatnonzero(beta), 1.0)),
            "screening": (SparseSource(X), model.screening(1.0, 10)),
        }
        if n * d <= 2 * 10**8:
            work["all columns, dense"] = (ArraySource(X.toarray()), model.gradient(beta, Clip(1.0)))  # type: ignore[assignment]
        for name, (source, query) in work.items():
            seconds = best(lambda: source.total(query), options.repeats)  # noqa: B023
            print(f"{d:>9,} columns  {name:<20} {seconds * 1e3:8.1f} ms  {seconds * 1e9 / X.nnz:7.2f} ns")


if __name__ == "__main__":
    main()
