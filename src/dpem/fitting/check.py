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
#: Each row's difference in log-density is clamped to ±CLAMP, the smallest value for which :class:`LogRatio` proves
#: that a wrong model does not look better than a true simpler one.
CLAMP = 1.0
#: The standard errors that a significant lead exceeds: a one-sided test at 5 %.
NEEDED = 1.645


@dataclass(frozen=True)
class FitCheck:
    """The result of the fit check: how much better than the simpler model the fitted one describes the rows.

    ``lead`` is the mean difference in log-density per row (for mixtures and latent classes each row's difference is
    clamped to ±1), ``standard_error`` its error by noise and sampling. ``better`` says whether the lead is
    significant, ``verdict`` says so in words, and ``advice`` says what to do if it is not.
    """

    lead: float
    standard_error: float
    better: bool
    verdict: str
    advice: str

    def __str__(self) -> str:
        size = f"lead {self.lead:.3g} per row (standard error {self.standard_error:.2g})"
        return f"{self.verdict}; {size}. {self.advice}".rstrip()


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
    """Σ (t, t²/B) over the rows, with t = clamp(log p(row | fitted) − log p(row | simpler), ±B).

    The second entry gives the variance of t, without more noise in the first: the sensitivity is that of Σ t alone.

    *Lemma.* ℓ2 sensitivity 2B. *Proof.* Two contributions differ by u in t and by u·v/B in t²/B, where u = t − t′, v =
    t + t′ and |u| + |v| ≤ 2B. So the squared distance is u²(1 + v²/B²) ≤ u²(1 + (2 − |u|/B)²), which for |u| in [0, 2B]
    is largest at 2B: with w = |u|/B, w²(1 + (2 − w)²) ≤ 4 ⇔ (w − 2)(w³ − 2w² + w + 2) ≤ 0, and the cubic is
    positive for w ≥ 0, being 2 + w(w − 1)². ∎ A difference that is not a number counts as 0.

    *Lemma.* If the simpler model is right and B ≥ 1, then E t ≤ 0. *Proof.* Let r be a row's log-ratio before clamping.
    Under the simpler model E eʳ = ∫ p(row | fitted) ≤ 1, and t ≤ eʳ − 1: for r ≥ −B since t ≤ r ≤ eʳ − 1, below −B
    since t = −B ≤ −1. ∎ So B = 1, which needs the least noise, does not favour a wrong model.
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
    """Compare the fitted model with the simpler one: the mean over the rows of :class:`LogRatio`, clamped to ±``most``.

    ``against`` names the simpler model, whose parameters are ``model.simpler(theta)``. ``advice`` is shown unless the
    fitted model is significantly better.
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
