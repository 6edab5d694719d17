"""Newton steps for K components: from noisy scores to better components, and how far off they still are.

With T the clipped whitened score of a row and J = E T·sᵀ (s the whole score), the components that explain a mean T̄ are
J⁻¹(T̄ − E T) away. That is weighed, as in a Kalman filter, against how far off the components are expected to be: where
the noise says nothing, nothing moves. E T and J are those of rows that follow the components.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.fitting.surrogate import NOT_CLIPPED, ScoreQuery, information, whitener
from dpem.models.mixture_regression.components import Components
from dpem.models.mixture_regression.family import RegressionFamily, simulated_rows
from dpem.privacy import Curator
from dpem.queries.narrow import into_ball
from dpem.query import FloatArray
from dpem.tables.schema import Schema

#: The standard errors that a regression from moments is expected to have: coefficients (in spreads), log spread.
START_ERROR = (0.25, 0.2)
#: The part of a step's length that is left as error because the problem is not linear.
CURVED = 0.3
#: The part of rows that follow the components whose scores are not clipped.
KEPT = 0.9


@dataclass(frozen=True)
class Estimate:
    """Components, and the covariance of their error (noise and start, not sampling) in the family's parameters."""

    theta: Components
    error: FloatArray


@dataclass(frozen=True)
class ExpectedScores:
    """What a score query shows of rows that follow its components: mean and covariance of a row's contribution T, and
    the derivative J = E T·sᵀ of the mean by the parameters.
    """

    query: ScoreQuery
    mean: FloatArray
    covariance: FloatArray
    jacobian: FloatArray

    @classmethod
    def at(
        cls, schema: Schema, family: RegressionFamily, theta: Components, *, clipped: bool = True, n: int = 1500
    ) -> ExpectedScores:
        """Of the query at θ that is whitened by, and clipped for, simulated rows."""
        v, t, weight = simulated_rows(theta, n)
        score = np.asarray(family.scores_of(numpy_api, theta, v, t, np.ones(len(t))))
        W = whitener(information(score, weight))
        whole = score @ W
        norms, radius = np.linalg.norm(whole, axis=1), NOT_CLIPPED
        if clipped:
            order = np.argsort(norms)
            radius = float(norms[order[np.searchsorted(np.cumsum(weight[order]), KEPT)]])
        T = np.asarray(into_ball(numpy_api, whole, radius))
        mean, moments, jacobian = weight @ T, information(T, weight), (weight[:, None] * T).T @ score
        return cls(ScoreQuery(schema, family, theta, W, radius), mean, moments - np.outer(mean, mean), jacobian)

    def gain(self, P: FloatArray, noise: float) -> tuple[FloatArray, FloatArray]:
        """What an answer's distance from its mean is multiplied by, where components are off by errors of covariance P;
        and what of an error it leaves.
        """
        S = self.jacobian @ P @ self.jacobian.T
        S = S + np.diag(noise**2 + 1e-12 * np.diag(S) + 1e-300)
        gain = np.linalg.solve(S, self.jacobian @ P).T
        return np.asarray(gain), np.eye(len(P)) - gain @ self.jacobian

    def error(self, covariance: FloatArray) -> FloatArray:
        """J⁻¹CJ⁻ᵀ: the covariance of the parameters where the mean of the contributions has covariance C."""
        inverse = np.linalg.pinv(self.jacobian, rcond=1e-8)
        return np.asarray(inverse @ covariance @ inverse.T)

    def improved(self, now: Estimate, answer: FloatArray, noise: float) -> Estimate:
        """The components after one noisy answer."""
        P, family = now.error, self.query.family
        assert isinstance(family, RegressionFamily)
        gain, left = self.gain(P, noise)
        step = family.within_reach(gain @ (answer - self.mean))
        P = left @ P @ left.T + noise**2 * gain @ gain.T
        shares, coefficients, spreads = family.parts(step)
        slopes = np.repeat(np.mean(coefficients**2, axis=1), coefficients.shape[1])
        curved = CURVED**2 * np.concatenate([shares**2, slopes, 2 * spreads**2])
        return Estimate(family.moved(now.theta, step), (P + P.T) / 2 + np.diag(curved))


def asked(
    curator: Curator, schema: Schema, family: RegressionFamily, now: Estimate, rho: float, present: float
) -> Estimate:
    """The components after the score at these was asked for; ``present`` is the share of rows with a response."""
    expected = ExpectedScores.at(schema, family, now.theta, clipped=math.isfinite(rho))
    answer, noise = curator.measure(expected.query, rho), curator.noise_scale(expected.query, rho)
    return expected.improved(now, answer / present, noise / present)
