"""The fit check: a paid comparison of the fitted model with a simpler one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpem.fitting.step import Step
from dpem.privacy import Curator
from dpem.queries.log_ratio import LogRatio

#: The check's share of ρ.
CHECK_SHARE = 0.05
#: Each row's lead in log-density is clamped to ±CLAMP: the smallest value at which a true simpler model is never behind
#: on average (:class:`~dpem.queries.log_ratio.LogRatio`).
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


def judged(lead: float, standard_error: float, simpler: str, advice: str) -> FitCheck:
    """The verdict on a mean lead in log-density over the model that ``simpler`` names.

    >>> judged(0.3, 0.05, "one component", "Try fewer components.").better
    True
    """
    better = lead > NEEDED * standard_error
    if better:
        return FitCheck(lead, standard_error, True, f"The model describes the rows better than {simpler}", "")
    verdict = f"The fit check found no improvement over {simpler}"
    return FitCheck(lead, standard_error, False, verdict, advice)


@dataclass(frozen=True)
class Check(Step):
    """Measure the mean lead over the simpler model, with each row's lead clamped to ±``most``.

    ``model.simpler(theta)`` has the simpler model's parameters, ``against`` its name; ``advice`` is shown if it wins.
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
        error = math.hypot(curator.noise_scale(query, self.rho), spread / math.sqrt(curator.effective_rows))
        return replace(state, check=judged(lead, error, self.against, self.advice))
