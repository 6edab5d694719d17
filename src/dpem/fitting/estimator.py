"""The base class of the general models' estimators: declared columns, plan, fit, fitted attributes."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpem import _validation as arguments
from dpem._threads import single_blas
from dpem._validation import ArgumentError
from dpem.fitting import serialization
from dpem.fitting.columns import Columns
from dpem.fitting.derived import open_derived
from dpem.fitting.diagnostics import issue
from dpem.fitting.formula import CompiledFormula, compiled, missing_columns
from dpem.fitting.model import Model, Sizes
from dpem.fitting.plan import Plan
from dpem.fitting.rehearsal import Errors, bootstrap
from dpem.fitting.results import UnitModel
from dpem.fitting.sequence import PrivateFit, atomic, privacy_remarks
from dpem.fitting.step import State, prices, run_steps
from dpem.fitting.weights import ASSUMED, WEIGHTS_SHARE, FindWeights, without_weight
from dpem.privacy import Curator, Guarantee, Price, largest_price
from dpem.query import FloatArray
from dpem.tables import Source
from dpem.tables.bounds import Pair, column_bounds, list_columns, response_bounds
from dpem.tables.entries import Levels, checked_levels
from dpem.tables.inputs import Table, open_table
from dpem.tables.progress import expect
from dpem.tables.schema import Schema

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


class PrivateEstimator(PrivateFit, UnitModel):
    """The base class of the general models' estimators, whose docstrings list the parameters.

    A subclass has a constructor, ``_model``, ``_attributes`` and methods for new rows, for which
    :class:`~dpem.fitting.results.UnitModel` has helpers. Its constructor has the arguments ``epsilon, delta,
    rows_per_person, budget, check, random_state`` and those of ``bounds, y_bounds, levels`` that the model needs.
    """

    _has_offset: ClassVar[bool] = False  # whether a formula may have an offset
    _every_level: ClassVar[bool] = False  # whether a categorical column has a coordinate for its first level too
    # for an estimator whose constructor lacks the argument
    bounds: Any = None
    y_bounds: Any = None
    levels: Any = None
    formula: str | None = None
    weights: str | None = None
    max_weight: float | None = None

    # --- what a subclass defines --------------------------------------------------------------------------------------

    @abstractmethod
    def _model(self, schema: Schema) -> Model:
        """The model at the constructor's arguments; refuses wrong ones."""

    @abstractmethod
    def _attributes(self, theta: Any, schema: Schema) -> dict[str, object]:
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
            The number of rows.
        d : int, optional
            The number of columns without the response; not needed where bounds or levels name the columns.
        columns : sequence of str, optional
            The names of the columns.
        target : str, optional
            The name of the response, if ``bounds`` has an entry for it.
        effect : float, optional
            The assumed strength of effects, in the measure that the plan names. It changes the prediction, not the fit.
        """
        rows = arguments.count("n", n)
        if (formula := self._compiled()) is not None:
            return self._planned(rows, self._schema(formula.names, formula.column_levels, formula.response), effect)
        names = self._column_names(columns, d, target)
        return self._planned(rows, self._schema(names, checked_levels(self.levels), None, plan=True), effect)

    def _check_columns(self, source: Source) -> None:
        """Refuse columns without bounds or levels, and a response without bounds."""
        names = tuple(getattr(source, "feature_names", None) or (f"x{j}" for j in range(source.n_features)))
        if (formula := self._compiled()) is not None:
            missing_columns(formula, names)
            return
        names = tuple(name for name in names if name != self.weights)
        self._columns(names, checked_levels(self.levels), getattr(source, "target_name", None))

    def _preview_plan(self, X: object, y: object = None) -> Plan:
        """The plan of a fit to these rows, refused where the fit would be. No query is sent."""
        self._check_arguments()
        weight, probe = self.weights, copy.copy(self)
        table = self._open(probe, X, y, weight)
        names = without_weight(probe, table.names, weight)
        return self._planned(table.source.n_rows, self._schema(names, table.levels, table.y_name))

    def fit(self, X: object, y: object = None) -> Self:
        """Fit the model to the rows under differential privacy.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            The rows. Entries that are not finite are missing.
        y : array, optional
            The responses, for models that have them.
        """
        return self._fit(X, y)

    @atomic
    def _fit(self, X: object, y: object, weight: str | None = None) -> Self:
        """Fit the model; ``weight`` names the column of the rows' weights."""
        self._check_arguments()
        table = self._open(self, X, y, weight)
        names = without_weight(self, table.names, weight)
        columns = self._columns(names, table.levels, table.y_name)
        schema = replace(columns, names=table.names).schema(self._every_level, weight, self.max_weight or 1.0)
        plan = self._planned(table.source.n_rows, schema)
        model = self._model(schema)

        def run(curator: Curator) -> State:
            expect(plan.n * plan.passes)
            return run_steps(curator, model, plan.steps, model.start())

        with single_blas():
            state, guarantee, charge = self._spend(table.source, plan, run, columns=columns.digests())
        self._set_fitted(state, columns, plan, guarantee)
        serialization.name_model(charge, self)
        issue(self.diagnostics_)
        return self

    def _set_fitted(self, state: State, columns: Columns, plan: Plan, guarantee: Guarantee) -> None:
        """Set the fitted attributes, all at once."""
        schema = columns.schema(self._every_level)
        attributes = self._attributes(state.theta, schema if state.chosen is None else schema.take(state.chosen))
        self.theta_, self.chosen_, self.fit_check_, self.schema_ = state.theta, state.chosen, state.check, schema
        self.columns_, self.levels_, self.bounds_ = columns.names, columns.levels, columns.bounds
        self.y_name_, self.y_bounds_ = columns.y_name, columns.y_bounds
        self.plan_, self.guarantee_, self.releases_ = plan, guarantee, guarantee.mechanisms
        self.__dict__.update(attributes)

    @single_blas()
    def _planned(self, n: int, schema: Schema, effect: float | None = None) -> Plan:
        """The plan of a fit to n rows of this schema; every plan is made here."""
        epsilon, delta = arguments.privacy_parameters(self.epsilon, self.delta)
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        model = self._model(schema)
        price = largest_price(epsilon, delta, gaussian=model.gaussian)
        weights_rho, rho = self._weights_price(price)
        sizes = Sizes(n, epsilon, delta, rho, rows_per_person, self.check)
        steps = model.steps(sizes)
        if effect is not None:
            if model.effect is None:
                raise ArgumentError("effect", "must be None: this model's prediction assumes no strength of effects.")
            effect = model.effect.checked(effect)
        expected = model.predict_fit(sizes._replace(effect=effect), steps)
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
            remarks=(*privacy_remarks(epsilon, delta, n), *expected.remarks),
            feasible=expected.feasible,
            advice=expected.advice,
            settings=self._settings(),
        )

    def _weights_price(self, price: Price) -> tuple[float, float]:
        """The parts of ρ for the moments of the weights (0 without weights) and for the model's steps."""
        if arguments.optional_positive("max_weight", self.max_weight) is None:
            return 0.0, price.rho
        weights_rho, rho = prices(price.rho, (WEIGHTS_SHARE, 1 - WEIGHTS_SHARE))
        return weights_rho, rho

    def _bootstrap(self, values: Callable[[State], FloatArray], *, repeats: int = 60) -> Errors:
        """Standard errors of ``values(state)`` by a parametric bootstrap of the fit
        (:func:`~dpem.fitting.rehearsal.bootstrap`): the model's ``draw`` simulates rows, without weights.
        """
        plan, model = self.plan_, self._model(self.schema_)
        _, rho = self._weights_price(plan.price)
        steps = model.steps(Sizes(plan.n, plan.epsilon, plan.delta, rho, plan.rows_per_person, self.check))
        sizes = {"n": plan.n, "rows_per_person": plan.rows_per_person}
        return bootstrap(model, steps, self.theta_, values, **sizes, repeats=repeats)

    def _check_arguments(self) -> None:
        """Refuse arguments that are wrong for every table."""
        serialization.refuse_unsavable(type(self))
        self._privacy_parameters()
        arguments.boolean("check", self.check)

    def _settings(self) -> dict[str, object]:
        settings = super()._settings()
        if settings.get("formula", "") is None:
            del settings["formula"]
        if (formula := self._compiled()) is not None:
            settings["terms"] = formula.terms
        return settings

    # --- the declared columns -----------------------------------------------------------------------------------------

    @classmethod
    def from_formula(cls, formula: str, /, *others: object, **settings: object) -> Self:
        """An estimator whose covariates are the terms of a formula; ``fit`` and ``predict`` take the table itself.

        Parameters
        ----------
        formula : str
            Such as ``"log(wage) ~ educ + I(exper**2) + C(region) * married"``; ``"~ x + log(y)"`` without a response.
        *others, **settings
            Arguments of the constructor. ``bounds`` and ``levels`` are those of the table's columns, which are clamped
            to them before terms are computed; the bounds of the terms follow from them.
        """
        return cls(*others, formula=formula, **settings)

    def _schema(
        self, names: Sequence[str], levels: dict[str, Levels], y_name: str | None, *, plan: bool = False
    ) -> Schema:
        """The schema of these columns at their declared bounds; ``plan`` as in :meth:`_columns`."""
        return self._columns(names, levels, y_name, plan=plan).schema(self._every_level)

    def _columns(
        self, names: Sequence[str], levels: dict[str, Levels], y_name: str | None, *, plan: bool = False
    ) -> Columns:
        """The columns with their declared bounds and levels, and the response; for a ``plan``, bounds are optional."""
        if (formula := self._compiled()) is not None:
            limits = self._response_limits(formula.response) if self._needs_y else None
            return Columns(tuple(names), levels, formula.column_bounds, y_name, limits)
        if "bounds" not in self._get_param_names() and (
            without_levels := [name for name in names if name not in levels]
        ):
            raise ArgumentError("levels", f"must name every column, but lack {list_columns(without_levels)}.")
        # a plan is in unit coordinates, whatever the bounds are
        declared = (-1.0, 1.0) if plan and self.bounds is None else self.bounds
        limits = None
        if self._needs_y and not (plan and self.y_bounds is None):
            limits = self._response_limits(y_name)
        return Columns(tuple(names), levels, column_bounds(declared, names, levels), y_name, limits)

    def _response_limits(self, y_name: str | None) -> Pair:
        if (formula := self._compiled()) is not None:
            return formula.response_bounds()
        has_bounds = "bounds" in self._get_param_names()
        return response_bounds(self.y_bounds, self.bounds, y_name if has_bounds else None)

    def _open(self, probe: BaseEstimator, X: object, y: object, weight: str | None) -> Table:
        """Open the table without reading it; sets ``n_features_in_`` and ``feature_names_in_`` of ``probe``."""
        if (formula := self._compiled()) is not None:
            probe._formula_ = formula
            return open_derived(probe, formula, X, y, weight, **self._unit())
        return open_table(probe, X, y, needs_y=self._needs_y, **self._declared(weight))

    def _column_names(self, columns: Sequence[str] | None, d: int | None, target: str | None) -> tuple[str, ...]:
        """The names of a plan's columns: ``columns``, those that bounds and levels name, or x0, x1, …"""
        if columns is not None:
            return tuple(columns)
        bounds = self.bounds
        declared = [*(self.levels or ()), *(bounds if isinstance(bounds, dict) else ())]
        named = [name for name in dict.fromkeys(declared) if name != target]
        if d is None and not named:
            raise ArgumentError("d", "must be given: the number of columns, which bounds and levels do not name.")
        if d is None:
            return tuple(named)
        if named and arguments.count("d", d) > len(named):
            raise ArgumentError(
                "d", f"must be at most {len(named)}, the number of columns that bounds and levels name; got {d}."
            )
        return tuple(named[:d] if named else (f"x{j}" for j in range(arguments.count("d", d))))

    def _declared(self, weight: str | None = None) -> dict[str, Any]:
        """The declared facts that opening a table needs: levels, names of numeric columns, and the privacy unit."""
        numeric = (*(self.bounds if isinstance(self.bounds, Mapping) else ()), *([] if weight is None else [weight]))
        return {"levels": self.levels, "numeric": numeric, **self._unit()}

    def _compiled(self) -> CompiledFormula | None:
        """The formula over the declared columns, if there is one."""
        if self.formula is None:
            return None
        options = {"needs_y": self._needs_y, "y_bounds": self.y_bounds, "offset": self._has_offset}
        return compiled(self.formula, self.bounds, self._formula_levels(), **options)

    def _formula_levels(self) -> object:
        """The levels of the columns that a formula reads."""
        return self.levels
