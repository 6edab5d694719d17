"""What a row contributes to an EM step of a Gaussian mixture: counts, means and second moments in one bounded sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpem.query import Bound, FloatArray
from dpem.questions.gaussians import Gaussians, Seen, responsibilities
from dpem.questions.narrow import NarrowQuestion, packed, rounded, unpacked, zero_where_odd

KINDS = ("spherical", "diag", "tied", "full")


@dataclass(frozen=True)
class LiftedMoments(NarrowQuestion):
    """Σ over rows of r_k·(A, v_k, B·w_k) for every component k.

    r are responsibilities, v_k = L_k⁻¹(E[x | seen] − μ_k) and w_k the second moment E[vvᵀ | seen]: the whole matrix
    (``full``), its sum over k (``tied``), its diagonal (``diag``) or its trace (``spherical``). v is scaled by s and w
    by s² such that ‖v‖ ≤ C and ‖w‖ ≤ Q; Q = C² but for ``diag``.

    *Lemma.* Let a = 1, or d for ``diag``, B² = √a/(2Q) and A² = Q√a/2. A contribution is at most
    √(C² + Q√a) long, and replacing a row moves the sum by at most √2 times that: counts and second moments cost nothing
    beyond a longer vector, and with Q = C², a = 1 the bound is 2C, that of the means alone.
    *Proof.* Length: Σ r_k²(A² + ‖v_k‖² + B²‖w_k‖²) ≤ A² + C² + B²Q² = C² + Q√a, as Σ r_k² ≤ 1; for ``tied`` the
    length of Σ r_k w_k is at most Q too. Two contributions have inner product Σ r_k r′_k(A² + t + B²⟨w_k, w′_k⟩)
    with t = v_k·v′_k. Holes only add to w a part that is positive semidefinite (on the diagonal: nonnegative), and
    inner products of such matrices are ≥ 0, so ⟨w, w′⟩ ≥ ⟨vvᵀ, v′v′ᵀ⟩ = t² for full matrices and for traces, and ≥ Σ
    v_j²v′_j² ≥ t²/d for diagonals (Cauchy–Schwarz). The same for ``tied``, whose sum over pairs k, l has the pairs k =
    l among its nonnegative terms. So each bracket is at least A² + t + B²t²/a, a square in t as 4A²B² = a: the
    inner product is ≥ 0 and ‖g − g′‖² ≤ ‖g‖² + ‖g′‖². ∎
    """

    kind: str
    mixture: Gaussians = field(repr=False)
    C: float
    Q: float

    @property
    def label(self) -> str:
        return f"EM step: shares, means and second moments of {len(self.mixture.weights)} components"

    @property
    def A(self) -> float:
        return math.sqrt(self.Q * math.sqrt(self._a) / 2)

    @property
    def B(self) -> float:
        return math.sqrt(math.sqrt(self._a) / (2 * self.Q))

    @property
    def _a(self) -> int:
        return self.schema.width if self.kind == "diag" else 1

    @property
    def bound(self) -> Bound:
        size = math.sqrt(self.C**2 + self.Q * math.sqrt(self._a))
        terms = self.schema.width**2 + 4 * len(self.mixture.weights)
        return rounded(Bound(linf=math.sqrt(2) * size, l2=math.sqrt(2) * size, size_linf=size, size_l2=size), terms)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        total: Any = None
        for weight, seen in self.mixture.groups(xp, x):
            share = responsibilities(xp, seen) * weight[:, None]
            part = self._sum(xp, share, seen)
            total = part if total is None else total + part
        return total

    def _sum(self, xp: Any, share: Any, seen: list[Seen]) -> Any:
        """The sum over some rows: counts, then first moments, then second ones."""
        first, second = [], []
        for k, own in enumerate(seen):
            r = share[:, k]
            v, w = self._clipped(xp, own)
            first.append(r @ v)
            if self.kind == "diag":
                second.append(r @ w)
            elif self.kind == "spherical":
                second.append(xp.reshape(xp.sum(r * w), (1,)))
            else:
                matrix = xp.matrix_transpose(r[:, None] * v) @ v if w is None else xp.sum(r[:, None, None] * w, axis=0)
                second.append(packed(xp, matrix))
        if self.kind == "tied":
            second = [sum(second[1:], second[0])]
        return xp.concat([self.A * xp.sum(share, axis=0), *first, *(self.B * part for part in second)])

    def _clipped(self, xp: Any, own: Seen) -> tuple[Any, Any]:
        """v and w after the clip; w is None where it is vvᵀ."""
        v = zero_where_odd(xp, own.v)
        if self.kind == "diag":
            w = v * v + own.open
            w, s2 = _scaled(xp, v, w, xp.sqrt(xp.sum(w * w, axis=1)), self.C, self.Q)
        elif self.kind == "spherical":
            w = xp.sum(v * v + own.open, axis=1)
            w, s2 = _scaled(xp, v, w, w, self.C, self.Q)
        elif own.open is None:
            w, s2 = None, _scaled(xp, v, None, xp.sum(v * v, axis=1), self.C, self.Q)[1]
        else:
            w = v[:, :, None] * v[:, None, :] + zero_where_odd(xp, own.open)
            w, s2 = _scaled(xp, v, w, xp.sqrt(xp.sum(w * w, axis=(1, 2))), self.C, self.Q)
        return v * xp.sqrt(s2)[:, None], w

    def parts(self, mean: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Counts (K), first moments (K × d) and second moments of an answer: K × d, K × 1 or matrices (K or 1 of
        them).
        """
        K, d = self.mixture.means.shape
        first, second = mean[K : K * (1 + d)].reshape(K, d), mean[K * (1 + d) :] / self.B
        if self.kind == "diag":
            second = second.reshape(K, d)
        elif self.kind == "spherical":
            second = second.reshape(K, 1)
        else:
            second = np.array([unpacked(part, d) for part in second.reshape(-1, d * (d + 1) // 2)])
        return mean[:K] / self.A, first, second


def _scaled(xp: Any, v: Any, w: Any, norm: Any, C: float, Q: float) -> tuple[Any, Any]:
    """w and the factor s² ≤ 1 that brings ‖v‖ to at most C and w, of that norm, to at most Q."""
    one = xp.ones_like(norm)
    size = xp.sum(v * v, axis=1)
    s2 = xp.where(size > C * C, C * C / xp.where(size > C * C, size, one), one)
    more = xp.where(norm > Q, Q / xp.where(norm > Q, norm, one), one)
    s2 = zero_where_odd(xp, xp.where(more < s2, more, s2))
    if w is None:
        return None, s2
    return w * (s2 if w.ndim == 1 else s2[:, None] if w.ndim == 2 else s2[:, None, None]), s2
