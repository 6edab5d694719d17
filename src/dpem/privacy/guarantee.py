"""The guarantee of a fitted model, and the joint guarantee of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpem._html import notebook
from dpem.privacy.accounting import Price, total
from dpem.privacy.budget import unit
from dpem.privacy.curator import Release

#: Neighbouring tables differ in up to ``rows_per_person`` rows, or in all rows of one person, whatever their number
#: (:mod:`dpem.tables.persons`).
REPLACE_ROWS, REPLACE_PERSON = "replace-one", "replace-one-person"


@dataclass(frozen=True)
class Guarantee:
    """The differential-privacy guarantee of a model, and the mechanisms that provide it.

    ``price`` was fixed and charged before any query, and the guarantee follows from it. The releases in ``mechanisms``
    may cost less, by an amount that depends on answers. ``rows_per_person`` rows of one person are protected together.
    ``private`` is False for seeded noise and for an infinite ε.
    """

    epsilon: float
    delta: float
    price: Price
    neighbours: str
    rows_per_person: int
    mechanisms: tuple[Release, ...]
    private: bool
    version: str

    @property
    def unit(self) -> str:
        """What the guarantee protects: "one row", "one person with up to 5 rows", or "one person"."""
        return "one person" if self.neighbours == REPLACE_PERSON else unit(self.rows_per_person)

    def _repr_html_(self) -> str:
        return notebook("guarantee", self)

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "No privacy guarantee: this is the non-private reference fit (epsilon = inf)."
        answers = "1 noisy answer" if len(self.mechanisms) == 1 else f"{len(self.mechanisms)} noisy answers"
        other = "one row of the table" if self.unit == "one row" else f"all rows of {self.unit}"
        text = (
            f"({self.epsilon:g}, {self.delta:g})-differentially private: any conclusion drawn from this model is at "
            f"most e^{self.epsilon:g} times as likely, plus {self.delta:g}, as if {other} had been different "
            f"({self.neighbours} neighbours; {answers}; dpem {self.version}). Other analyses of the same table are not "
            "covered."
        )
        if not self.private:
            text = f"SIMULATION ONLY, NOT PRIVATE (seeded noise). With private noise it would be: {text}"
        return text


def together(guarantees: Sequence[Guarantee]) -> Guarantee:
    """The joint guarantee of several releases about the same rows.

    ε and δ add; or the prices add in zCDP and are converted at the sum of the δ. Both hold for releases whose ε, δ and
    prices were fixed beforehand, so the smaller ε is stated. (Fits that are chosen after earlier answers need a
    Budget.)

    If the privacy units differ, the smallest is stated, since every release protects it. *Proof.* Neighbours that
    differ in up to m rows of a person are among those that differ in more, or in all, so a guarantee for more rows
    holds for m too. (If a column identifies persons, a row that differs belongs to the same person in both tables.) ∎

    >>> alone = Guarantee(0.5, 1e-5, Price(0.01), "replace-one", 1, (), True, "0")
    >>> round(together([alone, alone]).epsilon, 2)
    0.76
    """
    if not guarantees:
        raise ValueError("there is no guarantee to state: nothing was released.")
    delta = math.fsum(guarantee.delta for guarantee in guarantees)
    price = total(guarantee.price for guarantee in guarantees)
    epsilon = min(math.fsum(guarantee.epsilon for guarantee in guarantees), price.epsilon(delta))
    return Guarantee(
        epsilon,
        delta,
        price,
        REPLACE_PERSON if all(g.neighbours == REPLACE_PERSON for g in guarantees) else REPLACE_ROWS,
        rows_per_person=min(guarantee.rows_per_person for guarantee in guarantees),
        mechanisms=tuple(release for guarantee in guarantees for release in guarantee.mechanisms),
        private=all(guarantee.private for guarantee in guarantees),
        version=guarantees[0].version,
    )
