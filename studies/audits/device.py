"""Record and replay of fits to rows on a GPU, and hostile rows for every kernel. Needs PyTorch with CUDA, and Triton.

python -m studies.audits.device [--only NAME] [--what replay|rows] [--out FILE.json]

Audited is that the kernels keep every contribution within its bound, whatever a row contains, and that nothing else
differs between neighbours. Kernels of narrow queries, which fits use for large tables, are used for small ones here.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import Any

import numpy as np
import torch

from dpem.audit.neighbours import Table, neighbours
from dpem.audit.replay import Verdict, compare, excess_cost, in_memory, replay
from dpem.audit.tape import record
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.engine import engine_of
from dpem.queries.gpu import triton_sums as rowwise
from studies.audits import device_rows

N, WIDE = 3000, 40


def wide_tables(dtype: Any) -> dict[str, Table]:
    rng = np.random.default_rng(5)
    beta = np.zeros(WIDE)
    beta[:3] = 1.0, -0.8, 0.4
    X = rng.normal(size=(N, WIDE))
    y = X @ beta + 0.5 * rng.normal(size=N)
    sign = rng.choice([-1, 1], N)
    return {
        "mixture": Table("as drawn", (X + np.outer(sign, beta)).astype(dtype), None),
        "regressions": Table("as drawn", X.astype(dtype), sign * y),
        "missing": Table("as drawn", np.where(rng.random(X.shape) < 0.2, np.nan, X).astype(dtype), y),
    }


def wide_models() -> dict[str, Any]:
    start = np.zeros(WIDE)
    start[:3] = 1.0, -0.8, 0.4
    common: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "sparsity": 3}
    return {
        "mixture": DPSymmetricMixture(**common, sigma=1.0),
        "regressions": DPSymmetricRegression(**common, sigma=0.5, start=start, n_iter=3),
        "missing": DPMissingRegression(**common, sigma=0.5),
    }


def replay_wide(name: str, dtype: Any, device: str) -> Verdict:
    """The paper's fits, over all columns."""

    def hold(table: Table) -> tuple[Any, ...]:
        return tuple(torch.asarray(part, device=device) for part in in_memory(table))

    rows = wide_tables(dtype)[name]
    print(f"  {engine_of(hold(rows)[0]).__self__.__class__.__name__}", end=" ")
    return replay(wide_models()[name], rows, hold=hold, missing=name == "missing")


def replay_narrow(name: str, dtype: Any, layout: str, device: str) -> Verdict:
    """A general model's fits, each query by its kernels; neighbours of whole rows and of rows with missing values."""
    verdict, model = Verdict(), device_rows.MODELS[name]()
    model.set_params(random_state=None)  # a recorded fit is charged to a budget

    def hold(rows: Table) -> tuple[Any, ...]:
        X = device_rows.LAYOUTS[layout](torch.as_tensor(rows.X.astype(dtype), device=device))
        return (X,) if rows.y is None else (X, torch.as_tensor(rows.y, device=device))

    for missing in (False, True):
        rows = device_rows.table(name, N, missing=missing)
        first = record(model, *hold(rows))
        if "refused" in first.outcome:
            verdict.faults.append(first.outcome["refused"])
            continue
        verdict.faults += excess_cost(first, float(model.epsilon), float(model.delta))
        at = np.array([N - 1])
        for kind in neighbours(rows, np.ones(device_rows.D), missing=True, broken=True, where=at):
            second = record(model, *hold(kind), frozen=first)
            verdict.merge(compare(first, second), f"{rows.name} → {kind.name}")
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name begins so")
    parser.add_argument("--what", choices=("replay", "rows"), help="one half of the audit")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="the k-th of m parts of the queries")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--chunk", type=int, default=rowwise.PROGRAM_ROWS, help="rows of a chunk, a power of two")
    parser.add_argument("--random", type=int, default=100, help="random hostile rows for each table")
    parser.add_argument("--out", help="write what was found to this JSON file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rowwise.LEAST_ROWS = 1
    found: list[dict[str, Any]] = []

    def line(what: str, name: str, how: str, tables: int, used: float, faults: list[str], **more: Any) -> None:
        entry = {"what": what, "model": name, "how": how, "tables": tables, "used": used, **more}
        found.append({**entry, "faults": len(faults) + (tables == 0)})
        if options.out:
            with open(options.out, "w") as file:
                json.dump(found, file, indent=1)
        print(
            f"{what}: {name}, {how}: {tables} tables, {len(faults)} faults, largest part of a bound {used:.6f}", end=""
        )
        print("".join(f", {key} {value:.1e}" for key, value in more.items()), *faults[:5], sep="\n  ", flush=True)

    kinds = ((np.float32, "rows together"), (np.float64, "rows together"))
    both = (*kinds, (np.float32, "columns together"), (np.float64, "columns together"))
    every = (*both, (np.float32, "within another"), (np.float64, "within another"))
    if options.what != "rows":
        for name in (name for name in wide_models() if name.startswith(options.only)):
            for dtype, layout in kinds:
                verdict = replay_wide(name, dtype, options.device)
                used = max(verdict.used.values(), default=0.0)
                line("replay", name, f"{dtype.__name__}, {layout}", verdict.neighbours, used, verdict.faults)
        general = [name for name in device_rows.MODELS if "symmetric" not in name and "missing" not in name]
        for name in (name for name in general if name.startswith(options.only)):
            for dtype, layout in (every[0], every[3]):
                verdict = replay_narrow(name, dtype, layout, options.device)
                used = max(verdict.used.values(), default=0.0)
                line("replay", name, f"{dtype.__name__}, {layout}", verdict.neighbours, used, verdict.faults)
    if options.what != "replay":
        seen: set[Any] = set()
        for name in (name for name in device_rows.MODELS if name.startswith(options.only)):
            for place, (recorded, query) in enumerate(device_rows.queries(name, seen).items()):
                for dtype, layout in every if place % options.part[1] == options.part[0] else ():
                    result = device_rows.audit(
                        query, name, dtype, layout, options.device, options.chunk, options.random
                    )
                    how = f"{recorded}, {dtype.__name__}, {layout}"
                    line("rows", name, how, result.tables, result.used, result.faults, off=result.off)
    wrong = sum(entry["faults"] for entry in found)
    print(f"{sum(entry['tables'] for entry in found)} tables, {wrong} faults")
    return int(wrong > 0 or not found)


if __name__ == "__main__":
    sys.exit(main())
