"""The steps of a fit: each sends queries at a price that was fixed beforehand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpem._json import plain
from dpem.privacy import Curator

if TYPE_CHECKING:
    from dpem.fitting.check import FitCheck
    from dpem.fitting.weights import Weights


@dataclass(frozen=True)
class State:
    """The public state of a fit: the releases so far, and what was computed from them.

    ``theta`` holds the model's parameters in unit coordinates, ``chosen`` the coordinates that they describe (None:
    all), ``check`` the fit check, ``weights`` the released moments of the rows' weights. A model whose steps pass on
    more adds fields in a subclass.
    """

    theta: Any = None
    chosen: NDArray[np.intp] | None = None
    check: FitCheck | None = None
    weights: Weights | None = None


ModelT = TypeVar("ModelT")
StateT = TypeVar("StateT", bound=State)


@dataclass(frozen=True)
class Step(ABC, Generic[ModelT, StateT]):
    """A step of a fit. Its price ``rho`` and its other fields are public and fixed before the data are read.

    A subclass names the types of its model and state, as in ``class MeasureMoments(Step["Ridge", RidgeState])``.
    ``passes`` is the number of times that it reads the rows.
    """

    rho: float
    passes: ClassVar[int] = 1

    @abstractmethod
    def describe(self) -> str:
        """A few words for plans and reports that say what the step releases."""

    @abstractmethod
    def run(self, curator: Curator, model: ModelT, state: StateT) -> StateT:
        """Send the curator queries that cost ``rho`` in all, and return the new state.

        What it computes from the answers is post-processing. Clip radii and step sizes may depend on what earlier
        steps released; prices may not.
        """

    def to_dict(self) -> dict[str, object]:
        """The step as JSON has it: its class, its fields and its description."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain({"kind": type(self).__name__, **settings, "passes": self.passes, "says": self.describe()})


@dataclass(frozen=True)
class WrittenStep(Step[object, State]):
    """A step that was read from a file: it states what was released and at which price, and cannot be run."""

    kind: str = ""
    says: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    passes: int = 1  # type: ignore[misc]

    def describe(self) -> str:
        return self.says

    def run(self, curator: Curator, model: object, state: State) -> NoReturn:
        raise RuntimeError("a step that was read from a file only describes a fit; it cannot be run.")

    def to_dict(self) -> dict[str, object]:
        return plain({"kind": self.kind, "rho": self.rho, **self.settings, "passes": self.passes, "says": self.says})


def run_steps(curator: Curator, model: ModelT, steps: Iterable[Step[ModelT, StateT]], state: StateT) -> StateT:
    """The state after all steps, in order. From the release of the weights on, answers are weighted means."""
    for step in steps:
        state = step.run(curator if state.weights is None else state.weights.weighted_curator(curator), model, state)
    return state


def prices(rho: float, shares: Iterable[float]) -> list[float]:
    """Divide ρ in proportion to the shares; every part of an infinite ρ is infinite.

    >>> prices(1.0, [1, 3])
    [0.25, 0.75]
    """
    parts = list(shares)
    total = math.fsum(parts)
    return [math.inf if math.isinf(rho) else rho * part / total for part in parts]
