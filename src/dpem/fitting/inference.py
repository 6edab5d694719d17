"""Tests, contrasts and predictions of a fitted regression, under their names in statsmodels.

They cost nothing: they are post-processing of the released coefficients and of their covariance, which covers sampling,
privacy noise and the possible bias by clipping. Tests use the normal and the chi-square distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from dpem._validation import ArgumentError, is_fraction
from dpem.fitting.check import NEEDED, FitCheck
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.results import UnitModel
from dpem.fitting.uncertainty import Contrasts, WaldTest, hypotheses_about, pandas_of, standard_errors
from dpem.query import Array, FloatArray, Namespace

if TYPE_CHECKING:
    from pandas import DataFrame

#: A Wald test of all slopes with a smaller p-value outweighs an inconclusive fit check.
CLEAR = 0.001


@dataclass(frozen=True)
class Predictions:
    """Predicted means of rows with their standard errors, and the linear predictors ``eta`` with theirs."""

    predicted_mean: FloatArray
    se_mean: FloatArray
    eta: FloatArray
    se_eta: FloatArray
    model: RegressionResults

    def summary_frame(self, alpha: float = 0.05) -> DataFrame:
        """A DataFrame of means, standard errors and intervals of level 1 − ``alpha``; where the response is a number,
        ``obs_ci_lower`` and ``obs_ci_upper`` are the prediction interval of a new response.
        """
        z = float(ndtri(1 - is_fraction("alpha", alpha) / 2))
        low, high = (self.model._inverse_link(self.eta + sign * z * self.se_eta)[0] for sign in (-1, 1))
        columns = {"mean": self.predicted_mean, "mean_se": self.se_mean, "mean_ci_lower": low, "mean_ci_upper": high}
        observed = self.model._new_responses(self.eta, self.se_eta, alpha)
        if observed is not None:
            columns |= {"obs_ci_lower": observed[0], "obs_ci_upper": observed[1]}
        return pandas_of(columns)


class RegressionResults(UnitModel):
    """The tests, contrasts and predictions of a fitted regression.

    A subclass defines ``_uncertainty`` with the covariance of its coefficients, the intercept first, and, if the link
    is not the identity, ``_inverse_link``; where the response is a number, also ``_new_responses``.
    """

    def _inverse_link(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean response at linear predictors ``eta``, and its derivative by ``eta``."""
        return eta, np.ones_like(eta)

    def _new_responses(self, eta: FloatArray, error: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray] | None:
        """The ends of prediction intervals of new responses, where the response is a number."""
        return None

    def _mean_offset(self) -> float:
        """The offset at the released mean of the columns."""
        return 0.0

    def _predictors(self, X: object) -> FloatArray:
        """The linear predictor of each row."""
        return self._design(X) @ self._coefficients()[1]

    def _coefficients(self) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
        """Names, values and covariance of the coefficients."""
        errors = self._errors
        k = len(errors.covariance)
        if k == 0:
            raise ValueError("this fit released no covariance of its coefficients, so they cannot be tested.")
        return errors.names[:k], errors.estimate[:k], errors.covariance

    def _design(self, X: object) -> FloatArray:
        """The design matrix in the table's units, with a column of ones first; NaN where a value is missing."""
        schema, places = self._parameter_schema, self._places()

        def design(xp: Namespace, theta: object, x: Array, y: Array) -> Array:
            return np.column_stack([np.ones(len(x)), (schema.middle + schema.half * x)[:, places]])

        return np.asarray(self._each(design, X), dtype=float)

    def _places(self) -> list[int]:
        """The positions in the fitted schema of the coordinates that have a coefficient."""
        return [self._parameter_schema.names.index(name) for name in self._coefficients()[0][1:]]

    def _failed_check(self, check: FitCheck) -> Diagnostic:
        """A note instead of a warning where the check is inconclusive and the slopes are jointly significant: the check
        has a small part of the price, so it is noisier than they are.
        """
        k = len(self._coefficients()[0])
        inconclusive = check.lead > -NEEDED * check.standard_error
        if k < 2 or not inconclusive or self.wald_test(np.eye(k)[1:]).pvalue > CLEAR:
            return Diagnostic("fit-check", "warning", str(check))
        size = f"lead {check.lead:.3g} per row, standard error {check.standard_error:.2g}"
        why = (
            f"its standard error is too large, but the coefficients are jointly significant (Wald test, p < {CLEAR:g})."
        )
        return Diagnostic("fit-check", "note", f"{check.verdict} ({size}): {why}")

    # --- public methods ---------------------------------------------------------------------------------------------

    def cov_params(self) -> DataFrame:
        """The covariance matrix of the coefficients, by sampling and privacy noise together, as a DataFrame."""
        names, _, covariance = self._coefficients()
        return pandas_of(dict(zip(names, covariance.T, strict=True)), names)

    def t_test(self, hypotheses: object) -> Contrasts:
        """Test each linear hypothesis separately.

        Parameters
        ----------
        hypotheses : str or array of shape (hypotheses, coefficients)
            Such as ``"educ = 0.1"`` or ``"C(region)=south - C(region)=west = 0, married = 0"``; the right side is 0 if
            it is left out. Names may be in backquotes. A row of an array is a combination that is compared with 0.
        """
        names, values, covariance = self._coefficients()
        R, q, labels = hypotheses_about(names, hypotheses)
        return Contrasts(labels, R @ values, standard_errors(R, covariance), q)

    def wald_test(self, hypotheses: object) -> WaldTest:
        """Test linear hypotheses jointly.

        Parameters
        ----------
        hypotheses : str or array of shape (hypotheses, coefficients)
            As for :meth:`t_test`, or the name of a factor or term, such as ``"C(region)"``, for all its coefficients.
        """
        names, values, covariance = self._coefficients()
        R, q, _ = hypotheses_about(names, hypotheses)
        return WaldTest.of(R @ values - q, R @ covariance @ R.T, int(np.linalg.matrix_rank(R)))

    def get_prediction(self, X: object) -> Predictions:
        """Predicted means of new rows with standard errors, confidence intervals and prediction intervals.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            Rows with the columns of the fit.

        Returns
        -------
        Predictions
            Its ``summary_frame(alpha)`` is a DataFrame. Rows with a missing covariate have NaN.
        """
        design, eta = self._design(X), self._predictors(X)
        error = standard_errors(design, self._coefficients()[2])
        mean, slope = self._inverse_link(eta)
        return Predictions(mean, slope * error, eta, error, self)

    def marginal_effects(self, X: object = None) -> DataFrame:
        """Average marginal effects: the mean over rows of the derivative of the mean response by each coordinate, and
        for a level of the change from the baseline. As in statsmodels, each term of a formula is a coordinate.

        Parameters
        ----------
        X : table, optional
            Public rows to average over; without them, the effects at the released mean of the columns. The guarantee
            does not cover an average over the rows of the fit.

        Returns
        -------
        DataFrame
            A row for each coordinate: ``dy/dx``, ``std err``, ``z``, ``P>|z|``, ``lower``, ``upper``.
        """
        names, values, covariance = self._coefficients()
        schema, places = self._parameter_schema, self._places()
        if X is None:
            order = np.argsort(self.theta_.chosen) if hasattr(self.theta_, "chosen") else slice(None)
            middle = dict(zip(np.asarray(schema.names)[order], self.mean_, strict=True))
            design = np.array([[1.0, *(middle[name] for name in names[1:])]])
            eta = design @ values + self._mean_offset()
        else:
            design, eta = self._design(X), self._predictors(X)
            complete = np.isfinite(eta)
            design, eta = design[complete], eta[complete]
        effects, gradients = np.empty(len(places)), np.empty((len(places), len(values)))
        for i, place in enumerate(places):
            if schema.level[place] >= 0:
                factor = [1 + j for j, other in enumerate(places) if schema.column[other] == schema.column[place]]
                effects[i], gradients[i] = self._level_effect(design, eta, values, factor, i + 1)
            else:
                effects[i], gradients[i] = self._slope_effect(design, eta, values, i + 1)
        contrasts = Contrasts(names[1:], effects, standard_errors(gradients, covariance))
        return contrasts.summary_frame().rename(columns={"coef": "dy/dx"})

    def _slope_effect(
        self, design: FloatArray, eta: FloatArray, values: FloatArray, j: int
    ) -> tuple[float, FloatArray]:
        """The mean derivative by coordinate j, and its gradient by the coefficients."""
        slope = self._inverse_link(eta)[1]
        second = (self._inverse_link(eta + 1e-4)[1] - self._inverse_link(eta - 1e-4)[1]) / 2e-4
        gradient = values[j] * (second[:, None] * design).mean(axis=0)
        gradient[j] += slope.mean()
        return float(values[j] * slope.mean()), gradient

    def _level_effect(
        self, design: FloatArray, eta: FloatArray, values: FloatArray, factor: Sequence[int], j: int
    ) -> tuple[float, FloatArray]:
        """The mean change from the baseline to level j of a ``factor``, and its gradient by the coefficients."""
        baseline = design.copy()
        baseline[:, list(factor)] = 0.0
        with_level = baseline.copy()
        with_level[:, j] = 1.0
        offset = eta - design @ values
        (high, high_slope), (low, low_slope) = (
            self._inverse_link(offset + rows @ values) for rows in (with_level, baseline)
        )
        gradient = (high_slope[:, None] * with_level - low_slope[:, None] * baseline).mean(axis=0)
        return float((high - low).mean()), gradient

    def tidy(self, level: float = 0.95) -> DataFrame:
        """The coefficients as a DataFrame with the columns of R's ``broom::tidy``."""
        names, values, covariance = self._coefficients()
        contrasts = Contrasts(names, values, np.sqrt(np.diag(covariance)))
        low, high = contrasts.conf_int(level).T
        columns = {"term": list(names), "estimate": values, "std.error": contrasts.sd, "statistic": contrasts.statistic}
        return pandas_of({**columns, "p.value": contrasts.pvalue, "conf.low": low, "conf.high": high})

    def glance(self) -> DataFrame:
        """The fit as a DataFrame of one row with the columns of R's ``broom::glance``."""
        plan, check = self.plan_, self.fit_check_
        columns: dict[str, list[object]] = {"model": [plan.model], "nobs": [plan.n], "epsilon": [plan.epsilon]}
        columns |= {"delta": [plan.delta], "df": [len(self._coefficients()[0])]}
        for name, attribute in (("sigma", "sigma_"), ("r.squared", "r_squared_"), ("dispersion", "dispersion_")):
            if getattr(self, attribute, None) is not None:
                columns[name] = [getattr(self, attribute)]
        if check is not None:
            columns |= {"lead": [check.lead], "lead.std.error": [check.standard_error]}
        return pandas_of(columns)


