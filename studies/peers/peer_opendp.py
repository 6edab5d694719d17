"""OpenDP's LinearRegression (Theil–Sen, one covariate only), in an environment of its own.

The noise scale is the smallest for which OpenDP's map states (ε, δ) for adding or removing one row, by pure or by
zero-concentrated privacy. Which of the two, the numbers of runs and of candidates, and the points at which the lines
are evaluated are tuned on practice tables. OpenDP's noise cannot be seeded.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from typing import Any

import numpy as np

from studies.peers import judge


def model(job: judge.Job, settings: judge.Settings, scale: float) -> Any:
    """OpenDP's estimator with its public bounds."""
    import opendp.prelude as dp

    return dp.sklearn.linear_model.LinearRegression(
        dp.max_divergence() if settings["noise"] == "pure" else dp.zero_concentrated_divergence(),
        x_bounds=[(job["low"][0], job["high"][0])],
        y_bounds=tuple(job["y_bounds"]),
        scale=scale,
        runs=settings["runs"],
        candidates_count=settings["candidates"],
        fraction_bounds=settings["read at"],
    )


def stated(job: judge.Job, settings: judge.Settings, scale: float) -> float:
    """The ε that OpenDP's maps state for this scale and the job's δ."""
    import opendp.prelude as dp

    measurement = model(job, settings, scale).measurement
    if settings["noise"] == "pure":
        return float(measurement.map(1))
    return float(dp.c.make_zCDP_to_approxDP(measurement).map(1).epsilon(job["delta"]))


def least(job: judge.Job, settings: judge.Settings) -> float:
    """The smallest scale for which at most ε is stated."""
    low, high = 1e-3, 1e5
    for _ in range(60):
        at = (low * high) ** 0.5
        low, high = (low, at) if stated(job, settings, at) <= job["epsilon"] else (at, high)
    return high


def theil_sen(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    np.random.seed(seed)  # the shuffle of pairs is numpy's
    fitted = model(job, settings, least(job, settings))
    line = fitted.fit(judge.filled(job, table["X"]), np.clip(table["y"], *job["y_bounds"]))
    return {
        "coef": np.ravel(line.coef_).tolist(),
        "intercept": float(line.intercept_),
        "fill": judge.middle(job).tolist(),
    }


GRID = [
    {"noise": noise, "runs": runs, "candidates": candidates, "read at": at}
    for noise, runs, candidates, at in itertools.product(
        ("pure", "zCDP"), (1, 2, 5), (100, 400), ((0.25, 0.75), (0.5, 0.75), (0.4, 0.9))
    )
]


def methods(job: judge.Job) -> dict[str, Any]:
    import opendp.prelude as dp

    warnings.simplefilter("ignore")
    if job["model"] != "regression" or len(job["tables"][0]["facts"]["low"]) != 1:
        return {}
    dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
    return {"OpenDP LinearRegression": judge.run(job, theil_sen, GRID, "(ε, δ), add or remove one")}


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"opendp": version("opendp")}


if __name__ == "__main__":
    judge.serve(methods, versions, sys.argv)
