"""Choosing, of many columns, those that tell groups apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.step import State, Step
from dpem.models.gaussian_mixture.sign_agreement import PairedSides
from dpem.privacy import Curator


@dataclass(frozen=True)
class ChooseGroupColumns(Step):
    """The columns whose sides go together most with those of two others, in the order of the table."""

    columns: int = 2

    def describe(self) -> str:
        return f"choice of {self.columns} columns that go together"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        question = PairedSides(model.schema, state.notes["centre"])
        found = curator.select(question, self.columns, self.rho)
        return replace(state, chosen=np.sort(found), notes={})
