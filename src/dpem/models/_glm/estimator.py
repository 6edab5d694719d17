"""What the estimators of generalised linear models share: results in the table's units."""

from __future__ import annotations

from typing import Any, ClassVar

import array_api_compat.numpy as numpy_api
import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.inference import RegressionResults
from dpem.fitting.uncertainty import Uncertainty, frame
from dpem.fitting.weights import WeightedFit
from dpem.models._glm.diagnostics import diagnostics
from dpem.models._glm.model import GeneralisedLinearModel, Parameters
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema

NOTE = (
    "Standard errors hold sampling and privacy noise. They assume that the model's mean is right; rows with a missing "
    "value are left out."
)


class GeneralisedLinearEstimator(WeightedFit, RegressionResults, PrivateEstimator):
    """Coefficients, ratios, intervals and predictions of a generalised linear model.

    A subclass has a constructor, ``_model`` and ``_ratio``, the name of exp(coefficient).
    """

    _needs_y = True
    _ratio: ClassVar[str] = "ratio"

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        slopes = theta.coef / schema.half
        return {
            "coef_": slopes,
            "intercept_": theta.intercept - float(schema.middle @ slopes),
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

    def _fitted_model(self) -> GeneralisedLinearModel:
        check_is_fitted(self)
        model: GeneralisedLinearModel = self._model(self.schema_)
        return model

    def _to_units(self) -> FloatArray:
        """The matrix that takes (intercept, free coefficients) of unit coordinates to the table's units."""
        free = self._fitted_model().free
        own = free[1:] - 1
        out = np.diag(np.concatenate([[1.0], 1 / self.schema_.half[own]]))
        out[0, 1:] = -self.schema_.middle[own] / self.schema_.half[own]
        return out

    def _uncertainty(self) -> Uncertainty:
        free = self._fitted_model().free
        names = ("intercept", *(self.coef_names_[j - 1] for j in free[1:]))
        values = np.concatenate([[self.intercept_], self.coef_[free[1:] - 1]])
        T = self._to_units()
        parts = [T @ part @ T.T for part in (self.theta_.sampling, self.theta_.privacy)]
        sampling, privacy = (np.sqrt(np.maximum(np.diag(part), 0.0)) for part in parts)
        return Uncertainty.of(names, values, sampling, privacy, NOTE, covariance=parts[0] + parts[1])

    def summary(self, level: float = 0.95) -> Any:
        """A DataFrame with a row for each coefficient: estimate, standard error, how much of it is sampling and how
        much privacy, the interval, the size that would be detected, and the ratio exp(estimate) with its interval. The
        fit check and a note on the errors are in its ``attrs``.
        """
        found = frame(self._errors.rows(level))
        with np.errstate(over="ignore"):
            for name, of in (
                (self._ratio, "estimate"),
                (f"{self._ratio}_lower", "lower"),
                (f"{self._ratio}_upper", "upper"),
            ):
                found[name] = np.exp(found[of])
        found.attrs["note"] = self._errors.note
        found.attrs["fit_check"] = None if self.fit_check_ is None else str(self.fit_check_)
        return found

    def _diagnostics(self) -> list[Diagnostic]:
        return diagnostics(self.theta_, self._fitted_model(), self.plan_)

    def _picture_scale(self) -> tuple[FloatArray, str]:
        half = self.schema_.half[self._fitted_model().free[1:] - 1]
        return np.concatenate([[1.0], half]), "units of the linear predictor, over half of a column’s bounds"

    def _predictors(self, X: Any) -> FloatArray:
        """The linear predictor of each row; NaN where a covariate is missing."""
        model = self._fitted_model()

        def each(xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
            missing = np.isnan(x).any(axis=1)
            return np.where(missing, np.nan, model.eta(numpy_api, theta, np.where(np.isnan(x), 0.0, x)))

        return np.asarray(self._each(each, X), dtype=float)

    def _inverse_link(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        family = self._fitted_model().family
        return family.mean(np, eta), family.variance(np, eta)
