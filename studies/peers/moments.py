"""Noisy second moments and a ridge: the shortest private regression one can write, in the manner of AdaSSP.

AdaSSP (Wang, 2018) releases the smallest eigenvalue of XᵀX, XᵀX and Xᵀy, each with noise, and adds to XᵀX what the
smallest eigenvalue lacks of the noise's own size. Here the three are one release, which costs less: the moments of
v = (1, x, y), every entry of x and y between -1 and 1 by its public bounds, (x, y) cut to length √(R² − 1).

Lemma. Replacing one row moves Σ vvᵀ by at most √2·R² in Frobenius norm: ‖vvᵀ − uuᵀ‖² = ‖v‖⁴ + ‖u‖⁴ − 2(u·v)² ≤ 2R⁴.
The vector of its entries on and above the diagonal, those above times √2, has the same norm. One Gaussian release with
standard deviation √2·R²/√(2ρ) for each entry of that vector is therefore ρ-zCDP, and with the largest ρ that the exact
Gaussian curve allows it is (ε, δ)-differentially private. What follows reads the release alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpem.privacy import largest_price
from studies.peers import judge

GRID = tuple(
    {"part": part, "ridge": ridge, "repair": repair}
    for part in (0.01, 0.03, 0.1, 0.3, 1.0)
    for ridge in (0.0, 0.3, 1.0, 2.0)
    for repair in ("ridge", "edge")
)


def contributions(Z: Any, t: Any, radius: float) -> Any:
    """Rows (1, x, y), (x, y) cut to length √(radius² − 1) after everything else; what is not a number counts zero."""
    rest = np.nan_to_num(np.clip(np.column_stack([Z, t]), -1, 1), nan=0.0)
    most = math.sqrt(radius**2 - 1)
    length = np.sqrt(np.sum(rest**2, axis=1))
    rest = rest * np.minimum(1.0, most / np.maximum(length, 1e-300))[:, None] * (1 - 1e-12)
    return np.column_stack([np.ones(len(rest)), rest])


def sensitivity(radius: float) -> float:
    """Of :func:`packed`, in Euclidean norm, when one row is replaced: the lemma."""
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


def deviation(radius: float, epsilon: float, delta: float) -> float:
    """Of the noise on each entry of :func:`packed`."""
    return sensitivity(radius) / math.sqrt(2 * largest_price(epsilon, delta, gaussian=True).rho)


def fit(job: judge.Job, table: dict[str, Any], settings: judge.Settings, seed: int) -> judge.Answer:
    """``part`` of the largest possible length is kept; the ridge is that many times the noise's largest eigenvalue.

    ``repair``: add the ridge less the smallest eigenvalue, as AdaSSP does, or lift eigenvalues below it to it.
    """
    Z, t = judge.box(job, table["X"], table["y"])
    n, d = Z.shape
    radius = math.sqrt(1 + settings["part"] * (d + 1))
    noise = deviation(radius, job["epsilon"], job["delta"])
    release = packed(contributions(Z, t, radius))
    release = release + noise * np.random.default_rng([seed, 1]).standard_normal(len(release))
    M = unpacked(release, d + 2)
    M[0, 0] = n  # public
    gram, cross = M[:-1, :-1], M[:-1, -1]
    edge = settings["ridge"] * noise / math.sqrt(2) * 2 * math.sqrt(d + 1)
    values, vectors = np.linalg.eigh(gram)
    lifted = np.maximum(values, edge) if settings["repair"] == "edge" else values + max(0.0, edge - values[0])
    beta = vectors @ ((vectors.T @ cross) / np.where(np.abs(lifted) < 1e-9, 1e-9, lifted))
    return judge.linear_answer(job, beta[1:], float(beta[0]))
