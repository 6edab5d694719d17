"""Public coordinates of a regression: centres, scales and correlations of the columns, as released before."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpem.queries.block_loop import product
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class Frame:
    """A row u in unit coordinates is z = scale·(u − centre), its missing values filled with what is expected there, and
    then a = (1, whiten·z), whose entries are hardly correlated. Coefficients θ are those of a, in units of the
    response's spread. ``covariance`` is that of z; rows with a coordinate of ``excluded`` at its upper end, levels that
    are too rare, count nothing.
    """

    centre: FloatArray
    scale: FloatArray
    y_centre: float
    y_spread: float
    covariance: FloatArray
    whiten: FloatArray
    excluded: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        return len(self.centre)

    @cached_property
    def precision(self) -> FloatArray:
        return np.asarray(np.linalg.inv(self.covariance), dtype=float)

    @cached_property
    def turn(self) -> tuple[FloatArray, FloatArray]:
        """Matrix and shift with a = u·matrix − shift for a row u without missing values."""
        matrix, shift = np.zeros((self.width, self.width + 1)), np.full(self.width + 1, -1.0)
        matrix[:, 1:] = (self.whiten @ self.scale).T
        shift[1:] = self.centre @ matrix[:, 1:]
        return matrix, shift

    @property
    def farthest(self) -> float:
        """A length that no row of complete coordinates between the bounds exceeds."""
        matrix, shift = self.turn
        return float(np.linalg.norm(np.abs(shift) + np.sum(np.abs(matrix), axis=0)))

    def in_unit_coordinates(self) -> tuple[FloatArray, FloatArray]:
        """A and b with which (intercept, slopes) of unit coordinates are A·θ + b."""
        slopes = (self.whiten @ self.scale).T
        A = np.zeros((self.width + 1, self.width + 1))
        A[0, 0], A[0, 1:], A[1:, 1:] = 1.0, -self.centre @ slopes, slopes
        return A * self.y_spread, np.concatenate([[self.y_centre], np.zeros(self.width)])

    def slopes(self, theta: FloatArray) -> FloatArray:
        """Coefficients of z that θ stands for."""
        return np.asarray(self.whiten.T @ theta[1:])

    def unit_covariance(self) -> FloatArray:
        """The covariance of u."""
        inverse = np.linalg.inv(self.scale)
        return np.asarray(inverse @ self.covariance @ inverse.T)

    def coordinates(self, xp: Namespace, x: Array) -> Array:
        """a of rows without missing values."""
        matrix, shift = self.turn
        a = product(xp, x, matrix)
        if isinstance(a, np.ndarray):
            return np.subtract(a, shift, out=a)
        return a - like(xp, shift, x)

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        """All that the coordinates depend on, to be compared."""
        return (*(array.tobytes() for array in self.turn), self.excluded)


def scaled(xp: Namespace, x: Array, centre: FloatArray, scale: FloatArray) -> Array:
    """scale·(x − centre) of each row, NaN where x is; a factor's coordinates are missing together."""
    if isinstance(x, np.ndarray) and not np.isnan(np.sum(x)):
        z = product(xp, x, scale.T)
        z -= scale @ centre
        return z
    missing = xp.isnan(x)
    moved = xp.where(missing, xp.zeros_like(x), x - like(xp, centre, x))
    return xp.where(missing, xp.full_like(x, xp.nan), xp.matmul(moved, like(xp, scale.T, x)))


def counts(xp: Namespace, x: Array, y: Array, excluded: tuple[int, ...]) -> Array:
    """Which rows count: those with a response, and without a level that is excluded."""
    seen = ~xp.isnan(y)
    for j in excluded:
        seen = seen & ~(x[:, j] == 1.0)
    return seen
