"""The statement that travels with every fitted model."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpem.privacy.accounting import total
from dpem.privacy.budget import unit
from dpem.privacy.curator import Release, total_price


@dataclass(frozen=True)
class Guarantee:
    """What was promised about every record, and by what means.

    ``unit`` is "one row", or "one person with up to 5 rows" where ``rows_per_person`` was 5. ``private`` is False for
    seeded noise and for epsilon = inf, whatever ε says.
    """

    epsilon: float
    delta: float
    neighbours: str
    unit: str
    mechanisms: tuple[Release, ...]
    private: bool
    version: str

    @property
    def rows_per_person(self) -> int:
        """How many rows of one person the unit covers."""
        several = re.fullmatch(r"one person with up to ([1-9]\d{0,17}) rows", self.unit)
        rows = int(several.group(1)) if several else 1
        if self.unit != unit(rows):
            raise ValueError("unit of a guarantee must be one row, or one person with up to so many rows.")
        return rows

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "No privacy guarantee: this is the non-private reference fit (epsilon = inf)."
        their = "its" if self.unit == unit(1) else "their"
        answers = "1 noisy answer" if len(self.mechanisms) == 1 else f"{len(self.mechanisms)} noisy answers"
        text = (
            f"({self.epsilon:g}, {self.delta:g})-differentially private: whoever sees the fitted model cannot tell, "
            f"beyond a factor of e^{self.epsilon:g} in probability and an exception of probability {self.delta:g}, "
            f"whether any {self.unit} was in the table or another in {their} place "
            f"({self.neighbours} neighbours; {answers}; dpem {self.version})."
        )
        if not self.private:
            text = f"SIMULATION ONLY, NOT PRIVATE (seeded noise). With private noise it would be: {text}"
        return text


def together(guarantees: Sequence[Guarantee]) -> Guarantee:
    """One statement for several releases about the same rows: what they promise together.

    ε's add, and δ's; or the prices add in zCDP and are converted at the added δ. Both hold for releases whose ε, δ and
    prices were fixed beforehand, so the smaller ε is stated; fits chosen after earlier answers share a Budget.

    Where the units differ, the smallest is stated: it is what all of them promise. *Proof.* Neighbours that differ in
    up to m rows of a person are among those that differ in more, so a promise about more rows holds for m too. ∎

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
    least = unit(min(guarantee.rows_per_person for guarantee in guarantees))
    return Guarantee(epsilon, delta, first.neighbours, least, releases, private, first.version)
