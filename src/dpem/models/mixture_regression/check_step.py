"""The fit check of a mixture of regressions: it has to describe rows better than one regression, and miss few rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpem.fitting.check import Check, LogRatio, judged
from dpem.privacy import Curator
from dpem.queries.narrow import rounded, weighted
from dpem.query import Array, Bound, Namespace

#: A row is missed if its response is more than so many residual spreads from every component.
FAR = 3.0
#: The share of normal responses that are so far from their own regression.
USUAL = 0.0027
#: What a missed row counts in the query: the larger, the less noise in their share and the more in the lead.
WEIGHT = 2.0
#: Missed rows are reported from so many standard deviations of the noise beyond that share.
NEEDED = 2.0


@dataclass(frozen=True)
class LeadAndMissed(LogRatio):
    """Σ (t, t²/B, c·1{the row is missed}): the lead of :class:`LogRatio`, and how many rows the components miss.

    *Lemma.* ℓ2 sensitivity √(4B² + c²). *Proof.* The first two entries move by at most 2B together, the last one by at
    most c, and the squares add. ∎
    """

    @property
    def label(self) -> str:
        return f"{super().label}, and rows that the components miss"

    @property
    def bound(self) -> Bound:
        B, c = self.most, WEIGHT
        return rounded(Bound(max(2 * B, c), math.hypot(2 * B, c), max(B, c), math.hypot(B * 2**0.5, c)), 3)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        lead = super().contributions(xp, x, y, shares)
        components, columns = self.fitted.components, self.fitted.frame.columns(xp, x)
        nearest = xp.min(xp.abs(components.residuals(xp, columns, y)), axis=1)
        missed = xp.sum(weighted(xp.astype(nearest > FAR, xp.float64), shares))
        return xp.concat([lead, xp.reshape(WEIGHT * missed, (1,))])


@dataclass(frozen=True)
class RegressionCheck(Check):
    """Ask for the mean lead over one regression and for the share of rows that the components miss.

    The lead of a row is clamped, so a few rows far from every component hardly lower it, and yet they may cost more
    log-likelihood than all others gain.
    """

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        query = LeadAndMissed(model.schema_of(state), model, state.theta, model.simpler(state.theta), self.most)
        noise = curator.noise_scale(query, self.rho)
        lead, square, counted = (float(part) for part in curator.measure(query, self.rho))
        spread = math.sqrt(min(max(square * self.most - lead**2, 0.0), self.most**2))
        error = math.hypot(noise, spread / math.sqrt(curator.effective_rows))
        share = min(counted / WEIGHT, 1.0)
        missed = share if share > max(USUAL + NEEDED * noise / WEIGHT, 2 * USUAL) else 0.0
        check = judged(lead, error, self.against, self.advice)
        return replace(state, check=check, theta=replace(state.theta, missed=missed))
