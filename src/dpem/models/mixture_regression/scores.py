"""Queries about K components: which of several sets is likelier, and the scores of one set."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpem.models.mixture_regression.coordinates import Frame
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like


@dataclass(frozen=True)
class Components:
    """K components t = regression·(1, x̃) + spread·e with masses: how many rows each class has, as a part of all rows.

    The masses add up to the part of the rows that have a response.
    """

    masses: FloatArray
    coefficients: FloatArray
    spreads: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """Classes, and coefficients of a regression."""
        return self.coefficients.shape[0], self.coefficients.shape[1]

    def residuals(self, xp: Namespace, v: Array, t: Array) -> Array:
        """Each row's residual of each regression, in the regression's spreads."""
        return (t[:, None] - xp.matmul(v, like(xp, self.coefficients.T, v))) / like(xp, self.spreads, v)

    def log_joint(self, xp: Namespace, e: Array) -> Array:
        """Log-density of class and response of every row, up to ½·log 2π."""
        return like(xp, np.log(self.masses / np.sum(self.masses)) - np.log(self.spreads), e) - 0.5 * e * e

    def log_density(self, xp: Namespace, v: Array, t: Array) -> Array:
        """Log-density of the response of every row, given its columns."""
        joint = self.log_joint(xp, self.residuals(xp, v, t))
        top = _row_top(xp, joint)
        return top + xp.log(_row_sum(xp, xp.exp(joint - top[:, None]))) - 0.5 * math.log(2 * math.pi)

    def shares(self, xp: Namespace, e: Array) -> Array:
        """How far each row belongs to each class: in [0, 1], with a sum of at most 1 but for rounding."""
        joint = self.log_joint(xp, e)
        raw = xp.exp(joint - _row_top(xp, joint)[:, None])
        share = xp.clip(zero_nonfinite(xp, raw / _row_sum(xp, raw)[:, None]), 0.0, 1.0)
        total = _row_sum(xp, share)
        return share / xp.where(total > 1.0, total, xp.ones_like(total))[:, None]


def _row_sum(xp: Namespace, values: Array) -> Array:
    """Sums over few columns, as a product: many times faster than a reduction of short rows."""
    return xp.matmul(values, like(xp, np.ones(values.shape[1]), values))


def _row_top(xp: Namespace, values: Array) -> Array:
    """The largest of few columns; not a number where one is not."""
    top = values[:, 0]
    for k in range(1, values.shape[1]):
        top = xp.maximum(top, values[:, k])
    return top


@dataclass(frozen=True)
class ComponentLeads(NarrowQuery):
    """Σ clip(log p(y | x, components) − log p(y | x, baseline), ±B) for each of m sets of components.

    *Lemma.* ℓ2 sensitivity 2B√m. *Proof.* Each of m numbers lies in [−B, B] by the clamp. ∎
    """

    frame: Frame = field(repr=False)
    starts: tuple[Components, ...] = field(repr=False)
    baseline: Components = field(repr=False)
    most: float = 3.0

    @property
    def label(self) -> str:
        return f"which of {len(self.starts) + 1} starts is likelier, clamped at {self.most:.4g}"

    @property
    def bound(self) -> Bound:
        m = len(self.starts)
        return rounded(Bound.symmetric(linf=self.most, l2=self.most * math.sqrt(m)), m)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        v, t, seen = self.frame.rows(xp, x, y)
        base = self.baseline.log_density(xp, v, t)
        leads = xp.stack([start.log_density(xp, v, t) - base for start in self.starts], axis=1)
        return xp.sum(xp.clip(zero_nonfinite(xp, leads), -self.most, self.most) * seen[:, None], axis=0)


@dataclass(frozen=True)
class ComponentScores(NarrowQuery):
    """What a row says about K components: for every class k, r_k·(A, g_k, B·(q_k − c²/2)).

    r_k is the row's share in the class, e_k its residual, g_k = v·clip(e_k, ±C/‖v‖) with v = (1, x̃), q_k = min(e_k²,
    c²), B = 2βC/c² and A = C·√(1 + β²).

    *Lemma.* ℓ2 sensitivity 2A: counts and spreads cost little beyond the components. *Proof.* By the clamps ‖g‖ ≤ C and
    |B(q − c²/2)| ≤ βC. So a class's triple is at most √(A² + C² + β²C²) = √2·A long, and the inner product of two
    rows' triples is at least A² − C² − β²C² = 0. Shares are clamped to [0, 1] with a sum of at most 1: a contribution
    is at most √2·A long (Σr² ≤ 1), two of them have an inner product Σ r_k r′_k⟨·,·⟩ ≥ 0, and the squared length of
    their difference is at most 2A² + 2A². ∎

    *Lemma.* If rows follow the components, the mean is known whatever the columns' distribution: mass_k·(A, 0, B·(κ −
    c²/2)) with κ = E min(e², c²) for a standard normal e. *Proof.* p(y|x)·r_k = w_k·N(y; component k), so
    E[r_k f(e_k, x) | x] = w_k·E f(e, x); g is odd in e. ∎ So clipping biases nothing where the model holds, and the
    step needs no model of the columns to know where zero is.
    """

    frame: Frame = field(repr=False)
    theta: Components = field(repr=False)
    clip: float
    cut: float
    lift: float = 0.5

    @property
    def label(self) -> str:
        return f"scores of {self.theta.shape[0]} components, clipped at {self.clip:.4g}"

    @property
    def heights(self) -> tuple[float, float]:
        """A, the height of a class's count, and B, that of a squared residual."""
        return self.clip * math.sqrt(1 + self.lift**2), 2 * self.lift * self.clip / self.cut**2

    @property
    def bound(self) -> Bound:
        high = self.heights[0]
        terms = 4 * (self.theta.shape[1] + 2) * self.theta.shape[0]
        return rounded(Bound(linf=2 * high, l2=2 * high, size_linf=2 * high, size_l2=math.sqrt(2.0) * high), terms)

    def factors(self, xp: Namespace, v: Array, t: Array) -> tuple[Array, Array, Array]:
        """Shares, clipped residuals and clipped squares less c²/2, each rows × classes."""
        e = self.theta.residuals(xp, v, t)
        share = self.theta.shares(xp, e)
        reach = (self.clip / xp.sqrt(_row_sum(xp, v * v)))[:, None]
        e = zero_nonfinite(xp, e)
        psi = xp.minimum(xp.maximum(e, -reach), reach)
        cut = xp.clip(e, -self.cut, self.cut)
        return share, psi, cut * cut - self.cut**2 / 2

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        v, t, seen = self.frame.rows(xp, x, y)
        share, psi, square = self.factors(xp, v, t)
        share = share * seen[:, None]
        high, low = self.heights
        parts = [
            high * xp.sum(share, axis=0)[:, None],
            over_rows(xp, share * psi, v),
            low * xp.sum(share * square, axis=0)[:, None],
        ]
        return xp.reshape(xp.concat(parts, axis=1), (-1,))

    def expected(self) -> FloatArray:
        """The mean of the contributions if rows follow the components (second lemma)."""
        K, p = self.theta.shape
        high, low = self.heights
        out = np.zeros((K, p + 2))
        out[:, 0] = high * self.theta.masses
        out[:, -1] = low * self.theta.masses * (mean_cut_square(self.cut) - self.cut**2 / 2)
        return out.ravel()


def mean_cut_square(cut: float) -> float:
    """E min(e², c²) of a standard normal e.

    >>> round(mean_cut_square(1e3), 12), round(mean_cut_square(1.0), 4)
    (1.0, 0.5161)
    """
    density = math.exp(-cut * cut / 2) / math.sqrt(2 * math.pi)
    outside = math.erfc(cut / math.sqrt(2))
    return 1 - outside - 2 * cut * density + cut * cut * outside
