"""Compiled loops that read rows: a few columns, unit coordinates, whether stored rows are sound.

No sum's bound rests on what is here: what is read may be any number, or none. No loop calls one of another file but
numpy's, so that compiled code that is kept between processes never outlives a change of what it was compiled from. No
loop starts threads: see :mod:`dpem._threads`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_compiled = njit(cache=True, nogil=True, fastmath={"contract"})


@_compiled
def gather(X, where, out):  # type: ignore[no-untyped-def]
    """The columns ``where`` in float64, one after the other."""
    for i in range(out.shape[1]):
        row = X[i]
        for k in range(where.shape[0]):
            out[k, i] = row[where[k]]


@_compiled
def unit(XT, middle, half, out):  # type: ignore[no-untyped-def]
    """(x − middle)/half in [−1, 1], not-a-number where an entry is not finite."""
    for j in range(out.shape[0]):
        x, u, m, h = XT[j], out[j], middle[j], half[j]
        for i in range(u.shape[0]):
            at = (x[i] - m) / h
            at = 1.0 if at > 1.0 else at
            at = -1.0 if at < -1.0 else at
            u[i] = at if abs(x[i]) < math.inf else math.nan


@_compiled
def count_bins(u, counts):  # type: ignore[no-untyped-def]
    """Entries in [−1, 1] by bins of equal width; the last count is of those that are not a number."""
    bins = counts.shape[0] - 1
    for i in range(u.shape[0]):
        place = (u[i] + 1.0) * (0.5 * bins)
        if place != place:
            counts[bins] += 1.0
        else:
            counts[int(min(max(place, 0.0), bins - 1.0))] += 1.0


@_compiled
def sound(data, indices, indptr, first, d, found):  # type: ignore[no-untyped-def]
    """Whether each stored row from ``first`` on lies within its arrays and names columns of the table, in order and
    each once.

    A column stored twice would be clipped twice and count twice, past the bound. A row that is not sound adds nothing.
    """
    for i in range(found.shape[0]):
        begin, end = indptr[first + i], indptr[first + i + 1]
        right = begin >= 0 and begin <= end and end <= data.shape[0]
        if right and begin < end:
            right = indices[begin] >= 0 and indices[end - 1] < d
            for e in range(begin + 1, end):
                right &= indices[e - 1] < indices[e]
        found[i] = right


@_compiled
def gather_sparse(data, indices, indptr, first, right, place, out):  # type: ignore[no-untyped-def]
    """Some columns in float64; column j goes to ``place[j]``, nowhere if that is −1. A row that is not sound is NaN."""
    for i in range(right.shape[0]):
        out[:, i] = 0.0 if right[i] else np.nan
        if right[i]:
            for e in range(indptr[first + i], indptr[first + i + 1]):
                k = place[indices[e]]
                if k >= 0:
                    out[k, i] = data[e]


@_compiled
def count_rows(keys, counts, people, rows):  # type: ignore[no-untyped-def]
    """How many rows each person had before each of these, in an open-addressed table, and how many persons are new."""
    last = len(counts) - 1
    before, new = np.empty(len(people), np.int64), 0
    for i in range(len(people)):
        place = np.int64(people[i, 0] & np.uint64(last))
        while counts[place] > 0 and (keys[place, 0] != people[i, 0] or keys[place, 1] != people[i, 1]):
            place = (place + 1) & last
        if counts[place] == 0:
            keys[place, 0], keys[place, 1] = people[i, 0], people[i, 1]
            new += 1
        before[i] = counts[place]
        counts[place] += rows[i]
    return before, new
