"""The base class of the general models' estimators: plan, fit, fitted attributes.

The order of a fit matters: all refusals come before the charge, and the fitted attributes change all at once or not at
all (:mod:`dpem.fitting.sequence`). :mod:`dpem.fitting.declared_columns` reads what is declared of the columns.
"""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from dpem import _validation as arguments
from dpem._threads import single_blas
from dpem._validation import ArgumentError
from dpem.fitting import serialization as content
from dpem.fitting.declared_columns import DeclaredColumns
from dpem.fitting.diagnostics import issue
from dpem.fitting.formula import missing_columns
from dpem.fitting.model import Model, Sizes
from dpem.fitting.plan import Plan
from dpem.fitting.rehearsal import Errors, bootstrap
from dpem.fitting.results import UnitModel
from dpem.fitting.sequence import all_at_once, remarks_on
from dpem.fitting.step import State, prices, run_steps
from dpem.fitting.weights import ASSUMED, WEIGHTS_SHARE, FindWeights, without_weight
from dpem.privacy import Curator, Guarantee, Price, digest, largest_price
from dpem.query import FloatArray
from dpem.tables import Source
from dpem.tables.entries import checked_levels
from dpem.tables.progress import expect
from dpem.tables.schema import Schema


class PrivateEstimator(DeclaredColumns, UnitModel):
    """The base class of the general models' estimators, whose docstrings list the parameters.

    A subclass has a constructor, ``_model``, ``_attributes`` and methods for new rows, for which
    :class:`~dpem.fitting.results.UnitModel` has helpers. Its constructor has the arguments ``epsilon, delta,
    rows_per_person, budget, check, random_state`` and those of ``bounds, y_bounds, levels`` that the model needs.
    """

    # --- what a subclass defines --------------------------------------------------------------------------------------

    @abstractmethod
    def _model(self, schema: Schema) -> Any:
        """The :class:`~dpem.fitting.model.Model` at the constructor's arguments; refuses wrong ones."""

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
            The response's name, if ``bounds`` are by name and include the response.
        effect : float, optional
            The assumed strength of effects, in the measure that the plan names. It changes the prediction, not the fit.
        """
        rows = arguments.count("n", n)
        if (formula := self._compiled()) is not None:
            return self._planned(rows, self._schema(formula.names, formula.column_levels, formula.response), effect)
        names = self._column_names(columns, d, target)
        schema = self._schema(names, checked_levels(self._given("levels")), None, plan=True)
        return self._planned(rows, schema, effect)

    def _check_columns(self, source: Source) -> None:
        """Refuse columns without bounds or levels, and a response without bounds."""
        names = tuple(getattr(source, "feature_names", None) or (f"x{j}" for j in range(source.n_features)))
        if (formula := self._compiled()) is not None:
            missing_columns(formula, names)
            return
        levels, weight = checked_levels(self._given("levels")), self._given("weights")
        names = tuple(name for name in names if name != weight)
        self._limits(names, levels, getattr(source, "target_name", None))

    def _preview_plan(self, X: Any) -> Plan:
        """The plan of a fit to these rows; raises whatever the fit would refuse. No query is sent."""
        self._check_arguments()
        weight, probe = self._given("weights"), copy.copy(self)
        table = self._open(probe, X, None, weight)
        names = without_weight(probe, table.names, weight)
        return self._planned(table.source.n_rows, self._schema(names, table.levels, table.y_name))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to the rows under differential privacy.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            The rows. Entries that are not finite are missing.
        y : array, optional
            The responses, for models that have them.
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

        def run(curator: Curator) -> State:
            expect(plan.n * plan.passes)
            return run_steps(curator, model, plan.steps, model.start())

        columns = {
            **{name: digest({"bounds": list(pair)})[:8] for name, pair in bounds.items()},
            **{name: digest({"levels": list(levels.labels)})[:8] for name, levels in table.levels.items()},
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
        """Set the fitted attributes; ``declared`` has those that are public facts about the columns."""
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
        """The plan: sizes, steps, price and prediction, from public numbers. Every plan is made here."""
        epsilon, delta = arguments.privacy_parameters(self.epsilon, self.delta)
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        model = self._model(schema)
        price = largest_price(epsilon, delta, gaussian=model.gaussian)
        weights_rho, rho = self._weights_price(price)
        sizes = Sizes(n, epsilon, delta, rho, rows_per_person, self.check)
        steps = model.steps(sizes)
        expected = model.predict_fit(sizes._replace(effect=_assumed(effect, model)), steps)
        prediction = expected.prediction
        if weights_rho > 0:
            steps = (FindWeights(weights_rho), *steps)
            prediction = prediction and replace(prediction, assumed=prediction.assumed + ASSUMED)
        return Plan(
            model=self._name(),
            n=n,
            d=len(np.unique(schema.column)),
            epsilon=epsilon,
            delta=delta,
            rows_per_person=rows_per_person,
            steps=steps,
            price=price,
            prediction=prediction,
            remarks=(*remarks_on(epsilon, delta, n), *expected.remarks),
            feasible=expected.feasible,
            advice=expected.advice,
            settings=self._settings(),
        )

    def _weights_price(self, price: Price) -> tuple[float, float]:
        """The parts of a price for the weights of rows (0 without weights) and for the model's steps."""
        if arguments.optional_positive("max_weight", self._given("max_weight")) is None:
            return 0.0, price.rho
        weights_rho, rho = prices(price.rho, (WEIGHTS_SHARE, 1 - WEIGHTS_SHARE))
        return weights_rho, rho

    def _bootstrap(self, values: Callable[[State], FloatArray], *, repeats: int = 60) -> Errors:
        """Standard errors of ``values(state)`` by a parametric bootstrap of the fit, also for a loaded model.

        The rows are simulated by the model's ``draw`` and are not weighted (:func:`~dpem.fitting.rehearsal.bootstrap`).
        """
        plan, model = self.plan_, self._model(self.schema_)
        _, rho = self._weights_price(plan.price)
        steps = model.steps(Sizes(plan.n, plan.epsilon, plan.delta, rho, plan.rows_per_person, self.check))
        sizes = {"n": plan.n, "rows_per_person": plan.rows_per_person}
        return bootstrap(model, steps, self.theta_, values, **sizes, repeats=repeats)

    def _check_arguments(self) -> None:
        """Refuse arguments that are wrong whatever the table is."""
        content.refuse_unsavable(type(self))
        self._privacy_parameters()
        arguments.boolean("check", self.check)

    def _settings(self) -> dict[str, Any]:
        settings = super()._settings()
        if settings.get("formula", "") is None:
            del settings["formula"]
        if (formula := self._compiled()) is not None:
            settings["terms"] = formula.terms
        return settings


def _assumed(effect: object, model: Model) -> float | None:
    """The strength of effects that a plan assumes; None for the model's usual one."""
    if effect is None:
        return None
    if model.effect is None:
        raise ArgumentError("effect", "must be None: this model's prediction assumes no strength of effects.")
    return model.effect.checked(effect)
