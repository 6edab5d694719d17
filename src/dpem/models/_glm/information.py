"""The information of the rows about the coefficients, released where the surrogate's is round.

The surrogate follows correlations only as far as the noise of the moments lets it. In coordinates in which its own
information is the same in all directions, the noise of another release is small beside the information of directions
that are nearly collinear, too. The surrogate rows are then moved and stretched linearly until they agree with it,
in directions where they differ by more than noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import Step
from dpem.models._glm.combine import combined, placed
from dpem.models._glm.families import Family
from dpem.models._glm.queries import Predictor, complete, second_moments_bound
from dpem.models._glm.steps import GlmState, prior_of
from dpem.models._glm.surrogate import Surrogate
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows, product
from dpem.queries.narrow import NarrowQuery, into_ball, packed, unpacked
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like

#: Rows are clipped at so many times their expected length.
RADIUS = 1.2
#: Directions are changed if they differ by more than the largest eigenvalue of noise, and so many standard deviations.
BEYOND = 2.0
#: The relative noise above which the release is not used, and the surrogate stays as it is.
RESOLVED = 0.8
#: Surrogate rows with a smaller total variance, in whitened coordinates, are all alike: nothing can be corrected.
TINY = 1e-9
#: By how much errors are widened, at most, in directions whose information is hidden by noise.
WIDEST = 5.0


@dataclass(frozen=True)
class Information(NarrowQuery):
    """Σ vvᵀ, packed, over complete rows, with v = √V(η)·turn·(1, u) scaled into a ball.

    *Lemma.* ℓ2 sensitivity √2·radius², as for :class:`~dpem.models._glm.queries.Moments`, whose proof holds. ∎
    """

    family: Family = field(repr=False)
    predictor: Predictor = field(repr=False)
    turn: FloatArray = field(repr=False)
    radius: float

    @property
    def label(self) -> str:
        return f"information of the regression, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return second_moments_bound(self.radius, len(self.turn))

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        rows, _, seen = complete(xp, self.family, x, y, shares)
        a = product(xp, rows, self.turn[:, 1:].T) + like(xp, self.turn[:, 0], x)
        v = into_ball(xp, a, self.radius, xp.sqrt(self.family.variance(xp, self.predictor(xp, rows))))
        return packed(xp, over_rows(xp, v * seen[:, None], v))


@dataclass(frozen=True)
class FindInformation(Step):
    """The information at the present coefficients, and surrogate rows that have it."""

    def describe(self) -> str:
        return "information of the regression"

    def run(self, curator: Curator, model: Any, state: GlmState) -> GlmState:
        now, model = state.current(), model.on(state.chosen)
        if math.isinf(self.rho):
            return state
        assert now.surrogate is not None
        assert now.posterior is not None
        coef = now.posterior.coef
        predictor = model.predictor(placed(coef, model.free, model.offset))
        V = now.family.variance(np, predictor(np, now.surrogate.rows[:, 1:]))
        turn, radius = whitening(now.surrogate, model.free, V)
        query = Information(model.schema, now.family, predictor, turn, radius)
        noise = curator.noise_scale(query, self.rho) / now.surrogate.complete
        released = unpacked(curator.measure(query, self.rho), len(turn)) / now.surrogate.complete
        rows = corrected(now.surrogate, model.free, V, turn, radius, released, noise)
        now = replace(now, surrogate=rows)
        prior = prior_of(model, now)
        posterior = combined(now.scores, rows, model.free, prior, coef, curator.effective_rows)
        return replace(state, progress=replace(now, prior=prior, posterior=posterior))


def whitening(surrogate: Surrogate, free: NDArray[np.intp], V: FloatArray) -> tuple[FloatArray, float]:
    """Coordinates in which the surrogate's information is round, the first being the intercept, and the clip."""
    X = surrogate.rows[:, free]
    J = (X * V[:, None]).T @ X / len(X)
    root = np.linalg.cholesky(J + 1e-9 * np.trace(J) * np.eye(len(J)))
    turn = np.zeros((len(free), surrogate.rows.shape[1]))
    turn[:, free] = np.linalg.inv(root) * math.sqrt(float(V.mean()))
    return turn, RADIUS * math.sqrt(len(free) * float(V.mean()))


def corrected(
    surrogate: Surrogate,
    free: NDArray[np.intp],
    V: FloatArray,
    turn: FloatArray,
    radius: float,
    released: FloatArray,
    noise: float,
) -> Surrogate:
    """The surrogate with its weighted means and covariances moved to the released ones where they clearly differ."""
    a = surrogate.rows @ turn.T
    v = a * np.sqrt(V)[:, None]
    v *= np.minimum(1.0, radius / np.linalg.norm(v, axis=1))[:, None]
    (here, mean, spread), (there, new_mean, new_spread) = (_parts(each) for each in (v.T @ v / len(v), released))
    if there < here / 4 or not np.all(np.isfinite(spread)) or not np.trace(spread) > TINY:
        return surrogate
    p = len(mean)
    values, vectors = np.linalg.eigh(spread)
    root = vectors / np.sqrt(np.maximum(values, 1e-3 * values[-1])) @ vectors.T
    ratios, turned = np.linalg.eigh(root @ new_spread @ root)
    mean_error = noise / math.sqrt(2) / max(there, here / 2)
    blur = mean_error / float(np.mean(values))
    # the spectrum of noise reaches 2√p; where columns seemed collinear, a small ratio is expected and needs less proof
    edge = blur * ((1 if any(surrogate.collinear) else 2) * math.sqrt(p) + BEYOND)
    if edge > RESOLVED:
        return surrogate
    kept = np.where(np.abs(ratios - 1) > edge, np.maximum(ratios, edge / 2), 1.0)
    shift = new_mean - mean
    size = float(np.linalg.norm(shift))
    shift = shift * (1 - p * (mean_error / size) ** 2) if size > mean_error * (math.sqrt(p) + BEYOND) else 0 * shift
    hidden = (ratios < edge) & (kept != 1)  # information that is no larger than its noise
    wider = np.where(hidden, kept / np.maximum(ratios - blur, kept / WIDEST), 1.0)
    stretch = np.eye(p + 1)
    stretch[1:, 1:] = turned * wider @ turned.T
    T = turn[:, free].T
    collinear = _loading(turned[:, hidden], turn, free, surrogate)
    moved = a[:, 1:] @ (turned * (np.sqrt(kept) - 1)) @ turned.T + shift
    rows = surrogate.rows.copy()
    rows[:, free[1:]] += moved @ np.linalg.inv(turn[1:, free[1:]]).T
    return replace(surrogate, rows=rows, collinear=collinear, stretch=T @ stretch @ np.linalg.inv(T))


def _parts(second: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Of second moments with the intercept first: the weight, and weighted means and covariances."""
    weight = max(float(second[0, 0]), 1e-9)
    mean = second[0, 1:] / weight
    return weight, mean, second[1:, 1:] / weight - np.outer(mean, mean)


def _loading(
    directions: FloatArray, turn: FloatArray, free: NDArray[np.intp], surrogate: Surrogate
) -> tuple[bool, ...]:
    """Which columns make up these directions of whitened coordinates: those with at least half the largest part."""
    found = np.zeros(surrogate.rows.shape[1] - 1, dtype=bool)
    part = np.abs(turn[1:, free[1:]].T @ directions) * surrogate.rows[:, free[1:]].std(axis=0)[:, None]
    found[free[1:] - 1] = (part > 0.5 * part.max(axis=0, initial=0.0)).any(axis=1)
    return tuple(map(bool, found))
