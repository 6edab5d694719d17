"""Rows that are likely to break kernels: those of the replay audit, and mixtures of extreme numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpem.audit.neighbours import Table, replacement_rows
from dpem.query import FloatArray


def hostile(rows: Table, at: int, random: int) -> Iterator[tuple[str, FloatArray, float]]:
    """What the row ``at`` is replaced by: every kind of the replay audit, and random mixtures of the worst numbers.

    Edges are those of columns bounded by −3 and 3.5, as the columns of the queries here are.
    """
    X, y = rows.X, rows.y
    d = X.shape[1]
    yield from replacement_rows(X, y, np.ones(d), at, missing=True, broken=True)
    big = float(np.finfo(X.dtype).max)
    least = float(np.finfo(X.dtype).smallest_subnormal)
    tiny = float(np.finfo(X.dtype).tiny)
    yield "minus zero", np.full(d, -0.0), -0.0
    pool = [np.nan, np.inf, -np.inf, big, -big, 1e19, -2e19, 1e30, least, -least, tiny, 0.0, -0.0, 1.0, 2.0, -3.0, 3.5]
    pool += [float(np.nextafter(X.dtype.type(bound), X.dtype.type(up))) for bound in (-3.0, 3.5) for up in (-9, 9)]
    if X.dtype == np.float64:
        pool += [1e155, -1e155, 1e200, 1e308]
    rng = np.random.default_rng(11)
    for k in range(random):
        row = np.where(rng.random(d) < 0.6, rng.choice(pool, d), X[rng.integers(len(X))])
        response = rng.choice([0.5, -5.0, 5.0, 1e300, -1e300, np.nan, np.inf, 5e-324, -0.0])
        yield f"random {k}", row, float(response)


def cancelling(d: int, n: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Rows with one missing entry whose observed entries are huge and add up to zero, with a response of the size of
    the rounding error of that sum. They break a bound that depends on the sign of a difference, or on a cancellation.
    """
    rng = np.random.default_rng(seed)
    each, gap = np.arange(n), rng.integers(0, d, n)
    last = (gap + rng.integers(1, d, n)) % d
    big = 2.0 ** rng.integers(54, 60, n)
    X = rng.integers(-(2**20), 2**20, size=(n, d)) * big[:, None] / 2**20
    X[each, gap] = X[each, last] = 0.0
    X[each, last] = -X.sum(axis=1)
    X[each, gap] = np.nan
    return X, rng.standard_normal(n) * big * 2.0**-53 * 2.0 ** rng.integers(-2, 3, n)
