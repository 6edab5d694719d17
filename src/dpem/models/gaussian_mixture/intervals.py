"""Standard errors of a fitted Gaussian mixture: a parametric bootstrap of the fit's own EM steps.

Rows are drawn from the fitted mixture, with its holes, and the EM steps are run on them from the very start that the
fit had, with its noise and without. The scatter of the latter is sampling; what the noise changes, the same rows
compared, is privacy, and so is how far the steps have not left the start behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dpem.fitting.model import Sizes
from dpem.fitting.rehearsal import StandIn, generator
from dpem.fitting.step import State, Step, run_steps
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.queries.schema import Schema
from dpem.query import FloatArray
from dpem.tables import ArraySource

#: Fits that are made with noise and as many without, and the most rows of each (fewer where holes make them dear).
REPEATS, ROWS, FEW_ROWS = 60, 3000, 1500

#: What noise does to a mixture that noise has drawn together is a little less than to the true one, but of whole
#: covariances: set by simulation.
DRAWN, WHOLE = 1.15, 1.0

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

    def away(asked: tuple[Step, ...]) -> FloatArray:
        found = []
        for seed in range(REPEATS):
            rows, _ = own.draw(theta, drawn, generator(seed))
            begun = State(own.parameters(start, start, theta.path, theta.seen), notes={"start": start})
            curator = StandIn(ArraySource(rows), sizes.n, 10_000 + seed, sizes.rows_per_person)
            found.append(values(run_steps(curator, own, asked, begun).theta, schema, in_units) - estimate)
        return np.array(found)

    plain = away(tuple(replace(step, rho=math.inf) for step in steps))
    middle = np.median(plain, axis=0)
    sampling = _size(plain - middle) * math.sqrt(drawn / sizes.n)
    if math.isinf(sizes.rho):
        privacy = np.zeros_like(sampling)
    else:
        left = np.maximum(middle**2 - 1.57 / REPEATS * _size(plain - middle) ** 2, 0.0)  # less a median's own error
        privacy = (WHOLE if theta.kind == "full" else DRAWN) * np.sqrt(_size(away(steps) - plain) ** 2 + left)
    note = "parametric bootstrap of the EM steps from the fit's own start"
    return Uncertainty.of(names(theta, schema), estimate, sampling, privacy, note, kinds(theta, schema))


def _size(away: FloatArray) -> FloatArray:
    """The root mean square, of what lies within three spreads of the middle: a fit that went astray does not decide."""
    low, middle, high = np.quantile(away, [0.1587, 0.5, 0.8413], axis=0)
    reach = 1.5 * (high - low)
    return np.asarray(np.sqrt(np.mean(np.clip(away, middle - reach, middle + reach) ** 2, axis=0)))


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


def kinds(theta: Any, schema: Schema) -> list[str]:
    """What each number can be: shares are parts of a whole, variances positive."""
    K, d = len(theta.weights), schema.width
    found = ["share"] * K + [""] * (K * d)
    if theta.covariances.ndim == 2:
        return found + ["positive"] * (K if theta.kind == "spherical" else K * d)
    pairs = ["positive" if i == j else "" for i, j in zip(*np.triu_indices(d), strict=True)]
    return found + pairs * (1 if theta.kind == "tied" else K)
