"""The reference fit of a linear regression, where nothing is promised and nothing is paid (ε = ∞)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpem.models.linear_regression.gaussian_posterior import positive
from dpem.models.linear_regression.queries import FilledMoments
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

#: Eigenvalues that are no more than rounding.
ROUNDING = 1e-10
#: EM steps of the reference fit at most, and when it stands still.
MOST_STEPS, STILL = 5000, 1e-12


def maximum_likelihood(
    curator: Curator, schema: Any, centre: FloatArray, spread: FloatArray, matrix: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, bool]:
    """EM of the joint normal law of columns and response until it stands still: the reference, nothing is paid."""
    matrix, converged = positive(matrix, ROUNDING), False
    for _ in range(MOST_STEPS):
        found = unpacked(curator.measure(FilledMoments(schema, centre, spread, matrix), math.inf), len(centre) + 1)
        mean = found[0, 1:]
        fresh = positive(found[1:, 1:] - np.outer(mean, mean), ROUNDING)
        move = max(float(np.max(np.abs(mean))), float(np.max(np.abs(fresh - matrix))))
        centre, matrix = centre + spread * mean, fresh
        if converged := move < STILL:
            break
    scale = np.sqrt(np.diag(matrix))
    return centre, spread * scale, matrix / np.outer(scale, scale), converged
