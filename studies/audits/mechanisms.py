"""Audits of single mechanisms: values, selection and peeling, each released once by a curator, on the worst neighbours.

These include everything that runs in a fit: a model's query with its clip, the source's sum, the curator's sensitivity,
price and charge, and the private sampler. The claim is the (ε, δ) to which the price converts
(:mod:`dpem.privacy.accounting`). The two tables differ in one row beyond every clip, which changes the statistic by the
whole stated sensitivity.

Privacy losses near ε are as rare as δ, and a bound needs events that are observed often. At δ = 1e-5 a few hundred
thousand runs show a little more than half of the ε of Gaussian noise; the rest would take millions.

*Selection* is priced as k rounds at (λ/b)²/2 each. The loss of one round is at most 2λ/b, far less than the ε to which
its zCDP price converts at a small δ, so that the price of k = 1 cannot be reached. It is reached by many rounds: if all
scores are equal, half of them increase by λ/2 and half decrease on D, and the reverse on D′, the loss of a round is
+λ/b or −λ/b with nearly equal probability, and k rounds with d ≫ k are nearly Gaussian with μ² = k(λ/b)² = 2ρ.

*Peeling* is priced by the pure ε of its rounds, four times what a round can lose in such sums, so its audit stays below
the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpem.audit.general import gaussian_ratio, plackett_luce
from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip, CoordinateQuery, SupportQuery
from dpem.privacy import Account, Curator, Noise, Price, PrivateNoise, gumbel, largest_price
from dpem.privacy.mechanisms import gaussian_scale
from dpem.query import FloatArray
from dpem.tables import ArraySource

#: Rows of the tables; all but the canary are zero.
ROWS = 10
#: A coordinate so far out that the row's component is certain.
CERTAIN = 1e3
#: A coordinate beyond every clip.
FAR = 1e9


@dataclass(frozen=True)
class Mechanism(ABC):
    """The base class of these audits: a claim, a sampler, two sources that differ in one row."""

    epsilon: float
    delta: float
    noise: Noise = field(default_factory=PrivateNoise)

    @property
    def adversaries(self) -> tuple[str, ...]:
        return ("every release",)

    @property
    @abstractmethod
    def _pattern(self) -> FloatArray:
        """The canary's signs; the neighbour has the opposite ones."""

    @cached_property
    def _sources(self) -> tuple[ArraySource, ArraySource]:
        first = np.zeros((ROWS, len(self._pattern) + 1))
        first[0, 0] = CERTAIN
        second = first.copy()
        first[0, 1:], second[0, 1:] = FAR * self._pattern, -FAR * self._pattern
        return ArraySource(first), ArraySource(second)

    @property
    def _beta(self) -> FloatArray:
        """Where the gradient is evaluated: along the first coordinate, so that both canaries count with weight one."""
        return np.eye(1, len(self._pattern) + 1)[0]

    def _curators(self, neighbour: bool, runs: int, *, gaussian: bool = False) -> Iterator[Curator]:
        """A curator with an account of its own for each run."""
        source = self._sources[neighbour]
        for _ in range(runs):
            yield Curator(source, Account(self.epsilon, self.delta, gaussian=gaussian), self.noise)


@dataclass(frozen=True)
class Values(Mechanism):
    """One ``measure``: Gaussian noise on a mean whose contributions are clipped in norm."""

    name: str = "values"

    @property
    def _pattern(self) -> FloatArray:
        return np.ones(1)

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        query: SupportQuery = SymmetricMixture(1.0).on_support(self._beta, np.arange(2), 1.0)
        rho = largest_price(self.epsilon, self.delta, gaussian=True).rho
        first, second = (source.total(query) / ROWS for source in self._sources)
        out = np.empty((runs, 1))
        for run, curator in enumerate(self._curators(neighbour, runs, gaussian=True)):
            answer = curator.measure(query, rho)
            out[run] = gaussian_ratio(answer, first, second, curator.account.releases[-1].scale)
        return out


@dataclass(frozen=True)
class Selection(Mechanism):
    """One ``select`` of k among d coordinates, half of which move up and half down."""

    k: int = 16
    d: int = 128
    name: str = "selection"

    @property
    def _pattern(self) -> FloatArray:
        return np.resize([1.0, -1.0], self.d)

    @cached_property
    def _query(self) -> CoordinateQuery:
        return SymmetricMixture(1.0).gradient(self._beta, Clip(entry=1.0))

    @property
    def _offset(self) -> FloatArray:
        """Puts all scores but the first high above zero, so that taking sizes folds none and the first never wins."""
        return np.append(0.0, np.full(self.d, 1e4))

    def _statistics(self) -> tuple[FloatArray, FloatArray]:
        first, second = (self._offset + source.total(self._query) / ROWS for source in self._sources)
        return first, second

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        rho = largest_price(self.epsilon, self.delta, gaussian=False).rho
        first, second = self._statistics()
        out = np.empty((runs, 1))
        for run, curator in enumerate(self._curators(neighbour, runs)):
            chosen = curator.select(self._query, self.k, rho, offset=self._offset)
            b = curator.account.releases[-1].scale
            out[run] = plackett_luce(first / b, chosen) - plackett_luce(second / b, chosen)
        return out


@dataclass(frozen=True)
class Peeling(Selection):
    """One ``peel`` of s = k coordinates and their values.

    The distribution of its rounds has no closed form. The score treats the Laplace noise of the selection as Gumbel
    noise, which has the same tail, and is exact for the values; any score gives a valid bound.
    """

    k: int = 4
    d: int = 32
    name: str = "peeling"

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        rho = largest_price(self.epsilon, self.delta, gaussian=False).rho
        first, second = self._statistics()
        out = np.empty((runs, 1))
        for run, curator in enumerate(self._curators(neighbour, runs)):
            moved = curator.sensitivity(self._query, "linf") * (1 + 1e-6)  # room for the rounding of the scores
            scale = moved * float(np.sqrt(2.5 * self.k / rho))
            answer = curator.peel(self._query, self.k, scale, offset=self._offset)
            seen = np.flatnonzero(answer)
            v, w, x = first[seen], second[seen], answer[seen]
            out[run] = float(np.sum(v - w + np.abs(x - w) - np.abs(x - v))) / scale
        return out


@dataclass(frozen=True)
class GaussianSampler:
    """The sampler of values without the curator: one draw per run, many in one call (its entries are independent)."""

    epsilon: float
    delta: float
    noise: Noise = field(default_factory=PrivateNoise)
    name: str = "values, sampler alone"
    adversaries: tuple[str, ...] = ("every release",)

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        price = largest_price(self.epsilon, self.delta, gaussian=True)
        values = np.full(runs, -0.5 if neighbour else 0.5)
        return self.noise.gaussian(values, gaussian_scale(1.0, price.rho), 1.0, price.rho)[:, None]


@dataclass(frozen=True)
class GumbelSampler:
    """The sampler of places without the curator and without the check of its price."""

    epsilon: float
    delta: float
    k: int = 16
    d: int = 128
    name: str = "selection, sampler alone"
    adversaries: tuple[str, ...] = ("every release",)

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        price: Price = largest_price(self.epsilon, self.delta, gaussian=False)
        first = np.resize([0.5, -0.5], self.d) * float(np.sqrt(2 * price.rho / self.k))
        drawn = -first if neighbour else first
        out = np.empty((runs, 1))
        for run in range(runs):
            chosen = gumbel.top_k(drawn, self.k)
            out[run] = plackett_luce(first, chosen) - plackett_luce(-first, chosen)
        return out
