"""Surrogate rows of a mixture of regressions, before answers tilt their weights."""

from __future__ import annotations

import numpy as np

from dpem.models.mixture_regression.cells import Cells
from dpem.models.mixture_regression.components import Components
from dpem.models.mixture_regression.family import RegressionFamily, simulated_rows
from dpem.query import FloatArray

Rows = tuple[FloatArray, FloatArray]
#: The fraction of rows far out in columns or response, and their base weight, which is small: only answers raise it.
FAR_PART, FAR_WEIGHT = 0.15, 1e-3
#: Their distances: factors of the columns' spreads and of the largest residual spread, drawn at random.
COLUMNS_WIDER, RESIDUALS_WIDER = (1.0, 1.0, 2.0, 4.0), (1.0, 2.0, 4.0, 8.0, 16.0)
#: Fractions of the rows that follow the first start, the second, and one regression with the counted residuals.
FIRST, SECOND, COUNTED = 0.5, 0.25, 0.25


def base_rows(family: RegressionFamily, theta: Components, count: int, rng: np.random.Generator) -> Rows:
    """Rows that follow the components, and some far out; and their base weights."""
    return joined((_following(family, theta, 1 - FAR_PART, count), 1.0), (_far(family, theta, count, rng), FAR_WEIGHT))


def first_rows(
    family: RegressionFamily,
    starts: tuple[Components, ...],
    regression: tuple[FloatArray, float],
    cells: Cells,
    count: int,
    rng: np.random.Generator,
) -> Rows:
    """Rows that follow either start, or the one ``regression`` (coefficients, spread) with the residuals that were
    counted in cells, and some far out; and their base weights.
    """
    m, (coefficients, spread) = round(count * COUNTED * (1 - FAR_PART)), regression
    counts = np.maximum(cells.mass.reshape(-1, cells.mass.shape[-1]).sum(axis=0), 1e-9)
    ends = np.concatenate([cells.r_edges[:1] - 1.3, cells.r_edges, cells.r_edges[-1:] + 1.3])
    bin_ = rng.choice(len(counts), m, p=counts / counts.sum())
    v = np.column_stack([np.ones(m), rng.standard_normal((m, len(coefficients) - 1))])
    t = v @ coefficients + spread * rng.uniform(ends[bin_], ends[bin_ + 1])
    return joined(
        (_following(family, starts[0], FIRST, count), FIRST),
        (_following(family, starts[1], SECOND, count), SECOND),
        ((family.placed(v, t), np.full(m, 1 / m)), COUNTED),
        (_far(family, starts[0], count, rng), FAR_WEIGHT),
    )


def joined(*parts: tuple[Rows, float]) -> Rows:
    """All rows together, their weights multiplied by that of their part."""
    return np.vstack([x for (x, _), _ in parts]), np.concatenate([w * part for (_, w), part in parts])


def _following(family: RegressionFamily, theta: Components, part: float, count: int) -> Rows:
    """Rows that follow the components, and their weights, which sum to 1."""
    v, t, weights = simulated_rows(theta, round(part * count) // (2 * family.K))
    return family.placed(v, t), weights


def _far(family: RegressionFamily, theta: Components, count: int, rng: np.random.Generator) -> Rows:
    """Rows with wide columns and residuals, and their weights, which sum to 1."""
    m = round(FAR_PART * count)
    x = rng.standard_normal((m, theta.shape[1] - 1)) * rng.choice(COLUMNS_WIDER, (m, 1))
    v, k = np.column_stack([np.ones(m), x]), rng.choice(family.K, m, p=theta.weights)
    spread = theta.spreads.max() * rng.choice(RESIDUALS_WIDER, m)
    t = np.sum(v * theta.coefficients[k], axis=1) + spread * rng.standard_normal(m)
    return family.placed(v, t), np.full(m, 1 / m)
