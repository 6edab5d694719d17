"""Linear regression with an intercept, correlated columns of any scale, factors and missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.inference import RegressionResults, normal_responses
from dpem.fitting.results import Regressor
from dpem.fitting.sequence import keeps_arguments
from dpem.fitting.uncertainty import Uncertainty
from dpem.fitting.weights import WeightedFit
from dpem.models.linear_regression.diagnostics import cost, diagnostics, notes, response_name
from dpem.models.linear_regression.model import LinearRegression
from dpem.models.linear_regression.parameters import Parameters
from dpem.models.linear_regression.selection import SparseLinearRegression
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema


class DPLinearRegression(WeightedFit, RegressionResults, Regressor, PrivateEstimator):
    """Linear regression with an intercept, correlated columns and missing values, under differential privacy.

    Besides ε and δ it needs public bounds of every column and of the response, and nothing else. Values may be
    missing in any column and in the response; they are filled by their expectation given the row's other entries.

    Parameters
    ----------
    sparsity : int, optional
        The largest number of columns to use, chosen under the same price; by default all columns are used.
    fit_intercept : bool, default True
        Whether there is an intercept, in the table's units.
    epsilon, delta : float
        The privacy of the whole fit: centres, spreads, correlations, steps and fit check. ``epsilon=inf`` is the
        non-private reference: least squares, or maximum likelihood where values are missing.
    bounds : dict, pair or path
        Public limits of each column: by name, as (low, high) of numbers or vectors, or a file. That of the response may
        stand among them under its name.
    y_bounds : pair, optional
        Public limits of the response.
    levels : dict, optional
        Levels of categorical columns by name; the first is the baseline.
    formula : str, optional
        The columns of the model and how they are computed, such as ``"y ~ x + I(x**2) + C(g)"`` (see
        :meth:`from_formula`).
    weights : str, optional
        The column of the rows' weights, such as those of a survey; only their proportions matter.
    max_weight : float, optional
        The public bound of the weights; larger ones are clipped to it.
    check : bool, default True
        Spend 5 % of the price on a fit check, the private R².
    {shared}

    Attributes
    ----------
    coef_, intercept_, sigma_ : array, float, float
        Slopes, intercept and standard deviation of the errors, in the table's units. ``coef_names_`` names the column
        or level of each slope; slopes of columns that were not chosen are 0.
    standardized_coef_ : array
        Slopes in spreads of the response per spread of the column.
    support_, mean_, covariance_ : array
        Indices of the slopes that were fitted; mean and covariance of their columns, which impute missing values.
    r_squared_ : float or None
        The private R² of the fit check.
    converged_ : bool
        Whether the reference fit converged; always True with privacy, where the number of steps is fixed.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> rng = np.random.default_rng(0)
    >>> height = rng.normal(170, 10, 20000)
    >>> weight = 0.9 * height - 80 + rng.normal(0, 8, 20000)
    >>> model = DPLinearRegression(epsilon=1.0, delta=1e-6, bounds=(100, 230), y_bounds=(20, 200))
    >>> model = model.fit(height[:, None], weight)
    >>> bool(abs(model.coef_[0] - 0.9) < 0.1)
    True
    """

    _needs_y = True

    @keeps_arguments
    def __init__(
        self,
        *,
        sparsity: int | None = None,
        fit_intercept: bool = True,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        levels: Any = None,
        formula: str | None = None,
        weights: str | None = None,
        max_weight: float | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: Any = None,
    ) -> None: ...

    def _model(self, schema: Schema) -> LinearRegression:
        fit_intercept = arguments.boolean("fit_intercept", self.fit_intercept)
        if self.sparsity is None:
            return LinearRegression(schema, fit_intercept)
        if self.max_weight is not None:
            raise arguments.ArgumentError(
                "sparsity", "must be None if rows have weights, which the choice of columns cannot use."
            )
        return SparseLinearRegression(schema, fit_intercept, arguments.count("sparsity", self.sparsity))

    def _diagnostics(self) -> list[Diagnostic]:
        schema = self.schema_.take(self.theta_.chosen)
        return diagnostics(self.theta_, schema, response_name(self), self._products_with_levels)

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        order = np.argsort(theta.chosen)
        slopes = theta.coef * schema.y_half / schema.half
        coef, standardized = np.zeros(theta.width), np.zeros(theta.width)
        coef[theta.chosen] = slopes
        standardized[theta.chosen] = theta.coef * np.sqrt(np.diag(theta.covariance)) / theta.y_spread
        covariance = theta.covariance * np.outer(schema.half, schema.half)
        return {
            "coef_": coef,
            "intercept_": schema.y_middle + schema.y_half * theta.intercept - float(schema.middle @ slopes),
            "sigma_": schema.y_half * theta.sigma,
            "standardized_coef_": standardized,
            "support_": theta.chosen[order],
            "mean_": (schema.middle + schema.half * theta.mean)[order],
            "covariance_": covariance[np.ix_(order, order)],
            "r_squared_": theta.r_squared.value if theta.r_squared else None,
            "converged_": theta.converged,
        }

    @property
    def coef_names_(self) -> tuple[str, ...]:
        """The column or level of each entry of ``coef_``."""
        check_is_fitted(self)
        return tuple(self.schema_.names)

    def _uncertainty(self) -> Uncertainty:
        theta, schema = self.theta_, self.schema_.take(self.theta_.chosen)
        order = np.concatenate([[0], 1 + np.argsort(theta.chosen)])
        units = np.diag(np.concatenate([[1.0], 1 / schema.half])) * schema.y_half
        units[0, 1:] = -schema.middle / schema.half * schema.y_half
        units = units[order]
        parts = [units @ part @ units.T for part in (theta.sampling, theta.privacy, theta.misfit)]
        sampling, privacy, misfit = (
            np.append(np.sqrt(np.maximum(np.diag(part), 0.0)), schema.y_half * sigma_error)
            for part, sigma_error in zip(parts, theta.sigma_error, strict=True)
        )
        names = ("intercept", *(self.coef_names_[j] for j in self.support_), "sigma")
        values = np.array([self.intercept_, *self.coef_[self.support_], self.sigma_])
        selection = "" if self.sparsity is None else "They do not allow for the choice of columns."
        note = notes(self._diagnostics(), selection, cost(theta, self.plan_.prediction))
        kinds = ("",) * len(order) + ("size",)
        return Uncertainty.of(names, values, sampling, privacy, note, kinds, misfit, sum(parts))

    def _new_responses(self, eta: FloatArray, error: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
        return normal_responses(eta, error, self.sigma_, alpha)

    def _picture_scale(self) -> tuple[FloatArray, str]:
        schema = self.schema_ if self.chosen_ is None else self.schema_.take(self.chosen_)
        return np.concatenate([[1.0], schema.half, [1.0]]), "units of the response, over half of a column’s bounds"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The expected response of each row given its observed values, in the response's units.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            Rows with the columns that were fitted.

        Returns
        -------
        array of shape (rows,)
        """

        def mean(xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
            return LinearRegression(self.schema_).predicted(xp, theta, x)[0]

        return np.asarray(self.schema_.y_middle + self.schema_.y_half * self._each(mean, X))
