"""Which columns go with a response, asked of all of them at once, whatever their scales, centres and bounds.

Only signs and thresholds are used: the sign of a row's residual (its response less the middle, or less what the columns
chosen so far expect), and whether an entry lies above or below a threshold. So no scale of any column need be known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.frame import Frame, scaled
from dpem.models.linear_regression.missing_values import expected
from dpem.queries.narrow import NarrowQuery, rounded
from dpem.query import Bound, FloatArray
from dpem.tables.blocks import like

#: Bins between the bounds of a column; thresholds are their edges.
SIDE_BINS = 64


@dataclass(frozen=True)
class Sided(NarrowQuery):
    """A question about the sign of residuals: from ``middle``, or from the fit ``theta`` on ``chosen`` in a frame."""

    middle: float = 0.0
    chosen: NDArray[np.intp] | None = field(default=None, repr=False)
    frame: Frame | None = field(default=None, repr=False)
    theta: FloatArray | None = field(default=None, repr=False)

    def sides(self, xp: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """1 for each row above, and for each row below, else 0; rows without a response are neither."""
        centre = xp.full_like(y, self.middle)
        if self.chosen is not None and self.frame is not None and self.theta is not None:
            frame = self.frame
            own = xp.stack([x[:, int(j)] for j in self.chosen], axis=1)
            z = scaled(xp, own, frame.centre, frame.scale)
            full, _ = expected(xp, z, frame.precision, np.zeros(frame.width))
            predictor = float(self.theta[0]) + xp.matmul(full, like(xp, frame.slopes(self.theta), x))
            centre = frame.y_centre + frame.y_spread * predictor
        above = xp.astype(y >= centre, xp.float64)
        return above, xp.astype(y < centre, xp.float64)


@dataclass(frozen=True)
class Balance(Sided):
    """Rows above less rows below.

    *Lemma.* Sensitivity 2. *Proof.* A row adds 1, −1 or 0. ∎
    """

    @property
    def label(self) -> str:
        return "rows above and below what is expected"

    @property
    def bound(self) -> Bound:
        return Bound(linf=2.0, l2=2.0, size_linf=1.0, size_l2=1.0)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        above, below = self.sides(xp, x, y)
        return xp.reshape(xp.sum(above - below), (1,))


@dataclass(frozen=True)
class Thresholds(Sided):
    """For each coordinate, how many rows above, and below, lie in each of its bins; folded into one score each.

    With r = (sign − balance)/(1 + |balance|) and f = ±½ above and below a threshold (0 at a hole), the score of a
    coordinate is the largest |mean of r·f| over its thresholds. Those in ``without`` have none: the others are counted
    anew, in their order.

    *Lemma.* Replacing a row moves every score by at most 1/n. *Proof.* |r| ≤ 1, so r·f lies in [−½, ½] and its mean
    moves by at most 1/n, for each threshold; a supremum of functions that move by at most 1/n moves by at most 1/n.
    What is summed are counts, exactly; the fold adds 64 of their means in float64, whose rounding the widened bound
    and the source's slack for a sum of n rows exceed. ∎
    """

    balance: float = 0.0
    without: NDArray[np.intp] | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        return "the threshold of each column that best separates rows above from rows below"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=1.0, size_linf=1.0), 8 * SIDE_BINS)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        d, bins = self.schema.width, SIDE_BINS
        place = xp.clip(xp.floor((x + 1.0) * (bins / 2)), 0.0, bins - 1.0)
        hole = xp.isnan(x)
        parts = []
        for side in self.sides(xp, x, y):
            if xp is numpy_api:
                where = np.where(hole, bins, place).astype(np.intp) + (bins + 1) * np.arange(d)
                rows = where[side > 0].ravel()
                counts = np.bincount(rows, minlength=d * (bins + 1)).reshape(d, bins + 1)[:, :bins].astype(float)
            else:
                weight = xp.where(hole, xp.zeros_like(x), side[:, None] + xp.zeros_like(x))
                counts = xp.stack(
                    [xp.sum(xp.where(place == float(b), weight, xp.zeros_like(x)), axis=0) for b in range(bins)], axis=1
                )
            parts.append(counts)
        return xp.reshape(xp.stack(parts), (-1,))

    def folded(self, means: FloatArray) -> FloatArray:
        """The score of each coordinate, from the mean counts."""
        above, below = means.reshape(2, self.schema.width, SIDE_BINS)
        r = ((1 - self.balance) * above - (1 + self.balance) * below) / (1 + abs(self.balance))
        left = np.cumsum(r, axis=1)
        scores = np.max(np.abs(left[:, -1:] - 2 * left), axis=1) / 2
        return scores if self.without is None else np.delete(scores, self.without)
