"""The accuracy table: errors with default settings, the plan's prediction, the paper's method and non-private EM.

    python -m studies.paper.accuracy [--reps 20] [--out results/accuracy.csv]

The paper's method has a start within 1/8 of the truth and its prescribed settings; non-private EM has the same start.
The improved method has no start, except where the row says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from studies.csv_files import write_rows
from studies.paper.settings import Changes, Setting, repeat

G, R, M = "symmetric-mixture", "symmetric-regression", "missing-regression"
ONE_THIRD = 1 / 3

SETTINGS = (
    Setting(G, 4000, 1000, 10, 0.5, target=0.045),
    Setting(G, 4000, 1000, 10, 0.3, target=0.13),
    Setting(G, 4000, 1000, 10, 0.8, target=0.036),
    Setting(G, 6000, 1000, 10, 0.5, target=0.034),
    Setting(G, 4000, 1000, 15, 0.5, target=0.15),
    Setting(G, 4000, 1000, 5, 0.5, target=0.040),
    Setting(G, 8000, 1000, 10, 0.5, decay=True, target=0.08, note="coefficients 1/j"),
    Setting(M, 5000, 1000, 10, 0.6, missing=0.1, target=0.065, note="10 % missing"),
    Setting(M, 5000, 1000, 10, 0.6, missing=0.3, target=0.12, note="30 % missing"),
    Setting(R, 5000, 1000, 10, 0.6, start_distance=0.5, target=0.060, note="start at distance 0.5"),
    Setting(R, 50_000, 1000, 10, 0.6, target=0.02),
    Setting(G, 5000, 10, 10, 0.5, dense=True, note="low-dimensional"),
    Setting(G, 10_000, 10, 10, 0.5, dense=True, note="low-dimensional"),
    Setting(G, 25_000, 10, 10, 0.5, dense=True, note="low-dimensional"),
    Setting(G, 10_000, 5, 5, 0.5, dense=True, note="low-dimensional"),
    Setting(G, 10_000, 25, 25, 0.5, dense=True, note="low-dimensional"),
    Setting(G, 4000, 1000, 10, 0.5, assumed_sparsity=20, target=0.12, note="sparsity given as 20"),
    Setting(G, 4000, 1000, 10, 0.5, assumed_sigma=0.75, target=0.13, note="sigma given as 0.75"),
    Setting(G, 4000, 1000, 10, 0.5, assumed_sigma=ONE_THIRD, target=0.13, note="sigma given as 0.333"),
    Setting(G, 4000, 1000, 10, 0.5, assumed_signal=1.5, target=0.13, note="signal given as 1.5"),
    Setting(G, 4000, 1000, 10, 0.5, assumed_signal=2 / 3, target=0.13, note="signal given as 0.667"),
    Setting(G, 4000, 1000, 10, 0.5, heavy_tails=True, target=0.085, note="noise t, 5 df"),
)
FIELDS = (
    "model",
    "n",
    "d",
    "s",
    "epsilon",
    "note",
    "target",
    "improved",
    "sd",
    "median",
    "predicted",
    "published",
    "non_private",
)


def fits(setting: Setting) -> dict[str, Changes]:
    """The changed arguments of the three fits."""
    own_start = setting.start_distance
    exact = {"sparsity": None if setting.dense else setting.s, "sigma": setting.sigma, "signal": 1.0}
    return {
        "improved": lambda rng: {} if own_start is None else {"start": setting.start_near(rng, own_start)},
        "published": lambda rng: {"method": "published", "start": setting.start_near(rng, 1 / 8), **exact},
        "non-private": lambda rng: {
            "epsilon": float("inf"),
            "n_iter": 30,
            "start": setting.start_near(rng, 1 / 8),
            **exact,
        },
    }


def predicted(setting: Setting) -> float:
    """The plan's prediction with the analyst's assumptions."""
    found = setting.plan().prediction
    assert found is not None
    return found.median


def row(setting: Setting, reps: int) -> dict[str, object]:
    """One row of the table."""
    errors = repeat(setting, reps, fits(setting))
    improved, reference = errors["improved"], float(np.mean(errors["non-private"]))
    target = 1.35 * reference if setting.target is None else setting.target
    return {
        "model": setting.model,
        "n": setting.n,
        "d": setting.d,
        "s": setting.s,
        "epsilon": setting.epsilon,
        "note": setting.note,
        "target": f"{target:.4f}",
        "improved": f"{np.mean(improved):.4f}",
        "sd": f"{np.std(improved):.4f}",
        "median": f"{np.median(improved):.4f}",
        "predicted": f"{predicted(setting):.4f}",
        "published": f"{np.mean(errors['published']):.4f}",
        "non_private": f"{reference:.4f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=None, help="also write the table as CSV")
    options = parser.parse_args()
    if options.out is not None and not options.out.parent.is_dir():
        parser.error(f"the folder of --out does not exist: {options.out.parent}")

    widths = [max(len(name), 22 if name in ("model", "note") else 7) for name in FIELDS]
    print(" ".join(f"{name:>{w}}" for name, w in zip(FIELDS, widths, strict=True)))
    rows = []
    for done, setting in enumerate(SETTINGS, 1):
        started = time.perf_counter()
        rows.append(row(setting, options.reps))
        print(" ".join(f"{rows[-1][name]!s:>{w}}" for name, w in zip(FIELDS, widths, strict=True)), flush=True)
        if sys.stderr.isatty():
            print(f"row {done} of {len(SETTINGS)} took {time.perf_counter() - started:.0f} s", file=sys.stderr)
    write_rows(options.out, rows)


if __name__ == "__main__":
    main()
