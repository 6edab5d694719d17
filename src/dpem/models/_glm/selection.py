"""Choosing columns of a wide table for a generalised linear model, with no scale of any column known.

Columns are chosen in rounds by how well a threshold in them separates large residuals from small ones: first residuals
from the mean, then from the fit on the columns chosen so far. A few more are chosen than are kept in the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.model import Sizes
from dpem.fitting.selection import KeepColumns, ThresholdScores, best_columns, chosen_after
from dpem.fitting.step import Step
from dpem.models._glm.families import Family
from dpem.models._glm.posterior import placed
from dpem.models._glm.queries import Predictor, complete
from dpem.models._glm.steps import GlmState
from dpem.models._glm.surrogate import Surrogate
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel

#: Rounds, and how many times as many columns are chosen as are kept.
ROUNDS, OVER = 2, 1.4
#: The part of a choice's price that measures the mean residual, which the choice is to ignore.
BALANCE = 0.05
#: The standard deviation of the linear predictor that a plan assumes.
USUAL_EFFECT = 1.0


def counts(sparsity: int, width: int) -> list[int]:
    """How many columns each round chooses.

    >>> counts(3, 50), counts(1, 50), counts(4, 2)
    ([3, 2], [1, 1], [1, 1])
    """
    over = min(math.ceil(OVER * sparsity), width)
    each = math.ceil(over / ROUNDS)
    return [min(each, over - first) for first in range(0, over, each)]


def missed(family: Family, sizes: Sizes, steps: Sequence[ChooseColumns], width: int) -> float:
    """The chance that a column is missed which has an equal part in the predictor's expected variance: that the largest
    noise of all columns exceeds its score, about 0.4·V·coefficient/reach with normal columns.
    """
    columns, zero = sum(step.columns for step in steps), np.zeros(1)
    rho = (1 - BALANCE) * math.fsum(step.rho for step in steps)
    noise = sizes.rows_per_person * math.sqrt(columns / (2 * rho)) / sizes.n
    coefficient = (USUAL_EFFECT if sizes.effect is None else sizes.effect) / math.sqrt(columns)
    signal = 0.4 * coefficient * float((family.variance(np, zero) / family.reach(np, zero))[0])
    return 1 / (1 + math.exp(min(signal / noise, 700.0)) / width)


@dataclass(frozen=True)
class ScaledResiduals(NarrowQuery):
    """Residuals over the largest ones possible at the prediction of the ``chosen`` columns, so within [−1, 1]; 0 for an
    incomplete row.
    """

    family: Family = field(repr=False, kw_only=True)
    predictor: Predictor = field(repr=False, kw_only=True)
    chosen: NDArray[np.intp] = field(repr=False, kw_only=True)

    def scaled(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
        """The residuals, and which rows are complete, as 0 or 1."""
        columns = xp.stack([x[:, int(j)] for j in self.chosen], axis=1) if len(self.chosen) else xp.zeros_like(x[:, :0])
        rows, response, weight = complete(xp, self.family, columns, y)
        eta = self.predictor(xp, rows)
        reach = self.family.reach(xp, eta)
        each = zero_nonfinite(xp, self.family.residual(xp, response, eta, reach) / reach)
        return weight * xp.clip(each, -1.0, 1.0), weight


@dataclass(frozen=True)
class MeanResidual(ScaledResiduals):
    """Σ (r, 1) over complete rows.

    *Lemma.* ℓ2 sensitivity 2. *Proof.* Two complete rows differ by |r − r′| ≤ 2, a complete and an incomplete one by
    ‖(r, 1)‖ ≤ √2. ∎
    """

    @property
    def label(self) -> str:
        return "mean residual"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=2.0, l2=2.0, size_linf=1.0, size_l2=math.sqrt(2.0)), 2)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        residual, weight = self.scaled(xp, x, y)
        return xp.stack([xp.sum(residual), xp.sum(weight)])


@dataclass(frozen=True)
class ResidualThresholds(ScaledResiduals, ThresholdScores):
    """Scores of columns for residuals less their mean, (r − mean)/(1 + |mean|), which lie in [−1, 1]."""

    mean: float = 0.0

    def residuals(self, xp: Namespace, x: Array, y: Array) -> Array:
        residual, weight = self.scaled(xp, x, y)
        return weight * (residual - self.mean) / (1 + abs(self.mean))


@dataclass(frozen=True)
class ChooseColumns(Step):
    """The columns that best separate large residuals from small ones."""

    columns: int = 1
    passes = 2

    def describe(self) -> str:
        return f"choice of {self.columns} {'column' if self.columns == 1 else 'columns'}"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        submodel, chosen = model.on(state.chosen), state.chosen
        assert chosen is not None
        predictor = submodel.predictor(placed(state.coef, submodel.free, submodel.offset))
        where: dict[str, Any] = {
            "schema": model.schema,
            "family": state.family,
            "predictor": predictor,
            "chosen": chosen,
        }
        private = math.isfinite(self.rho)
        total, weight = curator.measure(MeanResidual(**where), BALANCE * self.rho if private else self.rho)
        mean = float(np.clip(total / max(float(weight), 0.05), -0.9, 0.9))
        query = ResidualThresholds(**where, mean=mean, without=chosen)
        rho = (1 - BALANCE) * self.rho if private else self.rho
        return replace(state, chosen=chosen_after(curator, query, self.columns, rho, chosen, model.schema.width))


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
