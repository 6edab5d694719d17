"""What a mixture model gives to the engine, and EM to convergence: on weighted surrogate rows or,
without privacy, on the table.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.schema import Schema

Theta = TypeVar("Theta")

#: A gain in mean log-likelihood that is mere rounding.
ROUNDING = 1e-15


class Family(ABC, Generic[Theta]):
    """A family of mixtures with parameters θ, a frozen record of the model's own.

    Rows are ``x`` (m × d, unit coordinates, NaN where a value is missing; a response is the last column). Functions
    with an argument ``xp`` are written in the array API, since they also run on blocks of the table.
    """

    has_response: ClassVar[bool] = False

    def with_response(self, xp: Namespace, x: Array, y: Array) -> Array:
        """Rows of the table, with the response as last column if the family has one."""
        return xp.concat([x, y[:, None]], axis=1) if self.has_response else x

    @abstractmethod
    def draw(self, theta: Theta, m: int, rng: np.random.Generator) -> FloatArray:
        """m rows drawn from the mixture."""

    @abstractmethod
    def joint(self, xp: Namespace, theta: Theta, x: Array) -> Array:
        """log(weight · density) of each row in each component (m × K), missing values integrated out."""

    @abstractmethod
    def scores(self, xp: Namespace, theta: Theta, x: Array) -> Array:
        """The derivative of each row's log-density by local coordinates of θ (m × p), those of :meth:`moved`.

        The information should be near the identity in these coordinates. A row without any value has the score 0.
        """

    @abstractmethod
    def moved(self, theta: Theta, step: FloatArray) -> Theta:
        """θ moved by a small step in the coordinates of :meth:`scores`, kept valid, without the floors of
        :meth:`m_step`.
        """

    @abstractmethod
    def statistics(self, xp: Namespace, theta: Theta, x: Array, weights: Array) -> Array:
        """The weighted sum over rows of (expected sufficient statistics, log-density), a vector whose last entry is the
        log-likelihood; ``weights`` None: 1 each.
        """

    def e_step(self, x: FloatArray, weights: FloatArray) -> Callable[[Theta], FloatArray]:
        """The statistics of weighted rows in memory, as a function of θ. A family may prepare the rows once."""
        return lambda theta: np.asarray(self.statistics(numpy_api, theta, x, weights))

    @abstractmethod
    def m_step(self, theta: Theta, statistics: FloatArray) -> Theta:
        """The maximiser, given statistics per row that were expected at θ."""

    @abstractmethod
    def random_start(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> Theta:
        """A random start for EM on weighted rows."""


class Converged(NamedTuple, Generic[Theta]):
    """The last parameters of EM, the mean log-likelihood there, and whether EM had converged."""

    theta: Theta
    log_likelihood: float
    converged: bool


@dataclass(frozen=True)
class ExpectedStatistics(NarrowQuery):
    """Σ (expected sufficient statistics, log-density) at θ. Nothing is clipped, so nothing bounds the sum: a curator
    answers it only without privacy.
    """

    family: Family[Any] = field(repr=False)
    theta: Any = field(repr=False)

    @property
    def label(self) -> str:
        return "EM step without privacy"

    @property
    def bound(self) -> Bound:
        return Bound()

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        return self.family.statistics(xp, self.theta, self.family.with_response(xp, x, y), None)


def exact(curator: Curator, schema: Schema, family: Family[Theta]) -> Callable[[Theta], FloatArray]:
    """The E-step on the table, per row, as a function of θ: without privacy only."""
    return lambda theta: curator.measure(ExpectedStatistics(schema, family, theta), math.inf)


def em(
    family: Family[Theta],
    theta: Theta,
    e_step: Callable[[Theta], FloatArray],
    *,
    tolerance: float = 1e-8,
    max_steps: int = 500,
) -> Converged[Theta]:
    """EM from θ.

    After gains g′ and g of the last two steps in mean log-likelihood, Aitken's estimate of the remaining gain is
    g²/(g′ − g). EM stops when that is below the tolerance.
    """
    last, gain = -math.inf, math.inf
    for _ in range(max_steps):
        statistics = e_step(theta)
        log_likelihood = float(statistics[-1])
        last_gain, gain = gain, log_likelihood - last
        if math.isfinite(last_gain) and (gain <= ROUNDING or gain * gain <= tolerance * (last_gain - gain)):
            return Converged(theta, log_likelihood, True)
        theta, last = family.m_step(theta, statistics), log_likelihood
    return Converged(theta, last, False)


def best_of(
    family: Family[Theta],
    starts: Iterable[Theta],
    e_step: Callable[[Theta], FloatArray],
    *,
    short_steps: int = 25,
    finalists: int = 2,
    tolerance: float = 1e-8,
    max_steps: int = 500,
) -> list[Converged[Theta]]:
    """EM from every start for a few steps, then to convergence from the best few; the finalists in order of their
    log-likelihood, then the others.
    """
    tried = [em(family, theta, e_step, tolerance=tolerance, max_steps=short_steps) for theta in starts]
    tried.sort(key=lambda solution: -solution.log_likelihood)
    best = [
        solution if solution.converged else em(family, solution.theta, e_step, tolerance=tolerance, max_steps=max_steps)
        for solution in tried[:finalists]
    ]
    return sorted(best, key=lambda solution: -solution.log_likelihood) + tried[finalists:]
