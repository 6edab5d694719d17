"""The start of a Gaussian mixture: where columns lie, which directions tell groups apart, a sketch, and a fit to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from dpem.fitting.step import State, Step
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Centres, SecondMoments, Spreads
from dpem.models.gaussian_mixture.sketch import Sketch
from dpem.models.gaussian_mixture.sketch_alternatives import score_of_independent, score_of_one, weight
from dpem.models.gaussian_mixture.sketch_fit import Target, fitted
from dpem.models.gaussian_mixture.sketch_shapes import Diagonal, Shared, SketchShape, Spherical
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

#: The most components that are tried where their number is to be found.
MOST = 8
#: Directions beyond the K − 1 between K centres: a weak one may hide behind the noise.
_EXTRA = 2
#: The largest variance of a component, in columns of unit variance, that few columns are searched with.
ROOM = 0.3
#: The highest frequency of the sketch, over the spread of a component.
_REACH = 2.0


class Shape(NamedTuple):
    """What the second moments told, in coordinates of unit spread: variances along directions between centres.

    ``directions`` are columns, ``between`` the variance of centres along each, ``within`` that of a component in any,
    ``edge`` what noise alone can look like, ``correlation`` that of all rows together.
    """

    directions: FloatArray
    between: FloatArray
    within: float
    edge: float
    correlation: FloatArray


@dataclass(frozen=True)
class FindCentres(Step):
    """Centres of the columns and their shares of holes."""

    def describe(self) -> str:
        return "centres of the columns and shares of holes"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        question = Centres(model.schema_of(state))
        answer = curator.measure(question, self.rho)
        centre, seen = question.read(answer, curator.noise_scale(question, self.rho))
        return replace(state, notes={**state.notes, "centre": centre, "seen": seen})


@dataclass(frozen=True)
class FindSpreads(Step):
    """Spreads of the columns."""

    def describe(self) -> str:
        return "spreads of the columns"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        question = Spreads(model.schema_of(state), state.notes["centre"])
        answer = curator.measure(question, self.rho)
        spread = question.read(answer, curator.noise_scale(question, self.rho))
        return replace(state, notes={**state.notes, "spread": spread})


@dataclass(frozen=True)
class FindShape(Step):
    """Second moments of the standardised columns, and from them the directions between centres."""

    n_components: int = 2

    def describe(self) -> str:
        return "second moments: the directions that tell groups apart"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        notes = state.notes
        centre, spread, seen = notes["centre"], notes["spread"], notes["seen"]
        d = len(centre)
        question = SecondMoments(model.schema_of(state), centre, spread, math.sqrt(d))
        answer = curator.measure(question, self.rho)
        noise = curator.noise_scale(question, self.rho)
        by_mean = math.sqrt(question.kappa) * question.radius
        mean = answer[:d] / by_mean / seen
        mean = mean * max(0.0, 1 - d * (noise / by_mean) ** 2 / max(float(mean @ mean), 1e-12))
        pairs = np.outer(seen, seen)
        pairs[np.diag_indices(d)] = seen
        moments = unpacked(answer[d:], d) / pairs - np.outer(mean, mean)
        rescale = d / float(np.clip(np.trace(moments), 0.1 * d, 10 * d))  # the clip shrinks all entries alike
        moments, noise = moments * rescale, noise * rescale
        doubt = noise**2 / (noise**2 + 0.04)
        own = np.sqrt(np.clip((1 - doubt) * np.diag(moments) + doubt, 0.2, 4.0))
        moments = moments / np.outer(own, own)
        moments[np.diag_indices(d)] = np.clip(np.diag(moments), 0.5, 2.0)
        known = {"centre": np.clip(centre + spread * mean, -1, 1), "spread": spread * own}
        shape = _shape(moments, noise / math.sqrt(2), self.n_components)
        return replace(state, notes={**notes, **known, "shape": shape})


def _shape(moments: FloatArray, noise: float, K: int) -> Shape:
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
    return Shape(directions, between, within, edge, correlation / np.outer(scale, scale))


def _without_noise(y: FloatArray, edge: float) -> FloatArray:
    """A spike that is seen y above the level, with noise whose eigenvalues reach ``edge``: (y + √(y² − edge²))/2."""
    y = np.maximum(y, 0.0)
    return np.where(y > edge, (y + np.sqrt(np.maximum(y**2 - edge**2, 0.0))) / 2, y / 2)


@dataclass(frozen=True)
class StartFromSketch(Step):
    """A sketch along the directions found, and the mixture that fits it; ``n_components`` 0 finds their number.

    The number is that of the least misfit in units of the noise plus log(features) for every parameter: the whole path
    of scores is kept.
    """

    n_components: int = 2

    def describe(self) -> str:
        number = f"{self.n_components} components" if self.n_components else "components, and their number,"
        return f"sketch of where rows lie: {number} start from it"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        centre, spread, shape = (state.notes[name] for name in ("centre", "spread", "shape"))
        counted = int(np.count_nonzero(shape.between)) or len(centre)
        shape = _open(shape, self.n_components or MOST)
        question = _question(model.schema_of(state), centre, spread, shape, self.n_components or MOST)
        answer = curator.measure(question, self.rho)
        noise = curator.noise_scale(question, self.rho)
        target = _target(question, answer, noise, curator.n_rows, shape, model, model.shape_of(state))
        if self.n_components:
            K, path = self.n_components, np.zeros(0)
            _, point = fitted(target, K)
        else:
            K, point, path = chosen(target, counted)
        logits, means, free = target.split(point, K)
        share = np.exp(logits - logits.max())
        share = np.maximum(share / share.sum(), 0.01)
        covariances = target.family.covariances(free, K)
        scale = spread**2 if covariances.ndim == 2 else np.outer(spread, spread)
        order = np.argsort(-share, kind="stable")
        start = Gaussians(
            share[order] / share.sum(), np.clip(centre + spread * means[order], -1, 1), covariances[order] * scale
        )
        return replace(
            state,
            theta=model.parameters(start, start, path, state.notes["seen"]),
            notes={**state.notes, "start": start},
        )


def _few(d: int, K: int) -> bool:
    """Whether there are too few columns to leave any direction out."""
    return d <= max(K - 1, 2) + 1


def _open(shape: Shape, K: int) -> Shape:
    """With few columns second moments do not say where centres lie (those of a regular figure leave no trace), so they
    may lie anywhere that the columns' unit variance has room for.
    """
    if not _few(len(shape.between), K):
        return shape
    within = min(max(shape.within, 0.05), ROOM)
    return shape._replace(between=np.maximum(shape.between, 1 - within), within=within)


def _question(schema: Any, centre: FloatArray, spread: FloatArray, shape: Shape, K: int) -> Sketch:
    """Lines along the directions between centres, frequencies up to what a component's spread damps away."""
    d = len(centre)
    if _few(d, K):
        weights, within, largest, q = np.ones(d), shape.within, shape.within + float(shape.between[0]), d
    else:
        weights, within, q = np.sqrt(shape.between), shape.within, min(d, max(K - 1, 2) + _EXTRA)
        weights = weights if weights.max() > 0 else np.ones(d)
        largest = within + float(shape.between[0])
    lines = normal_points(max(48, 16 * q), d) * weights
    lines = lines / np.linalg.norm(lines, axis=1, keepdims=True) @ shape.directions.T
    base = 2 * math.pi / (8 * math.sqrt(largest))
    f = np.arange(1, int(np.clip(math.ceil(_REACH / (base * math.sqrt(within))), 4, 12)) + 1)
    amplitudes = f * np.exp(-0.5 * within * (base * f) ** 2) + 0.02
    return Sketch(schema, centre, spread, shape.correlation, lines, base, amplitudes / amplitudes.sum())


