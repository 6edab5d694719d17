"""Budgets: the composition rule of a total (ε, δ), and the budget of one process.

*Lemma.* Fits accepted by :meth:`Total.admit` are together (ε, δ)-DP for the total's ε and δ, also if each charge is
chosen after seeing the answers to the earlier ones. *Proof.* The first charge is fixed before any answer. If its zCDP
price alone does not convert to (ε, δ) (which is possible for Gaussian noise alone, whose exact curve is better), no sum
with it converts, so it remains the only charge, and it was accepted because its own (ε₁, δ₁) is within the total.
Otherwise all charges were accepted by one rule: the sum of the zCDP prices converts to (ε, δ). Sums below a limit fixed
in advance are ρ-zCDP however the next price is chosen (Feldman & Zrnic 2021, at every order), and ρ-zCDP converts
(:mod:`dpem.privacy.accounting`). ∎ It would be wrong to accept a charge that *any* of several theorems covers: which
one covers the last charge could depend on answers, and k theorems would give (ε, kδ) only.

A total protects one unit: the up to m rows of one person. A fit that protects at least as many rows together is
(ε, δ)-private for that unit too, since neighbours that differ in fewer rows are among its neighbours; a fit that
protects fewer is refused.

A fit that was charged but never completed may have released anything up to its price, so charges are never undone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NoReturn, Self

from dpem import _validation as arguments
from dpem._html import notebook
from dpem._validation import ArgumentError, describe, is_number
from dpem.privacy.accounting import Price, largest_price, total, zcdp_order

#: The possible outcomes of a charged fit.
OUTCOMES = ("answered", "failed")
#: Tolerance for rounding in comparisons of a charge with the total.
SLACK = 1 + 1e-9


class BudgetExceeded(RuntimeError):
    """A fit is not covered by its budget. Nothing was computed and nothing was spent.

    ``reason`` is ``"budget"`` if too little is left, ``"delta"`` if the fit's δ is above the total's, ``"rows per
    person"`` if it protects fewer rows of a person than the total counts, and ``"policy"`` if the dataset's policy does
    not allow it.
    """

    def __init__(self, message: str, reason: str = "budget") -> None:
        super().__init__(message)
        self.reason = reason


def unit(rows_per_person: int) -> str:
    """The privacy unit, in words.

    >>> unit(1), unit(5)
    ('one row', 'one person with up to 5 rows')
    """
    return "one row" if rows_per_person == 1 else f"one person with up to {rows_per_person} rows"


@dataclass(frozen=True)
class Charge:
    """The charge of one fit that is (ε, δ)-private for up to ``rows_per_person`` rows and costs ``price``, which must
    convert to (ε, δ).

    ``close`` records the outcome of the fit. A context manager closes it with ``"failed"`` if the block raises, else
    with ``"answered"``; either way the charge stays. A :class:`~dpem.Ledger` stores the outcome, a
    :class:`~dpem.Budget` does not.
    """

    epsilon: float
    delta: float
    price: Price
    rows_per_person: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        arguments.rows_per_person(self.rows_per_person)
        if not (self.epsilon > 0 and 0 < self.delta < 1 and self.price.rho > 0):
            raise ValueError("a charge needs epsilon > 0, 0 < delta < 1 and a positive price.")
        if not self.price.delta(self.epsilon) <= self.delta * SLACK:
            raise ValueError("the price of a charge must convert to its epsilon and delta, and this one is higher.")

    def close(self, outcome: str) -> None:
        """Record the outcome of the fit: ``"answered"`` or ``"failed"``."""
        if outcome not in OUTCOMES:
            raise ArgumentError("outcome", f"must be one of {', '.join(map(repr, OUTCOMES))}; got {describe(outcome)}.")

    def released(self, fingerprint: str) -> None:
        """Record the fingerprint of the fitted model."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("answered" if kind is None else "failed")


