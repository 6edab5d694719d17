"""Scores of the components at several parameters, and the estimate that combines all of them.

The score query at θ_t has the mean J_t·(θ − θ_t), to first order, where θ are the components that the rows follow and
J_t is the derivative of the mean. All answers a_t together estimate θ by weighted least squares around a start θ₀:

    minimise Σ_t ‖a_t − J_t·(θ − θ_t)‖²/σ_t² + (θ − θ₀)ᵀP⁻¹(θ − θ₀),
    σ_t² = noise_t² + (c·‖θ − θ_t‖)²,

with ‖θ − θ_t‖ in standard errors of one row. The second part of σ_t² is there because the score is not linear in θ, and
because J_t is computed for normal columns. So a score far from the estimate counts little, and one near it fully.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.fitting.surrogate import NOT_CLIPPED, ScoreQuery, information, whitener
from dpem.models.mixture_regression.components import Components
from dpem.models.mixture_regression.family import RegressionFamily, simulated_rows
from dpem.models.mixture_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.narrow import into_ball
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like
from dpem.tables.schema import Schema

#: Nodes and weights of the Gauss–Hermite rule for expectations over a standard normal error.
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
#: The fraction of simulated rows whose scores are not clipped.
UNCLIPPED = 0.9
#: Pairs of simulated rows from which the mean, covariance and derivative of a score are computed.
SIMULATED_PAIRS = 600
#: The weights σ_t⁻² depend on θ, so the least-squares problem is solved this many times.
ROUNDS = 4
#: The least σ_t: without privacy there is no noise.
LEAST_NOISE = 1e-6
#: Added to the information of one row, which is singular if two components are equal.
LEAST_INFORMATION = 1e-9


@dataclass(frozen=True)
class CenteredScore(ScoreQuery):
    """Σ of ψ − E_θ[ψ | x] over the rows, scaled into the ball of radius R; ψ is the whitened score, clipped.

    Clipping biases the score: where rows follow θ the mean of ψ is not 0, and it depends on the distribution of the
    columns, which nobody knows. Given x the response is a known mixture of normals, so E_θ[ψ | x] can be subtracted row
    by row, and the mean is 0 at the true θ whatever the columns are, but for the few rows that the ball then clips.

    *Lemma.* The sensitivity is that of :class:`~dpem.fitting.surrogate.scores.ScoreQuery`, 2R. *Proof.* The difference
    is scaled into the ball of radius R after it was computed, whatever its parts are; one that is not finite is 0. ∎
    """

    family: RegressionFamily = field(repr=False)

    @property
    def numbers_per_row(self) -> int:
        return 2 * len(self.whitener)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        return xp.sum(self.each(xp, self.family.with_response(xp, x, y)), axis=0)

    def each(self, xp: Namespace, x: Array) -> Array:
        return self.each_of(xp, *self.family.rows(xp, x))

    def each_of(self, xp: Namespace, v: Array, t: Array, present: Array) -> Array:
        """The contributions of rows with these coordinates (see :meth:`RegressionFamily.rows`)."""
        family, theta, W = self.family, self.theta, like(xp, self.whitener, v)

        def psi(responses: Array) -> Array:
            return into_ball(xp, xp.matmul(family.scores_of(xp, theta, v, responses, present), W), self.radius)

        fitted = xp.matmul(v, like(xp, theta.coefficients.T, v))
        expected = sum(
            float(weight * node_weight) * psi(fitted[:, k] + float(spread * node))
            for k, (weight, spread) in enumerate(zip(theta.weights, theta.spreads, strict=True))
            for node, node_weight in zip(NODES, NODE_WEIGHTS / NODE_WEIGHTS.sum(), strict=True)
        )
        return into_ball(xp, psi(t) - expected, self.radius)


@dataclass(frozen=True)
class ExpectedScores:
    """A score query on rows that follow its components: the covariance of a row's contribution ψ, the derivative
    J = E[ψ·sᵀ] of the mean by θ, where s is the score, and the information E[s·sᵀ].
    """

    query: CenteredScore
    covariance: FloatArray
    jacobian: FloatArray
    information: FloatArray

    @classmethod
    def at(cls, schema: Schema, family: RegressionFamily, theta: Components, *, clipped: bool = True) -> ExpectedScores:
        """The query at θ that is whitened by, and clipped for, rows that follow θ."""
        v, t, weight = simulated_rows(theta, SIMULATED_PAIRS)
        score = np.asarray(family.scores_of(numpy_api, theta, v, t, np.ones(len(t))))
        W = whitener(information(score, weight))
        norms, radius = np.linalg.norm(score @ W, axis=1), NOT_CLIPPED
        if clipped:
            order = np.argsort(norms)
            radius = float(norms[order[np.searchsorted(np.cumsum(weight[order]), UNCLIPPED)]])
        return cls.of(CenteredScore(schema, family, theta, W, radius))

    @classmethod
    def of(cls, query: object) -> ExpectedScores:
        """A given query, on rows that follow its components."""
        assert isinstance(query, CenteredScore)
        family, theta = query.family, query.theta
        v, t, weight = simulated_rows(theta, SIMULATED_PAIRS)
        everywhere = np.ones(len(t))
        score = np.asarray(family.scores_of(numpy_api, theta, v, t, everywhere))
        psi = np.asarray(query.each_of(numpy_api, v, t, everywhere))
        mean = weight @ psi
        covariance = information(psi, weight) - np.outer(mean, mean)
        of_row = information(score, weight) + LEAST_INFORMATION * np.eye(family.count)
        return cls(query, covariance, (weight[:, None] * psi).T @ score, of_row)

    def error(self, covariance: FloatArray) -> FloatArray:
        """J⁻¹CJ⁻ᵀ: the covariance of θ where the mean score has covariance C."""
        inverse = np.linalg.pinv(self.jacobian, rcond=1e-8)
        return np.asarray(inverse @ covariance @ inverse.T)


class ScoreAnswer(NamedTuple):
    """A noisy mean score, and the standard deviation of its noise."""

    expected: ExpectedScores
    mean: FloatArray
    noise: float


@dataclass(frozen=True)
class Estimate:
    """Components, and the covariance of their error by noise, without that of sampling, in the family's parameters."""

    theta: Components
    error: FloatArray


