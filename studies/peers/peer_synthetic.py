"""Private synthetic rows by MST or AIM (smartnoise-synth), to which scikit-learn or StepMix is fitted; in an
environment of its own.

Numeric columns are binned with equal widths between their public bounds, and missing values are a further level, so the
domain is public. n synthetic rows get values drawn uniformly from their bins; the square of a column is computed, not
synthesised. Missing values in synthetic rows are replaced by the mean of the synthetic column. The library's guarantee
is ρ-zCDP converted to (ε, δ) for adding or removing a row, with n public; its noise is NumPy's, seeded. The number of
bins is tuned with MST on one practice table, since a fit takes long, and so is the number of rounds of AIM; there are
few repetitions.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from typing import Any

import numpy as np

from studies.peers import judge

#: Repetitions where a fit takes long.
FEW = 3


def domain(job: judge.Job, d: int, bins: int, response: bool) -> list[tuple[list[int], int, bool]]:
    """The synthesised columns: the columns that each encodes, its levels, and whether it is categorical."""
    grouped = {j for group in job.get("dummies", []) for j in group}
    squares = {int(j) for j in job.get("squares", {})}
    found = [(group, len(group) + 1, True) for group in job.get("dummies", [])]
    found += [([j], bins, False) for j in range(d) if j not in grouped and j not in squares]
    return found + ([([d], bins, False)] if response else [])


def coded(job: judge.Job, rows: Any, columns: list[Any], low: Any, high: Any) -> Any:
    """Rows as levels: 0 where the value is missing, 1 for none of the dummies or the lowest bin, and so on."""
    codes = []
    for own, levels, categorical in columns:
        part = rows[:, own]
        if categorical:
            code = np.where(part.max(axis=1) > 0.5, 2 + np.argmax(part, axis=1), 1)
        else:
            place = (part[:, 0] - low[own[0]]) / (high[own[0]] - low[own[0]])
            code = 1 + np.clip(np.floor(levels * np.nan_to_num(place)), 0, levels - 1)
        codes.append(np.where(np.isnan(part).any(axis=1), 0, code).astype(int))
    return np.column_stack(codes)


def decoded(job: judge.Job, codes: Any, columns: list[Any], low: Any, high: Any, rng: np.random.Generator) -> Any:
    """Values for levels."""
    rows = np.full((len(codes), len(low)), np.nan)
    for code, (own, levels, categorical) in zip(codes.T, columns, strict=True):
        if categorical:
            for place, j in enumerate(own):
                rows[:, j] = np.where(code == 0, np.nan, code == 2 + place)
        else:
            step = (high[own[0]] - low[own[0]]) / levels
            rows[:, own[0]] = np.where(code == 0, np.nan, low[own[0]] + step * (code - 1 + rng.random(len(code))))
    for square, root in job.get("squares", {}).items():
        rows[:, int(square)] = rows[:, root] ** 2
    return rows


def synthetic(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> tuple[Any, Any]:
    """Synthetic rows and response."""
    import pandas as pd
    from mbi import Dataset, Domain
    from snsynth.aim import AIMSynthesizer
    from snsynth.mst import MSTSynthesizer
    from snsynth.utils import cdp_rho

    np.random.seed(seed)
    y = table.get("y")
    rows = table["X"] if y is None else np.column_stack([table["X"], y])
    low, high = (np.array(job[name], dtype=float) for name in ("low", "high"))
    if y is not None:
        low, high = np.append(low, job["y_bounds"][0]), np.append(high, job["y_bounds"][1])
    columns = domain(job, table["X"].shape[1], settings["bins"], y is not None)
    codes = coded(job, rows, columns, low, high)
    missing = bool(job.get("missing"))
    names = [f"c{i}" for i in range(len(columns))]
    frame = pd.DataFrame(codes if missing else codes - 1, columns=names)
    data = Dataset(frame, Domain(names, [levels + missing for _, levels, _ in columns]))
    with contextlib.redirect_stdout(io.StringIO()):
        if settings["by"] == "MST":
            maker = MSTSynthesizer(epsilon=job["epsilon"], delta=job["delta"])
            maker.MST(data, job["epsilon"], job["delta"])
            found = maker.undo_compress_fn(maker.synthesizer.synthetic_data(rows=len(rows)))
        else:
            maker = AIMSynthesizer(epsilon=job["epsilon"], delta=job["delta"], rounds=settings["rounds"])
            maker.rho = cdp_rho(job["epsilon"], job["delta"])
            maker.AIM(data, maker.get_workload(data, degree=2, max_cells=10_000))
            found = maker.synthesizer.synthetic_data(rows=len(rows))
    codes = np.asarray(found.df[names]) + (0 if missing else 1)
    made = decoded(job, codes, columns, low, high, np.random.default_rng(seed))
    return (made, None) if y is None else (made[:, :-1], made[:, -1])


def fit(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    """A model of synthetic rows."""
    X, y = synthetic(job, table, settings, seed)
    return {"regression": regression, "groups": groups, "classes": classes}[job["model"]](job, X, y, seed)


def regression(job: judge.Job, X: Any, y: Any, seed: int) -> judge.Answer:
    from sklearn.linear_model import LassoCV, LinearRegression

    fill = np.where(np.isnan(X).all(axis=0), judge.middle(job), np.nan_to_num(np.nanmean(X, axis=0)))
    X = np.where(np.isnan(X), fill, X)
    if X.shape[1] < 100:
        line = LinearRegression().fit(X, y)
        return {"coef": line.coef_.tolist(), "intercept": float(line.intercept_), "fill": fill.tolist()}
    size = X.std(axis=0) + 1e-12
    lasso = LassoCV(cv=3, alphas=15).fit((X - fill) / size, y)
    coef = lasso.coef_ / size
    return {"coef": coef.tolist(), "intercept": float(lasso.intercept_ - coef @ fill), "fill": fill.tolist()}


def groups(job: judge.Job, X: Any, y: Any, seed: int) -> judge.Answer:
    from sklearn.mixture import GaussianMixture

    size = X.std(axis=0)
    kind = job["kind"] if job["measure"] == "ARI" else "diag"
    scale = size if kind == "diag" else np.full_like(size, size.mean())
    model = GaussianMixture(job["K"], covariance_type=kind, n_init=5, random_state=seed).fit(X / scale)
    v = model.covariances_ if kind == "diag" else np.repeat(model.covariances_[:, None], X.shape[1], axis=1)
    return {
        "means": (model.means_ * scale).tolist(),
        "variances": (v * scale**2).tolist(),
        "weights": model.weights_.tolist(),
    }


def classes(job: judge.Job, X: Any, y: Any, seed: int) -> judge.Answer:
    """StepMix, five starts."""
    from stepmix.stepmix import StepMix

    model = StepMix(job["K"], measurement="binary", n_init=5, random_state=seed, max_iter=500, progress_bar=0)
    model.fit((X > 0.5).astype(int))
    chances = model.get_parameters()["measurement"]["pis"]
    return {"weights": model.get_parameters()["weights"].tolist(), "chances": np.asarray(chances).tolist()}


def not_private(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    return classes(job, table["X"], None, seed)


def methods(job: judge.Job) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    if job["model"] == "lines":
        return {}
    for given in (*job["practice"], *job["tables"]):
        given["facts"]["missing"] = job["problem"].startswith(("pressure", "questions"))  # public
    stated, d = "(ε, δ), add or remove one", len(job["tables"][0]["facts"]["low"])
    if job["model"] == "classes":
        for given in (*job["practice"], *job["tables"]):
            given["facts"]["dummies"] = [[j] for j in range(d)]
        return {
            "MST, then StepMix": judge.run(job, fit, [{"by": "MST", "bins": 2}], stated),
            "StepMix, not private": judge.run(job, not_private, [{}], "none"),
        }
    then = "scikit-learn" if job["model"] == "regression" else "GaussianMixture"
    wide, reps = d > 100, 1 if d > 100 else FEW if d > 2 else None
    sizes = (16,) if wide else (8, 16, 32)
    mst = judge.run(job, fit, [{"by": "MST", "bins": bins} for bins in sizes], stated, reps, 1)
    found = {f"MST, then {then}": mst}
    if d < 12:
        aim = [{"by": "AIM", "bins": mst["settings"]["bins"], "rounds": rounds} for rounds in (2 * (d + 1), None)]
        found[f"AIM, then {then}"] = judge.run(job, fit, aim, stated, reps, 1)
    return found


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("smartnoise-synth", "mbi", "stepmix", "scikit-learn")}


if __name__ == "__main__":
    judge.serve(methods, versions, sys.argv)
