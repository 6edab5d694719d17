"""Rows in the coordinates of the fit with missing values imputed, and the base class of queries about them.

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
from typing import ClassVar, NamedTuple

import numpy as np

from dpem.queries.block_loop import product
from dpem.queries.narrow import NarrowQuery, all_finite, squares
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

#: Eigenvalues below this are rounding errors.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Frame:
    """The coordinates of a fit: a row u in unit coordinates becomes z = scale·(u − centre) with missing values imputed,
    and then a = (1, whiten·z), whose entries are hardly correlated.

    Coefficients θ are those of a, in units of the response's spread. ``covariance`` is that of z. Rows with a level in
    ``excluded``, which is too rare, do not count.
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
    def affine(self) -> tuple[FloatArray, FloatArray]:
        """The matrix and shift of a = u·matrix − shift for a row u without missing values."""
        matrix, shift = np.zeros((self.width, self.width + 1)), np.full(self.width + 1, -1.0)
        matrix[:, 1:] = (self.whiten @ self.scale).T
        shift[1:] = self.centre @ matrix[:, 1:]
        return matrix, shift

    @property
    def longest(self) -> float:
        """An upper bound of ‖a‖ for rows between the bounds without missing values."""
        matrix, shift = self.affine
        return float(np.linalg.norm(np.abs(shift) + np.sum(np.abs(matrix), axis=0)))

    def in_unit_coordinates(self) -> tuple[FloatArray, FloatArray]:
        """A and b of (intercept, slopes) = A·θ + b in unit coordinates."""
        slopes = (self.whiten @ self.scale).T
        A = np.zeros((self.width + 1, self.width + 1))
        A[0, 0], A[0, 1:], A[1:, 1:] = 1.0, -self.centre @ slopes, slopes
        return A * self.y_spread, np.concatenate([[self.y_centre], np.zeros(self.width)])

    def slopes(self, theta: FloatArray) -> FloatArray:
        """The coefficients of z that correspond to θ."""
        return np.asarray(self.whiten.T @ theta[1:])

    def unit_covariance(self) -> FloatArray:
        """The covariance of u."""
        inverse = np.linalg.inv(self.scale)
        return np.asarray(inverse @ self.covariance @ inverse.T)

    def response(self, y: Array) -> Array:
        """Standardised responses."""
        return (y - self.y_centre) / self.y_spread

    def coordinates(self, xp: Namespace, x: Array) -> Array:
        """The coordinates a of rows without missing values."""
        matrix, shift = self.affine
        a = product(xp, x, matrix)
        if isinstance(a, np.ndarray):
            return np.subtract(a, shift, out=a)
        return a - like(xp, shift, x)

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        """A hashable key of everything that coordinates and responses depend on."""
        return (*(array.tobytes() for array in self.affine), self.excluded, self.y_centre, self.y_spread)


def standardized(xp: Namespace, x: Array, centre: FloatArray, scale: FloatArray) -> Array:
    """scale·(x − centre) of each row, NaN where x is NaN; the coordinates of a factor are missing together."""
    if isinstance(x, np.ndarray) and all_finite(x):
        diagonal = np.diag(scale)
        z = x * diagonal if np.count_nonzero(scale) == np.count_nonzero(diagonal) else product(xp, x, scale.T)
        z -= scale @ centre
        return z
    missing = xp.isnan(x)
    centred = xp.where(missing, xp.zeros_like(x), x - like(xp, centre, x))
    return xp.where(missing, xp.full_like(x, xp.nan), xp.matmul(centred, like(xp, scale.T, x)))


def row_mask(xp: Namespace, x: Array, y: Array, excluded: tuple[int, ...]) -> Array:
    """Which rows count: those with a response and without an excluded level."""
    seen = ~xp.isnan(y)
    for j in excluded:
        seen = seen & ~(x[:, j] == 1.0)
    return seen


#: Numbers in a batch of linear systems: as many as fit into a core's cache, or enough to keep a device busy.
BATCH, DEVICE_BATCH = 2**15, 2**24


def by_missing(xp: Namespace, x: Array, y: Array, shares: Array = None) -> Iterator[tuple[Array, Array, Array, bool]]:
    """Rows, responses and weights in parts: the complete rows, then the others in short batches, marked by True. Their
    order changes sums by rounding only, which the slack of a source covers.
    """
    if isinstance(x, np.ndarray) and all_finite(x):
        yield x, y, shares, False
        return

    def taken(rows: Array, missing: bool) -> tuple[Array, Array, Array, bool]:
        weights = None if shares is None else xp.take(shares, rows, axis=0)
        return xp.take(x, rows, axis=0), xp.take(y, rows, axis=0), weights, missing

    incomplete = xp.any(xp.isnan(x), axis=1)
    count = int(xp.sum(xp.astype(incomplete, xp.int64)))
    if count < x.shape[0]:
        yield (x, y, shares, False) if count == 0 else taken(xp.nonzero(~incomplete)[0], False)
    if count:
        rows = xp.nonzero(incomplete)[0]
        length = _batch(x)
        for first in range(0, count, length):
            yield taken(rows[first : min(first + length, count)], True)


