"""Regularised Newton steps for K components: from noisy scores to better components, and how far off they still are.

Parameters of a class, in the order of its scores: log mass, its coefficients in its own spreads, log spread. With T the
mean score and J = E T·sᵀ (s the derivative of the log-likelihood), the components that explain a mean T̄ are
J⁻¹(T̄ − E T) away. That is weighed, as in a Kalman filter, against how far off the components are expected to be: where
the noise says nothing, nothing moves. An answer that is farther from its mean than these errors and its noise explain
shows that they are too small, so they are widened first: a fit that has not converged keeps moving, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.special import ndtri

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


def normal_points(n: int, d: int) -> FloatArray:
    """2n points of d coordinates, spread evenly as a standard normal, in opposite pairs, of unit covariance.

    Multiples of square roots of primes, modulo 1 (Weyl): nothing is drawn.

    >>> points = normal_points(500, 3)
    >>> np.allclose(points.T @ points / 1000, np.eye(3)), np.allclose(points.sum(axis=0), 0)
    (True, True)
    """
    if d == 0:
        return np.zeros((2 * n, 0))
    part = np.outer(np.arange(1, n + 1), np.sqrt(_primes(d))) % 1.0
    x = ndtri(np.clip(part, 1e-9, 1 - 1e-9))
    x = np.concatenate([x, -x])
    return np.asarray(x @ np.linalg.inv(np.linalg.cholesky(x.T @ x / len(x))).T)


def _primes(count: int) -> FloatArray:
    primes: list[int] = []
    candidate = 2
    while len(primes) < count:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return np.array(primes, dtype=float)


def invented_rows(theta: Components, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows that follow the components, with normal columns: (1, x̃), t and what each row weighs."""
    K, p = theta.shape
    x = normal_points(n, p)
    v = np.column_stack([np.ones(len(x)), x[:, 1:]])
    t = np.concatenate([v @ theta.coefficients[k] + theta.spreads[k] * x[:, 0] for k in range(K)])
    return np.tile(v, (K, 1)), t, np.repeat(theta.masses / np.sum(theta.masses) / len(x), len(x))


def jacobian(query: ComponentScores, n: int = 1500) -> tuple[FloatArray, FloatArray]:
    """J = E T·sᵀ and Cov T, on invented rows."""
    theta = query.theta
    K, p = theta.shape
    v, t, weight = invented_rows(theta, n)
    share, psi, square = query.factors(numpy_api, v, t)
    high, low = query.heights

    def columns(count: FloatArray, regression: FloatArray, spread: FloatArray) -> FloatArray:
        parts = [count[:, :, None], regression[:, :, None] * v[:, None, :], spread[:, :, None]]
        return np.concatenate(parts, axis=2).reshape(len(t), K * (p + 2))

    T = columns(high * share, share * psi, low * share * square)
    e = theta.residuals(numpy_api, v, t)
    S = columns(share, share * e, share * (e * e - 1))
    present = float(np.sum(theta.masses))
    mean = present * (weight @ T)
    return present * (T * weight[:, None]).T @ S, present * (T * weight[:, None]).T @ T - np.outer(mean, mean)


def known_classes(query: ComponentScores) -> FloatArray:
    """J if every row's class were known."""
    block = _known_class(query.theta.shape[1], query.clip, query.cut, query.lift)
    K, size = len(query.theta.masses), len(block)
    out = np.zeros((K * size, K * size))
    for k, mass in enumerate(query.theta.masses):
        own = slice(k * size, (k + 1) * size)
        out[own, own] = mass * block
    return out


@lru_cache(maxsize=32)
def _known_class(p: int, clip: float, cut: float, lift: float) -> FloatArray:
    """J of one class: no schema or frame is read, rows are invented."""
    one = Components(np.ones(1), np.zeros((1, p)), np.ones(1))
    nowhere: Any = None
    return jacobian(ComponentScores(nowhere, nowhere, one, clip, cut, lift))[0]


def improved(
    now: Estimate, query: ComponentScores, answer: FloatArray, noise: float, free: FloatArray, caution: float
) -> tuple[Estimate, FloatArray]:
    """The components after one noisy answer, and the step that led there.

    ``free`` has orthonormal columns that span what may change (all, or components through the origin): scores and
    parameters are both taken along them, so the step solves the likelihood equations of the allowed components.
    ``caution`` is the part of J taken from rows whose classes are known: 1 makes EM's own step, shorter and safer where
    the model is wrong.
    """
    K, p = now.theta.shape
    J, known = slopes_of(query, free)
    away = free.T @ (answer - query.expected())
    P = free.T @ now.error @ free
    P = P * widening(P, J, away, noise)
    gain, left = weighed(P, J, known, caution, noise)
    step = within_reach(free @ (gain @ away), K, p)
    P = left @ P @ left.T + noise**2 * gain @ gain.T
    parts = step.reshape(K, p + 2)
    bend = np.column_stack([parts[:, 0] ** 2, *[np.mean(parts[:, 1:-1] ** 2, axis=1)] * p, parts[:, -1] ** 2])
    error = free @ P @ free.T + np.diag(CURVED**2 * bend.ravel())
    return Estimate(moved(now.theta, step), (error + error.T) / 2), step


def widening(P: FloatArray, J: FloatArray, away: FloatArray, noise: float) -> float:
    """The factor by which errors of covariance P are too small for an answer so far ``away`` from its mean: that
    distance, squared, over its expectation, at least 1.
    """
    if noise == 0:
        return 1.0
    expected = J @ P @ J.T + noise**2 * np.eye(len(P))
    ratio = float(away @ np.linalg.solve(expected, away)) / len(away)
    return min(max(ratio, 1.0), MOST_WIDENED)


def slopes_of(query: ComponentScores, free: FloatArray) -> tuple[FloatArray, FloatArray]:
    """J along what may change, and what it were if every row's class were known."""
    return free.T @ jacobian(query)[0] @ free, free.T @ known_classes(query) @ free


def weighed(
    P: FloatArray, J: FloatArray, known: FloatArray, caution: float, noise: float
) -> tuple[FloatArray, FloatArray]:
    """What an answer's distance from its mean is multiplied by, where components are off by errors of covariance P; and
    what of an error it leaves.
    """
    used = J + caution * (known - J)
    S = used @ P @ used.T
    S = S + np.diag(noise**2 + 1e-12 * np.diag(S))
    gain = np.linalg.solve(S, used @ P).T
    return np.asarray(gain), np.eye(len(P)) - gain @ J


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


def sampling_error(query: ComponentScores, free: FloatArray, n: float) -> FloatArray:
    """Covariance of the parameters that n rows leave, without noise: J⁻¹ Cov(T) J⁻ᵀ / n."""
    full, spread = jacobian(query)
    inverse = np.linalg.pinv(free.T @ full @ free, rcond=1e-8)
    return np.asarray(free @ inverse @ (free.T @ spread @ free) @ inverse.T @ free.T / n)


def free_directions(theta: Components, fixed: FloatArray | None) -> FloatArray:
    """All parameters, or those that keep ``fixed``·regression as it is for every regression."""
    K, p = theta.shape
    if fixed is None:
        return np.eye(K * (p + 2))
    kept = np.linalg.svd(fixed[None, :])[2][1:].T
    block = np.zeros((p + 2, p + 1))
    block[0, 0] = block[-1, -1] = 1.0
    block[1:-1, 1:-1] = kept
    return np.asarray(np.kron(np.eye(K), block), dtype=float)
