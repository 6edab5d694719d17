"""Simulated settings: the distribution of the data and the error of a fit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpem.fitting.plan import Plan
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.models import MODELS
from dpem.paper.planning.plans import improved_plan
from dpem.paper.planning.rehearsal import Problem
from dpem.query import FloatArray

ESTIMATORS = {
    "symmetric-mixture": DPSymmetricMixture,
    "symmetric-regression": DPSymmetricRegression,
    "missing-regression": DPMissingRegression,
}


@dataclass(frozen=True)
class Setting:
    """One row of a table: a model, its sizes, the budget, and the analyst's assumptions."""

    model: str
    n: int
    d: int
    s: int
    epsilon: float
    sigma: float = 0.5
    missing: float = 0.0
    start_distance: float | None = None
    decay: bool = False  # coefficients falling off as 1/j instead of equal
    heavy_tails: bool = False  # t noise with 5 degrees of freedom, same variance
    dense: bool = False
    assumed_sparsity: int | None = None
    assumed_sigma: float | None = None
    assumed_signal: float = 1.0
    target: float | None = None
    note: str = ""

    @property
    def delta(self) -> float:
        return 1 / (2 * self.n)

    def truth(self) -> FloatArray:
        beta = np.zeros(self.d)
        beta[: self.s] = 1 / np.arange(1, self.s + 1) if self.decay else 1.0
        return np.asarray(beta / np.linalg.norm(beta))

    def draw(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        """A table that follows the model (up to the noise's tails)."""
        beta = self.truth()

        def noise(*shape: int) -> FloatArray:
            if self.heavy_tails:
                return np.asarray(self.sigma * math.sqrt(3 / 5) * rng.standard_t(5, size=shape))
            return self.sigma * rng.standard_normal(shape)

        z = rng.choice([-1.0, 1.0], size=self.n)
        if self.model == "symmetric-mixture":
            return z[:, None] * beta + noise(self.n, self.d), None
        X = rng.standard_normal((self.n, self.d))
        if self.model == "symmetric-regression":
            return X, z * (X @ beta) + noise(self.n)
        y = X @ beta + noise(self.n)
        X[rng.random(X.shape) < self.missing] = np.nan
        return X, y

    def start_near(self, rng: np.random.Generator, distance: float) -> FloatArray:
        """A vector on the true support at the given distance from the truth."""
        direction = np.zeros(self.d)
        direction[: self.s] = rng.standard_normal(self.s)
        return self.truth() + distance * direction / np.linalg.norm(direction)

    def error(self, beta: FloatArray) -> float:
        """‖β̂ − β‖, for mixtures up to sign."""
        truth = self.truth()
        errors = [float(np.linalg.norm(beta - truth))]
        if self.model != "missing-regression":
            errors.append(float(np.linalg.norm(beta + truth)))
        return min(errors)

    def plan(self) -> Plan:
        """The plan for what the analyst assumes."""
        return improved_plan(
            Problem(
                MODELS[self.model](self.assumed_sigma or self.sigma),
                *(self.n, self.d, self.d if self.dense else self.assumed_sparsity or self.s, self.assumed_signal),
                missing=self.missing if self.model == "missing-regression" else 0.0,
                start_distance=self.start_distance,
            ),
            self.epsilon,
            self.delta,
        )

    def estimator(self, **changes: object) -> DPSymmetricMixture | DPSymmetricRegression | DPMissingRegression:
        """The estimator with what the analyst assumes; seeded, so that a table can be repeated."""
        arguments: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "sparsity": None if self.dense else self.assumed_sparsity or self.s,
            "sigma": self.assumed_sigma or self.sigma,
            "signal": self.assumed_signal,
        }
        arguments.update(changes)
        return ESTIMATORS[self.model](**arguments)


def fit_error(setting: Setting, X: FloatArray, y: FloatArray | None, **changes: object) -> float:
    """Error of one seeded fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return setting.error(setting.estimator(**changes).fit(X, y).coef_)


Changes = Callable[[np.random.Generator], dict[str, object]]


def repeat(setting: Setting, reps: int, fits: dict[str, Changes]) -> dict[str, FloatArray]:
    """Errors of several kinds of fit on the same ``reps`` tables; an entry of ``fits`` gives the changed arguments."""
    out: dict[str, list[float]] = {name: [] for name in fits}
    for rep in range(reps):
        rng = np.random.default_rng(rep)
        X, y = setting.draw(rng)
        for name, changes in fits.items():
            out[name].append(fit_error(setting, X, y, random_state=rep, **changes(np.random.default_rng(rep))))
    return {name: np.array(errors) for name, errors in out.items()}
