"""Mixtures of Gaussians of any shares, means and covariances; values may be missing."""

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

    Public bounds of every column and (ε, δ) are all that is needed. Columns are centred and scaled privately and a
    sketch of the rows' distribution gives the start. Then a few noisy scores reweight invented rows until these agree
    with every answer, and EM on them gives shares, means and covariances in the table's units. Missing values are
    integrated out.

    Parameters
    ----------
    n_components : int or "auto"
        The number of components; "auto" finds it (at most 8) from the sketch, at no further price.
    covariance_type : {"diag", "spherical", "tied", "full"}
        As in scikit-learn.
    sparsity : int, optional
        With many columns: how many to use, at least 2; those that go together most are chosen under the same price.
    epsilon, delta : float
        The whole fit is (epsilon, delta)-differentially private; epsilon = inf is the non-private reference.
    bounds : dict, pair of arrays, pair of numbers or path
        Public lower and upper limits of every column.
    formula : str, optional
        What the columns of the model are made of, such as ``"~ x + log(y)"`` (see :meth:`from_formula`).
    check : bool
        Whether 8 % of the price goes to the fit check against one Gaussian and independent columns.
    {shared}

    Attributes
    ----------
    weights_, means_, covariances_, precisions_cholesky_ : array
        As scikit-learn's, in the table's units, of the columns in use; the largest component first. Summaries call it
        component 1; it is the label 0 of :meth:`predict`.
    support_, support_names_ : array of int, tuple of str
        The columns in use, by place and by name: all of them without ``sparsity``.
    n_components_ : int
        How many components there are.
    n_components_scores_ : array
        With "auto": scores of one correlated Gaussian, of independent columns, and of 1, 2, … components; the least
        decides, and the first two mean 1.
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
            given = describe(self.covariance_type)
            raise ArgumentError("covariance_type", f"must be one of {', '.join(TYPES)}, got {given}.")
        whole = (schema, K, TYPES[self.covariance_type], schema.half**-2.0)
        if self.sparsity is None:
            return GaussianMixture(*whole)
        columns = arguments.count("sparsity", self.sparsity)
        if columns < 2:
            raise ArgumentError(
                "sparsity", f"must be at least 2, got {columns}: components show in several columns together."
            )
        if columns >= schema.width:
            return GaussianMixture(*whole)
        if schema.width > MOST_COLUMNS:
            raise ArgumentError(
                "X", f"must have at most {MOST_COLUMNS:,} columns to choose from, got {schema.width:,}."
            )
        return SparseGaussianMixture(*whole, columns)

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        means, whole = in_units(theta, schema)
        covariances, roots = TYPES[theta.kind].attributes(whole)
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
        """The probability of each component for each row, given what is seen of it."""
        return np.asarray(self._each(_shares, X))

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The most probable component of each row."""
        return np.argmax(self.predict_proba(X), axis=1)

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.intp]:
        """Fit, and the most probable component of each row. The components are private, a list of labels is not: it is
        for whoever may see the rows.
        """
        return self.fit(X).predict(X)

    def score_samples(self, X: Any) -> FloatArray:
        """The log-density of each row in the table's units, missing values integrated out."""
        log_half = np.log(self._own_schema.half)
        return np.asarray(self._each(lambda xp, theta, x, y: _log_density(xp, theta, x) - np.isfinite(x) @ log_half, X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-density of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[FloatArray, NDArray[np.intp]]:
        """Rows drawn from the fitted mixture, and the component of each: post-processing, at no price."""
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
        """What the fit warns of, the fit check first: computed from released numbers, at no price.

        Where the check is not decided and components are stable it is a note: rows without components have no stable
        ones. One component is no better than one Gaussian, and need not be.
        """
        found, check = super().diagnostics_, self.fit_check_
        if check is None or self.theta_.moved > TUNING.unstable or check.lead < -NEEDED * check.standard_error:
            return found
        if len(self.theta_.weights) == 1:
            return tuple(own for own in found if own.code != "fit-check")
        return tuple(replace(own, severity="note") if own.code == "fit-check" else own for own in found)

    def _diagnostics(self) -> list[Diagnostic]:
        theta, found = self.theta_, []
        if theta.missed:
            words = (
                f"About {100 * theta.missed:.2g} % of the rows lie far from every component: one Gaussian describes "
            )
            words += "them much better."
            advice = "A component was missed, or there are outliers: use more components, or bounds without outliers."
            found.append(Diagnostic("missed-rows", "warning", words, advice))
        if theta.moved > TUNING.unstable:
            words = (
                f"Components are not stable: a second private fit may put about {100 * theta.moved:.2g} % of the rows "
                "into other components."
            )
            advice = "Use fewer components, more rows or a larger epsilon, or report the density, not the components."
            found.append(Diagnostic("unstable-components", "warning", words, advice))
        hollow = np.flatnonzero(theta.seen <= LEAST_SEEN)
        if len(hollow):
            names = tuple(self.support_names_[j] for j in hollow)
            words = f"Hardly any row has a value in {', '.join(names)}: the numbers of these columns are no estimates."
            found.append(Diagnostic("empty-column", "warning", words, "Leave these columns out.", names))
        narrow = np.flatnonzero(theta.floored)
        if len(narrow):
            names = tuple(self.support_names_[j] for j in narrow)
            words = f"Some components collapsed onto repeated values of {', '.join(names)}."
            advice = "Such columns are counts or levels; the components' spread there is a floor, not an estimate."
            found.append(Diagnostic("point-mass", "note", words, advice, names))
        if self.n_components == "auto" and self.n_components_ == MOST:
            words = f"{MOST} components were found, the most that are tried."
            advice = "Columns may be skewed, or have repeated values."
            found.append(Diagnostic("most-components", "warning", words, advice))
        return found

    def _uncertainty(self) -> Uncertainty:
        return uncertainty(self.theta_, self._own_schema, self.plan_.n // self.guarantee_.rows_per_person)


def in_units(theta: Parameters, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Means and covariances (K × d or K × d × d) in the table's units."""
    scale = schema.half**2 if theta.covariances.ndim == 2 else np.outer(schema.half, schema.half)
    return schema.middle + schema.half * theta.means, theta.covariances * scale


def _log_density(xp: Namespace, theta: Parameters, x: Array) -> Array:
    return mixture_of(theta).log_density(xp, x)


def _shares(xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
    logs = mixture_of(theta).joint(xp, x)
    share = xp.exp(logs - xp.max(logs, axis=1, keepdims=True))
    return share / xp.sum(share, axis=1, keepdims=True)
