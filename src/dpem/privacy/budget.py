"""A budget for the fits of one process: a total (ε, δ) that they are charged to (:mod:`dpem.privacy.total`)."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

from dpem._repr_html import budget_html
from dpem.privacy.accounting import Price
from dpem.privacy.total import BudgetExceeded, Charge, Total, unit

__all__ = ["Budget", "BudgetExceeded", "Charge", "Total", "digest", "unit"]


class Budget:
    """A total (ε, δ) for the fits of one process.

    An estimator with ``budget=`` charges it before the data are queried. The object is never copied: ``clone`` and
    ``deepcopy`` of an estimator keep the same budget, so that every cross-validation fold is charged. It is safe under
    threads. It cannot be pickled, and a forked process cannot charge its copy, because a budget in another process
    would be a second one. A :class:`~dpem.privacy.Ledger` is for several processes and outlives them.

    Composition: zCDP prices add up, and their sum is converted at the total's δ, so that two fits at half of ε cost
    less than the total. This holds also if a fit is chosen after earlier answers were seen.

    ``rows_per_person`` is the largest number of rows of one person. The total protects all of them together, and a fit
    with a smaller ``rows_per_person`` is refused.

    >>> budget = Budget(epsilon=1.0, delta=1e-4)
    >>> charge = budget.charge(0.5, 1e-5, Price(0.005))
    >>> budget.spent_epsilon <= 0.5
    True
    """

    def __init__(self, epsilon: float, delta: float, rows_per_person: int = 1) -> None:
        self._total = Total.checked("Budget", epsilon, delta, rows_per_person)
        self.epsilon, self.delta = self._total.epsilon, self._total.delta
        self.rows_per_person = self._total.rows_per_person
        self._charges: list[Charge] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def charge(
        self,
        epsilon: float,
        delta: float,
        price: Price,
        *,
        rows_per_person: int = 1,
        **details: object,
    ) -> Charge:
        """Charge one fit that is (ε, δ)-private for up to ``rows_per_person`` rows and costs ``price``, or raise
        :class:`BudgetExceeded` and charge nothing. A budget ignores the ``details``, which a ledger records.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "this Budget belongs to the process that made it, which does not see what a forked copy spends; share "
                "a dpem.Ledger between processes, or use threads. Nothing was computed."
            )
        charge = Charge(epsilon, delta, price, rows_per_person=rows_per_person)
        with self._lock:
            self._total.admit(self._charges, charge, "budget")
            self._charges.append(charge)
        return charge

    @property
    def n_charges(self) -> int:
        """The number of charged fits."""
        return len(self._charges)

    @property
    def spent_epsilon(self) -> float:
        """The smallest ε known to cover everything charged so far, at the budget's δ."""
        with self._lock:
            return self._total.spent(self._charges)

    def __repr__(self) -> str:
        spent = f"spent={self.spent_epsilon:.4g} in {self.n_charges} fit(s)"
        counts = "" if self.rows_per_person == 1 else f"rows_per_person={self.rows_per_person}, "
        return f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}, {counts}{spent})"

    def _repr_html_(self) -> str:
        return budget_html(self)

    def __copy__(self) -> Budget:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Budget:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Budget lives in one process and cannot be pickled into another, where it would be counted twice; "
            "use threads (n_jobs with backend='threading') or a ledger, which several processes can share."
        )


def digest(document: Mapping[str, Any]) -> str:
    """A short fingerprint of plain numbers and strings, such as ``Plan.to_dict()``: 16 hexadecimal digits of SHA-256.

    >>> digest({"b": 1, "a": "x"}) == digest({"a": "x", "b": 1})
    True
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
