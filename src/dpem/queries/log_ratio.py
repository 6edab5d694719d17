"""By how much a model describes a row better than a simpler one: the query of the fit check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from dpem.queries.narrow import NarrowQuery, rounded, weighted, zero_nonfinite
from dpem.query import Array, Bound, Namespace


class Density(Protocol):
    """A model that can say how likely rows are."""

    def log_density(self, xp: Namespace, theta: Any, x: Array, y: Array) -> Array:
        """The log-density of each row, up to a constant that is the same for a model and the simpler one."""


@dataclass(frozen=True)
class LogRatio(NarrowQuery):
    """Σ (t, t²/B) with t = clamp(log p(row | fitted) − log p(row | simpler), ±B): its mean, and its spread for free.

    *Lemma.* ℓ2 sensitivity 2B. *Proof.* Two contributions differ by u in t and by u·v/B in t²/B, where u = t − t′, v =
    t + t′ and |u| + |v| ≤ 2B. So the squared distance is u²(1 + v²/B²) ≤ u²(1 + (2 − |u|/B)²), which for |u| in [0, 2B]
    is largest at 2B: with w = |u|/B, w²(1 + (2 − w)²) ≤ 4 ⇔ (w − 2)(w³ − 2w² + w + 2) ≤ 0, and the cubic is
    positive for w ≥ 0, being 2 + w(w − 1)². ∎ A difference that is not a number counts as 0.

    *Lemma.* If the simpler model is right and B ≥ 1, the expected difference is at most 0, clamped or not. *Proof.* Let
    r be a row's log-ratio. Under the simpler model E eʳ = ∫ p(row | fitted) ≤ 1, and clamp(r, ±B) ≤ eʳ − 1: r ≤ eʳ − 1
    everywhere, and below −B the clamped one is −B ≤ −1. ∎ So B = 1, which has the least noise, never makes a wrong
    model look right.
    """

    model: Density = field(repr=False)
    fitted: Any = field(repr=False)
    simpler: Any = field(repr=False)
    most: float

    @property
    def label(self) -> str:
        return f"fit check: log-density beyond the simpler model's, clamped at {self.most:.4g}"

    @property
    def bound(self) -> Bound:
        B = self.most
        return rounded(Bound(linf=2 * B, l2=2 * B, size_linf=B, size_l2=B * 2**0.5), 2)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        ahead = self.model.log_density(xp, self.fitted, x, y) - self.model.log_density(xp, self.simpler, x, y)
        t = xp.clip(zero_nonfinite(xp, ahead), -self.most, self.most)
        return xp.stack([xp.sum(weighted(t, shares)), xp.sum(weighted(t * t, shares)) / self.most])
