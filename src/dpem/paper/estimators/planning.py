"""The arguments of the paper's three estimators, and their plans: improved, published, or without privacy."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dpem import _validation as arguments
from dpem._validation import Argument, ArgumentError
from dpem.fitting.plan import Plan
from dpem.fitting.sequence import PrivateFit, privacy_remarks
from dpem.paper.models import MODELS
from dpem.paper.planning.plans import improved_plan
from dpem.paper.planning.rehearsal import Problem
from dpem.paper.published import published_plan
from dpem.paper.reference import reference_plan
from dpem.paper.sigma import estimate_sigma, rows_for_sigma
from dpem.privacy import Curator, largest_price
from dpem.query import FloatArray

#: The assumed distance of ``start`` from the truth, as a fraction of the signal.
START_DISTANCE = 0.5
#: The assumed fraction of missing covariates; to estimate the true one would cost privacy budget.
ASSUMED_MISSING = 0.2
#: The share of ρ for estimating σ.
SIGMA_SHARE = 0.05
#: The argument in messages.
PUBLISHED = Argument("method", "published")

PARAMETERS = """\
Parameters
----------
epsilon, delta : float
    The privacy guarantee for replacing one row, or all rows of one person (``rows_per_person``). Both must be
    given. ``epsilon=float("inf")`` fits without privacy, for comparison.
sparsity : int, "auto" or None
    The largest number of non-zero coefficients. None is the low-dimensional algorithm, which releases all
    coefficients; "auto" fits ``max_sparsity`` of them and sets those to zero that the known noise level explains.
max_sparsity : int or None
    With ``sparsity="auto"``: the largest number of non-zero coefficients.
sigma : float or None
    Standard deviation of the model's noise, if it is publicly known. By default, None, a twentieth of the price
    is spent on estimating it (see ``sigma_``).
signal : float
    Assumed norm of the coefficient vector, for which settings are chosen. A wrong value costs accuracy, never
    privacy.
method : {"improved", "published"}
    "published" is the paper's algorithm with its settings and noise; errata E1, E2 and E4 (docs/errata.md) are
    corrected, E5 and E6 refused. "improved", the default, is not in the paper: every step uses all rows, columns are
    selected once, EM continues on the selected columns, and every setting is chosen from public numbers.
start : array of shape (n_features,), "equal" or None
    The starting value of EM, which must not be computed from these data. "equal" is signal/√d everywhere.
n_iter : int or None
    Refining steps, or batches N₀ of the published algorithm; the plan's if not given.
step_size : float or None
    The step η of EM; the plan's if not given.
clip : float or None
    The clip T of an entry; the plan's if not given.
{shared}

Attributes
----------
coef_, support_ : arrays
    The coefficients, and the columns they may be non-zero on.
sigma_ : float
    The noise level that was used: the argument, or the released estimate.
plan_, releases_, guarantee_ : Plan, tuple of Release, Guarantee
    The settings, the releases and their prices, and the guarantee to publish with the model.
scaler_ : str or None
    The fingerprint of the scaler that the rows must pass first, if the model was loaded from a file that names one.
n_iter_, n_features_in_, feature_names_in_
    EM steps taken, and scikit-learn's usual two.
