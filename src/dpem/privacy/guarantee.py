"""The statement that travels with every fitted model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpem.privacy.accounting import total
from dpem.privacy.curator import Release, total_price


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
        answers = "1 noisy answer" if len(self.mechanisms) == 1 else f"{len(self.mechanisms)} noisy answers"
        text = (
            f"({self.epsilon:g}, {self.delta:g})-differentially private: whoever sees the fitted model cannot tell, "
            f"beyond a factor of e^{self.epsilon:g} in probability and an exception of probability {self.delta:g}, "
            f"whether any {self.unit} was in the table or another in its place "
            f"({self.neighbours} neighbours; {answers}; dpem {self.version})."
        )
        if not self.private:
            text = f"SIMULATION ONLY, NOT PRIVATE (seeded noise). With private noise it would be: {text}"
        return text


def together(guarantees: Sequence[Guarantee]) -> Guarantee:
    """One statement for several releases about the same rows: what they promise together.

    ε's add, and δ's; or the prices add in zCDP and are converted at the added δ. Both hold for releases whose ε, δ and
    prices were fixed beforehand, so the smaller ε is stated; fits chosen after earlier answers share a Budget.

    >>> alone = Guarantee(0.5, 1e-5, "replace-one", "one row", (), True, "0")
    >>> together([alone, alone]).epsilon
    1.0
    """
    if not guarantees:
        raise ValueError("there is no guarantee to state: nothing was released.")
    releases = tuple(release for guarantee in guarantees for release in guarantee.mechanisms)
    delta = math.fsum(guarantee.delta for guarantee in guarantees)
    epsilon = math.fsum(guarantee.epsilon for guarantee in guarantees)
    if releases:
        # Batches of different fits are different splits of the rows: a fit's own price is its worst batch's.
        price = total(total_price(list(guarantee.mechanisms)) for guarantee in guarantees)
        if all(guarantee.mechanisms for guarantee in guarantees):
            epsilon = min(epsilon, price.epsilon(delta))
    first = guarantees[0]
    private = all(guarantee.private for guarantee in guarantees)
    return Guarantee(epsilon, delta, first.neighbours, first.unit, releases, private, first.version)
