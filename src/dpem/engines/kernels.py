"""Fused kernels: E-step weight, clip and accumulate, in one pass over the rows.

Every model's gradient is a sum of *one scalar weight per record times the record* (plus, with missing covariates, a
term on the support of β). First come the weights, one small function per model, then the loops around them, for rows
that are dense and for rows that are sparse. ``weight`` returns (a, c): a·x on observed entries, c·β_j on missing ones
(0 for models without them); ``p`` holds the model's constants, σ² first. A model is chosen by a number, and all is in
one file, so that compiled code is kept between processes and never outlives a change of what it was compiled from.

The clipping is done here and nowhere else, after the weight is known, so that the bound holds whatever a record
contains: ``coordinate_kernel`` adds a·Π_T(x_j) with a clamped to [-A, A], so each entry is at most A·T;
``support_kernel`` scales a whole contribution into an ℓ2 ball. A weight that is not a number counts as zero.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

from dpem.query import BLOCK

SYMMETRIC_MIXTURE, SYMMETRIC_REGRESSION, TRUNCATED_SYMMETRIC_REGRESSION, MISSING_REGRESSION = range(4)

#: Sums may be reordered (they are slack-bounded either way), NaN keeps its meaning.
compiled = njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})


@njit(cache=True, nogil=True)
def clamp(value, low, high):  # type: ignore[no-untyped-def]
    """``value`` moved into [low, high]; not-a-number becomes 0."""
    if value != value:
        return 0.0
    return min(max(value, low), high)


@compiled
def dot(x, beta):  # type: ignore[no-untyped-def]
    """⟨β, x⟩ in their own dtype. Reading the whole row also brings it into cache for the accumulation that follows."""
    total = beta[0] - beta[0]  # zero of the same dtype
    for j in range(beta.shape[0]):
        total += beta[j] * x[j]
    return total


@compiled
def observed(x, beta):  # type: ignore[no-untyped-def]
    """⟨β, z⊙x⟩ and ‖(1−z)⊙β‖² in one reading of the row."""
    zero = beta[0] - beta[0]
    fitted = zero
    hidden = zero
    for j in range(beta.shape[0]):
        missing = x[j] != x[j]
        fitted += zero if missing else beta[j] * x[j]
        hidden += beta[j] * beta[j] if missing else zero
    return fitted, hidden


@compiled
def symmetric_mixture(fitted, y, p):  # type: ignore[no-untyped-def]
    """a = E[z | y] = tanh(⟨β, y⟩/σ²): the paper's 2w − 1 with the factor 2 it lost (erratum E1)."""
    return math.tanh(fitted / p[0])


@compiled
def symmetric_regression(fitted, y, p):  # type: ignore[no-untyped-def]
    """a = E[z | x, y]·y − ⟨β, x⟩: the residual from the expected response (errata E1 and E2 corrected)."""
    return math.tanh(y * fitted / p[0]) * y - fitted


@compiled
def truncated_symmetric_regression(fitted, y, p):  # type: ignore[no-untyped-def]
    """The same with the paper's truncation, T = p[1]: Π_T of the response and of the fitted value, each on its own."""
    return math.tanh(y * fitted / p[0]) * clamp(y, -p[1], p[1]) - clamp(fitted, -p[1], p[1])


@compiled
def missing_regression(fitted, hidden, y, p):  # type: ignore[no-untyped-def]
    """σ² times the observed-data score: a = σ²r/v if observed, c = (σ²/v)(r²/v − 1) if missing (erratum E3)."""
    r = y - fitted
    v = p[0] + hidden
    return p[0] * r / v, p[0] / v * (r * r / v - 1.0)


@compiled
def weight(kind, fitted, hidden, y, p):  # type: ignore[no-untyped-def]
    """(a, c) of the model that ``kind`` names, from the row's ⟨β, z⊙x⟩ and ‖(1−z)⊙β‖²."""
    if kind == SYMMETRIC_MIXTURE:
        return symmetric_mixture(fitted, y, p), 0.0
    if kind == SYMMETRIC_REGRESSION:
        return symmetric_regression(fitted, y, p), 0.0
    if kind == TRUNCATED_SYMMETRIC_REGRESSION:
        return truncated_symmetric_regression(fitted, y, p), 0.0
    return missing_regression(fitted, hidden, y, p)