@dataclass(frozen=True)
class Total:
    """A total (ε, δ) for one privacy unit, and how charges add up; see the module's lemma."""

    epsilon: float
    delta: float
    rows_per_person: int = 1

    @classmethod
    def checked(cls, owner: str, epsilon: object, delta: object, rows_per_person: object) -> Total:
        """The total with these values, or an ArgumentError; ``owner`` names what the total belongs to."""
        if not is_number(epsilon) or not float(epsilon) > 0:
            raise ArgumentError("epsilon", f"of a {owner} must be positive, got {describe(epsilon)}.")
        if not is_number(delta) or not 0 < float(delta) < 1:
            raise ArgumentError("delta", f"of a {owner} must lie strictly between 0 and 1, got {describe(delta)}.")
        rows = arguments.rows_per_person(rows_per_person)
        return cls(float(epsilon), float(delta), rows)

    def fits(self, charges: Sequence[Charge]) -> bool:
        """Whether the total covers the charges: a single one by its (ε, δ), several by the sum of their zCDP prices."""
        if math.isinf(self.epsilon):
            return True
        if len(charges) == 1 and charges[0].delta <= self.delta * SLACK and charges[0].epsilon <= self.epsilon * SLACK:
            return True
        return _zcdp(charges).delta(self.epsilon) <= self.delta

    def spent(self, charges: Sequence[Charge]) -> float:
        """The smallest ε that covers the charges, at the total's δ."""
        if not charges:
            return 0.0
        spent = _zcdp(charges).epsilon(self.delta)
        alone = len(charges) == 1 and charges[0].delta <= self.delta * SLACK
        return min(spent, charges[0].epsilon) if alone else spent

    def left(self, charges: Sequence[Charge], delta: float) -> float:
        """The largest ε at which one more fit at ``delta`` would be accepted.

        The fit is assumed to have the largest price that converts to (ε, δ), with Gaussian noise alone or with other
        noise, whichever price is higher. An ε below a millionth of the total's counts as 0.
        """
        if math.isinf(self.epsilon):
            return math.inf
        left_rho = largest_price(self.epsilon, self.delta, gaussian=False).rho - _zcdp(charges).rho
        epsilon = min(Price(left_rho, gaussian).epsilon(delta) if left_rho > 0 else 0.0 for gaussian in (True, False))
        if not charges and delta <= self.delta:
            epsilon = max(epsilon, self.epsilon)
        shrink = 1e-12  # for rounding, which may have made ε slightly too large
        while epsilon > 1e-6 * self.epsilon:
            most_expensive = (Charge(epsilon, delta, largest_price(epsilon, delta, gaussian=g)) for g in (True, False))
            if all(self.fits([*charges, charge]) for charge in most_expensive):
                return epsilon
            epsilon, shrink = epsilon * (1 - shrink), min(2 * shrink, 1e-3)
        return 0.0

    def admit(self, charges: Sequence[Charge], new: Charge, owner: str) -> None:
        """Raise :class:`BudgetExceeded` unless the total covers all and ``new`` protects its unit."""
        this_total = f"the {owner} (epsilon={self.epsilon:.6g}, delta={self.delta:.3g})"
        if new.rows_per_person < self.rows_per_person:
            raise BudgetExceeded(
                f"this fit protects {unit(new.rows_per_person)}, but {this_total} counts {unit(self.rows_per_person)}: "
                f"state at least {self.rows_per_person} rows per person. Nothing was computed.",
                "rows per person",
            )
        if math.isfinite(self.epsilon) and new.delta > self.delta * SLACK:
            raise BudgetExceeded(
                f"delta of this fit is {new.delta:.3g}, above that of {this_total}: choose a delta of at most "
                f"{self.delta:.3g}. Nothing was computed.",
                "delta",
            )
        if self.fits([*charges, new]):
            return
        fits = "one fit has" if len(charges) == 1 else f"{len(charges)} fits have"
        before = f"{fits} spent epsilon={self.spent(charges):.6g}" if charges else "nothing has been spent"
        raise BudgetExceeded(
            f"this fit needs epsilon={new.epsilon:.6g} at delta={new.delta:.3g}, and {this_total} allows one more fit "
            f"up to epsilon={self.left(charges, self.delta):.6g}: {before}. "
            "Nothing was computed."
        )

    def explain(self, charges: Sequence[Charge]) -> list[str]:
        """The sum of the charges and its conversion, in lines that a reader can recompute.

        >>> for line in Total(1.0, 1e-5).explain([Charge(0.6, 5e-6, Price(0.011))] * 2):
        ...     print(line)
        prices add: ρ = 0.011 + 0.011 = 0.022
        ε = α·ρ + [ln(1/δ) − ln(α−1) + α·ln(1−1/α)]/(α−1), here least at the order α = 20.6396
        at δ = 1e-05: ε = 20.6396·0.022 + [11.5129 − 2.97755 − 1.02504]/19.6396 = 0.836479
        the total (ε, δ) = (1, 1e-05) is worth ρ = 0.0305566, so ρ = 0.0085566 is left
        one more fit may use up to ε = 0.456495 at δ = 1e-05 (Gaussian noise of ρ-zCDP price 0.0085566)
        """
        if not charges:
            return [f"no fit was charged: all of (ε, δ) = ({self.epsilon:g}, {self.delta:g}) is left"]
        rho, total_rho = _zcdp(charges).rho, largest_price(self.epsilon, self.delta, gaussian=False).rho
        parts = [f"{charge.price.rho:.6g}" for charge in charges]
        summands = " + ".join(parts if len(parts) <= 12 else [*parts[:6], f"… ({len(parts) - 9} more) …", *parts[-3:]])
        lines = [f"prices add: ρ = {summands}{f' = {rho:.6g}' if len(parts) > 1 else ''}"]
        epsilon = _zcdp(charges).epsilon(self.delta)
        alpha = zcdp_order(rho, epsilon)
        terms = (-math.log(self.delta), math.log(alpha - 1), -alpha * math.log1p(-1 / alpha))
        bracket = " − ".join(f"{term:.6g}" for term in terms)
        lines += [
            "ε = α·ρ + [ln(1/δ) − ln(α−1) + α·ln(1−1/α)]/(α−1), here least at the order " + f"α = {alpha:.6g}",
            f"at δ = {self.delta:g}: ε = {alpha:.6g}·{rho:.6g} + [{bracket}]/{alpha - 1:.6g} = {epsilon:.6g}",
        ]
        if (spent := self.spent(charges)) < epsilon:
            lines.append(f"a single fit is covered by its own (ε, δ), which is less: ε = {spent:.6g}")
        left_rho, left = total_rho - rho, self.left(charges, self.delta)
        worth = f"the total (ε, δ) = ({self.epsilon:g}, {self.delta:g}) is worth ρ = {total_rho:.6g}"
        if not left:
            return [*lines, f"{worth}: nothing is left"]
        sharper = Price(left_rho, True).epsilon(self.delta) <= Price(left_rho).epsilon(self.delta)
        noise = "Gaussian noise" if sharper else "noise"
        lines.append(f"{worth}, so ρ = {left_rho:.6g} is left")
        lines.append(
            f"one more fit may use up to ε = {left:.6g} at δ = {self.delta:g} ({noise} of ρ-zCDP price {left_rho:.6g})"
        )
        return lines


