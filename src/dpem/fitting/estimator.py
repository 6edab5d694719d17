"""What the estimators of the general models share: arguments, plan, charge, fit, fitted attributes.

The order of a fit matters: in :meth:`PrivateEstimator.fit` everything that can be refused is refused before the charge,
and the fitted attributes change all at once or not at all; :mod:`dpem.fitting.sequence` is what lies between.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from dpem import _validation as arguments
from dpem._threads import single_blas
from dpem._validation import ArgumentError
from dpem.fitting import serialization as content
from dpem.fitting.derived import open_derived
from dpem.fitting.diagnostics import issue
from dpem.fitting.formula import CompiledFormula, compiled, missing_columns
from dpem.fitting.model import Sizes
from dpem.fitting.plan import Plan
from dpem.fitting.results import UnitModel
from dpem.fitting.sequence import PrivateFit, all_at_once, remarks_on
from dpem.fitting.step import State, prices, run_steps
from dpem.fitting.weights import ASSUMED, WEIGHTS_SHARE, FindWeights, without_weight
from dpem.privacy import (
    Curator,
    Guarantee,
    Price,
    digest,
    largest_price,
)
from dpem.tables.bounds import Pair, column_bounds, listed, response_bounds
from dpem.tables.entries import Levels, checked_levels
from dpem.tables.inputs import Table, open_table
from dpem.tables.progress import expect
from dpem.tables.schema import Schema


class PrivateEstimator(PrivateFit, UnitModel):
    """Shared by the estimators of the general models; their docstrings list the parameters.

    A subclass has a constructor, ``_model``, ``_attributes`` and methods that apply the model
    (:class:`~dpem.fitting.results.UnitModel` helps them). Constructor arguments
    ``epsilon, delta, rows_per_person, budget, check, random_state`` are read here, and of ``bounds, y_bounds, levels``
    those that the subclass has.
    """

    _every_level: ClassVar[bool] = False  # whether a categorical column has a coordinate for its first level too

    # --- what a subclass defines --------------------------------------------------------------------------------------

    @abstractmethod
    def _model(self, schema: Schema) -> Any:
        """The model (see ``dpem.fitting.Model``) at the constructor's arguments; refuses wrong ones."""

    @abstractmethod
    def _attributes(self, theta: Any, schema: Schema) -> dict[str, Any]:
        """Fitted attributes in the table's units, by name, from the released parameters alone."""

    # --- planning and fitting --------------------------------------------------------------------------------------

    def plan(
        self,
        n: int,
        d: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        effect: float | None = None,
    ) -> Plan:
        """The steps of a fit to n rows, their prices and the predicted error. Nothing is read or spent.

        Parameters
        ----------
        n : int
            Rows of the table.
        d : int, optional
            Columns of the table, the response not counted; not needed where bounds or levels name them.
        columns : sequence of str, optional
            Their names.
        target : str, optional
            The response's name, where bounds are given by name and hold its own.
        effect : float, optional
            The assumed strength of effects, in the measure that the plan names. It changes the prediction, not the fit.

        Returns
        -------
        Plan
        """
        rows = arguments.count("n", n)
        if (formula := self._compiled()) is not None:
            return self._planned(rows, self._schema(formula.names, formula.column_levels, formula.response), effect)
        names = self._column_names(columns, d, target)
        schema = self._schema(names, checked_levels(self._given("levels")), None, plan=True)
        return self._planned(rows, schema, effect)

    def _check_columns(self, source: Any) -> None:
        """Refuse columns without bounds or levels, and a response without bounds."""
        names = tuple(getattr(source, "feature_names", None) or (f"x{j}" for j in range(source.n_features)))
        if (formula := self._compiled()) is not None:
            missing_columns(formula, names)
            return
        levels, weight = checked_levels(self._given("levels")), self._given("weights")
        names = tuple(name for name in names if name != weight)
        self._limits(names, levels, getattr(source, "target_name", None))

    def _preview_plan(self, X: Any, y: Any = None) -> Plan:
        """The plan of a fit to these rows, once everything that the fit would refuse has been. No query is sent."""
        self._check_arguments()
        weight, probe = self._given("weights"), copy.copy(self)
        table = self._open(probe, X, y, weight)
        names = without_weight(probe, table.names, weight)
        return self._planned(table.source.n_rows, self._schema(names, table.levels, table.y_name))

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit the model to the rows under differential privacy.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            The rows. Entries that are not finite are missing.
        y : array, optional
            The responses, for models that have them.

        Returns
        -------
        self
        """
        return self._fit(X, y)

    @all_at_once
    def _fit(self, X: Any, y: Any, weight: str | None = None) -> Self:
        """Fit the model; ``weight`` is the column of the rows' weights."""
        self._check_arguments()
        table = self._open(self, X, y, weight)
        names = without_weight(self, table.names, weight)
        bounds, y_bounds = self._limits(names, table.levels, table.y_name)
        schema = self._coordinates(table.names, table.levels, bounds, y_bounds, weight)
        plan = self._planned(table.source.n_rows, schema)
        noise = self._noise(stacklevel=5)
        hopeless = () if plan.feasible else (f"expect little more than noise of this fit: {plan.advice}.",)
        for remark in (*plan.remarks, *hopeless):
            warnings.warn(remark, UserWarning, stacklevel=4)
        model = self._model(schema)

        def run(curator: Curator) -> Any:
            expect(plan.n * plan.passes)
            return run_steps(curator, model, plan.steps, model.start())

        columns = {
            **{name: digest({"bounds": list(pair)})[:8] for name, pair in bounds.items()},
            **{name: digest({"levels": list(own.labels)})[:8] for name, own in table.levels.items()},
        }
        with single_blas():
            state, guarantee, charge = self._spend(table.source, plan, noise, run, columns=columns)
        declared = {
            "columns_": names,
            "levels_": table.levels,
            "bounds_": bounds,
            "y_bounds_": y_bounds,
            "y_name_": table.y_name,
        }
        fitted = self._coordinates(names, table.levels, bounds, y_bounds)
        self._set_fitted(state, fitted, declared, plan, guarantee)
        content.name_model(charge, self)
        issue(self.diagnostics_, stacklevel=4)
        return self

    def _set_fitted(
        self, state: State, schema: Schema, declared: dict[str, Any], plan: Plan, guarantee: Guarantee
    ) -> None:
        """Set the fitted attributes. ``declared`` is what was publicly known of the columns."""
        fitted = {
            "theta_": state.theta,
            "schema_": schema,
            **declared,
            "fit_check_": state.check,
            "plan_": plan,
            "guarantee_": guarantee,
            "releases_": guarantee.mechanisms,
            "chosen_": state.chosen,
            **self._attributes(state.theta, schema if state.chosen is None else schema.take(state.chosen)),
        }
        self.__dict__.update(fitted)

    @single_blas()
    def _planned(self, n: int, schema: Schema, effect: float | None = None) -> Plan:
        """The one way to a plan: sizes, steps, price and prediction from public numbers."""
        epsilon, delta = arguments.privacy_parameters(self.epsilon, self.delta)
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        model = self._model(schema)
        price = (
            Price(math.inf, model.gaussian)
            if math.isinf(epsilon)
            else largest_price(epsilon, delta, gaussian=model.gaussian)
        )
        part = 0.0 if arguments.optional_positive("max_weight", self._given("max_weight")) is None else WEIGHTS_SHARE
        of_weights, rho = prices(price.rho, (part, 1 - part))
        sizes = Sizes(n, epsilon, delta, rho, rows_per_person, self.check)
        steps = model.steps(sizes)
        expected = model.predict_fit(sizes._replace(effect=_assumed(effect, model)), steps)
        remarks = (*remarks_on(epsilon, delta, n), *expected.remarks)
        d = len(np.unique(schema.column))
        prediction = expected.prediction
        if part:
            steps = (FindWeights(of_weights), *steps)
            prediction = prediction and replace(prediction, assumed=prediction.assumed + ASSUMED)
        whole = (n, d, epsilon, delta, rows_per_person, steps, price, prediction, remarks)
        return Plan(self._name(), *whole, expected.feasible, expected.advice, self._settings())

    def _check_arguments(self) -> None:
        """Refuse what is wrong whatever the rows are."""
        content.refuse_unsavable(type(self))
        self._privacy_parameters()
        arguments.boolean("check", self.check)

    def _schema(
        self, names: Sequence[str], levels: dict[str, Levels], y_name: str | None, *, plan: bool = False
    ) -> Schema:
        return self._coordinates(names, levels, *self._limits(names, levels, y_name, plan=plan))

    def _limits(
        self, names: Sequence[str], levels: dict[str, Levels], y_name: str | None, *, plan: bool = False
    ) -> tuple[dict[str, Pair], Pair | None]:
        """The public bounds of every column without levels, and of the response."""
        if (formula := self._compiled()) is not None:
            return formula.column_bounds, self._response_limits(formula.response) if self._needs_y else None
        if not hasattr(self, "bounds") and (lacking := [name for name in names if name not in levels]):
            raise ArgumentError("levels", f"must name every column, but lack {listed(lacking)}.")
        given = self._given("bounds")
        given = (-1.0, 1.0) if plan and given is None else given  # a plan is about unit coordinates, whatever they are
        bounds = column_bounds(given, names, levels)
        if not self._needs_y or (plan and self._given("y_bounds") is None):
            return bounds, None
        return bounds, self._response_limits(y_name)

    def _response_limits(self, y_name: str | None) -> Pair:
        """The public bounds of the response."""
        if (formula := self._compiled()) is not None:
            return formula.response_bounds()
        return response_bounds(self._given("y_bounds"), self._given("bounds"), y_name)

    def _open(self, probe: Any, X: Any, y: Any, weight: str | None) -> Table:
        """The table, opened but not read; the probe learns its columns."""
        if (formula := self._compiled()) is not None:
            probe._formula_ = formula
            return open_derived(probe, formula, X, y, weight, **self._who())
        return open_table(probe, X, y, needs_y=self._needs_y, **self._declared(weight))

    def _coordinates(
        self,
        names: Sequence[str],
        levels: dict[str, Levels],
        bounds: dict[str, Pair],
        y_bounds: Pair | None,
        weight: str | None = None,
    ) -> Schema:
        return Schema.of(
            names,
            bounds,
            {name: own.values for name, own in levels.items()},
            labels={name: own.labels for name, own in levels.items()},
            y_bounds=y_bounds,
            every_level=self._every_level,
            weight=weight,
            max_weight=self._given("max_weight") or 1.0,
        )

    def _column_names(self, columns: Sequence[str] | None, d: int | None, target: str | None) -> tuple[str, ...]:
        """The columns that a plan is about: those given, or those that bounds and levels name."""
        if columns is not None:
            return tuple(columns)
        bounds = self._given("bounds")
        by_name = [*(self._given("levels") or ()), *(bounds if isinstance(bounds, dict) else ())]
        named = [name for name in dict.fromkeys(by_name) if name != target]
        if d is None and not named:
            raise ArgumentError("d", "must be given, the number of columns, unless bounds or levels name the columns.")
        if d is None:
            return tuple(named)
        if named and arguments.count("d", d) > len(named):
            raise ArgumentError(
                "d", f"must be the number of columns that bounds and levels name ({len(named)}), got {d}."
            )
        return tuple(named[:d] if named else (f"x{j}" for j in range(arguments.count("d", d))))

    def _declared(self, weight: str | None = None) -> dict[str, Any]:
        """What was declared of columns by name: levels, and bounds or a weight, which say that a column holds
        numbers.
        """
        bounds = self._given("bounds")
        spelled = (*(bounds if isinstance(bounds, Mapping) else ()), *([] if weight is None else [weight]))
        return {"levels": self._given("levels"), "spelled": spelled, **self._who()}

    def _compiled(self) -> CompiledFormula | None:
        """The formula over the declared columns, if there is one."""
        if self._given("formula") is None:
            return None
        return compiled(
            self._given("formula"),
            self._given("bounds"),
            self._given("levels"),
            needs_y=self._needs_y,
            y_bounds=self._given("y_bounds"),
        )

    @classmethod
    def from_formula(cls, formula: str, /, *others: Any, **settings: Any) -> Self:
        """An estimator whose columns are the terms of a formula; ``fit`` and ``predict`` take the raw table.

        Parameters
        ----------
        formula : str
            Such as ``"log(wage) ~ educ + I(exper**2) + C(region) * married"``; ``"~ x + log(y)"`` without a response.
        *others, **settings
            Arguments of the constructor; ``bounds`` and ``levels`` are of the raw columns, which are clamped to them
            first. The bounds of terms follow from them.

        Returns
        -------
        estimator
        """
        return cls(*others, formula=formula, **settings)

    def _given(self, name: str) -> Any:
        return getattr(self, name, None)

    def _settings(self) -> dict[str, Any]:
        found = super()._settings()
        if found.get("formula", "") is None:
            del found["formula"]
        if (formula := self._compiled()) is not None:
            found["terms"] = formula.terms
        return found


def _assumed(effect: Any, model: Any) -> float | None:
    """The strength of effects that a plan assumes; None for the usual."""
    if effect is None:
        return None
    if model.effect is None:
        raise ArgumentError("effect", "must be None: this model's prediction assumes no strength of effects.")
    return float(model.effect.checked(effect))
