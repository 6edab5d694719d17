"""Rows in the coordinates of the fit, missing values imputed, and the form of every query about them.

Let z ~ N(0, Σ) with precision Ω = Σ⁻¹, and let h be 1 at the missing values of a row. Given the observed entries the
missing ones have mean −Ω_hh⁻¹Ω_ho z_o and covariance C = Ω_hh⁻¹. Both come from one system with the matrix B that is Ω
between missing values and the identity elsewhere, so rows of every pattern are solved in one batch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpem.queries.block_loop import product
from dpem.queries.narrow import NarrowQuery, all_finite, squares
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

#: Eigenvalues that are no more than rounding.
ROUNDING = 1e-10


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

    def response(self, y: Array) -> Array:
        """Responses in units of their spread."""
        return (y - self.y_centre) / self.y_spread

    def coordinates(self, xp: Namespace, x: Array) -> Array:
        """a of rows without missing values."""
        matrix, shift = self.turn
        a = product(xp, x, matrix)
        if isinstance(a, np.ndarray):
            return np.subtract(a, shift, out=a)
        return a - like(xp, shift, x)

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        """All that coordinates and responses depend on, to be compared."""
        return (*(array.tobytes() for array in self.turn), self.excluded, self.y_centre, self.y_spread)


def standardized(xp: Namespace, x: Array, centre: FloatArray, scale: FloatArray) -> Array:
    """scale·(x − centre) of each row, NaN where x is; a factor's coordinates are missing together."""
    if isinstance(x, np.ndarray) and all_finite(x):
        sizes = np.diag(scale)
        z = x * sizes if np.count_nonzero(scale) == np.count_nonzero(sizes) else product(xp, x, scale.T)
        z -= scale @ centre
        return z
    missing = xp.isnan(x)
    moved = xp.where(missing, xp.zeros_like(x), x - like(xp, centre, x))
    return xp.where(missing, xp.full_like(x, xp.nan), xp.matmul(moved, like(xp, scale.T, x)))


def row_mask(xp: Namespace, x: Array, y: Array, excluded: tuple[int, ...]) -> Array:
    """Which rows count: those with a response, and without a level that is excluded."""
    seen = ~xp.isnan(y)
    for j in excluded:
        seen = seen & ~(x[:, j] == 1.0)
    return seen


#: Numbers in a batch of systems: in memory what a core's cache holds, elsewhere enough to keep a device busy.
BATCH, DEVICE_BATCH = 2**15, 2**24


def by_missing(xp: Namespace, x: Array, y: Array, shares: Array = None) -> Iterator[tuple[Array, Array, Array, bool]]:
    """The rows with their weights in parts, those without missing values first and then the others in short batches;
    True marks these.

    Sums do not depend on the order of rows but for rounding, which a source's slack covers in any order.
    """
    if isinstance(x, np.ndarray) and all_finite(x):
        yield x, y, shares, False
        return

    def some(rows: Any, missing: bool) -> tuple[Any, Any, Any, bool]:
        own = None if shares is None else xp.take(shares, rows, axis=0)
        return xp.take(x, rows, axis=0), xp.take(y, rows, axis=0), own, missing

    odd = xp.any(xp.isnan(x), axis=1)
    count = int(xp.sum(xp.astype(odd, xp.int64)))
    if count < x.shape[0]:
        yield (x, y, shares, False) if count == 0 else some(xp.nonzero(~odd)[0], False)
    if count:
        rows = xp.nonzero(odd)[0]
        length = _batch(x)
        for first in range(0, count, length):
            yield some(rows[first : min(first + length, count)], True)


