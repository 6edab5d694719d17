"""How many rows change component when a fit is moved, and what nine fits of ten will show of it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpem.query import FloatArray

#: Every row is followed where its two likeliest components differ by less than NEAR in log-odds, else one in THIN.
NEAR, THIN = 4.0, 8


def watched(log_weights: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """Which rows to follow, and their weights: if a fit moves little, nearly all rows that change component are near a
    boundary. ``log_weights`` is rows × components.
    """
    two = np.partition(log_weights, -2, axis=1)[:, -2:]
    near = two[:, 1] - two[:, 0] < NEAR
    far = np.flatnonzero(~near)[::THIN]
    each = float(np.sum(~near)) / max(len(far), 1)
    rows = np.concatenate([np.flatnonzero(near), far])
    return rows, np.concatenate([np.ones(int(near.sum())), np.full(len(far), each)]) / len(near)


def moved(before: FloatArray, after: FloatArray, weight: FloatArray) -> float:
    """The share of rows whose likeliest component changes between two arrays of log-weights, rows × components.

    >>> rows = np.array([[0.0, -0.1], [0.0, -5.0]])
    >>> moved(rows, rows - [0.3, 0.0], np.array([0.5, 0.5]))
    0.5
    """
    return float(weight[np.argmax(before, axis=1) != np.argmax(after, axis=1)].sum())


def with_failures(median: float, scatter: float, failure: float, failed: float) -> tuple[float, float, float]:
    """Median, 5 % and 95 % of shares that are ``median`` times a lognormal of that scatter, or at least ``failed``
    where the start fails, as a part ``failure`` of fits does.

    >>> with_failures(0.01, 0.4, 0.0, 0.5)[0]
    0.01
    >>> with_failures(0.01, 0.4, 0.6, 0.5)[0]
    0.5
    """

    def quantile(part: float) -> float:
        if part >= 1 - failure:
            return max(failed, median)
        return float(min(median * math.exp(scatter * float(ndtri(part / (1 - failure)))), max(failed, median)))

    return quantile(0.5), quantile(0.05), quantile(0.95)
