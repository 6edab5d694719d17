"""The gradient under a smoothed truncation: the robust mean of Catoni and Giulini, as Wang et al. (2020) use it in EM.

A coordinate g of a record's gradient enters as s·ψ(g/s). Here ψ(a) = E φ(a·(1 + η)) with η ~ N(0, 1/β) is the
truncation φ(u) = u − u³/6 for |u| ≤ √2, ±2√2/3 beyond, averaged over a multiplicative noise that exists on paper only:
ψ has a closed form and nothing is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import array_api_compat.numpy as numpy_api
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpem.paper.missing_regression import MissingRegression
from dpem.paper.models import SymmetricMixture, SymmetricRegression
from dpem.query import Bound, Chunk, FloatArray
from dpem.tables.blocks import pieces, response

RobustModel = SymmetricMixture | SymmetricRegression | MissingRegression

#: The largest value of φ, taken at √2.
LARGEST = 2 * math.sqrt(2) / 3
#: Gradients are cut here, in units of the scale: ψ is all but flat beyond, and its cubes still subtract exactly.
_FAR = 100.0
#: Rows whose gradients are held at once.
_PIECE = 4096


def smoothed_truncation(a: FloatArray, smoothing: float) -> FloatArray:
    """ψ(a) = E φ(a·(1 + η)), η ~ N(0, 1/smoothing), for |a| ≤ 100; clamped to ±2√2/3.

    φ(a + bη) is a cubic in η between the two points where it meets ±√2, and constant outside: the average needs the
    normal distribution's mass and first three moments there.

    >>> smoothed_truncation(np.array([0.0, 0.1, 50.0]), smoothing=10.0).round(3)
    array([0.   , 0.1  , 0.941])
    """
    b = np.maximum(np.abs(a) / math.sqrt(smoothing), 1e-30)
    low, high = (-math.sqrt(2) - a) / b, (math.sqrt(2) - a) / b
    p_low, p_high = _density(low), _density(high)
    m0 = ndtr(high) - ndtr(low)
    m1 = p_low - p_high
    m2 = m0 + low * p_low - high * p_high
    m3 = (low**2 + 2) * p_low - (high**2 + 2) * p_high
    inside = (a - a**3 / 6) * m0 + b * (1 - a**2 / 2) * m1 - a * b**2 / 2 * m2 - b**3 / 6 * m3
    outside = LARGEST * (ndtr(-high) - ndtr(low))
    return np.clip(np.nan_to_num(inside + outside, nan=0.0), -LARGEST, LARGEST)


def _density(v: FloatArray) -> FloatArray:
    return np.exp(-(v**2) / 2) / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class RobustGradient:
    """Σ s·ψ(∇_j q_i(β; β)/s) over all d coordinates j.

    *Lemma.* ℓ∞ sensitivity (4√2/3)·s, ℓ2 sensitivity (4√2/3)·s·√d. *Proof.* |φ| ≤ 2√2/3, and ψ is an average of φ, so
    each coordinate of a contribution lies in ±(2√2/3)·s: a cube of width (4√2/3)·s and diameter √d times that. ∎

    The lemma is about ψ. The published formula for it, a·(1 − b²/2) − a³/6 + C(a, b), subtracts cubes: in floating
    point, a record at 10⁹ scales can count for a million clamped ones, and would outweigh the noise. So the gradient is
    cut at 100·s before and the result clamped to ±(2√2/3)·s after; the clamp alone makes the lemma true of what is
    computed (up to the rounding of the product with s, for which the bound has room). A gradient that is not a number
    adds 0.
    """

    model: RobustModel
    beta: FloatArray = field(repr=False)
    scale: float
    smoothing: float
    blocked: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.model, SymmetricMixture | SymmetricRegression | MissingRegression):
            raise ValueError(f"model must be one of the three built-in models, got {type(self.model).__name__}.")
        for name in ("scale", "smoothing"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a positive finite number, got {value!r}.")

    @property
    def label(self) -> str:
        return f"EM gradient, robust mean of each coordinate at scale {self.scale:.4g}"

    @property
    def bound(self) -> Bound:
        size = LARGEST * self.scale * (1 + 4 * float(np.finfo(np.float64).eps))
        return Bound.symmetric(linf=size, l2=math.sqrt(self.beta.shape[0]) * size)

    @np.errstate(over="ignore")
    def sum(self, chunk: Chunk) -> FloatArray:
        total = np.zeros(self.beta.shape[0])
        y, first = response(chunk), 0
        for rows in pieces(chunk.X, _PIECE):
            gradients = record_gradients(self.model, self.beta, rows, y[first : first + len(rows)])
            first += len(rows)
            a = np.clip(np.nan_to_num(gradients, nan=0.0) / self.scale, -_FAR, _FAR)
            total += (self.scale * smoothed_truncation(a, self.smoothing)).sum(axis=0)
        return total


@np.errstate(all="ignore")
def record_gradients(
    model: RobustModel, beta: FloatArray, X: NDArray[np.float64], y: FloatArray | None
) -> NDArray[np.float64]:
    """∇q_i(β; β), one row per record, nothing clipped: finite or not, as the record has it.

    >>> record_gradients(SymmetricMixture(1.0), np.zeros(2), np.ones((1, 2)), None)
    array([[0., 0.]])
    """
    if not model.has_missing:
        a, _ = model.weight(numpy_api, X @ beta, None, y)
        return np.asarray(a[:, None] * X + model.shift(beta))
    missing = np.isnan(X)
    observed = np.where(missing, 0.0, X)
    a, c = model.weight(numpy_api, observed @ beta, missing @ beta**2, y)
    return np.asarray(a[:, None] * observed + c[:, None] * (missing * beta) + model.shift(beta))
