"""Column selection for wide tables: a private selection by scores that need no scale of a column, and backward
elimination among the selected columns.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import Step
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace, Query

#: Bins between the bounds of a column; thresholds are their edges.
SIDE_BINS = 64


@dataclass(frozen=True)
class ThresholdScores(NarrowQuery):
    """For each coordinate half the sum of rows' residuals in each of its bins; folded into one score each.

    With r a row's residual, clipped to [−1, 1], and f = ±½ above and below a threshold (0 where the value is missing),
    the score of a coordinate is the largest |mean of r·f| over its thresholds. Those in ``without`` have none: the
    others are counted anew, in their order.

    *Lemma.* Replacing a row moves every score by at most 1/n. *Proof.* |r| ≤ 1, so r·f lies in [−½, ½] and its mean
    moves by at most 1/n, for each threshold; a supremum of functions that move by at most 1/n moves by at most 1/n.
    So do the sums of r/2 in the bins. Rounding: the sizes of the 64 means add up to at most ½, so partial sums err by
    at most 63u·½ (u = 2⁻⁵³), scores by at most (3·63 + 3)u·½, and the scores of two tables by twice that, which is less
    than ``fold_rounding`` times the size ½ of a contribution. ∎
    """

    without: NDArray[np.intp] | None = field(default=None, repr=False)
    fold_rounding: ClassVar[float] = 4 * SIDE_BINS * float(np.finfo(float).eps)

    @property
    def label(self) -> str:
        return "the threshold of each column that best separates rows above from rows below"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=1.0, size_linf=0.5), 8 * SIDE_BINS)

    @abstractmethod
    def residuals(self, xp: Namespace, x: Array, y: Array) -> Array:
        """The residual of each row, 0 for a row without a response; what exceeds [−1, 1] is clipped."""

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        d, bins = self.schema.width, SIDE_BINS
        place = xp.clip(xp.floor((x + 1.0) * (bins / 2)), 0.0, bins - 1.0)
        missing = xp.isnan(x)
        r = xp.clip(0.5 * zero_nonfinite(xp, self.residuals(xp, x, y)), -0.5, 0.5)
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


def chosen_after(
    curator: Curator, query: Query, columns: int, rho: float, before: NDArray[np.intp] | None, width: int
) -> NDArray[np.intp]:
    """The columns ``before``, followed by the ``columns`` others with the largest noisy scores.

    The query has one score for each of the ``width`` columns that is not in ``before``.
    """
    before = np.empty(0, dtype=np.intp) if before is None else before
    others = np.delete(np.arange(width), before)
    return np.concatenate([before, others[curator.select(query, columns, rho)]])


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
    by b_j²/(C⁻¹)_jj, where b and C are those of the remaining columns when the dropped ones have slope 0.

    >>> best_columns(np.eye(3), np.array([0.5, 0.1, -0.4]), 2).tolist()
    [0, 2]
    """
    remaining, score = np.arange(len(slopes)), information @ slopes
    while len(remaining) > most:
        covariance = np.linalg.inv(information[np.ix_(remaining, remaining)])
        loss = (covariance @ score[remaining]) ** 2 / np.diag(covariance)
        remaining = np.delete(remaining, np.argmin(loss))
    return remaining
