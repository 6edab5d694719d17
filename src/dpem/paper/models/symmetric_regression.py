"""Mixture of two linear regressions, y = z·⟨x, β⟩ + e with z = ±1 equally likely, x ~ N(0, I) and e ~ N(0, σ²)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpem.paper.gradient import CoordinateQuery, IntArray, SupportQuery
from dpem.paper.models.base import Clip
from dpem.paper.screening import ExceedanceQuery, Largeness, MomentQuery
from dpem.query import Array, Bound, FloatArray, Namespace


@dataclass(frozen=True)
class SymmetricRegression:
    """The model's mathematics at noise level ``sigma``.

    >>> SymmetricRegression(sigma=0.5).gradient(np.zeros(3), Clip(2.0, residual=1.5)).bound.linf
    6.0
    """

    sigma: float
    name: str = "symmetric-regression"
    has_missing: ClassVar[bool] = False

    def weight(self, xp: Namespace, fitted: Array, hidden: Array, y: Array) -> tuple[Array, Array]:
        """a = E[z | x, y]·y − ⟨β, x⟩: the residual from the expected response (errata E1 and E2 corrected)."""
        return xp.tanh(y * fitted / self.sigma**2) * y - fitted, None

    def truncated_weight(self, T: float, xp: Namespace, fitted: Array, hidden: Array, y: Array) -> tuple[Array, Array]:
        """The same with the paper's truncation: Π_T of the response and of the fitted value, each on its own."""
        return xp.tanh(y * fitted / self.sigma**2) * xp.clip(y, -T, T) - xp.clip(fitted, -T, T), None

    def gradient(self, beta: FloatArray, clip: Clip) -> CoordinateQuery:
        """Σ a_i·Π_T(x_i) with the residual a_i clipped to ±C.

        *Lemma.* ℓ∞ sensitivity 2CT, ℓ2 sensitivity 2√d·CT. *Proof.* |a_i| ≤ C and |Π_T(x_ij)| ≤ T put a contribution
        in the cube [−CT, CT]^d. ∎
        """
        T, residual = clip.entry, clip.residual
        size = residual * T
        label = f"EM gradient, residual clipped at {residual:.4g}, entries at {T:.4g}"
        bound = Bound.symmetric(linf=size, l2=math.sqrt(beta.shape[0]) * size)
        return CoordinateQuery(label, bound, self.weight, beta, entry=T, residual=residual)

    def truncated(self, beta: FloatArray, T: float) -> CoordinateQuery:
        """The paper's f_T (Algorithm 5): Π_T of y, of x and of ⟨x, β⟩ separately, with the corrected weight 2w − 1.

        *Lemma.* ℓ∞ sensitivity 2T² (the paper prints 4T²), ℓ2 sensitivity 2√d·T². *Proof.* The sign of
        tanh(y⟨β,x⟩/σ²)·Π_T(y) is the sign of ⟨β, x⟩, so the weight is the difference of two numbers of that same sign
        and of size at most T: it lies in [−T, T], and a contribution in [−T², T²]^d. With the printed 2w in place of
        2w − 1 the weight reaches ±2T, and 4T² is exact. ∎
        """
        label = f"truncated EM gradient, T = {T:.4g}"
        bound = Bound.symmetric(linf=T * T, l2=math.sqrt(beta.shape[0]) * T * T)
        return CoordinateQuery(label, bound, functools.partial(self.truncated_weight, T), beta, entry=T, residual=T)

    def printed_sensitivity(self, T: float) -> float:
        return 4 * T * T

    def shift(self, beta: FloatArray) -> FloatArray:
        return np.zeros_like(beta)

    def on_support(self, beta: FloatArray, support: IntArray, radius: float) -> SupportQuery:
        """The gradient on a support, a_i·x_iS, clipped in ℓ2."""
        label = f"EM gradient on {len(support)} coordinates, norm clipped at {radius:.4g}"
        return SupportQuery(label, self.weight, beta, support, np.zeros(len(support)), radius)

    def screening(self, signal: float, s: int) -> ExceedanceQuery:
        """The association of large |x_j| with large |y|: y² is larger in rows where the columns of the support are
        large.

        |x_j| is cut at its median, so a column without signal has the mean score 0 whatever g is.
        """
        return ExceedanceQuery(low=0.6, high=0.745, response=self._largeness(signal))

    def moments(self, support: IntArray, radius: float, signal: float) -> MomentQuery:
        """E g(y)xxᵀ = cI + c′ββᵀ on the support, for a bounded g that grows with |y|."""
        return MomentQuery(support, radius, response=self._largeness(signal))

    def _largeness(self, signal: float) -> Largeness:
        return Largeness(math.hypot(signal, self.sigma))

    def log_likelihood(self, beta: FloatArray, X: NDArray[np.floating], y: NDArray[np.floating]) -> FloatArray:
        """The log-density of each response given its row."""
        fitted = np.asarray(X, dtype=float) @ beta
        t = y * fitted / self.sigma**2
        quadratic = (np.square(y) + fitted**2) / (2 * self.sigma**2)
        return np.asarray(np.logaddexp(t, -t) - math.log(2) - quadratic - 0.5 * math.log(2 * math.pi * self.sigma**2))

    def posterior(self, beta: FloatArray, X: NDArray[np.floating], y: NDArray[np.floating]) -> FloatArray:
        """P(z = +1 | row, response)."""
        return np.asarray(expit(2 * y * (np.asarray(X, dtype=float) @ beta) / self.sigma**2))

    def sample(
        self, beta: FloatArray, X: NDArray[np.floating], rng: np.random.Generator
    ) -> tuple[FloatArray, IntArray]:
        """A response for each row, and the component (1 for +β, 0 for −β) it was drawn from."""
        component = np.asarray(rng.integers(0, 2, size=X.shape[0]))
        noise = self.sigma * rng.standard_normal(X.shape[0])
        return (2 * component - 1) * (np.asarray(X, dtype=float) @ beta) + noise, component
