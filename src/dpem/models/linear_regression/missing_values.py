"""Missing values: their expectation given the observed entries of a normal row, and its variance.

Let z ~ N(0, Σ) with precision Ω = Σ⁻¹, and let h be 1 at the missing values of a row. Given the observed entries the
missing ones have mean −Ω_hh⁻¹Ω_ho z_o and covariance C = Ω_hh⁻¹. Both come from one system with the matrix B that is Ω
between missing values and the identity elsewhere, so rows of every pattern are solved in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

#: Numbers in a batch of systems: in memory what a core's cache holds, elsewhere enough to keep a device busy.
BATCH, DEVICE_BATCH = 2**15, 2**24


def by_missing(xp: Namespace, x: Array, y: Array, shares: Array = None) -> Iterator[tuple[Array, Array, Array, bool]]:
    """The rows with their weights in parts, those without missing values first and then the others in short batches;
    True marks these.

    Sums do not depend on the order of rows but for rounding, which a source's slack covers in any order.
    """
    if isinstance(x, np.ndarray) and not np.isnan(np.sum(x)):  # a sum of numbers in [−1, 1]: NaN if any is missing
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


def systems(xp: Namespace, z: Array, precision: FloatArray) -> tuple[Array, Array]:
    """B of each row, and 1 at its missing values."""
    h = xp.astype(xp.isnan(z), xp.float64)
    B = h[:, :, None] * like(xp, precision, z)[None, :, :] * h[:, None, :]
    return B + (1.0 - h)[:, :, None] * like(xp, np.eye(z.shape[1]), z)[None, :, :], h


def filled(xp: Namespace, z: Array, precision: FloatArray, direction: FloatArray) -> tuple[Array, Array]:
    """Rows with expected values for missing ones, and C·direction of each row (0 where an entry was observed)."""
    B, h = systems(xp, z, precision)
    seen = xp.where(xp.isnan(z), xp.zeros_like(z), z)
    sides = xp.stack([h * xp.matmul(seen, like(xp, precision, z)), h * like(xp, direction, z)[None, :]], axis=2)
    solved = xp.linalg.solve(B, sides)
    return seen - h * solved[:, :, 0], h * solved[:, :, 1]


def filled_squares(xp: Namespace, z: Array, precision: FloatArray, shares: Array = None) -> tuple[Array, Array]:
    """Rows with expected values for missing ones, and the sum over the rows of C, with their weights."""
    B, h = systems(xp, z, precision)
    seen = xp.where(xp.isnan(z), xp.zeros_like(z), z)
    inverse = xp.linalg.inv(B) * h[:, :, None] * h[:, None, :]
    full = seen - xp.matmul(inverse, xp.matmul(seen, like(xp, precision, z))[:, :, None])[:, :, 0]
    return full, xp.sum(inverse if shares is None else inverse * shares[:, None, None], axis=0)


def expected(xp: Namespace, z: Array, precision: FloatArray, direction: FloatArray) -> tuple[Array, Array]:
    """:func:`filled` for rows in their order, with or without missing values, batch by batch."""
    length, n = _batch(z), z.shape[0]
    parts = [filled(xp, z[i : min(i + length, n), :], precision, direction) for i in range(0, n, length)]
    return xp.concat([part[0] for part in parts], axis=0), xp.concat([part[1] for part in parts], axis=0)
