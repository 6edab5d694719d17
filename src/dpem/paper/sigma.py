"""A private estimate of σ for the paper's models, from two queries about the squares of entries or of responses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import ndtr

from dpem.privacy import Curator
from dpem.query import Array, Bound, Chunk, FloatArray
from dpem.tables.blocks import device_slices, host, namespace_of, response

#: Edges of the bins of a row's root mean square: powers of √2 from 2^-40 to 2^40. The outer bins are open.
EDGES: FloatArray = np.power(2.0, np.arange(-80, 81) / 2)


def row_squares(chunk: Chunk, of_response: bool) -> FloatArray:
    """The mean square of each row's entries, or the square of its response; 0 if it is not a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(response(chunk)) if of_response else _mean_squares(chunk.X)
    return np.asarray(np.nan_to_num(squares, nan=0.0, posinf=np.finfo(float).max))


def _mean_squares(X: Array) -> FloatArray:
    """The mean square of each row's entries in float64, which may be infinite or not a number."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64) / X.shape[1])
    if sparse.issparse(X):
        squares = X.astype(np.float64)  # a copy of one chunk
        np.square(squares.data, out=squares.data)
        return np.asarray(squares.sum(axis=1)).ravel() / X.shape[1]
    xp, sums = namespace_of(X), [np.empty(0)]
    for rows in device_slices(X, X.shape[1]):
        x = xp.astype(X[rows, :], xp.float64)
        sums.append(host(xp.sum(x * x, axis=1)))
    return np.concatenate(sums) / X.shape[1]


@dataclass(frozen=True)
class SizeHistogram:
    """The number of rows whose root mean square, or absolute response, is in each bin of :data:`EDGES`.

    *Lemma.* ℓ∞ sensitivity 1, ℓ2 sensitivity √2. *Proof.* A row is counted in exactly one bin; replacing it takes one
    from a bin and adds one to another. ∎
    """

    of_response: bool
    blocked: bool = False
    label: str = "histogram of the rows' size"

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0, l2=math.sqrt(2.0), size_linf=1.0, size_l2=1.0)

    def sum(self, chunk: Chunk) -> FloatArray:
        bins = np.searchsorted(EDGES, np.sqrt(row_squares(chunk, self.of_response)))
        return np.bincount(bins, minlength=len(EDGES) + 1).astype(float)


@dataclass(frozen=True)
class CappedSquares:
    """Σ min(mean square of a row, cap²).

    *Lemma.* Sensitivity cap². *Proof.* A contribution lies in [0, cap²]. ∎
    """

    of_response: bool
    cap: float
    blocked: bool = False

    @property
    def label(self) -> str:
        return f"mean square of a row, capped at {self.cap:.4g}²"

    @property
    def bound(self) -> Bound:
        square = self.cap**2
        return Bound(linf=square, l2=square, size_linf=square, size_l2=square)

    def sum(self, chunk: Chunk) -> FloatArray:
        return np.array([np.minimum(row_squares(chunk, self.of_response), self.cap**2).sum()])


def estimate_sigma(curator: Curator, *, signal: float, of_response: bool, rho: float) -> float:
    """An estimate of σ at price ρ: the fullest bin of a histogram gives its scale, a capped mean square its value.

    The expected mean square is σ² + ‖β‖²/d for a row of the Gaussian mixture and σ² + ‖β‖² for a response of the
    regressions; the assumed ``signal`` stands for ‖β‖, which matters little for the mixture if d is large. The cap is
    four standard deviations above the mean for rows, and 1.5 times the scale for responses, whose bias is corrected as
    if they were normal. A quarter of ρ is for the histogram.
    """
    fullest = int(curator.select(SizeHistogram(of_response), 1, rho / 4)[0])
    scale = float(EDGES[min(fullest, len(EDGES) - 1)])
    d = 1 if of_response else curator.n_features
    cap = 1.5 * scale if of_response else scale * (1 + 4 / math.sqrt(2 * d))
    mean_square = float(curator.measure(CappedSquares(of_response, cap), 3 * rho / 4)[0])
    if of_response:
        mean_square = _uncapped(mean_square, cap)
    return math.sqrt(max(mean_square - signal**2 / d, 0.01 * scale**2))


def rows_for_sigma(d: int, *, of_response: bool, rho: float, rows_per_person: int = 1) -> int:
    """The number of rows below which noise may hide the histogram's fullest bin. It depends on no record.

    In counts, the Gumbel noise has scale m·√(1/(2ρ)) if a person has up to m rows, and the largest of k draws is about
    log k times that. The fullest bin has about half of the rows if d is large, since their mean squares vary little,
    and about a fifth of single responses or of short rows.

    >>> rows_for_sigma(20, of_response=False, rho=0.001)
    911
    >>> rows_for_sigma(20, of_response=False, rho=0.001, rows_per_person=3)
    2731
    """
    fullest_share = 0.2 if of_response or d < 10 else 0.5
    return math.ceil(rows_per_person * 2 * math.sqrt(2 / rho) * math.log(len(EDGES) + 1) / fullest_share)


def _uncapped(mean: float, cap: float) -> float:
    """The variance τ² of a centred normal variable y with E min(y², cap²) = ``mean``."""

    def excess(log_tau: float) -> float:
        tau = math.exp(log_tau)
        a = cap / tau
        below_cap = ndtr(a) - ndtr(-a) - 2 * a * math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        return float(tau**2 * below_cap + 2 * cap**2 * ndtr(-a) - mean)

    low, high = math.log(cap) - 4, math.log(cap) + 2
    if not excess(low) < 0 < excess(high):
        return min(max(mean, 0.0), cap**2)
    return math.exp(2 * float(brentq(excess, low, high)))
