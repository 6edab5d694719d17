"""Regularised Newton steps for K components: from noisy scores to better components, and how far off they still are.

Parameters of a component, in the order of its scores: log mass, its coefficients in its own spreads, log spread. With T
the mean score and J = E T·sᵀ (s the derivative of the log-likelihood), the components that explain a mean T̄ are
J⁻¹(T̄ − E T) away. That is weighed, as in a Kalman filter, against how far off the components are expected to be: where
the noise says nothing, nothing moves. An answer that is farther from its mean than these errors and its noise explain
shows that they are too small, so they are widened first: a fit that has not converged keeps moving, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.fitting.rehearsal import normal
from dpem.models.mixture_regression.components import Components
from dpem.models.mixture_regression.queries import ComponentScores
from dpem.query import FloatArray

#: The standard errors that a start is expected to have: log masses, coefficients (in spreads), log spreads.
START_ERROR = (0.4, 0.25, 0.2)
#: The furthest that one step goes, in the same order.
FURTHEST = (1.0, 1.0, 0.5)
#: The part of a step's length that is left as error because the problem is not linear.
CURVED = 0.3
#: The most that an answer widens the variance of the errors.
MOST_WIDENED = 25.0
#: Masses below this count as none; spreads and log masses stay where arithmetic is safe.
LEAST_MASS, LEAST_SPREAD = 0.01, 1e-7


@dataclass(frozen=True)
class Estimate:
    """Components, and the covariance of their error (noise and start, not sampling) in the parameters named above."""

    theta: Components
    error: FloatArray

    @classmethod
    def of_start(cls, theta: Components) -> Estimate:
        """A start with the errors that starts are expected to have."""
        K, p = theta.shape
        mass, coefficient, spread = START_ERROR
        return cls(theta, np.diag(np.tile([mass, *[coefficient] * p, spread], K) ** 2))


def simulated_rows(theta: Components, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows that follow the components, with normal columns: (1, x̃), t and what each row weighs; the same every time.

    Columns and errors are 2n standard normal points in opposite pairs, of unit covariance.
    """
    K, p = theta.shape
    x = normal(0, (n, p))
    x = np.concatenate([x, -x])
    x = x @ np.linalg.inv(np.linalg.cholesky(x.T @ x / len(x))).T
    v = np.column_stack([np.ones(len(x)), x[:, 1:]])
    t = np.concatenate([v @ theta.coefficients[k] + theta.spreads[k] * x[:, 0] for k in range(K)])
    return np.tile(v, (K, 1)), t, np.repeat(theta.masses / np.sum(theta.masses) / len(x), len(x))


