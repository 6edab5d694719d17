"""Fused kernels: E-step weight, clip and accumulate, in one pass over the rows.

Every model's gradient is a sum of *one scalar weight per record times the record* (plus, with missing covariates, a
term on the support of β). A model states its weight as a small compiled function

    weight(x, y, beta, p) -> (a, c)

of a row, its response and the model's constants; ``c`` is the factor of the missing-entry term and 0 for the other
models. The two factories below build the loops around it.

The clipping is done here and nowhere else, after the weight is known, so that the bound holds whatever a record
contains: ``coordinate_kernel`` adds a·Π_T(x_j) with a clamped to [-A, A], so each entry is at most A·T;
``support_kernel`` scales a whole contribution into an ℓ2 ball. A weight that is not a number counts as zero.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from dpem.models.weights import clamp, weight
from dpem.query import BLOCK

#: Rows per task of a parallel kernel: each task has its own float64 sum, and tasks are added in order.
TASK = 16 * BLOCK

_parallel = njit(cache=True, nogil=True, parallel=True, fastmath={"contract"})


def n_tasks(n_rows: int) -> int:
    """How many tasks a chunk of ``n_rows`` is cut into: a function of its length alone, never of the threads."""
    return max(1, -(-n_rows // TASK))


@_parallel
def coordinate_kernel(kind, X, y, beta, p, A, T, out):  # type: ignore[no-untyped-def]
    """Σ clamp(a_i, ±A)·Π_T(x_i) over all coordinates, one sum per task in ``out``. For rows without missing entries."""
    n, d = X.shape
    has_y = y.shape[0] == n
    for task in prange(out.shape[0]):
        acc = np.zeros(d, dtype=X.dtype)
        for first in range(task * TASK, min(n, (task + 1) * TASK), BLOCK):
            acc[:] = 0
            for i in range(first, min(n, first + BLOCK)):
                row = X[i]
                a, _ = weight(kind, row, y[i] if has_y else 0.0, beta, p)
                a_i = X.dtype.type(clamp(a, -A, A))
                for j in range(d):
                    x = row[j]
                    x = T if x > T else x
                    x = -T if x < -T else x
                    acc[j] += a_i * x
            for j in range(d):
                out[task, j] += acc[j]


@_parallel
def missing_kernel(kind, X, y, beta, p, A, T, c_low, c_high, out):  # type: ignore[no-untyped-def]
    """As :func:`coordinate_kernel` where an entry is observed; clamp(c_i, c_low, c_high)·β_j where it is missing
    (NaN).
    """
    n, d = X.shape
    b = beta.astype(X.dtype)
    for task in prange(out.shape[0]):
        acc = np.zeros(d, dtype=X.dtype)
        for first in range(task * TASK, min(n, (task + 1) * TASK), BLOCK):
            acc[:] = 0
            for i in range(first, min(n, first + BLOCK)):
                row = X[i]
                a, c = weight(kind, row, y[i], beta, p)
                a_i = X.dtype.type(clamp(a, -A, A))
                c_i = X.dtype.type(clamp(c, c_low, c_high))
                for j in range(d):
                    x = row[j]
                    missing = x != x
                    x = T if x > T else x
                    x = -T if x < -T else x
                    acc[j] += c_i * b[j] if missing else a_i * x
            for j in range(d):
                out[task, j] += acc[j]


@_parallel
def support_kernel(kind, X, y, beta, p, support, centre, radius, out):  # type: ignore[no-untyped-def]
    """Σ of a_i·x_S + c_i·((1−z_i)⊙β)_S − centre, each contribution scaled into an ℓ2 ball; in float64.

    The support must hold every non-zero of β, so that the weight needs the gathered columns only.
    """
    n = X.shape[0]
    s = support.shape[0]
    has_y = y.shape[0] == n
    for task in prange(out.shape[0]):
        x = np.zeros(s)
        u = np.zeros(s)
        for i in range(task * TASK, min(n, (task + 1) * TASK)):
            for k in range(s):
                x[k] = X[i, support[k]]
            a, c = weight(kind, x, y[i] if has_y else 0.0, beta, p)
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


@_parallel
def exceedance_kernel(X, g, low, high, base, out):  # type: ignore[no-untyped-def]
    """Σ g_i·(base + (1 − base)·ramp(x_ij²)) with ramp rising from 0 at ``low`` to 1 at ``high``; g_i must lie in [−1,
    1].
    """
    n, d = X.shape
    has_g = g.shape[0] == n
    kind = X.dtype.type
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
                    h = kind(1.0) if h > kind(1.0) else h
                    h = floor if h < floor else h
                    acc[j] += g_i * h
            for j in range(d):
                out[task, j] += acc[j]
