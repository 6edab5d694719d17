"""diffprivlib's KMeans, PCA and LinearRegression on a job's tables. Runs in an environment of its own.

    python peer_diffprivlib.py JOB.json OUT.json

It imports nothing of dpem. Bounds are public: multiples of what the model's σ and the coefficients' length suggest, the
best of a few on practice tables. Its models are ε-DP: the δ that the others may use has no place to go, and its pages
do not say which tables are neighbours.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Job = dict[str, Any]
Fit = Callable[[Job, dict[str, Any], float, int], Any]

#: Where a fit takes many seconds there are fewer tables and less practice.
FEW_TABLES, FEW_PRACTICE = 5, 1


def kmeans(job: Job, table: dict[str, Any], width: float, seed: int) -> Any:
    """Half the difference of two centres; entries bounded by the size of a coefficient plus ``width`` times σ."""
    from diffprivlib.models import KMeans

    edge = job["signal"] / math.sqrt(job["s"]) + width * job["sigma"]
    model = KMeans(n_clusters=2, epsilon=job["epsilon"], bounds=(-edge, edge), random_state=seed).fit(table["X"])
    return sparse(job, (model.cluster_centers_[0] - model.cluster_centers_[1]) / 2)


def pca(job: Job, table: dict[str, Any], width: float, seed: int) -> Any:
    """The first component with the known length; rows bounded by ``width`` times their typical length.

    The model says that rows have mean zero, so nothing is spent on centring. The eigenvector is drawn by rejection,
    which takes half a minute in ten dimensions: there is no practice.
    """
    from diffprivlib.models import PCA

    norm = width * math.sqrt(job["signal"] ** 2 + job["d"] * job["sigma"] ** 2)
    model = PCA(n_components=1, epsilon=job["epsilon"], data_norm=norm, centered=True, random_state=seed)
    top = sparse(job, model.fit(table["X"].copy()).components_[0])
    return job["signal"] * top / max(np.linalg.norm(top), 1e-12)


def linear_regression(job: Job, table: dict[str, Any], width: float, seed: int) -> Any:
    """Least squares after imputing zero, the public mean of a covariate; entries bounded at ``width`` deviations.

    Without an intercept diffprivlib does not apply its own bounds, so they are applied here.
    """
    from diffprivlib.models import LinearRegression

    edge_y = width * math.hypot(job["signal"], job["sigma"])
    X = np.clip(np.nan_to_num(table["X"], nan=0.0), -width, width)
    model = LinearRegression(
        epsilon=job["epsilon"],
        bounds_X=(-width, width),
        bounds_y=(-edge_y, edge_y),
        fit_intercept=False,
        random_state=seed,
    )
    return sparse(job, np.ravel(model.fit(X, np.clip(table["y"], -edge_y, edge_y)).coef_))


MODELS: dict[str, dict[str, tuple[Fit, tuple[float, ...]]]] = {
    "symmetric-mixture": {"diffprivlib KMeans": (kmeans, (0.5, 1.0, 2.0, 3.0)), "diffprivlib PCA": (pca, (1.0,))},
    "missing-regression": {"diffprivlib LinearRegression": (linear_regression, (0.4, 0.7, 1.5))},
    "symmetric-regression": {},
}


def sparse(job: Job, estimate: Any) -> Any:
    """The largest entries, where the number of non-zero ones is known. Post-processing: it costs nothing."""
    s = job["sparsity"]
    if s is not None:
        estimate = np.where(np.abs(estimate) >= np.sort(np.abs(estimate))[-s], estimate, 0.0)
    return estimate


def error(job: Job, estimate: Any, truth: Any) -> float:
    """Distance to the truth, for mixtures up to sign."""
    signs = (1,) if job["model"] == "missing-regression" else (1, -1)
    return float(min(np.linalg.norm(sign * estimate - truth) for sign in signs))


def load(paths: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One table at a time."""
    for table in paths:
        yield {name: None if path is None else np.load(path, allow_pickle=False) for name, path in table.items()}


def run(job: Job, fit: Fit, widths: tuple[float, ...]) -> dict[str, Any]:
    """Choose a width by practice, then fit every table."""
    slow = fit is pca or (fit is linear_regression and job["d"] > 100)
    practice = list(load(job["practice"][: FEW_PRACTICE if slow else None]))
    started = time.process_time()
    width = widths[0]
    if len(widths) > 1:
        errors = [[error(job, fit(job, t, w, 10_000 + i), t["truth"]) for i, t in enumerate(practice)] for w in widths]
        width = widths[int(np.argmin(np.mean(errors, axis=1)))]
    tuning = time.process_time() - started
    estimates, seconds = [], []
    for seed, table in enumerate(load(job["tables"][: FEW_TABLES if slow else None])):
        started = time.process_time()
        estimates.append(fit(job, table, width, seed).tolist())
        seconds.append(time.process_time() - started)
    return {
        "start": False,
        "guarantee": f"({job['epsilon']:g}, 0), as stated",
        "estimates": estimates,
        "seconds": seconds,
        "tuning_seconds": tuning,
        "settings": {"width": width} | ({"its epsilons add to": spent_by_kmeans(job)} if fit is kmeans else {}),
    }


def spent_by_kmeans(job: Job) -> float:
    """What the epsilons of the mechanisms that KMeans makes add up to, over all iterations.

    One count and d sums for the cluster that a row is in. Version 0.6.6 returns the two parts in one order and takes
    them in the other, so this is not ε.
    """
    from diffprivlib.models import KMeans

    model = KMeans(n_clusters=2, epsilon=job["epsilon"])
    iterations = model._calc_iters(job["d"], job["n"])
    of_count, of_sum = model._split_epsilon(job["d"], iterations)
    return float(iterations * (of_count + job["d"] * of_sum))


def main(job_path: str, out_path: str) -> None:
    import diffprivlib
    import sklearn

    warnings.simplefilter("ignore")
    job = json.loads(Path(job_path).read_text())
    methods = {name: run(job, fit, widths) for name, (fit, widths) in MODELS[job["model"]].items()}
    versions = {"diffprivlib": diffprivlib.__version__, "scikit-learn": sklearn.__version__}
    Path(out_path).write_text(json.dumps({"versions": versions, "methods": methods}))


if __name__ == "__main__":
    main(*sys.argv[1:])
