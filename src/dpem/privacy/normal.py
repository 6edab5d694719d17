"""The floats nearest to values + normal noise, sampled exactly: as if real numbers were added and then rounded.

A normal variable is ±(k + X) with a whole number k and X in [0, 1) (Karney 2016). Let V, W and X be uniform and
k = ⌊−2 ln V⌋; (k, X) is kept if −2 ln W > k(k − 1) + X(2k + X), else drawn again. V, W and X are strings of random
bits. Those drawn so far confine each to an interval, and floats, widened by more than they can err, nearly always
decide; where they do not, decimals of as many digits as it takes do, with more bits.

*Lemma.* What is kept has the law of |Z|, Z standard normal. *Proof.* k has a probability proportional to e^(−k/2), X
the density 1, and (k, X) is kept with probability exp(−(k(k − 1) + X(2k + X))/2). The product is exp(−(k + X)²/2). ∎

*Lemma.* A release is the float nearest to v + σZ, for the floats v and σ as they are. *Proof.* Bits of X that are not
drawn yet are uniform whatever was kept. Those drawn confine X to [x, x + 1]/2^L, and v + σZ to an interval whose ends
are quotients of whole numbers, which Python rounds to the nearest float. Rounding is monotone, so if both ends give
the same float, every number between them does. Else more bits are drawn. ∎ Hence a release depends on the data through
the real number v + σZ alone: its price and its trade-off curve are those of the Gaussian mechanism.

Floats: conversions, the log and products err by a few units in the last place (2⁻⁵³) each; every end is moved by 2⁻⁴⁵
of its size.
"""

from __future__ import annotations

import math
import os
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from dpem.query import FloatArray

#: Bits of each string drawn at first, and then at each refinement.
BITS = 64

_WIDER = 2.0**-45

Bits = NDArray[np.uint64]


def with_noise(values: FloatArray, scale: float) -> FloatArray:
    """The floats nearest to values + N(0, scale²).

    >>> with_noise(np.array([2.0, 1e300]), 1e-300).tolist()
    [2.0, 1e+300]
    """
    drawn: list[tuple[int, int, int]] = []
    while len(drawn) < len(values):
        drawn += half_normals(2 * (len(values) - len(drawn)) + 8)
    negative = _random_bits(len(values)) % 2
    sigma, sizes = float(scale).as_integer_ratio(), drawn[: len(values)]
    parts = zip(values.tolist(), negative.tolist(), sizes, strict=True)
    return np.array([_nearest(v, -sigma[0] if minus else sigma[0], sigma[1], *size) for v, minus, size in parts])


def half_normals(proposals: int) -> list[tuple[int, int, int]]:
    """k, the first bits x of X, and their number, for those of so many proposals that are kept."""
    V, W, X = (_random_bits(proposals) for _ in range(3))
    k, kept, unsure = _decided(V, W, X)
    found: list[tuple[int, int, int] | None] = [
        (whole, x, BITS) if keep else None for whole, x, keep in zip(k.tolist(), X.tolist(), kept.tolist(), strict=True)
    ]
    for i in np.flatnonzero(unsure):
        found[i] = _refined(int(V[i]), int(W[i]), int(X[i]))
    return [size for size in found if size is not None]


def _random_bits(count: int) -> Bits:
    """Strings of BITS bits, from the operating system's cryptographic source."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(64 - BITS)


def _decided(V: Bits, W: Bits, X: Bits) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """k, which proposals are kept for certain, and of which that, or k, is not certain."""
    (least, most), (low, high), (x, beyond) = _exponential(V), _exponential(W), _ends(X)
    k = np.floor(least)
    bound = k * (k - 1.0)
    kept = low > (bound + beyond * (2.0 * k + beyond)) * (1 + _WIDER)
    dropped = high < (bound + x * (2.0 * k + x)) * (1 - _WIDER)
    unsure = (k != np.floor(most)) | ~(kept | dropped)
    return k.astype(np.intp), kept & ~unsure, unsure


def _ends(bits: Bits) -> tuple[FloatArray, FloatArray]:
    """Floats below and above each number of [0, 1] that begins with these bits."""
    m, unit = bits.astype(float), 2.0**-BITS
    return np.nextafter(m, 0.0) * unit, np.minimum(np.nextafter(m + 1.0, math.inf) * unit, 1.0)


@np.errstate(divide="ignore")
def _exponential(bits: Bits) -> tuple[FloatArray, FloatArray]:
    """Floats below and above −2 ln of each such number."""
    first, last = _ends(bits)
    return -2.0 * np.log(last) * (1 - _WIDER), -2.0 * np.log(first) * (1 + _WIDER)


def _refined(V: int, W: int, X: int) -> tuple[int, int, int] | None:
    """k, the bits of X and their number, or None if the proposal is dropped: in decimals, with the bits it takes."""
    length = BITS
    with localcontext() as context:
        while True:
            context.prec = 2 * length + 40  # a number of so many bits is exact, and so is its square
            margin, unit = Decimal(10) ** -(context.prec - 5), Decimal(2) ** -length
            least, most, low, high = (
                -2 * (unit * end).ln() * (1 + away) for m in (V, W) for end, away in ((m + 1, -margin), (m, margin))
            )
            k = int(least)
            if most.is_finite() and k == int(most):
                x, beyond = unit * X, unit * (X + 1)
                if low > k * (k - 1) + beyond * (2 * k + beyond):
                    return k, X, length
                if high < k * (k - 1) + x * (2 * k + x):
                    return None
            V, W, X = ((m << BITS) | _more_bits() for m in (V, W, X))
            length += BITS


def _more_bits() -> int:
    return int.from_bytes(os.urandom(8), "big") >> (64 - BITS)


def _nearest(v: float, numerator: int, denominator: int, k: int, x: int, length: int) -> float:
    """The float nearest to v + (numerator/denominator)·(k + X), where X begins with the bits x."""
    p, q = v.as_integer_ratio()
    while True:
        size, whole = (k << length) + x, (q * denominator) << length
        first, step = ((p * denominator) << length) + q * numerator * size, q * numerator
        nearest = first / whole
        if nearest == (first + step) / whole:
            return nearest
        x, length = (x << BITS) | _more_bits(), length + BITS