def compare(
    first: RegressionResults, second: RegressionResults, *, same_rows: bool = False
) -> tuple[DataFrame, WaldTest]:
    """The differences between the coefficients that two fits share, as a DataFrame, and a joint test that all are 0.

    Parameters
    ----------
    first, second : fitted estimators
        Their privacy noise is independent, and so is the sampling error of fits to different rows.
    same_rows : bool, default False
        Whether both were fitted to the same rows. The correlation of their sampling errors is then unknown, and
        standard errors are those of the worst case.
    """
    for name, fit in (("first", first), ("second", second)):
        if not isinstance(fit, RegressionResults) or type(fit) is not type(first):
            kind = "regression" if name == "first" else type(first).__name__
            raise ArgumentError(name, f"must be a fitted {kind}, got {type(fit).__name__}.")
    parts = [fit._coefficients() for fit in (first, second)]
    shared = [name for name in parts[0][0] if name in parts[1][0]]
    if not shared:
        raise ValueError("first and second have no coefficient in common.")
    places = [[names.index(name) for name in shared] for names, _, _ in parts]
    effect = parts[0][1][places[0]] - parts[1][1][places[1]]
    covariances = [part[2][np.ix_(place, place)] for part, place in zip(parts, places, strict=True)]
    joint = covariances[0] + covariances[1]
    if same_rows:  # Var(a − b) ≤ 2·(Var a + Var b), whatever their correlation
        joint = 2 * joint
    contrasts = Contrasts(tuple(shared), effect, np.sqrt(np.diag(joint)))
    return contrasts.summary_frame().rename(columns={"coef": "difference"}), WaldTest.of(
        effect, joint, len(shared), rcond=1e-15
    )


def normal_responses(eta: FloatArray, error: FloatArray, sigma: float, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Prediction intervals of responses with normal errors of standard deviation ``sigma``."""
    half_width = float(ndtri(1 - alpha / 2)) * np.sqrt(error**2 + sigma**2)
    return eta - half_width, eta + half_width
