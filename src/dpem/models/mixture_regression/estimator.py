"""Mixture of K regressions under differential privacy: the estimator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.sequence import keeps_arguments
from dpem.fitting.summary import Profile
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.mixture_regression.model import MixtureRegression, Parameters
from dpem.models.mixture_regression.queries import FAR
from dpem.models.mixture_regression.tuning import TUNING
from dpem.query import FloatArray
from dpem.tables.schema import Schema


class DPMixtureRegression(PrivateEstimator):
    """K regressions with weights, intercepts and residual spreads of their own, under differential privacy.

    Every row belongs to one of K unobserved components (latent class regression): y = intercept_k + coef_k·x +
    sigma_k·e with probability weight_k. Columns may be correlated and have any scale and shape within their bounds. A
    missing value of x is replaced by its expectation given the rest of its row, under the released means and
    covariance; a row without y adds nothing. Scales and starts are part of the fit and of (epsilon, delta).

    Parameters
    ----------
    n_components : int
        Components, at least 2.
    fit_intercept : bool
        Whether components have intercepts; without, all go through the origin of the table's units.
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
    check : bool
        Whether 8 % of the price goes to a fit check against one regression, which also counts rows that the components
        miss.
    {shared}

    Attributes
    ----------
    weights_ : array of shape (n_components,)
        Shares of the components, the largest first; component 1 is the label 0 of :meth:`predict_component`.
    coef_ : array of shape (n_components, n_coordinates)
        Slopes of each component.
    intercept_ : array of shape (n_components,)
        Intercepts.
    sigma_ : array of shape (n_components,)
        Residual standard deviations.
    components_misfit_ : array
        Misfit of 1, 2, … components, up to one more than ``n_components``, to the counts in cells, in units of their
        noise. The counts are released once, so these comparisons cost nothing more.
    suggested_components_ : int
        The largest number of components of which each lowered the misfit by clearly more than chance. A number above 1
        says that one regression with normal errors of constant variance does not describe the rows. The reason may be
        two kinds of people, a curve, or heteroscedastic errors: two components describe each better than one.
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

    @keeps_arguments
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
    ) -> None: ...

    def _model(self, schema: Schema) -> MixtureRegression:
        count = arguments.count("n_components", self.n_components)
        if count < 2:
            raise ArgumentError("n_components", f"must be at least 2, got {count}; for 1 use DPLinearRegression.")
        if arguments.boolean("fit_intercept", self.fit_intercept):
            return MixtureRegression(schema, count)
        origin = (*(-schema.middle / schema.half), -schema.y_middle / schema.y_half)
        return MixtureRegression(schema, count, tuple(float(part) for part in origin))

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        slopes = theta.slopes * schema.y_half / schema.half
        intercepts = schema.y_middle + schema.y_half * theta.intercepts - slopes @ schema.middle
        gains = -np.diff(theta.misfit)
        unsupported = np.flatnonzero(gains <= theta.needed)
        return {
            "weights_": theta.weights,
            "coef_": slopes,
            "intercept_": intercepts if self.fit_intercept else np.zeros(len(intercepts)),
            "sigma_": schema.y_half * theta.spreads,
            "components_misfit_": theta.misfit,
            "suggested_components_": int(unsupported[0]) + 1 if len(unsupported) else len(theta.misfit),
        }

    def _diagnostics(self) -> list[Diagnostic]:
        theta, diagnostics = self.theta_, []
        failed = self.fit_check_ is not None and not self.fit_check_.better  # the fit check reports it
        narrow = [f"component {k + 1}" for k in np.flatnonzero(self.sigma_ < TUNING.narrow * self.sigma_.max())]
        if narrow:
            words = f"{', '.join(narrow)} may have collapsed onto repeated responses: the residual spread is near 0."
            diagnostics.append(Diagnostic("point-mass", "warning", words))
        check, responses = self.fit_check_, TUNING.responses
        distance = (1 + abs(theta.weights @ (theta.intercepts + theta.slopes @ theta.x_mean))) / theta.spreads.max()
        gain = math.inf if check is None or math.isinf(self.plan_.epsilon) else check.lead * self.plan_.n
        if not failed and responses * distance**2 / 2 > gain:
            words = (
                f"y_bounds reach {distance:.0f} residual spreads from the components: {responses} responses there "
                "would cost more log-likelihood than the components gain, and the noise would hide them."
            )
            advice = "Narrow y_bounds, or model a transformed response, such as its logarithm."
            diagnostics.append(Diagnostic("wide-response-bounds", "warning", words, advice))
        if theta.missed:
            words = (
                f"About {100 * theta.missed:.2g} % of the responses lie more than {FAR:g} residual spreads from every "
                "component."
            )
            advice = "A component was missed, or there are outliers: use more components, or narrower bounds."
            diagnostics.append(Diagnostic("missed-rows", "warning", words, advice))
        if math.isfinite(self.plan_.epsilon) and not failed and theta.moved > TUNING.unstable:
            advice = "Use fewer components, more rows or a larger epsilon."
            words = (
                f"The components are not stable: errors of the expected size put about "
                f"{100 * theta.moved:.0f} % of the rows into another component."
            )
            diagnostics.append(Diagnostic("unstable-components", "warning", words, advice))
        return diagnostics

    def _profile(self) -> Profile:
        schema, effect = self.schema_, self.coef_ * self.schema_.half
        largest = np.full(schema.width, float(np.abs(effect).max()) or 1.0)
        labels = tuple(f"component {k + 1}" for k in range(len(effect)))
        words = "The change of each component’s response over half of a column’s bounds. In the middle it is 0."
        return Profile(labels, self.weights_, schema.names, effect, None, -largest, largest, words=words)

    def _uncertainty(self) -> Uncertainty:
        """Standard errors by the sampling of the rows and by the noise of all scores, in the table's units."""
        theta, schema, K = self.theta_, self.schema_, len(self.theta_.weights)
        scale = schema.y_half / schema.half
        block = np.diag([1.0, schema.y_half, *scale, schema.y_half])
        block[1, 2:-1] = -scale * schema.middle
        units = np.kron(np.eye(K), block)
        estimate = np.column_stack([self.weights_, self.intercept_, self.coef_, self.sigma_]).ravel()
        parts = [np.sqrt(np.maximum(np.diag(units @ cov @ units.T), 0.0)) for cov in (theta.sampling, theta.privacy)]
        names = ("share", "intercept", *schema.names, "sigma")
        labels = [f"component {k + 1}: {name}" for k in range(K) for name in names]
        shown = np.array([self.fit_intercept or name != "intercept" for _ in range(K) for name in names])
        labels = [label for label, is_shown in zip(labels, shown, strict=True) if is_shown]
        note = "Covariance of the combined scores at the fitted components, with columns taken as normal."
        kinds = np.array(["share", *[""] * (len(names) - 2), "positive"] * K)[shown].tolist()
        return Uncertainty.of(labels, estimate[shown], parts[0][shown], parts[1][shown], note, kinds)

    def predict(self, X: Any) -> FloatArray:
        """The expected response of each row: the components, weighted by their shares.

        Parameters
        ----------
        X : array, DataFrame, source
            Rows; missing values are filled as in the fit.

        Returns
        -------
        array of shape (rows,)
        """
        schema = self.schema_
        return np.asarray(schema.y_middle + schema.y_half * self._each(self._fitted_model.expectation, X))

    def predict_proba(self, X: Any, y: Any = None) -> FloatArray:
        """The probability that each row belongs to each component.

        Parameters
        ----------
        X : array, DataFrame, source
            Rows.
        y : array, optional
            Their responses. Without them every row has the shares of the components.

        Returns
        -------
        array of shape (rows, n_components)
        """
        if y is None:
            rows = len(self.predict(X))
            return np.tile(self.weights_, (rows, 1))
        return np.asarray(self._each(self._fitted_model.responsibilities, X, y))

    def predict_component(self, X: Any, y: Any) -> NDArray[np.intp]:
        """The likeliest component of each row, given its response; see :meth:`predict_proba`."""
        return np.asarray(np.argmax(self.predict_proba(X, y), axis=1))

    def score_samples(self, X: Any, y: Any) -> FloatArray:
        """Log-density of each response given its row, in the table's units; for ``X, y`` see :meth:`predict_proba`.

        Returns
        -------
        array of shape (rows,)
        """
        return np.asarray(self._each(self._fitted_model.log_density, X, y) - math.log(self.schema_.y_half))

    def score(self, X: Any, y: Any) -> float:
        """Mean log-density of the responses."""
        return float(np.mean(self.score_samples(X, y)))

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
        """Simulated rows (normal columns with the released mean and covariance), their responses and components."""
        n = arguments.count("n_samples", n_samples)
        x, y, k = self._fitted_model.sample(self.theta_, n, np.random.default_rng(self.random_state))
        schema = self.schema_
        return schema.middle + schema.half * x, schema.y_middle + schema.y_half * y, k

    @property
    def _fitted_model(self) -> MixtureRegression:
        check_is_fitted(self)
        return self._model(self.schema_)
