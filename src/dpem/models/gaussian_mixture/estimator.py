"""Groups of people: a mixture of Gaussians of any size, place and shape, holes allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem.fitting.check import CHECK_SHARE
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.step import State, Step, prices
from dpem.fitting.summary import Profile
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.gaussian_mixture.check_step import MixtureCheck
from dpem.models.gaussian_mixture.column_selection import (
    CENTRES,
    CHOICE,
    MOST_COLUMNS,
    after_choice,
    missed,
    with_choice,
)
from dpem.models.gaussian_mixture.column_step import ChooseGroupColumns
from dpem.models.gaussian_mixture.em_moments import KINDS
from dpem.models.gaussian_mixture.em_steps import EMStep
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.intervals import uncertainty
from dpem.models.gaussian_mixture.planning import EFFECT, predicted_fit, rules
from dpem.models.gaussian_mixture.prediction import SEPARATION
from dpem.models.gaussian_mixture.start_steps import MOST, FindCentres, FindShape, FindSpreads, StartFromSketch
from dpem.privacy.budget import shown
from dpem.queries.schema import Schema
from dpem.query import FloatArray

#: A group is a heap of equal values where it is narrower than this part of all rows.
HEAP = 0.02
#: How many components are reckoned with, for prices and steps, where their number is to be found.
RECKONED = 4
INDEPENDENT = "independent"
ADVICE = "Groups were not found: try fewer components, more rows or a larger epsilon, or publish one group."


@dataclass(frozen=True)
class Parameters:
    """A fitted mixture in unit coordinates, its start, the scores of numbers of components, and how much of
    each coordinate is seen.
    """

    kind: str
    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    start_weights: FloatArray
    start_means: FloatArray
    start_covariances: FloatArray
    path: FloatArray
    seen: FloatArray
    converged: bool = True

    def largest_first(self) -> Parameters:
        """The same components, by their weights."""
        order = np.argsort(-self.weights, kind="stable")
        names = ("weights", "means", "covariances", "start_weights", "start_means", "start_covariances")
        return replace(self, **{name: getattr(self, name)[order] for name in names})


@dataclass(frozen=True)
class GaussianMixture(Model):
    """K Gaussians with weights; ``n_components`` 0: their number is found too. ``proportions`` is the shape of a round
    component in unit coordinates: 1/half².
    """

    n_components: int
    kind: str
    proportions: FloatArray = field(repr=False)
    effect = EFFECT

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return self._fit(sizes, self.schema.width)

    def _fit(self, sizes: Sizes, width: int) -> tuple[Step, ...]:
        rule = rules(sizes, width, self.n_components or RECKONED)
        exact = math.isinf(sizes.rho)
        growing = [1.0] if exact else [rule.growth**t for t in range(rule.steps)]
        shares = [*rule.shares[:4], *(rule.shares[4] * own / math.fsum(growing) for own in growing)]
        if sizes.check:
            shares.append(CHECK_SHARE / (1 - CHECK_SHARE) * math.fsum(shares))
        rho = prices(sizes.rho, shares)
        found: list[Step] = [
            FindCentres(rho[0]),
            FindSpreads(rho[1]),
            FindShape(rho[2], self.n_components or MOST - 2),
            StartFromSketch(rho[3], self.n_components),
        ]
        for t in range(len(growing)):
            averaged = rule.averaged if t == len(growing) - 1 else 1
            found.append(EMStep(rho[4 + t], 1.0, 1, 5000) if exact else EMStep(rho[4 + t], rule.level, averaged))
        if sizes.check:
            found.append(MixtureCheck(rho[-1], ADVICE))
        return tuple(found)

    def refining(self, sizes: Sizes) -> tuple[Step, ...]:
        """The steps after the start, but for the check."""
        return self.steps(sizes)[4 : -1 if sizes.check else None]

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        K = self.n_components or RECKONED
        if sizes.n < K:
            raise ValueError(f"n_components must be at most the number of rows, got {K} for {sizes.n} rows.")
        return predicted_fit(self, sizes, K, reckoned=not self.n_components)

    def parameters(
        self, own: Gaussians, start: Gaussians, path: FloatArray, seen: FloatArray, converged: bool = True
    ) -> Parameters:
        """The record of a mixture and of the start it came from."""
        parts = (own.weights, own.means, own.covariances, start.weights, start.means, start.covariances)
        return Parameters(self.kind, *parts, path, seen, converged)

    def mixture_of(self, theta: Parameters) -> Gaussians:
        return Gaussians(theta.weights, theta.means, theta.covariances)

    def shape_of(self, state: State) -> FloatArray:
        """The proportions of a round component's variances over the coordinates in use."""
        return self.proportions if state.chosen is None else self.proportions[state.chosen]

    def log_density(self, xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
        own = self.mixture_of(theta)
        return own.product_of_margins(xp, x) if theta.kind == INDEPENDENT else own.log_density(xp, x)

    def rivals(self, theta: Parameters) -> list[tuple[str, Parameters]]:
        """What has to be described worse for the mixture to be believed, by name."""
        one = [("one group", self.simpler(theta))]
        return one if theta.means.shape[1] == 1 else [*one, ("independent columns", replace(theta, kind=INDEPENDENT))]

    def simpler(self, theta: Parameters) -> Parameters:
        """One Gaussian, correlated, with the mean and the covariance of the whole mixture."""
        own = self.mixture_of(theta)
        mean = own.weights @ own.means
        away = own.means - mean
        within = np.tensordot(own.weights, own.covariances, 1)
        whole = (within if own.full else np.diag(within)) + (own.weights[:, None] * away).T @ away
        one = Gaussians(np.ones(1), mean[None], whole[None])
        return self.parameters(one, one, theta.path, theta.seen)

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        return sample(self.mixture_of(theta), n, rng, theta.seen)[0], None


@dataclass(frozen=True)
class SparseGaussianMixture(GaussianMixture):
    """The same on ``sparsity`` columns of many: those that go together most."""

    sparsity: int = 2
    gaussian: ClassVar[bool] = False

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return (
            FindCentres(CENTRES * sizes.rho),
            ChooseGroupColumns(CHOICE * sizes.rho, self.sparsity),
            *self._fit(after_choice(sizes), self.sparsity),
        )

    def refining(self, sizes: Sizes) -> tuple[Step, ...]:
        return self.steps(sizes)[6 : -1 if sizes.check else None]

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        some = np.arange(self.sparsity)
        narrow = GaussianMixture(self.schema.take(some), self.n_components, self.kind, self.proportions[some])
        told = narrow.predict_fit(after_choice(sizes), steps)
        return with_choice(told, missed(sizes, self.schema.width, self.sparsity, sizes.effect or SEPARATION))


def sample(
    mixture: Gaussians, n: int, rng: np.random.Generator, seen: FloatArray | None = None
) -> tuple[FloatArray, NDArray[np.intp]]:
    """n rows in unit coordinates, each seen as often as ``seen`` says, and the component of each."""
    label = rng.choice(len(mixture.weights), size=n, p=mixture.weights / mixture.weights.sum())
    noise = rng.standard_normal((n, mixture.means.shape[1]))
    root = mixture.roots[label]
    rows = mixture.means[label] + (np.einsum("nij,nj->ni", root, noise) if mixture.full else root * noise)
    if seen is not None and np.any(seen < 1):
        rows[rng.random(rows.shape) >= seen] = np.nan
    return rows, label


class DPGaussianMixture(PrivateEstimator):
    """A mixture of K Gaussians, fitted by EM under differential privacy.

    Public bounds of every column and (ε, δ) are all that is needed. Columns are centred and scaled privately, a sketch
    of where rows lie gives the start, and EM steps on clipped moments give shares, means and covariances, in the
    table's units. Holes in rows are integrated out.

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
    rows_per_person : int
        The most rows that one person has; all of them are protected together.
    budget : Budget or Ledger, optional
        What the fit is charged to.
    check : bool
        Whether 5 % of the price goes to the fit check against one group.
    random_state : int, optional
        Repeatable noise, for simulations only: such a fit is not private.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_cholesky_ : array
        As scikit-learn's, in the table's units, of the columns in use; the largest component first. What is told calls
        it group 1; it is the label 0 of :meth:`predict`.
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
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.sparsity = sparsity
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.formula = formula
        self.rows_per_person = rows_per_person
        self.budget = budget
        self.check = check
        self.random_state = random_state

    def _model(self, schema: Schema) -> GaussianMixture:
        K = arguments.count_or_auto("n_components", self.n_components)
        if self.covariance_type not in KINDS:
            given = shown(self.covariance_type)
            raise ValueError(f"covariance_type must be one of {', '.join(KINDS)}, got {given}.")
        whole = (schema, K, self.covariance_type, schema.half**-2.0)
        if self.sparsity is None:
            return GaussianMixture(*whole)
        columns = arguments.count("sparsity", self.sparsity)
        if columns < 2:
            raise ValueError(f"sparsity must be at least 2, got {columns}: groups show in what columns say together.")
        if columns >= schema.width:
            return GaussianMixture(*whole)
        if schema.width > MOST_COLUMNS:
            raise ValueError(f"X must have at most {MOST_COLUMNS:,} columns to choose from, got {schema.width:,}.")
        return SparseGaussianMixture(*whole, columns)

    def _set_fitted(self, probe: Any, state: State, *known: Any) -> None:
        super()._set_fitted(probe, replace(state, theta=state.theta.largest_first()), *known)

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        means, whole = in_units(theta, schema)
        kind = theta.kind
        if kind == "spherical":
            covariances, roots = whole[:, 0], whole[:, 0] ** -0.5
        elif kind == "diag":
            covariances, roots = whole, whole**-0.5
        else:
            covariances = whole
            roots = np.swapaxes(np.linalg.inv(np.linalg.cholesky(whole)), 1, 2)
            if kind == "tied":
                covariances, roots = whole[0], roots[0]
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
        """The log-density of each row in the table's units, holes integrated out."""
        log_half = np.log(self._own_schema.half)
        return np.asarray(self._each(lambda xp, theta, x, y: _log_density(xp, theta, x) - np.isfinite(x) @ log_half, X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-density of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[FloatArray, NDArray[np.intp]]:
        """Rows drawn from the fitted mixture, and the component of each: post-processing, at no price."""
        rng = np.random.default_rng(random_state)
        u, label = sample(_mixture(self.theta_), arguments.count("n_samples", n_samples), rng)
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
        groups = tuple(f"group {k + 1}" for k in range(len(means)))
        ends = schema.middle - schema.half, schema.middle + schema.half
        return Profile(groups, self.theta_.weights, schema.names, means, np.sqrt(variances), *ends)

    def _diagnostics(self) -> list[Diagnostic]:
        own, found = _mixture(self.theta_), []
        within = np.diagonal(own.covariances, axis1=1, axis2=2) if own.full else own.covariances
        whole = own.weights @ (within + (own.means - own.weights @ own.means) ** 2)
        narrow = np.flatnonzero(np.min(within, axis=0) < HEAP**2 * whole)
        if len(narrow):
            names = tuple(self.support_names_[j] for j in narrow)
            words = f"Some components collapsed onto repeated values of {', '.join(names)}."
            found.append(Diagnostic("point-mass", "warning", words, "Such columns are counts or levels.", names))
        if self.n_components == "auto" and self.n_components_ == MOST:
            words = f"{MOST} components were found, the most that are tried."
            advice = "Columns may be skewed, or have repeated values."
            found.append(Diagnostic("most-components", "warning", words, advice))
        return found

    def _uncertainty(self) -> Uncertainty:
        model = self._model(self.schema_)
        sizes = Sizes(
            self.plan_.n,
            self.plan_.epsilon,
            self.plan_.delta,
            self.plan_.price.rho,
            self.plan_.rows_per_person,
            self.check,
        )
        return uncertainty(model, sizes, self.theta_, self._own_schema, in_units)


def in_units(theta: Parameters, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Means and covariances (K × d or K × d × d) in the table's units."""
    scale = schema.half**2 if theta.covariances.ndim == 2 else np.outer(schema.half, schema.half)
    return schema.middle + schema.half * theta.means, theta.covariances * scale


def _mixture(theta: Parameters) -> Gaussians:
    return Gaussians(theta.weights, theta.means, theta.covariances)


def _log_density(xp: Any, theta: Parameters, x: Any) -> Any:
    return _mixture(theta).log_density(xp, x)


def _shares(xp: Any, theta: Parameters, x: Any, y: Any) -> Any:
    logs = _mixture(theta).joint(xp, x)
    share = xp.exp(logs - xp.max(logs, axis=1, keepdims=True))
    return share / xp.sum(share, axis=1, keepdims=True)