"""


class PlannedEM(PrivateFit):
    """The base class of the three estimators that checks arguments and makes plans."""

    _model_name: ClassVar[str]
    _missing: ClassVar[bool] = False  # whether covariates may be missing

    def __init_subclass__(cls, **options: object) -> None:
        cls.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace("{parameters}", PARAMETERS.rstrip())
        super().__init_subclass__(**options)

    @classmethod
    def _name(cls) -> str:
        return cls._model_name  # not from the class name, which a user's subclass changes

    def _check_arguments(self) -> None:
        """Refuse arguments that are wrong whatever the table is."""
        self._privacy_parameters()
        arguments.one_of("method", self.method, ("improved", "published"))
        arguments.positive("signal", self.signal)
        arguments.optional_positive("sigma", self.sigma)
        arguments.optional_count("n_iter", self.n_iter)
        arguments.optional_positive("step_size", self.step_size)
        arguments.optional_positive("clip", self.clip)
        if self.sigma is None and self.method == "published":
            raise ArgumentError(PUBLISHED, "needs ", Argument("sigma"), ": the paper assumes that it is known.")

    def plan(
        self, n: int, d: int | None = None, *, columns: Sequence[str] | None = None, target: str | None = None
    ) -> Plan:
        """The steps of a fit to n rows of d columns, their prices and the predicted error. Nothing is read or spent.

        Parameters
        ----------
        n : int
            Rows of the table.
        d : int, optional
            Columns of the table, the response not counted.
        columns : sequence of str, optional
            The names of the columns, in place of d.
        target : str, optional
            The response's name; the plan does not depend on it.

        Returns
        -------
        Plan
            If σ is to be estimated, the plan assumes half of the signal and reserves the price of the estimate; the fit
            makes a new plan with the estimated σ.
        """
        self._check_arguments()
        if d is None and columns is None:
            raise ArgumentError("d", "or ", Argument("columns"), " must be given.")
        n, d = arguments.count("n", n), arguments.count("d", len(columns) if d is None and columns is not None else d)
        self._start(d)
        if self.sigma is not None:
            return self._plan(n, d, float(self.sigma))
        price = largest_price(float(self.epsilon), float(self.delta), gaussian=False)
        rho = SIGMA_SHARE * price.rho
        if math.isfinite(rho):
            rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
            least = rows_for_sigma(d, of_response=self._needs_y, rho=rho, rows_per_person=rows_per_person)
            if n < least:
                raise ArgumentError("sigma", f"must be given: estimating it takes about {least} rows, there are {n}.")
        plan = self._plan(n, d, arguments.clamp_to_range(float(self.signal) / 2), spent=rho)
        note = " Without sigma the fit first spends a twentieth of its price on estimating it, and then plans anew."
        prediction = plan.prediction and replace(plan.prediction, assumed=plan.prediction.assumed + note)
        return replace(plan, price=price, prediction=prediction)

    def _plan_with_sigma(self, curator: Curator, charged: Plan) -> tuple[Plan, float]:
        """σ, estimated at its share of the price, and the plan for the rest."""
        rho = SIGMA_SHARE * charged.price.rho
        estimate = estimate_sigma(curator, signal=float(self.signal), of_response=self._needs_y, rho=rho)
        sigma = arguments.clamp_to_range(estimate)  # an estimate that has been paid for is never refused
        plan = self._plan(charged.n, charged.d, sigma, spent=rho)
        self._warn_before_charge(replace(plan, remarks=()))
        return plan, sigma

    def _plan(self, n: int, d: int, sigma: float, spent: float = 0.0) -> Plan:
        """The plan for a known or released σ; ``spent`` is the part of ρ paid for σ."""
        epsilon, delta, signal = float(self.epsilon), float(self.delta), float(self.signal)
        sparsity, auto = arguments.sparsity(self.sparsity, self.max_sparsity, d)
        problem = Problem(
            *(MODELS[self._name()](sigma), n, d, sparsity or d, signal),
            missing=ASSUMED_MISSING if self._missing else 0.0,
            start_distance=None if self.start is None else START_DISTANCE * signal,
            rows_per_person=arguments.rows_per_person(self.rows_per_person, n),
        )
        if auto and (math.isinf(epsilon) or self.method == "published"):
            improved = Argument("method", "improved")
            raise ArgumentError(Argument("sparsity", "auto"), "goes with a finite epsilon and ", improved, " only.")
        if math.isinf(epsilon):
            plan = reference_plan(problem, delta, sparsity, n_iter=self.n_iter, step=self.step_size)
        elif self.method == "published":
            if self.start is None and not self._missing:
                reason = ": the paper's algorithm begins close to the truth."
                raise ArgumentError(PUBLISHED, "needs ", Argument("start"), reason)
            options = {"n_iter": self.n_iter, "step": self.step_size, "T": self.clip}
            plan = published_plan(problem, epsilon, delta, sparsity, **options)
        else:
            entry = None if self.clip is None else self.clip / self._entry_scale(sigma)
            settings = {"n_refine": self.n_iter, "step": self.step_size, "entry": entry}
            fixed = tuple((setting, value) for setting, value in settings.items() if value is not None)
            plan = improved_plan(problem, epsilon, delta, fixed, auto, spent)
        return replace(plan, remarks=privacy_remarks(epsilon, delta, n), settings={**self._settings(), "sigma": sigma})

    def _start(self, d: int) -> FloatArray | None:
        """The start as a vector, or None if it is not given."""
        start, signal = self.start, arguments.positive("signal", self.signal)
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
            reason = f"must be a vector of length {d}, one entry per column; got shape {vector.shape}."
            raise ArgumentError("start", reason)
        if not np.isfinite(vector).all():
            raise ArgumentError("start", "must hold finite numbers only.")
        if not self._missing and not vector.any():
            reason = "must not be zero: the mixture's gradient vanishes there and no step would leave it."
            raise ArgumentError("start", reason)
        return vector

    def _settings(self) -> dict[str, object]:
        start = self.start if self.start is None or isinstance(self.start, str) else "a vector"
        fitted = {"sigma": self.sigma_} if "theta_" in vars(self) else {}
        return {**super()._settings(), "start": start, **fitted}

    def _entry_scale(self, sigma: float) -> float:
        """The unit of :class:`~dpem.paper.planning.settings.Settings.entry`."""
        return 1.0