@dataclass(frozen=True)
class ExpectedScores:
    """What a score query shows of rows that follow its components.

    ``mean`` and ``covariance`` are those of a row's contribution T, ``jacobian`` J is the derivative of the mean by the
    parameters, E T·sᵀ, and ``known_jacobian`` what it would be if every row's component were known. All are taken along
    the directions ``free`` (orthonormal columns) that may change: all, or those that keep components through the
    origin.
    """

    free: FloatArray
    mean: FloatArray
    covariance: FloatArray
    jacobian: FloatArray
    known_jacobian: FloatArray

    @classmethod
    def of(cls, query: ComponentScores, free: FloatArray, n: int = 1500) -> ExpectedScores:
        """From simulated rows, but for the mean, which is known."""
        theta = query.theta
        K = len(theta.masses)
        v, t, weight = simulated_rows(theta, n)
        responsibility, psi, square = query.factors(numpy_api, v, t)
        e = theta.residuals(numpy_api, v, t)
        high, low = query.heights

        def columns(member: FloatArray, count: float, residual: FloatArray, spread: FloatArray) -> FloatArray:
            parts = [count * member[:, :, None], (residual * member)[:, :, None] * v[:, None, :]]
            return np.concatenate([*parts, (spread * member)[:, :, None]], axis=2).reshape(len(t), -1) @ free

        def contribution(member: FloatArray) -> FloatArray:
            return columns(member, high, psi, low * square)

        def score(member: FloatArray) -> FloatArray:
            return columns(member, 1.0, e, e * e - 1)

        present, origin = float(np.sum(theta.masses)), np.repeat(np.eye(K), len(t) // K, axis=0)
        T, mean = contribution(responsibility), free.T @ query.expected()
        covariance = present * (T * weight[:, None]).T @ T - np.outer(mean, mean)
        jacobian, known = (
            present * (contribution(member) * weight[:, None]).T @ score(member) for member in (responsibility, origin)
        )
        return cls(free, mean, covariance, jacobian, known)

    def gain(self, P: FloatArray, caution: float, noise: float) -> tuple[FloatArray, FloatArray]:
        """What an answer's distance from its mean is multiplied by, where components are off by errors of covariance P;
        and what of an error it leaves. ``caution`` is the part of J taken from rows whose components are known: 1 makes
        EM's own step, shorter and safer where the model is wrong.
        """
        J = self.jacobian + caution * (self.known_jacobian - self.jacobian)
        S = J @ P @ J.T
        S = S + np.diag(noise**2 + 1e-12 * np.diag(S))
        gain = np.linalg.solve(S, J @ P).T
        return np.asarray(gain), np.eye(len(P)) - gain @ self.jacobian

    def widening(self, P: FloatArray, difference: FloatArray, noise: float) -> float:
        """The factor by which errors of covariance P are too small for an answer at that ``difference`` from its mean:
        its length, squared, over its expectation, at least 1.
        """
        if noise == 0:
            return 1.0
        expected = self.jacobian @ P @ self.jacobian.T + noise**2 * np.eye(len(P))
        ratio = float(difference @ np.linalg.solve(expected, difference)) / len(difference)
        return min(max(ratio, 1.0), MOST_WIDENED)

    def sampling_error(self, n: float) -> FloatArray:
        """Covariance of the parameters that n rows leave, without noise: J⁻¹ Cov(T) J⁻ᵀ / n."""
        inverse = self.free @ np.linalg.pinv(self.jacobian, rcond=1e-8)
        return np.asarray(inverse @ self.covariance @ inverse.T / n)


def improved(now: Estimate, expected: ExpectedScores, answer: FloatArray, noise: float, caution: float) -> Estimate:
    """The components after one noisy answer."""
    K, p = now.theta.shape
    free = expected.free
    difference = free.T @ answer - expected.mean
    P = free.T @ now.error @ free
    P = P * expected.widening(P, difference, noise)
    gain, left = expected.gain(P, caution, noise)
    step = within_reach(free @ (gain @ difference), K, p)
    P = left @ P @ left.T + noise**2 * gain @ gain.T
    parts = step.reshape(K, p + 2)
    curved = np.column_stack([parts[:, 0] ** 2, *[np.mean(parts[:, 1:-1] ** 2, axis=1)] * p, parts[:, -1] ** 2])
    error = free @ P @ free.T + np.diag(CURVED**2 * curved.ravel())
    return Estimate(moved(now.theta, step), (error + error.T) / 2)


def within_reach(step: FloatArray, K: int, p: int) -> FloatArray:
    """The step, shortened as a whole to what one step may change."""
    parts = np.nan_to_num(step).reshape(K, p + 2)
    sizes = (np.abs(parts[:, 0]), np.sqrt(np.sum(parts[:, 1:-1] ** 2, axis=1)), np.abs(parts[:, -1]))
    longest = max(float(np.max(size)) / most for size, most in zip(sizes, FURTHEST, strict=True))
    return parts.ravel() / max(1.0, longest)


def moved(theta: Components, step: FloatArray) -> Components:
    """The components after a step in the parameters."""
    K, p = theta.shape
    parts = step.reshape(K, p + 2)
    masses = np.clip(theta.masses * np.exp(parts[:, 0]), LEAST_MASS, 1.0)
    spreads = np.clip(theta.spreads * np.exp(parts[:, -1]), LEAST_SPREAD, 1e7)
    return Components(masses, theta.coefficients + theta.spreads[:, None] * parts[:, 1:-1], spreads)


def free_directions(K: int, coefficients: FloatArray) -> FloatArray:
    """The directions in which parameters may change, given those in which the coefficients of a component may."""
    p, q = coefficients.shape
    block = np.zeros((p + 2, q + 2))
    block[0, 0] = block[-1, -1] = 1.0
    block[1:-1, 1:-1] = coefficients
    return np.asarray(np.kron(np.eye(K), block), dtype=float)
