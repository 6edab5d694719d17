"""The whitened coordinates of rows, and K regressions in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpem.queries.narrow import zero_nonfinite
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

#: Sweeps over the columns that fill missing values; for correlations up to 0.7 each at least halves the error.
SWEEPS = 8


@dataclass(frozen=True)
class Frame:
    """The coordinates x̃ = W(u − mean) and t = (y − y_mean)/y_spread of a row with unit coordinates u and y.

    ``WᵀW`` is the released precision matrix of the columns. A missing value is replaced by its conditional mean given
    the other entries of its row, by Gauss–Seidel sweeps; that is the mean where W is diagonal. So the coordinates of a
    row depend on that row and on released numbers, never on another row.
    """

    mean: FloatArray
    whiten: FloatArray
    y_mean: float
    y_spread: float

    @classmethod
    def of_sizes(cls, center: FloatArray, spread: FloatArray) -> Frame:
        """The frame that centres and scales every column; the response comes last."""
        return cls(center[:-1], np.diag(1 / spread[:-1]), float(center[-1]), float(spread[-1]))

    def filled(self, xp: Namespace, x: Array) -> Array:
        """Unit coordinates without missing values, in [−1, 1]."""
        missing = ~xp.isfinite(x)
        if not bool(xp.any(missing)):
            return x
        center = like(xp, self.mean, x)
        u = xp.where(missing, xp.zeros_like(x) + center, x)
        precision = self.whiten.T @ self.whiten
        identity = like(xp, np.eye(len(self.mean)), x)
        for _ in range(SWEEPS):
            for j in range(len(self.mean)):
                pull = xp.matmul(u - center, like(xp, precision[j] / precision[j, j], x))
                u = xp.where(missing & (identity[j, :] > 0.5), u - pull[:, None], u)
        return xp.clip(zero_nonfinite(xp, u), -1.0, 1.0)

    def columns(self, xp: Namespace, x: Array) -> Array:
        """(1, x̃) of every row; finite, because u and W are."""
        white = xp.matmul(self.filled(xp, x), like(xp, self.whiten.T, x)) - like(xp, self.whiten @ self.mean, x)
        return xp.concat([xp.ones_like(white[:, :1]), white], axis=1)

    def rows(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """(1, x̃), t, and whether there is a response (1 or 0); t is 0 where there is none."""
        t = (y - self.y_mean) / self.y_spread
        present = xp.where(xp.isfinite(t), xp.ones_like(t), xp.zeros_like(t))
        return self.columns(xp, x), zero_nonfinite(xp, t), present


@dataclass(frozen=True)
class Components:
    """K components t = coefficients·(1, x̃) + spread·e, and their shares of the rows with a response."""

    weights: FloatArray
    coefficients: FloatArray
    spreads: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """The number of components, and of the coefficients of each."""
        return self.coefficients.shape[0], self.coefficients.shape[1]

    def residuals(self, xp: Namespace, v: Array, t: Array) -> Array:
        """The residual of each row from each component, in the component's residual spreads (m × K)."""
        return (t[:, None] - xp.matmul(v, like(xp, self.coefficients.T, v))) / like(xp, self.spreads, v)

    def log_joint(self, xp: Namespace, e: Array) -> Array:
        """log(w_k·φ(e_k)/spread_k) + ½·log 2π for residuals e (m × K)."""
        return like(xp, np.log(self.weights / np.sum(self.weights)) - np.log(self.spreads), e) - 0.5 * e * e

    def log_density(self, xp: Namespace, v: Array, t: Array) -> Array:
        """The log-density of each response given the columns."""
        joint = self.log_joint(xp, self.residuals(xp, v, t))
        top = _row_top(xp, joint)
        return top + xp.log(row_sum(xp, xp.exp(joint - top[:, None]))) - 0.5 * math.log(2 * math.pi)

    def responsibilities(self, xp: Namespace, e: Array) -> Array:
        """The posterior probability of each component (m × K), in [0, 1]; their sum is at most 1 but for rounding."""
        joint = self.log_joint(xp, e)
        raw = xp.exp(joint - _row_top(xp, joint)[:, None])
        share = xp.clip(zero_nonfinite(xp, raw / row_sum(xp, raw)[:, None]), 0.0, 1.0)
        total = row_sum(xp, share)
        return share / xp.where(total > 1.0, total, xp.ones_like(total))[:, None]


def row_sum(xp: Namespace, values: Array) -> Array:
    """Sums over few columns, as a matrix product, which is many times faster than a reduction of short rows."""
    return xp.matmul(values, like(xp, np.ones(values.shape[1]), values))


def _row_top(xp: Namespace, values: Array) -> Array:
    """The largest of few columns; NaN where one is NaN."""
    top = values[:, 0]
    for k in range(1, values.shape[1]):
        top = xp.maximum(top, values[:, k])
    return top
