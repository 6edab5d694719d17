"""Compiled loops for the products ⟨β, z⊙x⟩ and ‖(1−z)⊙β‖² of each row, from which a model computes its weights.

No bound rests on them: the weights are clamped in :mod:`dpem.paper.engine.clipped_sums`, whatever the products are.
Numba recompiles cached code only if the file of the function itself changed, so no loop calls one of another file. No
loop starts threads: see :mod:`dpem._threads`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

#: How many rows ahead entries are prefetched.
AHEAD = 32

#: The sum of one row may be reordered; NaN keeps its meaning.
_reordered = njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})


@intrinsic
def prefetch(typing: Any, X: Any, i: Any, j: Any) -> Any:
    """Prefetch X[i, j], so that entries that are far apart are fetched in parallel."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, args[0])
        entry = cgutils.get_item_pointer(context, builder, kind, array, [args[1], args[2]], wraparound=False)
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0i8")
        builder.call(function, [builder.bitcast(entry, byte), flag(0), flag(2), flag(1)])  # to read, into L2, data
        return context.get_dummy_value()

    return types.none(X, i, j), build


# --- Row-major; rows of X may be padded to more than d numbers --------------------------------------------------------


@_reordered
def project(X, where, beta, fitted, missing_variance):  # type: ignore[no-untyped-def]
    """⟨β, x⟩ of each row in float64 from the columns ``where``, if they are few. If ``missing_variance`` has one number
    for each row, entries may be missing: ⟨β, z⊙x⟩ and ‖(1−z)⊙β‖².
    """
    n, has_missing = fitted.shape[0], missing_variance.shape[0] == fitted.shape[0]
    for i in range(n):
        for k in range(where.shape[0]):
            prefetch(X, min(i + AHEAD, n - 1), where[k])
        row, total, absent = X[i], 0.0, 0.0
        for k in range(where.shape[0]):
            x, b = np.float64(row[where[k]]), beta[k]
            missing = has_missing and x != x
            total += 0.0 if missing else b * x
            absent += b * b if missing else 0.0
        fitted[i] = total
        if has_missing:
            missing_variance[i] = absent


@_reordered
def project_through(X, beta, fitted, missing_variance):  # type: ignore[no-untyped-def]
    """The same from whole rows, which are then in the cache."""
    has_missing = missing_variance.shape[0] == fitted.shape[0]
    for i in range(fitted.shape[0]):
        row, total, absent = X[i], 0.0, 0.0
        if not has_missing:
            for j in range(beta.shape[0]):
                total += beta[j] * np.float64(row[j])
            fitted[i] = total
            if abs(total) < math.inf:
                continue
            total = 0.0  # an entry is not finite: add again without the columns where β is 0
        for j in range(beta.shape[0]):
            x, b = np.float64(row[j]), beta[j]
            total += 0.0 if b == 0.0 or (has_missing and x != x) else b * x
            absent += b * b if x != x else 0.0
        fitted[i] = total
        if has_missing:
            missing_variance[i] = absent


# --- Column-major: row j of XT holds column j of the table ----------------------------------------------------------


@_reordered
def project_columns(XT, where, beta, first, fitted, missing_variance):  # type: ignore[no-untyped-def]
    """The products of :func:`project` for the rows from ``first`` on."""
    n = fitted.shape[0]
    has_missing = missing_variance.shape[0] == n
    fitted[:] = 0.0
    missing_variance[:] = 0.0
    for k in range(where.shape[0]):
        column, b = XT[where[k], first : first + n], beta[k]
        if has_missing:
            for i in range(n):
                missing = column[i] != column[i]
                fitted[i] += 0.0 if missing else b * np.float64(column[i])
                missing_variance[i] += b * b if missing else 0.0
        else:
            for i in range(n):
                fitted[i] += b * np.float64(column[i])


# --- Sparse rows: data, indices and indptr of a CSR matrix; an entry that is not stored is 0 -------------------------


@_reordered
def project_sparse(data, indices, indptr, first, valid, beta, has_missing, fitted, missing_variance):  # type: ignore[no-untyped-def]
    """The products of :func:`project` from the stored entries; the others are 0 and not missing."""
    for i in range(fitted.shape[0]):
        total, absent = 0.0, 0.0
        if valid[i]:
            for e in range(indptr[first + i], indptr[first + i + 1]):
                x, b = np.float64(data[e]), beta[indices[e]]
                if has_missing and x != x:
                    absent += b * b
                elif b != 0.0:
                    total += b * x
        fitted[i], missing_variance[i] = total, absent
