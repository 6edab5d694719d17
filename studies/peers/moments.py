"""Linear regression from noisy second moments with a ridge, after AdaSSP.

AdaSSP (Wang, 2018) releases the smallest eigenvalue of XᵀX, XᵀX and Xᵀy, each with noise, and adds a ridge to XᵀX if
the smallest eigenvalue is below the size of the noise. Here all three come from one release, which costs less: the
moments of v = (1, x, y), with (x, y) clipped to norm √(R² − 1). Entries are scaled to [−1, 1] by their public
bounds or, with ``standardise``, by noisy means and standard deviations, which cost a share of the price.

Lemma. Replacing one row moves Σ vvᵀ by at most √2·R² in Frobenius norm: ‖vvᵀ − uuᵀ‖² = ‖v‖⁴ + ‖u‖⁴ − 2(u·v)² ≤ 2R⁴.
The vector of its entries on and above the diagonal, those above times √2, has the same norm.
Lemma. Replacing one row of D entries within ±1 moves Σ (x, x²) by at most 2√D: in one column, with a = |x − x'| and
b = |x + x'| ≤ 2 − a, the square is a²(1 + b²) ≤ a²(1 + (2 − a)²), which grows with a and is 4 at a = 2.

Gaussian noise of standard deviation Δ/√(2ρ) is ρ-zCDP. The prices add up to the largest ρ that converts to (ε, δ) for
Gaussian noise. All other computations use the releases only.
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
    """Rows (1, x, y) with (x, y) clipped to norm √(radius² − 1); entries that are not finite become 0."""
    rest = np.where(np.isfinite(rows), rows, 0.0)
    rest = rest / np.maximum(1.0, np.abs(rest).max(axis=1, keepdims=True))  # lengths of huge entries would overflow
    most, length = math.sqrt(radius**2 - 1), np.sqrt(np.sum(rest**2, axis=1))
    whole = np.sqrt(np.sum(np.where(np.isfinite(rows), rows, 0.0) ** 2, axis=1))
    rest = rest * (np.minimum(whole, most) / np.maximum(length, 1e-300))[:, None] * (1 - 1e-12)
    return np.column_stack([np.ones(len(rest)), rest])


def sensitivity(radius: float) -> float:
    """The ℓ2 sensitivity of :func:`packed`, by the first lemma."""
    return math.sqrt(2) * radius**2


def packed(V: Any) -> Any:
    """The upper triangle of Σ vvᵀ, with off-diagonal entries times √2."""
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
    """The ℓ2 sensitivity of :func:`sums`, by the second lemma."""
    return 2 * math.sqrt(columns)


def deviations(radius: float, columns: int, epsilon: float, delta: float, standardise: bool) -> tuple[float, float]:
    """Standard deviations of the noise in :func:`packed` and in :func:`sums` (infinite if that is not released)."""
    rho = largest_price(epsilon, delta, gaussian=True).rho
    first = SCALING * rho if standardise else 0.0
    of_sums = sums_sensitivity(columns) / math.sqrt(2 * first) if standardise else math.inf
    return sensitivity(radius) / math.sqrt(2 * (rho - first)), of_sums


def fit(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    """One fit. The largest squared norm is ``part``·(d + 1); ``ridge`` is in units of the noise's largest eigenvalue.

    ``repair`` is "ridge", to add the ridge minus the smallest eigenvalue as AdaSSP does, or "edge", to raise smaller
    eigenvalues to the ridge.
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
