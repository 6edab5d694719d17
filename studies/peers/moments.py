"""Noisy second moments and a ridge: the shortest private regression one can write, in the manner of AdaSSP.

AdaSSP (Wang, 2018) releases the smallest eigenvalue of XᵀX, XᵀX and Xᵀy, each with noise, and adds to XᵀX what the
smallest eigenvalue lacks of the noise's own size. Here the three are one release, which costs less: the moments of
v = (1, x, y), (x, y) cut to length √(R² − 1). Every entry of x and y lies between -1 and 1 by its public bounds or,
with ``standardise``, is divided by a noisy spread about a noisy mean, which a share of the price buys first.

Lemma. Replacing one row moves Σ vvᵀ by at most √2·R² in Frobenius norm: ‖vvᵀ − uuᵀ‖² = ‖v‖⁴ + ‖u‖⁴ − 2(u·v)² ≤ 2R⁴.
The vector of its entries on and above the diagonal, those above times √2, has the same norm.
Lemma. Replacing one row of D entries within ±1 moves Σ (x, x²) by at most 2√D: in one column, with a = |x − x'| and
b = |x + x'| ≤ 2 − a, the square is a²(1 + b²) ≤ a²(1 + (2 − a)²), which grows with a and is 4 at a = 2.

Gaussian noise of Δ/√(2ρ) is ρ-zCDP; prices add, and the largest ρ that the exact Gaussian curve allows is what is
shared out. What follows reads the releases alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpem.privacy import largest_price
from studies.peers import judge

SCALING = 0.15
GRID = tuple(
    {"standardise": standardise, "part": part, "ridge": ridge, "repair": repair}
    for standardise, parts in ((False, (0.01, 0.03, 0.1, 0.3, 1.0)), (True, (0.3, 0.6, 1.0, 2.0)))
    for part in parts
    for ridge in (0.0, 0.3, 1.0, 2.0, 4.0)
    for repair in ("ridge", "edge")
)


def contributions(rows: Any, radius: float) -> Any:
    """Rows (1, x, y), (x, y) cut to length √(radius² − 1) after everything else; what is not finite counts zero."""
    rest = np.where(np.isfinite(rows), rows, 0.0)
    rest = rest / np.maximum(1.0, np.abs(rest).max(axis=1, keepdims=True))  # lengths of huge entries would overflow
    most, length = math.sqrt(radius**2 - 1), np.sqrt(np.sum(rest**2, axis=1))
    whole = np.sqrt(np.sum(np.where(np.isfinite(rows), rows, 0.0) ** 2, axis=1))
    rest = rest * (np.minimum(whole, most) / np.maximum(length, 1e-300))[:, None] * (1 - 1e-12)
    return np.column_stack([np.ones(len(rest)), rest])


def sensitivity(radius: float) -> float:
    """Of :func:`packed`, in Euclidean norm, when one row is replaced: the first lemma."""
    return math.sqrt(2) * radius**2


def packed(V: Any) -> Any:
    """Σ vvᵀ, entries on and above the diagonal, the latter times √2."""
    M = V.T @ V
    upper = np.triu_indices(len(M))
    return M[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2))


def unpacked(entries: Any, size: int) -> Any:
    M = np.zeros((size, size))
    upper = np.triu_indices(size)
    M[upper] = entries / np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    return M + np.triu(M, 1).T


def sums(rows: Any) -> Any:
    """Σ (x, x²) of entries within ±1."""
    rows = np.clip(np.nan_to_num(rows, nan=0.0), -1, 1)
    return np.concatenate([rows.sum(axis=0), (rows**2).sum(axis=0)])


def sums_sensitivity(columns: int) -> float:
    """Of :func:`sums`, in Euclidean norm, when one row is replaced: the second lemma."""
    return 2 * math.sqrt(columns)


def deviations(radius: float, columns: int, epsilon: float, delta: float, standardise: bool) -> tuple[float, float]:
    """Of the noise on each entry of :func:`packed` and of :func:`sums` (infinite where that is not released)."""
    rho = largest_price(epsilon, delta, gaussian=True).rho
    first = SCALING * rho if standardise else 0.0
    of_sums = sums_sensitivity(columns) / math.sqrt(2 * first) if standardise else math.inf
    return sensitivity(radius) / math.sqrt(2 * (rho - first)), of_sums


def fit(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    """``part`` of d + 1 is the largest squared length; the ridge is that many times the noise's largest eigenvalue.

    ``repair``: add the ridge less the smallest eigenvalue, as AdaSSP does, or lift eigenvalues below it to it.
    """
    rng = np.random.default_rng([seed, 1])
    rows = np.column_stack(judge.box(job, table["X"], table["y"]))
    n, D = rows.shape
    radius = math.sqrt(1 + settings["part"] * D)
    noise, of_sums = deviations(radius, D, job["epsilon"], job["delta"], settings["standardise"])
    mean, size = np.zeros(D), np.ones(D)
    if settings["standardise"]:
        mean, square = np.split((sums(rows) + of_sums * rng.standard_normal(2 * D)) / n, 2)
        size = np.sqrt(np.maximum(square - mean**2, (2 * of_sums / n) ** 2 + 1e-4))
    release = packed(contributions((rows - mean) / size, radius))
    M = unpacked(release + noise * rng.standard_normal(len(release)), D + 1)
    M[0, 0] = n  # public
    edge = settings["ridge"] * noise / math.sqrt(2) * 2 * math.sqrt(D)
    values, vectors = np.linalg.eigh(M[:-1, :-1])
    lifted = np.maximum(values, edge) if settings["repair"] == "edge" else values + max(0.0, edge - values[0])
    beta = vectors @ ((vectors.T @ M[:-1, -1]) / np.where(np.abs(lifted) < 1e-9, 1e-9, lifted))
    coef = beta[1:] * size[-1] / size[:-1]
    return judge.linear_answer(job, coef, float(mean[-1] + size[-1] * beta[0] - coef @ mean[:-1]))
