"""The score query: the whitened score of every row at θ, clipped by its norm.

Why whitened by W = J^(−1/2), J the information of one row: scores released with noise of variance τ²·I in the
coordinates W·S move θ by (WJ)⁻¹ times the noise, and cost ½τ²·tr((WJ)⁻ᵀJ(WJ)⁻¹) = ½τ²·tr(W⁻²J⁻¹) in mean
log-likelihood. τ² is proportional to the squared radius of the clip, about E‖WS‖² = tr(W²J). By Cauchy–Schwarz the
product tr(W²J)·tr(W⁻²J⁻¹) is at least p², which W² = J⁻¹ attains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.fitting.surrogate.em import Family
from dpem.queries.narrow import NarrowQuery, into_ball, rounded, sum_in_ball
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like
from dpem.tables.schema import Schema

Theta = TypeVar("Theta")

#: The least number of rows that are drawn from θ to compute the model's own information.
LEAST_DRAWN = 4000
#: Added to the eigenvalues of the information, which are near 1, before whitening: it bounds the whitener.
RIDGE = 0.002
#: A radius that clips no row.
NOT_CLIPPED = 1e9


@dataclass(frozen=True)
class ScoreQuery(NarrowQuery):
    """Σ over rows of ψ, the whitened score W·S(row; θ) scaled into the ball of radius R.

    *Lemma.* Replacing a row moves the sum by at most 2R, whatever the scores, the whitener and the row are. *Proof.*
    Every contribution is in the ball of radius R: it is scaled by a factor computed from itself, and one that is not
    finite is 0 (:func:`~dpem.queries.narrow.into_ball`). Two points of the ball are at most 2R apart. ∎
    """

    family: Family[Any] = field(repr=False)
    theta: Any = field(repr=False)
    whitener: FloatArray = field(repr=False)
    radius: float

    @property
    def label(self) -> str:
        return f"score of {len(self.whitener)} parameters, whitened, of norm at most {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return rounded(Bound.symmetric(l2=self.radius), len(self.whitener))

    @property
    def numbers_per_row(self) -> int:
        return len(self.whitener)

    def whitened(self, xp: Namespace, x: Array) -> Array:
        """W·S of each row (m × p), not clipped."""
        return xp.matmul(self.family.scores(xp, self.theta, x), like(xp, self.whitener, x))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        return sum_in_ball(xp, self.whitened(xp, self.family.with_response(xp, x, y)), self.radius)

    def each(self, xp: Namespace, x: Array) -> Array:
        """ψ of each row (m × p)."""
        return into_ball(xp, self.whitened(xp, x), self.radius)

    def retained(self, x: FloatArray, weights: FloatArray) -> float:
        """E[ψ·WS]/E‖WS‖², the factor by which clipping shrinks the effect of a small move of θ on the mean score, on
        average over directions. Noise s in the answer is like noise s/retained in scores that are not clipped.
        """
        norms = np.linalg.norm(self.whitened(numpy_api, x), axis=1)
        clipped = np.minimum(norms, self.radius)
        return float(weights @ (clipped * norms)) / max(float(weights @ norms**2), 1e-300)


def information(scores: FloatArray, weights: FloatArray) -> FloatArray:
    """E[SSᵀ] over weighted rows."""
    return np.asarray(scores.T @ (weights[:, None] * scores))


def whitener(information: FloatArray) -> FloatArray:
    """(J + ridge·I)^(−1/2), symmetric."""
    values, axes = np.linalg.eigh(information)
    return np.asarray((axes * (np.maximum(values, 0.0) + RIDGE) ** -0.5) @ axes.T)


def score_query(
    schema: Schema,
    family: Family[Theta],
    theta: Theta,
    x: FloatArray,
    weights: FloatArray,
    rng: np.random.Generator,
    quantiles: Sequence[float] = (0.9,),
    noise: float = 0.0,
    query_type: type[ScoreQuery] = ScoreQuery,
) -> ScoreQuery:
    """The score query at θ, from released numbers only.

    It is whitened by the mean of two informations: of the surrogate rows x with their weights, and of rows drawn from
    θ. The radius is one of the ``quantiles`` of the norms of the surrogate rows, the one of least cost, where
    ``noise`` is the standard deviation of the answer per unit of radius:

        cost(R) = (noise·R / retained)² + (1 − r²)·Σw²

    The first term is the error by noise. The second is what the answer leaves open: the clipped score explains the
    part r² of the score, r their correlation, and elsewhere the solution keeps the sampling error of the weighted rows,
    whose effective number is 1/Σw².
    """
    scores = np.asarray(family.scores(numpy_api, theta, x))
    drawn = np.asarray(family.scores(numpy_api, theta, family.draw(theta, max(len(x), LEAST_DRAWN), rng)))
    equal_weights = np.full(len(drawn), 1 / len(drawn))
    W = whitener(0.5 * information(scores, weights) + 0.5 * information(drawn, equal_weights))
    norms = np.linalg.norm(scores @ W, axis=1)
    whole, sampling = float(weights @ norms**2), float(weights @ weights)

    def cost(radius: float) -> float:
        clipped = np.minimum(norms, radius)
        cross, square = float(weights @ (clipped * norms)), float(weights @ clipped**2)
        return (noise * radius * whole / cross) ** 2 + (1 - cross**2 / (square * whole)) * sampling

    order = np.argsort(norms)
    places = np.searchsorted(np.cumsum(weights[order]), np.array(quantiles) * weights.sum())
    radii = np.maximum(norms[order[np.minimum(places, len(order) - 1)]], 1e-6)
    return query_type(schema, family, theta, W, min(radii.tolist(), key=cost))
