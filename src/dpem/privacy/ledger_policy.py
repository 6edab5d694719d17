"""A dataset's policy: limits on each fit, checked before the charge; refusals are recorded.

A policy is checked against what a fit states (ε, number of rows, model, the system's user name). It prevents mistakes;
whoever has the rows can fit them without dpem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dpem._validation import ArgumentError, is_number, shown
from dpem.privacy.total import BudgetExceeded


@dataclass(frozen=True)
class Policy:
    """Limits on each fit of a dataset; None allows everything.

    Attributes
    ----------
    largest_epsilon : float or None
        The largest ε of one fit.
    smallest_n : int or None
        The fewest rows that a table must have.
    models : tuple of str or None
        The models that may be fitted, by the names of ``dpem fit``.
    who : tuple of str or None
        The users who may fit, as their systems name them.

    Examples
    --------
    >>> Policy.from_dict({"largest_epsilon": 1, "models": ["linear-regression"]})
    Policy(largest_epsilon=1.0, smallest_n=None, models=('linear-regression',), who=None)
    """

    largest_epsilon: float | None = None
    smallest_n: int | None = None
    models: tuple[str, ...] | None = None
    who: tuple[str, ...] | None = None

    @classmethod
    def from_dict(cls, limits: Mapping[str, Any]) -> Policy:
        """The policy with these limits; an error that names the field if one is wrong."""
        names = [field.name for field in fields(cls)]
        unknown = [name for name in limits if name not in names]
        if unknown:
            raise ValueError(f"a policy has the fields {', '.join(names)}; got {shown(unknown[0])}.")
        epsilon, n = limits.get("largest_epsilon"), limits.get("smallest_n")
        if epsilon is not None and not (is_number(epsilon) and epsilon > 0):
            raise ValueError(f"largest_epsilon of a policy must be positive, got {shown(epsilon)}.")
        if n is not None and not (isinstance(n, int) and not isinstance(n, bool) and n > 0):
            raise ValueError(f"smallest_n of a policy must be a whole number of at least 1, got {shown(n)}.")
        lists: dict[str, tuple[str, ...] | None] = {}
        for name in ("models", "who"):
            value = limits.get(name)
            if value is not None and not (isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)):
                raise ArgumentError(name, f"of a policy must be a list of texts, got {shown(value)}.")
            lists[name] = None if value is None else tuple(value)
        return cls(None if epsilon is None else float(epsilon), n, **lists)

    def to_dict(self) -> dict[str, Any]:
        """The limits that the policy has, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def admit(self, dataset: str, *, epsilon: float, n: int | None, model: str, who: str) -> None:
        """Raise :class:`~dpem.BudgetExceeded` with the reason ``"policy"`` unless the fit is allowed."""
        reason = ""
        if self.largest_epsilon is not None and epsilon > self.largest_epsilon * (1 + 1e-9):
            reason = f"allows a fit up to epsilon={self.largest_epsilon:g}, and this one asks for {epsilon:g}"
        elif self.smallest_n is not None and (n is None or n < self.smallest_n):
            rows = "does not say how many it has" if n is None else f"has {n:,}"
            reason = f"requires at least {self.smallest_n:,} rows, and this table {rows}"
        elif self.models is not None and model not in self.models:
            reason = f"allows the models {', '.join(self.models) or 'none'}, and this is {model or 'another fit'}"
        elif self.who is not None and who not in self.who:
            reason = f"names who may fit, and {who or 'an unknown user'} is not among them"
        if reason:
            raise BudgetExceeded(f"the policy of dataset {dataset!r} {reason}. Nothing was computed.", "policy")
