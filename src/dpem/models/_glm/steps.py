"""The steps of a generalised linear model: marginals, moments, scores, information; without privacy, Newton's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.step import State, Step
from dpem.models._glm.families import Family
from dpem.models._glm.marginals import NO_MARGINALS, Marginals, marginals_of
from dpem.models._glm.posterior import Posterior, ReleasedScore, best_clip, prior_of, score_posterior
from dpem.models._glm.queries import Information, Likelihood, Moments, Score
from dpem.models._glm.surrogate import RADIUS, Surrogate, fit_surrogate, match_information, whitening_of
from dpem.privacy import Curator
from dpem.queries.histograms import BINS, ColumnHistograms
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel

#: The largest number of Newton steps, and the relative change of the mean log-likelihood at which they have converged.
MOST_STEPS, CONVERGED = 60, 1e-14
#: The least share of complete rows that the histogram is divided by: its noise is not magnified further.
LEAST_COMPLETE = 0.05


@dataclass(frozen=True)
class GlmState(State):
    """The releases so far and the estimate that follows from them.

    ``rare`` are levels that are too rare to be fitted, ``mean`` is the mean response, ``response_end`` the share of
    responses in the last bin, ``family`` holds the dispersion, and ``coef`` are coefficients of (1, free u).
    """

    marginals: Marginals = NO_MARGINALS
    rare: tuple[int, ...] = ()
    mean: float = 0.0
    response_end: float = 0.0
    family: Family = field(kw_only=True)
    surrogate: Surrogate = field(default_factory=lambda: Surrogate(np.ones((1, 1)), 1.0))
    scores: tuple[ReleasedScore, ...] = ()
    coef: FloatArray = field(default_factory=lambda: np.zeros(1))

    def fitted_part(self, model: GeneralisedLinearModel) -> GeneralisedLinearModel:
        """The model of the chosen columns without the levels that are too rare."""
        return replace(model.restricted_to(self.chosen), rare=self.rare)

    def posterior(self, model: GeneralisedLinearModel, n: int) -> Posterior:
        """The posterior of the coefficients, from all scores so far."""
        prior = prior_of(model, self.marginals, self.mean, self.surrogate)
        return score_posterior(self.scores, self.surrogate, model.free, prior, self.coef, n)


@dataclass(frozen=True)
class FindMarginals(Step["GeneralisedLinearModel", GlmState]):
    """The marginals of the columns and the mean of the response, from a histogram.

    Where columns are chosen, the histogram of the response comes first, and those of the columns after each choice.
    """

    columns: bool = True
    response: bool = True

    def describe(self) -> str:
        if not self.response:
            return "histogram of the chosen columns"
        return f"histogram of {'every column and of ' if self.columns else ''}the response"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        new = model.released if state.chosen is None else state.chosen[len(state.marginals.centre) :]
        schema = model.schema.take(new if self.columns else np.array([0]))
        query = ColumnHistograms(schema, with_response=self.response, with_columns=self.columns)
        noise = curator.noise_scale(query, self.rho)
        shares = curator.measure(query, self.rho).reshape(-1, BINS + 1)
        if self.columns:
            column_shares = shares[: schema.width]
            complete = np.clip(1 - column_shares[:, -1:], LEAST_COMPLETE, 1.0)
            marginals = state.marginals.joined(marginals_of(column_shares[:, :-1] / complete, noise, schema))
            rare = () if model.sparsity is not None else tuple(map(int, new[marginals.rare]))
            state = replace(state, marginals=marginals, rare=rare)
        if not self.response:
            return state
        mean, family = model.response_of(shares[-1, :-1], noise)
        coef = np.array([model.family.link(mean) - model.middle_offset])
        return replace(state, mean=mean, family=family, response_end=float(shares[-1, -2]), coef=coef)


@dataclass(frozen=True)
class FindMoments(Step["GeneralisedLinearModel", GlmState]):
    """Second moments of the columns, and surrogate rows that agree with them."""

    radius: float = math.inf

    def describe(self) -> str:
        return f"second moments of the columns, clipped at {self.radius:.3g} spreads"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        model, marginals = state.fitted_part(model), state.marginals
        schema, width = model.schema.take(model.released), model.schema.width
        query = Moments(schema, model.family, self.radius, marginals.centre, marginals.spread)
        noise = curator.noise_scale(query, self.rho)
        moments = unpacked(curator.measure(query, self.rho), schema.width + 1)
        surrogate = fit_surrogate(marginals, schema, moments, noise, self.radius)
        if len(model.released) < width:
            u = model.with_implied_terms(surrogate.rows[:, 1:])
            collinear = np.zeros(width, dtype=bool)
            collinear[model.released] = surrogate.collinear
            rows = np.column_stack([np.ones(len(u)), u])
            surrogate = replace(surrogate, rows=rows, collinear=tuple(map(bool, collinear)))
            marginals = marginals.extended(model.released, u)
        if model.rare:
            not_rare = (surrogate.rows[:, 1 + np.array(model.rare)] < 0).all(axis=1)
            surrogate = replace(surrogate, rows=surrogate.rows[not_rare])
        state = replace(state, marginals=marginals, surrogate=surrogate)
        if not state.scores and state.theta is None:
            return replace(state, coef=prior_of(model, marginals, state.mean, surrogate).mean)
        # earlier scores do not depend on columns that were chosen since
        scores = tuple(score.padded(width) for score in state.scores)
        return replace(state, scores=scores, coef=np.pad(state.coef, (0, len(model.free) - len(state.coef))))


@dataclass(frozen=True)
class FindInformation(Step["GeneralisedLinearModel", GlmState]):
    """The information at the current coefficients, and surrogate rows that agree with it.

    The moments resolve correlations only up to their noise. The information is released in coordinates in which that of
    the surrogate is the same in all directions, so its noise is small also along nearly collinear directions.
    """

    def describe(self) -> str:
        return "information of the regression"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        if math.isinf(self.rho):
            return state
        model, surrogate = state.fitted_part(model), state.surrogate
        predictor = model.predictor_at(state.coef)
        V = state.family.variance(np, predictor(np, surrogate.rows[:, 1:]))
        whitening = whitening_of(surrogate.rows, model.free, V)
        radius = RADIUS * math.sqrt(len(model.free) * float(V.mean()))
        query = Information(model.schema, state.family, radius, predictor, whitening)
        noise = curator.noise_scale(query, self.rho) / surrogate.complete
        information = unpacked(curator.measure(query, self.rho), len(whitening)) / surrogate.complete
        state = replace(state, surrogate=match_information(surrogate, model.free, query, information, noise))
        return replace(state, coef=state.posterior(model, curator.effective_rows).coef)


@dataclass(frozen=True)
class TakeStep(Step["GeneralisedLinearModel", GlmState]):
    """The score at the current coefficients, and new coefficients from all scores; the last step finishes the fit."""

    last: bool = False

    def describe(self) -> str:
        return "score of the regression, one step along it"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        model = state.fitted_part(model)
        if math.isinf(self.rho):
            first_choice = state.chosen is not None and state.theta is None  # the next choice needs residuals
            return maximum_likelihood(curator, model, state) if self.last or first_choice else state
        predictor = model.predictor_at(state.coef)
        rows, family = state.surrogate.rows, state.family
        whitening = whitening_of(rows, model.free, family.variance(np, predictor(np, rows[:, 1:])))
        query = Score(model.schema, family, predictor, whitening, 1.0)
        clip, bias = best_clip(query, state.surrogate, curator.n_rows, curator.noise_scale(query, self.rho))
        query = replace(query, clip=clip)
        score = ReleasedScore(query, curator.measure(query, self.rho), curator.noise_scale(query, self.rho), bias)
        state = replace(state, scores=(*state.scores, score))
        posterior = state.posterior(model, curator.effective_rows)
        theta = model.parameters(state, posterior) if self.last else state.theta
        return replace(state, theta=theta, coef=posterior.coef)


def maximum_likelihood(curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
    """The non-private reference (ε = ∞): maximum likelihood over the complete rows by Newton's method with halving."""
    k, n = len(model.free), curator.effective_rows
    coef = prior_of(model, state.marginals, state.mean, state.surrogate).mean
    bread_end = 3 + k + k * (k + 1) // 2

    def likelihood(values: FloatArray) -> FloatArray:
        query = Likelihood(
            model.schema, model.family, model.predictor_at(values), tuple(int(j) - 1 for j in model.free[1:])
        )
        return curator.measure(query, math.inf)

    current, converged = likelihood(coef), False
    for _ in range(MOST_STEPS):
        information, length = unpacked(current[3 + k : bread_end], k), 1.0
        step = np.linalg.lstsq(information, current[3 : 3 + k], rcond=1e-12)[0]
        new = likelihood(coef + step)
        while not new[2] >= current[2] - 1e-15 and length > 1e-6:
            length /= 2
            new = likelihood(coef + length * step)
        gain, coef, current = float(new[2] - current[2]), coef + length * step, new
        if abs(gain) < CONVERGED * max(abs(float(current[2])), 1.0):
            converged = True
            break
    sampling = np.linalg.pinv(unpacked(current[3 + k : bread_end], k)) / n
    if state.weights is not None:  # the sandwich
        sampling = sampling @ unpacked(current[bread_end:], k) @ sampling * n / state.weights.ratio
    surrogate = replace(state.surrogate, complete=float(current[0]))
    state = replace(state, surrogate=surrogate, mean=float(current[1] / max(current[0], 1e-12)), coef=coef)
    theta = model.parameters(state, Posterior(coef, sampling, np.zeros((k, k)), np.zeros(k)))
    return replace(state, theta=replace(theta, converged=converged))