def ask_score(
    curator: Curator, schema: Schema, family: RegressionFamily, theta: Components, rho: float, present: float
) -> ScoreAnswer:
    """Ask for the score at θ; ``present`` is the share of rows with a response, over which it is a mean."""
    expected = ExpectedScores.at(schema, family, theta, clipped=math.isfinite(rho))
    mean, noise = curator.measure(expected.query, rho), curator.noise_scale(expected.query, rho)
    return ScoreAnswer(expected, mean / present, noise / present)


def combined_estimate(family: RegressionFamily, prior: Estimate, answers: Iterable[ScoreAnswer]) -> Estimate:
    """The weighted least squares of the module's formula; ``prior`` holds θ₀ and P."""
    theta, prior_precision = prior.theta, np.linalg.inv(prior.error)
    answers = tuple(answers)
    for _ in range(ROUNDS):
        precision = prior_precision.copy()
        gradient = -prior_precision @ family.difference(theta, prior.theta)
        for expected, mean, noise in answers:
            J, delta = expected.jacobian, family.difference(theta, expected.query.theta)
            distance2 = float(delta @ expected.information @ delta) / len(delta)
            variance = max(noise, LEAST_NOISE) ** 2 + TUNING.nonlinear**2 * distance2
            precision += J.T @ J / variance
            gradient += J.T @ (mean - J @ delta) / variance
        theta = family.moved(theta, family.within_reach(np.linalg.solve(precision, gradient)))
    return Estimate(theta, np.linalg.inv(precision))
