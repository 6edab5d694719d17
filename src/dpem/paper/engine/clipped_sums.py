"""Compiled loops that add weight × clipped entry over all columns: for row-major, column-major and sparse rows.

:mod:`dpem.paper.engine.projections` computes the products with β, the model's formula turns them into the weight a_i of
each row (and c_i of its missing entries), and the loops here add a_i·e(x_i).

All clipping is done here, after the weight is known, so that the bound holds whatever a record contains. A weight is
cast to the rows' dtype and *then* clamped to [−A, A], where A is a number of that dtype; not-a-number counts as 0. An
entry is clipped by comparisons that turn not-a-number into the upper limit (or into 0, if it marks a missing entry,
which has a term of its own). So each term is at most A times the larger limit in size.

Numba recompiles cached code only if the file of the function itself changed: so all functions that clip are in this
file. No loop starts threads: see :mod:`dpem._threads`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from dpem.query import BLOCK

#: The sums of one column may be reordered, since the slack covers any order; NaN keeps its meaning.
_reordered = njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
_compiled = njit(cache=True, nogil=True, fastmath={"contract"})
_inlined = njit(cache=True, nogil=True, inline="always")


@_inlined
def clamp(value, low, high):  # type: ignore[no-untyped-def]
    """``value`` clamped to [low, high]; not-a-number becomes 0."""
    if value != value:
        return 0.0
    return min(max(value, low), high)


@_compiled
def clamped(values, low, high, out):  # type: ignore[no-untyped-def]
    """Write ``values`` to ``out``: cast to its dtype, then clamped to [low, high]."""
    kind = out.dtype.type
    for i in range(out.shape[0]):
        out[i] = clamp(kind(values[i]), low, high)


@_compiled
def entry(x, low, high, line, nan_value):  # type: ignore[no-untyped-def]
    """e(x): x, or floor + slope·(x² − start) if ``line`` has these three numbers, clipped to [low, high]. Not-a-number
    becomes ``high``, or ``nan_value`` if that is given because not-a-number marks a missing entry.
    """
    u = x if line is None else line[0] + line[1] * (x * x - line[2])
    inside = u if u < high else high
    inside = inside if inside > low else low
    if nan_value is None:
        return inside
    return inside if x == x else nan_value


# --- Row-major; rows of X may be padded to more than d numbers --------------------------------------------------------


@_compiled
def accumulate(X, a, A, low, high, line, nan_value, c, c_max, missing_variance, where, beta, out):  # type: ignore[no-untyped-def]
    """Add Σ clamp(a_i, ±A)·e(x_i) to ``out``: BLOCK rows in their dtype, blocks in float64. Eight rows are added for
    one reading of the block's sum.

    If entries may be missing (NaN), ``nan_value`` is 0 and such an entry adds clamp(c_i, −1, c_max)·β_j. That is not 0
    only in the columns ``where``, whose β is given, and in rows with ``missing_variance`` > 0. If not, ``nan_value`` is
    None and c is empty.
    """
    n, d, kind = a.shape[0], out.shape[0], X.dtype.type
    block, w, v = np.zeros(d, dtype=X.dtype), np.zeros(-(-n // 8) * 8, dtype=X.dtype), np.empty(c.shape[0], X.dtype)
    clamped(a, -A, A, w[:n])
    clamped(c, kind(-1.0), c_max, v)
    for first in range(0, n, BLOCK):
        last = min(n, first + BLOCK)
        block[:] = 0
        for i in range(first, last, 8):  # beyond the end, the last row is read again with weight 0
            r0, r1, r2, r3 = X[i], X[min(i + 1, n - 1)], X[min(i + 2, n - 1)], X[min(i + 3, n - 1)]
            r4, r5 = X[min(i + 4, n - 1)], X[min(i + 5, n - 1)]
            r6, r7 = X[min(i + 6, n - 1)], X[min(i + 7, n - 1)]
            a0, a1, a2, a3, a4, a5, a6, a7 = w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
            for j in range(d):
                less = a0 * entry(r0[j], low, high, line, nan_value) + a1 * entry(r1[j], low, high, line, nan_value)
                less += a2 * entry(r2[j], low, high, line, nan_value) + a3 * entry(r3[j], low, high, line, nan_value)
                more = a4 * entry(r4[j], low, high, line, nan_value) + a5 * entry(r5[j], low, high, line, nan_value)
                more += a6 * entry(r6[j], low, high, line, nan_value) + a7 * entry(r7[j], low, high, line, nan_value)
                block[j] += less + more
        if nan_value is not None:
            for i in range(first, last):
                for k in range(where.shape[0] if missing_variance[i] > 0.0 else 0):
                    if X[i, where[k]] != X[i, where[k]]:
                        block[where[k]] += v[i] * beta[k]
        for j in range(d):
            out[j] += block[j]


# --- Column-major: row j of XT holds column j of the table ----------------------------------------------------------


@_reordered
def dots(x0, x1, x2, x3, a, low, high, line, nan_value):  # type: ignore[no-untyped-def]
    """Σ a_i·e(x_i) of four columns in their dtype, for one reading of the weights."""
    zero = a.dtype.type(0)
    t0, t1, t2, t3 = zero, zero, zero, zero
    for i in range(a.shape[0]):
        t0 += a[i] * entry(x0[i], low, high, line, nan_value)
        t1 += a[i] * entry(x1[i], low, high, line, nan_value)
        t2 += a[i] * entry(x2[i], low, high, line, nan_value)
        t3 += a[i] * entry(x3[i], low, high, line, nan_value)
    return t0, t1, t2, t3


@_reordered
def dot_missing(x, c, b):  # type: ignore[no-untyped-def]
    """Σ c_i·b over missing entries."""
    zero = c.dtype.type(0)
    total = zero
    for i in range(x.shape[0]):
        total += c[i] * b if x[i] != x[i] else zero
    return total


@_compiled
def accumulate_columns(XT, a, low, high, line, nan_value, c, beta, out):  # type: ignore[no-untyped-def]
    """The sums of :func:`accumulate`, with weights that are clamped already and the β of all columns of XT."""
    n, d, part = a.shape[0], out.shape[0], np.zeros(4, dtype=a.dtype)
    for j in range(0, d, 4):
        x0, x1, x2, x3 = XT[j], XT[min(j + 1, d - 1)], XT[min(j + 2, d - 1)], XT[min(j + 3, d - 1)]
        for f in range(0, n, BLOCK):
            e = min(n, f + BLOCK)
            part[0], part[1], part[2], part[3] = dots(
                x0[f:e], x1[f:e], x2[f:e], x3[f:e], a[f:e], low, high, line, nan_value
            )
            for k in range(min(4, d - j)):
                if nan_value is not None and beta[j + k] != 0:
                    part[k] += dot_missing(XT[j + k, f:e], c[f:e], beta[j + k])
                out[j + k] += part[k]


@_reordered
def add_in_ball(XT, a, c, beta, centre, radius, has_missing, out):  # type: ignore[no-untyped-def]
    """Add to ``out`` each row's contribution u = a_i·x_i − centre (with c_i·β_j in place of a_i·x_ij if x_ij is
    missing), scaled into the ball of ``radius``, in float64. A contribution whose norm is not finite adds nothing.
    """
    s, n = XT.shape
    factor, u = np.empty(BLOCK), np.empty((s, BLOCK))
    for first in range(0, n, BLOCK):
        m = min(n - first, BLOCK)
        factor[:] = 0.0
        for k in range(s):
            x, u_k, b, centre_k = XT[k, first : first + m], u[k], beta[k], centre[k]
            for i in range(m):
                product = a[first + i] * x[i]
                u_k[i] = (c[first + i] * b if has_missing and x[i] != x[i] else product) - centre_k
                factor[i] += u_k[i] * u_k[i]
        for i in range(m):
            norm = math.sqrt(factor[i])
            factor[i] = (radius / norm if norm > radius else 1.0) if norm < math.inf else 0.0
        for k in range(s):
            total = 0.0
            for i in range(m):
                total += factor[i] * u[k, i] if factor[i] > 0.0 else 0.0
            out[k] += total


# --- Sparse rows: data, indices and indptr of a CSR matrix; an entry that is not stored is 0 -------------------------


@_compiled
def accumulate_sparse(data, indices, indptr, first, valid, a, A, low, high, line, has_missing, c, c_max, beta, out):  # type: ignore[no-untyped-def]
    """The sums of :func:`accumulate` in float64, minus Σ a_i·e(0), which is the same for every column and is the last
    number of ``out``.
    """
    d, zero = out.shape[0] - 1, entry(0.0, low, high, line, None)
    for i in range(valid.shape[0]):
        if valid[i]:
            a_i, c_i = clamp(a[i], -A, A), clamp(c[i], -1.0, c_max)
            out[d] += a_i * zero
            for e in range(indptr[first + i], indptr[first + i + 1]):
                x, j = np.float64(data[e]), indices[e]
                missing = has_missing and x != x
                out[j] += c_i * beta[j] if missing else a_i * (entry(x, low, high, line, None) - zero)
