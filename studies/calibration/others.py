"""Intervals of others beside ours, for linear regression: a parametric bootstrap, and R's DPrivStats.

    python -m studies.calibration.others [--fits 200] [--dprivstats FOLDER]

The bootstrap is that of Ferrando, Wang and Sheldon (2022): second moments of clipped rows are released once with
Gaussian noise at the whole price, and the release is repeated on rows drawn from the law that it names (here normal, as
the rows are, so that moments can be drawn at once). It is given the same bounds as dpem, and then bounds that only
somebody who knows the answer could give. ``--dprivstats`` is the folder of that package's source; its R files are read
by Rscript (which needs MASS), its compiled part is not needed. Seeds begin at 100,000.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpem
from dpem.privacy import largest_price
from studies.calibration import simulations
from studies.linear_regression import wage_table

FIRST_SEED, DELTA, REPLICATES = 100_000, 1e-6, 200
SETTINGS = ((2_000, 1.0), (20_000, 0.5), (20_000, 1.0))
#: Bounds of columns and of the response that lie about 3.5 spreads from the middle: nobody knows them beforehand.
TIGHT = (np.full(5, -3.5), np.full(5, 3.5)), (-3.0, 7.0)
WIDE = (np.full(5, -8.0), np.full(5, 8.0)), (-15.0, 20.0)


# --- the parametric bootstrap -----------------------------------------------------------------------------------------


def bootstrap(X: Any, y: Any, bounds: Any, epsilon: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Intercept and slopes from noisy second moments of (1, x, y), entries in [−1, 1], and their 95 % intervals.

    Replacing a row moves the sum of zzᵀ by at most √2·(d + 2) in Frobenius norm; noise on the upper triangle, off the
    diagonal 1/√2 of that on it, is as private as noise on the vector (diagonal, √2·rest).
    """
    (low, high), (least, most) = bounds
    middle, half = np.append((high + low) / 2, (least + most) / 2), np.append((high - low) / 2, (most - least) / 2)
    z = np.clip((np.column_stack([X, y]) - middle) / half, -1, 1)
    z = np.column_stack([np.ones(len(z)), z])
    n, p = z.shape
    sigma = math.sqrt(2) * p / (n * math.sqrt(2 * largest_price(epsilon, DELTA, gaussian=True).rho))

    def noisy(M: Any) -> Any:
        draw = rng.standard_normal((p, p)) * sigma
        return M + np.triu(draw, 1) / math.sqrt(2) + np.triu(draw, 1).T / math.sqrt(2) + np.diag(np.diag(draw))

    def line(M: Any) -> Any:
        """Intercept and slopes in units."""
        values, axes = np.linalg.eigh(M[:-1, :-1])
        slopes = (axes / np.maximum(values, sigma)) @ axes.T @ M[:-1, -1] * half[-1]
        slopes[1:] /= half[:-1]
        slopes[0] += middle[-1] - slopes[1:] @ middle[:-1]
        return slopes

    seen = noisy(z.T @ z / n)
    seen[0, 0] = 1.0
    found, mean = line(seen), seen[0, 1:]
    values, axes = np.linalg.eigh(seen[1:, 1:] - np.outer(mean, mean))
    root = axes * np.sqrt(np.maximum(values, 1e-6))
    again = []
    for _ in range(REPLICATES):
        g = rng.standard_normal((p - 1, p - 1))
        bartlett = np.tril(g, -1) + np.diag(np.sqrt(rng.chisquare(n - 1 - np.arange(p - 1))))
        own = mean + root @ rng.standard_normal(p - 1) / math.sqrt(n)
        M = np.ones((p, p))
        M[0, 1:] = M[1:, 0] = own
        M[1:, 1:] = root @ bartlett @ bartlett.T @ root.T / n + np.outer(own, own)
        again.append(line(noisy(M)))
    ends = np.quantile(again, [0.975, 0.025], axis=0)
    return found, (2 * found - ends).T


def compared(fits: int) -> None:
    """Coverage and width of slopes and intercept, ours and the bootstrap's, on the same rows."""
    for n, epsilon in SETTINGS:
        for rho in (0.0, 0.7):
            simulation = simulations.linear(rho=rho)
            truth = np.array([simulations.INTERCEPT, *simulations.SLOPES])
            ends: dict[str, list[Any]] = {"dpem": [], "bootstrap": [], "bootstrap, tight bounds": []}
            for seed in range(FIRST_SEED, FIRST_SEED + fits):
                model, rows = simulation.fit(n, epsilon, seed, check=False)
                ends["dpem"].append(model.conf_int()[: len(truth)])
                for name, bounds in (("bootstrap", WIDE), ("bootstrap, tight bounds", TIGHT)):
                    rng = np.random.default_rng([seed, 1])
                    ends[name].append(bootstrap(rows.X, rows.y, bounds, epsilon, rng)[1])
            for name, parts in ends.items():
                both = np.array(parts)
                held = np.mean((both[:, :, 0] <= truth) & (truth <= both[:, :, 1]))
                width = np.median(both[:, 1:, 1] - both[:, 1:, 0])
                print(
                    f"n={n}, epsilon={epsilon}, correlation {rho}: {name}: covers {100 * held:.1f} %, width {width:.3f}"
                )


