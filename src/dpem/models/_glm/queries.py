"""Queries of generalised linear models: second moments of the columns, and scores at given coefficients.

Rows are in unit coordinates u in [−1, 1]. Only complete rows contribute, as in R's ``glm``: a row with a missing
covariate or response adds 0, and so does a row with a level that is too rare to be estimated.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from dpem.models._glm.families import LARGEST_PREDICTOR, Family
from dpem.queries.block_loop import over_rows, product
from dpem.queries.narrow import (
    NarrowQuery,
    gram_bound,
    into_ball,
    packed,
    rounded,
    squares,
    sum_in_ball,
    weighted,
    zero_nonfinite,
)
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class Predictor:
    """The public linear predictor η = coef·(1, u) + log(middle + half·u_exposure).

    Without an exposure (−1) there is no last term. ``rare`` are the coordinates of levels whose rows are left out.
    """

    coef: FloatArray
    exposure: int = -1
    middle: float = 0.0
    half: float = 1.0
    rare: tuple[int, ...] = ()

    def __call__(self, xp: Namespace, x: Array) -> Array:
        """η of complete rows, within ±:data:`~dpem.models._glm.families.LARGEST_PREDICTOR`."""
        eta = xp.matmul(x, like(xp, self.coef[1:], x)) + float(self.coef[0])
        if self.exposure >= 0:
            eta = eta + xp.log(self.middle + self.half * x[:, self.exposure])
        return xp.clip(eta, -LARGEST_PREDICTOR, LARGEST_PREDICTOR)


def complete(
    xp: Namespace, family: Family, x: Array, y: Array, shares: Array = None, rare: tuple[int, ...] = ()
) -> tuple[Array, Array, Array]:
    """Rows and responses with missing values replaced by 0, and the weights of the rows.

    The weight of a row that is incomplete or has a ``rare`` level is 0.
    """
    response = family.response(xp, y)
    if isinstance(x, np.ndarray) and not rare and not np.isnan(np.sum(x)) and not np.isnan(np.sum(response)):
        return x, response, np.ones(len(x)) if shares is None else shares
    omitted = xp.any(xp.isnan(x), axis=1) | xp.isnan(response)
    for j in rare:
        omitted = omitted | (x[:, j] > 0.0)
    return zero_nonfinite(xp, x), zero_nonfinite(xp, response), weighted(xp.astype(~omitted, xp.float64), shares)


@dataclass(frozen=True)
class RowQuery(NarrowQuery):
    """A query of complete rows at given coefficients."""

    family: Family = field(repr=False)
    predictor: Predictor = field(repr=False)

    def complete_rows(
        self, xp: Namespace, x: Array, y: Array, shares: Array = None
    ) -> tuple[Array, Array, Array, Array]:
        """Rows, responses, predictors and weights, as :func:`complete` has them."""
        rows, response, weight = complete(xp, self.family, x, y, shares, self.predictor.rare)
        return rows, response, self.predictor(xp, rows), weight


@dataclass(frozen=True)
class SecondMoments(NarrowQuery):
    """Σ vvᵀ, packed, over complete rows, with each v scaled into a ball (:func:`~dpem.queries.narrow.gram_bound`)."""

    family: Family = field(repr=False)
    radius: float

    @abstractmethod
    def vectors(self, xp: Namespace, rows: Array) -> Array:
        """The vectors v of complete rows, within the ball."""

    @property
    def rare(self) -> tuple[int, ...]:
        """Levels that are left out."""
        return ()

    @property
    def width(self) -> int:
        """The length of v."""
        return int(self.schema.width) + 1

    @property
    def bound(self) -> Bound:
        return gram_bound(self.radius, self.width + 1)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        rows, _, weight = complete(xp, self.family, x, y, shares, self.rare)
        v = self.vectors(xp, rows)
        return packed(xp, over_rows(xp, v * weight[:, None], v))


@dataclass(frozen=True)
class Moments(SecondMoments):
    """Second moments of v = (1, (u − centre)/spread)."""

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return f"second moments of the columns, norm clipped at {self.radius:.4g}"

    def vectors(self, xp: Namespace, rows: Array) -> Array:
        z = (rows - like(xp, self.centre, rows)) / like(xp, self.spread, rows)
        return into_ball(xp, xp.concat([xp.ones_like(z[:, :1]), z], axis=1), self.radius)


@dataclass(frozen=True)
class Information(SecondMoments):
    """Second moments of v = √V(η)·W·(1, u), W the ``whitening``."""

    predictor: Predictor = field(repr=False)
    whitening: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return f"information of the regression, norm clipped at {self.radius:.4g}"

    @property
    def width(self) -> int:
        return len(self.whitening)

    @property
    def rare(self) -> tuple[int, ...]:
        return self.predictor.rare

    def vectors(self, xp: Namespace, rows: Array) -> Array:
        a = product(xp, rows, self.whitening[:, 1:].T) + like(xp, self.whitening[:, 0], rows)
        return into_ball(xp, a, self.radius, xp.sqrt(self.family.variance(xp, self.predictor(xp, rows))))


@dataclass(frozen=True)
class Score(RowQuery):
    """Σ r·a over complete rows: a = W·(1, u), W the ``whitening``, r the residual, which the family clips at clip/‖a‖.

    *Lemma.* ℓ2 sensitivity 2·clip. *Proof.* The whole contribution is scaled into the ball of radius ``clip`` after it
    is computed. But for rounding it lies there already: ‖r·a‖ ≤ clip·‖a‖/‖a‖. ∎
    """

    whitening: FloatArray = field(repr=False)
    clip: float

    @property
    def label(self) -> str:
        return f"score of the regression, norm clipped at {self.clip:.4g}"

    @property
    def bound(self) -> Bound:
        return rounded(Bound.symmetric(l2=self.clip), len(self.whitening))

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        rows, response, eta, weight = self.complete_rows(xp, x, y, shares)
        a = product(xp, rows, self.whitening[:, 1:].T) + like(xp, self.whitening[:, 0], x)
        size = xp.sqrt(squares(xp, a))
        return sum_in_ball(xp, a, self.clip, weight * self.family.residual(xp, response, eta, self.clip / size), size)


@dataclass(frozen=True)
class Likelihood(RowQuery):
    """Σ (1, y, log p, (y − μ)·b, V·bbᵀ packed) over complete rows, b = (1, u of the ``free`` coordinates).

    Rows with weights w also add w²(y − μ)²·bbᵀ. The sensitivity is unbounded, so a curator answers it only at ε = ∞.
    """

    free: tuple[int, ...] = field(repr=False)
    label: str = "log-likelihood, score and information (reference only)"

    @property
    def bound(self) -> Bound:
        return Bound()

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        rows, response, eta, weight = self.complete_rows(xp, x, y, shares)
        b = xp.concat([xp.ones_like(rows[:, :1]), rows[:, list(self.free)]], axis=1)
        mean, variance = self.family.mean(xp, eta), self.family.variance(xp, eta)
        first = xp.stack([xp.sum(weight), xp.sum(weight * response)])
        value = xp.sum(weight * self.family.log_density(xp, eta, response))
        score = over_rows(xp, weight * (response - mean), b)
        meat = (
            () if shares is None else (packed(xp, over_rows(xp, b * ((weight * (response - mean)) ** 2)[:, None], b)),)
        )
        bread = packed(xp, over_rows(xp, b * (weight * variance)[:, None], b))
        return xp.concat([first, value[None], score, bread, *meat])
