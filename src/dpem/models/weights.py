"""The E-steps: one scalar weight per record, for each of the built-in models.

``weight(kind, x, y, beta, p)`` returns (a, c): the gradient's contribution is a·x on observed entries and c·β_j on
missing ones (c is 0 for models without them). ``p`` holds the model's constants, σ² first. Compiled, and chosen by a
number rather than passed as a function, so that the kernels are compiled once per machine and not once per process.
"""

from __future__ import annotations

import math

from numba import njit

GAUSSIAN_MIXTURE, MIXTURE_REGRESSION, TRUNCATED_MIXTURE_REGRESSION, MISSING_REGRESSION = range(4)

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
    """⟨β, x⟩ in float64. Reading the whole row also brings it into cache for the accumulation that follows."""
    total = 0.0
    for j in range(beta.shape[0]):
        total += beta[j] * x[j]
    return total


@compiled
def observed(x, beta):  # type: ignore[no-untyped-def]
    """⟨β, z⊙x⟩ and ‖(1−z)⊙β‖² in one reading of the row."""
    fitted = 0.0
    hidden = 0.0
    for j in range(beta.shape[0]):
        missing = x[j] != x[j]
        fitted += 0.0 if missing else beta[j] * x[j]
        hidden += beta[j] * beta[j] if missing else 0.0
    return fitted, hidden


@compiled
def gaussian_mixture(x, y, beta, p):  # type: ignore[no-untyped-def]
    """a = E[z | y] = tanh(⟨β, y⟩/σ²): the paper's 2w − 1 with the factor 2 it lost (erratum E1)."""
    return math.tanh(dot(x, beta) / p[0]), 0.0


@compiled
def mixture_regression(x, y, beta, p):  # type: ignore[no-untyped-def]
    """a = E[z | x, y]·y − ⟨β, x⟩: the residual from the expected response (errata E1 and E2 corrected)."""
    fitted = dot(x, beta)
    return math.tanh(y * fitted / p[0]) * y - fitted, 0.0


@compiled
def truncated_mixture_regression(x, y, beta, p):  # type: ignore[no-untyped-def]
    """The same with the paper's truncation, T = p[1]: Π_T of the response and of the fitted value, each on its own."""
    fitted = dot(x, beta)
    return math.tanh(y * fitted / p[0]) * clamp(y, -p[1], p[1]) - clamp(fitted, -p[1], p[1]), 0.0


@compiled
def missing_regression(x, y, beta, p):  # type: ignore[no-untyped-def]
    """σ² times the observed-data score: a = σ²r/v if observed, c = (σ²/v)(r²/v − 1) if missing (erratum E3)."""
    fitted, hidden = observed(x, beta)
    r = y - fitted
    v = p[0] + hidden
    return p[0] * r / v, p[0] / v * (r * r / v - 1.0)


@compiled
def weight(kind, x, y, beta, p):  # type: ignore[no-untyped-def]
    """The weight of the model that ``kind`` names."""
    if kind == GAUSSIAN_MIXTURE:
        return gaussian_mixture(x, y, beta, p)
    if kind == MIXTURE_REGRESSION:
        return mixture_regression(x, y, beta, p)
    if kind == TRUNCATED_MIXTURE_REGRESSION:
        return truncated_mixture_regression(x, y, beta, p)
    return missing_regression(x, y, beta, p)
