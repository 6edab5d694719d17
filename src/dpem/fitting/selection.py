"""Column selection for wide tables: a private selection by scores that need no scale of a column, and backward
elimination among the selected columns.

Columns are chosen in rounds by how well a threshold in them separates rows with large residuals from rows with small
ones: first residuals from the response alone, then from the fit on the columns chosen so far. Where columns are
correlated a neighbour is often chosen before the column that matters; so a few more are chosen than are kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray

from dpem.fitting.model import Sizes
from dpem.fitting.step import Step
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace

#: Bins between the bounds of a column; thresholds are their edges.
SIDE_BINS = 64
#: The part of a choice's price that measures the mean residual, which the choice is to ignore.
BALANCE = 0.05


class ScaledResiduals(ABC):
    """How residuals of rows are computed at released parameters."""

    @abstractmethod
    def scaled(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
        """Each row's residual over the largest possible one, and which rows count, as 0 or 1; the residual of a row
        that does not count is 0.
        """


@dataclass(frozen=True)
class MeanResidual(NarrowQuery):
    """Σ (r, 1) over the rows that count, r the residual, clipped to [−1, 1].

    *Lemma.* ℓ2 sensitivity 2. *Proof.* Two rows that count differ by |r − r′| ≤ 2, a row that counts and one that does
    not by ‖(r, 1)‖ ≤ √2. ∎
    """

    source: ScaledResiduals = field(repr=False)

    @property
    def label(self) -> str:
        return "mean residual"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=2.0, l2=2.0, size_linf=1.0, size_l2=math.sqrt(2.0)), 2)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        residual, counts = self.source.scaled(xp, x, y)
        return xp.stack([xp.sum(counts * xp.clip(zero_nonfinite(xp, residual), -1.0, 1.0)), xp.sum(counts)])


@dataclass(frozen=True)
class ThresholdScores(NarrowQuery):
    """For each coordinate half the sum of rows' residuals in each of its bins; folded into one score each.

    With r a row's residual less the ``mean``, over 1 + |mean|, clipped to [−1, 1], and f = ±½ above and below a
    threshold (0 where the value is missing), the score of a coordinate is the largest |mean of r·f| over its
    thresholds. Those in ``without`` have none: the others are counted anew, in their order.

    *Lemma.* Replacing a row moves every score by at most 1/n. *Proof.* |r| ≤ 1, so r·f lies in [−½, ½] and its mean
    moves by at most 1/n, for each threshold; a supremum of functions that move by at most 1/n moves by at most 1/n.
    So do the sums of r/2 in the bins. Rounding: the sizes of the 64 means add up to at most ½, so partial sums err by
    at most 63u·½ (u = 2⁻⁵³), scores by at most (3·63 + 3)u·½, and the scores of two tables by twice that, which is less
    than ``fold_rounding`` times the size ½ of a contribution. ∎
    """

    source: ScaledResiduals = field(repr=False)
    mean: float = 0.0
    without: NDArray[np.intp] | None = field(default=None, repr=False)
    fold_rounding: ClassVar[float] = 4 * SIDE_BINS * float(np.finfo(float).eps)

    @property
    def label(self) -> str:
        return "the threshold of each column that best separates rows above from rows below"

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
class ChooseColumns(Step):
    """The columns that best separate rows with large residuals from rows with small ones; ``model.residuals(state)``
    has the residuals from what was released.
    """

    columns: int = 1
    passes = 2

    def describe(self) -> str:
        return f"choice of {self.columns} {'column' if self.columns == 1 else 'columns'}"

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        source, private = model.residuals(state), math.isfinite(self.rho)
        balance, choice = (BALANCE * self.rho, (1 - BALANCE) * self.rho) if private else (self.rho, self.rho)
        total, counted = (float(part) for part in curator.measure(MeanResidual(model.schema, source), balance))
        mean = float(np.clip(total / max(counted, 0.05), -0.9, 0.9))
        before = np.empty(0, dtype=np.intp) if state.chosen is None else state.chosen
        others = np.delete(np.arange(model.schema.width), before)
        query = ThresholdScores(model.schema, source, mean, before)
        return replace(state, chosen=np.concatenate([before, others[curator.select(query, self.columns, choice)]]))


def round_sizes(columns: int, rounds: int) -> list[int]:
    """How many columns each round chooses, of so many in all.

    >>> round_sizes(5, 2), round_sizes(2, 5)
    ([3, 2], [1, 1])
    """
    each = math.ceil(columns / rounds)
    return [min(each, columns - first) for first in range(0, columns, each)]


def miss_probability(signal: float, price: float, columns: int, sizes: Sizes, width: int) -> float:
    """The chance that a column is missed whose score is ``signal``: that the largest noise of ``width`` columns exceeds
    it, where so many are chosen at that price in all.
    """
    noise = sizes.rows_per_person * math.sqrt(columns / (2 * (1 - BALANCE) * price)) / sizes.n
    return 1 / (1 + math.exp(min(signal / noise, 700.0)) / width)


@dataclass(frozen=True)
class KeepColumns(Step):
    """Restrict the fit to the columns that :func:`best_columns` kept. It sends no query."""

    columns: int = 1
    passes = 0

    def describe(self) -> str:
        return f"the best {self.columns} of the chosen columns are kept, the others have slope 0"

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        return replace(state, chosen=state.theta.chosen)


def best_columns(information: FloatArray, slopes: FloatArray, most: int) -> NDArray[np.intp]:
    """Backward elimination: drop the least useful column until ``most`` are left; return those, in order.

    ``information`` is C, the inverse covariance of the estimated slopes. Dropping column j increases the quadratic loss
    by b_j²/(C⁻¹)_jj, where b and C are those of the remaining columns when the dropped ones have slope 0; by nothing if
    there is no information about it.

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
