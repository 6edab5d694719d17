"""The fit check: a paid comparison of the fitted model with a simpler one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpem.fitting.step import Step
from dpem.privacy import Curator
from dpem.queries.log_ratio import LogRatio

#: Part of ρ that the check gets.
CHECK_SHARE = 0.05
#: A row's lead is clamped there, in log-density: the least for which a true simpler model is never behind on average
#: (:class:`~dpem.queries.log_ratio.LogRatio`).
CLAMP = 1.0
#: A lead of fewer standard errors than this is no lead.
NEEDED = 1.645


@dataclass(frozen=True)
class FitCheck:
    """By how much the fitted model describes a row better than the simpler model, on average, and what that means.

    ``lead`` is in log-density per row (of mixtures and classes each row's is clamped at 1), ``standard_error`` holds
    the noise of the check and the sampling of the rows. ``better`` is whether the lead is more than noise; ``verdict``
    says so in words, ``advice`` what to do.
    """

    lead: float
    standard_error: float
    better: bool
    verdict: str
    advice: str

    def __str__(self) -> str:
        return f"{self.verdict} (lead {self.lead:.3g} per row, standard error {self.standard_error:.2g}). {self.advice}"


def judged(lead: float, standard_error: float, simpler: str, advice: str) -> FitCheck:
    """The verdict on a difference in log-density from the simpler model that is named.

    >>> judged(0.3, 0.05, "one component", "Try fewer components.").better
    True
    """
    better = lead > NEEDED * standard_error
    if better:
        return FitCheck(lead, standard_error, True, f"The model describes the rows better than {simpler}", "")
    verdict = f"The model describes the rows no better than {simpler}"
    return FitCheck(lead, standard_error, False, verdict, advice)


@dataclass(frozen=True)
class Check(Step):
    """Ask for the mean lead over the simpler model, clamped at ``most`` for each row.

    The model gives its parameters by ``simpler(theta)``; ``against`` names it, ``advice`` is what to do if it wins.
    """

    against: str = "a simpler model"
    advice: str = ""
    most: float = CLAMP

    def describe(self) -> str:
        return f"fit check against {self.against}"

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        query = LogRatio(model.schema_of(state), model, state.theta, model.simpler(state.theta), self.most)
        lead, square = (float(part) for part in curator.measure(query, self.rho))
        spread = math.sqrt(min(max(square * self.most - lead**2, 0.0), self.most**2))
        error = math.hypot(curator.noise_scale(query, self.rho), spread / math.sqrt(curator.n_rows))
        return replace(state, check=judged(lead, error, self.against, self.advice))
