"""The fit check of a mixture: it has to describe rows better than one group does, and than independent columns do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dpem.fitting.check import CLAMP, FitCheck, judged
from dpem.fitting.step import State, Step
from dpem.privacy import Curator
from dpem.queries.log_ratio import LogRatio


@dataclass(frozen=True)
class MixtureCheck(Step):
    """Ask for the mean lead over each rival, clamped at ``most`` for each row, at the same price; the least convincing
    lead is the verdict.

    Skewed or many-peaked columns alone make a mixture describe rows better than one Gaussian does. Groups are what
    columns say together, so the second rival has the mixture's own margins and no tie between them.
    """

    advice: str = ""
    most: float = CLAMP
    passes: ClassVar[int] = 2

    def describe(self) -> str:
        return "fit check against one group and against independent columns"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        rivals = model.rivals(state.theta)
        each = self.rho / len(rivals)
        checks = [self._against(curator, model, state, name, rival, each) for name, rival in rivals]
        return replace(state, check=min(checks, key=lambda own: own.lead / own.standard_error))

    def _against(self, curator: Curator, model: Any, state: State, name: str, rival: Any, rho: float) -> FitCheck:
        question = LogRatio(model.schema_of(state), model, state.theta, rival, self.most)
        lead, square = (float(part) for part in curator.measure(question, rho))
        spread = math.sqrt(min(max(square * self.most - lead**2, 0.0), self.most**2))
        error = math.hypot(curator.noise_scale(question, rho), spread / math.sqrt(curator.n_rows))
        return judged(lead, max(error, 1e-12), name, self.advice)
