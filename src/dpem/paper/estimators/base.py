"""The base class of the paper's three estimators: the constructor, ``fit``, and methods for new rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.fitting.plan import Plan
from dpem.fitting.results import FittedModel
from dpem.fitting.sequence import atomic, keeps_arguments
from dpem.fitting.serialization import name_model
from dpem.fitting.step import State, run_steps
from dpem.fitting.summary import FitSummary
from dpem.paper.estimators import summary
from dpem.paper.estimators.planning import PlannedEM
from dpem.paper.models import MODELS
from dpem.paper.planning.plans import needs_start
from dpem.paper.published import PublishedEM
from dpem.paper.reference import ReferenceEM
from dpem.paper.steps import PaperState, Refine, Screen, Select, Start, Trim
from dpem.privacy import Budget, Curator, Guarantee
from dpem.query import FloatArray
from dpem.tables import Source
from dpem.tables.base import refuse_to_split
from dpem.tables.inputs import source_of
from dpem.tables.new_rows import pieces_of, with_responses
from dpem.tables.progress import expect

if TYPE_CHECKING:
    from dpem.privacy import Ledger


@dataclass(frozen=True)
class Parameters:
    """The fitted parameters: the support, the coefficients on it, and σ, given or estimated."""

    support: NDArray[np.intp]
    values: FloatArray
    sigma: float


class PrivateEM(PlannedEM, FittedModel):
    """The base class of the three estimators, whose docstrings list the parameters."""

    _step_kinds = (Screen, Start, Select, Refine, Trim, PublishedEM, ReferenceEM)
    _takes_scaler = True

    @keeps_arguments
    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        sparsity: int | str | None = None,
        max_sparsity: int | None = None,
        sigma: float | None = None,
        signal: float = 1.0,
        method: Literal["improved", "published"] = "improved",
        start: ArrayLike | str | None = None,
        n_iter: int | None = None,
        step_size: float | None = None,
        clip: float | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Budget | Ledger | None = None,
        random_state: int | None = None,
    ) -> None: ...

    def fit(self, X: object, y: object = None) -> Self:
        """Fit β to the rows of X, and to their responses y if the model has them. A source has its own responses."""
        return self._fit(X, y if self._needs_y else None)

    @atomic
    def _fit(self, X: object, y: object) -> Self:
        source, charged = self._checked_fit(self, X, y)
        start = PaperState.at(self._start(charged.d), charged.d)

        def run(curator: Curator) -> tuple[Plan, Parameters]:
            plan, sigma = (charged, self.sigma) if self.sigma is not None else self._plan_with_sigma(curator, charged)
            expect(plan.n * plan.passes)
            state = run_steps(curator, self._model(sigma), plan.steps, start)
            return plan, Parameters(state.support, state.beta[state.support], float(sigma))

        (plan, theta), guarantee, charge = self._spend(source, charged, run)
        self._set_fitted(State(theta), plan, guarantee)
        name_model(charge, self)
        return self

    def _set_fitted(self, state: State, plan: Plan, guarantee: Guarantee) -> None:
        """Set the fitted attributes, or raise ValueError if those read from a file contradict each other."""
        theta, d = state.theta, self.n_features_in_
        max_size = arguments.sparsity(self.sparsity, self.max_sparsity, d)[0] or d
        self._start(d)
        in_order = theta.support.ndim == 1 and bool((np.diff(theta.support, prepend=-1, append=d) > 0).all())
        if not in_order or not theta.support.shape == theta.values.shape or len(theta.support) > max_size:
            raise ValueError("fitted.theta.support must name columns in order, at most as many as parameters.sparsity")
        if not theta.sigma > 0 or self.sigma not in (None, theta.sigma):
            raise ValueError("fitted.theta.sigma does not agree with parameters.sigma")
        self.theta_, self.chosen_, self.fit_check_ = theta, None, None
        self.coef_, self.support_, self.sigma_ = np.zeros(d), theta.support, theta.sigma
        self.coef_[theta.support] = theta.values
        self.plan_, self.guarantee_, self.releases_ = plan, guarantee, guarantee.mechanisms
        self.n_iter_ = sum(getattr(step, "n_iter", isinstance(step, Select | Refine)) for step in plan.steps)
        self.scaler_: str | None = None

    def _check_columns(self, source: Source) -> None:
        """Refuse arguments that do not fit the table's numbers of rows and columns."""
        arguments.rows_per_person(self.rows_per_person, source.n_rows)
        arguments.sparsity(self.sparsity, self.max_sparsity, source.n_features)
        self._start(source.n_features)

    def _checked_fit(self, owner: BaseEstimator, X: object, y: object) -> tuple[Source, Plan]:
        """The table and the plan of a fit that passes all checks; ``owner`` gets the attributes of the columns."""
        self._check_arguments()
        source = source_of(owner, X, y, needs_y=self._needs_y, **self._unit())
        if self.method == "published":
            refuse_to_split(source)
        plan = self.plan(source.n_rows, source.n_features)
        if needs_start(plan):
            reason = f"must be given: a private one is predicted to fail at n={plan.n}; {plan.advice}."
            raise ArgumentError("start", reason)
        return source, plan

    def _preview_plan(self, X: object, y: object = None) -> Plan:
        """The plan of a fit to these rows, checked as ``fit`` does. No query is sent."""
        return self._checked_fit(copy.copy(self), X, y if self._needs_y else None)[1]

    def _charged_plan(self) -> Plan:
        """The plan that was charged, before σ was estimated."""
        return self.plan_ if self.sigma is not None else self.plan(self.plan_.n, self.plan_.d)

    def _model(self, sigma: float | None = None) -> Any:  # each estimator knows which model it has
        return MODELS[self._name()](self.sigma_ if sigma is None else sigma)

    def _sample_responses(self, X: object, rng: np.random.Generator) -> Any:
        """New responses for the rows of X, as the model's ``sample`` returns them."""
        rows = np.concatenate(list(pieces_of(self, X, missing=self._missing)))
        return self._model().sample(self.coef_, rows, rng)

    def _by_pieces(self, function: Callable[..., FloatArray], X: object, y: object = None) -> FloatArray:
        """The values of a function of rows (and responses), computed piece by piece."""
        pieces = pieces_of(self, X, missing=self._missing)
        if y is None:
            return np.concatenate([function(rows) for rows in pieces])
        return np.concatenate([function(rows, part) for rows, part in with_responses(pieces, y)])

    def score_samples(self, X: object, y: object = None) -> FloatArray:
        """The log-density of each row, or of each response given the observed entries of its row."""
        return self._by_pieces(partial(self._model().log_likelihood, self.coef_), X, y if self._needs_y else None)

    _estimates, _extra = summary.estimates, summary.components

    def _fit_summary(self) -> FitSummary:
        s, d = len(self.support_), self.n_features_in_
        released = f"{s:,} of {d:,} coefficients" if s < d else f"all {d:,} coefficients"
        return replace(super()._fit_summary(), released=released)


class TwoComponents(PrivateEM):
    """The base class of both mixtures, whose components 1 and 0 have the coefficients +β and −β."""

    def predict_proba(self, X: object, y: object = None) -> FloatArray:
        """The E-step: the probabilities of components 0 and 1 given each row and response; 1/2 without y."""
        check_is_fitted(self)
        if self._needs_y and y is None:
            return np.full((len(self._by_pieces(np.asarray, X)), 2), 0.5)
        p = self._by_pieces(partial(self._model().posterior, self.coef_), X, y if self._needs_y else None)
        return np.column_stack([1 - p, p])

    def score(self, X: object, y: object = None) -> float:
        """The mean log-density of the rows, or of their responses."""
        return float(np.mean(self.score_samples(X, y)))