# --- R's DPrivStats ---------------------------------------------------------------------------------------------------

PROGRAM = """
for (name in c("mechanisms", "mechanisms2", "sensitivity", "dp_descriptive", "dp_regression", "dp_confint"))
  source(file.path("{folder}", "R", paste0(name, ".R")))
table <- read.csv("rows.csv")
for (seed in {first}:({first} + {fits} - 1)) {{
  set.seed(seed)
  fit <- dp_lm(y ~ ., table, epsilon = {epsilon}, delta = 1e-6, bounds = list(y = c({low}, {high})))
  ends <- dp_confint(fit)
  write.table(ends, "ends.txt", append = seed > {first}, col.names = FALSE, quote = FALSE)
}}
"""


def dprivstats(folder: Path, X: Any, y: Any, y_bounds: Any, epsilon: float, fits: int) -> Any:
    """Estimates and ends of the package's analytical intervals: fits × (intercept, slopes) × 3."""
    with tempfile.TemporaryDirectory() as place:
        rows = pd.DataFrame(X, columns=[f"v{j}" for j in range(X.shape[1])])
        rows.assign(y=np.asarray(y)).to_csv(Path(place) / "rows.csv", index=False)
        low, high = y_bounds
        words = {"folder": folder.resolve(), "first": FIRST_SEED, "fits": fits, "epsilon": epsilon}
        subprocess.run(["Rscript", "-e", PROGRAM.format(**words, low=low, high=high)], cwd=place, check=True)
        ends = pd.read_csv(Path(place) / "ends.txt", sep=" ", header=None)
    return ends.iloc[:, 1:].to_numpy(float).reshape(fits, -1, 3)


def income(folder: Path) -> pd.DataFrame:
    """The package's own example: 2,000 invented persons, drawn by its script."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "data").mkdir()
        words = f'source("{folder.resolve()}/data-raw/generate_data.R"); write.csv(example_microdata, "rows.csv")'
        subprocess.run(["Rscript", "-e", words], cwd=place, check=True)
        return pd.read_csv(Path(place) / "rows.csv", index_col=0)


def beside(folder: Path, fits: int) -> None:
    """The example and CPS1988: the median estimate and half-width of each slope, the package's and ours. The package is
    given columns as they are, and then with their bounds put at ±1, its slopes turned back.
    """
    people, known = income(folder), {"education": (0, 20), "age": (18, 80), "hours": (0, 80)}
    X, y, settings = wage_table()
    examples = (
        ("income", people[list(known)], people["income"], {"bounds": known, "y_bounds": (0, 500_000)}, 2.0),
        ("CPS1988", X, y, settings, 1.0),
    )
    for name, columns, response, given, epsilon in examples:
        plain = dpem.DPLinearRegression(epsilon=math.inf, delta=DELTA, **given).fit(columns, response)
        schema = plain.schema_
        design = np.column_stack([_coordinate(columns, own) for own in schema.names])
        unit = (design - schema.middle) / schema.half
        theirs = dprivstats(folder, design, response, given["y_bounds"], epsilon, fits)[:, 1:]
        scaled = dprivstats(folder, unit, response, given["y_bounds"], epsilon, fits)[:, 1:] / schema.half[:, None]
        ours = []
        for seed in range(FIRST_SEED, FIRST_SEED + fits):
            model = dpem.DPLinearRegression(epsilon=epsilon, delta=DELTA, random_state=seed, **given)
            ends = model.fit(columns, response).conf_int()[1:-1]
            ours.append(np.column_stack([model.coef_, ends]))
        print(
            f"{name}, {len(columns):,} rows, epsilon={epsilon}: least squares; DPrivStats ±; columns scaled ±; dpem ±"
        )
        for j, own in enumerate(schema.names):
            cells = [f"{plain.coef_[j]:.3g}"]
            for both in (theirs, scaled, np.array(ours)):
                cells.append(f"{np.median(both[:, j, 0]):.3g} ± {np.median(both[:, j, 2] - both[:, j, 1]) / 2:.3g}")
            print(f"  {own}: {'; '.join(cells)}", flush=True)


def _coordinate(columns: pd.DataFrame, name: str) -> Any:
    """A column of numbers, or whether it has the level that is named."""
    column, _, level = name.partition("=")
    return (columns[column] == level).to_numpy(float) if level else columns[column].to_numpy(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--dprivstats", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.dprivstats is None:
        compared(options.fits)
    else:
        beside(options.dprivstats, min(options.fits, 20))


if __name__ == "__main__":
    main()
