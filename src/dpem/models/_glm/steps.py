"""The steps of a generalised linear model: marginals, moments, scores, information; without privacy, Newton's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.step import State, Step
from dpem.models._glm.families import Family
from dpem.models._glm.marginals import NONE, Marginals, marginals
from dpem.models._glm.posterior import Posterior, ReleasedScore, best_clip, combined, placed, prior_of
from dpem.models._glm.queries import Information, Likelihood, Moments, Score
from dpem.models._glm.surrogate import RADIUS, Surrogate, corrected, fitted, whitening
from dpem.privacy import Curator
from dpem.queries.histograms import BINS, ColumnHistograms
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel

#: Newton steps at most, and the change of the mean log-likelihood below which they have converged.
MOST_STEPS, CONVERGED = 60, 1e-14


@dataclass(frozen=True)
class GlmState(State):
    """What has been released: marginals, the levels that are too rare, the mean response and the share of responses in
    the last bin, the family as it clips, surrogate rows, scores, and the coefficients of (1, free u) that follow.
    """

    marginals: Marginals = NONE
    rare: tuple[int, ...] = ()
    mean: float = 0.0
    response_end: float = 0.0
    family: Family = field(kw_only=True)
    surrogate: Surrogate = field(default_factory=lambda: Surrogate(np.ones((1, 1)), 1.0))
    scores: tuple[ReleasedScore, ...] = ()
    coef: FloatArray = field(default_factory=lambda: np.zeros(1))

    def of(self, model: GeneralisedLinearModel) -> GeneralisedLinearModel:
        """The model of the chosen columns, or without the levels that are too rare."""
        return replace(model.on(self.chosen), rare=self.rare)

    def posterior(self, model: GeneralisedLinearModel, n: int) -> Posterior:
        """The coefficients that agree best with all scores so far."""
        prior = prior_of(model, self.marginals, self.mean, self.surrogate)
        return combined(self.scores, self.surrogate, model.free, prior, self.coef, n)


@dataclass(frozen=True)
class FindMarginals(Step):
    """Where each column lies between its bounds, and the mean of the response; one of them where columns are chosen:
    the response first, then the columns that were chosen last.
    """

    columns: bool = True
    response: bool = True

    def describe(self) -> str:
        if not self.response:
            return "histogram of the chosen columns"
        return f"histogram of {'every column and of ' if self.columns else ''}the response"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        new = model.drawn if state.chosen is None else state.chosen[len(state.marginals.centre) :]
        schema = model.schema.take(new if self.columns else np.array([0]))
        query = ColumnHistograms(schema, with_response=self.response, with_columns=self.columns)
        noise = curator.noise_scale(query, self.rho)
        shares = curator.measure(query, self.rho).reshape(-1, BINS + 1)
        if self.columns:
            each = shares[: schema.width]
            complete = np.clip(1 - each[:, -1:], 0.05, 1.0)
            both = state.marginals.joined(marginals(each[:, :-1] / complete, noise, schema))
            rare = () if model.sparsity is not None else tuple(map(int, new[both.rare]))
            state = replace(state, marginals=both, rare=rare)
        if not self.response:
            return state
        mean, family = model.response_of(shares[-1, :-1], noise)
        coef = np.array([model.family.link(mean) - model.middle_offset])
        return replace(state, mean=mean, family=family, response_end=float(shares[-1, -2]), coef=coef)


@dataclass(frozen=True)
class FindMoments(Step):
    """Correlations of the columns, and surrogate rows that have them."""

    radius: float = math.inf

    def describe(self) -> str:
        return f"second moments of the columns, clipped at {self.radius:.3g} spreads"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        model, margins = state.of(model), state.marginals
        schema, width = model.schema.take(model.drawn), model.schema.width
        query = Moments(schema, model.family, self.radius, margins.centre, margins.spread)
        noise = curator.noise_scale(query, self.rho)
        released = unpacked(curator.measure(query, self.rho), schema.width + 1)
        surrogate = fitted(margins, schema, released, noise, self.radius)
        if len(model.drawn) < width:
            u = model.completed(surrogate.rows[:, 1:])
            collinear = np.zeros(width, dtype=bool)
            collinear[model.drawn] = surrogate.collinear
            rows = np.column_stack([np.ones(len(u)), u])
            surrogate = replace(surrogate, rows=rows, collinear=tuple(map(bool, collinear)))
            margins = margins.completed(model.drawn, u)
        if model.rare:
            kept = (surrogate.rows[:, 1 + np.array(model.rare)] < 0).all(axis=1)
            surrogate = replace(surrogate, rows=surrogate.rows[kept])
        state = replace(state, marginals=margins, surrogate=surrogate)
        if not state.scores and state.theta is None:
            return replace(state, coef=prior_of(model, margins, state.mean, surrogate).mean)
        # earlier scores say nothing of columns that were chosen since
        scores = tuple(score.widened(width) for score in state.scores)
        return replace(state, scores=scores, coef=np.pad(state.coef, (0, len(model.free) - len(state.coef))))


@dataclass(frozen=True)
class FindInformation(Step):
    """The information at the present coefficients, and surrogate rows that have it.

    The surrogate follows correlations only as far as the noise of the moments lets it. In coordinates in which its own
    information is the same in all directions, the noise of another release is small beside the information of
    directions that are nearly collinear, too.
    """

    def describe(self) -> str:
        return "information of the regression"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        if math.isinf(self.rho):
            return state
        model, surrogate = state.of(model), state.surrogate
        predictor = model.predictor(placed(state.coef, model.free, model.offset))
        V = state.family.variance(np, predictor(np, surrogate.rows[:, 1:]))
        turn, radius = whitening(surrogate.rows, model.free, V), RADIUS * math.sqrt(len(model.free) * float(V.mean()))
        query = Information(model.schema, state.family, radius, predictor, turn)
        noise = curator.noise_scale(query, self.rho) / surrogate.complete
        released = unpacked(curator.measure(query, self.rho), len(turn)) / surrogate.complete
        state = replace(state, surrogate=corrected(surrogate, model.free, query, released, noise))
        return replace(state, coef=state.posterior(model, curator.effective_rows).coef)


@dataclass(frozen=True)
class TakeStep(Step):
    """The score at the present coefficients: one step towards the truth. The last one finishes the fit."""

    last: bool = False

    def describe(self) -> str:
        return "score of the regression, one step along it"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        model = state.of(model)
        if math.isinf(self.rho):
            early = state.chosen is not None and state.theta is None  # the next choice needs a fit
            return maximum_likelihood(curator, model, state) if self.last or early else state
        predictor = model.predictor(placed(state.coef, model.free, model.offset))
        rows, family = state.surrogate.rows, state.family
        turn = whitening(rows, model.free, family.variance(np, predictor(np, rows[:, 1:])))
        query = Score(model.schema, family, predictor, turn, 1.0)
        clip, bias = best_clip(query, state.surrogate, curator.n_rows, curator.noise_scale(query, self.rho))
        query = replace(query, clip=clip)
        score = ReleasedScore(query, curator.measure(query, self.rho), curator.noise_scale(query, self.rho), bias)
        state = replace(state, scores=(*state.scores, score))
        posterior = state.posterior(model, curator.effective_rows)
        theta = model.finished(state, posterior) if self.last else state.theta
        return replace(state, theta=theta, coef=posterior.coef)


def maximum_likelihood(curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
    """The non-private reference (ε = ∞): the maximum of the likelihood over the complete rows by Newton steps, as
    ``glm`` in R finds it.
    """
    k, n = len(model.free), curator.effective_rows
    coef = prior_of(model, state.marginals, state.mean, state.surrogate).mean
    end = 3 + k + k * (k + 1) // 2

    def measured(values: FloatArray) -> FloatArray:
        predictor = model.predictor(placed(values, model.free, model.offset))
        query = Likelihood(model.schema, model.family, predictor, tuple(int(j) - 1 for j in model.free[1:]))
        return curator.measure(query, math.inf)

    at, converged = measured(coef), False
    for _ in range(MOST_STEPS):
        step, length = np.linalg.lstsq(unpacked(at[3 + k : end], k), at[3 : 3 + k], rcond=1e-12)[0], 1.0
        new = measured(coef + step)
        while not new[2] >= at[2] - 1e-15 and length > 1e-6:
            length /= 2
            new = measured(coef + length * step)
        gain, coef, at = float(new[2] - at[2]), coef + length * step, new
        if abs(gain) < CONVERGED * max(abs(float(at[2])), 1.0):
            converged = True
            break
    sampling = np.linalg.pinv(unpacked(at[3 + k : end], k)) / n
    if state.weights is not None:  # the sandwich
        sampling = sampling @ unpacked(at[end:], k) @ sampling * n / state.weights.ratio
    surrogate = replace(state.surrogate, complete=float(at[0]))
    state = replace(state, surrogate=surrogate, mean=float(at[1] / max(at[0], 1e-12)), coef=coef)
    theta = model.finished(state, Posterior(coef, sampling, np.zeros((k, k)), np.zeros(k)))
    return replace(state, theta=replace(theta, converged=converged))
