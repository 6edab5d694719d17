"""What the three estimators share: constructor, plan, charge, fit, fitted attributes."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpem import _validation as arguments
from dpem._validation import Argument, ArgumentError
from dpem.fitting.plan import Plan
from dpem.fitting.results import FittedModel
from dpem.fitting.sequence import PrivateFit, all_at_once, keeps_arguments, remarks_on
from dpem.fitting.serialization import name_model
from dpem.fitting.step import State, run_steps
from dpem.fitting.summary import Estimates, Extra, FitSummary
from dpem.paper.estimators import summary
from dpem.paper.estimators._docs import filled
from dpem.paper.fixed_plans import published_plan, reference_plan
from dpem.paper.improved.planning import needs_start, plan
from dpem.paper.improved.planning.simulate import Model
from dpem.paper.improved.steps import Refine, Screen, Select, Start, Trim
from dpem.paper.models import MODELS
from dpem.paper.published import PublishedEM
from dpem.paper.reference import ReferenceEM
from dpem.paper.sigma import estimate_sigma, rows_for_sigma
from dpem.paper.state import PaperState
from dpem.privacy import (
    Budget,
    Curator,
    Guarantee,
    largest_price,
)
from dpem.query import FloatArray
from dpem.tables.base import refuse_to_split
from dpem.tables.inputs import source_of
from dpem.tables.new_rows import beside, pieces_of
from dpem.tables.progress import expect

if TYPE_CHECKING:
    from dpem.privacy import Ledger

#: The method that follows the paper, in messages.
PUBLISHED = Argument("method", "published")
#: How far from the truth a given start is assumed to be when settings are chosen, as a part of the signal.
START_DISTANCE = 0.5
#: Part of the covariates assumed missing when settings are chosen; the true part would have to be paid for.
ASSUMED_MISSING = 0.2

#: Part of ρ that goes to σ when it is to be estimated.
SIGMA_SHARE = 0.05


@dataclass(frozen=True)
class Parameters:
    """What is released of a fit: the support, the coefficients on it, and σ as it was used."""

    support: NDArray[np.intp]
    values: FloatArray
    sigma: float


class PrivateEM(PrivateFit, FittedModel):
    """Shared by the three estimators; see their docstrings for the parameters."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__doc__ = filled(cls.__doc__)

    _model_name: ClassVar[str]
    _step_kinds = (Screen, Start, Select, Refine, Trim, PublishedEM, ReferenceEM)
    _missing: ClassVar[bool] = False
    #: How some arguments look as options of a command.
    _options: ClassVar[dict[str, dict[str, Any]]] = {
        "sparsity": {"metavar": "N|auto", "help": "Coefficients that may be non-zero; all if not given."},
        "max_sparsity": {"help": "With --sparsity auto: the most there may be."},
        "sigma": {"help": "Noise level, if publicly known; estimated and paid for if not."},
        "signal": {"help": "Assumed length of the coefficients."},
        "method": {
            "choices": ("improved", "published"),
            "help": "published: the paper's algorithm, errata E1, E2, E4 corrected; improved: not in the paper.",
        },
        "n_iter": {"help": "Refining steps, or batches of the published algorithm; the plan's if not given."},
        "step_size": {"help": "The step η of an EM step; the plan's if not given."},
        "clip": {"help": "The clip T of an entry; the plan's if not given."},
    }
    _takes_scaler: ClassVar[bool] = True  # whether it may be fitted to what a scaler returned

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
        method: str = "improved",
        start: Any = None,
        n_iter: int | None = None,
        step_size: float | None = None,
        clip: float | None = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Budget | Ledger | None = None,
        random_state: int | None = None,
    ) -> None: ...

    @all_at_once
    def _fit(self, X: Any, y: Any) -> Self:
        """Validate, plan, charge, query: nothing is charged on a refusal, no query is sent before the charge."""
        self._check_arguments()
        source = source_of(self, X, y, needs_y=self._needs_y, **self._who())
        if self.method == "published":
            refuse_to_split(source)
        fit_plan = self.plan(source.n_rows, source.n_features)
        self._accept(fit_plan)
        start, noise = self._start(fit_plan.d), self._noise(stacklevel=5)

        def run(curator: Curator) -> tuple[Plan, Parameters]:
            made = fit_plan if self.sigma is not None else self._plan_with_sigma(curator, fit_plan)
            expect(made.n * made.passes)
            sigma = made.settings["sigma"]
            state = run_steps(curator, self._model(sigma), made.steps, PaperState.at(start, made.d))
            return made, Parameters(state.support, state.beta[state.support], sigma)

        (made, theta), guarantee, charge = self._spend(source, fit_plan, noise, run)
        self._set_fitted(State(theta), made, guarantee)
        name_model(charge, self)
        return self

    def _set_fitted(self, state: State, made: Plan, guarantee: Guarantee) -> None:
        """Set the fitted attributes; a ValueError refuses those of a file that do not go together."""
        theta, d = state.theta, self.n_features_in_
        most = arguments.sparsity(self.sparsity, self.max_sparsity, d)[0] or d
        self._start(d)
        inside = theta.support.ndim == 1 and bool((np.diff(theta.support, prepend=-1, append=d) > 0).all())
        if not inside or not theta.support.shape == theta.values.shape or len(theta.support) > most:
            raise ValueError("fitted.theta.support must name columns in order, at most as many as parameters.sparsity")
        if not theta.sigma > 0 or self.sigma not in (None, theta.sigma):
            raise ValueError("fitted.theta.sigma does not agree with parameters.sigma")
        self.theta_, self.chosen_, self.fit_check_ = theta, None, None
        self.coef_, self.support_, self.sigma_ = np.zeros(d), theta.support, theta.sigma
        self.coef_[theta.support] = theta.values
        self.plan_, self.guarantee_, self.releases_ = made, guarantee, guarantee.mechanisms
        self.n_iter_ = sum(getattr(step, "em_steps", 0) for step in made.steps)
        self.scaler_: str | None = None

    def _plan_with_sigma(self, curator: Curator, charged: Plan) -> Plan:
        """Estimate σ at its share of the charged price, and plan the rest with it."""
        rho = SIGMA_SHARE * charged.price.rho
        found = estimate_sigma(curator, signal=float(self.signal), of_response=self._needs_y, rho=rho)
        sigma = arguments.in_range(found)  # once paid for, it is never refused
        made = self._plan(charged.n, charged.d, charged.epsilon, charged.delta, sigma, spent=rho)
        self._warn_of_noise(made)
        return made

    def plan(
        self, n: int, d: int | None = None, *, columns: Sequence[str] | None = None, target: str | None = None
    ) -> Plan:
        """What a fit to n rows of d columns releases, its price, and what to expect of it. Nothing is read or spent.

        Parameters
        ----------
        n : int
            Rows of the table.
        d : int, optional
            Columns of the table, the response not counted.
        columns : sequence of str, optional
            Their names, in place of d.
        target : str, optional
            The response's name; it changes nothing.

        Returns
        -------
        Plan
            Where σ is to be estimated, the plan assumes that it is half of the signal, and sets aside what estimating
            it costs; the fit plans anew once it knows σ.
        """
        self._check_arguments()
        if d is None and columns is None:
            raise ArgumentError("d", "or ", Argument("columns"), " must be given.")
        n, d = arguments.count("n", n), arguments.count("d", len(columns) if d is None and columns is not None else d)
        epsilon, delta = arguments.privacy_parameters(self.epsilon, self.delta)
        self._start(d)
        if self.sigma is not None:
            return self._plan(n, d, epsilon, delta, arguments.positive("sigma", self.sigma))
        signal = arguments.positive("signal", self.signal)
        price = largest_price(epsilon, delta, gaussian=False)
        if math.isfinite(epsilon):
            rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
            rho = SIGMA_SHARE * price.rho
            needed = rows_for_sigma(d, of_response=self._needs_y, rho=rho, rows_per_person=rows_per_person)
            if n < needed:
                raise ArgumentError("sigma", f"must be given: estimating it takes about {needed} rows, there are {n}.")
        made = self._plan(n, d, epsilon, delta, arguments.in_range(signal / 2), spent=SIGMA_SHARE * price.rho)
        anew = " Without sigma the fit first spends a twentieth of its price on estimating it, and then plans anew."
        prediction = made.prediction and replace(made.prediction, assumed=made.prediction.assumed + anew)
        return replace(made, price=price, prediction=prediction)

    def _check_columns(self, source: Any) -> None:
        """Refuse what does not go with so many rows and columns."""
        arguments.rows_per_person(self.rows_per_person, source.n_rows)
        arguments.sparsity(self.sparsity, self.max_sparsity, source.n_features)
        self._start(source.n_features)

    @property
    def _spends_in_full(self) -> bool:
        """Whether a fit costs all that its ε and δ buy; the paper's printed noise costs less."""
        return bool(self.method != "published")

    def _preview_plan(self, X: Any, y: Any = None) -> Plan:
        """The plan of a fit to these rows, once everything that the fit would refuse has been. No query is sent."""
        self._check_arguments()
        source = source_of(copy.copy(self), X, y, needs_y=self._needs_y, **self._who())
        made = self.plan(source.n_rows, source.n_features)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the plan says the same
            self._accept(made)
        return made

    def _check_arguments(self) -> None:
        """Refuse what is wrong whatever the rows are."""
        self._privacy_parameters()
        arguments.one_of("method", self.method, ("improved", "published"))
        arguments.positive("signal", self.signal)
        arguments.optional_positive("sigma", self.sigma)
        arguments.optional_count("n_iter", self.n_iter)
        arguments.optional_positive("step_size", self.step_size)
        arguments.optional_positive("clip", self.clip)
        if self.sigma is None and self.method == "published":
            raise ArgumentError(PUBLISHED, "needs ", Argument("sigma"), ": the paper assumes that it is known.")

    def _accept(self, made: Plan) -> None:
        """Refuse a plan that is expected to fail, and say what speaks against one that is not; before the charge."""
        for remark in made.remarks:
            warnings.warn(remark, UserWarning, stacklevel=5)
        if needs_start(made):
            raise ArgumentError(
                "start", f"must be given: a private one is predicted to fail at n={made.n}; {made.advice}."
            )
        self._warn_of_noise(made)

    @staticmethod
    def _warn_of_noise(made: Plan) -> None:
        if not made.feasible:
            warnings.warn(f"expect little more than noise of this fit: {made.advice}.", UserWarning, stacklevel=6)

    def _plan(self, n: int, d: int, epsilon: float, delta: float, sigma: float, spent: float = 0.0) -> Plan:
        made = self._chosen_plan(n, d, epsilon, delta, sigma, spent)
        return replace(made, remarks=remarks_on(epsilon, delta, n), settings={**self._settings(), "sigma": sigma})

    def _chosen_plan(self, n: int, d: int, epsilon: float, delta: float, sigma: float, spent: float) -> Plan:
        """Every setting of the fit, from public numbers: the sizes, the constructor's arguments, a σ that was paid
        for.
        """
        signal, n_iter, step, clip = float(self.signal), self.n_iter, self.step_size, self.clip
        sparsity, auto = arguments.sparsity(self.sparsity, self.max_sparsity, d)
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        sizes: dict[str, Any] = {"n": n, "d": d, "delta": delta, "sparsity": sparsity}
        sizes["rows_per_person"] = rows_per_person
        if auto and (math.isinf(epsilon) or self.method == "published"):
            improved = Argument("method", "improved")
            raise ArgumentError(Argument("sparsity", "auto"), "goes with a finite epsilon and ", improved, " only.")
        if math.isinf(epsilon):
            sizes.update(sigma=sigma, signal=signal, has_start=self.start is not None)
            return reference_plan(self._name(), **sizes, n_iter=n_iter, step=step)
        if self.method == "published":
            if self.start is None and not self._missing:
                why = ": the paper's algorithm begins close to the truth."
                raise ArgumentError(PUBLISHED, "needs ", Argument("start"), why)
            return published_plan(self._name(), **sizes, epsilon=epsilon, n_iter=n_iter, step=step, T=clip)
        pinned = {"n_refine": n_iter, "step": step, "entry": None if clip is None else clip / self._entry_scale(sigma)}
        return plan(
            self._name(),
            **sizes,
            epsilon=epsilon,
            sigma=sigma,
            signal=signal,
            missing=ASSUMED_MISSING if self._missing else 0.0,
            start_distance=None if self.start is None else START_DISTANCE * signal,
            fixed=tuple((knob, value) for knob, value in pinned.items() if value is not None),
            trim=auto,
            spent=spent,
        )

    def _start(self, d: int) -> FloatArray | None:
        return start_vector(self.start, d, arguments.positive("signal", self.signal), zero_allowed=self._missing)

    def _model(self, sigma: float | None = None) -> Model:
        return MODELS[self._name()](self.sigma_ if sigma is None else sigma)

    def _entry_scale(self, sigma: float) -> float:
        """The unit in which plans state the clip of an entry."""
        return 1.0

    def _rows(self, X: Any) -> NDArray[np.floating]:
        """Rows to apply the fitted model to, all of them dense."""
        return np.concatenate(list(pieces_of(self, X, missing=self._missing)))

    def _each(self, function: Callable[..., FloatArray], X: Any, y: Any = None) -> FloatArray:
        """A function of rows (and responses), one number a row, computed piece by piece."""
        pieces = pieces_of(self, X, missing=self._missing)
        if y is None:
            return np.concatenate([function(rows) for rows in pieces])
        return np.concatenate([function(rows, part) for rows, part in beside(pieces, y)])

    @classmethod
    def _name(cls) -> str:
        """The model's name, also of a user's subclass."""
        return cls._model_name

    def _settings(self) -> dict[str, Any]:
        start = self.start if self.start is None or isinstance(self.start, str) else "a vector"
        fitted = {"sigma": self.sigma_} if "theta_" in vars(self) else {}
        return {**super()._settings(), "start": start, **fitted}

    def _estimates(self) -> Estimates | None:
        return summary.estimates(self)

    def _extra(self) -> Extra | None:
        return summary.components(self)

    def _fit_summary(self) -> FitSummary:
        kept, d = len(self.support_), self.n_features_in_
        released = f"{kept:,} of {d:,} coefficients" if kept < d else f"all {d:,} coefficients"
        return replace(super()._fit_summary(), released=released)


def start_vector(start: Any, d: int, signal: float, *, zero_allowed: bool) -> FloatArray | None:
    """The start as a vector: None stays None, "equal" is signal/√d everywhere."""
    if start is None:
        return None
    if isinstance(start, str):
        arguments.one_of("start", start, ("equal",))
        return np.full(d, signal / math.sqrt(d))
    try:
        vector = np.array(start, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError("start", 'must be a vector of numbers, "equal" or None.') from None
    if vector.shape != (d,):
        raise ArgumentError("start", f"must be a vector of length {d}, one entry per column; got shape {vector.shape}.")
    if not np.isfinite(vector).all():
        raise ArgumentError("start", "must hold finite numbers only.")
    if not zero_allowed and not vector.any():
        raise ArgumentError(
            "start", "must not be zero: the mixture's gradient vanishes there and no step would leave it."
        )
    return vector
