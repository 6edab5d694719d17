"""What a row contributes to an EM step of a Gaussian mixture: counts, means and second moments in one bounded sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpem.models.gaussian_mixture.gaussians import Gaussians, Seen, responsibilities
from dpem.queries.narrow import NarrowQuery, over_rows, packed, rounded, squares, unpacked
from dpem.query import Bound, FloatArray

KINDS = ("spherical", "diag", "tied", "full")


@dataclass(frozen=True)
class LiftedMoments(NarrowQuery):
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
        for weight, _, seen in self.mixture.parts(xp, x):
            share = responsibilities(xp, seen) * weight
            part = self._sum(xp, share, seen)
            total = part if total is None else total + part
        return total

    def _sum(self, xp: Any, share: Any, seen: list[Seen]) -> Any:
        """The sum over some rows: counts, then first moments, then second ones."""
        first, second = [], []
        for k, own in enumerate(seen):
            v, w, s2 = self._clipped(xp, own)
            r, r2 = share[k, :] * xp.sqrt(s2), share[k, :] * s2
            first.append(over_rows(xp, r, v))
            if self.kind == "diag":
                second.append(over_rows(xp, r2, w))
            elif self.kind == "spherical":
                second.append(xp.reshape(xp.sum(r2 * w), (1,)))
            else:
                weighed = r2[:, None] * v if w is None else r2[:, None, None] * w
                matrix = over_rows(xp, weighed, v) if w is None else xp.sum(weighed, axis=0)
                second.append(packed(xp, matrix))
        if self.kind == "tied":
            second = [sum(second[1:], second[0])]
        return xp.concat([self.A * xp.sum(share, axis=1), *first, *(self.B * part for part in second)])

    def _clipped(self, xp: Any, own: Seen) -> tuple[Any, Any, Any]:
        """v, w (None where it is vvᵀ) and s², by which they are to be scaled: v by s, w by s²."""
        v, size = own.v, own.size
        if self.kind == "diag":
            w = own.square if own.open is None else own.square + own.open
            norm = xp.sqrt(squares(xp, w))
        elif self.kind == "spherical":
            w = norm = size if own.open is None else size + xp.sum(own.open, axis=1)
        elif own.open is None:
            w, norm = None, size
        else:
            odd = ~xp.isfinite(xp.sum(own.open, axis=(1, 2)))  # all of it or none: a part would not be semidefinite
            w = v[:, :, None] * v[:, None, :] + xp.where(odd[:, None, None], xp.zeros_like(own.open), own.open)
            norm = xp.sqrt(xp.sum(w * w, axis=(1, 2)))
        return v, w, _factor(xp, size, norm, self.C, self.Q)

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


def _factor(xp: Any, size: Any, norm: Any, C: float, Q: float) -> Any:
    """s² ≤ 1 that brings ‖v‖² = ``size`` to at most C² and ‖w‖ = ``norm`` to at most Q; 0 if they are no numbers."""
    beyond = xp.maximum(size / (C * C), norm / Q)
    s2 = 1.0 / xp.maximum(beyond, xp.ones_like(beyond))
    return xp.where(xp.isfinite(beyond), s2, xp.zeros_like(s2))
