"""The steps after the start: score queries that the surrogate learns from, or EM on the table where nothing is paid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate import ExpectedStatistics, best_of, combined_noise, efficient, score_query
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.start_steps import SCORES
from dpem.models.gaussian_mixture.state import TUNING, MixtureState, SurrogateFit, noise_gain, restarts_for
from dpem.models.gaussian_mixture.surrogate_rows import redrawn, runs_of
from dpem.privacy import Curator
from dpem.query import FloatArray

#: A radius that clips no row: EM without privacy solves for the scores as they are.
NOT_CLIPPED = 1e9


@dataclass(frozen=True)
class ScoreStep(Step):
    """Ask for the score at the mixture so far, tilt the surrogate rows to agree with it and all before, and run EM on
    them to convergence. ``number`` counts the queries, ``last`` says that this one ends the fit.
    """

    number: int = 0
    last: bool = False

    def describe(self) -> str:
        return f"score at the mixture so far, query {self.number + 1}"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        fit, present = state.fit, 1 - state.presence.empty
        surrogate, rng = fit.surrogate, generator(100 + self.number)
        query = score_query(
            model.schema_of(state),
            fit.family,
            fit.mixture,
            surrogate.x,
            None,
            surrogate.weights,
            rng,
            ridge=TUNING.ridge,
        )
        unit = curator.noise_scale(query, self.rho) / present / query.radius / math.sqrt(TUNING.queries)
        query = efficient(query, surrogate.x, None, surrogate.weights, unit, TUNING.levels)
        answer = curator.measure(query, self.rho) / present
        noise = curator.noise_scale(query, self.rho) / present
        surrogate = surrogate.add(SCORES, query, answer, noise)
        if surrogate.effective_share < TUNING.effective:
            surrogate = redrawn(surrogate, fit.family, state, rng)
        count = fit.family.count
        noises = (*fit.noises, noise / query.kept(surrogate.x, None, surrogate.weights))
        fits = surrogate.fit(
            fit.family,
            [fit.mixture],
            restarts=restarts_for(count, TUNING.last_restarts if self.last else TUNING.restarts),
            rng=rng,
            margin=noise_gain(count, combined_noise(noises)),
            kept=4 if self.last else 1,
        )
        new = replace(
            fit,
            surrogate=surrogate,
            runs=runs_of(fits),
            before=(*fit.before, fit.mixture)[-2:],
            noises=noises,
            query=replace(query, theta=fits[0].theta),
        )
        return _with(model, state, new, curator.n_rows, self.last)


@dataclass(frozen=True)
class ExactEM(Step):
    """Without privacy: EM on the table from the best optima of the surrogate, the best of them to convergence."""

    starts: int = 10
    most: int = 5000

    def describe(self) -> str:
        return f"EM from {self.starts} starts until it converges, at most {self.most} steps"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        fit, rng, schema = state.fit, generator(100), model.schema_of(state)
        surrogate, family = fit.surrogate, fit.family
        fits = surrogate.fit(family, [fit.mixture], restarts=2 * self.starts, rng=rng, kept=self.starts, most=100)

        def expect(theta: Gaussians) -> FloatArray:
            return curator.measure(ExpectedStatistics(schema, family, theta), math.inf)

        begun = [own.theta for own in fits[: self.starts]]
        found = best_of(family, begun, expect, short=60, kept=3, tolerance=1e-10, most=self.most)
        query = score_query(schema, family, found[0].theta, surrogate.x, None, surrogate.weights, rng)
        query = replace(query, radius=NOT_CLIPPED)
        new = replace(fit, runs=runs_of(found), query=query, converged=found[0].converged)
        return _with(model, state, new, curator.n_rows, True)


def _with(model: Any, state: MixtureState, fit: SurrogateFit, n: int, last: bool) -> MixtureState:
    """The state with this fit and, after the last step, with the parameters that are published."""
    found = replace(state, surrogate_fit=fit)
    return replace(found, theta=model.parameters(found, n)) if last else found
