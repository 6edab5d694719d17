"""EM to convergence, on weighted surrogate rows or, without privacy, on a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from dpem.fitting.surrogate.family import Family
from dpem.queries.narrow import NarrowQuery
from dpem.query import Array, Bound, FloatArray, Namespace

Theta = TypeVar("Theta")


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
        return self.family.statistics(xp, self.theta, x, y, None)


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
