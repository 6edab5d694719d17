"""How the privacy cost of the published algorithm (errata corrected) grows in the two regressions, beside its theorems.

    python -m studies.paper.rates_models [--reps 20] [--out results/rates_models.csv]

The cost is √(mean error² − mean non-private error²), as in :mod:`studies.paper.reproduce.rates`, which has the Gaussian
mixture. N₀ = log n, T = √log n, η = 0.5, start at distance 1/8; the bases are where that method works at all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from studies.csv_files import write_rows
from studies.paper import theory
from studies.paper.reproduce.curves import CORRECTED, REFERENCE, Table, key
from studies.paper.reproduce.rates import Sweep, cost, sizes, slope, sweeps_around, weighted_line
from studies.paper.reproduce.store import Point, Results
from studies.paper.settings import Setting

REGRESSIONS = Setting("symmetric-regression", n=64_000, d=20, s=2, epsilon=1.6)
MISSING = Setting("missing-regression", n=64_000, d=20, s=2, epsilon=1.6, missing=0.1)
GRID: dict[str, tuple[float, ...]] = {"n": (32_000, 64_000, 128_000), "epsilon": (0.8, 1.6, 3.2)}
SWEEPS = [
    sweep
    for base in (REGRESSIONS, MISSING)
    for sweep in (
        *sweeps_around(base, (CORRECTED,), **GRID, s=(2, 3, 4)),
        *sweeps_around(replace(base, d=5, s=5, dense=True), (CORRECTED,), **GRID, d=(3, 5, 8)),
    )
]


def measured(reps: int) -> Results:
    """Both errors of every repetition, on the same tables."""
    found = {}
    for setting in dict.fromkeys(setting for sweep in SWEEPS for setting in sweep.settings):
        for rep in range(reps):
            table = Table("rates_models", setting, rep)
            traces = {REFERENCE: table.reference(), CORRECTED: table.paper(CORRECTED, False)}
            found[key(setting), rep] = [Point(m, 0, setting.error(trace[-1])) for m, trace in traces.items()]
        print(f"{setting.model} n={setting.n} d={setting.d} s={setting.s} epsilon={setting.epsilon}", flush=True)
    return Results(found)


def rows(results: Results) -> Iterator[dict[str, Any]]:
    for sweep in SWEEPS:
        found, setting = slope(results, sweep, CORRECTED), sweep.settings[0]
        forms = {way: exponent(sweep, results, as_printed) for way, as_printed in (("printed", True), ("E10", False))}
        costs = " ".join(f"{cost(results, setting, CORRECTED).value:.3f}" for setting in sweep.settings)
        yield {"model": setting.model, "dimension": "low" if setting.dense else "high", "variable": sweep.variable,
               "values": " ".join(f"{v:g}" for v in sweep.x()), "costs": costs, "exponent": f"{found.value:.3f}",
               "se": f"{found.error:.3f}", **{f"theorem, {way}": f"{value:.3f}" for way, value in forms.items()},
               "settings": found.used}  # fmt: skip


def exponent(sweep: Sweep, results: Results, as_printed: bool) -> float:
    """Of the theorem's privacy term on the settings that count."""
    used = [i for i, setting in enumerate(sweep.settings) if cost(results, setting, CORRECTED).counts]
    if len(used) < 2:
        return float("nan")
    setting = [sweep.settings[i] for i in used]
    form = [theory.upper_rate(one.model, **sizes(one), as_printed=as_printed).privacy for one in setting]
    return weighted_line(np.log([sweep.x()[i] for i in used]), np.log(form), np.ones(len(used)))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="also write the table as CSV")
    options = parser.parse_args()
    table = list(rows(measured(options.reps)))
    for row in table:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    write_rows(options.out, table)


if __name__ == "__main__":
    main()
