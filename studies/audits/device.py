"""Record and replay where the rows are on a GPU: `python -m studies.audits.device` (needs PyTorch with CUDA;
fused kernels need Triton).

The noise is seeded here: it is drawn on the host and not what is audited. What is: that the kernels on the device keep
every contribution within its bound, whatever a row holds, and that nothing else differs between neighbours.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch

from dpem.audit.neighbours import Table
from dpem.audit.replay import in_memory, replay
from dpem.engines import engine_of
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression

N, D = 3000, 40


def tables(dtype: Any) -> dict[str, Table]:
    rng = np.random.default_rng(5)
    beta = np.zeros(D)
    beta[:3] = 1.0, -0.8, 0.4
    X = rng.normal(size=(N, D))
    y = X @ beta + 0.5 * rng.normal(size=N)
    sign = rng.choice([-1, 1], N)
    return {
        "mixture": Table("as drawn", (X + np.outer(sign, beta)).astype(dtype), None),
        "regressions": Table("as drawn", X.astype(dtype), sign * y),
        "missing": Table("as drawn", np.where(rng.random(X.shape) < 0.2, np.nan, X).astype(dtype), y),
    }


def main() -> int:
    warnings.simplefilter("ignore")
    start = np.zeros(D)
    start[:3] = 1.0, -0.8, 0.4
    common: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "sparsity": 3, "random_state": 0}
    models = {
        "mixture": DPSymmetricMixture(**common, sigma=1.0),
        "regressions": DPSymmetricRegression(**common, sigma=0.5, start=start, n_iter=3),
        "missing": DPMissingRegression(**common, sigma=0.5),
    }
    wrong = 0
    for dtype in (np.float32, np.float64):
        for name, table in tables(dtype).items():

            def hold(table: Table) -> tuple[Any, ...]:
                return tuple(torch.asarray(part, device="cuda") for part in in_memory(table))

            verdict = replay(models[name], table, hold=hold, missing=name == "missing")
            engine = type(engine_of(hold(table)[0])).__name__
            used = max(verdict.used.values(), default=0.0)
            print(
                f"{name}, {dtype.__name__}, {engine}: {verdict.neighbours} neighbours, {len(verdict.faults)} faults,",
                end=" ",
            )
            print(f"largest part of a sensitivity seen {used:.4f}")
            print(*verdict.faults[:5], sep="\n", end="\n" if verdict.faults else "")
            wrong += len(verdict.faults) + (verdict.neighbours == 0)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
