"""Tests, contrasts and predictions of a fitted regression, under the names that statsmodels has for them.

All of it is post-processing of released coefficients and of the covariance of their errors, at no price. Statistics are
compared with normal and chi-square laws: errors hold sampling, privacy noise and what clipping may hide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from dpem._validation import ArgumentError, is_fraction
from dpem.fitting.check import NEEDED, FitCheck
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.uncertainty import Uncertainty, pandas_of
from dpem.query import Array, FloatArray, Namespace

#: Coefficients whose joint test has a smaller p-value differ clearly from 0.
CLEAR = 0.001


@dataclass(frozen=True)
class Contrasts:
    """Linear combinations of coefficients, each tested against a value."""

    names: tuple[str, ...]
    effect: FloatArray
    sd: FloatArray
    value: FloatArray

    @property
    def statistic(self) -> FloatArray:
        return np.asarray((self.effect - self.value) / self.sd)

    @property
    def pvalue(self) -> FloatArray:
        """Two-sided, from the normal law."""
        return np.asarray(2 * ndtr(-np.abs(self.statistic)))

    def conf_int(self, level: float = 0.95) -> FloatArray:
        """Lower and upper end of each combination's interval."""
        reach = float(ndtri(0.5 + is_fraction("level", level) / 2)) * self.sd
        return np.column_stack([self.effect - reach, self.effect + reach])

    def summary_frame(self, level: float = 0.95) -> Any:
        """A DataFrame with a row for each combination."""
        low, high = self.conf_int(level).T
        columns = {"coef": self.effect, "std err": self.sd, "z": self.statistic, "P>|z|": self.pvalue}
        return pandas_of({**columns, "lower": low, "upper": high}, self.names)

    def __str__(self) -> str:
        return str(self.summary_frame().round(4))


@dataclass(frozen=True)
class WaldTest:
    """A joint test of linear hypotheses: a chi square with ``df`` degrees of freedom under all of them."""

    statistic: float
    df: int
    pvalue: float

    def __str__(self) -> str:
        return f"chi² = {self.statistic:.4g} with {self.df} degrees of freedom, p = {self.pvalue:.3g}"


@dataclass(frozen=True)
class Predictions:
    """Predicted means with their errors, and intervals of new responses where the model has a law for them."""

    predicted_mean: FloatArray
    se_mean: FloatArray
    eta: FloatArray
    se_eta: FloatArray
    model: Any

    def summary_frame(self, alpha: float = 0.05) -> Any:
        """A DataFrame of means, errors and intervals; ``obs_ci_*`` are those of responses that are numbers."""
        reach = float(ndtri(1 - is_fraction("alpha", alpha) / 2))
        low, high = (self.model._inverse_link(self.eta + sign * reach * self.se_eta)[0] for sign in (-1, 1))
        columns = {"mean": self.predicted_mean, "mean_se": self.se_mean, "mean_ci_lower": low, "mean_ci_upper": high}
        observed = self.model._new_responses(self.eta, self.se_eta, alpha)
        if observed is not None:
            columns |= {"obs_ci_lower": observed[0], "obs_ci_upper": observed[1]}
        return pandas_of(columns, None)


