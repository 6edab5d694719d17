"""Compiled loops that read rows: a few columns, unit coordinates, bin counts, and the validity of sparse rows.

No bound of a query relies on these loops: they may return any number, or NaN. No loop calls compiled code of another
file, so that a cached compilation is never older than its source. No loop starts threads: see :mod:`dpem._threads`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_compiled = njit(cache=True, nogil=True, fastmath={"contract"})


@_compiled
def gather(X, columns, out):  # type: ignore[no-untyped-def]
    """Copy these columns to the rows of ``out``, in float64."""
    for i in range(out.shape[1]):
        row = X[i]
        for k in range(columns.shape[0]):
            out[k, i] = row[columns[k]]


@_compiled
def unit(XT, middle, half, out):  # type: ignore[no-untyped-def]
    """(x − middle)/half in [−1, 1], NaN where an entry is not finite."""
    for j in range(out.shape[0]):
        x, u, m, h = XT[j], out[j], middle[j], half[j]
        for i in range(u.shape[0]):
            value = (x[i] - m) / h
            value = 1.0 if value > 1.0 else value
            value = -1.0 if value < -1.0 else value
            u[i] = value if abs(x[i]) < math.inf else math.nan


@_compiled
def count_bins(u, counts):  # type: ignore[no-untyped-def]
    """Count entries in [−1, 1] in bins of equal width; the last count is that of NaN."""
    bins = counts.shape[0] - 1
    for i in range(u.shape[0]):
        position = (u[i] + 1.0) * (0.5 * bins)
        if position != position:
            counts[bins] += 1.0
        else:
            counts[int(min(max(position, 0.0), bins - 1.0))] += 1.0


@_compiled
def check_sparse_rows(data, indices, indptr, first, d, is_valid):  # type: ignore[no-untyped-def]
    """Whether each row from ``first`` on lies within the stored arrays and has columns of the table in increasing
    order.

    A column stored twice would be clipped twice and count twice, beyond the bound. An invalid row contributes nothing.
    """
    for i in range(is_valid.shape[0]):
        begin, end = indptr[first + i], indptr[first + i + 1]
        valid = begin >= 0 and begin <= end and end <= data.shape[0]
        if valid and begin < end:
            valid = indices[begin] >= 0 and indices[end - 1] < d
            for e in range(begin + 1, end):
                valid &= indices[e - 1] < indices[e]
        is_valid[i] = valid


@_compiled
def gather_sparse(data, indices, indptr, first, is_valid, out_row, out):  # type: ignore[no-untyped-def]
    """Copy column j to row ``out_row[j]`` of ``out`` in float64, unless that is −1; NaN in invalid rows."""
    for i in range(is_valid.shape[0]):
        out[:, i] = 0.0 if is_valid[i] else np.nan
        if is_valid[i]:
            for e in range(indptr[first + i], indptr[first + i + 1]):
                k = out_row[indices[e]]
                if k >= 0:
                    out[k, i] = data[e]


@_compiled
def count_rows(keys, counts, people, rows):  # type: ignore[no-untyped-def]
    """Add the rows of people to an open-addressed hash table; returns how many rows each had, and the number of new
    people.
    """
    last = len(counts) - 1
    before, n_new = np.empty(len(people), np.int64), 0
    for i in range(len(people)):
        slot = np.int64(people[i, 0] & np.uint64(last))
        while counts[slot] > 0 and (keys[slot, 0] != people[i, 0] or keys[slot, 1] != people[i, 1]):
            slot = (slot + 1) & last
        if counts[slot] == 0:
            keys[slot, 0], keys[slot, 1] = people[i, 0], people[i, 1]
            n_new += 1
        before[i] = counts[slot]
        counts[slot] += rows[i]
    return before, n_new