def _batch(x: Any) -> int:
    """Rows whose systems are solved at once."""
    return max(16, (BATCH if isinstance(x, np.ndarray) else DEVICE_BATCH) // max(1, x.shape[1]) ** 2)


def _systems(xp: Namespace, z: Array, precision: FloatArray) -> tuple[Array, Array]:
    """B of each row, and 1 at its missing values."""
    h = xp.astype(xp.isnan(z), xp.float64)
    B = h[:, :, None] * like(xp, precision, z)[None, :, :] * h[:, None, :]
    return B + (1.0 - h)[:, :, None] * like(xp, np.eye(z.shape[1]), z)[None, :, :], h


def imputed(xp: Namespace, z: Array, precision: FloatArray, direction: FloatArray) -> tuple[Array, Array]:
    """Rows with expected values for missing ones, and C·direction of each row (0 where an entry was observed)."""
    B, h = _systems(xp, z, precision)
    seen = xp.where(xp.isnan(z), xp.zeros_like(z), z)
    sides = xp.stack([h * xp.matmul(seen, like(xp, precision, z)), h * like(xp, direction, z)[None, :]], axis=2)
    solved = xp.linalg.solve(B, sides)
    return seen - h * solved[:, :, 0], h * solved[:, :, 1]


def imputed_moments(xp: Namespace, z: Array, precision: FloatArray, shares: Array = None) -> tuple[Array, Array]:
    """Rows with expected values for missing ones, and the sum over the rows of C, with their weights."""
    B, h = _systems(xp, z, precision)
    seen = xp.where(xp.isnan(z), xp.zeros_like(z), z)
    inverse = xp.linalg.inv(B) * h[:, :, None] * h[:, None, :]
    full = seen - xp.matmul(inverse, xp.matmul(seen, like(xp, precision, z))[:, :, None])[:, :, 0]
    return full, xp.sum(inverse if shares is None else inverse * shares[:, None, None], axis=0)


def expected_rows(xp: Namespace, z: Array, precision: FloatArray, direction: FloatArray) -> tuple[Array, Array]:
    """:func:`imputed` for rows in their order, with or without missing values, batch by batch."""
    length, n = _batch(z), z.shape[0]
    parts = [imputed(xp, z[i : min(i + length, n), :], precision, direction) for i in range(0, n, length)]
    return xp.concat([part[0] for part in parts], axis=0), xp.concat([part[1] for part in parts], axis=0)


class Complete(NamedTuple):
    """Rows without missing values, prepared: coordinates a of the frame and their length, the response z in units of
    its spread, whether the row counts, and its weight (None without weights). ``last`` has the θ of the last query and
    the fitted values there: queries about the residuals, the score and the tails often share them.
    """

    a: Any
    size: Any
    z: Any
    seen: Any
    shares: Any
    last: list[tuple[bytes, Any]]


@dataclass
class Rows:
    """Rows at θ: coordinates a and their length (None where a query does not need them), response z, its variance v (in
    memory one number where no value is missing), whether the row counts, its weight as a part of the largest (None
    without weights), and what computes the fitted values.
    """

    xp: Namespace
    a: Any
    size: Any
    z: Any
    v: Any
    seen: Any
    shares: Any
    project: Callable[[], Array]

    @cached_property
    def fitted(self) -> Array:
        return self.project()

    @cached_property
    def r(self) -> Array:
        """Residuals; 0 where a row does not count."""
        return self.xp.where(self.seen, self.z - self.fitted, self.xp.zeros_like(self.z))


@dataclass(frozen=True)
class RowQuery(NarrowQuery):
    """A query about rows at coefficients θ of a frame, residual scale σ."""

    frame: Frame = field(repr=False)
    theta: FloatArray = field(repr=False)
    sigma: float
    in_frame: ClassVar[bool] = True  # whether it needs the coordinates a

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        return self.sum_prepared(xp, *by_missing(xp, x, y, shares))

    @property
    def prepared_by(self) -> tuple[Hashable, ...]:
        return (*super().prepared_by, self.frame.key)

    def prepare(self, xp: Namespace, x: Array, y: Array) -> tuple[Any, ...]:
        """The parts of the rows, those without missing values in the coordinates a: these do not depend on θ."""
        parts = by_missing(xp, *self.unit_rows(xp, x, y))
        return tuple(part if part[3] else self._complete(xp, *part[:3]) for part in parts)

    def _complete(self, xp: Namespace, x: Array, y: Array, shares: Array) -> Complete:
        a, seen = self.frame.coordinates(xp, x), row_mask(xp, x, y, self.frame.excluded)
        return Complete(a, xp.sqrt(squares(xp, a)), self.frame.response(y), seen, shares, [(b"", None)])

    def sum_prepared(self, xp: Namespace, *prepared: Any) -> Array:
        total: Array = None
        for part in prepared:
            added = self.added(xp, self._at(xp, part) if isinstance(part, Complete) else self._rows(xp, *part))
            total = added if total is None else total + added
        return total

    @abstractmethod
    def added(self, xp: Namespace, rows: Rows) -> Array:
        """The sum of what the rows contribute, clipped."""

    def _at(self, xp: Namespace, part: Complete) -> Rows:
        """Prepared rows at θ."""

        def project() -> Array:
            theta, fitted = part.last[0]  # read and replaced at once: another thread may use the same rows
            if theta != self.theta.tobytes():
                fitted = xp.matmul(part.a, like(xp, self.theta, part.a))
                part.last[0] = (self.theta.tobytes(), fitted)
            return fitted

        v = self._variance(xp, part.z)
        return Rows(xp, part.a, part.size, part.z, v, part.seen, part.shares, project)

    def _variance(self, xp: Namespace, z: Array) -> Array:
        return self.sigma**2 if isinstance(z, np.ndarray) else xp.full_like(z, self.sigma**2)

    def _rows(self, xp: Namespace, x: Array, y: Array, shares: Array, missing: bool) -> Rows:
        """Rows at θ."""
        frame, theta = self.frame, self.theta
        seen, z, v = row_mask(xp, x, y, frame.excluded), frame.response(y), self._variance(xp, y)
        a: Array = None
        if missing:
            slopes, turn = frame.slopes(theta), like(xp, frame.whiten.T, x)
            full, along = imputed(xp, standardized(xp, x, frame.centre, frame.scale), frame.precision, slopes)
            v = v + xp.clip(xp.matmul(along, like(xp, slopes, x)), 0.0, math.inf)
            a = xp.concat([xp.ones_like(y)[:, None], xp.matmul(full, turn)], axis=1)
        elif self.in_frame:
            a = frame.coordinates(xp, x)
        size: Array = None
        if self.in_frame:
            size = xp.sqrt(squares(xp, a) if isinstance(a, np.ndarray) else xp.sum(a * a, axis=1))

        def project() -> Array:
            if a is not None:
                return xp.matmul(a, like(xp, theta, x))
            matrix, shift = frame.turn
            return xp.matmul(x, like(xp, matrix @ theta, x)) - float(shift @ theta)

        return Rows(xp, a, size, z, v, seen, shares, project)
