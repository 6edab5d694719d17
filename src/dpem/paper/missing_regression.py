"""Linear regression with covariates missing at random, y = ⟨x, β⟩ + e, x ~ N(0, I), e ~ N(0, σ²).

z_j is 1 where x_j is observed and 0 where it is missing (NaN), r = y − ⟨β, z⊙x⟩ and v = σ² + ‖(1−z)⊙β‖².
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpem.paper.queries import Clip, CoordinateQuery, IntArray, SupportQuery
from dpem.query import Array, Bound, Chunk, FloatArray, Namespace
from dpem.tables.blocks import pieces, response

#: Rows whose truncated scores are computed in one array operation.
_PIECE = 4096


@dataclass(frozen=True)
class MissingRegression:
    """The regression with missing covariates at noise level ``sigma``.

    >>> MissingRegression(sigma=0.5).gradient(np.zeros(3), Clip(2.0, residual=1.5)).bound.linf
    6.0
    """

    sigma: float
    name: str = "missing-regression"
    has_missing: ClassVar[bool] = True

    def weight(self, xp: Namespace, fitted: Array, missing_variance: Array, y: Array) -> tuple[Array, Array]:
        """a = σ²r/v and c = (σ²/v)(r²/v − 1): σ² times the observed-data score is a·x_j where x_j is observed and c·β_j
        where it is missing (erratum E3 corrected).
        """
        variance = self.sigma**2
        r, v = y - fitted, variance + missing_variance
        return variance * r / v, variance / v * (r * r / v - 1.0)

    def gradient(self, beta: FloatArray, clip: Clip) -> CoordinateQuery:
        """Σ a_i·Π_T(z_i⊙x_i) + c_i·(1−z_i)⊙β with a_i clipped to ±C and c_i to [−1, C₂].

        *Lemma.* ℓ∞ sensitivity max(2CT, CT + max(1, C₂)‖β‖∞, (1 + C₂)‖β‖∞). *Proof.* The contribution of an observed
        entry lies in [−CT, CT], that of a missing one between −β_j and C₂β_j. The three terms are the largest distances
        between two observed entries, an observed and a missing one, and two missing ones. ∎ (c_i ≥ −1 before it is
        clipped, since 0 ≤ σ²/v ≤ 1 and r²/v ≥ 0.)
        """
        T, residual, bracket = clip
        size, largest = residual * T, float(np.max(np.abs(beta), initial=0.0))
        linf = max(2 * size, size + max(1.0, bracket) * largest, (1 + bracket) * largest)
        size_linf = max(size, max(1.0, bracket) * largest)
        root_d = math.sqrt(beta.shape[0])
        bound = Bound(linf=linf, l2=root_d * linf, size_linf=size_linf, size_l2=root_d * size_linf)
        label = f"EM gradient, residual clipped at {residual:.4g}, entries at {T:.4g}"
        return CoordinateQuery(label, bound, self.weight, beta, entry=T, residual=residual, bracket=bracket)

    def shift(self, beta: FloatArray) -> FloatArray:
        return np.zeros_like(beta)

    def on_support(self, beta: FloatArray, support: IntArray, radius: float) -> SupportQuery:
        """The score on a support, clipped in ℓ2."""
        label = f"EM gradient on {len(support)} coordinates, norm clipped at {radius:.4g}"
        return SupportQuery(label, self.weight, beta, support, np.zeros(len(support)), radius, has_missing=True)

    def truncated(self, beta: FloatArray, T: float) -> TruncatedScore:
        """The paper's f_T (Algorithm 6), with K as the paper prints it (erratum E3)."""
        return TruncatedScore(beta, self.sigma, T)

    def printed_sensitivity(self, T: float) -> float:
        return 6 * T * T

    def log_likelihood(self, beta: FloatArray, X: NDArray[np.floating], y: NDArray[np.floating]) -> FloatArray:
        """The log-density of each response given the observed entries of its row."""
        fitted, missing_variance = self.predictive(beta, X)
        v = self.sigma**2 + missing_variance
        return np.asarray(-0.5 * (np.square(y - fitted) / v + np.log(2 * math.pi * v)))

    def predictive(self, beta: FloatArray, X: NDArray[np.floating]) -> tuple[FloatArray, FloatArray]:
        """E[y | observed entries] = ⟨β, z⊙x⟩, and the variance ‖(1−z)⊙β‖² that the missing entries add to σ²."""
        missing = np.isnan(X)
        return np.where(missing, 0.0, np.asarray(X, dtype=float)) @ beta, missing @ beta**2

    def sample(self, beta: FloatArray, X: NDArray[np.floating], rng: np.random.Generator) -> FloatArray:
        """A response for each row; missing entries are drawn from the model."""
        fitted, missing_variance = self.predictive(beta, X)
        return np.asarray(fitted + np.sqrt(self.sigma**2 + missing_variance) * rng.standard_normal(X.shape[0]))


