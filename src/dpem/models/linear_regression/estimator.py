"""Linear regression with an intercept, correlated columns of any scale, and holes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.inference import RegressionResults, normal_responses
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.step import State, Step
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.linear_regression.clipping import level_clip
from dpem.models.linear_regression.diagnostics import NOTE, bends, cost, far_from_normal, hardly_seen, uneven
from dpem.models.linear_regression.missing_values import expected
from dpem.models.linear_regression.planning import EFFECT, MOMENT_RADIUS, anticipated, divide, divide_wide, missed
from dpem.models.linear_regression.prediction import expected_loss, predicted_fit
from dpem.models.linear_regression.reference import ROUNDING
from dpem.models.linear_regression.residual_scale import CheckExplained, FindLevel
from dpem.models.linear_regression.selection import ChooseColumns, FindMiddle, KeepColumns, best_columns
from dpem.models.linear_regression.steps import FindInformation, FindMoments, FindSpreads, Progress, TakeStep
from dpem.queries.schema import Schema
from dpem.query import FloatArray
from dpem.tables.blocks import like

#: Up to so many columns a plan rehearses one by one.
MOST_REHEARSED = 100


@dataclass(frozen=True)
class Parameters:
    """A fitted regression in unit coordinates, the ``chosen`` ones of ``width``. ``sampling`` and ``privacy`` are
    covariances of (intercept, slopes), ``sigma_error`` the two standard errors of σ; as far as paid answers tell, each
    with its error: ``r_squared``, ``misfit`` the line's bend and how uneven errors are, ``shape`` their skew and tails.
    ``crowded`` tells which columns, and whether the response, have nearly all rows in one bin; ``undecided`` is the
    part of the slopes' variances that is there because rows hardly tell anything of them.
    """

    intercept: float
    coef: FloatArray
    sigma: float
    mean: FloatArray
    covariance: FloatArray
    y_mean: float
    y_spread: float
    sampling: FloatArray
    privacy: FloatArray
    sigma_error: tuple[float, ...]
    r_squared: tuple[float, ...]
    shape: tuple[float, ...]
    misfit: tuple[float, ...]
    seen: FloatArray
    low_end: FloatArray
    high_end: FloatArray
    crowded: tuple[bool, ...]
    undecided: FloatArray
    converged: bool
    chosen: NDArray[np.intp]
    width: int


@dataclass(frozen=True)
class LinearRegression(Model):
    """y = intercept + slopes·x + N(0, σ²), and x ~ N(mean, covariance) where it has holes."""

    fit_intercept: bool = True
    effect = EFFECT

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        way = divide(sizes, self.schema.width)
        return (
            FindSpreads(way.spreads),
            FindMoments(way.moments, way.radius),
            FindInformation(way.information, *way.clips),
            *(TakeStep(rho, way.clips.residual) for rho in way.steps),
            FindLevel(way.level, level_clip(sizes.n, way.level, sizes.rows_per_person)),
            *(CheckExplained(rho) for rho in way.check),
        )

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        p = self.schema.width
        if sizes.n <= p:
            raise ValueError(f"X must have more rows than coordinates ({p}), got {sizes.n}: give sparsity=.")
        if math.isinf(sizes.rho):
            return PredictedFit()
        few = min(p, MOST_REHEARSED)

        def roughly(there: Sizes, p: int = few) -> float:
            return anticipated(there, p, divide(there, p))

        lost = expected_loss(self._rehearsed_on(few), sizes, few, roughly)
        if p > few:  # more columns than that are not rehearsed one by one
            more = roughly(sizes, p) / roughly(sizes)
            lost = (more * lost[0], more * lost[1], more * lost[2])
        return predicted_fit(lost, sizes)

    def _rehearsed_on(self, columns: int) -> LinearRegression:
        """The same regression on so many invented columns."""
        return replace(self, schema=self.schema.take(np.arange(columns)).unit(), fit_intercept=True)

    def kept(self, values: FloatArray, unsure: FloatArray) -> NDArray[np.intp]:
        """Which of the columns to keep, given (intercept, slopes) and their covariance: all of them."""
        return np.arange(len(values) - 1)

    def finished(self, now: Progress, state: State, n: int) -> tuple[Parameters, Progress]:
        """The parameters that the last step leads to, and the progress with what is known to be 0: an intercept that
        there is not, slopes of columns that are not kept.
        """
        schema, frame, belief = self.schema_of(state), now.frame, now.belief
        clips, private = now.clips, bool(now.unsure.any())
        inside = clips.square / (clips.kappa**2 * clips.eta)
        information = now.slope * n / (now.square * inside) + np.diag(1 / now.prior) * (1.0 if private else ROUNDING)
        sampling = np.linalg.inv(information)
        if private:
            sampling[0, 0] = max(sampling[0, 0], now.square / (n * now.present))
        A, b = frame.in_unit_coordinates()
        undecided = now.undecided if private else np.zeros_like(sampling)
        kept = self.kept(A @ belief.mean, A @ (sampling + belief.covariance) @ A.T)
        rows, goals = np.delete(A[1:], kept, axis=0), np.zeros(schema.width - len(kept))
        if not self.fit_intercept:
            row = schema.y_half * np.concatenate([[1.0], -schema.middle / schema.half])
            rows, goals = np.vstack([rows, row @ A]), np.append(goals, -schema.y_middle - float(row @ b))
        if len(goals):
            across = (sampling + belief.covariance) @ rows.T
            gain = np.linalg.solve(rows @ across, across.T).T
            held = np.eye(len(gain)) - gain @ rows
            mean = belief.mean + gain @ (goals - rows @ belief.mean)
            belief = belief._replace(mean=mean, covariance=held @ belief.covariance @ held.T)
            sampling = held @ sampling @ held.T
            undecided = held @ undecided @ held.T
        values = A @ belief.mean + b
        spread, y_spread = frame.spread[:-1], float(frame.spread[-1])
        sigma = math.sqrt(now.square) * y_spread
        unsure = math.sqrt(now.square_variance) / (2 * now.square) * sigma
        own = A[np.append(0, 1 + kept)]
        theta = Parameters(
            intercept=float(values[0]),
            coef=values[1 + kept],
            sigma=sigma,
            mean=frame.centre[kept],
            covariance=(frame.covariance * np.outer(spread, spread))[np.ix_(kept, kept)],
            y_mean=float(frame.centre[-1] + belief.mean[0] * y_spread),
            y_spread=y_spread,
            sampling=own @ sampling @ own.T,
            privacy=own @ (belief.covariance + undecided) @ own.T,
            sigma_error=(sigma / math.sqrt(2 * n * now.present), unsure if private else 0.0),
            r_squared=(),
            shape=now.shape,
            misfit=(),
            seen=now.spreads.seen[kept],
            low_end=now.spreads.low_end[kept],
            high_end=now.spreads.high_end[kept],
            crowded=tuple((private & now.spreads.crowded[np.append(kept, -1)]).tolist()),
            undecided=np.diag(own @ undecided @ own.T)[1:],
            converged=now.converged,
            chosen=kept if state.chosen is None else state.chosen[kept],
            width=self.schema.width,
        )
        return theta, replace(now, belief=belief)

    def predicted(self, xp: Any, theta: Parameters, x: Any) -> tuple[Any, Any]:
        """The mean of each row's response, holes left out, and its variance, in unit coordinates."""
        precision = np.asarray(np.linalg.inv(theta.covariance), dtype=float)
        full, along = expected(xp, x - like(xp, theta.mean, x), precision, theta.coef)
        slopes = like(xp, theta.coef, x)
        level = theta.intercept + float(theta.mean @ theta.coef)
        variance = theta.sigma**2 + xp.clip(xp.matmul(along, slopes), 0.0, math.inf)
        return level + xp.matmul(full, slopes), variance

    def log_density(self, xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
        mean, variance = self.predicted(xp, theta, x)
        told = -0.5 * (xp.log(2 * math.pi * variance) + (y - mean) ** 2 / variance)
        return xp.where(xp.isnan(y), xp.zeros_like(told), told)

    def simpler(self, theta: Parameters) -> Parameters:
        return replace(theta, intercept=theta.y_mean, coef=np.zeros_like(theta.coef), sigma=theta.y_spread)

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        x = theta.mean + rng.standard_normal((n, len(theta.mean))) @ np.linalg.cholesky(theta.covariance).T
        return x, theta.intercept + x @ theta.coef + theta.sigma * rng.standard_normal(n)


@dataclass(frozen=True)
class SparseLinearRegression(LinearRegression):
    """The same on at most ``sparsity`` columns of many, chosen by thresholds: no scale of the others need be known.

    Where columns are correlated a neighbour is often chosen before the column that matters, and that one after it. Once
    both are fitted their slopes tell them apart, so a few more columns are chosen and fitted than are kept.
    """

    sparsity: int = 1
    gaussian: ClassVar[bool] = False

    def kept(self, values: FloatArray, unsure: FloatArray) -> NDArray[np.intp]:
        return best_columns(np.asarray(np.linalg.inv(unsure[1:, 1:]), dtype=float), values[1:], self.sparsity)

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        way = divide_wide(sizes, self.sparsity, self.schema.width)
        steps: list[Step] = [FindMiddle(way.middle)]
        columns = 0
        for choice, spreads, moments, count in way.rounds:
            columns += count
            radius = math.inf if math.isinf(sizes.rho) else MOMENT_RADIUS * math.sqrt(columns + 2)
            steps += [ChooseColumns(choice, count), FindSpreads(spreads), FindMoments(moments, radius)]
        narrow = way.narrow
        steps += [FindInformation(narrow.information, *narrow.clips)]
        steps += [TakeStep(rho, narrow.clips.residual) for rho in narrow.steps]
        steps += [FindLevel(narrow.level, level_clip(sizes.n, narrow.level, sizes.rows_per_person))]
        return (*steps, *(CheckExplained(rho) for rho in narrow.check), KeepColumns(0.0, way.kept))

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        way = divide_wide(sizes, self.sparsity, self.schema.width)
        if math.isinf(sizes.rho):
            return PredictedFit()
        chance = missed(sizes, self.schema.width, way)
        most = min(self.sparsity, self.schema.width)
        fewer = f"{way.kept} of the {most} columns can be chosen at this price." if way.kept < most else ""

        def roughly(there: Sizes) -> float:
            return anticipated(there, way.kept, divide_wide(there, self.sparsity, self.schema.width).narrow)

        lost = expected_loss(self._rehearsed_on(way.chosen), sizes, way.kept, roughly, (self.sparsity, way.chosen))
        told = predicted_fit(lost, sizes, chance, fewer)
        return told._replace(feasible=told.feasible and chance < 0.5)


class DPLinearRegression(RegressionResults, RegressorMixin, PrivateEstimator):
    """Linear regression with an intercept, correlated columns of any scale and holes, under differential privacy.

    Besides ε and δ it needs public bounds of every column and of the response, and nothing else. Holes may be in any
    column and in the response; they are filled with what the observed entries of a row lead to expect.

    Parameters
    ----------
    sparsity : int, optional
        How many columns to use at most: they are chosen under the same price. Without it all columns are used.
    fit_intercept : bool, default True
        Whether there is an intercept, in the table's units.
    epsilon, delta : float
        The privacy of the whole fit: centres, spreads, correlations, steps and fit check. ``epsilon=inf`` is the
        non-private reference: least squares, or maximum likelihood where there are holes.
    bounds : dict, pair or path
        Public limits of each column: by name, as (low, high) of numbers or vectors, or a file. That of the response may
        stand among them under its name.
    y_bounds : pair, optional
        Public limits of the response.
    levels : dict, optional
        Levels of categorical columns by name; the first is the baseline.
    formula : str, optional
        What the columns of the model are made of, such as ``"y ~ x + I(x**2) + C(g)"`` (see :meth:`from_formula`).
    rows_per_person : int, default 1
        The most rows that one person has: all of them are protected together.
    budget : Budget or Ledger, optional
        What the fit is charged to.
    check : bool, default True
        Whether 5 % of the price buy a fit check, the private R².
    random_state : int, optional
        Repeatable noise, for simulations: such a fit is **not private**.

    Attributes
    ----------
    coef_, intercept_, sigma_ : array, float, float
        Slopes, intercept and standard deviation of the errors, in the table's units. ``coef_names_`` says what each
        slope belongs to, a column or a level of one; those of columns that were not chosen are 0.
    standardized_coef_ : array
        Slopes per spread of the column, in spreads of the response.
    support_, mean_, covariance_ : array
        Which slopes were fitted; mean and covariance of their columns, as used for holes.
    r_squared_ : float or None
        The private R² of the fit check.
    converged_ : bool
        Whether the reference fit stood still; always True with privacy, where steps are counted beforehand.

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
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: Any = None,
    ) -> None:
        self.sparsity = sparsity
        self.fit_intercept = fit_intercept
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.y_bounds = y_bounds
        self.levels = levels
        self.formula = formula
        self.rows_per_person = rows_per_person
        self.budget = budget
        self.check = check
        self.random_state = random_state

    def _model(self, schema: Schema) -> LinearRegression:
        fit_intercept = arguments.boolean("fit_intercept", self.fit_intercept)
        if self.sparsity is None:
            return LinearRegression(schema, fit_intercept)
        return SparseLinearRegression(schema, fit_intercept, arguments.count("sparsity", self.sparsity))

    def _diagnostics(self) -> list[Diagnostic]:
        theta, own = self.theta_, self.schema_.take(self.theta_.chosen)
        found = [("columns", sentence) for sentence in hardly_seen(theta, own)]
        found += [("errors", far_from_normal(theta.shape)), ("curvature", bends(theta.misfit))]
        return [Diagnostic(code, "warning", sentence) for code, sentence in found if sentence]

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
            "r_squared_": theta.r_squared[0] if theta.r_squared else None,
            "converged_": theta.converged,
        }

    @property
    def coef_names_(self) -> tuple[str, ...]:
        """What each of ``coef_`` belongs to: a column, or a level of one."""
        check_is_fitted(self)
        return tuple(self.schema_.names)

    def _uncertainty(self) -> Uncertainty:
        theta, schema = self.theta_, self.schema_.take(self.theta_.chosen)
        order = np.concatenate([[0], 1 + np.argsort(theta.chosen)])
        units = np.diag(np.concatenate([[1.0], 1 / schema.half])) * schema.y_half
        units[0, 1:] = -schema.middle / schema.half * schema.y_half
        sampling, privacy = (
            np.append(np.sqrt(np.maximum(np.diag(units @ part @ units.T), 0.0))[order], schema.y_half * of_sigma)
            for part, of_sigma in zip((theta.sampling, theta.privacy), theta.sigma_error, strict=True)
        )
        names = ("intercept", *(self.coef_names_[j] for j in self.support_), "sigma")
        values = np.array([self.intercept_, *self.coef_[self.support_], self.sigma_])
        notes = [NOTE, "" if self.sparsity is None else "They do not know that columns were chosen."]
        notes += [cost(theta, self.plan_.prediction), *hardly_seen(theta, schema), far_from_normal(theta.shape)]
        notes += [bends(theta.misfit), uneven(theta.misfit)]
        kinds = ("",) * (len(names) - 1) + ("size",)
        joint = (units @ (theta.sampling + theta.privacy) @ units.T)[np.ix_(order, order)]
        note = " ".join(filter(None, notes))
        return Uncertainty.of(names, values, sampling, privacy, note, kinds, covariance=joint)

    def _new_responses(self, eta: FloatArray, error: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
        return normal_responses(eta, error, self.sigma_, alpha)

    def _picture_scale(self) -> tuple[FloatArray, str]:
        schema = self.schema_ if self.chosen_ is None else self.schema_.take(self.chosen_)
        return np.concatenate([[1.0], schema.half, [1.0]]), "units of the response, over half of a column’s bounds"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The expected response of each row, in units; where a row has holes, given the entries it has.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            Rows with the columns that were fitted.

        Returns
        -------
        array of shape (rows,)
        """

        def mean(xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
            return LinearRegression(self.schema_).predicted(xp, theta, x)[0]

        return np.asarray(self.schema_.y_middle + self.schema_.y_half * self._each(mean, X))
