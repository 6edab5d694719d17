"""The start of a Gaussian mixture: locations, directions between centres, a sketch, a fit to it and surrogate rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate import Answer, Block, Surrogate, SurrogateFit
from dpem.models.gaussian_mixture.component_number import MOST, number_of_components
from dpem.models.gaussian_mixture.family import GaussianFamily, normal_points
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Centres, Margins, Moments, SecondMoments, Spreads
from dpem.models.gaussian_mixture.sketch import Sketch, few_columns
from dpem.models.gaussian_mixture.sketch_fit import Target, fitted
from dpem.models.gaussian_mixture.state import (
    TUNING,
    MixtureState,
    base_rows,
    noise_gain,
    restarts_for,
)
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray
from dpem.tables.schema import Schema

#: Directions beyond the K − 1 between K centres: a weak one may hide behind the noise.
_EXTRA = 2
#: The largest variance of a component, in columns of unit variance, that few columns are searched with.
ROOM = 0.3
#: Up to so many variances of all components each is fitted to the sketch; beyond, one for each component.
MOST_VARIANCES = 60
#: The highest frequency of the sketch, over the spread of a component.
_REACH = 2.0


@dataclass(frozen=True)
class FindCentres(Step):
    """Centres of the columns and shares of missing values."""

    def describe(self) -> str:
        return "centres of the columns and shares of missing values"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        query = Centres(model.schema_of(state))
        answer = curator.measure(query, self.rho)
        centre, presence = query.read(answer, curator.noise_scale(query, self.rho))
        return replace(state, centre=centre, presence=presence)


@dataclass(frozen=True)
class FindSpreads(Step):
    """Spreads of the columns."""

    def describe(self) -> str:
        return "spreads of the columns"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        query = Spreads(model.schema_of(state), state.centre)
        answer = curator.measure(query, self.rho)
        return replace(state, spread=query.read(answer, curator.noise_scale(query, self.rho)))


@dataclass(frozen=True)
class FindShape(Step):
    """Second moments of the standardised columns, and from them the directions between centres."""

    n_components: int = 2

    def describe(self) -> str:
        return "second moments: the directions between the components' centres"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        centre, spread, presence = state.centre, state.spread, state.presence
        d = len(centre)
        query = SecondMoments(model.schema_of(state), centre, spread, math.sqrt(d))
        answer = curator.measure(query, self.rho)
        noise = curator.noise_scale(query, self.rho)
        by_mean = math.sqrt(query.kappa) * query.radius
        mean = answer[:d] / by_mean / presence.seen
        mean = mean * max(0.0, 1 - d * (noise / by_mean) ** 2 / max(float(mean @ mean), 1e-12))
        moments = unpacked(answer[d:], d) / presence.pairs - np.outer(mean, mean)
        rescale = d / float(np.clip(np.trace(moments), 0.6 * d, d))  # the clip shrinks all entries alike
        moments, noise = moments * rescale, noise * rescale
        noise_share = noise**2 / (noise**2 + 0.04)
        own = np.sqrt(np.clip((1 - noise_share) * np.diag(moments) + noise_share, min(max(0.01, noise), 0.2), 4.0))
        moments = moments / np.outer(own, own)
        moments[np.diag_indices(d)] = np.clip(np.diag(moments), 0.5, 2.0)
        return replace(
            state,
            centre=np.clip(centre + spread * mean, -1, 1),
            spread=spread * own,
            moments=_moments(moments, noise / math.sqrt(2), self.n_components),
        )


def _moments(moments: FloatArray, noise: float, K: int) -> Moments:
    """Eigenvalues of the noisy moments with what the noise adds taken off; ``noise`` is that of an entry beside the
    diagonal.
    """
    d = len(moments)
    values, directions = np.linalg.eigh(moments)
    values, directions = values[::-1], directions[:, ::-1]
    edge = 2 * math.sqrt(d) * noise
    spikes = min(K - 1, d - 1)
    within = float(values[spikes:].mean())
    for _ in range(20):  # the trace is kept: K − 1 spikes on a level that all directions share
        within = (float(values.sum()) - float(_without_noise(values[:spikes] - within, edge).sum())) / d
        within = min(max(within, 0.05), 1.0)
    between = _without_noise(values - within, edge)
    between[max(K - 1, 2) + _EXTRA :] = 0.0
    beside = moments - np.diag(np.diag(moments))
    kept = max(0.0, 1 - d * (d - 1) * noise**2 / max(float(np.sum(beside**2)), 1e-12))
    own, axes = np.linalg.eigh(np.eye(d) + kept * beside)
    correlation = (axes * np.clip(own, 0.05, None)) @ axes.T
    scale = np.sqrt(np.diag(correlation))
    return Moments(directions, between, within, edge, correlation / np.outer(scale, scale))


def _without_noise(y: FloatArray, edge: float) -> FloatArray:
    """A spike that is seen y above the level, with noise whose eigenvalues reach ``edge``: (y + √(y² − edge²))/2."""
    y = np.maximum(y, 0.0)
    return np.where(y > edge, (y + np.sqrt(np.maximum(y**2 - edge**2, 0.0))) / 2, y / 2)


@dataclass(frozen=True)
class FindMargins(Step):
    """A histogram of every column: what skews, tails and repeated values surrogate rows must have."""

    def describe(self) -> str:
        return "histogram of every column"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        query = Margins(model.schema_of(state), state.centre, state.spread)
        answer = curator.measure(query, self.rho) / (1 - state.presence.empty)
        noise = curator.noise_scale(query, self.rho) / (1 - state.presence.empty)
        noise = max(noise, 0.3 / math.sqrt(curator.n_rows))
        found = Answer(query, answer, noise)
        return replace(state, margins=(found,), far=query.far(answer, noise), constant=query.constant(answer, noise))


@dataclass(frozen=True)
class StartFromSketch(Step):
    """A sketch along the directions found, the mixture that fits it, and surrogate rows that agree with it;
    ``n_components`` 0 finds their number.

    The number is that of the least misfit in units of the noise plus log(features) for every parameter: the whole path
    of scores is kept. It is found from complete rows: values that were filled would look like more components.
    """

    n_components: int = 2

    def describe(self) -> str:
        number = f"{self.n_components} components" if self.n_components else "components, and their number,"
        return f"sketch of the rows' distribution: {number} start from it"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        K = self.n_components
        counted = int(np.count_nonzero(state.moments.between)) or len(state.centre)
        moments, shape = _open(state.moments, K or MOST), _shape(model, state)
        query = _sketch(model.schema_of(state), state, moments, K or MOST, complete=not K)
        answer, noise = curator.measure(query, self.rho), curator.noise_scale(query, self.rho)
        one_variance = model.kind.free(1, len(shape)) == 1 or max(K, 6) * len(shape) > MOST_VARIANCES
        target = _target(query, answer, noise, curator.n_rows, moments, shape, one_variance)
        if K:
            point, path = fitted(target, K), np.zeros(0)
        else:
            point, path = number_of_components(target, query.frequencies, counted)
        start = _mixture(target.split(point), moments, shape, state, model.kind.full)
        K, rng = len(start.weights), generator(1)
        floor = TUNING.floor**2 * state.wide.variances[0]
        for j, low, high in state.constant:  # where its values lie in the cell is not known
            floor[j] = max(floor[j], (high - low) ** 2)
        family = GaussianFamily(
            K,
            model.kind,
            floor,
            model.proportions_of(state),
            state.presence.patterns(TUNING.patterns, rng),
        )
        blocks = (
            Block(*TUNING.margin_kappa, TUNING.margin_components, state.margins),
            Block(*TUNING.score_kappa, max(TUNING.score_components, family.count)),
        )
        rows = base_rows(start, state, TUNING.rows_for(curator.n_rows), family.patterns, rng)
        surrogate = Surrogate.of(*rows, blocks)
        per_row = 2.2 * math.sqrt(family.count) / (curator.n_rows * math.sqrt(2 * self.rho))  # of scores at this price
        margin = noise_gain(family.count, per_row * curator.rows_per_person)
        restarts = restarts_for(family.count, TUNING.last_restarts)
        fits = surrogate.fit(family, [start], restarts=restarts, rng=rng, margin=margin)
        return replace(state, fit=SurrogateFit(family, surrogate, fits), path=path)


def _shape(model: Any, state: MixtureState) -> FloatArray:
    """The proportions of a component's variances in standardised columns, as the sketch is fitted."""
    d = len(state.spread)
    found = model.kind.start(np.ones(d), model.proportions_of(state) / state.spread**2, 1)[0]
    return np.asarray(np.diag(found) if model.kind.full else found)


