"""The k largest of score + Gumbel noise, sampled exactly and in a time that does not depend on the scores.

A Gumbel variable is −ln(E) with E exponential, and E = −ln(1 − V) with V uniform. V is a string of random bits. Some
of its bits confine it to an interval, the interval of V confines score − ln(−ln(1 − V)) to another, and intervals that
do not overlap are in the order of the real numbers inside them, whatever the bits still to come. So 64 bits are drawn
for every coordinate, intervals are computed in floats and widened by more than floats can err, and only coordinates
whose intervals overlap where it matters draw more bits, with decimals of as many digits as it takes.

*Lemma.* The indices returned are those of the k largest of score_j + G_j, best first, with G_j independent standard
Gumbel variables, for the scores as the floats they are. *Proof.* Bits of V drawn one after another are those of a
uniform variable. An interval always holds its real number: x ↦ −ln(−ln(1 − x)) is increasing, so it maps ends to ends,
and each end is moved outwards by more than its evaluation errs (below). Coordinates whose upper end lies below the
k-th largest lower end are below k others, so they are not among the k largest; the rest are ordered only when their
intervals are disjoint. Two intervals stay overlapping for ever with probability 0. ∎

Floats: conversions to float, log1p, log and the sum err by a few units in the last place (2⁻⁵³) each; every end is
moved by 2⁻⁴⁹ of the sizes involved, sixteen times that.
"""

from __future__ import annotations

import math
import os
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from dpem._validation import ArgumentError
from dpem.query import FloatArray

#: Bits drawn for each coordinate at first, and then at each refinement.
FIRST_BITS, MORE_BITS = 64, 64

_WIDER = 2.0**-49


def top_k(scores: FloatArray, k: int) -> NDArray[np.intp]:
    """Indices of the k largest of score + Gumbel(1), best first.

    >>> top_k(np.array([0.0, 1e6, -1e6]), 2).tolist()
    [1, 0]
    """
    if not np.isfinite(scores).all():
        raise ArgumentError("scores", "must be finite.")
    bits = _random_bits(len(scores))
    low, high = _intervals(scores, bits)
    least = np.partition(low, len(low) - k)[len(low) - k]
    left = np.flatnonzero(high >= least)
    order = left[np.argsort(-low[left], kind="stable")]
    if len(order) == k and bool(np.all(low[order[:-1]] > high[order[1:]])):
        return np.asarray(order, dtype=np.intp)
    return _refined(scores, bits, left, k)


def _random_bits(count: int) -> NDArray[np.uint64]:
    """V·2^FIRST_BITS for each coordinate, from the operating system's cryptographic source."""
    raw = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    return raw >> np.uint64(64 - FIRST_BITS)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def _intervals(scores: FloatArray, bits: NDArray[np.uint64]) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of score + Gumbel for every coordinate, in floats, widened."""
    unit = 2.0**-FIRST_BITS
    m = bits.astype(np.float64)
    first = np.nextafter(m, 0.0) * unit
    last = np.minimum(np.nextafter(m + 1.0, math.inf) * unit, 1.0)
    # E = −log1p(−V) lies between these; Gumbel = −log E is largest where E is smallest.
    smallest, largest = -np.log1p(-first) * (1 - _WIDER), -np.log1p(-last) * (1 + _WIDER)
    upper, lower = -np.log(smallest), -np.log(largest)
    high = scores + upper + _WIDER * (np.abs(scores) + np.abs(upper) + 1.0)
    low = scores + lower - _WIDER * (np.abs(scores) + np.abs(lower) + 1.0)
    return np.where(np.isnan(low), -math.inf, low), np.where(np.isnan(high), math.inf, high)


def _refined(scores: FloatArray, bits: NDArray[np.uint64], left: NDArray[np.intp], k: int) -> NDArray[np.intp]:
    """The same for the few coordinates that are left, in decimals, with more bits where intervals overlap."""
    strings = {int(j): (int(bits[j]), FIRST_BITS) for j in left}
    ends = {j: _decimal_interval(float(scores[j]), *string) for j, string in strings.items()}
    while True:
        order = sorted(ends, key=lambda j: ends[j][0], reverse=True)
        unsure = _overlapping(order, ends, k)
        if not unsure:
            return np.array(order[:k], dtype=np.intp)
        for j in unsure:
            m, length = strings[j]
            fresh = int.from_bytes(os.urandom(MORE_BITS // 8), "big")
            strings[j] = (m << MORE_BITS) | fresh, length + MORE_BITS
            ends[j] = _decimal_interval(float(scores[j]), *strings[j])


def _overlapping(order: list[int], ends: dict[int, tuple[Decimal, Decimal]], k: int) -> set[int]:
    """Coordinates whose interval overlaps another's in a way that leaves the first k places open."""
    unsure: set[int] = set()
    for place, j in enumerate(order[:k]):
        for other in order[place + 1 :]:
            if ends[other][1] >= ends[j][0]:
                unsure |= {j, other}
    return unsure


def _decimal_interval(score: float, m: int, length: int) -> tuple[Decimal, Decimal]:
    """Lower and upper end of score + Gumbel where V lies in [m, m + 1]/2^length."""
    with localcontext() as context:
        context.prec = 2 * length + 40  # 1 − V and ln(1 − V) lose at most ``length`` bits each
        context.Emin, context.Emax = -(10**6), 10**6
        exact = Decimal(score)
        margin = Decimal(10) ** -(length // 2 + 20) + abs(exact) * Decimal(10) ** -(context.prec - 5)

        def gumbel(numerator: int) -> Decimal:
            """−ln(−ln(1 − numerator/2^length)): the ends 0 and 1 are the ends of the line."""
            if numerator == 0:
                return Decimal("-Infinity")
            if numerator == 2**length:
                return Decimal("Infinity")
            v = Decimal(numerator) / Decimal(2**length)
            return (-((1 - v).ln())).ln()

        return exact - gumbel(m + 1) - margin, exact - gumbel(m) + margin
