"""What a general latent model is to the rest of the package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpem._validation import ArgumentError, is_number, shown
from dpem.fitting.plan import Prediction
from dpem.fitting.step import State, Step
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema


class Effect(NamedTuple):
    """The strength of effects that a prediction assumes: in words, the usual value, and others worth seeing, in
    increasing order. ``percent``: predictions state it as a percentage.
    """

    words: str
    usual: float
    others: tuple[float, ...]
    percent: bool = False

    def checked(self, value: Any) -> float:
        """A strength that is given, or a refusal."""
        low, high = self.others[0], self.others[-1]
        if not is_number(value) or not low <= value <= high:
            raise ArgumentError(
                "effect", f"must be a number from {low:g} to {high:g} ({self.words}), got {shown(value)}."
            )
        return float(value)


class Sizes(NamedTuple):
    """Public numbers that a plan is made from. ``effect`` is for predictions only: a fit does not depend on it."""

    n: int
    epsilon: float
    delta: float
    rho: float
    rows_per_person: int = 1
    check: bool = True
    effect: float | None = None


class PredictedFit(NamedTuple):
    """What is expected of a fit before it is paid for."""

    prediction: Prediction | None = None
    remarks: tuple[str, ...] = ()
    feasible: bool = True
    advice: str = ""


@dataclass(frozen=True)
class Model(ABC):
    """A latent model at its public settings: which steps fit it, how likely rows are, how rows are drawn.

    Everything is in unit coordinates of the ``schema``; ``theta`` is the model's own frozen record of parameters.
    """

    schema: Schema
    gaussian: ClassVar[bool] = True  # whether its steps ask for Gaussian noise alone
    effect: ClassVar[Effect | None] = None  # what its prediction assumes, where that can be chosen

    @abstractmethod
    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        """The steps of a fit, in order; the prices add up to at most ``sizes.rho``."""

    @abstractmethod
    def log_density(self, xp: Namespace, theta: Any, x: Array, y: Array) -> Array:
        """The log-density of each row, missing values left out; of the response given the row where there is one."""

    @abstractmethod
    def simpler(self, theta: Any) -> Any:
        """The parameters of the simpler model of the fit check, from what was released."""

    @abstractmethod
    def draw(self, theta: Any, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        """n rows in unit coordinates, and their responses where the model has one."""

    def start(self) -> State:
        """What is known before the first release."""
        return State()

    def schema_of(self, state: State) -> Schema:
        """The coordinates that the parameters are about."""
        return self.schema if state.chosen is None else self.schema.take(state.chosen)

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        """What to expect, from public numbers alone; a ValueError refuses what cannot work at all."""
        return PredictedFit()
