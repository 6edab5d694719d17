"""The fit sequence of every private estimator: validate, plan, charge, query, state the guarantee, set the attributes.

All refusals come before :meth:`PrivateFit._spend`, which charges the fit before the first query. The guarantee follows
from the price that was charged, not from the sum of what the releases cost.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from dpem import _validation as arguments
from dpem._validation import Argument, ArgumentError
from dpem._version import __version__
from dpem.fitting.diagnostics import warn_user
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
)
from dpem.privacy.guarantee import REPLACE_PERSON, REPLACE_ROWS
from dpem.tables import Source
from dpem.tables.bounds import suggestion

Result = TypeVar("Result")
Estimator = TypeVar("Estimator")
P = ParamSpec("P")

#: Arguments that a plan's ``settings`` leave out: it has fields of their own for them, or does not depend on them.
NOT_SETTINGS = {
    *("epsilon", "delta", "budget", "random_state", "bounds", "y_bounds", "levels", "person", "rows_per_person"),
}
#: The documentation of the arguments that all estimators share; it replaces ``{shared}`` in their docstrings.
SHARED_PARAMETERS = """person : str, optional
        The column that identifies the person of each row. The guarantee then protects a person, of whom the first
        ``rows_per_person`` rows count.
    rows_per_person : int, default 1
        The largest number of rows of one person. They are protected together, and noise grows in proportion.
    budget : Budget or Ledger, optional
        Charged with the fit before the rows are read.
    random_state : int, optional
        A seed for repeatable noise in simulations. Such a fit is **not private**, and cannot be charged to a budget."""


def keeps_arguments(constructor: Callable[..., None]) -> Callable[..., None]:
    """Decorate an empty constructor: it sets each argument as an attribute, as scikit-learn requires."""
    signature = inspect.signature(constructor)

    @wraps(constructor)
    def keep(self: BaseEstimator, *args: object, **kwargs: object) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in signature.parameters]
            hint = suggestion(unknown[0], list(signature.parameters)) if unknown else ""
            raise TypeError(f"{type(self).__name__}() {error}{hint}") from None
        bound.apply_defaults()
        for name in list(signature.parameters)[1:]:
            setattr(self, name, bound.arguments[name])

    return keep


def atomic(fit: Callable[Concatenate[Estimator, P], Estimator]) -> Callable[Concatenate[Estimator, P], Estimator]:
    """Decorate ``fit``: it sets all fitted attributes at once, or none if it is refused or fails.

    The fit runs on an unfitted copy with the same arguments, whose attributes replace the estimator's at the end.
    """

    @wraps(fit)
    def fit_a_copy(self: Estimator, /, *args: P.args, **kwargs: P.kwargs) -> Estimator:
        new = object.__new__(type(self))
        vars(new).update({name: value for name, value in vars(self).items() if not name.endswith("_")})
        fit(new, *args, **kwargs)
        self.__dict__ = vars(new)
        return self

    return fit_a_copy


class PrivateFit(BaseEstimator):
    """The base class of every private estimator: its charge, its curator, its guarantee."""

    _needs_y: ClassVar[bool] = False
    _takes_scaler: ClassVar[bool] = False  # whether it may be fitted to the output of a scaler

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "{shared}" in (cls.__doc__ or ""):
            shared = inspect.cleandoc(SHARED_PARAMETERS)  # Python 3.13 has removed the indentation already
            cls.__doc__ = inspect.cleandoc(str(cls.__doc__)).replace("{shared}", shared)

    @classmethod
    def _name(cls) -> str:
        """The model's name, from that of its class: ``DPLatentClass`` is ``latent-class``."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__.removeprefix("DP")).lower()

    def _settings(self) -> dict[str, object]:
        """The constructor arguments that are numbers, texts or None, for plans and files; never a budget or a seed."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_SETTINGS}
        parameters |= {name: value.item() for name, value in parameters.items() if isinstance(value, np.generic)}
        return {name: value for name, value in parameters.items() if isinstance(value, str | int | float | None)}

    def _privacy_parameters(self) -> tuple[float, float]:
        """ε and δ, after they, the privacy unit and the budget have been checked."""
        parameters = arguments.privacy_parameters(self.epsilon, self.delta)
        arguments.rows_per_person(self.rows_per_person)
        check_budget(self.budget, self.random_state)
        return parameters

    def _warn_before_charge(self, plan: Plan) -> None:
        """Issue the plan's remarks as warnings."""
        infeasible = () if plan.feasible else (f"expect little more than noise from this fit: {plan.advice}.",)
        for remark in (*plan.remarks, *infeasible):
            warn_user(remark)

    def _spend(
        self, source: Source, plan: Plan, run: Callable[[Curator], Result], **details: object
    ) -> tuple[Result, Guarantee, Charge | None]:
        """Issue the plan's remarks, charge its price, then run the fit; a ledger also records ``details``.

        Returns the result of ``run``, the guarantee, and the charge (None without a budget).
        """
        self._warn_before_charge(plan)
        noise = self._noise()
        account = Account(plan.epsilon, plan.delta, gaussian=plan.price.gaussian, rho=plan.price.rho)
        with self._charged(plan, **details) as charge:
            result = run(self._curator(source, account, noise))
        guarantee = Guarantee(
            epsilon=plan.epsilon,
            delta=plan.delta,
            price=plan.price,
            neighbours=REPLACE_ROWS if self._unit()["person"] is None else REPLACE_PERSON,
            rows_per_person=plan.rows_per_person,
            mechanisms=tuple(account.releases),
            private=noise.private and math.isfinite(plan.epsilon),
            version=__version__,
        )
        return result, guarantee, charge

    def _charged(self, plan: Plan, **details: object) -> AbstractContextManager[Charge | None]:
        """Charge the fit to the budget now; when the context ends, a ledger records the outcome."""
        if self.budget is None:
            return nullcontext()
        unit = "" if self._unit()["person"] is None else ", per person"
        return self.budget.charge(
            plan.epsilon,
            plan.delta,
            plan.price,
            purpose=f"{type(self).__name__}.fit, n={plan.n}, d={plan.d}{unit}",
            digest=digest(plan.to_dict()),
            rows_per_person=plan.rows_per_person,
            model=plan.model,
            n=plan.n,
            **details,
        )

    def _unit(self) -> dict[str, Any]:
        """The privacy unit: the column that identifies the person, and the number of rows of each that count."""
        return {"person": getattr(self, "person", None), "rows_per_person": self.rows_per_person}

    def _curator(self, source: Source, account: Account, noise: Noise) -> Curator:
        """The curator of this fit; an audit replaces it with a recording one."""
        return Curator(source, account, noise, rows_per_person=self.rows_per_person)

    def _noise(self) -> Noise:
        if self.random_state is None:
            return PrivateNoise()
        if math.isfinite(float(self.epsilon)):
            warn_user("random_state makes the noise repeatable: this fit is NOT private. Use it for simulations only.")
        return SeededNoise(self.random_state)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.target_tags.required = self._needs_y
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.sparse = True
        return tags


def check_budget(budget: object, random_state: object) -> None:
    """Refuse an invalid budget, and seeded noise with a budget, which a ledger would show as a private fit."""
    if budget is not None and not isinstance(budget, Budget):
        from dpem.privacy import Ledger  # here, since it imports SQLAlchemy

        if not isinstance(budget, Ledger):
            raise ArgumentError("budget", f"must be a dpem.Budget, a dpem.Ledger or None, got {type(budget).__name__}.")
    if budget is not None and random_state is not None:
        raise ArgumentError(
            "budget", "and ", Argument("random_state"), " must not both be given: seeded noise is not private."
        )


def privacy_remarks(epsilon: float, delta: float, n: int) -> tuple[str, ...]:
    """Remarks on a large ε or δ, to be shown before the charge."""
    remarks = []
    if delta >= 1 / n:
        remarks.append(
            f"delta={delta:g} is not below 1/n = {1 / n:.2g}: a mechanism that publishes one record outright could "
            "meet this guarantee; choose delta well below 1/n."
        )
    if 10 < epsilon < math.inf:
        factor = math.exp(min(epsilon, 700.0))
        remarks.append(f"epsilon={epsilon:g} is above 10: odds may change by a factor of {factor:.1e}.")
    return tuple(remarks)
