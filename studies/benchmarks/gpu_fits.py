"""Whole fits on a GPU against the same fits in numpy: how far apart they are, and how long each takes.

python -m studies.benchmarks.gpu_fits [--rows 300000] [--device cuda] [--only linear] [--out FILE.json]

Without noise, so that two fits of the same rows differ by rounding alone: with noise, its scale has room for the
rounding of longer sums on a device, some 10⁻⁵ of it. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dpem.models.gaussian_mixture.estimator import DPGaussianMixture
from dpem.models.latent_class.estimator import DPLatentClass
from dpem.models.linear_regression.estimator import DPLinearRegression
from dpem.models.mixture_regression.estimator import DPMixtureRegression
from dpem.queries.gpu import triton_sums as rowwise

Table = tuple[np.ndarray, np.ndarray | None]


def mixture_rows(n: int, d: int, informative: int, missing: float = 0.0) -> Table:
    """Three groups that differ in the first columns."""
    rng = np.random.default_rng(1)
    centres = np.zeros((3, d))
    centres[:, :informative] = rng.normal(scale=3.0, size=(3, informative))
    X = centres[rng.integers(0, 3, n)] + rng.normal(size=(n, d))
    X[rng.random(X.shape) < missing] = np.nan
    return X, None


def regression_rows(n: int, d: int, informative: int, missing: float = 0.0) -> Table:
    """A response that depends on the first columns."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, d))
    y = X[:, :informative] @ rng.normal(size=informative) + 0.5 * rng.normal(size=n)
    X[rng.random(X.shape) < missing] = np.nan
    return X, y


def lines(n: int, d: int) -> Table:
    """Two lines."""
    rng = np.random.default_rng(3)
    X, slopes = rng.normal(size=(n, d)), np.array([1.0, -1.0])[:, None] * rng.normal(size=d)
    return X, np.sum(slopes[rng.integers(0, 2, n)] * X, axis=1) + 0.3 * rng.normal(size=n)


def answers(n: int, d: int) -> Table:
    """Two classes that answer yes or no."""
    rng = np.random.default_rng(4)
    chance = np.where(rng.integers(0, 2, n)[:, None] == 1, 0.8, 0.25)
    return (rng.random((n, d)) < chance).astype(float), None


def cases(n: int) -> dict[str, tuple[Callable[[], Any], Table]]:
    """An estimator to be made anew, and its rows."""
    given = {"epsilon": math.inf, "delta": 1e-7, "random_state": 0}
    box = {**given, "bounds": (-9.0, 9.0)}
    both = {**box, "y_bounds": (-12.0, 12.0)}
    return {
        "linear regression": (lambda: DPLinearRegression(**both), regression_rows(n, 10, 10)),
        "linear regression, missing": (lambda: DPLinearRegression(**both), regression_rows(n, 10, 10, missing=0.1)),
        "linear regression, 3 of 40 columns": (
            lambda: DPLinearRegression(sparsity=3, **both),
            regression_rows(n, 40, 3),
        ),
        "mixture, diag": (lambda: DPGaussianMixture(3, **box), mixture_rows(n, 6, 6)),
        "mixture, diag, missing": (lambda: DPGaussianMixture(3, **box), mixture_rows(n, 6, 6, missing=0.1)),
        "mixture, full, missing": (lambda: DPGaussianMixture(3, "full", **box), mixture_rows(n, 6, 6, missing=0.05)),
        "mixture, 3 of 40 columns": (lambda: DPGaussianMixture(3, sparsity=3, **box), mixture_rows(n, 40, 3)),
        "latent classes": (
            lambda: DPLatentClass(2, levels={f"x{j}": (0, 1) for j in range(8)}, **given),
            answers(n, 8),
        ),
        "mixture of regressions": (lambda: DPMixtureRegression(2, **both), lines(n, 4)),
    }


def numbers(model: Any) -> np.ndarray:
    """Every number that a fit made public."""
    parts = []
    for name in sorted(vars(model)):
        value = getattr(model, name)
        if name.endswith("_") and isinstance(value, (np.ndarray, float)) and np.asarray(value).dtype.kind in "fi":
            parts.append(np.asarray(value, dtype=float).ravel())
    return np.concatenate(parts)


def fitted(make: Callable[[], Any], X: Any, y: Any) -> tuple[np.ndarray, float]:
    start = time.perf_counter()
    model = make().fit(X) if y is None else make().fit(X, y)
    return numbers(model), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="fits whose name begins so")
    parser.add_argument("--out", help="write all figures to this JSON file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rowwise.LEAST_ROWS = min(rowwise.LEAST_ROWS, options.rows)
    found = []
    for name, (make, (X, y)) in cases(options.rows).items():
        if not name.startswith(options.only):
            continue
        try:
            here, seconds = fitted(make, X, y)
            held = [torch.as_tensor(part, device=options.device) for part in (X, y) if part is not None]
            times = [fitted(make, held[0], held[1] if len(held) > 1 else None) for _ in range(2)]
        except Exception as error:  # the others may still be fitted
            print(f"{name:<40} FAILED: {type(error).__name__}: {error}", flush=True)
            continue
        there = times[1][0]
        gap = float(np.nanmax(np.abs(here - there)) / np.nanmax(np.abs(here))) if len(here) == len(there) else math.inf
        entry = {"fit": name, "rows": options.rows, "difference": gap, "numpy s": seconds}
        found.append({**entry, "first s": times[0][1], "second s": times[1][1]})
        print(
            f"{name:<40} difference {gap:.1e}; numpy {seconds:6.2f} s, device {times[0][1]:6.2f} s the first time, "
            f"{times[1][1]:6.2f} s the second",
            flush=True,
        )
        if options.out:
            with open(options.out, "w") as file:
                json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
