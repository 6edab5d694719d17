"""Google's private clustering and DPM, from their repositories, in an environment of their own.

Columns are scaled from their public bounds to [−1, 1]. Google's method takes K and a radius, to which rows are clipped;
the radius is tuned on practice tables. DPM estimates the number of components and takes one interval for all columns. A
row is assigned to the nearest of the released centres.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from studies.peers import judge

SOURCE = Path(sys.prefix) / "source"


def answer(job: judge.Job, centres: Any) -> judge.Answer:
    half = (np.array(job["high"]) - np.array(job["low"])) / 2
    return {"means": (judge.middle(job) + half * np.asarray(centres)).tolist()}


def google(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    """Locality-sensitive hashing, then k-means on noisy averages."""
    from clustering import clustering_algorithm, clustering_params

    np.random.seed(seed)
    Z, _ = judge.box(job, table["X"])
    data = clustering_params.Data(Z, settings["part"] * math.sqrt(Z.shape[1]))
    price = clustering_params.DifferentialPrivacyParam(job["epsilon"], job["delta"])
    return answer(job, clustering_algorithm.private_lsh_clustering(job["K"], data, price).centers)


def dpm(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    """Splits where rows are few, then noisy averages. It looks for spreads from 0.5 to 30: ``size`` matters."""
    from dpm import DPM

    np.random.seed(seed)
    size, part = settings["size"], settings["part"]
    Z = size * np.clip(judge.box(job, table["X"])[0] / part, -1, 1)
    centres, _ = DPM(Z, (-size, size), job["epsilon"], job["delta"]).perform_clustering()
    return answer(job, np.clip(centres, -size, size) * part / size)


def methods(job: judge.Job) -> dict[str, Any]:
    if job["model"] != "groups" or job["measure"] != "ARI":
        return {}
    sys.path[:0] = [str(SOURCE / "differential-privacy" / "learning"), str(SOURCE / "dp-mondrian-clustering")]
    parts = [{"part": part} for part in (0.15, 0.22, 0.3, 0.45, 0.7)]
    sizes = [{"size": size, **part} for size in (10.0, 100.0) for part in parts]
    return {
        "Google's clustering": judge.run(job, google, parts, "(ε, δ), add or remove one", practice=3),
        "DPM": judge.run(job, dpm, sizes, "(ε, δ), add or remove one", practice=2),
    }


def versions() -> dict[str, str]:
    import dp_accounting

    return {"dp-accounting": getattr(dp_accounting, "__version__", "0.6.0")}


if __name__ == "__main__":
    judge.serve(methods, versions, sys.argv)