def _zcdp(charges: Sequence[Charge]) -> Price:
    """The sum of the charges' zCDP prices, without the exact curve for Gaussian noise."""
    return Price(total(c.price for c in charges).rho)


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
                "this Budget belongs to another process, which would not see this charge: share a dpem.Ledger between "
                "processes, or use threads. Nothing was computed."
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
        """The smallest ε that covers everything charged so far, at the budget's δ."""
        with self._lock:
            return self._total.spent(self._charges)

    def __repr__(self) -> str:
        spent = f"spent={self.spent_epsilon:.4g} in {self.n_charges} fit(s)"
        counts = "" if self.rows_per_person == 1 else f"rows_per_person={self.rows_per_person}, "
        return f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}, {counts}{spent})"

    def _repr_html_(self) -> str:
        return notebook("budget", self)

    def __copy__(self) -> Budget:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Budget:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Budget cannot be pickled, since a copy in another process would be a second budget; "
            "use threads (n_jobs with backend='threading') or a ledger, which several processes can share."
        )


def digest(document: Mapping[str, object]) -> str:
    """A short fingerprint of plain numbers and strings, such as ``Plan.to_dict()``: 16 hexadecimal digits of SHA-256.

    >>> digest({"b": 1, "a": "x"}) == digest({"a": "x", "b": 1})
    True
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
