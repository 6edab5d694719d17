"""Compiled loops that add weight × clipped entry over all columns.

No model is here. A query about all columns is sent block by block: :mod:`dpem.paper.engine.projections` reads what
the weights depend on, the model turns it into one number a_i for each row (and c_i for its missing entries), and
``accumulate`` adds a_i·e(x_i). There is one loop for row-major arrays, one for column-major arrays and one for
sparse rows.

The clipping is done here and nowhere else, after the weight is known, so that the bound holds whatever a record
contains: a weight is cast to the rows' dtype and *then* clamped to [−A, A], A a number of that dtype, and counts as
zero if it is not a number; an entry is compared so that what is not a number becomes the high end (or 0, where it is
missing and has a term of its own). So each term is at most A times the larger end.

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
def entry(x, low, high, line, odd):  # type: ignore[no-untyped-def]
    """x, or floor + slope·(x² − start) on a ``line`` of these three, moved into [low, high]; not-a-number becomes the
    high end, or ``odd`` where entries may be missing.
    """
    u = x if line is None else line[0] + line[1] * (x * x - line[2])
    inside = u if u < high else high
    inside = inside if inside > low else low
    if odd is None:
        return inside
    return inside if x == x else odd


# --- Row-major: a row of X may be longer than the d numbers that belong to it -----------------------------------------


@_compiled
def accumulate(X, a, A, low, high, line, odd, c, top, hidden, where, beta, out):  # type: ignore[no-untyped-def]
    """Add Σ clamp(a_i, ±A)·e(x_i) to ``out``, e the clipped :func:`entry`, eight rows for one reading of it: BLOCK rows
    in their dtype, blocks in float64.

    Where entries may be missing (NaN) ``odd`` is 0, and such an entry adds clamp(c_i, −1, top)·β_j, which is 0 but
    in the columns ``where``, whose β is given, of rows with ``hidden`` > 0; else ``odd`` is None and c has no numbers.
    """
    n, d, kind = a.shape[0], out.shape[0], X.dtype.type
    block, w, v = np.zeros(d, dtype=X.dtype), np.zeros(-(-n // 8) * 8, dtype=X.dtype), np.empty(c.shape[0], X.dtype)
    clamped(a, -A, A, w[:n])
    clamped(c, kind(-1.0), top, v)
    for first in range(0, n, BLOCK):
        last = min(n, first + BLOCK)
        block[:] = 0
        for i in range(first, last, 8):  # rows beyond the last one are the last one, with weight 0
            r0, r1, r2, r3 = X[i], X[min(i + 1, n - 1)], X[min(i + 2, n - 1)], X[min(i + 3, n - 1)]
            r4, r5 = X[min(i + 4, n - 1)], X[min(i + 5, n - 1)]
            r6, r7 = X[min(i + 6, n - 1)], X[min(i + 7, n - 1)]
            a0, a1, a2, a3, a4, a5, a6, a7 = w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
            for j in range(d):
                less = a0 * entry(r0[j], low, high, line, odd) + a1 * entry(r1[j], low, high, line, odd)
                less += a2 * entry(r2[j], low, high, line, odd) + a3 * entry(r3[j], low, high, line, odd)
                more = a4 * entry(r4[j], low, high, line, odd) + a5 * entry(r5[j], low, high, line, odd)
                more += a6 * entry(r6[j], low, high, line, odd) + a7 * entry(r7[j], low, high, line, odd)
                block[j] += less + more
        if odd is not None:
            for i in range(first, last):
                for k in range(where.shape[0] if hidden[i] > 0.0 else 0):
                    if X[i, where[k]] != X[i, where[k]]:
                        block[where[k]] += v[i] * beta[k]
        for j in range(d):
            out[j] += block[j]


# --- Column-major: row j of XT holds column j of the table ----------------------------------------------------------


@_reordered
def dots(x0, x1, x2, x3, a, low, high, line, odd):  # type: ignore[no-untyped-def]
    """Σ a_i·e(x_i) of four columns in their dtype: four for one reading of the weights."""
    zero = a.dtype.type(0)
    t0, t1, t2, t3 = zero, zero, zero, zero
    for i in range(a.shape[0]):
        t0 += a[i] * entry(x0[i], low, high, line, odd)
        t1 += a[i] * entry(x1[i], low, high, line, odd)
        t2 += a[i] * entry(x2[i], low, high, line, odd)
        t3 += a[i] * entry(x3[i], low, high, line, odd)
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
def accumulate_columns(XT, a, low, high, line, odd, c, beta, out):  # type: ignore[no-untyped-def]
    """The sums of :func:`accumulate`; the weights are clamped already, and β is that of all these columns."""
    n, d, part = a.shape[0], out.shape[0], np.zeros(4, dtype=a.dtype)
    for j in range(0, d, 4):
        x0, x1, x2, x3 = XT[j], XT[min(j + 1, d - 1)], XT[min(j + 2, d - 1)], XT[min(j + 3, d - 1)]
        for f in range(0, n, BLOCK):
            e = min(n, f + BLOCK)
            part[0], part[1], part[2], part[3] = dots(x0[f:e], x1[f:e], x2[f:e], x3[f:e], a[f:e], low, high, line, odd)
            for k in range(min(4, d - j)):
                if odd is not None and beta[j + k] != 0:
                    part[k] += dot_missing(XT[j + k, f:e], c[f:e], beta[j + k])
                out[j + k] += part[k]


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
            x, part, b, middle = XT[k, first : first + m], u[k], beta[k], centre[k]
            for i in range(m):
                product = a[first + i] * x[i]
                part[i] = (c[first + i] * b if has_missing and x[i] != x[i] else product) - middle
                factor[i] += part[i] * part[i]
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
def accumulate_sparse(data, indices, indptr, first, sound, a, A, low, high, line, has_missing, c, top, beta, out):  # type: ignore[no-untyped-def]
    """As :func:`accumulate`, as what stored entries add to a row of zeros; the last number of ``out`` is Σ a_i·e(0),
    which every column of the table has to be given once. In float64.
    """
    d, zero = out.shape[0] - 1, entry(0.0, low, high, line, None)
    for i in range(sound.shape[0]):
        if sound[i]:
            a_i, c_i = clamp(a[i], -A, A), clamp(c[i], -1.0, top)
            out[d] += a_i * zero
            for e in range(indptr[first + i], indptr[first + i + 1]):
                x, j = np.float64(data[e]), indices[e]
                missing = has_missing and x != x
                out[j] += c_i * beta[j] if missing else a_i * (entry(x, low, high, line, None) - zero)
