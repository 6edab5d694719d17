"""The one fit sequence: validate, plan, charge, curator, queries, guarantee, and every fitted attribute at once.

The order matters. Whatever can be refused has been refused before :meth:`PrivateFit._spend`; there the fit is charged
before the first query, and the guarantee is that of the price that was charged, not of what was realised.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from dpem import _validation as arguments
from dpem._validation import Argument, ArgumentError
from dpem._version import __version__
from dpem.fitting.plan import Plan
from dpem.privacy import (
    Account,
    Budget,
    Charge,
    Curator,
    Guarantee,
    Noise,
    PrivateNoise,
    SeededNoise,
    digest,
    neighbours_of,
)
from dpem.tables import Source

Result = TypeVar("Result")


class Spent(NamedTuple, Generic[Result]):
    """What a charged fit brought: its result, its guarantee, and the charge (None without a budget)."""

    result: Result
    guarantee: Guarantee
    charge: Charge | None


#: Arguments that a plan does not list among its settings: they are its other fields, or no part of it.
APART = ("epsilon", "delta", "budget", "random_state", "bounds", "y_bounds", "levels", "person", "rows_per_person")
#: What the docstrings of estimators say of the arguments that all of them have, in the place of ``{shared}``.
SHARED_PARAMETERS = """person : str, optional
        The column that says whose row it is: the unit is then a person, and rows of one beyond ``rows_per_person`` do
        not count.
    rows_per_person : int, default 1
        The most rows that one person has: all of them are protected together, and noise grows in proportion.
    budget : Budget or Ledger, optional
        What the fit is charged to, before the rows are read.
    random_state : int, optional
        Repeatable noise, for simulations: such a fit is **not private**, and goes with no budget."""


def keeps_arguments(constructor: Callable[..., None]) -> Callable[..., None]:
    """A constructor that keeps each argument under its name and does nothing else, as scikit-learn asks."""
    signature = inspect.signature(constructor)

    @wraps(constructor)
    def keep(self: Any, *given: Any, **named: Any) -> None:
        bound = signature.bind(self, *given, **named)
        bound.apply_defaults()
        for name in list(signature.parameters)[1:]:
            setattr(self, name, bound.arguments[name])

    return keep


def all_at_once(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A fit that sets every fitted attribute at once, or none if it is refused or fails.

    It runs on a copy that has the same arguments and nothing fitted; the copy's attributes are taken over at the end.
    """

    @wraps(fit)
    def fit_a_copy(self: Any, *rows: Any, **named: Any) -> Any:
        new = object.__new__(type(self))
        vars(new).update({name: value for name, value in vars(self).items() if not name.endswith("_")})
        fit(new, *rows, **named)
        self.__dict__ = vars(new)
        return self

    return fit_a_copy


class PrivateFit(BaseEstimator):
    """What every private estimator does in the same way. Constructor arguments ``epsilon, delta, person,
    rows_per_person, budget, random_state`` are read here.
    """

    _needs_y: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "{shared}" in (cls.__doc__ or ""):
            cls.__doc__ = str(cls.__doc__).replace("{shared}", SHARED_PARAMETERS)

    @classmethod
    def _name(cls) -> str:
        """The model's name, that of its class: ``DPLatentClass`` is ``latent-class``."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__.removeprefix("DP")).lower()

    def _settings(self) -> dict[str, Any]:
        """Constructor arguments that are plain, for plans and files; never rows, budgets or seeds."""
        plain, given = (str, int, float, bool, type(None)), self.get_params(deep=False)
        return {name: value for name, value in given.items() if name not in APART and isinstance(value, plain)}

    def _privacy_parameters(self) -> tuple[float, float]:
        """ε and δ, once they, the unit and the budget are as they must be."""
        parameters = arguments.privacy_parameters(self.epsilon, self.delta)
        arguments.rows_per_person(self.rows_per_person)
        check_budget(self.budget, self.random_state)
        return parameters

    def _spend(
        self, source: Source, plan: Plan, noise: Noise, run: Callable[[Curator], Result], **charged: Any
    ) -> Spent[Result]:
        """Charge the plan's price, then send its queries. ``charged`` is what else the charge records."""
        account = Account(plan.epsilon, plan.delta, gaussian=plan.price.gaussian, rho=plan.price.rho)
        with self._charged(plan, **charged) as charge:
            result = run(self._curator(source, account, noise))
        guarantee = Guarantee(
            epsilon=plan.epsilon,
            delta=plan.delta,
            price=plan.price,
            neighbours=neighbours_of(self._who()["person"]),
            rows_per_person=plan.rows_per_person,
            mechanisms=tuple(account.releases),
            private=noise.private and math.isfinite(plan.epsilon),
            version=__version__,
        )
        return Spent(result, guarantee, charge)

    def _charged(self, plan: Plan, **more: Any) -> AbstractContextManager[Any]:
        """Charge the fit to the budget, now; on leaving, a ledger records how it ended."""
        if self.budget is None:
            return nullcontext()
        unit = "" if self._who()["person"] is None else ", per person"
        context: AbstractContextManager[Any] = self.budget.charge(
            plan.epsilon,
            plan.delta,
            plan.price,
            purpose=f"{type(self).__name__}.fit, n={plan.n}, d={plan.d}{unit}",
            digest=digest(plan.to_dict()),
            rows_per_person=plan.rows_per_person,
            model=plan.model,
            n=plan.n,
            **more,
        )
        return context

    def _who(self) -> dict[str, Any]:
        """The unit: whose row it is, and how many rows of each person count."""
        return {"person": getattr(self, "person", None), "rows_per_person": self.rows_per_person}

    def _curator(self, source: Source, account: Account, noise: Noise) -> Curator:
        """The curator of this fit; an audit replaces it by a recorder."""
        return Curator(source, account, noise, rows_per_person=self.rows_per_person)

    def _noise(self, stacklevel: int = 3) -> Noise:
        if self.random_state is None:
            return PrivateNoise()
        if math.isfinite(float(self.epsilon)):
            warnings.warn(
                "random_state makes the noise repeatable: this fit is NOT private. Use it for simulations only.",
                UserWarning,
                stacklevel=stacklevel,
            )
        return SeededNoise(self.random_state)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.target_tags.required = self._needs_y
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.sparse = True
        return tags


def check_budget(budget: Any, random_state: Any) -> None:
    """Refuse what no fit can be charged to. Seeded noise is never charged: a ledger would show it as a private fit."""
    if budget is not None and not isinstance(budget, Budget):
        from dpem.privacy import Ledger  # who has one has loaded what it needs

        if not isinstance(budget, Ledger):
            raise ArgumentError("budget", f"must be a dpem.Budget, a dpem.Ledger or None, got {type(budget).__name__}.")
    if budget is not None and random_state is not None:
        raise ArgumentError(
            "budget", "and ", Argument("random_state"), " must not both be given: seeded noise is not private."
        )


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
