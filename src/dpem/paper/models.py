"""The paper's models at noise level σ: a record's weight, the clipped gradients, the likelihood, sampling.

Each has one unknown vector β. The two mixtures are here, the third model is in :mod:`dpem.paper.missing_regression`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpem.paper.missing_regression import MissingRegression
from dpem.paper.queries import Clip, CoordinateQuery, ExceedanceQuery, IntArray, Largeness, MomentQuery, SupportQuery
from dpem.query import Array, Bound, FloatArray, Namespace, Query

Rows = NDArray[np.floating]


@runtime_checkable
class LatentModel(Protocol):
    """What the paper's algorithms need of a model: its gradient is the mean of a query's clipped contributions, plus a
    shift that depends on no record.
    """

    @property
    def name(self) -> str: ...

    def truncated(self, beta: FloatArray, T: float) -> Query:
        """The paper's f_T(∇q_i(β; β)) for this model."""

    def printed_sensitivity(self, T: float) -> float:
        """The ℓ∞ sensitivity of the sum, as the paper prints it."""

    def shift(self, beta: FloatArray) -> FloatArray:
        """The public part of the gradient: −β for the Gaussian mixture, 0 elsewhere."""


@dataclass(frozen=True)
class SymmetricMixture:
    """Two-component Gaussian mixture, y = z·β + e with z = ±1 equally likely and e ~ N(0, σ²I).

    >>> model = SymmetricMixture(sigma=0.5)
    >>> model.gradient(np.array([1.0, 0.0]), Clip(entry=2.0)).bound.linf
    4.0
    """

    sigma: float
    name: str = "symmetric-mixture"
    has_missing: ClassVar[bool] = False

    def weight(self, xp: Namespace, fitted: Array, missing_variance: Array, y: Array) -> tuple[Array, Array]:
        """a = E[z | y] = tanh(⟨β, y⟩/σ²): the paper's 2w − 1, with erratum E1 corrected."""
        return xp.tanh(fitted / self.sigma**2), None

    def gradient(self, beta: FloatArray, clip: Clip) -> CoordinateQuery:
        """Σ tanh(⟨β, y_i⟩/σ²)·Π_T(y_i).

        *Lemma.* ℓ∞ sensitivity 2T, ℓ2 sensitivity 2√d·T. *Proof.* |tanh| ≤ 1 and |Π_T(y_ij)| ≤ T, so a contribution
        lies in the cube [−T, T]^d, whose width is 2T and whose diameter is 2√d·T. Two records far out in the directions
        ±β whose clipped entries are opposite corners of the cube come arbitrarily close to both. ∎
        """
        d, T = beta.shape[0], clip.entry
        label, bound = f"EM gradient, entries clipped at {T:.4g}", Bound.symmetric(linf=T, l2=math.sqrt(d) * T)
        return CoordinateQuery(label, bound, self.weight, beta, entry=T, residual=1.0)

    def truncated(self, beta: FloatArray, T: float) -> CoordinateQuery:
        """The paper's f_T (Algorithm 3), which is the same query."""
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
        """The number of rows whose |y_j| is more likely if β_j = signal/√s than if β_j = 0."""
        theta = signal / math.sqrt(s) / self.sigma
        crossing = self.sigma * math.acosh(math.exp(min(theta**2 / 2, 300.0))) / theta
        return ExceedanceQuery(low=0.9 * crossing, high=1.1 * crossing)

    def moments(self, support: IntArray, radius: float, signal: float) -> MomentQuery:
        """Second moments on the support, where E yyᵀ = σ²I + ββᵀ."""
        return MomentQuery(support, radius)

    def log_likelihood(self, beta: FloatArray, X: Rows, y: None = None) -> FloatArray:
        """The log-density of each row."""
        X = np.asarray(X, dtype=float)
        squares = np.einsum("ij,ij->i", X, X) + beta @ beta
        return _log_mixture(X @ beta, squares, self.sigma**2) - X.shape[1] / 2 * math.log(2 * math.pi * self.sigma**2)

    def posterior(self, beta: FloatArray, X: Rows, y: None = None) -> FloatArray:
        """P(z = +1 | row)."""
        return np.asarray(expit(2 * (np.asarray(X, dtype=float) @ beta) / self.sigma**2))

    def sample(self, beta: FloatArray, n: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
        """n rows, and the component that each was drawn from: 1 for +β, 0 for −β."""
        component = np.asarray(rng.integers(0, 2, size=n))
        rows = (2 * component - 1)[:, None] * beta + self.sigma * rng.standard_normal((n, beta.shape[0]))
        return rows, component


@dataclass(frozen=True)
class SymmetricRegression:
    """Mixture of two linear regressions, y = z·⟨x, β⟩ + e with z = ±1 equally likely, x ~ N(0, I) and e ~ N(0, σ²).

    >>> SymmetricRegression(sigma=0.5).gradient(np.zeros(3), Clip(2.0, residual=1.5)).bound.linf
    6.0
    """

    sigma: float
    name: str = "symmetric-regression"
    has_missing: ClassVar[bool] = False

    def weight(self, xp: Namespace, fitted: Array, missing_variance: Array, y: Array) -> tuple[Array, Array]:
        """a = E[z | x, y]·y − ⟨β, x⟩, with errata E1 and E2 corrected."""
        return xp.tanh(y * fitted / self.sigma**2) * y - fitted, None

    def truncated_weight(
        self, T: float, xp: Namespace, fitted: Array, missing_variance: Array, y: Array
    ) -> tuple[Array, Array]:
        """The weight with the paper's truncation: Π_T of the response and of ⟨β, x⟩ separately."""
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
        """The paper's f_T (Algorithm 5), with Π_T of y, of x and of ⟨x, β⟩ separately and the corrected weight 2w − 1.

        *Lemma.* ℓ∞ sensitivity 2T² (the paper prints 4T²), ℓ2 sensitivity 2√d·T². *Proof.* The sign of
        tanh(y⟨β,x⟩/σ²)·Π_T(y) is the sign of ⟨β, x⟩. So the weight is the difference of two numbers that have the same
        sign and are at most T in size: it lies in [−T, T], and a contribution in [−T², T²]^d. With the printed 2w in
        place of 2w − 1 the weight reaches ±2T, and 4T² is exact. ∎
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
        """The association of a large |x_j| with a large |y|: positive where β_j ≠ 0.

        |x_j| counts as large above its median under N(0, 1), so the mean score is 0 where β_j = 0, for any g.
        """
        return ExceedanceQuery(low=0.6, high=0.745, response=self._largeness(signal))

    def moments(self, support: IntArray, radius: float, signal: float) -> MomentQuery:
        """Second moments weighted by a bounded g that grows with |y|, for which E g(y)xxᵀ = cI + c′ββᵀ."""
        return MomentQuery(support, radius, response=self._largeness(signal))

    def _largeness(self, signal: float) -> Largeness:
        return Largeness(math.hypot(signal, self.sigma))

    def log_likelihood(self, beta: FloatArray, X: Rows, y: Rows) -> FloatArray:
        """The log-density of each response given its row."""
        fitted = np.asarray(X, dtype=float) @ beta
        log_mixture = _log_mixture(y * fitted, np.square(y) + fitted**2, self.sigma**2)
        return log_mixture - 0.5 * math.log(2 * math.pi * self.sigma**2)

    def posterior(self, beta: FloatArray, X: Rows, y: Rows) -> FloatArray:
        """P(z = +1 | row, response)."""
        return np.asarray(expit(2 * y * (np.asarray(X, dtype=float) @ beta) / self.sigma**2))

    def sample(self, beta: FloatArray, X: Rows, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
        """A response for each row, and the component that it was drawn from: 1 for +β, 0 for −β."""
        component = np.asarray(rng.integers(0, 2, size=X.shape[0]))
        noise = self.sigma * rng.standard_normal(X.shape[0])
        return (2 * component - 1) * (np.asarray(X, dtype=float) @ beta) + noise, component


def _log_mixture(product: FloatArray, squares: FloatArray, variance: float) -> FloatArray:
    """log ½(exp(−‖u − v‖²/(2σ²)) + exp(−‖u + v‖²/(2σ²))) from ⟨u, v⟩, ‖u‖² + ‖v‖² and σ²."""
    t = product / variance
    return np.asarray(np.logaddexp(t, -t) - math.log(2) - squares / (2 * variance))


Mixture = SymmetricMixture | SymmetricRegression
Model = Mixture | MissingRegression

#: The classes of the models by name; their argument is σ.
MODELS: dict[str, type[Model]] = {
    "symmetric-mixture": SymmetricMixture,
    "symmetric-regression": SymmetricRegression,
    "missing-regression": MissingRegression,
}
