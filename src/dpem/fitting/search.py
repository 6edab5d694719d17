"""A grid search that is private as a whole: all fits and the choice among them share one (ε, δ).

scikit-learn's ``GridSearchCV`` is not private, even with private estimators: it chooses by scores that are computed
from the rows without noise, so that a single row can decide which fit is published.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.fitting.diagnostics import FitWarning, issue
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.formula import missing_columns
from dpem.fitting.plan import Plan
from dpem.fitting.sequence import PrivateFit, atomic, keeps_arguments
from dpem.privacy import Curator, Price, largest_price
from dpem.query import Bound, Chunk, FloatArray
from dpem.tables import Source
from dpem.tables.blocks import is_frame, pieces, response
from dpem.tables.inputs import frame_of, open_table, source_of

if TYPE_CHECKING:
    from dpem.privacy import Budget, Ledger

#: The choice's share of the price; the candidates divide the rest equally.
CHOICE_SHARE = 0.1
#: Rows whose densities are computed at a time.
PIECE = 4096
#: Arguments that a grid must not contain: the search sets them, or they declare the table (levels, formula).
_FIXED = ("epsilon", "delta", "person", "rows_per_person", "budget", "random_state", "levels", "formula")

#: A function from rows and their responses to their log-densities under a fitted model.
Density = Callable[[FloatArray, FloatArray | None], FloatArray]


@dataclass(frozen=True)
class CandidateScores:
    """For each of k candidates c, Σ clamp(log p_c(row) − log p̄(row), ±log 2k), where p̄ is the mean of the candidates'
    densities.

    Ratios of densities have no unit, and log p_c/p̄ is at most log k. The clamp below bounds how much a row that
    candidate c cannot explain counts against it.

    *Lemma.* ℓ∞ sensitivity 2·log 2k. *Proof.* Every entry of a contribution is clamped to ±log 2k after it is computed;
    what is not a number counts as 0. ∎
    """

    densities: tuple[Density, ...] = field(repr=False)
    blocked: bool = False

    @property
    def most(self) -> float:
        return math.log(2 * len(self.densities))

    @property
    def label(self) -> str:
        return f"log-density of {len(self.densities)} candidates relative to their average, clamped at {self.most:.4g}"

    @property
    def bound(self) -> Bound:
        return Bound.symmetric(linf=self.most, l2=math.sqrt(len(self.densities)) * self.most)

    @np.errstate(all="ignore")
    def sum(self, chunk: Chunk) -> FloatArray:
        total, first = np.zeros(len(self.densities)), 0
        y = None if chunk.y is None else response(chunk)
        for rows in pieces(chunk.X, PIECE):
            responses = None if y is None else y[first : first + len(rows)]
            total += self._contributions(rows, responses).sum(axis=0)
            first += len(rows)
        return total

    def _contributions(self, rows: FloatArray, y: FloatArray | None) -> FloatArray:
        """The contribution of each row, with a column for each candidate; 0 for rows without a response."""
        missing = np.zeros(len(rows), dtype=bool) if y is None else ~np.isfinite(y)
        responses = None if y is None else np.where(missing, 0.0, y)
        logs = np.column_stack([density(rows, responses) for density in self.densities])
        logs[missing] = np.nan
        excess = logs - (logsumexp(logs, axis=1, keepdims=True) - math.log(logs.shape[1]))
        return np.clip(np.nan_to_num(excess, nan=0.0), -self.most, self.most)


class DPGridSearch(MetaEstimatorMixin, PrivateFit):
    """Fit an estimator at every point of a grid and choose one of the fits; the whole search is (ε, δ)-private.

    The price of (ε, δ) is divided beforehand: a tenth for the choice, the rest in equal parts for the candidates, each
    of which is fitted to all rows. The choice is the candidate with the largest mean log-density relative to the
    candidates' average, clamped (:class:`CandidateScores`) and with Gumbel noise.

    *Lemma.* Everything published is (ε, δ)-DP. *Proof.* The prices of the candidates and of the choice were fixed
    beforehand and add up to a ρ that converts to (ε, δ); releases compose adaptively, and the choice is one of them, at
    the price of its noise (:meth:`dpem.privacy.Curator.select`). ∎

    Parameters
    ----------
    estimator : estimator
        A private estimator with ``score_samples``, such as ``DPGaussianMixture``, without a budget of its own.
    param_grid : dict or list of dicts
        Values to try for the estimator's arguments, as for scikit-learn's ``GridSearchCV``. With k points, each fit
        gets 1/k of the candidates' price.
    epsilon, delta : float
        The guarantee of the whole search. Both must be given.
    {shared}

    Attributes
    ----------
    best_estimator_, best_params_, best_index_
        The chosen fit. Its ``guarantee_``, which its report states, is that of the whole search, since the choice
        depends on all fits. :func:`~dpem.save_model` refuses it, since a model file states the ε of one fit; joblib
        saves it.
    candidates_ : tuple of estimators
        All fits in the grid's order, which may be published too.
    releases_, guarantee_
        The releases of all fits and of the choice, and the guarantee of the whole search.

    Examples
    --------
    >>> import numpy as np
    >>> from dpem.paper import DPSymmetricMixture
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], size=(20_000, 1)) * [1.0, 0.0] + 0.5 * rng.standard_normal((20_000, 2))
    >>> model = DPSymmetricMixture(start="equal", n_iter=3)
    >>> search = DPGridSearch(model, {"sigma": [0.5, 2.0]}, epsilon=1.0, delta=1e-6).fit(X)
    >>> search.best_params_
    {'sigma': 0.5}
    """

    @keeps_arguments
    def __init__(
        self,
        estimator: PrivateFit,
        param_grid: Mapping[str, Sequence[object]] | Sequence[Mapping[str, Sequence[object]]],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Budget | Ledger | None = None,
        random_state: int | None = None,
    ) -> None: ...

    @atomic
    def fit(self, X: object, y: object = None) -> Self:
        """Fit every candidate to the rows and choose one. All refusals come before the charge."""
        epsilon, delta = self._privacy_parameters()
        if math.isinf(epsilon):
            raise ArgumentError("epsilon", "must be finite; without privacy, use scikit-learn's GridSearchCV.")
        points = self._points()
        price = largest_price(epsilon, delta, gaussian=False)
        source = self._source(X, y)
        n, d, k = source.n_rows, source.n_features, len(points)
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        share = (1 - CHOICE_SHARE) * price.rho / k
        settings = {**self._unit(), "delta": delta, "random_state": None}
        candidates = [_priced(clone(self.estimator).set_params(**point, **settings), share, X, y) for point in points]
        plan = Plan("grid-search", n, d, epsilon, delta, rows_per_person, (), price, settings={"candidates": k})

        def run(curator: Curator) -> tuple[tuple[PrivateFit, ...], int]:
            fits = tuple(self._fitted(i, candidate, X, y) for i, candidate in enumerate(candidates))
            if any(fit.guarantee_.price.rho > share * (1 + 1e-9) for fit in fits):
                raise RuntimeError("a candidate cost more than its share of the price; nothing was published.")
            query = CandidateScores(tuple(_density(fit, source) for fit in fits))
            return fits, int(curator.select(query, 1, CHOICE_SHARE * price.rho, offset=query.most)[0])

        (fits, chosen), guarantee, _ = self._spend(source, plan, run)
        releases = tuple(release for candidate in fits for release in candidate.releases_)
        self.guarantee_ = replace(guarantee, mechanisms=(*releases, *guarantee.mechanisms))
        self.releases_ = self.guarantee_.mechanisms
        self.candidates_, self.best_index_, self.best_params_ = fits, chosen, points[chosen]
        self.best_estimator_ = copy.copy(fits[chosen])
        self.best_estimator_.guarantee_ = self.guarantee_
        issue(getattr(self.best_estimator_, "diagnostics_", ()))
        return self

    @available_if(lambda self: hasattr(self.estimator, "predict"))
    def predict(self, X: object) -> Any:
        """The predictions of the chosen fit."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def _source(self, X: object, y: object) -> Source:
        """The rows on which candidates are compared, converted to numbers as in the candidates' fits."""
        needs_y = get_tags(self.estimator).target_tags.required
        if not isinstance(self.estimator, PrivateEstimator):
            return source_of(self, X, y, needs_y=needs_y, **self._unit())
        if self.estimator.max_weight is not None:
            raise ArgumentError("estimator", "must have no max_weight: a search cannot weight rows.")
        if (formula := self.estimator._compiled()) is not None:
            if needs_y or not is_frame(X):
                raise ArgumentError(
                    "estimator", "must have no formula, unless X is a data frame and the model has no response."
                )
            frame = frame_of(X)
            missing_columns(formula, frame.names)
            X = frame.subset([*formula.covariates, *([] if self.person is None else [self.person])])
        if is_frame(X):
            return open_table(self, X, y, needs_y=needs_y, **{**self.estimator._declared(), **self._unit()}).source
        return source_of(self, X, y, needs_y=needs_y, **self._unit())

    def _points(self) -> list[dict[str, object]]:
        """The points of the grid; an ArgumentError refuses an unsuitable estimator or grid."""
        if not hasattr(self.estimator, "score_samples") or not hasattr(self.estimator, "epsilon"):
            raise ArgumentError(
                "estimator",
                "must be a private estimator with score_samples, by which candidates are compared; "
                f"got {type(self.estimator).__name__}.",
            )
        if self.estimator.budget is not None:
            raise ArgumentError(
                "estimator", "must not have a budget: give it to the search, which is charged for all fits."
            )
        try:
            points = list(ParameterGrid(self.param_grid))
        except (TypeError, ValueError):
            raise ArgumentError(
                "param_grid", "must be a dict with a list of values for each argument, or a list of such dicts."
            ) from None
        parameters = self.estimator.get_params()
        for name in sorted({name for point in points for name in point}):
            if name in _FIXED or name not in parameters:
                reason = "is the same for all candidates" if name in _FIXED else "is no argument of the estimator"
                raise ArgumentError("param_grid", f"must name arguments that may differ, but {name!r} {reason}.")
        return points

    def _fitted(self, index: int, candidate: PrivateFit, X: object, y: object) -> PrivateFit:
        seed = None if self.random_state is None else int(self.random_state) + 1 + index
        candidate.set_params(random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # only the diagnostics of the chosen fit are issued
            warnings.filterwarnings("ignore", "random_state makes")  # the search has warned already
            return candidate.fit(X) if y is None else candidate.fit(X, y)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        candidate_tags = get_tags(self.estimator)
        tags.input_tags.string = candidate_tags.input_tags.string
        tags.input_tags.sparse = candidate_tags.input_tags.sparse
        tags.target_tags.required = candidate_tags.target_tags.required
        return tags


def _priced(candidate: PrivateFit, share: float, X: object, y: object) -> PrivateFit:
    """Give the candidate the largest ε whose price is within its share; raises whatever its fit would refuse."""
    for gaussian in (False, True):
        candidate.set_params(epsilon=Price(share, gaussian).epsilon(candidate.delta))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit issues the same warnings
            plan = candidate._preview_plan(X, y)
        if plan.price.rho <= share * (1 + 1e-9):
            return candidate
    raise ArgumentError("estimator", "must cost no more than its epsilon and delta allow.")


def _density(fit: PrivateFit, source: Source) -> Density:
    """The log-density of rows under a fitted model."""
    fit = copy.copy(fit)
    fit.__dict__.pop("feature_names_in_", None)  # chunks of rows have no column names to compare
    if getattr(source, "has_response", False):
        return lambda rows, y: fit.score_samples(rows, y)
    return lambda rows, y: fit.score_samples(rows)
