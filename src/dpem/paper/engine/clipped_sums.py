"""Compiled loops that add weight × clipped entry over all columns.

No model is here. A query about all columns is asked block by block: :mod:`dpem.paper.engine.projections` reads what
the weights depend on, the model turns it into one number a_i for each row (and c_i for its missing entries), and
``accumulate`` adds a_i·Π_T(x_i). There is one set of loops for rows that lie together, one for columns that lie
together and one for sparse rows.

The clipping is done here and nowhere else, after the weight is known, so that the bound holds whatever a record
contains: a weight is cast to the rows' dtype and *then* clamped to [−A, A], A a number of that dtype, and counts as
zero if it is not a number; an entry is compared so that what is not a number becomes T (or 0, where it is missing and
has a term of its own). So each term is at most A·T.

All that clips is in this one file, so that compiled code that is kept between processes never outlives a change of what
it was compiled from. No loop starts threads: see :mod:`dpem._threads`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from dpem.query import BLOCK

#: Sums of one column may be reordered (they are slack-bounded either way), NaN keeps its meaning.
_reordered = njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
_compiled = njit(cache=True, nogil=True, fastmath={"contract"})
_inlined = njit(cache=True, nogil=True, inline="always")


@_inlined
def clamp(value, low, high):  # type: ignore[no-untyped-def]
    """``value`` moved into [low, high]; not-a-number becomes 0."""
    if value != value:
        return 0.0
    return min(max(value, low), high)


@_compiled
def clamped(values, low, high, out):  # type: ignore[no-untyped-def]
    """``values`` in the dtype of ``out``, then in [low, high]."""
    kind = out.dtype.type
    for i in range(out.shape[0]):
        out[i] = clamp(kind(values[i]), low, high)


@_compiled
def clip(x, T, odd):  # type: ignore[no-untyped-def]
    """x moved into [−T, T]; not-a-number becomes T, or ``odd`` where entries may be missing."""
    inside = x if x < T else T
    inside = inside if inside > -T else -T
    if odd is None:
        return inside
    return inside if x == x else odd


@_inlined
def ramp(x, floor, slope, start, one):  # type: ignore[no-untyped-def]
    """floor below ``start``, one from where floor + slope·(x² − start) reaches it; not-a-number becomes one."""
    h = floor + slope * (x * x - start)
    h = h if h < one else one
    return h if h > floor else floor


# --- Rows together: a row of X may be longer than the d numbers that belong to it -------------------------------------


@_compiled
def accumulate(X, a, A, T, odd, c, low, high, hidden, where, beta, out):  # type: ignore[no-untyped-def]
    """Add Σ clamp(a_i, ±A)·Π_T(x_i) to ``out``, eight rows for one reading of it: BLOCK rows in their dtype, blocks in
    float64.

    Where entries may be missing (NaN) ``odd`` is 0, and such an entry adds clamp(c_i, low, high)·β_j, which is 0 but
    in the columns ``where``, whose β is given, of rows with ``hidden`` > 0; else ``odd`` is None and c has no numbers.
    """
    n, d = a.shape[0], out.shape[0]
    block, w, v = (
        np.zeros(d, dtype=X.dtype),
        np.zeros(-(-n // 8) * 8, dtype=X.dtype),
        np.empty(c.shape[0], dtype=X.dtype),
    )
    clamped(a, -A, A, w[:n])
    clamped(c, low, high, v)
    for first in range(0, n, BLOCK):
        last = min(n, first + BLOCK)
        block[:] = 0
        for i in range(first, last, 8):  # rows beyond the last one are the last one, with weight 0
            r0, r1, r2, r3 = X[i], X[min(i + 1, n - 1)], X[min(i + 2, n - 1)], X[min(i + 3, n - 1)]
            r4, r5 = X[min(i + 4, n - 1)], X[min(i + 5, n - 1)]
            r6, r7 = X[min(i + 6, n - 1)], X[min(i + 7, n - 1)]
            a0, a1, a2, a3, a4, a5, a6, a7 = w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
            for j in range(d):
                less = a0 * clip(r0[j], T, odd) + a1 * clip(r1[j], T, odd)
                less += a2 * clip(r2[j], T, odd) + a3 * clip(r3[j], T, odd)
                more = a4 * clip(r4[j], T, odd) + a5 * clip(r5[j], T, odd)
                more += a6 * clip(r6[j], T, odd) + a7 * clip(r7[j], T, odd)
                block[j] += less + more
        if odd is not None:
            for i in range(first, last):
                for k in range(where.shape[0] if hidden[i] > 0.0 else 0):
                    if X[i, where[k]] != X[i, where[k]]:
                        block[where[k]] += v[i] * beta[k]
        for j in range(d):
            out[j] += block[j]


@_compiled
def accumulate_ramp(X, g, floor, slope, start, out):  # type: ignore[no-untyped-def]
    """Add Σ clamp(g_i, ±1)·ramp(x_i²) to ``out``, eight rows for one reading of it; g without numbers means 1 for
    every row.
    """
    n, d, kind = X.shape[0], out.shape[0], X.dtype.type
    one, block, w = kind(1.0), np.zeros(d, dtype=X.dtype), np.zeros(-(-n // 8) * 8, dtype=X.dtype)
    w[:n] = one
    if g.shape[0] == n:
        clamped(g, -one, one, w[:n])
    for first in range(0, n, BLOCK):
        block[:] = 0
        for i in range(first, min(n, first + BLOCK), 8):  # rows beyond the last one are the last one, with weight 0
            r0, r1, r2, r3 = X[i], X[min(i + 1, n - 1)], X[min(i + 2, n - 1)], X[min(i + 3, n - 1)]
            r4, r5 = X[min(i + 4, n - 1)], X[min(i + 5, n - 1)]
            r6, r7 = X[min(i + 6, n - 1)], X[min(i + 7, n - 1)]
            g0, g1, g2, g3, g4, g5, g6, g7 = w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
            for j in range(d):
                less = g0 * ramp(r0[j], floor, slope, start, one) + g1 * ramp(r1[j], floor, slope, start, one)
                less += g2 * ramp(r2[j], floor, slope, start, one) + g3 * ramp(r3[j], floor, slope, start, one)
                more = g4 * ramp(r4[j], floor, slope, start, one) + g5 * ramp(r5[j], floor, slope, start, one)
                more += g6 * ramp(r6[j], floor, slope, start, one) + g7 * ramp(r7[j], floor, slope, start, one)
                block[j] += less + more
        for j in range(d):
            out[j] += block[j]


# --- Columns together: row j of XT holds column j of the table ------------------------------------------------------


@_reordered
def dots(x0, x1, x2, x3, a, T, odd):  # type: ignore[no-untyped-def]
    """Σ a_i·Π_T(x_i) of four columns in their dtype: four for one reading of the weights."""
    zero = a.dtype.type(0)
    t0, t1, t2, t3 = zero, zero, zero, zero
    for i in range(a.shape[0]):
        t0 += a[i] * clip(x0[i], T, odd)
        t1 += a[i] * clip(x1[i], T, odd)
        t2 += a[i] * clip(x2[i], T, odd)
        t3 += a[i] * clip(x3[i], T, odd)
    return t0, t1, t2, t3


@_reordered
def dot_missing(x, c, b):  # type: ignore[no-untyped-def]
    """Σ c_i·b over missing entries."""
    zero = c.dtype.type(0)
    total = zero
    for i in range(x.shape[0]):
        total += c[i] * b if x[i] != x[i] else zero
    return total


@_reordered
def dots_ramp(x0, x1, x2, x3, g, floor, slope, start, one):  # type: ignore[no-untyped-def]
    """Σ g_i·ramp(x_i²) of four columns."""
    zero = g.dtype.type(0)
    t0, t1, t2, t3 = zero, zero, zero, zero
    for i in range(g.shape[0]):
        t0 += g[i] * ramp(x0[i], floor, slope, start, one)
        t1 += g[i] * ramp(x1[i], floor, slope, start, one)
        t2 += g[i] * ramp(x2[i], floor, slope, start, one)
        t3 += g[i] * ramp(x3[i], floor, slope, start, one)
    return t0, t1, t2, t3


@_compiled
def accumulate_columns(XT, a, T, odd, c, beta, out):  # type: ignore[no-untyped-def]
    """The sums of :func:`accumulate`; the weights are clamped already, and β is that of all these columns."""
    n, d, part = a.shape[0], out.shape[0], np.zeros(4, dtype=a.dtype)
    for j in range(0, d, 4):
        x0, x1, x2, x3 = XT[j], XT[min(j + 1, d - 1)], XT[min(j + 2, d - 1)], XT[min(j + 3, d - 1)]
        for f in range(0, n, BLOCK):
            e = min(n, f + BLOCK)
            part[0], part[1], part[2], part[3] = dots(x0[f:e], x1[f:e], x2[f:e], x3[f:e], a[f:e], T, odd)
            for k in range(min(4, d - j)):
                if odd is not None and beta[j + k] != 0:
                    part[k] += dot_missing(XT[j + k, f:e], c[f:e], beta[j + k])
                out[j + k] += part[k]


@_compiled
def accumulate_ramp_columns(XT, g, floor, slope, start, out):  # type: ignore[no-untyped-def]
    """The sums of :func:`accumulate_ramp`; g is clamped already."""
    n, d, one, sums = g.shape[0], out.shape[0], g.dtype.type(1.0), np.zeros(4)
    for j in range(0, d, 4):
        x0, x1, x2, x3 = XT[j], XT[min(j + 1, d - 1)], XT[min(j + 2, d - 1)], XT[min(j + 3, d - 1)]
        sums[:] = 0.0
        for f in range(0, n, BLOCK):
            e = min(n, f + BLOCK)
            t0, t1, t2, t3 = dots_ramp(x0[f:e], x1[f:e], x2[f:e], x3[f:e], g[f:e], floor, slope, start, one)
            sums[0], sums[1], sums[2], sums[3] = sums[0] + t0, sums[1] + t1, sums[2] + t2, sums[3] + t3
        for k in range(min(4, d - j)):
            out[j + k] = sums[k]


@_reordered
def add_in_ball(XT, a, c, beta, centre, radius, has_missing, out):  # type: ignore[no-untyped-def]
    """Add to ``out`` each row's contribution u = a_i·x_i − centre (c_i·β_j in the place of a missing x_ij),
    scaled into the ball of that radius; one that is not finite, or overflows, adds nothing. In float64.
    """
    s, n = XT.shape
    factor, u = np.empty(BLOCK), np.empty((s, BLOCK))
    for first in range(0, n, BLOCK):
        m = min(n - first, BLOCK)
        factor[:] = 0.0
        for k in range(s):
            x, mine, b, middle = XT[k, first : first + m], u[k], beta[k], centre[k]
            for i in range(m):
                there = a[first + i] * x[i]
                mine[i] = (c[first + i] * b if has_missing and x[i] != x[i] else there) - middle
                factor[i] += mine[i] * mine[i]
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
def accumulate_sparse(data, indices, indptr, first, right, a, c, beta, has_missing, A, low, high, T, out):  # type: ignore[no-untyped-def]
    """As :func:`accumulate`, over stored entries, since a·Π_T(0) = 0; in float64."""
    for i in range(a.shape[0]):
        if right[i]:
            a_i, c_i = clamp(a[i], -A, A), clamp(c[i], low, high)
            for e in range(indptr[first + i], indptr[first + i + 1]):
                x, j = np.float64(data[e]), indices[e]
                out[j] += c_i * beta[j] if has_missing and x != x else a_i * clip(x, T, None)


@_compiled
def accumulate_ramp_sparse(data, indices, indptr, first, right, g, floor, slope, start, out):  # type: ignore[no-untyped-def]
    """As :func:`accumulate_ramp`, as what stored entries add to a row of zeros; the last number of ``out`` is Σ
    g_i·floor, which every column of the table has to be given once.
    """
    d, has_g = out.shape[0] - 1, g.shape[0] == right.shape[0]
    for i in range(right.shape[0]):
        if right[i]:
            g_i = clamp(g[i], -1.0, 1.0) if has_g else 1.0
            out[d] += g_i * floor
            for e in range(indptr[first + i], indptr[first + i + 1]):
                out[indices[e]] += g_i * (ramp(np.float64(data[e]), floor, slope, start, 1.0) - floor)
