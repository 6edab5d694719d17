"""The fit check of a mixture: it has to describe rows better than one Gaussian and than independent columns do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dpem.fitting.check import CLAMP, FitCheck, judged
from dpem.fitting.step import Step
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.state import TUNING, MixtureState
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Bound


@dataclass(frozen=True)
class Lead(NarrowQuery):
    """Σ (t, t²/B), t = clamp(log p(row | fitted) − log p(row | rival), −low, high) − (high − low)/2, with
    B = (low + high)/2.

    *Lemma.* ℓ2 sensitivity 2B: t lies in [−B, B], and :class:`~dpem.queries.log_ratio.LogRatio` has the proof. *Lemma.*
    If the rival is right and low ≥ 1, the expected clamped lead is at most 0. *Proof.* As there; the clamp from above
    only lowers it. ∎ Clamping far below keeps what matters: rows that the mixture describes much worse.
    """

    fitted: Gaussians = field(repr=False)
    rival: Gaussians = field(repr=False)
    independent: bool
    low: float
    high: float

    @property
    def _half(self) -> float:
        return (self.low + self.high) / 2

    @property
    def label(self) -> str:
        return f"fit check: log-density beyond the simpler model's, between {-self.low:.4g} and {self.high:.4g}"

    @property
    def bound(self) -> Bound:
        B = self._half
        return rounded(Bound(linf=2 * B, l2=2 * B, size_linf=B, size_l2=B * 2**0.5), 2)

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        rival = self.rival.product_of_margins(xp, x) if self.independent else self.rival.log_density(xp, x)
        ahead = zero_nonfinite(xp, self.fitted.log_density(xp, x) - rival)
        t = xp.clip(ahead, -self.low, self.high) - (self.high - self.low) / 2
        return xp.stack([xp.sum(t), xp.sum(t * t) / self._half])


@dataclass(frozen=True)
class MixtureCheck(Step):
    """Ask for the mean lead over each rival, at the same price; the least convincing lead is the verdict.

    The first rival is one Gaussian with the centres, spreads and correlation that were released before the sketch: a
    mixture that misses part of the rows does not lend its errors to it, and rows that it describes far worse count.
    The second has the mean and covariance of the mixture itself. Skewed or many-peaked columns alone make a mixture
    describe rows better than one Gaussian does; components are what columns say together, so the third rival has the
    mixture's own margins and independent columns.
    """

    advice: str = ""
    passes: ClassVar[int] = 3

    def describe(self) -> str:
        return "fit check against one Gaussian and against independent columns"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        schema, own = model.schema_of(state), state.fit.mixture
        rivals = [
            ("one Gaussian", Lead(schema, own, state.wide, False, *TUNING.check_clamps)),
            ("one Gaussian", Lead(schema, own, own.pooled(), False, CLAMP, CLAMP)),
        ]
        if own.means.shape[1] > 1:
            rivals.append(("independent columns", Lead(schema, own, own, True, CLAMP, CLAMP)))
        checks = [self._against(curator, name, query, self.rho / len(rivals)) for name, query in rivals]
        return replace(state, check=min(checks, key=lambda own: own.lead / own.standard_error))

    def _against(self, curator: Curator, name: str, query: Lead, rho: float) -> FitCheck:
        mean, square = (float(part) for part in curator.measure(query, rho))
        B = (query.low + query.high) / 2
        spread = math.sqrt(min(max(square * B - mean**2, 0.0), B**2))
        error = math.hypot(curator.noise_scale(query, rho), spread / math.sqrt(curator.n_rows))
        return judged(mean + (query.high - query.low) / 2, max(error, 1e-12), name, self.advice)
