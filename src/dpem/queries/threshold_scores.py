"""Which columns go with a response, asked of all of them at once, whatever their scales, centres and bounds.

Only whether an entry lies above or below a threshold is used of a column. So no scale of any column need be known.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray

from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace

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
    So do the sums of r/2 in the bins. The fold adds 64 means in float64, whose rounding the widened bound and the
    source's slack for a sum of n rows exceed. ∎
    """

    without: NDArray[np.intp] | None = field(default=None, repr=False)

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
