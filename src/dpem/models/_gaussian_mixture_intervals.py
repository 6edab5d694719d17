"""Standard errors of a fitted Gaussian mixture: a parametric bootstrap of the fit's own EM steps.

Rows are drawn from the fitted mixture, with its holes, and the EM steps are run on them from the very start that the
fit had, with the noise that it had. How far the answers are from the mixture that rows were drawn from, shift and
scatter together, is the standard error; so a start that the steps have not quite left behind widens it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dpem.estimators.uncertainty import Uncertainty
from dpem.planning import Sizes
from dpem.planning.rehearsal import StandIn, generator
from dpem.query import FloatArray
from dpem.questions.gaussians import Gaussians
from dpem.questions.schema import Schema
from dpem.sources import ArraySource
from dpem.steps.base import State, Step, run_steps

#: Fits that are made with noise and without, and the most rows of each (fewer where holes make every row a solve).
NOISY, PLAIN, ROWS, FEW_ROWS = 80, 40, 3000, 800

Units = Callable[[Any, Schema], tuple[FloatArray, FloatArray]]


def uncertainty(model: Any, sizes: Sizes, theta: Any, schema: Schema, in_units: Units) -> Uncertainty:
    """Estimates in the table's units and their standard errors, of sampling and of privacy."""
    estimate = values(theta, schema, in_units)
    own = replace(model, schema=schema.unit())
    steps = own.refining(sizes)
    drawn = min(sizes.n, FEW_ROWS if theta.covariances.ndim == 3 and np.any(theta.seen < 1) else ROWS)
    start = Gaussians(theta.start_weights, theta.start_means, theta.start_covariances)
    if math.isinf(sizes.rho):
        steps = tuple(replace(step, most=50) for step in steps)
        start = Gaussians(theta.weights, theta.means, theta.covariances)

    def spread(repeats: int, asked: tuple[Step, ...]) -> FloatArray:
        found = []
        for seed in range(repeats):
            rows, _ = own.draw(theta, drawn, generator(seed))
            begun = State(own.parameters(start, start, theta.path, theta.seen), notes={"start": start})
            curator = StandIn(ArraySource(rows), sizes.n, 10_000 + seed, sizes.rows_per_person)
            found.append(values(run_steps(curator, own, asked, begun).theta, schema, in_units) - estimate)
        away = np.array(found)
        low, middle, high = np.quantile(away, [0.1587, 0.5, 0.8413], axis=0)
        reach = 1.5 * (high - low)  # three standard deviations: a fit that went astray does not decide alone
        return np.asarray(np.sqrt(np.mean(np.clip(away, middle - reach, middle + reach) ** 2, axis=0)))

    sampling = spread(PLAIN, tuple(replace(step, rho=math.inf) for step in steps))
    whole = sampling if math.isinf(sizes.rho) else np.maximum(spread(NOISY, steps), sampling)
    privacy = np.sqrt(whole**2 - sampling**2)
    note = "parametric bootstrap of the EM steps from the fit's own start"
    sampling = sampling * math.sqrt(drawn / sizes.n)
    low, high = limits(theta, schema)
    return Uncertainty.of(names(theta, schema), estimate, sampling, privacy, note, lowest=low, highest=high)


def values(theta: Any, schema: Schema, in_units: Units) -> FloatArray:
    """Shares, means and covariances in the table's units, in the order of :func:`names`."""
    means, covariances = in_units(theta, schema)
    if theta.kind == "spherical":
        last = covariances[:, 0]
    elif theta.kind == "diag":
        last = covariances.ravel()
    else:
        upper = np.triu_indices(schema.width)
        last = (covariances[:1] if theta.kind == "tied" else covariances)[:, upper[0], upper[1]].ravel()
    return np.concatenate([theta.weights, means.ravel(), last])


def names(theta: Any, schema: Schema) -> list[str]:
    """What each number is called: groups are counted from 1, the largest first."""
    groups, columns = [f"group {k + 1}" for k in range(len(theta.weights))], schema.names
    found = [f"{group}: share" for group in groups]
    found += [f"{group}: mean of {name}" for group in groups for name in columns]
    if theta.kind == "spherical":
        return found + [f"{group}: variance" for group in groups]
    if theta.kind == "diag":
        return found + [f"{group}: variance of {name}" for group in groups for name in columns]
    pairs = [
        f"variance of {a}" if a == b else f"covariance of {a} and {b}"
        for i, a in enumerate(columns)
        for b in columns[i:]
    ]
    if theta.kind == "tied":
        return found + pairs
    return found + [f"{group}: {pair}" for group in groups for pair in pairs]


def limits(theta: Any, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """What each number can be at all: shares from 0 to 1, variances from 0."""
    K, d = len(theta.weights), schema.width
    if theta.covariances.ndim == 2:
        variance = np.ones(K if theta.kind == "spherical" else K * d, dtype=bool)
    else:
        row, column = np.triu_indices(d)
        variance = np.tile(row == column, 1 if theta.kind == "tied" else K)
    share = np.concatenate([np.ones(K, dtype=bool), np.zeros(K * d + len(variance), dtype=bool)])
    positive = np.concatenate([share[: K + K * d], variance])
    return np.where(positive, 0.0, -np.inf), np.where(share, 1.0, np.inf)
