"""Compiled loops over rows in memory, one column after the other, for what numpy would read several times.

No loop calls one of another file but numpy's, so that compiled code that is kept between processes never outlives a
change of what it was compiled from. No loop starts threads: see :mod:`dpem._threads`.
"""

from __future__ import annotations

from numba import njit

_compiled = njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")


@_compiled
def shift_columns(a, shift, theta, r, squares):  # type: ignore[no-untyped-def]
    """Take ``shift`` from the columns, which are rows of the array a, and θ·a from r; add up the squares of a."""
    for j in range(a.shape[0]):
        column, s, c = a[j], shift[j], theta[j]
        for i in range(column.shape[0]):
            at = column[i] - s
            column[i] = at
            r[i] -= c * at
            squares[i] += at * at
