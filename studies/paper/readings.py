"""What the paper leaves open, read in several ways: the start and the constants of Figure 1, the preparation of its
breast cancer table without privacy.

    python -m studies.paper.readings starts [--reps 20] [--out results/readings_starts.csv]
    python -m studies.paper.readings reference [--reps 50] [--out results/readings_reference.csv]

The paper gives no start for its Figure 1, and constants neither of N₀ nor of T; its proof of Lemma 4.1 takes T =
c·σ√log n. Its table says nothing of σ, T, or the order of balancing and normalising.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dpem.paper.algorithms import algorithm_3, mixture_gradient
from dpem.paper.reference import hard_threshold
from dpem.query import FloatArray
from studies.csv_files import write_rows
from studies.paper.reproduce.curves import ETA, prescribed
from studies.paper.reproduce.figures import FIG1
from studies.paper.settings import Setting

Row = dict[str, object]


def starts(reps: int) -> Iterator[Row]:
    """Figure 1 with the corrected weight and the stated noise: mean error of β⁰, β¹, … for starts and constants."""
    for setting in FIG1.settings:
        n_iter, T = prescribed(setting.n)
        ways = [(1.0, 3, 1.0), (1.0, 3, setting.sigma * T), (1.0, n_iter, T), (1 / 8, 3, 1.0), (1 / 8, n_iter, T)]
        errors: list[list[list[float]]] = [[] for _ in ways]
        for rep in range(reps):
            rng = np.random.default_rng([2025, rep])
            Y, _ = setting.draw(rng)
            for found, (distance, batches, level) in zip(errors, ways, strict=True):
                start = setting.start_near(np.random.default_rng([7, rep]), distance)
                settings = {
                    "epsilon": setting.epsilon,
                    "delta": setting.delta,
                    "s": setting.s,
                    "sigma": setting.sigma,
                    "step": ETA,
                }
                path = algorithm_3(Y, start, n_iter=batches, T=level, as_printed=False, random_state=rep, **settings)
                found.append([setting.error(beta) for beta in path])
        for (distance, batches, level), found in zip(ways, errors, strict=True):
            yield {**_sizes(setting), "start": distance, "N0": batches, "T": round(level, 3), "reps": reps,
                   "errors": " ".join(f"{e:.3f}" for e in np.mean(found, axis=0))}  # fmt: skip


def _sizes(setting: Setting) -> Row:
    return {"n": setting.n, "s": setting.s, "epsilon": setting.epsilon}


def prepared(seed: int, balance_first: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Training rows, test rows and their labels; the columns are normalised after balancing, or before."""
    data = load_breast_cancer()
    rng = np.random.default_rng(seed)
    benign, malignant = np.flatnonzero(data.target == 1), np.flatnonzero(data.target == 0)
    kept = np.concatenate([malignant, rng.choice(benign, size=len(malignant), replace=False)])
    rows = data.data[kept] if balance_first else data.data
    X = (data.data[kept] - rows.mean(axis=0)) / rows.std(axis=0)
    train, test, _, labels = train_test_split(X - X.mean(axis=0), data.target[kept], test_size=0.3, random_state=seed)
    return train, test, labels


def reference(reps: int) -> Iterator[Row]:
    """Misclassification of non-private truncated EM (Wang et al. 2015): 50 steps of 0.5 from the unit vector."""
    grid = itertools.product((False, True), (0.25, 0.5, 0.75, 1.0, 1.5), (False, True), (5, 10, 15))
    splits = {first: [prepared(seed, first) for seed in range(reps)] for first in (False, True)}
    for balance_first, sigma, truncated, s in grid:
        rates = []
        for train, test, labels in splits[balance_first]:
            T = math.sqrt(math.log(len(train))) if truncated else math.inf
            beta = np.full(30, 1 / math.sqrt(30))
            for _ in range(50):
                gradient = mixture_gradient(beta, train, None, T, sigma, as_printed=False)
                beta = hard_threshold(beta + ETA * gradient, s)
            wrong = float(np.mean((test @ beta > 0) != labels))
            rates.append(min(wrong, 1 - wrong))
        yield {"normalised": "after balancing" if balance_first else "before balancing", "sigma": sigma,
               "T": "sqrt log n" if truncated else "none", "s": s, "reps": reps, "mean": f"{np.mean(rates):.4f}",
               "sd": f"{np.std(rates):.4f}"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("starts", "reference"))
    parser.add_argument("--reps", type=int)
    parser.add_argument("--out", type=Path, help="also write the table as CSV")
    options = parser.parse_args()
    rows = []
    for row in starts(options.reps or 20) if options.what == "starts" else reference(options.reps or 50):
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        rows.append(row)
    write_rows(options.out, rows)


if __name__ == "__main__":
    main()