def _mixture(
    parts: tuple[FloatArray, FloatArray, FloatArray],
    moments: Moments,
    shape: FloatArray,
    state: MixtureState,
    full: bool,
) -> Gaussians:
    """Shares, centres and log variances of the sketch's fit as a mixture in unit coordinates."""
    share, means, sizes = parts
    share, variances = np.maximum(share, 0.01), np.exp(sizes) * shape * state.spread**2
    centres = np.clip(state.centre + state.spread * (means @ _directions(moments).T), -1, 1)
    covariances = variances[:, :, None] * np.eye(len(shape)) if full else variances
    return Gaussians(share / share.sum(), centres, covariances)


def _open(moments: Moments, K: int) -> Moments:
    """With few columns second moments do not say where centres lie (those of a regular figure leave no trace), so they
    may lie anywhere that the columns' unit variance has room for.
    """
    if not few_columns(len(moments.between), K):
        return moments
    within = min(max(moments.within, 0.05), ROOM)
    return moments._replace(between=np.maximum(moments.between, 1 - within), within=within)


def _sketch(schema: Schema, state: MixtureState, moments: Moments, K: int, complete: bool) -> Sketch:
    """Lines along the directions between centres, frequencies up to what a component's spread damps away."""
    d, within = len(state.centre), moments.within
    few = few_columns(d, K) or not moments.between.any()
    weights = np.ones(d) if few else np.sqrt(moments.between)
    lines = normal_points(max(48, 16 * (d if few_columns(d, K) else min(d, max(K - 1, 2) + _EXTRA))), d) * weights
    lines = lines / np.linalg.norm(lines, axis=1, keepdims=True) @ moments.directions.T
    base = 2 * math.pi / (8 * math.sqrt(within + float(moments.between[0])))
    f = np.arange(1.0, int(np.clip(math.ceil(_REACH / (base * math.sqrt(within))), 4, 12)) + 1)
    amplitudes = f * np.exp(-0.5 * within * (base * f) ** 2) + 0.02
    correlation = moments.correlation
    amplitudes = amplitudes / amplitudes.sum()
    return Sketch(schema, state.centre, state.spread, correlation, lines, base, amplitudes, complete)


def _directions(moments: Moments) -> FloatArray:
    """The directions in which centres may differ (d × q)."""
    used = moments.between > 0
    return moments.directions[:, used] if used.any() else moments.directions


def _target(
    query: Sketch,
    answer: FloatArray,
    noise: float,
    n: int,
    moments: Moments,
    shape: FloatArray,
    one_variance: bool,
) -> Target:
    """What the released values are to be compared with, and in which units."""
    lines, directions, within = query.frequencies, _directions(moments), moments.within
    values, share = query.read(answer)
    errors = np.repeat(np.sqrt((noise / share) ** 2 / query.amplitudes + 0.5 / (n * share)), len(query.lines))
    damping = 0.5 * lines**2 * shape
    if one_variance:
        damping = damping.sum(axis=1, keepdims=True)
    between = moments.between[: directions.shape[1]]
    precision = 1 / (between + 0.25 * moments.edge + 0.05)
    places = normal_points(600, len(between), 1000) * 1.2 * np.sqrt(between + within)
    return Target(values.ravel(), lines @ directions, damping, errors, precision, math.log(within), places)
