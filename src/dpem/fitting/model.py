"""The base class of models, and the public numbers that a plan is made from and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from dpem._validation import ArgumentError, describe, is_number
from dpem.fitting.plan import Prediction
from dpem.fitting.step import State, Step
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema

Theta = TypeVar("Theta")


class Effect(NamedTuple):
    """The strength of effects that a prediction assumes.

    ``words`` say what is measured; ``usual`` is the default, ``others`` are the values of the planner's table in
    increasing order; ``percent`` says whether predictions state it as a percentage.
    """

    words: str
    usual: float
    others: tuple[float, ...]
    percent: bool = False

    def checked(self, value: object) -> float:
        """The value as a float; an ArgumentError if it lies outside the range of ``others``."""
        low, high = self.others[0], self.others[-1]
        if not is_number(value) or not low <= value <= high:
            raise ArgumentError(
                "effect", f"must be a number from {low:g} to {high:g} ({self.words}), got {describe(value)}."
            )
        return float(value)


class Sizes(NamedTuple):
    """The public numbers that a plan is made from; ``effect`` changes the prediction only, not the fit."""

    n: int
    epsilon: float
    delta: float
    rho: float
    rows_per_person: int = 1
    check: bool = True
    effect: float | None = None


class PredictedFit(NamedTuple):
    """What a plan predicts before the charge; ``advice`` says how to make an infeasible fit feasible."""

    prediction: Prediction | None = None
    remarks: tuple[str, ...] = ()
    feasible: bool = True
    advice: str = ""


@dataclass(frozen=True)
class Model(ABC, Generic[Theta]):
    """A model at its public settings: the steps of its fit, their prediction, and the density of rows.

    Everything is in unit coordinates of the ``schema``. ``theta`` is the model's frozen record of parameters, whose
    type a subclass names: ``class Ridge(Model[Parameters])``.
    """

    schema: Schema
    gaussian: ClassVar[bool] = True  # whether all releases use Gaussian noise
    effect: ClassVar[Effect | None] = None  # the assumed effect size, if a user may choose it

    @abstractmethod
    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        """The steps of a fit in order; their prices add up to at most ``sizes.rho``."""

    @abstractmethod
    def log_density(self, xp: Namespace, theta: Theta, x: Array, y: Array) -> Array:
        """The log-density of the observed values of each row; with a response, that of the response given the row."""

    @abstractmethod
    def simpler(self, theta: Theta) -> Theta:
        """The parameters of the simpler model with which the fit check compares, from the fitted ones."""

    def draw(self, theta: Theta, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        """Simulate n rows in unit coordinates, and their responses where the model has one: for the bootstrap only."""
        raise NotImplementedError

    def start(self) -> State:
        """The state before the first release."""
        return State()

    def schema_of(self, state: State) -> Schema:
        """The schema of the coordinates that the parameters describe: all, or those that a step has chosen."""
        return self.schema if state.chosen is None else self.schema.take(state.chosen)

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        """Predict the fit from public numbers alone; an ArgumentError refuses a fit that cannot work at all."""
        return PredictedFit()
