"""The statement that travels with every fitted model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpem.privacy.curator import Release


@dataclass(frozen=True)
class Guarantee:
    """What was promised about every record, and by what means.

    ``private`` is False for seeded noise and for epsilon = inf, whatever ε says.
    """

    epsilon: float
    delta: float
    neighbours: str
    unit: str
    mechanisms: tuple[Release, ...]
    private: bool
    version: str

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "No privacy guarantee: this is the non-private reference fit (epsilon = inf)."
        text = (
            f"({self.epsilon:g}, {self.delta:g})-differentially private: whoever sees the fitted model cannot tell, "
            f"beyond a factor of e^{self.epsilon:g} in probability and an exception of probability {self.delta:g}, "
            f"whether any {self.unit} was in the table or another in its place "
            f"({self.neighbours} neighbours; {len(self.mechanisms)} noisy answers; dpem {self.version})."
        )
        if not self.private:
            text = f"SIMULATION ONLY, NOT PRIVATE (seeded noise). With private noise it would be: {text}"
        return text