@compiled
def row_weight(kind, x, y, beta, p):  # type: ignore[no-untyped-def]
    """(a, c) of a dense row. Only the model with missing entries looks for them."""
    if kind == MISSING_REGRESSION:
        fitted, hidden = observed(x, beta)
        return weight(kind, fitted, hidden, y, p)
    return weight(kind, dot(x, beta), 0.0, y, p)


#: Rows per task of a parallel kernel: each task has its own float64 sum, and tasks are added in order.
TASK = 16 * BLOCK

#: A parallel kernel uses every thread there is, and the plainest of Numba's threading layers ends the process if a
#: second caller enters it meanwhile.
_one_at_a_time = threading.Lock()


def _compiled(fastmath: set[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that compiles a parallel kernel, and lets its callers in one after another."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        kernel = njit(cache=True, nogil=True, parallel=True, fastmath=fastmath)(function)

        @functools.wraps(function)
        def alone(*arguments: Any) -> None:
            with _one_at_a_time:
                kernel(*arguments)

        return alone

    return decorate


_parallel = _compiled({"contract"})


def n_tasks(n_rows: int) -> int:
    """How many tasks a chunk of ``n_rows`` is cut into: a function of its length alone, never of the threads."""
    return max(1, -(-n_rows // TASK))


@njit(cache=True, nogil=True)
def check_done(done):  # type: ignore[no-untyped-def]
    """Raise MemoryError unless every task of a parallel loop came to its end.

    A task for whose buffers there is no memory ends there. numba does not tell if that was in a thread of its own.
    """
    if not done.all():
        raise MemoryError("there is not enough memory to sum these rows.")


@_parallel
def coordinate_kernel(kind, X, y, beta, p, A, T, out):  # type: ignore[no-untyped-def]
    """Σ clamp(a_i, ±A)·Π_T(x_i) over all coordinates, one sum per task in ``out``. For rows without missing entries.

    Here and below a row of X may be longer than the d numbers that belong to it.
    """
    n, d = X.shape[0], out.shape[1]
    b = beta.astype(X.dtype)
    has_y = y.shape[0] == n
    done = np.zeros(out.shape[0], dtype=np.bool_)
    for task in prange(out.shape[0]):
        acc = np.zeros(d, dtype=X.dtype)
        for first in range(task * TASK, min(n, (task + 1) * TASK), BLOCK):
            acc[:] = 0
            for i in range(first, min(n, first + BLOCK)):
                row = X[i]
                a, _ = row_weight(kind, row, y[i] if has_y else 0.0, b, p)
                a_i = X.dtype.type(clamp(a, -A, A))
                for j in range(d):
                    x = row[j]
                    x = x if x < T else T  # written so that not-a-number becomes T, and stays bounded
                    x = x if x > -T else -T
                    acc[j] += a_i * x
            for j in range(d):
                out[task, j] += acc[j]
        done[task] = True
    check_done(done)


@_parallel
def missing_kernel(kind, X, y, beta, p, A, T, c_low, c_high, out):  # type: ignore[no-untyped-def]
    """As :func:`coordinate_kernel` where an entry is observed; clamp(c_i, c_low, c_high)·β_j where it is missing
    (NaN).
    """
    n, d = X.shape[0], out.shape[1]
    b = beta.astype(X.dtype)
    done = np.zeros(out.shape[0], dtype=np.bool_)
    for task in prange(out.shape[0]):
        acc = np.zeros(d, dtype=X.dtype)
        for first in range(task * TASK, min(n, (task + 1) * TASK), BLOCK):
            acc[:] = 0
            for i in range(first, min(n, first + BLOCK)):
                row = X[i]
                a, c = row_weight(kind, row, y[i], b, p)
                a_i = X.dtype.type(clamp(a, -A, A))
                c_i = X.dtype.type(clamp(c, c_low, c_high))
                for j in range(d):
                    x = row[j]
                    missing = x != x
                    x = x if x < T else T  # written so that not-a-number becomes T, and stays bounded
                    x = x if x > -T else -T
                    acc[j] += c_i * b[j] if missing else a_i * x
            for j in range(d):
                out[task, j] += acc[j]
        done[task] = True
    check_done(done)


@_parallel
def support_kernel(kind, X, y, beta, p, support, centre, radius, out):  # type: ignore[no-untyped-def]
    """Σ of a_i·x_S + c_i·((1−z_i)⊙β)_S − centre, each contribution scaled into an ℓ2 ball; in float64.

    The support must hold every non-zero of β, so that the weight needs the gathered columns only.
    """
    n = X.shape[0]
    s = support.shape[0]
    has_y = y.shape[0] == n
    done = np.zeros(out.shape[0], dtype=np.bool_)
    for task in prange(out.shape[0]):
        x = np.zeros(s)
        u = np.zeros(s)
        for i in range(task * TASK, min(n, (task + 1) * TASK)):
            for k in range(s):
                x[k] = X[i, support[k]]
            a, c = row_weight(kind, x, y[i] if has_y else 0.0, beta, p)
            norm2 = 0.0
            for k in range(s):
                u[k] = (c * beta[k] if x[k] != x[k] else a * x[k]) - centre[k]
                norm2 += u[k] * u[k]
            if not norm2 < math.inf:  # an overflow, or not a number: this record contributes nothing
                continue
            norm = math.sqrt(norm2)
            scale = radius / norm if norm > radius else 1.0
            for k in range(s):
                out[task, k] += scale * u[k]
        done[task] = True
    check_done(done)


@_parallel
def exceedance_kernel(X, g, low, high, base, out):  # type: ignore[no-untyped-def]
    """Σ g_i·(base + (1 − base)·ramp(x_ij²)) with ramp rising from 0 at ``low`` to 1 at ``high``; g_i must lie in [−1,
    1].
    """
    n, d = X.shape[0], out.shape[1]
    has_g = g.shape[0] == n
    kind = X.dtype.type
    done = np.zeros(out.shape[0], dtype=np.bool_)
    for task in prange(out.shape[0]):
        acc = np.zeros(d, dtype=X.dtype)
        floor, slope, start = kind(base), kind((1.0 - base) / (high - low)), kind(low)
        for first in range(task * TASK, min(n, (task + 1) * TASK), BLOCK):
            acc[:] = 0
            for i in range(first, min(n, first + BLOCK)):
                row = X[i]
                g_i = kind(clamp(g[i], -1.0, 1.0)) if has_g else kind(1.0)
                for j in range(d):
                    x = row[j]
                    h = floor + slope * (x * x - start)
                    h = h if h < kind(1.0) else kind(1.0)
                    h = h if h > floor else floor
                    acc[j] += g_i * h
            for j in range(d):
                out[task, j] += acc[j]
        done[task] = True
    check_done(done)


@_parallel
def anomaly_kernel(X, d, out):  # type: ignore[no-untyped-def]
    """out[task] = (1 if any entry is not a number, 1 if any is infinite): what a fit must refuse before it pays."""
    n = X.shape[0]
    for task in prange(out.shape[0]):
        nan, inf = False, False
        for i in range(task * TASK, min(n, (task + 1) * TASK)):
            row = X[i]
            odd = False
            for j in range(d):
                odd |= not abs(row[j]) < math.inf
            if odd:
                for j in range(d):
                    nan |= row[j] != row[j]
                    inf |= abs(row[j]) == math.inf
        out[task, 0] += nan
        out[task, 1] += inf


# --- Columns together: row j of XT holds column j of the table ------------------------------------------------------


_by_column = _compiled({"reassoc", "contract"})


@_by_column
def column_weights_kernel(kind, XT, y, nonzero, beta, p, A, c_low, c_high, a, c):  # type: ignore[no-untyped-def]
    """clamp(a_i, ±A) and clamp(c_i, c_low, c_high) of every row, where a column's entries lie together (row j of XT).

    β's non-zero columns say all that a weight needs of a row.
    """
    n = a.shape[0]
    has_y = y.shape[0] == n
    done = np.zeros((n + TASK - 1) // TASK, dtype=np.bool_)
    for task in prange((n + TASK - 1) // TASK):
        first, last = task * TASK, min(n, (task + 1) * TASK)
        fitted, hidden = np.zeros(last - first), np.zeros(last - first)
        for k in range(nonzero.shape[0]):
            column, b = XT[nonzero[k]], beta[nonzero[k]]
            if kind == MISSING_REGRESSION:
                for i in range(first, last):
                    missing = column[i] != column[i]
                    fitted[i - first] += 0.0 if missing else b * column[i]
                    hidden[i - first] += b * b if missing else 0.0
            else:
                for i in range(first, last):
                    fitted[i - first] += b * column[i]
        for i in range(first, last):
            a_i, c_i = weight(kind, fitted[i - first], hidden[i - first], y[i] if has_y else 0.0, p)
            a[i] = clamp(a_i, -A, A)
            c[i] = clamp(c_i, c_low, c_high)
        done[task] = True
    check_done(done)


@compiled
def clipped_dot(x, a, T):  # type: ignore[no-untyped-def]
    """Σ a_i·Π_T(x_i) in their dtype."""
    total = a[0] - a[0]  # zero of the same dtype
    for i in range(x.shape[0]):
        v = x[i]
        v = v if v < T else T  # written so that not-a-number becomes T, and stays bounded
        v = v if v > -T else -T
        total += a[i] * v
    return total


@compiled
def clipped_dot_missing(x, a, c, b, T):  # type: ignore[no-untyped-def]
    """Σ a_i·Π_T(x_i) over observed entries plus Σ c_i·b over missing ones."""
    total = a[0] - a[0]  # zero of the same dtype
    for i in range(x.shape[0]):
        v = x[i]
        missing = v != v
        v = v if v < T else T
        v = v if v > -T else -T
        total += c[i] * b if missing else a[i] * v
    return total


@compiled
def exceedance_dot(x, g, floor, slope, start, one):  # type: ignore[no-untyped-def]
    """Σ g_i·ramp(x_i²)."""
    total = floor - floor
    for i in range(x.shape[0]):
        h = floor + slope * (x[i] * x[i] - start)
        h = h if h < one else one
        h = h if h > floor else floor
        total += g[i] * h
    return total


@_by_column
def column_coordinate_kernel(XT, a, c, beta, T, missing_counts, out):  # type: ignore[no-untyped-def]
    """The sums of :func:`coordinate_kernel` and, if ``missing_counts``, of :func:`missing_kernel`, column by column."""
    n, kind = a.shape[0], XT.dtype.type
    for j in prange(out.shape[0]):
        b = kind(beta[j])
        for first in range(0, n, BLOCK):
            last = min(n, first + BLOCK)
            x = XT[j, first:last]
            if missing_counts:
                out[j] += clipped_dot_missing(x, a[first:last], c[first:last], b, T)
            else:
                out[j] += clipped_dot(x, a[first:last], T)


@_by_column
def column_exceedance_kernel(XT, g, low, high, base, out):  # type: ignore[no-untyped-def]
    """The sums of :func:`exceedance_kernel`, column by column; g must lie in [−1, 1]."""
    n, kind = g.shape[0], XT.dtype.type
    for j in prange(out.shape[0]):
        floor, slope, start = kind(base), kind((1.0 - base) / (high - low)), kind(low)
        for first in range(0, n, BLOCK):
            last = min(n, first + BLOCK)
            out[j] += exceedance_dot(XT[j, first:last], g[first:last], floor, slope, start, kind(1.0))


# --- Sparse rows: data, indices and indptr of a CSR matrix; an entry that is not stored is 0 -------------------------


@compiled
def sound(data, indices, first, last, d):  # type: ignore[no-untyped-def]
    """Whether a stored row lies within its arrays and names columns of the table, in order and each once.

    A column stored twice would be clipped twice and count twice, past the bound. A row that is not sound adds nothing.
    """
    if not 0 <= first <= last <= data.shape[0]:
        return False
    if first == last:
        return True
    right = indices[first] >= 0 and indices[last - 1] < d
    for e in range(first + 1, last):
        right &= indices[e - 1] < indices[e]
    return right


@compiled
def csr_weight(kind, data, indices, first, last, y, beta, p):  # type: ignore[no-untyped-def]
    """(a, c) of a sparse row, in float64. What is not stored adds nothing to ⟨β, z⊙x⟩ and is not missing."""
    fitted = 0.0
    hidden = 0.0
    for e in range(first, last):
        x, b = data[e], beta[indices[e]]
        if kind == MISSING_REGRESSION and x != x:
            hidden += b * b
        else:
            fitted += b * x
    return weight(kind, fitted, hidden, y, p)


@_parallel
def csr_coordinate_kernel(kind, data, indices, indptr, y, beta, p, A, T, c_low, c_high, out):  # type: ignore[no-untyped-def]
    """As :func:`coordinate_kernel` and :func:`missing_kernel`, over stored entries, since a·Π_T(0) = 0; in float64."""
    n, d = indptr.shape[0] - 1, beta.shape[0]
    has_y, missing = y.shape[0] == n, kind == MISSING_REGRESSION
    rows = -(-n // out.shape[0])
    for task in prange(out.shape[0]):
        for i in range(task * rows, min(n, (task + 1) * rows)):
            first, last = indptr[i], indptr[i + 1]
            if not sound(data, indices, first, last, d):
                continue
            a, c = csr_weight(kind, data, indices, first, last, y[i] if has_y else 0.0, beta, p)
            a_i, c_i = clamp(a, -A, A), clamp(c, c_low, c_high)
            for e in range(first, last):
                x, j = np.float64(data[e]), indices[e]
                hidden = missing and x != x
                x = x if x < T else T  # written so that not-a-number becomes T, and stays bounded
                x = x if x > -T else -T
                out[task, j] += c_i * beta[j] if hidden else a_i * x


@_parallel
def csr_support_kernel(kind, data, indices, indptr, y, beta, p, place, centre, radius, out):  # type: ignore[no-untyped-def]
    """As :func:`support_kernel`; ``place[j]`` is where column j stands on the support, −1 if it does not."""
    n, d, s = indptr.shape[0] - 1, place.shape[0], beta.shape[0]
    has_y = y.shape[0] == n
    rows = -(-n // out.shape[0])
    done = np.zeros(out.shape[0], dtype=np.bool_)
    for task in prange(out.shape[0]):
        x = np.zeros(s)
        u = np.zeros(s)
        for i in range(task * rows, min(n, (task + 1) * rows)):
            first, last = indptr[i], indptr[i + 1]
            if not sound(data, indices, first, last, d):
                continue
            x[:] = 0.0
            for e in range(first, last):
                k = place[indices[e]]
                if k >= 0:
                    x[k] = data[e]
            a, c = row_weight(kind, x, y[i] if has_y else 0.0, beta, p)
            norm2 = 0.0
            for k in range(s):
                u[k] = (c * beta[k] if x[k] != x[k] else a * x[k]) - centre[k]
                norm2 += u[k] * u[k]
            if not norm2 < math.inf:  # an overflow, or not a number: this record contributes nothing
                continue
            norm = math.sqrt(norm2)
            scale = radius / norm if norm > radius else 1.0
            for k in range(s):
                out[task, k] += scale * u[k]
        done[task] = True
    check_done(done)


@_parallel
def csr_exceedance_kernel(data, indices, indptr, g, low, high, base, out):  # type: ignore[no-untyped-def]
    """As :func:`exceedance_kernel`, as what stored entries add to a row of zeros; the last column of ``out`` is Σ
    g_i·base, which every column of the table has to be given once.
    """
    n, d = indptr.shape[0] - 1, out.shape[1] - 1
    has_g, slope = g.shape[0] == n, (1.0 - base) / (high - low)
    rows = -(-n // out.shape[0])
    for task in prange(out.shape[0]):
        for i in range(task * rows, min(n, (task + 1) * rows)):
            first, last = indptr[i], indptr[i + 1]
            if not sound(data, indices, first, last, d):
                continue
            g_i = clamp(g[i], -1.0, 1.0) if has_g else 1.0
            out[task, d] += g_i * base
            for e in range(first, last):
                x = np.float64(data[e])
                h = base + slope * (x * x - low)
                h = h if h < 1.0 else 1.0
                h = h if h > base else base
                out[task, indices[e]] += g_i * (h - base)
