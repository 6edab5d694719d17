"""Private sizes: the noise level σ, and the centre and spread of each column."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from dpem.privacy import Curator
from dpem.queries.scales import EDGES, CappedSquares, ColumnMoments, SizeHistogram
from dpem.query import FloatArray


def estimate_sigma(curator: Curator, *, signal: float, of_response: bool, rho: float) -> float:
    """σ from the size of rows: a noisy histogram finds its order of magnitude, a capped mean square its value.

    A row of the Gaussian mixture has mean square σ² + ‖β‖²/d on average, a response of the regressions has σ² + ‖β‖²;
    the assumed signal is taken off. So in high dimension the mixture's σ hardly depends on the assumption, and the
    regressions' does. A quarter of ρ goes to the histogram. Responses are taken as normal, so their cap can be low.
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
    """Rows below which the noise of the histogram may hide its largest bin. Public: it depends on no record.

    In counts, the Gumbel noise has scale m·√(1/(2ρ)) if a person has up to m rows, and the largest of as many draws as
    there are bins is about its logarithm times that. Sizes of long rows fall into one or two bins, those of a single
    response into many, the fullest of which holds about a fifth.

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


class Columns(NamedTuple):
    """Released centre and spread of each column, in the data's own units."""

    centre: FloatArray
    spread: FloatArray


def column_scales(curator: Curator, low: FloatArray, high: FloatArray, rho: float) -> Columns:
    """Centre and standard deviation of each column from one release of its moments; spreads below the noise are set
    to it.
    """
    d = curator.n_features
    query = ColumnMoments(low, high)
    noise = curator.noise_scale(query, rho)
    released = curator.measure(query, rho)
    seen = np.clip(released[2 * d :] / 0.85, max(noise, 1 / curator.n_rows), 1.0)
    mean = np.clip(released[:d] / seen, -1.0, 1.0)
    variance = released[d : 2 * d] / 1.5 / seen - mean**2
    smallest = max(noise, 1e-12)
    middle, half = (low + high) / 2, (high - low) / 2
    return Columns(middle + half * mean, half * np.sqrt(np.clip(variance, smallest, 1.0)))
