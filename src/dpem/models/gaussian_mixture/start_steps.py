"""The start of a Gaussian mixture: centres, spreads, second moments, histograms, a sketch, and surrogate rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate import Answer, Block, Surrogate, SurrogateFit
from dpem.models.gaussian_mixture.component_number import MOST, number_of_components
from dpem.models.gaussian_mixture.family import GaussianFamily, normal_points
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Centres, Margins, SecondMoments, Spreads, VarianceComponents
from dpem.models.gaussian_mixture.sketch import Sketch, few_columns
from dpem.models.gaussian_mixture.sketch_fit import Components, Target, fitted
from dpem.models.gaussian_mixture.state import TUNING, MixtureState, base_rows, noise_gain, restarts_for
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray
from dpem.tables.schema import Schema

if TYPE_CHECKING:
    from dpem.models.gaussian_mixture.model import GaussianMixture

#: Directions beyond the K − 1 between K centres: noise may hide a weak one.
EXTRA_DIRECTIONS = 2
#: With few columns, the largest variance within components that the sketch allows for, in columns of unit variance.
MOST_WITHIN = 0.3
#: The least variance within components, and the least eigenvalue of a correlation matrix.
LEAST_WITHIN = 0.05
#: Each variance of each component is fitted to the sketch up to this number of them, one for each component beyond.
MOST_VARIANCES = 60
#: The highest frequency of the sketch times the spread of a component.
REACH = 2.0
#: Lines of the sketch: at least, and for each direction.
LEAST_LINES, LINES_PER_DIRECTION = 48, 16
#: The least share of a component in the start.
LEAST_SHARE = 0.01
#: The typical quantile of the norm of whitened scores over √p, from which the noise of the scores is predicted.
TYPICAL_RADIUS = 1.1


@dataclass(frozen=True)
class FindCentres(Step["GaussianMixture", MixtureState]):
    """Release the centres of the columns and the shares of missing values."""

    def describe(self) -> str:
        return "centres of the columns and shares of missing values"

    def run(self, curator: Curator, model: GaussianMixture, state: MixtureState) -> MixtureState:
        query = Centres(model.schema_of(state))
        answer = curator.measure(query, self.rho)
        centre, presence = query.read(answer, curator.noise_scale(query, self.rho))
        return replace(state, centre=centre, presence=presence)


@dataclass(frozen=True)
class FindSpreads(Step["GaussianMixture", MixtureState]):
    """Release the spreads of the columns."""

    def describe(self) -> str:
        return "spreads of the columns"

    def run(self, curator: Curator, model: GaussianMixture, state: MixtureState) -> MixtureState:
        query = Spreads(model.schema_of(state), state.centre)
        answer = curator.measure(query, self.rho)
        return replace(state, spread=query.read(answer, curator.noise_scale(query, self.rho)))


@dataclass(frozen=True)
class FindShape(Step["GaussianMixture", MixtureState]):
    """Release the second moments of the standardised columns: better centres and spreads, the correlation, and the
    directions between the components' centres.
    """

    n_components: int = 2

    def describe(self) -> str:
        return "second moments: the directions between the components' centres"

    def run(self, curator: Curator, model: GaussianMixture, state: MixtureState) -> MixtureState:
        centre, spread, presence = state.centre, state.spread, state.presence
        d = len(centre)
        query = SecondMoments(model.schema_of(state), centre, spread, math.sqrt(d))
        answer = curator.measure(query, self.rho)
        noise = curator.noise_scale(query, self.rho)
        mean_scale = math.sqrt(query.kappa) * query.radius
        mean = answer[:d] / mean_scale / presence.seen
        mean = mean * max(0.0, 1 - d * (noise / mean_scale) ** 2 / max(float(mean @ mean), 1e-12))  # James–Stein
        moments = unpacked(answer[d:], d) / presence.seen_pairs - np.outer(mean, mean)
        rescale = d / float(
            np.clip(np.trace(moments), 0.6 * d, d)
        )  # the clip shrinks all entries alike, to 0.6 at most
        moments, noise = moments * rescale, noise * rescale
        shrinkage = noise**2 / (noise**2 + 0.04)  # of variances, whose prior is N(1, 0.2²) since the columns are scaled
        variances = (1 - shrinkage) * np.diag(moments) + shrinkage
        sizes = np.sqrt(np.clip(variances, min(max(0.01, noise), 0.2), 4.0))
        moments = moments / np.outer(sizes, sizes)
        moments[np.diag_indices(d)] = np.clip(np.diag(moments), 0.5, 2.0)
        return replace(
            state,
            centre=np.clip(centre + spread * mean, -1, 1),
            spread=spread * sizes,
            variances=_variance_components(moments, noise / math.sqrt(2), self.n_components),
        )


def _variance_components(moments: FloatArray, noise: float, K: int) -> VarianceComponents:
    """The eigenvalues of the noisy moments, corrected for noise: K − 1 of the variance between centres above a common
    level within components. ``noise`` is that of an off-diagonal entry.
    """
    d = len(moments)
    values, directions = np.linalg.eigh(moments)
    values, directions = values[::-1], directions[:, ::-1]
    edge = 2 * math.sqrt(d) * noise  # of the semicircle law
    spikes = min(K - 1, d - 1)
    within = float(values[spikes:].mean())
    for _ in range(20):  # a fixed point: the trace is that of the spikes and of the level in all directions
        within = (float(values.sum()) - float(_without_noise(values[:spikes] - within, edge).sum())) / d
        within = min(max(within, LEAST_WITHIN), 1.0)
    between = _without_noise(values - within, edge)
    between[max(K - 1, 2) + EXTRA_DIRECTIONS :] = 0.0
    off_diagonal = moments - np.diag(np.diag(moments))
    shrinkage = max(0.0, 1 - d * (d - 1) * noise**2 / max(float(np.sum(off_diagonal**2)), 1e-12))  # James–Stein
    values, axes = np.linalg.eigh(np.eye(d) + shrinkage * off_diagonal)
    correlation = (axes * np.clip(values, LEAST_WITHIN, None)) @ axes.T
    scale = np.sqrt(np.diag(correlation))
    return VarianceComponents(directions, between, within, edge, correlation / np.outer(scale, scale))


def _without_noise(y: FloatArray, edge: float) -> FloatArray:
    """The size of a spike that is seen at y above the level, among noise with eigenvalues up to ``edge``:
    (y + √(y² − edge²))/2, and half of one below the edge.
    """
    y = np.maximum(y, 0.0)
    return np.where(y > edge, (y + np.sqrt(np.maximum(y**2 - edge**2, 0.0))) / 2, y / 2)


@dataclass(frozen=True)
class FindMargins(Step["GaussianMixture", MixtureState]):
    """Release a histogram of every column: the skew, tails and repeated values that surrogate rows need."""

    def describe(self) -> str:
        return "histogram of every column"

    def run(self, curator: Curator, model: GaussianMixture, state: MixtureState) -> MixtureState:
        query = Margins(model.schema_of(state), state.centre, state.spread)
        present = model.share_present(state)
        mean = curator.measure(query, self.rho) / present
        # at least about the sampling error of a cell, so that the surrogate does not fit that
        noise = max(curator.noise_scale(query, self.rho) / present, 0.3 / math.sqrt(curator.n_rows))
        return replace(
            state,
            margins=(Answer(query, mean, noise),),
            tails=query.tail_cells(mean, noise),
            constant=query.constant_columns(mean, noise),
        )


@dataclass(frozen=True)
class StartFromSketch(Step["GaussianMixture", MixtureState]):
    """Release a sketch along the directions between centres, fit a mixture to it, and draw surrogate rows from that.

    ``n_components`` 0 finds the number of components, from complete rows: filled values would look like more
    components.
    """

    n_components: int = 2

    def describe(self) -> str:
        number = f"{self.n_components} components" if self.n_components else "components, and their number,"
        return f"sketch of the rows' distribution: {number} start from it"

    def run(self, curator: Curator, model: GaussianMixture, state: MixtureState) -> MixtureState:
        variances, scale = _searched(state.variances, self.n_components or MOST), _variance_scale(model, state)
        query = _sketch(model.schema_of(state), state, variances, self.n_components or MOST, not self.n_components)
        answer, noise = curator.measure(query, self.rho), curator.noise_scale(query, self.rho)
        one_variance = model.kind.free(1, len(scale)) == 1 or max(self.n_components, 6) * len(scale) > MOST_VARIANCES
        target = _target(query, answer, noise, curator.n_rows, variances, scale, one_variance)
        if self.n_components:
            point, path = fitted(target, self.n_components), np.zeros(0)
        else:
            directions = int(np.count_nonzero(state.variances.between)) or len(state.centre)
            point, path = number_of_components(target, query.frequencies, directions)
        start = _mixture(target.components(point), variances, scale, state, model.kind.full)
        rng = generator(1)
        floor = TUNING.floor**2 * state.wide.variances[0]
        for j, low, high in state.constant:  # the values lie somewhere in this cell
            floor[j] = max(floor[j], (high - low) ** 2)
        patterns = state.presence.patterns(TUNING.patterns, rng)
        family = GaussianFamily(len(start.weights), model.kind, floor, model.proportions_of(state), patterns)
        rows = base_rows(start, state, TUNING.rows_for(curator.n_rows), patterns, rng)
        blocks = (
            Block(*TUNING.margin_kappa, TUNING.margin_components, state.margins),
            Block(*TUNING.score_kappa, max(TUNING.score_components, family.count)),
        )
        surrogate = Surrogate.of(*rows, blocks)
        score_noise = 2 * TYPICAL_RADIUS * math.sqrt(family.count) / (curator.n_rows * math.sqrt(2 * self.rho))
        solutions = surrogate.fit(
            family,
            [start],
            restarts=restarts_for(family.count, TUNING.last_restarts),
            rng=rng,
            margin=noise_gain(family.count, score_noise * curator.rows_per_person),
        )
        return replace(state, fit=SurrogateFit(family, surrogate, solutions), path=path)


def _variance_scale(model: GaussianMixture, state: MixtureState) -> FloatArray:
    """The variances of a component in standardised columns, up to a factor: 1, or for ``spherical`` those of a round
    component in the table's units.
    """
    scale = model.kind.start(np.ones(len(state.spread)), model.proportions_of(state) / state.spread**2, 1)[0]
    return np.asarray(np.diag(scale) if model.kind.full else scale)


def _mixture(
    components: Components, variances: VarianceComponents, scale: FloatArray, state: MixtureState, full: bool
) -> Gaussians:
    """The components fitted to the sketch as a mixture in unit coordinates."""
    shares = np.maximum(components.shares, LEAST_SHARE)
    diagonal = np.exp(components.log_variances) * scale * state.spread**2
    centres = np.clip(state.centre + state.spread * (components.means @ _directions(variances).T), -1, 1)
    covariances = diagonal[:, :, None] * np.eye(len(scale)) if full else diagonal
    return Gaussians(shares / shares.sum(), centres, covariances)


def _searched(variances: VarianceComponents, K: int) -> VarianceComponents:
    """The variances in which the sketch looks for centres.

    With few columns second moments do not show where centres lie (those of a regular figure are round), so centres may
    lie in all directions as far as the columns' unit variance allows.
    """
    if not few_columns(len(variances.between), K):
        return variances
    within = min(max(variances.within, LEAST_WITHIN), MOST_WITHIN)
    return variances._replace(between=np.maximum(variances.between, 1 - within), within=within)


def _sketch(schema: Schema, state: MixtureState, variances: VarianceComponents, K: int, complete: bool) -> Sketch:
    """Lines along the directions between centres, with frequencies up to those that the variance within components
    damps away.
    """
    d, within = len(state.centre), variances.within
    few = few_columns(d, K)
    weights = np.ones(d) if few or not variances.between.any() else np.sqrt(variances.between)
    searched = d if few else min(d, max(K - 1, 2) + EXTRA_DIRECTIONS)
    lines = normal_points(max(LEAST_LINES, LINES_PER_DIRECTION * searched), d) * weights
    lines = lines / np.linalg.norm(lines, axis=1, keepdims=True) @ variances.directions.T
    base = 2 * math.pi / (8 * math.sqrt(within + float(variances.between[0])))  # a period of 8 spreads of all rows
    f = np.arange(1.0, int(np.clip(math.ceil(REACH / (base * math.sqrt(within))), 4, 12)) + 1)
    amplitudes = f * np.exp(-0.5 * within * (base * f) ** 2) + 0.02  # high frequencies separate centres, until damped
    amplitudes = amplitudes / amplitudes.sum()
    return Sketch(schema, state.centre, state.spread, state.variances.correlation, lines, base, amplitudes, complete)


def _directions(variances: VarianceComponents) -> FloatArray:
    """The directions in which centres may differ (d × q)."""
    used = variances.between > 0
    return variances.directions[:, used] if used.any() else variances.directions


def _target(
    query: Sketch,
    answer: FloatArray,
    noise: float,
    n: int,
    variances: VarianceComponents,
    scale: FloatArray,
    one_variance: bool,
) -> Target:
    """The released values of the characteristic function, with their errors by noise and sampling, and the priors."""
    lines, directions, within = query.frequencies, _directions(variances), variances.within
    values, share = query.read(answer)
    errors = np.repeat(np.sqrt((noise / share) ** 2 / query.amplitudes + 0.5 / (n * share)), len(query.lines))
    damping = 0.5 * lines**2 * scale
    if one_variance:
        damping = damping.sum(axis=1, keepdims=True)
    between = variances.between[: directions.shape[1]]
    precision = 1 / (between + 0.25 * variances.edge + 0.05)  # wider than the variance seen, by what noise may hide
    places = normal_points(600, len(between), 1000) * 1.2 * np.sqrt(between + within)
    return Target(values.ravel(), lines @ directions, damping, errors, precision, math.log(within), places)
