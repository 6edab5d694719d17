"""One EM iteration against BLAS ``a @ X`` on the same array, as a ratio of processor seconds measured in one run.

With one thread (``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1``) that is the speed of one core, on a busy machine too.

python -m studies.benchmarks.iteration [--rows 200000] [--columns 1000] [--repeats 15]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.tables import ArraySource


def alternating(work: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least processor time of each piece of work, in turns so that a slow spell of the machine hits all of them.

    A pause before each: the threads of a BLAS call keep spinning for a while after it, on the cores the next needs.
    """
    best = dict.fromkeys(work, float("inf"))
    for _ in range(repeats):
        for name, run in work.items():
            time.sleep(0.15)
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    n, d, s = options.rows, options.columns, 10
    X = rng.standard_normal((n, d), dtype=np.float32)
    a = rng.standard_normal(n, dtype=np.float32)
    y = rng.standard_normal(n)
    beta = np.zeros(d)
    beta[:: d // s] = 0.3
    support = np.flatnonzero(beta)

    mixture, regression, missing = SymmetricMixture(0.5), SymmetricRegression(0.5), MissingRegression(0.5)
    rows, pairs = ArraySource(X), ArraySource(X, y)
    clip = Clip(entry=1.0, residual=1.0)
    work: dict[str, Callable[[], object]] = {
        "a @ X (BLAS)": lambda: a @ X,
        "gaussian mixture, all coordinates": lambda: rows.total(mixture.gradient(beta, clip)),
        "mixture of regressions, all coordinates": lambda: pairs.total(regression.gradient(beta, clip)),
        "missing covariates, all coordinates": lambda: pairs.total(missing.gradient(beta, clip)),
        "gaussian mixture, on 10 coordinates": lambda: rows.total(mixture.on_support(beta, support, 1.0)),
        "gaussian mixture, screening": lambda: rows.total(mixture.screening(1.0, s)),
    }
    for run in work.values():
        run()  # compile
    best = alternating(work, options.repeats)
    floor = best["a @ X (BLAS)"]
    print(f"{n:,} x {d:,} float32, best of {options.repeats}")
    for name, seconds in best.items():
        print(f"{name:<42} {seconds * 1e3:8.1f} ms  {X.nbytes / seconds / 1e9:6.1f} GB/s  ratio {seconds / floor:5.2f}")


if __name__ == "__main__":
    main()
