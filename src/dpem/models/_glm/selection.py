"""Choosing columns of a wide table for a generalised linear model, with no scale of any column known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from dpem.models._glm.posterior import placed
from dpem.models._glm.queries import Predictor, complete
from dpem.models._glm.steps import GlmState
from dpem.models._glm.surrogate import Surrogate
from dpem.privacy import Curator
from dpem.query import Array, FloatArray, Namespace

#: Rounds, and how many times as many columns are chosen as are kept.
ROUNDS, OVER = 2, 1.4
#: The standard deviation of the linear predictor that a plan assumes.
USUAL_EFFECT = 1.0


def counts(sparsity: int, width: int) -> list[int]:
    """How many columns each round chooses."""
    return round_sizes(min(math.ceil(OVER * sparsity), width), ROUNDS)


def missed(family: Family, sizes: Sizes, steps: Sequence[ChooseColumns], width: int) -> float:
    """The chance that a column is missed which has an equal part in the predictor's expected variance: its score is
    about 0.4·V·coefficient/reach with normal columns.
    """
    columns, zero = sum(step.columns for step in steps), np.zeros(1)
    coefficient = (USUAL_EFFECT if sizes.effect is None else sizes.effect) / math.sqrt(columns)
    signal = 0.4 * coefficient * float((family.variance(np, zero) / family.reach(np, zero))[0])
    return miss_probability(signal, math.fsum(step.rho for step in steps), columns, sizes, width)


@dataclass(frozen=True)
class FamilyResiduals(ScaledResiduals):
    """Residuals over the largest ones possible at the prediction of the ``chosen`` columns; complete rows count."""

    family: Family = field(repr=False)
    predictor: Predictor = field(repr=False)
    chosen: NDArray[np.intp] = field(repr=False)

    def scaled(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
        columns = xp.stack([x[:, int(j)] for j in self.chosen], axis=1) if len(self.chosen) else xp.zeros_like(x[:, :0])
        rows, response, weight = complete(xp, self.family, columns, y)
        eta = self.predictor(xp, rows)
        reach = self.family.reach(xp, eta)
        return weight * self.family.residual(xp, response, eta, reach) / reach, weight


@dataclass(frozen=True)
class KeepBest(KeepColumns):
    """The chosen columns whose coefficients the others can replace least; those of the others are 0."""

    def run(self, curator: Curator, model: Any, state: GlmState) -> GlmState:
        submodel, chosen, theta = model.on(state.chosen), state.chosen, state.theta
        assert chosen is not None
        covariance, coef = theta.sampling + theta.privacy, np.concatenate([[theta.intercept], theta.coef])
        best = 1 + best_columns(np.linalg.pinv(covariance[1:, 1:]), coef[submodel.free[1:]], self.columns)
        dropped = np.setdiff1d(np.arange(1, len(submodel.free)), best)
        T = without(covariance, dropped)
        values = placed(T @ coef[submodel.free], submodel.free, submodel.offset)
        kept = np.setdiff1d(np.arange(len(chosen)), submodel.free[dropped] - 1)
        kept = kept[np.argsort(chosen[kept])]
        places = np.concatenate([[0], 1 + kept])
        smaller = model.on(chosen[kept])
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


def without(covariance: FloatArray, dropped: NDArray[np.intp]) -> FloatArray:
    """The matrix that takes estimates with these errors to the best ones that are 0 at the dropped places.

    >>> without(np.array([[2.0, 1.0], [1.0, 4.0]]), np.array([1]))
    array([[ 1.  , -0.25],
           [ 0.  ,  0.  ]])
    """
    T = np.eye(len(covariance))
    if len(dropped):
        T[:, dropped] -= covariance[:, dropped] @ np.linalg.pinv(covariance[np.ix_(dropped, dropped)])
        T[dropped] = 0.0
    return T