class RegressionResults:
    """The tests, contrasts and predictions of a fitted regression with coefficients.

    A subclass has ``_errors`` with the covariance of its coefficients, the intercept first, and says how predictors
    become means (``_inverse_link``) and what new responses may be (``_new_responses``).
    """

    _errors: Uncertainty

    def _inverse_link(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean at a predictor, and its derivative."""
        return eta, np.ones_like(eta)

    def _new_responses(self, eta: FloatArray, error: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray] | None:
        """The ends of intervals that hold new responses, where the response is a number."""
        return None

    def _predictors(self, X: Any) -> FloatArray:
        """The linear predictor of each row."""
        return self._design(X) @ self._coefficients()[1]

    def _coefficients(self) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
        """Names, values and covariance of the coefficients."""
        check_is_fitted(self)
        errors = self._errors
        k = len(errors.covariance)
        if k == 0:
            raise ValueError("the covariance of this fit's coefficients is not known.")
        return errors.names[:k], errors.estimate[:k], errors.covariance

    def _design(self, X: Any) -> FloatArray:
        """(1, the coordinates that have a coefficient) of each row, in the table's units; NaN where one is missing."""
        own: Any = self
        schema = own.schema_ if own.chosen_ is None else own.schema_.take(own.chosen_)
        places = [schema.names.index(name) for name in self._coefficients()[0][1:]]

        def each(xp: Namespace, theta: Any, x: Array, y: Array) -> Array:
            return np.column_stack([np.ones(len(x)), (schema.middle + schema.half * x)[:, places]])

        return np.asarray(own._each(each, X), dtype=float)

    def _failed_check(self, check: FitCheck) -> Diagnostic:
        """A failed fit check is a note where the coefficients differ clearly from 0 and the check does not contradict
        them: its price is a small part of theirs, and it is the noisier of the two.
        """
        k = len(self._coefficients()[0])
        undecided = check.lead > -NEEDED * check.standard_error
        if k < 2 or not undecided or self.wald_test(np.eye(k)[1:]).pvalue > CLEAR:
            return Diagnostic("fit-check", "warning", str(check))
        size = f"lead {check.lead:.3g} per row, standard error {check.standard_error:.2g}"
        why = f"its own noise is too large, and the coefficients are jointly significant (Wald test, p < {CLEAR:g})."
        return Diagnostic("fit-check", "note", f"{check.verdict} ({size}): {why}")

    # --- what users call -------------------------------------------------------------------------------------------

    def cov_params(self) -> Any:
        """The covariance of the coefficients' errors, sampling and privacy together, as a DataFrame."""
        names, _, covariance = self._coefficients()
        return pandas_of(dict(zip(names, covariance.T, strict=True)), names)

    def t_test(self, hypotheses: Any) -> Contrasts:
        """Test each linear hypothesis by itself.

        Parameters
        ----------
        hypotheses : str or array of shape (hypotheses, coefficients)
            Such as ``"educ = 0.1"`` or ``"C(region)=south - C(region)=west = 0, married = 0"``; a coefficient alone is
            compared with 0. A name may stand between backquotes. Rows of an array are combinations compared with 0.

        Returns
        -------
        Contrasts
        """
        names, values, covariance = self._coefficients()
        R, q, labels = _hypotheses(hypotheses, names)
        variance = np.einsum("ij,jk,ik->i", R, covariance, R)
        return Contrasts(labels, R @ values, np.sqrt(np.maximum(variance, 0.0)), q)

    def wald_test(self, hypotheses: Any) -> WaldTest:
        """Test linear hypotheses jointly.

        Parameters
        ----------
        hypotheses : str or array of shape (hypotheses, coefficients)
            As of :meth:`t_test`, or the name of a factor or a term, such as ``"C(region)"``: all of its coefficients.

        Returns
        -------
        WaldTest
        """
        names, values, covariance = self._coefficients()
        R, q, _ = _hypotheses(hypotheses, names)
        off = R @ values - q
        df = int(np.linalg.matrix_rank(R))
        statistic = float(off @ np.linalg.pinv(R @ covariance @ R.T, rcond=1e-12, hermitian=True) @ off)
        return WaldTest(statistic, df, float(chdtrc(df, statistic)))

    def get_prediction(self, X: Any) -> Predictions:
        """Means of new rows with standard errors, intervals, and intervals of new responses.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            Rows with the columns that were fitted.

        Returns
        -------
        Predictions
            ``summary_frame(alpha)`` is a DataFrame of them; NaN where a covariate is missing.
        """
        design, eta = self._design(X), self._predictors(X)
        variance = np.einsum("ij,jk,ik->i", design, self._coefficients()[2], design)
        error = np.sqrt(np.maximum(variance, 0.0))
        mean, slope = self._inverse_link(eta)
        return Predictions(mean, slope * error, eta, error, self)

    def marginal_effects(self, X: Any = None) -> Any:
        """How the mean response changes with each coordinate: the average over rows of its derivative and, for a level,
        of the change from the baseline.

        Parameters
        ----------
        X : table, optional
            Public rows to average over. Without them the effects are those at the released mean of the columns. If
            these are the rows that were fitted, the guarantee does not cover the average.

        Returns
        -------
        DataFrame
            A row for each coordinate: ``dy/dx``, ``std err``, ``z``, ``P>|z|``, ``lower``, ``upper``.
        """
        own: Any = self
        names, values, covariance = self._coefficients()
        schema = own.schema_ if own.chosen_ is None else own.schema_.take(own.chosen_)
        places = [schema.names.index(name) for name in names[1:]]
        if X is None:
            order = np.argsort(own.theta_.chosen) if hasattr(own.theta_, "chosen") else slice(None)
            middle = dict(zip(np.asarray(schema.names)[order], own.mean_, strict=True))
            design = np.array([[1.0, *(middle[name] for name in names[1:])]])
            eta = design @ values
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
        variance = np.einsum("ij,jk,ik->i", gradients, covariance, gradients)
        found = Contrasts(names[1:], effects, np.sqrt(np.maximum(variance, 0.0)), np.zeros(len(effects)))
        return found.summary_frame().rename(columns={"coef": "dy/dx"})

    def _slope_effect(
        self, design: FloatArray, eta: FloatArray, values: FloatArray, j: int
    ) -> tuple[float, FloatArray]:
        """The mean derivative by a coordinate, and its gradient by the coefficients."""
        slope = self._inverse_link(eta)[1]
        bend = (self._inverse_link(eta + 1e-4)[1] - self._inverse_link(eta - 1e-4)[1]) / 2e-4
        gradient = values[j] * (bend[:, None] * design).mean(axis=0)
        gradient[j] += slope.mean()
        return float(values[j] * slope.mean()), gradient

    def _level_effect(
        self, design: FloatArray, eta: FloatArray, values: FloatArray, factor: Sequence[int], j: int
    ) -> tuple[float, FloatArray]:
        """The mean change from the baseline to a level, and its gradient by the coefficients."""
        without = design.copy()
        without[:, list(factor)] = 0.0
        with_level = without.copy()
        with_level[:, j] = 1.0
        base = eta - design @ values  # the offset
        (high, up), (low, down) = (self._inverse_link(base + rows @ values) for rows in (with_level, without))
        gradient = (up[:, None] * with_level - down[:, None] * without).mean(axis=0)
        return float((high - low).mean()), gradient

    def tidy(self, level: float = 0.95) -> Any:
        """The coefficients as R's ``broom::tidy`` has them: a DataFrame, for ``to_csv``."""
        names, values, covariance = self._coefficients()
        found = Contrasts(names, values, np.sqrt(np.diag(covariance)), np.zeros(len(names)))
        low, high = found.conf_int(level).T
        columns = {"term": list(names), "estimate": values, "std.error": found.sd, "statistic": found.statistic}
        return pandas_of({**columns, "p.value": found.pvalue, "conf.low": low, "conf.high": high}, None)

    def glance(self) -> Any:
        """The fit in one row, as R's ``broom::glance`` has it: a DataFrame, for ``to_csv``."""
        own: Any = self
        check_is_fitted(own)
        plan, check = own.plan_, own.fit_check_
        columns: dict[str, list[Any]] = {"model": [plan.model], "nobs": [plan.n], "epsilon": [plan.epsilon]}
        columns |= {"delta": [plan.delta], "df": [len(self._coefficients()[0])]}
        for name, attribute in (("sigma", "sigma_"), ("r.squared", "r_squared_"), ("dispersion", "dispersion_")):
            if getattr(own, attribute, None) is not None:
                columns[name] = [getattr(own, attribute)]
        if check is not None:
            columns |= {"lead": [check.lead], "lead.std.error": [check.standard_error]}
        return pandas_of(columns, None)


def compare(first: Any, second: Any, *, same_rows: bool = False) -> tuple[Any, WaldTest]:
    """The differences between the coefficients that two fits share, and a joint test that all are 0.

    Parameters
    ----------
    first, second : fitted estimators
        Their privacy noise is independent. So is their sampling error, if they were fitted to different rows.
    same_rows : bool, default False
        Whether both were fitted to the same rows: their sampling errors are then correlated, in a way that is not
        released, and standard errors are those of the worst case.

    Returns
    -------
    (DataFrame, WaldTest)
    """
    parts = [fit._coefficients() for fit in (first, second)]
    shared = [name for name in parts[0][0] if name in parts[1][0]]
    if not shared:
        raise ValueError("the two fits share no coefficient.")
    places = [[names.index(name) for name in shared] for names, _, _ in parts]
    effect = parts[0][1][places[0]] - parts[1][1][places[1]]
    covariances = [own[2][np.ix_(place, place)] for own, place in zip(parts, places, strict=True)]
    joint = covariances[0] + covariances[1]
    if same_rows:  # Var(a − b) ≤ 2·(Var a + Var b), whatever their correlation
        joint = 2 * joint
    found = Contrasts(tuple(shared), effect, np.sqrt(np.diag(joint)), np.zeros(len(shared)))
    statistic = float(effect @ np.linalg.pinv(joint, hermitian=True) @ effect)
    test = WaldTest(statistic, len(shared), float(chdtrc(len(shared), statistic)))
    return found.summary_frame().rename(columns={"coef": "difference"}), test


def _hypotheses(hypotheses: Any, names: Sequence[str]) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """The matrix and right side of linear hypotheses about named coefficients, and what each is called."""
    if isinstance(hypotheses, str):
        if hypotheses in names:
            return np.eye(len(names))[[names.index(hypotheses)]], np.zeros(1), (hypotheses,)
        levels = [j for j, name in enumerate(names) if _belongs(name, hypotheses)]
        if levels:
            return np.eye(len(names))[levels], np.zeros(len(levels)), tuple(names[j] for j in levels)
        from formulaic.errors import FormulaicError  # which loads pandas: only texts need it
        from formulaic.utils.constraints import LinearConstraints

        try:
            found = LinearConstraints.from_spec(_backquoted(hypotheses, names), variable_names=list(names))
        except (FormulaicError, ValueError, SyntaxError, KeyError):
            raise ArgumentError(
                "hypotheses",
                f"must be like 'x = 0' in the coefficients {', '.join(map(repr, names))}; got {hypotheses!r}.",
            ) from None
        matrix, values = np.atleast_2d(found.constraint_matrix), np.ravel(found.constraint_values)
        labels = [part.strip() for part in hypotheses.split(",")]
        return matrix, values, tuple(labels if len(labels) == len(matrix) else map(str, range(len(matrix))))
    matrix = np.atleast_2d(np.asarray(hypotheses, dtype=float))
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise ArgumentError(
            "hypotheses", f"must have {len(names)} columns, one for each coefficient, got {matrix.shape}."
        )
    return matrix, np.zeros(len(matrix)), tuple(f"c{i}" for i in range(len(matrix)))


def _backquoted(hypotheses: str, names: Sequence[str]) -> str:
    """The hypotheses with names that are no words between backquotes.

    >>> _backquoted("g=a - g=ab = `x y`", ["g=a", "g=ab", "x y"])
    '`g=a` - `g=ab` = `x y`'
    """
    odd = sorted((name for name in names if not name.isidentifier()), key=len, reverse=True)
    pattern = "|".join(["`[^`]*`", *map(re.escape, odd)])
    return re.sub(pattern, lambda found: found[0] if found[0][0] == "`" else f"`{found[0]}`", hypotheses)


def _belongs(name: str, term: str) -> bool:
    """Whether a coefficient is one of a factor's levels, of a term's columns or of an interaction's."""
    parts, wanted = name.split(":"), term.split(":")
    return len(parts) == len(wanted) and all(
        part == own or part.startswith((f"{own}=", f"{own}[", f"C({own})="))
        for part, own in zip(parts, wanted, strict=True)
    )


def normal_responses(eta: FloatArray, error: FloatArray, sigma: float, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Intervals of new responses with normal errors of one size."""
    reach = float(ndtri(1 - alpha / 2)) * np.sqrt(error**2 + sigma**2)
    return eta - reach, eta + reach
