"""The estimator of Gaussian mixtures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem._validation import ArgumentError, describe
from dpem.fitting.check import NEEDED
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.sequence import keeps_arguments
from dpem.fitting.summary import Profile
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.gaussian_mixture.component_number import MOST
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import sample
from dpem.models.gaussian_mixture.location import LEAST_SEEN
from dpem.models.gaussian_mixture.model import GaussianMixture, Parameters, mixture_of, uncertainty
from dpem.models.gaussian_mixture.sparsity import MOST_COLUMNS, SparseGaussianMixture
from dpem.models.gaussian_mixture.state import TUNING
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema


class DPGaussianMixture(PrivateEstimator):
    """A mixture of K Gaussians, fitted under differential privacy.

    Public bounds of every column and (ε, δ) are all that is needed. The start is fitted to noisy values of the rows'
    characteristic function. Then a few noisy scores are released, simulated rows are reweighted to agree with every
    answer, and EM on them gives shares, means and covariances in the table's units. Missing values are integrated out.

    Parameters
    ----------
    n_components : int or "auto"
        The number of components; "auto" finds it (at most 8) from the same releases, at no further price.
    covariance_type : {"diag", "spherical", "tied", "full"}
        As in scikit-learn.
    sparsity : int, optional
        With many columns: the number to use, at least 2. Those that depend most on each other are chosen, as part of
        the price.
    epsilon, delta : float
        The whole fit is (epsilon, delta)-differentially private; epsilon = inf is the non-private reference.
    bounds : dict, pair of arrays, pair of numbers or path
        Public lower and upper limits of every column.
    formula : str, optional
        The columns of the model, such as ``"~ x + log(y)"`` (see :meth:`from_formula`).
    check : bool
        Whether 8 % of the price goes to the fit check against one Gaussian and independent columns.
    {shared}

    Attributes
    ----------
    weights_, means_, covariances_, precisions_cholesky_ : array
        As scikit-learn's, in the table's units, for the columns in use; the largest component first. Summaries call it
        component 1; :meth:`predict` labels it 0.
    support_, support_names_ : array of int, tuple of str
        The columns in use, by place and by name: all of them without ``sparsity``.
    n_components_ : int
        The number of components.
    n_components_scores_ : array
        With "auto": scores of one correlated Gaussian, of independent columns, and of 1, 2, … components. The least
        decides; if it is one of the first two, the number is 1.
    converged_ : bool
        Without privacy: whether EM converged.

    Examples
    --------
    >>> import numpy as np
    >>> from dpem import DPGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (2000, 2)), rng.normal(5, 1, (1000, 2))])
    >>> model = DPGaussianMixture(2, epsilon=1.0, delta=1e-6, bounds=(-6, 12)).fit(X)
    >>> bool(abs(model.weights_.max() - 2 / 3) < 0.05)
    True
    """

    @keeps_arguments
    def __init__(
        self,
        n_components: int | str = 2,
        covariance_type: str = "diag",
        *,
        sparsity: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        formula: str | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: int | None = None,
    ) -> None: ...

    def _model(self, schema: Schema) -> GaussianMixture:
        K = arguments.count_or_auto("n_components", self.n_components)
        if not isinstance(self.covariance_type, str) or self.covariance_type not in TYPES:
            kinds, value = ", ".join(TYPES), describe(self.covariance_type)
            raise ArgumentError("covariance_type", f"must be one of {kinds}, got {value}.")
        settings = (schema, K, TYPES[self.covariance_type], schema.half**-2.0)
        if self.sparsity is None:
            return GaussianMixture(*settings)
        columns = arguments.count("sparsity", self.sparsity)
        if columns < 2:
            raise ArgumentError(
                "sparsity", f"must be at least 2, got {columns}: components show in several columns together."
            )
        if columns >= schema.width:
            return GaussianMixture(*settings)
        if schema.width > MOST_COLUMNS:
            raise ArgumentError(
                "X", f"must have at most {MOST_COLUMNS:,} columns to choose from, got {schema.width:,}."
            )
        return SparseGaussianMixture(*settings, columns)

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        means, covariances = in_units(theta, schema)
        covariances, roots = TYPES[theta.kind].attributes(covariances)
        return {
            "weights_": theta.weights,
            "means_": means,
            "covariances_": covariances,
            "precisions_cholesky_": roots,
            "n_components_": len(theta.weights),
            "n_components_scores_": theta.path,
            "converged_": theta.converged,
        }

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each component for each row, given its observed values."""
        return np.asarray(self._each(_responsibilities, X))

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The most probable component of each row."""
        return np.argmax(self.predict_proba(X), axis=1)

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.intp]:
        """Fit, and the most probable component of each row. The components are differentially private; the labels are
        not, and are for those who may see the rows.
        """
        return self.fit(X).predict(X)

    def score_samples(self, X: Any) -> FloatArray:
        """The log-density of each row in the table's units, missing values integrated out."""
        log_half = np.log(self._own_schema.half)

        def log_density(xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
            return mixture_of(theta).log_density(xp, x) - np.isfinite(x) @ log_half

        return np.asarray(self._each(log_density, X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-density of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[FloatArray, NDArray[np.intp]]:
        """Rows drawn from the fitted mixture, and the component of each, at no price."""
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)
        u, label = sample(mixture_of(self.theta_), arguments.count("n_samples", n_samples), rng)
        return self._own_schema.middle + self._own_schema.half * u, label

    @property
    def support_(self) -> NDArray[np.intp]:
        """The places of the columns in use."""
        check_is_fitted(self)
        return np.arange(self.schema_.width) if self.chosen_ is None else self.chosen_

    @property
    def support_names_(self) -> tuple[str, ...]:
        """The names of the columns in use."""
        return tuple(self.schema_.names[j] for j in self.support_)

    @property
    def _own_schema(self) -> Schema:
        return self.schema_ if self.chosen_ is None else self.schema_.take(self.chosen_)

    def _profile(self) -> Profile:
        schema, (means, covariances) = self._own_schema, in_units(self.theta_, self._own_schema)
        variances = covariances if covariances.ndim == 2 else np.diagonal(covariances, axis1=1, axis2=2)
        components = tuple(f"component {k + 1}" for k in range(len(means)))
        ends = schema.middle - schema.half, schema.middle + schema.half
        return Profile(components, self.theta_.weights, schema.names, means, np.sqrt(variances), *ends)

    @property
    def diagnostics_(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of the fit, computed from released numbers at no price; the fit check comes first.

        A fit check whose lead has no significant sign is a note if the components are stable, as those of rows without
        components are not. With one component it is left out: one component cannot be better than one Gaussian.
        """
        diagnostics, check = super().diagnostics_, self.fit_check_
        if check is None or self.theta_.moved > TUNING.unstable or check.lead < -NEEDED * check.standard_error:
            return diagnostics
        if len(self.theta_.weights) == 1:
            return tuple(own for own in diagnostics if own.code != "fit-check")
        return tuple(replace(own, severity="note") if own.code == "fit-check" else own for own in diagnostics)

    def _diagnostics(self) -> list[Diagnostic]:
        theta, diagnostics = self.theta_, []
        if theta.missed:
            words = f"One Gaussian describes about {100 * theta.missed:.2g} % of the rows much better than the mixture."
            advice = "A component was missed, or there are outliers: use more components, or bounds without outliers."
            diagnostics.append(Diagnostic("missed-rows", "warning", words, advice))
        if theta.moved > TUNING.unstable:
            words = (
                f"Components are not stable: a second private fit may put about {100 * theta.moved:.2g} % of the rows "
                "into other components."
            )
            advice = "Use fewer components, more rows or a larger epsilon, or report the density, not the components."
            diagnostics.append(Diagnostic("unstable-components", "warning", words, advice))
        least = float(theta.weights.min())
        if least < TUNING.tiny:
            words = f"A component has only {100 * least:.2g} % of the rows: it may be outliers, and two others merged."
            advice = "Use fewer components, more rows, a larger epsilon, or bounds without outliers."
            diagnostics.append(Diagnostic("tiny-component", "warning", words, advice))
        empty = np.flatnonzero(theta.seen <= LEAST_SEEN)
        if len(empty):
            names = tuple(self.support_names_[j] for j in empty)
            words = f"Hardly any row has a value in {', '.join(names)}: the estimates for these columns are unusable."
            diagnostics.append(Diagnostic("empty-column", "warning", words, "Leave these columns out.", names))
        narrow = np.flatnonzero(theta.floored)
        if len(narrow):
            names = tuple(self.support_names_[j] for j in narrow)
            words = f"Some components collapsed onto repeated values of {', '.join(names)}."
            advice = "Such columns are counts or levels; their least variances are a limit, not estimates."
            diagnostics.append(Diagnostic("point-mass", "note", words, advice, names))
        if self.n_components == "auto" and self.n_components_ == MOST:
            words = f"{MOST} components were chosen, the largest number that is tried."
            advice = "Columns may be skewed, or have repeated values."
            diagnostics.append(Diagnostic("most-components", "warning", words, advice))
        return diagnostics

    def _uncertainty(self) -> Uncertainty:
        return uncertainty(self.theta_, self._own_schema, self.plan_.n // self.guarantee_.rows_per_person)


def in_units(theta: Parameters, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Means and covariances (K × d or K × d × d) in the table's units."""
    scale = schema.half**2 if theta.covariances.ndim == 2 else np.outer(schema.half, schema.half)
    return schema.middle + schema.half * theta.means, theta.covariances * scale


def _responsibilities(xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
    logs = mixture_of(theta).joint(xp, x)
    share = xp.exp(logs - xp.max(logs, axis=1, keepdims=True))
    return share / xp.sum(share, axis=1, keepdims=True)
