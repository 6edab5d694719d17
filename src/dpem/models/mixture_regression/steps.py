"""The last steps: Newton steps on the scores of the components, EM without privacy, and the fit check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpem.fitting.check import Check, check_lead
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate import Converged, SurrogateFit, best_of, exact
from dpem.models.mixture_regression.components import Components
from dpem.models.mixture_regression.queries import FAR_WEIGHT, USUALLY_FAR, LeadAndMissed
from dpem.models.mixture_regression.scores import (
    Estimate,
    ExpectedScores,
    ScoreAnswer,
    ask_score,
    combined_estimate,
)
from dpem.models.mixture_regression.state import RegressionState
from dpem.models.mixture_regression.tuning import TUNING
from dpem.privacy import Curator

if TYPE_CHECKING:
    from dpem.models.mixture_regression.model import MixtureRegression

#: Missed rows are reported if their share exceeds the usual one by this many standard deviations of the noise.
MISSED_NEEDED = 2.0
#: Random starts on surrogate rows must gain more than this fraction of the parameters times the noise variance.
NOISE_GAIN = 0.5
#: Without privacy: the tolerance and the most steps of EM, and the least residual spread.
EXACT_TOLERANCE, EXACT_STEPS, EXACT_FLOOR = 1e-13, 3000, 1e-6


def converged(fit: SurrogateFit[Components], start: Components, seed: int) -> Sequence[Converged[Components]]:
    """EM on the surrogate rows from ``start`` and from random starts, the best solution first."""
    margin, restarts = NOISE_GAIN * fit.family.count * fit.noise**2, TUNING.restarts if fit.noises else 0
    options: dict[str, Any] = {"finalists": 1, "short_steps": 15, "max_steps": 200, "tolerance": 1e-6}
    return fit.surrogate.fit(fit.family, [start], restarts=restarts, rng=generator(seed), margin=margin, **options)


@dataclass(frozen=True)
class NewtonStep(Step["MixtureRegression", RegressionState]):
    """Ask for the score of the components, and combine it with all scores before: a Newton step.

    Where rows follow the components, the combined estimate is nearer to the maximum of the likelihood than EM on
    surrogate rows is: the scores are centred, whereas the surrogate rows have the columns of their start where the
    answers leave these open. Where rows follow no such components it may be worse. So the ``last`` step, which ends the
    fit, returns to EM's components if the surrogate rows are clearly less likely under the combined estimate. The
    distance of the two then counts as an error.
    """

    last: bool = True

    def describe(self) -> str:
        return "score of the components, for a Newton step"

    def run(self, curator: Curator, model: MixtureRegression, state: RegressionState) -> RegressionState:
        fit, family = state.fit, state.fit.family
        answers = state.answers or tuple(
            ScoreAnswer(ExpectedScores.of(query), mean, float(noise))
            for query, mean, noise in fit.surrogate.blocks[-1].answers
        )
        prior = Estimate(fit.theta, TUNING.prior**2 * np.asarray(np.linalg.inv(answers[-1].expected.information)))
        theta = combined_estimate(family, prior, answers).theta
        answers = (*answers, ask_score(curator, model.schema, family, theta, self.rho, model.share_present(state)))
        estimate = combined_estimate(family, prior, answers)
        e_step = family.e_step(fit.surrogate.x, fit.surrogate.weights)
        if self.last and e_step(estimate.theta)[-1] < e_step(fit.theta)[-1] - TUNING.near:
            distance = family.difference(estimate.theta, fit.theta)
            estimate = Estimate(fit.theta, estimate.error + np.outer(distance, distance))
        state = replace(state, answers=answers, estimate=estimate)
        return replace(state, theta=model.published(state, curator.effective_rows)) if self.last else state


@dataclass(frozen=True)
class ExactEM(Step["MixtureRegression", RegressionState]):
    """Without privacy: run EM on the table from the starts of the counts and from random ones, and keep the best."""

    def describe(self) -> str:
        return f"EM from {TUNING.starts + 2} starts until it converges"

    def run(self, curator: Curator, model: MixtureRegression, state: RegressionState) -> RegressionState:
        family, rng = replace(state.fit.family, floor=EXACT_FLOOR), generator(0)
        starts = [*(family.near(state.starts[0], rng) for _ in range(TUNING.starts)), *state.starts]
        e_step = exact(curator, model.schema, family)
        solutions = best_of(family, starts, e_step, tolerance=EXACT_TOLERANCE, max_steps=EXACT_STEPS)
        no_error = np.zeros((family.count, family.count))
        state = replace(state, estimate=Estimate(solutions[0].theta, no_error))
        return replace(state, theta=model.published(state, curator.effective_rows))


@dataclass(frozen=True)
class RegressionCheck(Check):
    """Compare the components with two single regressions, and count the rows that the components miss.

    The verdict is that of the less convincing comparison. The lead of a row is clamped, so a few rows far from every
    component hardly lower it although they may cost more log-likelihood than all others gain; hence the count.
    """

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        theta = state.theta
        query = LeadAndMissed(
            model.schema_of(state), model, theta, model.simpler(theta), self.most, model.largest(theta)
        )
        noise = curator.noise_scale(query, self.rho)
        *moments, missed = (float(part) for part in curator.measure(query, self.rho))
        checks = []
        for lead, square in zip(moments[::2], moments[1::2], strict=True):
            spread = math.sqrt(min(max(square * self.most - lead**2, 0.0), self.most**2))
            error = math.hypot(noise, spread / math.sqrt(curator.effective_rows))
            checks.append(check_lead(lead, max(error, 1e-12), self.against, self.advice))
        share, share_noise = min(missed / FAR_WEIGHT, 1.0), noise / FAR_WEIGHT
        is_unusual = share > max(USUALLY_FAR + MISSED_NEEDED * share_noise, 2 * USUALLY_FAR)
        worst = min(checks, key=lambda check: check.lead / check.standard_error)
        return replace(state, check=worst, theta=replace(theta, missed=share if is_unusual else 0.0))