@dataclass(frozen=True)
class TruncatedScore:
    """The paper's truncated gradient for missing covariates, as printed.

    With m = z⊙x + (r/v)(1−z)⊙β, the conditional mean of x, coordinate j of a record's contribution is

        Π(y)·Π(m_j) − (1−z_j)β_j − Π(m_j)·Π(mᵀβ) + Π((1−z_j)m_j)·Π(((1−z)⊙m)ᵀβ).

    *Lemma.* Coordinate j of the sum moves by at most 4T² where β_j = 0; elsewhere by max(4T², 5T² − |β_j|, 2T² +
    |β_j|). *Proof.* If x_j is observed, Π(x_j)(Π(y) − Π(mᵀβ)) lies in [−2T², 2T²]. If it is missing, m_j = (r/v)β_j; y
    − mᵀβ = rσ²/v has the sign of r, so Π(y) − Π(mᵀβ) has it too, as has ((1−z)⊙m)ᵀβ. Hence for β_j > 0 the products lie
    in [0, 3T²], to which −β_j is added; for β_j < 0 the signs are reversed. The lemma states the largest distances. ∎
    The printed 6T² is too small if |β_j| > 4T² (erratum E4), and larger than necessary otherwise.

    The signs hold in exact arithmetic only: with rounding, huge entries that cancel can leave mᵀβ on either side of y.
    So every coordinate is clamped to its interval after it is computed, and the lemma rests on the clamp alone.
    """

    beta: FloatArray
    sigma: float
    T: float
    blocked: bool = False

    @property
    def label(self) -> str:
        return f"truncated EM gradient, T = {self.T:.4g}"

    @property
    def bound(self) -> Bound:
        T2, b = self.T**2, np.abs(self.beta)
        width = np.maximum(np.maximum(4 * T2, 2 * T2 + b), np.where(b > 0, 5 * T2 - b, 0.0))
        size = np.maximum(np.maximum(2 * T2, b), np.where(b > 0, 3 * T2 - b, 0.0))
        change = {"linf": float(width.max()), "l2": float(np.linalg.norm(width))}
        return Bound(**change, size_linf=float(size.max()), size_l2=float(np.linalg.norm(size)))

    def sum(self, chunk: Chunk) -> FloatArray:
        total = np.zeros(self.beta.shape[0])
        assert chunk.y is not None
        first = 0
        y = response(chunk)
        for X in pieces(chunk.X, _PIECE):
            total += self._contributions(X, y[first : first + len(X)]).sum(axis=0)
            first += len(X)
        return total

    @np.errstate(all="ignore")
    def _contributions(self, X: FloatArray, y: FloatArray) -> FloatArray:
        beta, T = self.beta, self.T
        clip = functools.partial(np.clip, a_min=-T, a_max=T)
        missing = np.isnan(X)
        x_observed, beta_missing = np.where(missing, 0.0, X), missing * beta
        v = self.sigma**2 + (beta_missing**2).sum(axis=1)
        r = y - x_observed @ beta
        m = x_observed + (r / v)[:, None] * beta_missing
        out = clip(m) * (clip(y) - clip(m @ beta))[:, None] - beta_missing
        m_missing = missing * m
        out += clip(m_missing) * clip(m_missing @ beta)[:, None]
        out[~np.isfinite(out).all(axis=1)] = 0.0
        low, high = self._missing_interval()
        return np.clip(out, np.where(missing, low, -2 * T * T), np.where(missing, high, 2 * T * T))

    def _missing_interval(self) -> tuple[FloatArray, FloatArray]:
        """The interval of a missing coordinate's contribution, by the lemma."""
        b = np.abs(self.beta)
        largest = np.where(b > 0, 3 * self.T**2 - b, 0.0)
        return np.where(self.beta >= 0, -b, -largest), np.where(self.beta >= 0, largest, b)
