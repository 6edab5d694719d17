"""Maximum likelihood without privacy: EM from several starts, on weighted least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate.em import Converged, best_of
from dpem.models.mixture_regression.components import Components, Frame
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.schema import Schema

#: Spreads and masses stay above these, so that EM cannot follow an unbounded likelihood.
LEAST_SPREAD, LEAST_MASS = 1e-6, 1e-6


@dataclass(frozen=True)
class LeastSquaresMoments(NarrowQuery):
    """Σ r_k·wwᵀ with w = (1, x̃, t) for each component, r_k its responsibility for the row, and the log-likelihood.

    Nothing is clipped, so nothing bounds the sum: a curator answers it at an infinite price only.
    """

    frame: Frame = field(repr=False)
    theta: Components = field(repr=False)
    label: str = "EM step without privacy"

    @property
    def bound(self) -> Bound:
        return Bound()

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        v, t, seen = self.frame.rows(xp, x, y)
        responsibility = self.theta.responsibilities(xp, self.theta.residuals(xp, v, t)) * seen[:, None]
        w = xp.concat([v, t[:, None]], axis=1)
        moments = [
            xp.reshape(over_rows(xp, w * responsibility[:, k : k + 1], w), (-1,)) for k in range(len(self.theta.masses))
        ]
        log_likelihood = xp.sum(self.theta.log_density(xp, v, t) * seen)
        return xp.concat([*moments, xp.reshape(log_likelihood, (1,))])


@dataclass(frozen=True)
class LeastSquares:
    """The M-step: least squares along ``free`` from ``fixed``, for components that go through a point."""

    free: FloatArray
    fixed: FloatArray

    def m_step(self, theta: Components, statistics: FloatArray) -> Components:
        K, p = theta.shape
        moments = statistics[:-1].reshape(K, p + 1, p + 1)
        masses = np.maximum(moments[:, 0, 0], LEAST_MASS)
        gram, cross = moments[:, :p, :p], moments[:, :p, p]
        least = gram + 1e-12 * masses[:, None, None] * np.eye(p)
        right = (cross - gram @ self.fixed) @ self.free
        steps = np.linalg.solve(self.free.T @ least @ self.free, right[:, :, None])[:, :, 0]
        coefficients = self.fixed + steps @ self.free.T
        residual = np.column_stack([-coefficients, np.ones(K)])
        variances = np.einsum("ki,kij,kj->k", residual, moments, residual) / masses
        return Components(masses, coefficients, np.sqrt(np.maximum(variances, LEAST_SPREAD**2)))


def maximum_likelihood(
    curator: Curator,
    schema: Schema,
    frame: Frame,
    starts: Sequence[Components],
    step: LeastSquares,
    extra: int,
) -> Components:
    """The likeliest end of EM from the starts, and from ``extra`` random ones around the first."""
    rng, base = generator(0), starts[0]
    turned = [base.coefficients + base.spreads[:, None] * rng.standard_normal(base.shape) for _ in range(extra)]
    others = [Components(base.masses, own, base.spreads) for own in turned]

    def expect(theta: Components) -> FloatArray:
        return curator.measure(LeastSquaresMoments(schema, frame, theta), np.inf)

    ends: list[Converged[Components]] = best_of(step, [*starts, *others], expect, tolerance=1e-13, most=3000)
    return ends[0].theta
