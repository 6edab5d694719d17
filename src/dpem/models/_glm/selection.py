"""The choice of columns of a wide table for a generalised linear model; no scale of a column is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.model import Sizes
from dpem.fitting.selection import (
    ChooseColumns,
    KeepColumns,
    ScaledResiduals,
    best_columns,
    miss_probability,
    round_sizes,
)
from dpem.models._glm.families import Family
from dpem.models._glm.posterior import full_coefficients
from dpem.models._glm.queries import Predictor, complete
from dpem.models._glm.steps import GlmState
from dpem.models._glm.surrogate import Surrogate
from dpem.privacy import Curator
from dpem.query import Array, FloatArray, Namespace

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel

#: Rounds of choice, and the columns that are chosen for each that is kept.
ROUNDS, CHOSEN_PER_KEPT = 2, 1.4
#: The standard deviation of the linear predictor that a plan assumes.
USUAL_EFFECT = 1.0
#: The mean of x over the upper half of a standard normal column, φ(0): its best threshold's score for a unit slope.
NORMAL_SCORE = 0.4


def columns_per_round(sparsity: int, width: int) -> list[int]:
    """The number of columns that each round chooses."""
    return round_sizes(min(math.ceil(CHOSEN_PER_KEPT * sparsity), width), ROUNDS)


def predicted_miss(family: Family, sizes: Sizes, steps: Sequence[ChooseColumns], width: int) -> float:
    """The probability that the choice misses a column, if the columns have equal shares of the predictor's variance.

    The score of a normal column is about φ(0)·V·coefficient over the limit of a residual.
    """
    columns, zero = sum(step.columns for step in steps), np.zeros(1)
    coefficient = (USUAL_EFFECT if sizes.effect is None else sizes.effect) / math.sqrt(columns)
    residual_slope = float((family.variance(np, zero) / family.residual_limit(np, zero))[0])
    signal = NORMAL_SCORE * coefficient * residual_slope
    return miss_probability(signal, math.fsum(step.rho for step in steps), columns, sizes, width)


@dataclass(frozen=True)
class FamilyResiduals(ScaledResiduals):
    """Residuals from the fit on the ``chosen`` columns, divided by their limit, of complete rows."""

    family: Family = field(repr=False)
    predictor: Predictor = field(repr=False)
    chosen: NDArray[np.intp] = field(repr=False)

    def scaled(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
        columns = xp.stack([x[:, int(j)] for j in self.chosen], axis=1) if len(self.chosen) else xp.zeros_like(x[:, :0])
        rows, response, weight = complete(xp, self.family, columns, y)
        eta = self.predictor(xp, rows)
        limit = self.family.residual_limit(xp, eta)
        return weight * self.family.residual(xp, response, eta, limit) / limit, weight


@dataclass(frozen=True)
class KeepBest(KeepColumns):
    """Keep the chosen columns that the others can replace least, and set the other coefficients to 0."""

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        submodel, chosen, theta = model.restricted_to(state.chosen), state.chosen, state.theta
        assert chosen is not None
        covariance, coef = theta.sampling + theta.privacy, np.concatenate([[theta.intercept], theta.coef])
        best = 1 + best_columns(np.linalg.pinv(covariance[1:, 1:]), coef[submodel.free[1:]], self.columns)
        dropped = np.setdiff1d(np.arange(1, len(submodel.free)), best)
        T = conditional_estimates(covariance, dropped)
        values = full_coefficients(T @ coef[submodel.free], submodel.free, submodel.offset)
        kept = np.setdiff1d(np.arange(len(chosen)), submodel.free[dropped] - 1)
        kept = kept[np.argsort(chosen[kept])]
        places = np.concatenate([[0], 1 + kept])
        smaller = model.restricted_to(chosen[kept])
        order = [int(np.flatnonzero(submodel.free == places[j])[0]) for j in smaller.free]
        theta = replace(
            theta,
            width=model.schema.width,
            chosen=chosen[kept],
            intercept=float(values[0]),
            coef=values[places[1:]],
            sampling=(T @ theta.sampling @ T.T)[np.ix_(order, order)],
            privacy=(T @ theta.privacy @ T.T)[np.ix_(order, order)],
            mean=theta.mean[kept],
            covariance=theta.covariance[np.ix_(kept, kept)],
            prior_part=theta.prior_part[order],
            **{
                flag: tuple(getattr(theta, flag)[j] for j in kept)
                for flag in ("crowded", "at_bound", "rare", "collinear")
            },
        )
        surrogate = Surrogate(state.surrogate.rows[:, places], state.surrogate.complete)
        return replace(state, theta=theta, chosen=theta.chosen, surrogate=surrogate)


def conditional_estimates(covariance: FloatArray, dropped: NDArray[np.intp]) -> FloatArray:
    """The matrix T for which T·estimate is the best estimate given that the dropped coefficients are 0.

    >>> conditional_estimates(np.array([[2.0, 1.0], [1.0, 4.0]]), np.array([1]))
    array([[ 1.  , -0.25],
           [ 0.  ,  0.  ]])
    """
    T = np.eye(len(covariance))
    if len(dropped):
        T[:, dropped] -= covariance[:, dropped] @ np.linalg.pinv(covariance[np.ix_(dropped, dropped)])
        T[dropped] = 0.0
    return T
