"""Which columns go with the response of a linear regression: by the signs of residuals from its middle, or from what
the columns chosen so far expect. So no scale of the response need be known, nor of any column.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.frame import Frame, scaled
from dpem.models.linear_regression.missing_values import expected
from dpem.queries.narrow import NarrowQuery
from dpem.queries.threshold_scores import ThresholdScores
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class Sided(NarrowQuery):
    """A question about the sign of residuals: from ``middle``, or from the fit ``theta`` on ``chosen`` in a frame."""

    middle: float = 0.0
    chosen: NDArray[np.intp] | None = field(default=None, repr=False)
    frame: Frame | None = field(default=None, repr=False)
    theta: FloatArray | None = field(default=None, repr=False)

    def sides(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array]:
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

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        above, below = self.sides(xp, x, y)
        return xp.reshape(xp.sum(above - below), (1,))


@dataclass(frozen=True)
class Thresholds(Sided, ThresholdScores):
    """Scores of columns for the residual r = (sign − balance)/(1 + |balance|), which lies in [−1, 1]."""

    balance: float = 0.0

    def residuals(self, xp: Namespace, x: Array, y: Array) -> Array:
        above, below = self.sides(xp, x, y)
        return ((1 - self.balance) * above - (1 + self.balance) * below) / (1 + abs(self.balance))
