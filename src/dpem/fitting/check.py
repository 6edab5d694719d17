"""The fit check: a paid comparison of the fitted model with a simpler one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from dpem.fitting.model import Model
from dpem.fitting.step import State, Step
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, weighted, zero_nonfinite
from dpem.query import Array, Bound, Namespace

#: The check's share of ρ.
CHECK_SHARE = 0.05
#: Each row's lead in log-density is clamped to ±CLAMP: the smallest value at which a wrong model never
#: leads a true simpler one on average (:class:`LogRatio`).
CLAMP = 1.0
#: Standard errors that a lead must exceed to count: a one-sided test at 5 %.
NEEDED = 1.645


@dataclass(frozen=True)
class FitCheck:
    """The fitted model's mean lead over the simpler model, and the verdict.

    ``lead`` is the mean difference in log-density per row (for mixtures and latent classes each row's difference is
    clamped to ±1). ``standard_error`` combines the noise of the check and the sampling of the rows. ``better`` is
    whether the lead is significant; ``verdict`` states it in words, ``advice`` says what to do.
    """

    lead: float
    standard_error: float
    better: bool
    verdict: str
    advice: str

    def __str__(self) -> str:
        return f"{self.verdict}; lead {self.lead:.3g} per row (standard error {self.standard_error:.2g}). {self.advice}"


def check_lead(lead: float, standard_error: float, simpler: str, advice: str) -> FitCheck:
    """The verdict on a mean lead in log-density over the model that ``simpler`` names.

    >>> check_lead(0.3, 0.05, "one component", "Try fewer components.").better
    True
    """
    if lead > NEEDED * standard_error:
        return FitCheck(lead, standard_error, True, f"The model describes the rows better than {simpler}", "")
    return FitCheck(lead, standard_error, False, f"The fit check found no improvement over {simpler}", advice)


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

    model: Model = field(repr=False)
    fitted: Any = field(repr=False)
    simpler: object = field(repr=False)
    most: float

    @property
    def label(self) -> str:
        return f"fit check: log-density beyond the simpler model's, clamped at {self.most:.4g}"

    @property
    def bound(self) -> Bound:
        B = self.most
        return rounded(Bound(linf=2 * B, l2=2 * B, size_linf=B, size_l2=B * 2**0.5), 2)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        log_ratio = self.model.log_density(xp, self.fitted, x, y) - self.model.log_density(xp, self.simpler, x, y)
        t = xp.clip(zero_nonfinite(xp, log_ratio), -self.most, self.most)
        return xp.stack([xp.sum(weighted(t, shares)), xp.sum(weighted(t * t, shares)) / self.most])


@dataclass(frozen=True)
class Check(Step[Model, State]):
    """Measure the mean lead over the simpler model, with each row's lead clamped to ±``most``.

    ``model.simpler(theta)`` has the simpler model's parameters, ``against`` its name; ``advice`` is shown if it wins.
    """

    against: str = "a simpler model"
    advice: str = ""
    most: float = CLAMP

    def describe(self) -> str:
        return f"fit check against {self.against}"

    def run(self, curator: Curator, model: Model, state: State) -> State:
        query = LogRatio(model.schema_of(state), model, state.theta, model.simpler(state.theta), self.most)
        lead, square = (float(part) for part in curator.measure(query, self.rho))
        spread = math.sqrt(min(max(square * self.most - lead**2, 0.0), self.most**2))
        error = math.hypot(curator.noise_scale(query, self.rho), spread / math.sqrt(curator.effective_rows))
        return replace(state, check=check_lead(lead, error, self.against, self.advice))
