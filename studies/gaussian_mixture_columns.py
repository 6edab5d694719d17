"""Columns that carry groups, found among many: how many are found, and what the groups are worth.

    python -m studies.gaussian_mixture_columns [--reps 10] [--out results/gaussian_mixture_columns.csv]

Of d = 200 columns s carry groups: centres are drawn from N(0, I) in these and scaled until the nearest two are
4 spreads apart; all columns have spread 1 within a group. Half of the others are exponential. ε is 1, δ is 1e-6,
bounds are 1.75 times as wide as the rows' range. Seeds begin at 1000: what was tuned was tuned on others. The
reference is scikit-learn's EM on the right columns.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from dpem import DPGaussianMixture

FIRST_SEED, DELTA, COLUMNS = 1000, 1e-6, 200
FIELDS = ("setting", "n", "columns found", "ARI", "worst", "reference", "fit check speaks for groups", "seconds")


class Setting(NamedTuple):
    """``wider`` is how much wider than the rows' range the bounds are, ``correlated`` how many columns without groups
    go together (a factor that explains a third of each).
    """

    name: str
    n: int
    s: int
    weights: tuple[float, ...]
    wider: float = 1.75
    correlated: int = 0
    groups: bool = True


EQUAL2, EQUAL3, EQUAL5 = (0.5,) * 2, (1 / 3,) * 3, (0.2,) * 5
SETTINGS = (
    *(Setting("2 equal groups, s = 5", n, 5, EQUAL2) for n in (10_000, 50_000)),
    *(Setting("2 equal groups, s = 10", n, 10, EQUAL2) for n in (10_000, 50_000)),
    *(Setting("3 equal groups, s = 5", n, 5, EQUAL3) for n in (10_000, 50_000)),
    *(Setting("5 equal groups, s = 10", n, 10, EQUAL5) for n in (10_000, 50_000)),
    *(Setting("90/10, s = 5", n, 5, (0.9, 0.1)) for n in (10_000, 50_000)),
    *(Setting("90/10, s = 10", n, 10, (0.9, 0.1)) for n in (10_000, 50_000)),
    *(Setting("3 equal groups, s = 5, bounds 10 times as wide", n, 5, EQUAL3, 17.5) for n in (10_000, 50_000)),
    *(Setting("3 equal groups, s = 5, 20 correlated columns", n, 5, EQUAL3, correlated=20) for n in (10_000, 50_000)),
    *(Setting("no groups, skewed columns, s = 5", n, 5, EQUAL3, groups=False) for n in (10_000, 50_000)),
)


def rows_of(setting: Setting, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Rows, their groups, and the columns that carry them."""
    K, d = len(setting.weights), COLUMNS
    place = rng.permutation(d)
    chosen, rest = np.sort(place[: setting.s]), place[setting.s :]
    centres = np.zeros((K, d))
    centres[:, chosen] = rng.normal(size=(K, setting.s))
    apart = np.sqrt(((centres[:, None] - centres[None]) ** 2).sum(-1))
    centres *= 4 / apart[~np.eye(K, dtype=bool)].min() * setting.groups
    label = rng.choice(K, size=setting.n, p=setting.weights)
    rows = rng.normal(size=(setting.n, d))
    skewed = rest[: len(rest) // 2]
    rows[:, skewed] = rng.exponential(size=(setting.n, len(skewed)))
    together = rest[len(rest) // 2 :][: setting.correlated]
    rows[:, together] = np.sqrt(2 / 3) * rows[:, together] + np.sqrt(1 / 3) * rng.normal(size=(setting.n, 1))
    return centres[label] + rows, label, chosen


def tried(reps: int) -> Iterator[dict[str, Any]]:
    for setting in SETTINGS:
        found, began = [], time.time()
        K = len(setting.weights)
        for seed in range(FIRST_SEED, FIRST_SEED + reps):
            rows, label, chosen = rows_of(setting, np.random.default_rng(seed))
            low, high = rows.min(axis=0), rows.max(axis=0)
            middle, half = (low + high) / 2, setting.wider * (high - low) / 2
            given = {"epsilon": 1.0, "delta": DELTA, "bounds": (middle - half, middle + half), "random_state": seed}
            model = DPGaussianMixture(K, sparsity=setting.s, **given).fit(rows)
            known = GaussianMixture(K, covariance_type="diag", n_init=3, random_state=seed).fit(rows[:, chosen])
            ours = adjusted_rand_score(label, model.predict(rows))
            theirs = adjusted_rand_score(label, known.predict(rows[:, chosen]))
            found.append((np.isin(model.support_, chosen).sum(), ours, theirs, model.fit_check_.better))
        table = np.array(found, dtype=float)
        yield {
            "setting": setting.name,
            "n": setting.n,
            "columns found": f"{table[:, 0].mean():.1f} of {setting.s}" if setting.groups else "",
            "ARI": f"{table[:, 1].mean():.3f}" if setting.groups else "",
            "worst": f"{table[:, 1].min():.3f}" if setting.groups else "",
            "reference": f"{table[:, 2].mean():.3f}" if setting.groups else "",
            "fit check speaks for groups": f"{int(table[:, 3].sum())} of {reps}",
            "seconds": f"{(time.time() - began) / reps:.1f}",
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reps", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for line in tried(given.reps):
        print(" | ".join(str(line[field]) for field in FIELDS), flush=True)
        found.append(line)
    if given.out is not None:
        with given.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
