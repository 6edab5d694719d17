"""Plans of the paper's estimators, from their arguments: published, improved, or without privacy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dpem import _validation as arguments
from dpem._validation import Argument, ArgumentError
from dpem.fitting.plan import Plan
from dpem.fitting.sequence import PrivateFit, remarks_on
from dpem.paper.estimators.arguments import start_vector
from dpem.paper.improved.planning import plan
from dpem.paper.published import published_plan
from dpem.paper.reference import reference_plan
from dpem.paper.sigma import estimate_sigma, rows_for_sigma
from dpem.privacy import Curator, largest_price
from dpem.query import FloatArray

#: The method that follows the paper, in messages.
PUBLISHED = Argument("method", "published")
#: The assumed distance of a given start from the truth, as a fraction of the signal.
START_DISTANCE = 0.5
#: The assumed fraction of missing covariates; measuring the true one would cost a part of the price.
ASSUMED_MISSING = 0.2
#: The share of ρ for estimating σ.
SIGMA_SHARE = 0.05


class PlannedEM(PrivateFit):
    """The part of the three estimators that checks arguments and makes plans."""

    _model_name: ClassVar[str]
    _missing: ClassVar[bool] = False  # whether the model has missing covariates

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

    def _plan_with_sigma(self, curator: Curator, charged: Plan) -> Plan:
        """The plan for the rest of the price, with σ estimated at its share of it."""
        rho = SIGMA_SHARE * charged.price.rho
        estimate = estimate_sigma(curator, signal=float(self.signal), of_response=self._needs_y, rho=rho)
        sigma = arguments.in_range(estimate)  # an estimate that has been paid for is never refused
        new_plan = self._plan(charged.n, charged.d, charged.epsilon, charged.delta, sigma, spent=rho)
        self._warn_of_noise(new_plan)
        return new_plan

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
        fit_plan = self._plan(n, d, epsilon, delta, arguments.in_range(signal / 2), spent=SIGMA_SHARE * price.rho)
        note = " Without sigma the fit first spends a twentieth of its price on estimating it, and then plans anew."
        prediction = fit_plan.prediction and replace(fit_plan.prediction, assumed=fit_plan.prediction.assumed + note)
        return replace(fit_plan, price=price, prediction=prediction)

    def _plan(self, n: int, d: int, epsilon: float, delta: float, sigma: float, spent: float = 0.0) -> Plan:
        fit_plan = self._chosen_plan(n, d, epsilon, delta, sigma, spent)
        return replace(fit_plan, remarks=remarks_on(epsilon, delta, n), settings={**self._settings(), "sigma": sigma})

    def _chosen_plan(self, n: int, d: int, epsilon: float, delta: float, sigma: float, spent: float) -> Plan:
        """The plan from public numbers: the sizes, the constructor's arguments and a σ that is known or released."""
        signal, n_iter, step, clip = float(self.signal), self.n_iter, self.step_size, self.clip
        sparsity, auto = arguments.sparsity(self.sparsity, self.max_sparsity, d)
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        sizes: dict[str, Any] = {
            "n": n,
            "d": d,
            "delta": delta,
            "sparsity": sparsity,
            "rows_per_person": rows_per_person,
        }
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

    @staticmethod
    def _warn_of_noise(fit_plan: Plan) -> None:
        if not fit_plan.feasible:
            warnings.warn(f"expect little more than noise of this fit: {fit_plan.advice}.", UserWarning, stacklevel=6)

    @classmethod
    def _name(cls) -> str:
        """The model's name, also of a user's subclass."""
        return cls._model_name

    def _settings(self) -> dict[str, Any]:
        start = self.start if self.start is None or isinstance(self.start, str) else "a vector"
        fitted = {"sigma": self.sigma_} if "theta_" in vars(self) else {}
        return {**super()._settings(), "start": start, **fitted}

    def _entry_scale(self, sigma: float) -> float:
        """The unit in which plans state the clip of an entry."""
        return 1.0