def _batch(x: Array) -> int:
    """The number of rows whose systems are solved at once."""
    return max(16, (BATCH if isinstance(x, np.ndarray) else DEVICE_BATCH) // max(1, x.shape[1]) ** 2)


def _systems(xp: Namespace, z: Array, precision: FloatArray) -> tuple[Array, Array]:
    """B and h of each row: its linear system, and 1 at its missing values."""
    h = xp.astype(xp.isnan(z), xp.float64)
    B = h[:, :, None] * like(xp, precision, z)[None, :, :] * h[:, None, :]
    return B + (1.0 - h)[:, :, None] * like(xp, np.eye(z.shape[1]), z)[None, :, :], h


def imputed(xp: Namespace, z: Array, precision: FloatArray, direction: FloatArray) -> tuple[Array, Array]:
    """Rows with missing values imputed, and C·direction of each row, 0 at observed entries."""
    B, h = _systems(xp, z, precision)
    seen = xp.where(xp.isnan(z), xp.zeros_like(z), z)
    sides = xp.stack([h * xp.matmul(seen, like(xp, precision, z)), h * like(xp, direction, z)[None, :]], axis=2)
    solved = xp.linalg.solve(B, sides)
    return seen - h * solved[:, :, 0], h * solved[:, :, 1]


def imputed_moments(xp: Namespace, z: Array, precision: FloatArray, shares: Array = None) -> tuple[Array, Array]:
    """Rows with missing values imputed, and the weighted sum of C over the rows."""
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
    """Prepared rows without missing values: coordinates a of the frame and their length, the standardised response z,
    whether the row counts, and its weight (None without weights). ``last`` holds the θ of the last query and the fitted
    values there, which queries of one step often share.
    """

    a: Array
    size: Array
    z: Array
    seen: Array
    shares: Array
    last: list[tuple[bytes, Array]]


@dataclass
class Rows:
    """Rows at θ: coordinates a and their length (None if the query does not need them), standardised response z and its
    variance v (a number for complete rows in memory), whether the row counts, its weight over the largest (None without
    weights), and the function that computes the fitted values.
    """

    xp: Namespace
    a: Array
    size: Array
    z: Array
    v: Array
    seen: Array
    shares: Array
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
    """A query about rows at coefficients θ of a frame and residual scale σ."""

    frame: Frame = field(repr=False)
    theta: FloatArray = field(repr=False)
    sigma: float
    in_frame: ClassVar[bool] = True  # whether it needs the coordinates a

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        return self.sum_prepared(xp, *by_missing(xp, x, y, shares))

    @property
    def prepared_by(self) -> tuple[Hashable, ...]:
        return (*super().prepared_by, self.frame.key)

    def prepare(self, xp: Namespace, x: Array, y: Array) -> tuple[Array, ...]:
        """The parts of :func:`by_missing`, with complete rows in the coordinates a, which do not depend on θ."""
        parts = by_missing(xp, *self.unit_rows(xp, x, y))
        return tuple(part if part[3] else self._complete(xp, *part[:3]) for part in parts)

    def _complete(self, xp: Namespace, x: Array, y: Array, shares: Array) -> Complete:
        a, seen = self.frame.coordinates(xp, x), row_mask(xp, x, y, self.frame.excluded)
        return Complete(a, xp.sqrt(squares(xp, a)), self.frame.response(y), seen, shares, [(b"", None)])

    def sum_prepared(self, xp: Namespace, *prepared: Array) -> Array:
        total: Array = None
        for part in prepared:
            added = self.added(
                xp, self._prepared_rows(xp, part) if isinstance(part, Complete) else self._rows(xp, *part)
            )
            total = added if total is None else total + added
        return total

    @abstractmethod
    def added(self, xp: Namespace, rows: Rows) -> Array:
        """The sum of the clipped contributions of the rows."""

    def _prepared_rows(self, xp: Namespace, part: Complete) -> Rows:
        """Prepared complete rows at θ."""

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
            slopes, whiten = frame.slopes(theta), like(xp, frame.whiten.T, x)
            full, projection = imputed(xp, standardized(xp, x, frame.centre, frame.scale), frame.precision, slopes)
            v = v + xp.clip(xp.matmul(projection, like(xp, slopes, x)), 0.0, math.inf)
            a = xp.concat([xp.ones_like(y)[:, None], xp.matmul(full, whiten)], axis=1)
        elif self.in_frame:
            a = frame.coordinates(xp, x)
        size: Array = None
        if self.in_frame:
            size = xp.sqrt(squares(xp, a) if isinstance(a, np.ndarray) else xp.sum(a * a, axis=1))

        def project() -> Array:
            if a is not None:
                return xp.matmul(a, like(xp, theta, x))
            matrix, shift = frame.affine
            return xp.matmul(x, like(xp, matrix @ theta, x)) - float(shift @ theta)

        return Rows(xp, a, size, z, v, seen, shares, project)
