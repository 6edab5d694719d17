"""The steps of a generalised linear model: marginals, moments, scores. :class:`Progress` travels between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import State, Step
from dpem.models._glm.combine import Posterior, Prior, ReleasedScore, combined, placed
from dpem.models._glm.families import Family
from dpem.models._glm.marginals import NONE, Marginals, marginals
from dpem.models._glm.queries import Moments, Predictor, Score, weights
from dpem.models._glm.reference import maximum_likelihood
from dpem.models._glm.surrogate import Surrogate, fitted
from dpem.privacy import Curator
from dpem.queries.histograms import BINS, Places
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

#: Variances of the intercept and, in all, of the slopes of standardised uncorrelated columns before any score.
PRIOR_INTERCEPT, PRIOR_SLOPES = 9.0, 4.0
#: The least variance of a unit coordinate in the prior: a level that no surrogate row has is not left undetermined.
LEAST_VARIANCE = 1e-3
#: That of a level: a rare one may not have an effect of many units.
LEVEL_VARIANCE = 0.25
#: That of a 0/1 column of which noise may hide the rarer value: the variance of a share of two standard deviations.
HIDDEN = 8.0
#: By how much the prior may be too narrow, as a part of its variances, where nothing is known of the columns' spreads.
WIDER = 10.0
#: Clips that are tried: leverages in units of √k, and clips from the size of a typical score.
LEVERAGES = (1.2, 1.6, 2.2, 3.2, 4.5, 6.5)
CLIPS = np.geomspace(0.25, 36.0, 30)
#: What full clipping may do to a coefficient besides noise: a squared bias, in the units of its whitened covariate.
CLIPPED = 5e-4


@dataclass(frozen=True)
class Progress:
    """What is known so far, all of it released: marginals, mean response, the family as it clips, the share of
    responses in the last bin, surrogate rows, scores, and the coefficients they give.
    """

    marginals: Marginals
    mean: float
    family: Family
    response_end: float = 0.0
    surrogate: Surrogate | None = None
    prior: Prior | None = None
    posterior: Posterior | None = None
    scores: tuple[ReleasedScore, ...] = field(default=())

    def widened(self, width: int, free: int) -> Progress:
        """The same for more columns, of which earlier scores say nothing."""
        if self.posterior is None:
            return self

        def wider(score: ReleasedScore) -> ReleasedScore:
            more = width + 1 - len(score.predictor.coef)
            predictor = replace(score.predictor, coef=np.pad(score.predictor.coef, (0, more)))
            return replace(score, predictor=predictor, turn=np.pad(score.turn, ((0, 0), (0, more))))

        coef = np.pad(self.posterior.coef, (0, free - len(self.posterior.coef)))
        scores = tuple(wider(score) for score in self.scores)
        return replace(self, scores=scores, posterior=replace(self.posterior, coef=coef))


@dataclass(frozen=True)
class GlmState(State):
    """The state of a fit with what only a generalised linear model has."""

    progress: Progress | None = None

    def current(self) -> Progress:
        assert self.progress is not None, "marginals are released first"
        return self.progress


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

    def run(self, curator: Curator, model: Any, state: GlmState) -> GlmState:
        before = NONE if self.response else state.current().marginals
        new = model.drawn if state.chosen is None else state.chosen[len(before.centre) :]
        schema = model.schema.take(new if self.columns else np.array([0]))
        query = Places(schema, with_response=self.response, with_columns=self.columns)
        noise = curator.noise_scale(query, self.rho)
        shares = curator.measure(query, self.rho).reshape(-1, BINS + 1)
        if self.columns:
            each = shares[: schema.width]
            seen = np.clip(1 - each[:, -1:], 0.05, 1.0)
            before = before.joined(marginals(each[:, :-1] / seen, noise, schema))
        if not self.response:
            return replace(state, progress=replace(state.current(), marginals=before))
        mean, family = model.response_of(shares[-1, :-1], noise)
        return replace(state, progress=Progress(before, mean, family, float(shares[-1, -2])))


@dataclass(frozen=True)
class FindMoments(Step):
    """Correlations of the columns, and surrogate rows that have them."""

    radius: float = math.inf

    def describe(self) -> str:
        return f"second moments of the columns, clipped at {self.radius:.3g} spreads"

    def run(self, curator: Curator, model: Any, state: GlmState) -> GlmState:
        now, own = state.current(), model.on(state.chosen)
        schema = own.schema.take(own.drawn)
        query = Moments(schema, own.family, now.marginals.centre, now.marginals.spread, self.radius)
        noise = curator.noise_scale(query, self.rho)
        released = unpacked(curator.measure(query, self.rho), schema.width + 1)
        rows = fitted(now.marginals, schema, released, noise, self.radius)
        if len(own.drawn) < own.schema.width:
            u = own.completed(rows.rows[:, 1:])
            collinear = np.zeros(own.schema.width, dtype=bool)
            collinear[own.drawn] = rows.collinear
            rows = replace(rows, rows=np.column_stack([np.ones(len(u)), u]), collinear=tuple(map(bool, collinear)))
            now = replace(now, marginals=now.marginals.completed(own.drawn, u))
        now = replace(now.widened(own.schema.width, len(own.free)), surrogate=rows)
        return replace(state, progress=replace(now, prior=prior_of(own, now)))


def prior_of(model: Any, now: Progress) -> Prior:
    """The prior: the intercept near the link of the mean, slopes of all columns together of a moderate size."""
    assert now.surrogate is not None
    X = now.surrogate.rows[:, model.free]
    mean, p = X[:, 1:].mean(axis=0), len(model.free) - 1
    centred = X[:, 1:] - mean
    unknown = min((now.marginals.noise**2 * BINS) ** 1.5, 1.0)  # where noise hides where a column lies: anywhere
    columns, schema = model.free[1:] - 1, model.schema
    zero_one = now.marginals.one_end & (schema.middle == 0.5) & (schema.half == 0.5)
    hidden = np.where(zero_one, min(HIDDEN * now.marginals.noise, LEVEL_VARIANCE), LEAST_VARIANCE)
    least = np.where(now.marginals.level > 0, LEVEL_VARIANCE, hidden)[columns] + unknown / 3
    covariance = centred.T @ centred / len(X) + np.diag(least)
    to_middle = np.eye(p + 1)
    to_middle[0, 1:] = mean
    precision = np.zeros((p + 1, p + 1))
    precision[0, 0], precision[1:, 1:] = 1 / PRIOR_INTERCEPT, covariance * p / PRIOR_SLOPES
    start = np.zeros(p + 1)
    start[0] = model.family.link(now.mean) - model.mean_offset(now.surrogate.rows)
    return Prior(start, to_middle.T @ precision @ to_middle, WIDER * unknown)


@dataclass(frozen=True)
class TakeStep(Step):
    """The score at the present coefficients: one step towards the truth. The last one finishes the fit."""

    last: bool = False

    def describe(self) -> str:
        return "score of the regression, one step along it"

    def run(self, curator: Curator, model: Any, state: GlmState) -> GlmState:
        now, model = state.current(), model.on(state.chosen)
        assert now.surrogate is not None
        assert now.prior is not None
        if math.isinf(self.rho):
            early = state.chosen is not None and now.posterior is None  # the next choice needs a fit
            return maximum_likelihood(curator, model, state) if self.last or early else state
        n = curator.n_rows
        coef = now.prior.mean if now.posterior is None else now.posterior.coef
        predictor = model.predictor(placed(coef, model.free, model.offset))
        turn, leverage, clip = clips(
            model.free, now.family, now.surrogate, predictor, n, self.rho, curator.rows_per_person
        )
        query = Score(model.schema, now.family, predictor, turn, leverage, clip)
        noise = curator.noise_scale(query, self.rho)
        score = ReleasedScore(now.family, predictor, turn, leverage, clip, curator.measure(query, self.rho), noise)
        scores = (*now.scores, score)
        posterior = combined(scores, now.surrogate, model.free, now.prior, coef, curator.effective_rows)
        now = replace(now, scores=scores, posterior=posterior)
        theta = model.finished(now, posterior, n) if self.last else state.theta
        return replace(state, theta=theta, progress=now)


def clips(
    free: NDArray[np.intp],
    family: Family,
    surrogate: Surrogate,
    predictor: Predictor,
    n: int,
    rho: float,
    rows_per_person: int,
) -> tuple[FloatArray, float, float]:
    """Coordinates in which the information of a surrogate row is round, and where to clip in them: where sampling
    error and privacy noise together are least. From released numbers alone.
    """
    rows, k = surrogate.rows, len(free)
    eta = predictor(np, rows[:, 1:])
    V = family.variance(np, eta)
    X = rows[:, free]
    J = (X * V[:, None]).T @ X / len(X)
    values, vectors = np.linalg.eigh(J)
    values = np.maximum(values, 1e-6 * values[-1])
    turn = np.zeros((k, rows.shape[1]))
    turn[:, free] = (vectors / np.sqrt(values)).T * math.sqrt(float(V.mean()))
    size = np.linalg.norm(rows @ turn.T, axis=1)
    unit = float(np.sqrt(np.mean(V * size**2)))
    best, least = (turn, LEVERAGES[0], 1.0), math.inf
    whole = float(np.mean(V * size**2)) / k
    for leverage in (wide * math.sqrt(k) for wide in LEVERAGES):
        for clip in unit * CLIPS:
            w = weights(np, family, eta, size, leverage, clip)
            slope = float(np.mean(w * V * size**2)) / k
            noise = (2 * clip * rows_per_person / n) ** 2 / (2 * rho) / surrogate.complete
            sampling = float(np.mean(w**2 * V * size**2)) / k / n
            lost = 1 - slope / whole
            loss = (sampling + noise) / slope**2 + CLIPPED / float(V.mean()) * lost + (family.misfit * lost) ** 2
            if loss < least:
                best, least = (turn, leverage, float(clip)), loss
    return best
