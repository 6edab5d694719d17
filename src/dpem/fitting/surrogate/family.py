"""What a mixture model gives to the engine: rows, densities, scores and the two halves of an EM step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.query import Array, FloatArray, Namespace

Theta = TypeVar("Theta")


class Family(ABC, Generic[Theta]):
    """A family of mixtures with parameters θ, a frozen record of the model's own.

    Rows are ``x`` (m × d, unit coordinates, NaN where a value is missing) and ``y`` (m responses, or None). Functions
    that take ``xp`` are written in the array API: they also see blocks of real rows.
    """

    @abstractmethod
    def draw(self, theta: Theta, m: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray | None]:
        """m rows, and their responses where the model has one."""

    @abstractmethod
    def joint(self, xp: Namespace, theta: Theta, x: Array, y: Array) -> Array:
        """log(weight · density) of each row in each component (m × K), missing values integrated out."""

    @abstractmethod
    def scores(self, xp: Namespace, theta: Theta, x: Array, y: Array) -> Array:
        """The derivative of each row's log-density in local coordinates at θ (m × p).

        The coordinates should be near the ones in which the information is the identity; :meth:`moved` goes along
        them. A row without any value has the score 0.
        """

    @abstractmethod
    def moved(self, theta: Theta, step: FloatArray) -> Theta:
        """θ moved by a small step in the coordinates of :meth:`scores`; what cannot be is brought to what can."""

    @abstractmethod
    def statistics(self, xp: Namespace, theta: Theta, x: Array, y: Array, weights: Array) -> Array:
        """Σ weight × (expected sufficient statistics, log-density) over the rows, a vector whose last entry is the
        log-likelihood; ``weights`` None: 1 each.
        """

    def expectation(self, x: FloatArray, y: FloatArray | None, weights: FloatArray) -> Callable[[Theta], FloatArray]:
        """The statistics of weighted rows in memory, as a function of θ. A family may prepare the rows once."""
        return lambda theta: np.asarray(self.statistics(numpy_api, theta, x, y, weights))

    @abstractmethod
    def m_step(self, theta: Theta, statistics: FloatArray) -> Theta:
        """The maximiser given statistics at θ, per row."""

    @abstractmethod
    def random_start(self, x: FloatArray, y: FloatArray | None, weights: FloatArray, rng: np.random.Generator) -> Theta:
        """A start for EM on weighted rows."""
