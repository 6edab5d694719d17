"""K regressions as a family of mixtures: simulated rows, scores, E-step and M-step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.fitting.rehearsal import normal
from dpem.fitting.surrogate import Family
from dpem.models.mixture_regression.components import Components, Frame
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import zero_nonfinite
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

#: The longest step: in log shares, coefficients of a component (in its residual spreads), log spreads.
LONGEST_STEP = (1.0, 1.0, 0.5)
#: The least share of a component after a step, and its least mass in an M-step.
LEAST_SHARE, LEAST_MASS = 0.003, 1e-6
#: Added to the normal equations of a component, relative to their size.
RIDGE = 1e-12


@dataclass(frozen=True)
class RegressionFamily(Family[Components]):
    """K regressions in the coordinates of a frame; a row holds its unit coordinates and, last, its response.

    The coefficients of a component are ``fixed`` plus a combination of ``free``, orthonormal directions: all
    directions, or those that keep the regression on a point. ``floor`` is the least residual spread. Parameters and
    scores have the order: log shares of all components but the last, coefficients along ``free`` in residual spreads,
    √2·log residual spreads.
    """

    has_response: ClassVar[bool] = True

    K: int
    frame: Frame = field(repr=False)
    free: FloatArray = field(repr=False)
    fixed: FloatArray = field(repr=False)
    floor: float = 1e-6

    @property
    def count(self) -> int:
        """The number of parameters."""
        return self.K - 1 + self.K * (self.free.shape[1] + 1)

    def parts(self, step: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The log shares (all but the last), coefficients along ``free`` (K × q) and log spreads of a step."""
        K = self.K
        return step[: K - 1], step[K - 1 : -K].reshape(K, -1), step[-K:] / 2**0.5

    def placed(self, v: FloatArray, t: FloatArray) -> FloatArray:
        """The rows with coordinates v = (1, x̃) and t in the frame, clipped to the bounds."""
        frame = self.frame
        x = frame.mean + v[:, 1:] @ np.linalg.inv(frame.whiten).T
        return np.clip(np.column_stack([x, frame.y_mean + frame.y_spread * t]), -1.0, 1.0)

    def draw(self, theta: Components, m: int, rng: np.random.Generator) -> FloatArray:
        v = np.column_stack([np.ones(m), rng.standard_normal((m, theta.shape[1] - 1))])
        k = rng.choice(self.K, m, p=theta.weights)
        return self.placed(v, np.sum(v * theta.coefficients[k], axis=1) + theta.spreads[k] * rng.standard_normal(m))

    def rows(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        """(1, x̃), t, and whether there is a response (1 or 0)."""
        return self.frame.rows(xp, x[:, :-1], x[:, -1])

    def joint(self, xp: Namespace, theta: Components, x: Array) -> Array:
        v, t, _ = self.rows(xp, x)
        return theta.log_joint(xp, theta.residuals(xp, v, t))

    def scores(self, xp: Namespace, theta: Components, x: Array) -> Array:
        return self.scores_of(xp, theta, *self.rows(xp, x))

    def scores_of(self, xp: Namespace, theta: Components, v: Array, t: Array, present: Array) -> Array:
        """r_k − w_k for all but the last component, r_k·e_k·v along ``free``, r_k·(e_k² − 1)/√2."""
        e = theta.residuals(xp, v, t)
        r, e = theta.responsibilities(xp, e) * present[:, None], zero_nonfinite(xp, e)
        free_v = xp.matmul(v, like(xp, self.free, v))
        shares = r[:, :-1] - present[:, None] * like(xp, theta.weights[:-1], v)
        coefficients = [(r[:, k] * e[:, k])[:, None] * free_v for k in range(self.K)]
        return xp.concat([shares, *coefficients, r * (e * e - 1.0) * 0.5**0.5], axis=1)

    def moved(self, theta: Components, step: FloatArray) -> Components:
        shares, coefficients, spreads = self.parts(step)
        logits = np.log(theta.weights) + np.append(np.clip(shares, -3.0, 3.0), 0.0)
        weights = np.exp(logits - logits.max())
        weights = np.maximum(weights / weights.sum(), LEAST_SHARE)
        new_coefficients = theta.coefficients + theta.spreads[:, None] * (coefficients @ self.free.T)
        new_spreads = np.clip(theta.spreads * np.exp(np.clip(spreads, -3.0, 3.0)), min(self.floor, 1e-7), 1e7)
        return Components(weights / weights.sum(), new_coefficients, new_spreads)

    def difference(self, theta: Components, reference: Components) -> FloatArray:
        """The step that moves ``reference`` to θ: the inverse of :meth:`moved` but for its limits."""
        log_shares = np.log(theta.weights) - np.log(reference.weights)
        coefficients = (theta.coefficients - reference.coefficients) @ self.free / reference.spreads[:, None]
        log_spreads = np.log(theta.spreads / reference.spreads)
        return np.concatenate([log_shares[:-1] - log_shares[-1], coefficients.ravel(), 2**0.5 * log_spreads])

    def within_reach(self, step: FloatArray) -> FloatArray:
        """The step, scaled down so that no part exceeds ``LONGEST_STEP``."""
        step = np.nan_to_num(step)
        shares, coefficients, spreads = self.parts(step)
        sizes = (np.abs(shares), np.linalg.norm(coefficients, axis=1), np.abs(spreads))
        excess = max(float(np.max(size, initial=0.0)) / most for size, most in zip(sizes, LONGEST_STEP, strict=True))
        return np.asarray(step / max(1.0, excess))

    def statistics(self, xp: Namespace, theta: Components, x: Array, weights: Array) -> Array:
        v, t, present = self.rows(xp, x)
        return self._statistics(xp, theta, v, t, present if weights is None else present * weights)

    def e_step(self, x: FloatArray, weights: FloatArray) -> Callable[[Components], FloatArray]:
        v, t, present = self.rows(numpy_api, x)
        return lambda theta: np.asarray(self._statistics(numpy_api, theta, v, t, present * weights))

    def _statistics(self, xp: Namespace, theta: Components, v: Array, t: Array, weights: Array) -> Array:
        """Σ r_k·zzᵀ for each component, where z = (1, x̃, t) and r_k is the responsibility; and the log-likelihood."""
        r = theta.responsibilities(xp, theta.residuals(xp, v, t)) * weights[:, None]
        z = xp.concat([v, t[:, None]], axis=1)
        moments = [xp.reshape(over_rows(xp, z * r[:, k : k + 1], z), (-1,)) for k in range(self.K)]
        log_likelihood = xp.sum(theta.log_density(xp, v, t) * weights)
        return xp.concat([*moments, xp.reshape(log_likelihood, (1,))])

    def m_step(self, theta: Components, statistics: FloatArray) -> Components:
        """Weighted least squares along ``free``."""
        K, p = theta.shape
        moments = statistics[:-1].reshape(K, p + 1, p + 1)
        masses = np.maximum(moments[:, 0, 0], LEAST_MASS)
        gram, old = moments[:, :p, :p], theta.coefficients[:, :, None]
        gradient = self.free.T @ (moments[:, :p, p:] - gram @ old)
        # relative to the moments, since the few rows of a component may be large and along one direction
        ridge = RIDGE * np.maximum(masses, np.trace(gram, axis1=1, axis2=2) / p)
        regular = gram + ridge[:, None, None] * np.eye(p)
        new = (old + self.free @ np.linalg.solve(self.free.T @ regular @ self.free, gradient))[:, :, 0]
        residual = np.column_stack([-new, np.ones(K)])
        variances = np.einsum("ki,kij,kj->k", residual, moments, residual) / masses
        return Components(masses / masses.sum(), new, np.sqrt(np.maximum(variances, self.floor**2)))

    def near(self, theta: Components, rng: np.random.Generator) -> Components:
        """The components with coefficients moved at random by about their residual spreads."""
        steps = rng.standard_normal((self.K, self.free.shape[1])) @ self.free.T
        return Components(theta.weights, theta.coefficients + theta.spreads[:, None] * steps, theta.spreads)

    def random_start(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> Components:
        """Components near the least-squares regression of the weighted rows."""
        family = replace(self, K=1)
        start = family.around(self.fixed, 1.0)
        one = family.m_step(start, family.e_step(x, weights)(start))
        return self.near(self.around(one.coefficients[0], float(one.spreads[0])), rng)

    def around(self, coefficients: FloatArray, spread: float) -> Components:
        """K equal components with this regression."""
        return Components(np.full(self.K, 1 / self.K), np.tile(coefficients, (self.K, 1)), np.full(self.K, spread))


def simulated_rows(theta: Components, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows that follow the components: (1, x̃), t and the weights of the rows, the same in every call.

    Columns and errors are 2n standard normal points in opposite pairs, with unit covariance, where n is at least twice
    the number of coefficients; each component has all of them.
    """
    K, p = theta.shape
    x = normal(0, (max(n, 2 * p), p))
    x = np.concatenate([x, -x])
    x = x @ np.linalg.inv(np.linalg.cholesky(x.T @ x / len(x))).T
    v = np.column_stack([np.ones(len(x)), x[:, 1:]])
    t = np.concatenate([v @ theta.coefficients[k] + theta.spreads[k] * x[:, 0] for k in range(K)])
    return np.tile(v, (K, 1)), t, np.repeat(theta.weights / len(x), len(x))
