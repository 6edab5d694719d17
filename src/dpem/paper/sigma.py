"""A private estimate of σ for the paper's models, from two queries about the size of rows or of responses."""

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

#: Bins of a row's size: factors of √2 from 2^-40 to 2^40, the outer ones open.
EDGES: FloatArray = np.power(2.0, np.arange(-80, 81) / 2)


def row_squares(chunk: Chunk, of_response: bool) -> FloatArray:
    """Mean square of each row's entries, or the square of its response; not-a-number counts as 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(response(chunk)) if of_response else _mean_squares(chunk.X)
    return np.asarray(np.nan_to_num(squares, nan=0.0, posinf=np.finfo(float).max))


def _mean_squares(X: Array) -> FloatArray:
    """The mean square of each row's entries, in float64; may be infinite or not a number."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64) / X.shape[1])
    if sparse.issparse(X):
        squares = X.astype(np.float64)  # a copy of the entries, at most one chunk of them
        np.square(squares.data, out=squares.data)
        return np.asarray(squares.sum(axis=1)).ravel() / X.shape[1]
    xp, sums = namespace_of(X), [np.empty(0)]
    for rows in device_slices(X, X.shape[1]):
        x = xp.astype(X[rows, :], xp.float64)
        sums.append(host(xp.sum(x * x, axis=1)))
    return np.concatenate(sums) / X.shape[1]


@dataclass(frozen=True)
class SizeHistogram:
    """The number of rows with a root mean square in each bin.

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
        place = np.searchsorted(EDGES, np.sqrt(row_squares(chunk, self.of_response)))
        return np.bincount(place, minlength=len(EDGES) + 1).astype(float)


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
    """The estimate of σ: a noisy histogram gives its order of magnitude, a capped mean square its value.

    A row of the Gaussian mixture has the expected mean square σ² + ‖β‖²/d, a response of the regressions has σ² + ‖β‖²;
    the assumed signal is subtracted. So in high dimension the mixture's σ hardly depends on the assumption, and that of
    the regressions does. A quarter of ρ is for the histogram. Responses are assumed to be normal, so that the bias of a
    low cap can be corrected.
    """
    largest = int(curator.select(SizeHistogram(of_response), 1, rho / 4)[0])
    top = float(EDGES[min(largest, len(EDGES) - 1)])
    d = 1 if of_response else curator.n_features
    cap = 1.5 * top if of_response else top * (1 + 4 / math.sqrt(2 * d))
    square = float(curator.measure(CappedSquares(of_response, cap), 3 * rho / 4)[0])
    if of_response:
        square = _uncapped(square, cap)
    return math.sqrt(max(square - signal**2 / d, 0.01 * top**2))


def rows_for_sigma(d: int, *, of_response: bool, rho: float, rows_per_person: int = 1) -> int:
    """The number of rows below which noise may hide the histogram's largest bin. Public: it depends on no record.

    In counts, the Gumbel noise has scale m·√(1/(2ρ)) if a person has up to m rows, and the largest of k draws is about
    log k times that. Sizes of long rows fall into one or two bins, those of single responses into many, the fullest of
    which has about a fifth.

    >>> rows_for_sigma(20, of_response=False, rho=0.001)
    911
    >>> rows_for_sigma(20, of_response=False, rho=0.001, rows_per_person=3)
    2731
    """
    fullest = 0.2 if of_response or d < 10 else 0.5
    return math.ceil(rows_per_person * 2 * math.sqrt(2 / rho) * math.log(len(EDGES) + 1) / fullest)


def _uncapped(mean: float, cap: float) -> float:
    """The variance τ² of a normal variable y for which E min(y², cap²) is ``mean``."""

    def excess(log_tau: float) -> float:
        tau = math.exp(log_tau)
        a = cap / tau
        inside = ndtr(a) - ndtr(-a) - 2 * a * math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        return float(tau**2 * inside + 2 * cap**2 * ndtr(-a) - mean)

    low, high = math.log(cap) - 4, math.log(cap) + 2
    if not excess(low) < 0 < excess(high):
        return min(max(mean, 0.0), cap**2)
    return math.exp(2 * float(brentq(excess, low, high)))
