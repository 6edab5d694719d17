"""The share of rows whose likeliest component changes when the parameters change, and its predicted quantiles."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpem.query import FloatArray

#: Rows whose two likeliest components differ by less than NEAR in log-odds are all used; of the others one in THIN.
NEAR, THIN = 4.0, 8


def watched(log_weights: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """A sample of rows that contains all rows near a boundary between components, and the weight of each row in it.

    If the parameters change little, nearly all rows that change component are near a boundary. ``log_weights`` is an
    array of rows × components.
    """
    largest_two = np.partition(log_weights, -2, axis=1)[:, -2:]
    near = largest_two[:, 1] - largest_two[:, 0] < NEAR
    near_rows, far_rows = np.flatnonzero(near), np.flatnonzero(~near)[::THIN]
    far_weight = float(np.sum(~near)) / max(len(far_rows), 1)
    weights = np.concatenate([np.ones(len(near_rows)), np.full(len(far_rows), far_weight)])
    return np.concatenate([near_rows, far_rows]), weights / len(near)


def moved(before: FloatArray, after: FloatArray, weight: FloatArray) -> float:
    """The share of rows whose likeliest component changes between two arrays of log-weights, rows × components.

    >>> rows = np.array([[0.0, -0.1], [0.0, -5.0]])
    >>> moved(rows, rows - [0.3, 0.0], np.array([0.5, 0.5]))
    0.5
    """
    return float(weight[np.argmax(before, axis=1) != np.argmax(after, axis=1)].sum())


def with_failures(median: float, scatter: float, failure: float, failed: float) -> tuple[float, float, float]:
    """Median, 5 % and 95 % quantiles of a mixture: with probability 1 − ``failure`` the share is ``median`` times a
    lognormal with standard deviation ``scatter`` of its logarithm; otherwise the start fails, and the share is at least
    ``failed``.

    >>> with_failures(0.01, 0.4, 0.0, 0.5)[0]
    0.01
    >>> with_failures(0.01, 0.4, 0.6, 0.5)[0]
    0.5
    """

    largest = max(failed, median)

    def quantile(probability: float) -> float:
        if probability >= 1 - failure:
            return largest
        return min(median * math.exp(scatter * float(ndtri(probability / (1 - failure)))), largest)

    return quantile(0.5), quantile(0.05), quantile(0.95)
