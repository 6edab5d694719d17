"""Logistic regression of a response with two levels: coefficients, odds ratios and probabilities."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags

from dpem._validation import ArgumentError
from dpem.fitting.columns import Columns
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.formula import CompiledFormula
from dpem.fitting.formula_terms import logical, parsed, refusal
from dpem.fitting.formula_text import raw_columns
from dpem.fitting.sequence import keeps_arguments
from dpem.fitting.step import State
from dpem.models._glm.estimator import GeneralisedLinearEstimator
from dpem.models._glm.families import Bernoulli, Family
from dpem.models._glm.model import GeneralisedLinearModel, Parameters
from dpem.queries.histograms import BINS
from dpem.query import FloatArray
from dpem.tables.bounds import Pair
from dpem.tables.entries import Levels, checked_levels
from dpem.tables.inputs import Table, open_table, response_name, response_of
from dpem.tables.schema import Schema

__all__ = ["DPLogisticRegression", "Parameters"]

#: The least number of responses of the rarer class for each coefficient (Peduzzi et al. 1996).
EVENTS = 10
#: The bounds of the mean response.
LEAST_MEAN = 1e-4
#: The bins of the response's unit coordinate in which its two levels lie, −1/3 and 1/3.
NO, YES = (int((1 + u) * BINS / 2) for u in (-1 / 3, 1 / 3))


@dataclass(frozen=True)
class LogisticRegression(GeneralisedLinearModel):
    """logit P(y = 1) = intercept + coef·u."""

    def response_of(self, shares: FloatArray, noise: float) -> tuple[float, Family]:
        yes, no = (max(float(shares[place]), 0.5 * noise, 1e-6) for place in (YES, NO))
        return min(max(yes / (yes + no), LEAST_MEAN), 1 - LEAST_MEAN), self.family

    def explained_share(self, fitted: FloatArray) -> float:
        mean = float(np.mean(fitted))
        return 1 - float(np.mean(fitted * (1 - fitted))) / max(mean * (1 - mean), 1e-12)


class DPLogisticRegression(ClassifierMixin, GeneralisedLinearEstimator):
    """Logistic regression under differential privacy: coefficients, odds ratios and probabilities with intervals.

    Besides ε and δ it needs public bounds of every column, or levels. Rows with a missing value contribute nothing, as
    in R's ``glm``.

    Parameters
    ----------
    classes : sequence of two, default (0, 1)
        The two levels of the response, numbers or texts. Coefficients are about the odds of the second. A response that
        is neither counts as missing. ``levels`` may hold them instead, under the response's name.
    {glm}
    {shared}

    Attributes
    ----------
    coef_, intercept_ : array, float
        Changes of the log-odds for one unit of each column, and the intercept. ``coef_names_`` says what each
        coefficient belongs to, a column or a level of one.
    odds_ratios_ : array
        ``exp(coef_)``.
    classes_ : array
        The two levels of the response.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 20000)
    >>> ill = rng.random(20000) < 1 / (1 + np.exp(3 - 0.05 * age))
    >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=(18, 90)).fit(age[:, None], ill)
    >>> bool(abs(model.coef_[0] - 0.05) < 0.01)
    True
    """

    _ratio = "odds_ratio"
    _mean_words = ("predicted probability", "observed share")

    @keeps_arguments
    def __init__(
        self,
        *,
        sparsity: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        levels: Any = None,
        classes: Any = None,
        formula: str | None = None,
        weights: str | None = None,
        max_weight: float | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: Any = None,
    ) -> None: ...

    def _model(self, schema: Schema) -> LogisticRegression:
        return LogisticRegression(schema, family=Bernoulli(), **self._shared(schema))

    def _classes_of(self, y_name: str | None) -> Levels:
        """The response's two levels: ``classes``, or the levels under its name, or 0 and 1."""
        levels = self.classes
        if levels is None and isinstance(self.levels, Mapping):
            levels = self.levels.get(y_name)
        if levels is None:
            return Levels((0.0, 1.0), ("0", "1"), False)
        if isinstance(levels, str) or not isinstance(levels, Sequence | np.ndarray) or len(levels) != 2:
            raise ArgumentError("classes", "must be the two levels of the response, such as (0, 1) or ('no', 'yes').")
        return checked_levels({"classes": levels})["classes"]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _response_limits(self, y_name: str | None) -> Pair:
        no, yes = self._classes_of(y_name).values
        middle, half = (no + yes) / 2, 1.5 * abs(yes - no)  # the levels are at −1/3 and 1/3 of the unit coordinate
        return middle - half, middle + half

    def _formula_levels(self) -> Any:
        if self.classes is None:
            return self.levels
        return {**(self.levels or {}), raw_columns(self.formula, needs_y=True)[-1]: self.classes}

    def _compiled(self) -> CompiledFormula | None:
        formula = super()._compiled()
        if formula is None:
            return None
        assert formula.response is not None
        if logical(parsed(formula.response)):
            formula.response_bounds()  # refuses a comparison that it cannot compute
        elif not isinstance(parsed(formula.response), ast.Name):
            example = "as in 'I(y > 3) ~ x'"
            raise refusal(f"must have a column or a comparison left of '~', {example}, not {formula.response!r}.")
        return formula

    def _open(self, probe: Any, X: Any, y: Any, weight: str | None) -> Table:
        if self.formula is not None:
            return super()._open(probe, X, y, weight)
        name, declared = response_name(X, y), self._declared(weight)
        if isinstance(self.levels, Mapping):
            declared["levels"] = {column: levels for column, levels in self.levels.items() if column != name}
        return open_table(probe, X, y, needs_y=True, **declared, y_levels=self._classes_of(name))

    def _set_fitted(self, state: State, columns: Columns, *others: Any) -> None:
        if not state.theta.labels:
            labels = self._classes_of(columns.y_name).labels
            state = replace(state, theta=replace(state.theta, labels=labels))
        super()._set_fitted(state, columns, *others)

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        attributes = super()._attributes(theta, schema)
        try:
            classes = np.array([float(label) for label in theta.labels])
        except ValueError:
            classes = np.array(theta.labels, dtype=object)
        return {**attributes, "odds_ratios_": np.exp(attributes["coef_"]), "classes_": classes}

    def _diagnostics(self) -> list[Diagnostic]:
        diagnostics, theta, k = super()._diagnostics(), self.theta_, len(self.theta_.sampling)
        share = min(theta.response, 1 - theta.response)
        events = self.plan_.n * theta.complete * share
        if events < EVENTS * k:
            rarer = theta.labels[int(theta.response < 0.5)]
            diagnostics.append(
                Diagnostic(
                    "few-events",
                    "warning",
                    f"About {events:.0f} responses are {rarer!r}, for {k} coefficients: intervals may be too short.",
                    "Fewer columns or more rows would help.",
                )
            )
        return diagnostics

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The log-odds of the second class for each row; NaN where a covariate is missing."""
        return self._predictors(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            Rows with the columns that were fitted.

        Returns
        -------
        array of shape (rows, 2)
            NaN where a covariate is missing.
        """
        p = Bernoulli().mean(np, self._predictors(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable class of each row; the first where a covariate is missing.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            Rows with the columns that were fitted.

        Returns
        -------
        array of shape (rows,)
        """
        return np.asarray(self.classes_[(self._predictors(X) > 0).astype(int)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy: the share of rows with the predicted class among those with a response that is a class.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or source
            Rows that were not used for the fit: their score is not private.
        y : array
            Their classes; any other entry counts as missing.
        sample_weight : array, optional
            Weights of the rows.

        Returns
        -------
        float
            NaN where no response is one of the classes.
        """
        predicted = (self._predictors(X) > 0).astype(int)
        levels = checked_levels({"classes": list(self.theta_.labels)})["classes"]
        response = np.asarray(response_of(y, levels), dtype=float)
        present = np.isfinite(response)
        right = response[present] == np.array(levels.values)[predicted[present]]
        weights = np.ones(len(right)) if sample_weight is None else np.asarray(sample_weight)[present]
        return float(weights @ right / weights.sum()) if len(right) else math.nan
