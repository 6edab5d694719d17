"""A budget shared by fits."""

from __future__ import annotations

import math
import threading
from typing import Any, NoReturn

from dpem.privacy.accounting import Price, total


class BudgetExceeded(RuntimeError):
    """A fit asked for more than its budget has left. Nothing was computed and nothing was spent."""


class Budget:
    """A total (ε, δ) that several fits draw on, in one process.

    ``budget=`` of an estimator debits it before any question is put to the data. The object is never copied:
    ``clone`` and ``deepcopy`` of an estimator keep the same budget, so cross-validation folds each pay. It is safe
    under threads. It cannot be pickled: a budget in a worker process would be a second budget.

    Composition: the charges are valid together if their ε's and δ's add up to at most the total, or if their zCDP
    prices do after conversion at the total's δ. Both are theorems, so whichever is smaller counts.

    >>> budget = Budget(epsilon=1.0, delta=1e-4)
    >>> budget.debit(0.5, 1e-5, Price(0.005))
    >>> budget.spent_epsilon <= 0.5
    True
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        if not epsilon > 0:
            raise ValueError(f"epsilon of a Budget must be positive, got {epsilon!r}.")
        if not 0 < delta < 1:
            raise ValueError(f"delta of a Budget must lie strictly between 0 and 1, got {delta!r}.")
        self.epsilon, self.delta = float(epsilon), float(delta)
        self._charges: list[tuple[float, float, Price]] = []
        self._lock = threading.Lock()

    def debit(self, epsilon: float, delta: float, price: Price) -> None:
        """Charge one fit that is (ε, δ)-private and costs ``price``, or raise :class:`BudgetExceeded` and charge
        nothing.
        """
        if not (epsilon > 0 and 0 < delta < 1 and price.rho > 0):
            raise ValueError("a charge needs epsilon > 0, 0 < delta < 1 and a positive price.")
        with self._lock:
            if not self._fits([*self._charges, (epsilon, delta, price)]):
                spent = self._spent(self._charges)
                raise BudgetExceeded(
                    f"this fit asks for epsilon={epsilon:.6g}, delta={delta:.3g}; of the budget "
                    f"epsilon={self.epsilon:.6g}, delta={self.delta:.3g}, {len(self._charges)} fit(s) have spent "
                    f"epsilon={spent:.6g} and about epsilon={max(0.0, self.epsilon - spent):.6g} is left. "
                    f"Nothing was computed."
                )
            self._charges.append((epsilon, delta, price))

    @property
    def n_charges(self) -> int:
        """How many fits were charged."""
        return len(self._charges)

    @property
    def spent_epsilon(self) -> float:
        """The smallest ε known to cover everything charged so far, at the budget's δ."""
        with self._lock:
            return self._spent(self._charges)

    def _fits(self, charges: list[tuple[float, float, Price]]) -> bool:
        slack = 1 + 1e-9  # rounding of the sums, so that two halves fit into a whole
        added = math.fsum(e for e, _, _ in charges) <= self.epsilon * slack
        added = added and math.fsum(d for _, d, _ in charges) <= self.delta * slack
        return added or total(p for _, _, p in charges).delta(self.epsilon) <= self.delta

    def _spent(self, charges: list[tuple[float, float, Price]]) -> float:
        if not charges:
            return 0.0
        spent = total(p for _, _, p in charges).epsilon(self.delta)
        if math.fsum(d for _, d, _ in charges) <= self.delta * (1 + 1e-9):
            spent = min(spent, math.fsum(e for e, _, _ in charges))
        return spent

    def __repr__(self) -> str:
        spent = f"spent={self.spent_epsilon:.4g} in {self.n_charges} fit(s)"
        return f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}, {spent})"

    def __copy__(self) -> Budget:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Budget:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Budget lives in one process and cannot be pickled into another, where it would be counted twice; "
            "use threads (n_jobs with backend='threading') or a ledger, which several processes can share."
        )
