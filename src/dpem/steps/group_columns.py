"""Choosing, of many columns, those that tell groups apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.privacy import Curator
from dpem.questions.pairs import PairedSides
from dpem.steps.base import State, Step


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
