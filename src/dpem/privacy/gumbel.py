"""The k largest of score + Gumbel noise, sampled exactly and in a time that does not depend on the scores.

A Gumbel variable is −ln(E) with E exponential, and E = −ln(1 − V) with V uniform. V is a sequence of random bits. Its
first bits confine it to an interval, hence score − ln(−ln(1 − V)) to another. Intervals that do not overlap have the
order of the real numbers inside them, whatever the later bits are. So 64 bits are drawn for every coordinate and
intervals are computed in floats, widened by more than the rounding error. Only coordinates whose overlap leaves the
first k open draw more bits, and their intervals are computed in decimals of sufficient precision.

*Lemma.* The returned indices are those of the k largest of score_j + G_j, largest first, with independent standard
Gumbel variables G_j and the scores as exact floats. *Proof.* Random bits are those of a uniform variable V. An
interval always contains its real number: x ↦ −ln(−ln(1 − x)) is increasing, so it maps ends to ends, and each end is
moved outwards by more than its rounding error (below). A coordinate whose upper end lies below the k-th largest lower
end is below k others, so it is not among the k largest; the others are ordered only once their intervals are disjoint.
Two intervals overlap for ever with probability 0. ∎

Rounding: conversion to float, log1p, log and the sum have errors of a few units of 2⁻⁵³ each; every end is moved by
2⁻⁴⁹ of the sizes involved, sixteen units.
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
    """Indices of the k largest of score + Gumbel(1), largest first.

    >>> top_k(np.array([0.0, 1e6, -1e6]), 2).tolist()
    [1, 0]
    """
    if not np.isfinite(scores).all():
        raise ArgumentError("scores", "must be finite.")
    bits = _random_bits(len(scores))
    low, high = _intervals(scores, bits)
    least = np.partition(low, len(low) - k)[len(low) - k]
    candidates = np.flatnonzero(high >= least)
    order = candidates[np.argsort(-low[candidates], kind="stable")]
    if len(order) == k and bool(np.all(low[order[:-1]] > high[order[1:]])):
        return np.asarray(order, dtype=np.intp)
    return _refine(scores, bits, candidates, k)


def _random_bits(count: int) -> NDArray[np.uint64]:
    """V·2^FIRST_BITS for each coordinate, from the operating system's cryptographic source."""
    raw = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    return raw >> np.uint64(64 - FIRST_BITS)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def _intervals(scores: FloatArray, bits: NDArray[np.uint64]) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of score + Gumbel for every coordinate, in widened floats."""
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


def _refine(scores: FloatArray, bits: NDArray[np.uint64], candidates: NDArray[np.intp], k: int) -> NDArray[np.intp]:
    """The k largest of the candidates, by decimals, with more bits for coordinates whose intervals overlap."""
    bit_strings = {int(j): (int(bits[j]), FIRST_BITS) for j in candidates}
    ends = {j: _decimal_interval(float(scores[j]), *bits_of_j) for j, bits_of_j in bit_strings.items()}
    while True:
        order = sorted(ends, key=lambda j: ends[j][0], reverse=True)
        undecided = _overlapping(order, ends, k)
        if not undecided:
            return np.array(order[:k], dtype=np.intp)
        for j in undecided:
            m, length = bit_strings[j]
            fresh = int.from_bytes(os.urandom(MORE_BITS // 8), "big")
            bit_strings[j] = (m << MORE_BITS) | fresh, length + MORE_BITS
            ends[j] = _decimal_interval(float(scores[j]), *bit_strings[j])


def _overlapping(order: list[int], ends: dict[int, tuple[Decimal, Decimal]], k: int) -> set[int]:
    """Coordinates whose intervals overlap so that the first k are not decided."""
    undecided: set[int] = set()
    for place, j in enumerate(order[:k]):
        for other in order[place + 1 :]:
            if ends[other][1] >= ends[j][0]:
                undecided |= {j, other}
    return undecided


def _decimal_interval(score: float, m: int, length: int) -> tuple[Decimal, Decimal]:
    """Lower and upper end of score + Gumbel where V lies in [m, m + 1]/2^length."""
    with localcontext() as context:
        context.prec = 2 * length + 40  # 1 − V and ln(1 − V) lose at most ``length`` bits each
        context.Emin, context.Emax = -(10**6), 10**6
        exact = Decimal(score)
        margin = Decimal(10) ** -(length // 2 + 20) + abs(exact) * Decimal(10) ** -(context.prec - 5)

        def gumbel(numerator: int) -> Decimal:
            """−ln(−ln(1 − numerator/2^length)), infinite at the ends 0 and 1."""
            if numerator == 0:
                return Decimal("-Infinity")
            if numerator == 2**length:
                return Decimal("Infinity")
            v = Decimal(numerator) / Decimal(2**length)
            return (-((1 - v).ln())).ln()

        return exact - gumbel(m + 1) - margin, exact - gumbel(m) + margin
