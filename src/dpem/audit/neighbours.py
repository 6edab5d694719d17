"""The rows that replace a record in a replay: extreme, missing and invalid entries, at which code often fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.query import FloatArray

Rows = NDArray[np.floating]


class Table(NamedTuple):
    """Rows and responses, and the name of the row that was replaced."""

    name: str
    X: Rows
    y: FloatArray | None


def replacement_rows(
    X: Rows, y: FloatArray | None, beta: FloatArray, row: int, *, missing: bool = False, broken: bool = False
) -> Iterator[tuple[str, Rows, float]]:
    """Rows that can replace ``row``: name, entries, response. Some are along or against the coefficients ``beta``.
    ``missing`` adds rows with missing entries, ``broken`` rows with entries that are not finite.
    """
    d, dtype = X.shape[1], X.dtype
    entries, response = X[row].copy(), 0.0 if y is None else float(y[row])
    big = 3e38 if dtype == np.float32 else 1e300
    signs = np.where(beta < 0, -1.0, 1.0)
    single, mostly_against = np.zeros(d), -1e6 * signs
    single[d // 2], mostly_against[0] = big, 1e3 * signs[0]
    other = (row + 1) % len(X)

    yield "outlier above", np.full(d, big), 1e300
    yield "outlier below", np.full(d, -big), -1e300
    yield "outlier with both signs", big * np.resize([1.0, -1.0], d), 1e300
    yield "one huge entry", single, response
    yield "all zero", np.zeros(d), 0.0
    yield "constant", np.ones(d), 1.0
    yield "duplicate", X[other], 0.0 if y is None else float(y[other])
    yield "subnormal", np.full(d, float(np.finfo(dtype).smallest_subnormal)), 5e-324
    yield "along the fit", 1e6 * signs, 1e6
    yield "along the fit, response against it", 1e6 * signs, -1e6
    yield "against the fit", -1e6 * signs, 1e6
    yield "against the fit but for one entry", mostly_against, 1e6
    yield "far response", entries, 1e300
    yield "far response below", entries, -1e300
    yield "at the scale of the fit", 3.0 * signs, -3.0
    yield "the largest numbers", np.full(d, float(np.finfo(dtype).max)), float(np.finfo(np.float64).max)
    if missing:
        half = np.where(np.arange(d) % 2 == 0, np.nan, X[row])
        yield "nothing observed", np.full(d, np.nan), response
        yield "nothing observed, far response", np.full(d, np.nan), 1e300
        yield "half observed", half, response
        yield "half observed, outlier", np.where(np.isnan(half), np.nan, big), -1e300
    if broken:
        yield "not a number", np.full(d, np.nan), np.nan
        yield "infinite", np.full(d, np.inf), -np.inf
        yield "infinite with both signs", np.resize([np.inf, -np.inf], d), np.inf


def replace_rows(table: Table, name: str, rows: Rows, response: float, where: NDArray[np.intp]) -> Table:
    """The table with the rows at ``where`` replaced."""
    X = np.array(table.X)
    X[where] = rows.astype(X.dtype)
    y = None if table.y is None else np.array(table.y)
    if y is not None:
        y[where] = response
    return Table(name, X, y)


def neighbours(
    table: Table,
    beta: FloatArray,
    *,
    missing: bool = False,
    broken: bool = False,
    where: NDArray[np.intp] | None = None,
) -> Iterator[Table]:
    """One neighbouring table for each kind of replacement of the rows ``where`` (by default, of the middle row).

    >>> table = Table("as drawn", np.zeros((5, 2)), None)
    >>> sum(1 for _ in neighbours(table, np.array([1.0, 0.0])))
    16
    """
    where = np.array([len(table.X) // 2]) if where is None else where
    for name, rows, response in replacement_rows(table.X, table.y, beta, int(where[0]), missing=missing, broken=broken):
        yield replace_rows(table, name, np.asarray(rows, dtype=float), response, where)
