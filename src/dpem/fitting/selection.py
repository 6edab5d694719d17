"""Column selection for wide tables: forward selection by private scores, then backward elimination.

A column's score measures how well a threshold in it separates rows with positive residuals from rows with negative
ones, which does not depend on the column's scale. In the first round residuals are those of the response alone, later
those of the fit to the columns chosen so far. Where columns are correlated, another one is often chosen before the
column that matters; so a few more columns are chosen than backward elimination keeps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray

from dpem.fitting.model import Sizes
from dpem.fitting.step import ModelT, State, StateT, Step, prices
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.schema import Schema

#: Bins between the bounds of a column; thresholds are their edges.
SIDE_BINS = 64
#: The share of a choice's price for the mean residual, which scores subtract.
MEAN_SHARE = 0.05


class ScaledResiduals(ABC):
    """Residuals at released parameters, in units of the largest possible one."""

    @abstractmethod
    def scaled(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
        """The scaled residual of each row, and whether the row counts, as 0 or 1; if not, its residual is 0."""


class SelectingModel(Protocol):
    """A model whose columns :class:`ChooseColumns` can choose."""

    @property
    def schema(self) -> Schema: ...

    def residuals(self, state: State) -> ScaledResiduals:
        """The residuals of the fit to the columns chosen so far."""


@dataclass(frozen=True)
class MeanResidual(NarrowQuery):
    """Σ (r, 1) over the rows that count, with r the scaled residual, clipped to [−1, 1].

    *Lemma.* ℓ2 sensitivity 2. *Proof.* Two rows that count differ by |r − r′| ≤ 2, a row that counts and one that does
    not by ‖(r, 1)‖ ≤ √2. ∎
    """

    source: ScaledResiduals = field(repr=False)
    label: str = "mean residual"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=2.0, l2=2.0, size_linf=1.0, size_l2=math.sqrt(2.0)), 2)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        residual, counts = self.source.scaled(xp, x, y)
        return xp.stack([xp.sum(counts * xp.clip(zero_nonfinite(xp, residual), -1.0, 1.0)), xp.sum(counts)])


@dataclass(frozen=True)
class ThresholdScores(NarrowQuery):
    """For each bin of each coordinate, half the sum of the rows' residuals; :meth:`folded` makes them scores.

    Let r be a row's scaled residual minus ``mean``, divided by 1 + |mean| and clipped to [−1, 1], and f = ½ above a
    threshold, −½ below it, 0 where the value is missing. The score of a coordinate is the largest |mean of r·f| over
    its thresholds. Coordinates in ``without`` get no score, and the others are numbered without them.

    *Lemma.* Replacing a row changes every score by at most 1/n. *Proof.* |r| ≤ 1, so r·f lies in [−½, ½] and its mean
    changes by at most 1/n, for each threshold; so does the largest. The sum of r/2 in a bin changes by at most 1.
    Rounding: the sizes of the 64 means add up to at most ½, so partial sums err by
    at most 63u·½ (u = 2⁻⁵³), scores by at most (3·63 + 3)u·½, and the scores of two tables by twice that, which is less
    than ``fold_rounding`` times the size ½ of a contribution. ∎
    """

    source: ScaledResiduals = field(repr=False)
    mean: float = 0.0
    without: NDArray[np.intp] | None = field(default=None, repr=False)
    label: str = "the threshold of each column that best separates rows above from rows below"
    fold_rounding: ClassVar[float] = 4 * SIDE_BINS * float(np.finfo(float).eps)

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=1.0, size_linf=0.5), 8 * SIDE_BINS)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        d, bins = self.schema.width, SIDE_BINS
        place = xp.clip(xp.floor((x + 1.0) * (bins / 2)), 0.0, bins - 1.0)
        missing = xp.isnan(x)
        residual, counts = self.source.scaled(xp, x, y)
        r = (residual - self.mean * counts) / (1 + abs(self.mean))
        r = xp.clip(0.5 * zero_nonfinite(xp, r), -0.5, 0.5)
        if xp is numpy_api:
            where = np.where(missing, bins, place).astype(np.intp) + (bins + 1) * np.arange(d)
            sums = np.bincount(where.ravel(), np.repeat(r, d), d * (bins + 1))
            return sums.reshape(d, bins + 1)[:, :bins].ravel()
        weight = xp.where(missing, xp.zeros_like(x), r[:, None] + xp.zeros_like(x))
        parts = [xp.sum(xp.where(place == float(b), weight, xp.zeros_like(x)), axis=0) for b in range(bins)]
        return xp.reshape(xp.stack(parts, axis=1), (-1,))

    def folded(self, means: FloatArray) -> FloatArray:
        """The score of each coordinate, from the means of its bins."""
        left = np.cumsum(means.reshape(self.schema.width, SIDE_BINS), axis=1)
        scores = np.max(np.abs(left[:, -1:] - 2 * left), axis=1)
        return scores if self.without is None else np.delete(scores, self.without)


@dataclass(frozen=True)
class ChooseColumns(Step[SelectingModel, State]):
    """Choose the ``columns`` with the largest :class:`ThresholdScores` among those that were not chosen before."""

    columns: int = 1
    passes = 2

    def describe(self) -> str:
        return f"choice of {self.columns} {'column' if self.columns == 1 else 'columns'}"

    def run(self, curator: Curator, model: SelectingModel, state: State) -> State:
        source = model.residuals(state)
        mean_price, choice_price = prices(self.rho, [MEAN_SHARE, 1 - MEAN_SHARE])
        total, counted = curator.measure(MeanResidual(model.schema, source), mean_price).tolist()
        # the limits keep the quotient usable where few rows count
        mean = float(np.clip(total / max(counted, 0.05), -0.9, 0.9))
        before = np.empty(0, dtype=np.intp) if state.chosen is None else state.chosen
        others = np.delete(np.arange(model.schema.width), before)
        query = ThresholdScores(model.schema, source, mean, before)
        new = others[curator.select(query, self.columns, choice_price)]
        return replace(state, chosen=np.concatenate([before, new]))


def round_sizes(columns: int, rounds: int) -> list[int]:
    """The numbers of columns that rounds of equal size choose, ``columns`` in all.

    >>> round_sizes(5, 2), round_sizes(2, 5)
    ([3, 2], [1, 1])
    """
    size = math.ceil(columns / rounds)
    return [min(size, columns - first) for first in range(0, columns, size)]


def miss_probability(signal: float, price: float, columns: int, sizes: Sizes, width: int) -> float:
    """The probability that a column with score ``signal`` is missed: that the largest noise among ``width`` scores
    exceeds it, if ``price`` pays for the choice of ``columns`` columns.
    """
    noise = sizes.rows_per_person * math.sqrt(columns / (2 * (1 - MEAN_SHARE) * price)) / sizes.n
    return 1 / (1 + math.exp(min(signal / noise, 700.0)) / width)


@dataclass(frozen=True)
class KeepColumns(Step[ModelT, StateT]):
    """Restrict the fit to the columns of its parameters, which :func:`best_columns` selected. It sends no query."""

    columns: int = 1
    passes = 0

    def describe(self) -> str:
        return f"the best {self.columns} of the chosen columns are kept, the others have slope 0"

    def run(self, curator: Curator, model: ModelT, state: StateT) -> StateT:
        return replace(state, chosen=state.theta.chosen)


def best_columns(information: FloatArray, slopes: FloatArray, most: int) -> NDArray[np.intp]:
    """Backward elimination: drop the least useful column until ``most`` are left; return their indices in order.

    ``information`` is C, the inverse covariance of the estimated slopes b. Dropping column j increases the quadratic
    loss by b_j²/(C⁻¹)_jj, with b and C of the remaining columns given that the dropped ones have slope 0.

    >>> best_columns(np.eye(3), np.array([0.5, 0.1, -0.4]), 2).tolist()
    [0, 2]
    >>> best_columns(np.diag([1.0, 0.0, 1.0]), np.array([0.5, 9.0, -0.4]), 2).tolist()
    [0, 2]
    """
    remaining, score = np.arange(len(slopes)), information @ slopes
    while len(remaining) > most:
        covariance = np.linalg.pinv(information[np.ix_(remaining, remaining)], hermitian=True)
        loss = (covariance @ score[remaining]) ** 2 / np.maximum(np.diag(covariance), 1e-300)
        remaining = np.delete(remaining, np.argmin(loss))
    return remaining
