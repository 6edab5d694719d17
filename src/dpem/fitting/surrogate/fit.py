"""A mixture fitted to surrogate rows, and the step that asks the real rows for the score there."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from dpem.fitting.model import Model
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate.em import Converged
from dpem.fitting.surrogate.errors import share_apart, share_moved
from dpem.fitting.surrogate.rows import Surrogate, combined_noise
from dpem.fitting.surrogate.scores import ScoreQuery, score_query
from dpem.privacy import Curator

Theta = TypeVar("Theta")


@dataclass(frozen=True)
class SurrogateFit(Generic[Theta]):
    """The surrogate rows and the solutions of EM on them, the best first.

    ``queried`` are the parameters at which the last two scores were asked for. ``noises`` are the standard deviations
    of all answers, each divided by what its clip retained (:meth:`ScoreQuery.retained`). ``query`` is the last score
    query, moved to the best solution.
    """

    family: Any  # a Family[Theta]; models read fields that only theirs has
    surrogate: Surrogate
    solutions: Sequence[Converged[Theta]]
    queried: tuple[Theta, ...] = ()
    noises: tuple[float, ...] = ()
    query: ScoreQuery = field(default=None, repr=False)  # type: ignore[assignment]

    @property
    def theta(self) -> Theta:
        return self.solutions[0].theta

    @property
    def noise(self) -> float:
        """The standard deviation of all answers together; 0 without privacy, where nothing is asked."""
        return combined_noise(self.noises) if self.noises else 0.0

    def share_unstable(self, n: int, widening: float, tolerance: float, queries: int = 2) -> float:
        """The share of rows that another fit to n rows may put into another component.

        That is the largest of three shares: of rows that change component when θ moves by ``widening`` times its
        linear error, or at the parameters of the last ``queries``, or at another solution whose mean log-likelihood is
        at most ``tolerance`` less.
        """
        best = self.solutions[0].log_likelihood
        alternatives = [s.theta for s in self.solutions if s.converged and s.log_likelihood >= best - tolerance]
        alternatives += self.queried[-queries:]
        shares = [share_apart(self.family, self.surrogate, self.theta, other) for other in alternatives]
        scale = widening * math.hypot(self.noise, n**-0.5) if self.noises else 0.0
        return max([share_moved(self.query, self.surrogate.x, self.surrogate.weights, scale), *shares])


class SurrogateModel(Model[Any]):
    """A model that is fitted to surrogate rows; its state has the :class:`SurrogateFit` as ``fit``."""

    queries: ClassVar[int]  # the number of score queries
    clip_quantiles: ClassVar[tuple[float, ...]]  # the quantiles of norms that a radius is chosen from
    query_type: ClassVar[type[ScoreQuery]] = ScoreQuery

    @abstractmethod
    def refitted(self, state: Any, step: ScoreStep, rng: np.random.Generator) -> SurrogateFit[Any]:
        """The fit with solutions that take the latest answer into account; ``state.fit`` has those before it."""

    @abstractmethod
    def published(self, state: Any, n: int) -> Any:
        """The parameters that a fit to n rows ends with."""

    def share_present(self, state: Any) -> float:
        """The share of rows that have any value; the score of the others is 0."""
        return 1.0


@dataclass(frozen=True)
class ScoreStep(Step[SurrogateModel, Any]):
    """Ask for the score at the present parameters, make the surrogate rows agree with this answer too, and run EM on
    them. ``number`` counts the queries; the ``last`` one ends the fit.
    """

    number: int = 0
    last: bool = False

    def describe(self) -> str:
        return f"score at the parameters so far, query {self.number + 1}"

    def run(self, curator: Curator, model: SurrogateModel, state: Any) -> Any:
        fit: SurrogateFit[Any] = state.fit
        present, x, weights, rng = (
            model.share_present(state),
            fit.surrogate.x,
            fit.surrogate.weights,
            generator(100 + self.number),
        )
        noise_per_radius = 2 * curator.rows_per_person / (curator.n_rows * math.sqrt(2 * self.rho)) / present
        query = score_query(
            model.schema_of(state),
            fit.family,
            fit.theta,
            x,
            weights,
            rng,
            model.clip_quantiles,
            noise_per_radius / math.sqrt(model.queries),  # of all answers together
            model.query_type,
        )
        noise = curator.noise_scale(query, self.rho) / present
        surrogate = fit.surrogate.add(query, curator.measure(query, self.rho) / present, noise)
        noises = (*fit.noises, noise / query.retained(x, surrogate.weights))
        fit = replace(fit, surrogate=surrogate, queried=(*fit.queried, fit.theta)[-2:], noises=noises)
        fit = model.refitted(replace(state, fit=fit), self, rng)
        state = replace(state, fit=replace(fit, query=replace(query, theta=fit.theta)))
        return replace(state, theta=model.published(state, curator.effective_rows)) if self.last else state
