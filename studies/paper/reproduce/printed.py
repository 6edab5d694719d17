"""The mixtures as the paper prints them, uncorrected: the weight without its factor 2 (erratum E1) and, for the
regressions, 2w in place of 2w − 1 (E2).

They exist to show what the printed formulas do. No estimator knows them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dpem.paper.models import LatentModel, MissingRegression, SymmetricMixture
from dpem.queries.gradient import CoordinateQuery, IntArray, SupportQuery
from dpem.query import Bound, Chunk, FloatArray, Query

#: Rows summed at once: keeps a batch's temporaries small.
ROWS = 4096


@dataclass(frozen=True)
class PrintedGaussianMixture:
    """w = 1/(1 + exp(−⟨β, y⟩/σ²)), so that 2w − 1 = tanh(⟨β, y⟩/(2σ²)): the right weight of a mixture with twice the
    noise variance. Everything else, the sensitivity 2T included, is as in :class:`~dpem.paper.models.SymmetricMixture`.

    >>> beta, rows = np.array([1.0, 0.0]), np.array([[0.3, -0.2], [-1.0, 0.4]])
    >>> w = 1 / (1 + np.exp(-(rows @ beta) / 0.5**2))
    >>> found = PrintedGaussianMixture(0.5).truncated(beta, T=9.0).sum(Chunk(rows, None))
    >>> bool(np.allclose(found, ((2 * w - 1)[:, None] * rows).sum(axis=0)))
    True
    """

    sigma: float
    name: str = "symmetric-mixture, as printed"

    @property
    def _noisier(self) -> SymmetricMixture:
        return SymmetricMixture(math.sqrt(2) * self.sigma)

    def truncated(self, beta: FloatArray, T: float) -> CoordinateQuery:
        return self._noisier.truncated(beta, T)

    def on_support(self, beta: FloatArray, support: IntArray, radius: float) -> SupportQuery:
        return self._noisier.on_support(beta, support, radius)

    def printed_sensitivity(self, T: float) -> float:
        return 2 * T

    def shift(self, beta: FloatArray) -> FloatArray:
        return -beta


@dataclass(frozen=True)
class PrintedRegressionQuery:
    """Σ 2w_i·Π_T(y_i)·Π_T(x_i) − Π_T(x_i)·Π_T(⟨x_i, β⟩), with w = 1/(1 + exp(−y⟨β, x⟩/σ²)).

    *Lemma.* ℓ∞ sensitivity 4T², as printed. *Proof.* If y and ⟨β, x⟩ have one sign, 2w·Π_T(y) − Π_T(⟨β, x⟩) is a
    difference of numbers of one sign and of sizes at most 2T and T; if not, w < ½ and both terms are at most T in
    size. So it lies in [−2T, 2T], and a contribution in [−2T², 2T²]^d. ∎
    """

    beta: FloatArray
    sigma: float
    T: float
    blocked: bool = False

    @property
    def label(self) -> str:
        return f"truncated EM gradient as printed, T = {self.T:.4g}"

    @property
    def bound(self) -> Bound:
        size = 2 * self.T**2
        return Bound.symmetric(linf=size, l2=math.sqrt(len(self.beta)) * size)

    def sum(self, chunk: Chunk) -> FloatArray:
        assert chunk.y is not None
        total = np.zeros(len(self.beta))
        for first in range(0, len(chunk.X), ROWS):
            X, y = (np.asarray(part[first : first + ROWS], dtype=float) for part in (chunk.X, chunk.y))
            fitted = X @ self.beta
            weight = 2 * expit(y * fitted / self.sigma**2) * self._clip(y) - self._clip(fitted)
            weight = np.clip(np.nan_to_num(weight), -2 * self.T, 2 * self.T)  # the lemma, true of what is computed
            total += weight @ self._clip(X)
        return total

    def _clip(self, v: FloatArray) -> FloatArray:
        return v if math.isinf(self.T) else np.clip(v, -self.T, self.T)


@dataclass(frozen=True)
class PrintedMixtureRegression:
    """The mixture of regressions with the printed gradient."""

    sigma: float
    name: str = "symmetric-regression, as printed"

    def truncated(self, beta: FloatArray, T: float) -> PrintedRegressionQuery:
        return PrintedRegressionQuery(beta, self.sigma, T)

    def on_support(self, beta: FloatArray, support: IntArray, radius: float) -> Query:
        """The printed gradient on all coordinates, nothing clipped: for the non-private run only."""
        if len(support) != len(beta) or math.isfinite(radius):
            raise ValueError("the printed gradient is available on all coordinates and without a clip only.")
        return PrintedRegressionQuery(beta, self.sigma, math.inf)

    def printed_sensitivity(self, T: float) -> float:
        return 4 * T * T

    def shift(self, beta: FloatArray) -> FloatArray:
        return np.zeros_like(beta)


@dataclass(frozen=True)
class ExactMissingRegression(MissingRegression):
    """The paper's truncations around the exact posterior covariance of the missing entries: E3 corrected.

    (What ``method="paper"`` runs keeps the printed covariance: that costs accuracy and not privacy. At the prescribed
    T the sensitivity of E4 stays below the printed one unless an entry of β exceeds 4T², so E4 changes nothing here.)
    """

    def truncated(self, beta: FloatArray, T: float):  # type: ignore[no-untyped-def]
        return self.truncated_exact(beta, T)


def printed(model: str, sigma: float) -> LatentModel:
    """A model as the paper prints it. The missing-covariate model's own ``truncated`` is the printed one."""
    if model == "symmetric-mixture":
        return PrintedGaussianMixture(sigma)
    return PrintedMixtureRegression(sigma) if model == "symmetric-regression" else MissingRegression(sigma)
