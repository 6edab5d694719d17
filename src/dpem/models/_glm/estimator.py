"""The shared estimator of generalised linear models: arguments, results in the table's units, predictions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import array_api_compat.numpy as numpy_api
import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem._validation import Argument, ArgumentError, count
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.formula import CompiledFormula
from dpem.fitting.formula_terms import refusal
from dpem.fitting.inference import RegressionResults
from dpem.fitting.summary import Extra
from dpem.fitting.uncertainty import Uncertainty, pandas_of
from dpem.fitting.weights import WeightedFit
from dpem.models._glm.diagnostics import calibration_table, diagnose, miscalibration
from dpem.models._glm.implied_terms import ImpliedTerms
from dpem.models._glm.model import GeneralisedLinearModel, Parameters
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema

NOTE = (
    "Standard errors include sampling and privacy noise. They assume that the mean of the model is right; rows with a "
    "missing value are left out."
)


#: What replaces ``{glm}`` and ``{attributes}`` in the docstrings of the models.
PARAMETERS = """sparsity : int, optional
        The largest number of columns to use; they are chosen under the same price. By default all columns are used.
    epsilon, delta : float
        The privacy of the whole fit. ``epsilon=inf`` is the non-private reference: maximum likelihood.
    bounds : dict, pair or path
        Public limits of each column: by name, as (low, high) of numbers or vectors, or a file.
    levels : dict, optional
        Levels of categorical columns by name; the first is the baseline.
    formula : str, optional
        The columns of the model, such as ``"y ~ x + I(x**2) + C(g)"`` (see :meth:`from_formula`).
    weights : str, optional
        The column of the rows' weights, such as those of a survey; only their proportions matter.
    max_weight : float, optional
        The public bound of the weights; larger ones are clipped to it.
    check : bool, default True
        Whether 5 % of the price is spent on a fit check against the intercept alone and a table of calibration."""
ATTRIBUTES = """mean_, covariance_ : array
        Mean and covariance of the coordinates, as released.
    complete_share_ : float
        The share of rows without a missing value; too small where columns have long tails, which clipping hides.
    converged_ : bool
        Whether the reference fit converged; always True with privacy, where the number of steps is fixed."""


class GeneralisedLinearEstimator(WeightedFit, RegressionResults, PrivateEstimator):
    """Coefficients, ratios, intervals and predictions of a generalised linear model.

    A subclass has a constructor, ``_model``, ``_ratio``, the name of exp(coefficient), and ``_mean_words``, what
    predicted and observed means are called.
    """

    _needs_y = True
    _has_offset = True
    _ratio: ClassVar[str] = "ratio"
    _mean_words: ClassVar[tuple[str, str]] = ("predicted mean", "observed mean")

    def __init_subclass__(cls, **keywords: Any) -> None:
        cls.__doc__ = str(cls.__doc__).replace("{glm}", PARAMETERS).replace("{attributes}", ATTRIBUTES)
        super().__init_subclass__(**keywords)

    @abstractmethod
    def _model(self, schema: Schema) -> GeneralisedLinearModel: ...

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        coef = np.zeros(theta.width)
        coef[theta.chosen] = slopes = theta.coef / schema.half
        return {
            "coef_": coef,
            "intercept_": theta.intercept - float(schema.middle @ slopes),
            "support_": theta.chosen,
            "mean_": schema.middle + schema.half * theta.mean,
            "covariance_": theta.covariance * np.outer(schema.half, schema.half),
            "complete_share_": theta.complete,
            "converged_": theta.converged,
        }

    @property
    def coef_names_(self) -> tuple[str, ...]:
        """What each of ``coef_`` belongs to: a column, or a level of one."""
        check_is_fitted(self)
        return tuple(self.schema_.names)

    def _compiled(self) -> CompiledFormula | None:
        formula = super()._compiled()
        return formula if formula is None or self.sparsity is not None else ImpliedTerms(formula).with_carriers()

    def _shared(self, schema: Schema) -> dict[str, Any]:
        """The model's arguments that do not depend on the family; wrong ones are refused."""
        formula, sparsity = self._compiled(), self.sparsity
        if sparsity is not None and self.max_weight is not None:
            raise ArgumentError(
                "sparsity", "must be None where rows have weights: the choice of columns does not use them."
            )
        named = {name: getattr(self, name, None) for name in ("offset", "exposure")}
        if formula is not None and formula.offset is not None:
            if any(named.values()):
                raise refusal("must have no offset(…) beside the argument offset or exposure.")
            named["offset"] = formula.offset
        for name, column in named.items():
            if column is not None and column not in schema.names:
                raise ArgumentError(name, f"must be the name of a numeric column of X, got {column!r}.")
        if None not in named.values():
            raise ArgumentError("offset", "and ", Argument("exposure"), " must not both be given.")
        offset, exposure = (-1 if column is None else schema.names.index(column) for column in named.values())
        if exposure >= 0 and not schema.middle[exposure] - schema.half[exposure] > 0:
            raise ArgumentError(
                "bounds", f"of the exposure {named['exposure']!r} must be positive: its logarithm is taken."
            )
        return {
            "sparsity": None if sparsity is None else count("sparsity", sparsity),
            "terms": None if formula is None else ImpliedTerms(formula),
            "carriers": tuple(schema.names.index(c.name) for c in (formula.columns if formula else ()) if c.carrier),
            "offset_coordinate": offset,
            "exposure": exposure,
        }

    def _fitted_model(self) -> GeneralisedLinearModel:
        """The model on the columns that were chosen."""
        check_is_fitted(self)
        model: GeneralisedLinearModel = self._model(self.schema_)
        return model.restricted_to(self.chosen_)

    def _to_units(self) -> FloatArray:
        """The matrix that takes (intercept, free coefficients) of unit coordinates to the table's units."""
        model = self._fitted_model()
        columns = model.free[1:] - 1
        middle, half = model.schema.middle[columns], model.schema.half[columns]
        out = np.diag(np.concatenate([[1.0], 1 / half]))
        out[0, 1:] = -middle / half
        return out

    def _uncertainty(self) -> Uncertainty:
        columns = self.theta_.chosen[self._fitted_model().free[1:] - 1]
        names = ("intercept", *(self.coef_names_[j] for j in columns))
        values = np.concatenate([[self.intercept_], self.coef_[columns]])
        T = self._to_units()
        parts = [T @ part @ T.T for part in (self.theta_.sampling, self.theta_.privacy)]
        sampling, privacy = (np.sqrt(np.maximum(np.diag(part), 0.0)) for part in parts)
        note = NOTE if self.sparsity is None else f"{NOTE} They do not allow for the choice of columns."
        return Uncertainty.of(names, values, sampling, privacy, note, covariance=parts[0] + parts[1])

    def summary(self, level: float = 0.95) -> Any:
        """A DataFrame with a row for each coefficient.

        Its columns are the estimate, the standard error with its parts due to sampling and privacy, the interval, the
        detectable size, and the ratio exp(estimate) with its interval. The fit check and a note on the errors are in
        its ``attrs``.
        """
        table = self._errors.frame(level)
        with np.errstate(over="ignore"):
            for suffix, column in (("", "estimate"), ("_lower", "lower"), ("_upper", "upper")):
                table[self._ratio + suffix] = np.exp(table[column])
        table.attrs["note"] = self._errors.note
        table.attrs["fit_check"] = None if self.fit_check_ is None else str(self.fit_check_)
        return table

    def _diagnostics(self) -> list[Diagnostic]:
        model = self._fitted_model()
        calibration = miscalibration(self.theta_.calibration, model.family, self._mean_words)
        return [*diagnose(self.theta_, model, self.plan_.epsilon, self._products_with_levels), *calibration]

    def _extra(self) -> Extra | None:
        return calibration_table(self.theta_.calibration, self._mean_words)

    @property
    def calibration_(self) -> Any:
        """A DataFrame with a row for each interval of the prediction; it is empty without a fit check.

        Its columns are the share of rows, the predicted and the observed mean of the response, and the standard error
        of the observed mean.
        """
        check_is_fitted(self)
        names = ("share", "predicted", "observed", "standard_error")
        return pandas_of(dict(zip(names, self.theta_.calibration.T, strict=False)))

    def _picture_scale(self) -> tuple[FloatArray, str]:
        model = self._fitted_model()
        half = model.schema.half[model.free[1:] - 1]
        return np.concatenate([[1.0], half]), "units of the linear predictor, over half of a column’s bounds"

    def _predictors(self, X: Any) -> FloatArray:
        """The linear predictor of each row; NaN where a covariate is missing."""
        model: GeneralisedLinearModel = self._model(self.schema_)

        def predictor(xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
            missing = np.isnan(x).any(axis=1)
            return np.where(missing, np.nan, model.eta(numpy_api, theta, np.where(np.isnan(x), 0.0, x)))

        return np.asarray(self._each(predictor, X), dtype=float)

    def _mean_offset(self) -> float:
        model = self._fitted_model()
        return float(model.predictor(model.offset)(np, self.theta_.mean[None])[0])

    def _inverse_link(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        family = self._fitted_model().family
        return family.mean(np, eta), family.variance(np, eta)
