"""The reference without privacy (ε = ∞): least squares, or maximum likelihood of a joint normal distribution where
values are missing, with HC1 standard errors. Its queries have no bound, so a curator answers them only there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.information import Information
from dpem.models.linear_regression.parameters import final_parameters
from dpem.models.linear_regression.posterior import Gaussian, NoisyMatrix, eigenvalues_from
from dpem.models.linear_regression.rows import ROUNDING, Frame, RowQuery, Rows, by_missing, imputed_moments
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, packed, unpacked, weighted
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like
from dpem.tables.schema import Schema

if TYPE_CHECKING:
    from dpem.models.linear_regression.model import LinearRegression

#: Largest number of EM steps, and the change below which they have converged.
MOST_STEPS, CONVERGED = 5000, 1e-12


@dataclass(frozen=True)
class FilledMoments(NarrowQuery):
    """Second moments of (1, columns, response) with missing values imputed under N(0, covariance) and their conditional
    covariance added: the E-step of a normal distribution.
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    covariance: FloatArray = field(repr=False)
    label: str = "second moments with missing values filled (reference only)"

    @property
    def bound(self) -> Bound:
        return Bound()

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        z = (xp.concat([x, y[:, None]], axis=1) - like(xp, self.centre, x)) / like(xp, self.spread, x)
        precision, p = np.asarray(np.linalg.inv(self.covariance), dtype=float), self.schema.width + 1
        total: Array = None
        for part, _, weights, missing in by_missing(xp, z, y, shares):
            full, covariance = part, like(xp, np.zeros((p, p)), x)
            if missing:
                full, covariance = imputed_moments(xp, part, precision, weights)
            v = xp.concat([xp.ones_like(full[:, :1]), full], axis=1)
            covariance = xp.concat([xp.zeros_like(covariance[:, :1]), covariance], axis=1)
            added = xp.concat([xp.zeros_like(covariance[:1, :]), covariance], axis=0)
            matrix = over_rows(xp, weighted(v, weights), v) + added
            total = packed(xp, matrix) if total is None else total + packed(xp, matrix)
        return total


@dataclass(frozen=True)
class ScoreSquares(RowQuery):
    """Σ s²·vvᵀ of the scores v of rows with weights s: the meat of the sandwich."""

    label: str = "squares of the scores (reference only)"

    @property
    def bound(self) -> Bound:
        return Bound()

    def added(self, xp: Namespace, rows: Rows) -> Array:
        v = weighted(rows.a * (rows.r * self.sigma / rows.v)[:, None], rows.shares)
        return packed(xp, over_rows(xp, v, v))


def joint_normal_fit(curator: Curator, schema: Schema, centre: FloatArray, spread: FloatArray) -> tuple[Gaussian, bool]:
    """Maximum likelihood of the joint normal distribution of columns and response by EM from ``centre`` and ``spread``,
    and whether it converged.
    """
    matrix = np.eye(len(centre))
    for _ in range(MOST_STEPS):
        released = unpacked(curator.measure(FilledMoments(schema, centre, spread, matrix), math.inf), len(centre) + 1)
        mean = released[0, 1:]
        covariance = released[1:, 1:] - np.outer(mean, mean)
        variance = np.diag(covariance)
        scale = np.sqrt(np.where(variance > ROUNDING**2, variance, 1.0))
        updated = eigenvalues_from(covariance / np.outer(scale, scale), ROUNDING)
        change = max(np.max(np.abs(mean)), np.max(np.abs(scale - 1)), np.max(np.abs(updated - matrix)))
        centre, spread, matrix = centre + spread * mean, spread * scale, updated
        if change < CONVERGED:
            break
    return Gaussian(centre, matrix * np.outer(spread, spread)), bool(change < CONVERGED)


@dataclass(frozen=True)
class MaximumLikelihood(Step):
    """The whole reference fit, which has no price."""

    passes = 4

    def describe(self) -> str:
        return "least squares, or maximum likelihood where values are missing, without privacy"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        columns, schema = state.known_columns, model.schema_of(state)
        joint, converged = joint_normal_fit(curator, schema, columns.centre, columns.spread)
        fit = replace(_conditional_fit(joint, state), converged=converged)
        query = fit.query(Information, schema, radius=math.inf)
        information = unpacked(curator.measure(query, math.inf), len(fit.prior))
        fit = replace(fit, information=NoisyMatrix(information, 0 * information))
        squares = unpacked(curator.measure(fit.query(ScoreSquares, schema), math.inf), len(fit.prior))
        ratio = 1.0 if state.weights is None else state.weights.ratio
        sampling = _sandwich(fit, squares / ratio, curator.effective_rows)
        theta, fit = final_parameters(fit, sampling, model, state, curator.effective_rows)
        return replace(state, theta=theta, current_fit=fit)


def _conditional_fit(joint: Gaussian, state: LinearState) -> CurrentFit:
    """The regression of the response on the columns under their joint distribution."""
    p, columns = len(joint.mean) - 1, state.known_columns
    spread = np.sqrt(np.diag(joint.covariance))
    matrix = joint.covariance / np.outer(spread, spread)
    values, vectors = np.linalg.eigh(matrix[:p, :p])
    whiten = (vectors / np.sqrt(np.maximum(values, ROUNDING))).T
    covariance = np.asarray((vectors * np.maximum(values, ROUNDING)) @ vectors.T)
    frame = Frame(joint.mean[:p], np.diag(1 / spread[:p]), float(joint.mean[p]), float(spread[p]), covariance, whiten)
    slope, answer, none = np.eye(p + 1), np.append(0.0, whiten @ matrix[:p, p]), np.zeros((p + 1, p + 1))
    slope[1:, 1:] = whiten @ covariance @ whiten.T
    theta = np.asarray(np.linalg.lstsq(slope, answer, rcond=ROUNDING)[0], dtype=float)
    information = NoisyMatrix(slope, none)
    return CurrentFit(
        columns=columns,
        frame=frame,
        posterior=Gaussian(theta, none),
        prior=np.full(p + 1, 1 / ROUNDING),
        variance=min(max(1 - float(theta[1:] @ slope[1:, 1:] @ theta[1:]), ROUNDING), 1.0),
        variance_error=0.0,
        present=float(columns.seen[p]),
        present_error=0.0,
        information=information,
        expected_information=slope,
        unused=np.zeros(p, dtype=bool),
        from_shares=np.zeros((p, p), dtype=bool),
        misfit=none,
    )


def _sandwich(fit: CurrentFit, squares: FloatArray, n: int) -> FloatArray:
    """The HC1 covariance of (intercept, slopes), large along directions that the rows leave unidentified."""
    rows = n * fit.present
    values, vectors = np.linalg.eigh(fit.information.value / fit.present)
    inverse = (vectors / np.maximum(values, ROUNDING)) @ vectors.T
    null_space = (vectors * (values < ROUNDING)) @ vectors.T
    inner = squares / fit.present + ROUNDING * null_space
    outer = fit.frame.in_unit_coordinates()[0] @ inverse
    return np.asarray(outer @ inner @ outer.T * fit.variance / max(rows - len(squares), 1.0))
