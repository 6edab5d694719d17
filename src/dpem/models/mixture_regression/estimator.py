"""Mixture of K regressions: lines with weights, intercepts and residual spreads of their own (latent classes)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem.fitting.check import CHECK_SHARE, Check
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.step import Step, prices
from dpem.fitting.summary import Profile, of_lines
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.mixture_regression.coordinates import Frame
from dpem.models.mixture_regression.newton import Estimate
from dpem.models.mixture_regression.planning import EFFECT, predict_fit
from dpem.models.mixture_regression.scores import Lines
from dpem.models.mixture_regression.steps import (
    CELLS,
    ChooseStart,
    CountCells,
    FindDirections,
    FindMoments,
    ImproveLines,
    SizeColumns,
)
from dpem.queries.schema import Schema
from dpem.query import FloatArray

#: Shares of ρ: sizes, moments, directions, cells, choice of the start; the scores get the rest, each step × 1.6.
SIZES, MOMENTS, DIRECTIONS, COUNTS, CHOICE = 0.05, 0.13, 0.12, 0.12, 0.04
STEPS, GROWTH = 5, 1.6

#: A line is a heap of equal responses where its spread is less than this part of the largest.
HEAP = 0.02


@dataclass(frozen=True)
class Parameters:
    """K lines y = intercept + slope·u + spread·e in unit coordinates, and what else was released.

    ``x_mean`` and ``x_whiten`` are the columns' mean and inverse root covariance: holes are filled by them. The
    covariances of sampling and of privacy are of (weight, intercept, slopes, spread) class by class. ``misfit`` is that
    of 1, 2, … lines to the cells, ``needed`` by how much one line more must lower it.
    """

    weights: FloatArray
    intercepts: FloatArray
    slopes: FloatArray
    spreads: FloatArray
    x_mean: FloatArray
    x_whiten: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    misfit: FloatArray
    needed: float
    by_cells: bool

    @property
    def frame(self) -> Frame:
        """Unit coordinates with holes filled and made white; responses as they are."""
        return Frame(self.x_mean, self.x_whiten, 0.0, 1.0)

    @property
    def lines(self) -> Lines:
        """The lines in the coordinates of :attr:`frame`."""
        own = np.column_stack([self.intercepts + self.slopes @ self.x_mean, self.slopes @ np.linalg.inv(self.x_whiten)])
        return Lines(self.weights, own, self.spreads)

    def ordered(self, order: NDArray[np.intp]) -> Parameters:
        """The same classes in another order."""
        p = self.slopes.shape[1] + 3
        places = np.concatenate([np.arange(k * p, (k + 1) * p) for k in order]).astype(int)
        return replace(
            self,
            weights=self.weights[order],
            intercepts=self.intercepts[order],
            slopes=self.slopes[order],
            spreads=self.spreads[order],
            sampling=self.sampling[np.ix_(places, places)],
            privacy=self.privacy[np.ix_(places, places)],
        )


@dataclass(frozen=True)
class MixtureRegression(Model):
    """The model at its public settings. ``origin``, (x, y) in unit coordinates, is a point of every line, if given."""

    classes: int = 2
    origin: tuple[float, ...] | None = None
    effect = EFFECT

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        q = min(self.schema.width, self.classes, max(CELLS))
        check = CHECK_SHARE if sizes.check else 0.0
        turns = DIRECTIONS if self.schema.width > q else 0.0
        rest = 1 - check - SIZES - MOMENTS - turns - COUNTS - CHOICE
        growing = GROWTH ** np.arange(STEPS)
        shares = (SIZES, MOMENTS, turns, COUNTS, CHOICE, *(rest * growing / growing.sum()), check)
        size, moments, direct, count, choose, *scores, checked = prices(sizes.rho, shares)
        return (
            SizeColumns(size),
            FindMoments(moments),
            *((FindDirections(direct, q),) if turns else ()),
            CountCells(count, q, self.classes),
            ChooseStart(choose),
            *(ImproveLines(rho) for rho in scores),
            *((Check(checked, against="one line", advice=ADVICE),) if check else ()),
        )

    def fixed(self, frame: Frame) -> FloatArray | None:
        """The combination of a line's coefficients that ``origin`` fixes."""
        if self.origin is None:
            return None
        return np.append(1.0, frame.whiten @ (np.array(self.origin[:-1]) - frame.mean))

    def allowed(self, frame: Frame, line: FloatArray) -> FloatArray:
        """The nearest line that goes through ``origin``."""
        fixed = self.fixed(frame)
        if fixed is None or self.origin is None:
            return line
        wanted = (self.origin[-1] - frame.y_mean) / frame.y_spread
        return np.asarray(line + fixed * (wanted - fixed @ line) / (fixed @ fixed))

    def parameters(self, notes: Mapping[str, Any], found: Estimate, sampling: FloatArray) -> Parameters:
        """The lines and their errors in unit coordinates."""
        frame, lines = notes["frame"], found.theta
        K, p = lines.shape
        weights = lines.masses / lines.masses.sum()
        turn = np.zeros((p, p))
        turn[0] = frame.y_spread * np.append(1.0, -frame.whiten @ frame.mean)
        turn[1:, 1:] = frame.y_spread * frame.whiten.T
        units = lines.lines @ turn.T
        change = np.zeros((K * (p + 2), K * (p + 2)))
        for k in range(K):
            own = k * (p + 2)
            change[own, :: p + 2] = -weights[k] * weights
            change[own, own] += weights[k]
            change[own + 1 : own + 1 + p, own + 1 : own + 1 + p] = lines.spreads[k] * turn
            change[own + p + 1, own + p + 1] = frame.y_spread * lines.spreads[k]
        theta = Parameters(
            weights,
            frame.y_mean + units[:, 0],
            units[:, 1:],
            frame.y_spread * lines.spreads,
            frame.mean,
            frame.whiten,
            change @ sampling @ change.T,
            change @ found.error @ change.T,
            notes["path"],
            float(notes["needed"]),
            bool(notes["by_cells"]),
        )
        return theta.ordered(np.argsort(-weights))

    def log_density(self, xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
        return theta.lines.log_density(xp, theta.frame.columns(xp, x), y)

    def shares(self, xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
        """How far each row belongs to each class, given its response."""
        share = theta.lines.shares(xp, theta.lines.residuals(xp, theta.frame.columns(xp, x), y))
        return share / xp.sum(share, axis=1)[:, None]

    def expectation(self, xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
        """Each row's expected response: the classes' lines, weighted."""
        lines = theta.lines
        return xp.matmul(theta.frame.columns(xp, x), theta.weights @ lines.lines)

    def simpler(self, theta: Parameters) -> Parameters:
        """The one line with the mean and the residual spread of the mixture."""
        lines = theta.lines
        middle = theta.weights @ lines.lines
        spread = math.sqrt(float(theta.weights @ (theta.spreads**2 + np.sum((lines.lines - middle) ** 2, axis=1))))
        return replace(
            theta,
            weights=np.ones(1),
            intercepts=(theta.weights @ theta.intercepts)[None],
            slopes=(theta.weights @ theta.slopes)[None, :],
            spreads=np.array([spread]),
        )

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        x, y, _ = self.sample(theta, n, rng)
        return x, y

    def sample(
        self, theta: Parameters, n: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
        """Rows, responses and classes; columns are normal with the released mean and covariance, within bounds."""
        white = rng.standard_normal((n, len(theta.x_mean)))
        k = np.searchsorted(np.cumsum(theta.weights)[:-1], rng.uniform(size=n))
        x = np.clip(theta.x_mean + white @ np.linalg.inv(theta.x_whiten).T, -1, 1)
        y = theta.intercepts[k] + np.sum(theta.slopes[k] * x, axis=1) + theta.spreads[k] * rng.standard_normal(n)
        return x, np.clip(y, -1, 1), k

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        return predict_fit(self, sizes, steps)


ADVICE = "One line may do (DPLinearRegression), or the lines lie too close together for this many rows at this epsilon."


class DPMixtureRegression(PrivateEstimator):
    """K regression lines with weights, intercepts and residual spreads of their own, under differential privacy.

    Every row belongs to one of K classes that nobody sees (latent class regression): y = intercept_k + coef_k·x +
    sigma_k·e with probability weight_k. Columns may be correlated, of any scale and shape within their bounds. A hole
    in x is filled with its expectation given the rest of its row, by the released means and covariance; a row without
    y adds nothing. Nothing else is asked of the user: starts, scales and steps are paid for inside (epsilon, delta).

    Parameters
    ----------
    n_components : int
        Lines, at least 2.
    fit_intercept : bool
        Whether lines have intercepts; without, all go through the origin of the table's units.
    epsilon, delta : float
        The guarantee: (epsilon, delta)-differential privacy for replacing all rows of one person.
    bounds : dict, pair, array or path
        Public limits of each column, in its units.
    y_bounds : pair
        Public limits of the response; not needed where ``bounds`` holds them under its name.
    levels : dict, optional
        Declared levels of categorical columns.
    formula : str, optional
        What the columns of the model are made of, such as ``"y ~ x + I(x**2)"`` (see :meth:`from_formula`).
    person : str, optional
        The column that says whose row it is: the unit is then a person, and rows of one beyond ``rows_per_person`` do
        not count.
    rows_per_person : int
        The most rows that one person has.
    budget : Budget or Ledger, optional
        What the fit is charged to.
    check : bool
        Whether 5 % of the price go to a fit check against one line.
    random_state : int, optional
        Makes noise repeatable, for simulations: such a fit is not private.

    Attributes
    ----------
    weights_ : array of shape (n_components,)
        Shares of the lines, the largest first; line 1 is the label 0 of :meth:`predict_component`.
    coef_ : array of shape (n_components, n_coordinates)
        Slopes of each class's line.
    intercept_ : array of shape (n_components,)
        Intercepts.
    sigma_ : array of shape (n_components,)
        Residual standard deviations.
    components_misfit_ : array
        Misfit of 1, 2, … lines, up to one more than were asked for, to the counts in cells, in units of their noise:
        released once, so these comparisons are free.
    suggested_components_ : int
        The largest number of lines of which each lowered the misfit by clearly more than chance. It tells "not one
        straight line with even, normal errors" from one line; it does not tell two kinds of people from a curve or
        from a spread that changes along x: those, too, are described better by two lines than by one.
    fit_check_, plan_, guarantee_, theta_
        The fit check, the plan, the certificate, and all that was released, in unit coordinates.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 10, size=(20_000, 1))
    >>> steep = rng.uniform(size=20_000) < 0.3
    >>> y = np.where(steep, 2 + 3 * x[:, 0], 20 - x[:, 0]) + rng.standard_normal(20_000)
    >>> model = DPMixtureRegression(epsilon=1.0, delta=1e-6, bounds=(0, 20), y_bounds=(-50, 50), random_state=0)
    >>> model = model.fit(x, y)
    >>> model.weights_.round(1), model.coef_.round(1).ravel()
    (array([0.7, 0.3]), array([-1.,  3.]))
    """

    _needs_y = True

    def __init__(
        self,
        n_components: int = 2,
        *,
        fit_intercept: bool = True,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        levels: Any = None,
        formula: str | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: int | None = None,
    ) -> None:
        self.n_components, self.fit_intercept = n_components, fit_intercept
        self.epsilon, self.delta = epsilon, delta
        self.bounds, self.y_bounds, self.levels, self.formula = bounds, y_bounds, levels, formula
        self.person = person
        self.rows_per_person, self.budget, self.check, self.random_state = rows_per_person, budget, check, random_state

    def _model(self, schema: Schema) -> MixtureRegression:
        classes = arguments.count("n_components", self.n_components)
        if classes < 2:
            raise ValueError(f"n_components must be at least 2, got {classes}; for one line use DPLinearRegression.")
        if arguments.boolean("fit_intercept", self.fit_intercept):
            return MixtureRegression(schema, classes)
        origin = (*(-schema.middle / schema.half), -schema.y_middle / schema.y_half)
        return MixtureRegression(schema, classes, tuple(float(part) for part in origin))

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        slopes = theta.slopes * schema.y_half / schema.half
        intercepts = schema.y_middle + schema.y_half * theta.intercepts - slopes @ schema.middle
        gains = -np.diff(theta.misfit)
        small = np.flatnonzero(gains <= theta.needed)
        return {
            "weights_": theta.weights,
            "coef_": slopes,
            "intercept_": intercepts if self.fit_intercept else np.zeros(len(intercepts)),
            "sigma_": schema.y_half * theta.spreads,
            "components_misfit_": theta.misfit,
            "suggested_components_": int(small[0]) + 1 if len(small) else len(theta.misfit),
        }

    def _diagnostics(self) -> list[Diagnostic]:
        narrow = [f"line {k + 1}" for k in np.flatnonzero(self.sigma_ < HEAP * self.sigma_.max())]
        words = f"{', '.join(narrow)} may have collapsed onto repeated responses: hardly any spread is left."
        return [Diagnostic("point-mass", "warning", words)] if narrow else []

    def _profile(self) -> Profile:
        return of_lines(self.weights_, self.coef_, self.schema_)

    def _uncertainty(self) -> Uncertainty:
        """Newton's own errors: the sampling of n rows, and what the noise of all steps leaves."""
        theta, schema, K = self.theta_, self.schema_, len(self.theta_.weights)
        scale = schema.y_half / schema.half
        block = np.diag([1.0, schema.y_half, *scale, schema.y_half])
        block[1, 2:-1] = -scale * schema.middle
        units = np.kron(np.eye(K), block)
        estimate = np.column_stack([self.weights_, self.intercept_, self.coef_, self.sigma_]).ravel()
        parts = [np.sqrt(np.maximum(np.diag(units @ cov @ units.T), 0.0)) for cov in (theta.sampling, theta.privacy)]
        names = ("share", "intercept", *schema.names, "sigma")
        labels = [f"line {k + 1}: {name}" for k in range(K) for name in names]
        kept = np.array([self.fit_intercept or name != "intercept" for _ in range(K) for name in names])
        labels = [label for label, stays in zip(labels, kept, strict=True) if stays]
        note = "Newton's covariance at the fitted lines, columns taken as normal; noise of all steps propagated."
        kinds = np.array(["share", *[""] * (len(names) - 2), "positive"] * K)[kept].tolist()
        return Uncertainty.of(labels, estimate[kept], parts[0][kept], parts[1][kept], note, kinds)

    def predict(self, X: Any) -> FloatArray:
        """The expected response of each row: the lines, weighted by their shares.

        Parameters
        ----------
        X : array, DataFrame, source
            Rows; holes are filled as in the fit.

        Returns
        -------
        array of shape (rows,)
        """
        schema = self.schema_
        return np.asarray(schema.y_middle + schema.y_half * self._each(self._own.expectation, X))

    def predict_proba(self, X: Any, y: Any = None) -> FloatArray:
        """The probability that each row belongs to each component.

        Parameters
        ----------
        X : array, DataFrame, source
            Rows.
        y : array, optional
            Their responses. Without them nothing is known of a row's component: each row has the weights.

        Returns
        -------
        array of shape (rows, n_components)
        """
        if y is None:
            rows = len(self.predict(X))
            return np.tile(self.weights_, (rows, 1))
        return np.asarray(self._each(self._own.shares, X, y))

    def predict_component(self, X: Any, y: Any) -> NDArray[np.intp]:
        """The likeliest line of each row, given its response; see :meth:`predict_proba`."""
        return np.asarray(np.argmax(self.predict_proba(X, y), axis=1))

    def score_samples(self, X: Any, y: Any) -> FloatArray:
        """Log-density of each response given its row, in the table's units; for ``X, y`` see :meth:`predict_proba`.

        Returns
        -------
        array of shape (rows,)
        """
        return np.asarray(self._each(self._own.log_density, X, y) - math.log(self.schema_.y_half))

    def score(self, X: Any, y: Any) -> float:
        """Mean log-density of the responses."""
        return float(np.mean(self.score_samples(X, y)))

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
        """Invented rows: coordinates (normal columns with the released mean and covariance), responses, classes."""
        n = arguments.count("n_samples", n_samples)
        x, y, k = self._own.sample(self.theta_, n, np.random.default_rng(self.random_state))
        schema = self.schema_
        return schema.middle + schema.half * x, schema.y_middle + schema.y_half * y, k

    @property
    def _own(self) -> MixtureRegression:
        check_is_fitted(self)
        return self._model(self.schema_)
