"""What a mixture model gives to the engine, and EM to convergence, on weighted surrogate rows or, without privacy, on a
table.
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


class Family(ABC, Generic[Theta]):
    """A family of mixtures with parameters θ, a frozen record of the model's own.

    Rows are ``x`` (m × d, unit coordinates, NaN where a value is missing; a response is the last column). Functions
    that take ``xp`` are written in the array API: they also see blocks of real rows.
    """

    has_response: ClassVar[bool] = False

    def with_response(self, xp: Namespace, x: Array, y: Array) -> Array:
        """Rows of a table with their responses, which a family without a response leaves out."""
        return xp.concat([x, y[:, None]], axis=1) if self.has_response else x

    @abstractmethod
    def draw(self, theta: Theta, m: int, rng: np.random.Generator) -> FloatArray:
        """m rows."""

    @abstractmethod
    def joint(self, xp: Namespace, theta: Theta, x: Array) -> Array:
        """log(weight · density) of each row in each component (m × K), missing values integrated out."""

    @abstractmethod
    def scores(self, xp: Namespace, theta: Theta, x: Array) -> Array:
        """The derivative of each row's log-density in local coordinates at θ (m × p).

        The coordinates should be near the ones in which the information is the identity; :meth:`moved` goes along
        them. A row without any value has the score 0.
        """

    @abstractmethod
    def moved(self, theta: Theta, step: FloatArray) -> Theta:
        """θ moved by a small step in the coordinates of :meth:`scores`, without the floors of :meth:`m_step`; what
        cannot be is brought to what can.
        """

    @abstractmethod
    def statistics(self, xp: Namespace, theta: Theta, x: Array, weights: Array) -> Array:
        """Σ weight × (expected sufficient statistics, log-density) over the rows, a vector whose last entry is the
        log-likelihood; ``weights`` None: 1 each.
        """

    def expectation(self, x: FloatArray, weights: FloatArray) -> Callable[[Theta], FloatArray]:
        """The statistics of weighted rows in memory, as a function of θ. A family may prepare the rows once."""
        return lambda theta: np.asarray(self.statistics(numpy_api, theta, x, weights))

    @abstractmethod
    def m_step(self, theta: Theta, statistics: FloatArray) -> Theta:
        """The maximiser given statistics at θ, per row."""

    @abstractmethod
    def random_start(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> Theta:
        """A start for EM on weighted rows."""


class Converged(NamedTuple, Generic[Theta]):
    """Where EM ended, the mean log-likelihood there, and whether it had converged."""

    theta: Theta
    log_likelihood: float
    converged: bool


@dataclass(frozen=True)
class ExpectedStatistics(NarrowQuery):
    """Σ expected sufficient statistics and log-likelihood at θ. Nothing is clipped, so nothing bounds the sum: a
    curator answers it at an infinite price only.
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
    """The statistics of the table's rows per row, as a function of θ: without privacy only."""
    return lambda theta: curator.measure(ExpectedStatistics(schema, family, theta), math.inf)


def em(
    family: Family[Theta],
    theta: Theta,
    expect: Callable[[Theta], FloatArray],
    *,
    tolerance: float = 1e-8,
    most: int = 500,
) -> Converged[Theta]:
    """EM from θ; ``expect(θ)`` are the statistics per row there.

    It stops when what is still to be gained, g²/(g′ − g) by Aitken for gains g′ and g of the last two steps, is below
    the tolerance, in mean log-likelihood.
    """
    before, gain = -math.inf, math.inf
    for _ in range(most):
        statistics = expect(theta)
        now = float(statistics[-1])
        last, gain = gain, now - before
        if math.isfinite(last) and (gain <= 1e-15 or gain * gain <= tolerance * (last - gain)):
            return Converged(theta, now, True)
        theta, before = family.m_step(theta, statistics), now
    return Converged(theta, before, False)


def best_of(
    family: Family[Theta],
    starts: Iterable[Theta],
    expect: Callable[[Theta], FloatArray],
    *,
    short: int = 25,
    kept: int = 2,
    tolerance: float = 1e-8,
    most: int = 500,
) -> list[Converged[Theta]]:
    """EM from every start for a few steps, from the best ``kept`` of them to convergence, the best first; after these
    the others as far as they came.
    """
    tried = [em(family, theta, expect, tolerance=tolerance, most=short) for theta in starts]
    tried.sort(key=lambda own: -own.log_likelihood)
    finished = [
        own if own.converged else em(family, own.theta, expect, tolerance=tolerance, most=most) for own in tried[:kept]
    ]
    return sorted(finished, key=lambda own: -own.log_likelihood) + tried[kept:]
