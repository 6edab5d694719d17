"""The score query: the whitened score of every row at θ, clipped by its norm.

Why whitened by J^(−1/2), J the information of one row: scores released with noise of variance τ²·I in the coordinates
W·S move θ by (WJ)⁻¹ times the noise, and cost ½τ²·tr((WJ)⁻ᵀJ(WJ)⁻¹) = ½τ²·tr(W⁻²J⁻¹) in mean log-likelihood, where
τ² is proportional to the squared norm that is clipped at, about E‖WS‖² = tr(W²J). By Cauchy–Schwarz the product
tr(W²J)·tr(W⁻²J⁻¹) is at least p², which W² = J⁻¹ reaches.
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


#: Rows that are drawn from θ at least, to see the information of the model's own rows.
LEAST_DRAWN = 4000
#: Added to the information before whitening.
RIDGE = 0.002
#: A radius that clips no row.
NOT_CLIPPED = 1e9


@dataclass(frozen=True)
class ScoreQuery(NarrowQuery):
    """Σ over rows of W·S(row; θ), scaled into the ball of radius R.

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
        return xp.matmul(self.family.scores(xp, self.theta, x), like(xp, self.whitener, x))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        return sum_in_ball(xp, self.whitened(xp, self.family.with_response(xp, x, y)), self.radius)

    def each(self, xp: Namespace, x: Array) -> Array:
        """What each row contributes (m × p)."""
        return into_ball(xp, self.whitened(xp, x), self.radius)

    def kept(self, x: FloatArray, weights: FloatArray) -> float:
        """E[ψ·WS]/E‖WS‖², ψ the clipped WS: the part of a small move of θ that the mean of ψ shows, over all
        directions. Noise s in the answer is worth noise s/kept in scores that are not clipped.
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
    levels: Sequence[float] = (0.9,),
    noise: float = 0.0,
) -> ScoreQuery:
    """The score query at θ: whitened by the mean of the information of the surrogate rows and that of rows drawn from
    θ, and clipped at one of the ``levels``, quantiles of the norms of the surrogate rows: the one that costs least.
    Public: nothing but released numbers goes in.

    ``noise`` is the standard deviation of the answer per unit of radius. A smaller radius R has less noise, τ = noise·R
    over the part of a move of θ that the clipped score shows; but the less of the score it explains, 1 − r² for the
    correlation r of clipped and whole scores, the more of the solution is left to the scatter of the weighted rows.
    Their effective number is 1/Σw². The cost is τ² + (1 − r²)·Σw².
    """
    own = np.asarray(family.scores(numpy_api, theta, x))
    model = np.asarray(family.scores(numpy_api, theta, family.draw(theta, max(len(x), LEAST_DRAWN), rng)))
    even = np.full(len(model), 1 / len(model))
    W = whitener(0.5 * information(own, weights) + 0.5 * information(model, even))
    norms = np.linalg.norm(own @ W, axis=1)
    size, scatter = float(weights @ norms**2), float(weights @ weights)

    def cost(radius: float) -> float:
        clipped = np.minimum(norms, radius)
        both, square = float(weights @ (clipped * norms)), float(weights @ clipped**2)
        return (noise * radius * size / both) ** 2 + (1 - both**2 / (square * size)) * scatter

    order = np.argsort(norms)
    places = np.searchsorted(np.cumsum(weights[order]), np.array(levels) * weights.sum())
    radii = np.maximum(norms[order[np.minimum(places, len(order) - 1)]], 1e-6)
    return ScoreQuery(schema, family, theta, W, min(radii.tolist(), key=cost))
