"""Two-component Gaussian mixture, y = z·β + e with z = ±1 equally likely and e ~ N(0, σ²I)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpem.paper.gradient import CoordinateQuery, IntArray, SupportQuery
from dpem.paper.models.base import Clip
from dpem.paper.screening import ExceedanceQuery, MomentQuery
from dpem.query import Array, Bound, FloatArray, Namespace


@dataclass(frozen=True)
class SymmetricMixture:
    """The model's mathematics at noise level ``sigma``.

    >>> model = SymmetricMixture(sigma=0.5)
    >>> model.gradient(np.array([1.0, 0.0]), Clip(entry=2.0)).bound.linf
    4.0
    """

    sigma: float
    name: str = "symmetric-mixture"
    has_missing: ClassVar[bool] = False

    def weight(self, xp: Namespace, fitted: Array, hidden: Array, y: Array) -> tuple[Array, Array]:
        """a = E[z | y] = tanh(⟨β, y⟩/σ²): the paper's 2w − 1 with the factor 2 it lost (erratum E1)."""
        return xp.tanh(fitted / self.sigma**2), None

    def gradient(self, beta: FloatArray, clip: Clip) -> CoordinateQuery:
        """Σ tanh(⟨β, y_i⟩/σ²)·Π_T(y_i), to which the gradient adds −β once.

        *Lemma.* ℓ∞ sensitivity 2T, ℓ2 sensitivity 2√d·T. *Proof.* |tanh| ≤ 1 and |Π_T(y_ij)| ≤ T, so a contribution
        lies in the cube [−T, T]^d, whose width is 2T and whose diameter is 2√d·T. Both are approached
        by two records far out along β whose clipped entries are opposite corners of the cube. ∎
        """
        d, T = beta.shape[0], clip.entry
        label, bound = f"EM gradient, entries clipped at {T:.4g}", Bound.symmetric(linf=T, l2=math.sqrt(d) * T)
        return CoordinateQuery(label, bound, self.weight, beta, entry=T, residual=1.0)

    def truncated(self, beta: FloatArray, T: float) -> CoordinateQuery:
        """The paper's f_T for this model (Algorithm 3): the same query."""
        return self.gradient(beta, Clip(entry=T))

    def printed_sensitivity(self, T: float) -> float:
        return 2 * T

    def shift(self, beta: FloatArray) -> FloatArray:
        return -beta

    def on_support(self, beta: FloatArray, support: IntArray, radius: float) -> SupportQuery:
        """The gradient on a support, tanh(⟨β, y_i⟩/σ²)·y_iS − β_S, clipped in ℓ2 around the released β."""
        label = f"EM gradient on {len(support)} coordinates, centred, norm clipped at {radius:.4g}"
        return SupportQuery(label, self.weight, beta, support, beta[support], radius)

    def screening(self, signal: float, s: int) -> ExceedanceQuery:
        """The count of |y_j| beyond the point where a coefficient signal/√s becomes as likely as a coefficient 0."""
        theta = signal / math.sqrt(s) / self.sigma
        crossing = self.sigma * math.acosh(math.exp(min(theta**2 / 2, 300.0))) / theta
        return ExceedanceQuery(low=0.9 * crossing, high=1.1 * crossing)

    def moments(self, support: IntArray, radius: float, signal: float) -> MomentQuery:
        """E yyᵀ = σ²I + ββᵀ on the support."""
        return MomentQuery(support, radius)

    def log_likelihood(self, beta: FloatArray, X: NDArray[np.floating], y: None = None) -> FloatArray:
        """The log-density of each row."""
        X = np.asarray(X, dtype=float)
        t = X @ beta / self.sigma**2
        quadratic = (np.einsum("ij,ij->i", X, X) + beta @ beta) / (2 * self.sigma**2)
        log_cosh = np.logaddexp(t, -t) - math.log(2)
        return np.asarray(log_cosh - quadratic - X.shape[1] / 2 * math.log(2 * math.pi * self.sigma**2))

    def posterior(self, beta: FloatArray, X: NDArray[np.floating], y: None = None) -> FloatArray:
        """P(z = +1 | row)."""
        return np.asarray(expit(2 * (np.asarray(X, dtype=float) @ beta) / self.sigma**2))

    def sample(self, beta: FloatArray, n: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
        """n rows and the component (1 for +β, 0 for −β) each was drawn from."""
        component = np.asarray(rng.integers(0, 2, size=n))
        rows = (2 * component - 1)[:, None] * beta + self.sigma * rng.standard_normal((n, beta.shape[0]))
        return rows, component
