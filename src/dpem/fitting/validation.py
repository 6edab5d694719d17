"""Refusals of data: one sentence each, before anything is planned, charged or asked. No message quotes a record, and no
refusal of a fit depends on one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from dpem._validation import Argument, ArgumentError, is_number, shown
from dpem.fitting.model import Effect
from dpem.privacy import Budget

if TYPE_CHECKING:
    from dpem.privacy import Ledger


def all_at_once(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A fit that changes the estimator's fitted attributes all at once, or, where it is refused or fails, not at all.

    It runs on a stand-in with the same arguments and nothing fitted, whose attributes are taken over at the end.
    """

    @wraps(fit)
    def whole(self: Any, *rows: Any, **named: Any) -> Any:
        new = object.__new__(type(self))
        vars(new).update({name: value for name, value in vars(self).items() if not _is_fitted(name)})
        fit(new, *rows, **named)
        self.__dict__ = vars(new)
        return self

    return whole


def effect_of(value: Any, known: Effect | None) -> float | None:
    """The assumed strength of effects, within the range of the model's predictions; None for the usual."""
    if value is None:
        return None
    if known is None:
        raise ArgumentError("effect", "must be None: what this model's plan supposes has no strength to choose.")
    low, high = known.others[0], known.others[-1]
    if not is_number(value) or not low <= value <= high:
        raise ArgumentError("effect", f"must be a number from {low:g} to {high:g} ({known.words}), got {shown(value)}.")
    return float(value)


def _is_fitted(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def budget_of(budget: Any, random_state: Any) -> Budget | Ledger | None:
    """What a fit is charged to. Seeded noise is never charged: a book would show it as a private fit."""
    if budget is not None and not isinstance(budget, Budget):
        from dpem.privacy import Ledger  # who has one has loaded what it needs

        if not isinstance(budget, Ledger):
            raise ArgumentError("budget", f"must be a dpem.Budget, a dpem.Ledger or None, got {type(budget).__name__}.")
    if budget is not None and random_state is not None:
        raise ArgumentError(
            "budget", "and ", Argument("random_state"), " must not both be given: seeded noise is not private."
        )
    return budget


def warn_about_delta(delta: float, n: int) -> None:
    for remark in remarks_on(1.0, delta, n):
        warnings.warn(remark, UserWarning, stacklevel=5)


def remarks_on(epsilon: float, delta: float, n: int) -> tuple[str, ...]:
    """What should be said about ε and δ before anything is paid."""
    said = []
    if delta >= 1 / n:
        said.append(
            f"delta={delta:g} is not below 1/n = {1 / n:.2g}: a mechanism that publishes one record outright could "
            "meet this guarantee; choose delta well below 1/n."
        )
    if 10 < epsilon < math.inf:
        factor = math.exp(min(epsilon, 700.0))
        said.append(f"epsilon={epsilon:g} is above 10: odds may change by a factor of {factor:.1e}.")
    return tuple(said)