def _target(
    question: Sketch, answer: FloatArray, noise: float, n: int, shape: Shape, model: Any, proportions: FloatArray
) -> Target:
    """What the released values are to be compared with, and in which units."""
    f = np.arange(1, len(question.amplitudes) + 1)
    frequencies = (f[:, None, None] * question.base * question.lines[None]).reshape(-1, len(question.centre))
    errors = np.sqrt(noise**2 / question.amplitudes + 0.5 / n)
    errors = np.repeat(errors, len(question.lines))
    within = shape.within
    level = math.log(within)
    family: SketchShape
    if model.kind == "spherical":
        proportions = proportions / question.spread**2
        family = Spherical(frequencies, level, proportions / math.exp(float(np.mean(np.log(proportions)))))
    elif model.kind == "diag":
        family = Diagonal(frequencies, level)
    else:
        family = Shared(frequencies, level, model.kind == "tied")
    precision = (shape.directions / (shape.between + 0.25 * shape.edge + 0.05)) @ shape.directions.T
    reach = 1.2 * np.sqrt(shape.between + within) * (shape.between > 0)
    places = normal_points(600, len(reach), 1000) * reach @ shape.directions.T
    return Target(question.read(answer).ravel(), frequencies, errors, family, precision, places, within)


def chosen(target: Target, q: int) -> tuple[int, FloatArray, FloatArray]:
    """The number of components with the least score, its point and the path of scores; ``q`` directions count.

    Two scores stand before those of 1, 2, …: one correlated Gaussian, and independent columns. If either is the
    least there is no sign of groups, and the number is 1.
    """
    points: list[FloatArray] = []
    path = [score_of_one(target, q), score_of_independent(target, q)]
    for K in range(1, MOST + 1):
        points.append(fitted(target, K, restarts=3, exchanges=3)[1])
        path.append(target.misfit(points[-1], K) + weight(target) * K * (q + 1.5))
        if int(np.argmin(path[2:])) + 2 < K:
            break
    best = max(int(np.argmin(path)) - 2, 0)
    return best + 1, points[best], np.array(path)


def normal_points(m: int, d: int, first: int = 1) -> FloatArray:
    """m points of a fixed sequence that fill space as draws of N(0, I_d) would: multiples of √primes, modulo 1."""
    primes: list[int] = []
    number = 2
    while len(primes) < d:
        if all(number % p for p in primes):
            primes.append(number)
        number += 1
    parts = np.outer(np.arange(first, first + m), np.sqrt(primes)) % 1.0
    return np.asarray(ndtri(np.clip(parts, 1e-9, 1 - 1e-9)))
