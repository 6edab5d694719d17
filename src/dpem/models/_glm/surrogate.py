"""Invented rows that resemble the table as far as it was released: the marginals of its columns and their correlations.

Scores at coefficients β_t have an expectation that depends on the true β and on the distribution of the covariates. The
invented rows stand for that distribution, so the expectation is a mean over them. They are post-processing of released
numbers, drawn with public random numbers. What they get wrong matters in proportion to the distance between β_t and β,
which shrinks from step to step.

Numeric columns follow a Gaussian copula with the released marginals; the levels of a factor exclude each other (the
largest of latent scores wins). The correlations of the latent scores are moved until the moments of the invented rows,
clipped as the released ones were, agree with them, less what is noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpem.fitting.rehearsal import generator
from dpem.models._glm.marginals import Marginals, quantiles, threshold
from dpem.models._glm.queries import Information
from dpem.queries.histograms import BINS
from dpem.query import FloatArray
from dpem.tables.schema import Schema

IntArray = NDArray[np.intp]

#: Invented rows: at least so many, so many for each coordinate, and at most.
LEAST_ROWS, ROWS_EACH, MOST_ROWS = 4096, 100, 20_000
#: How often correlations, means and spreads are corrected.
ROUNDS = 5
#: The variance of correlations before anything is known of them, at least.
LEAST_SIGNAL = 1e-4
#: Columns are called collinear if their released correlation exceeds this: the surrogate rows cannot follow it. Not if
#: the noise of correlations is larger than the second number.
COLLINEAR, UNCLEAR = 0.93, 0.15
#: How far means and variances of numeric marginals may be off besides noise, in spreads, and as a part of a bin.
OFF, OFF_BIN = 0.1, 0.3
#: The least information along a direction, as a part of the mean, where coordinates are whitened.
LEAST_INFORMATION = 1e-6
#: Rows are clipped at so many times their expected length.
RADIUS = 1.2
#: Directions are changed if they differ by more than the largest eigenvalue of noise, and so many standard deviations.
BEYOND = 2.0
#: The relative noise above which the release is not used, and the surrogate stays as it is: for each of the corrections
#: until rows have the released information.
RESOLVED = (0.8, 0.2, 0.2)
#: Directions whose clipped information is below this fraction of the mean, as those of rare levels, are not corrected:
#: the noise of the release would be magnified there.
LEAST_RESOLVED = 0.5
#: Below this relative noise, columns are called collinear if their information is no larger than its noise.
TELLING = 0.4
#: Surrogate rows with a smaller total variance, in whitened coordinates, are all alike: nothing can be corrected.
#: Squared uncertainties are at least that.
TINY = 1e-9


@dataclass(frozen=True)
class Surrogate:
    """Rows (1, u) in unit coordinates, the share of the table's rows that are complete, and which columns are so nearly
    collinear with another one that noise hides their difference.
    """

    rows: FloatArray
    complete: float
    collinear: tuple[bool, ...] = ()

    @property
    def mean(self) -> FloatArray:
        return np.asarray(self.rows[:, 1:].mean(axis=0))

    @property
    def covariance(self) -> FloatArray:
        return np.atleast_2d(np.cov(self.rows[:, 1:].T))


def fitted(marginals: Marginals, schema: Schema, released: FloatArray, noise: float, radius: float) -> Surrogate:
    """Rows whose clipped second moments agree with the released ones, which have noise of that standard deviation on
    the diagonal and 1/√2 of it beside.
    """
    p = schema.width
    normal = _uncorrelated(min(max(LEAST_ROWS, ROWS_EACH * p), MOST_ROWS), p)
    weight = max(float(released[0, 0]), 0.05, 2 * noise)
    blur, target = noise / weight, released / weight
    factors = _factors(schema)
    fixed = np.eye(p, dtype=bool)  # correlations that are not moved: with itself, between levels of one factor
    for levels in factors:
        fixed[np.ix_(levels, levels)] = True
    numeric = OFF + OFF_BIN * (2 / BINS) / marginals.spread
    uncertainty = np.where(marginals.level > 0, 2 * marginals.noise / marginals.spread, numeric) ** 2
    gain = np.maximum(uncertainty, TINY) / np.maximum(uncertainty + blur**2, TINY)
    latent, shift, scale, shrink = np.eye(p), np.zeros(p), np.ones(p), np.ones((p, p))
    for turn in range(ROUNDS):
        u = _rows(marginals, factors, _correlated(normal, latent, blur * math.sqrt(p)), shift, scale)
        z = (u - marginals.centre) / marginals.spread
        mean, variance = z.mean(axis=0), np.maximum(z.var(axis=0), 0.1)
        simulated = _clipped_moments(z, radius)
        off, size = target - simulated / simulated[0, 0], np.diag(simulated)[1:] / simulated[0, 0]
        shift = shift + gain * off[0, 1:]
        wider = gain * (np.diag(off)[1:] - 2 * off[0, 1:] * mean)
        scale = scale * np.exp(np.clip(0.5 * wider / variance, -0.5, 0.5))
        cross = off[1:, 1:] - np.outer(off[0, 1:], mean) - np.outer(mean, off[0, 1:])
        outer = np.sqrt(np.outer(np.maximum(size, 0.05), np.maximum(size, 0.05)))
        wanted = latent + cross / outer
        if turn == 0 and noise > 0 and not fixed.all():
            unsure = blur**2 / 2 / outer**2
            signal = max(LEAST_SIGNAL, float(np.mean((wanted**2 - unsure)[~fixed])))
            shrink = signal / (signal + unsure)
        latent = np.where(fixed, np.eye(p), np.clip(shrink * wanted, -0.98, 0.98))
    share = weight / float(simulated[0, 0])
    none = max(float(released[0, 0]), 0.0) + 2 * noise < 0.05  # the simulated rows are then like none that was seen
    complete = 0.02 if none else 1.0 if share + 2 * blur > 1 else max(share, 0.02)
    return Surrogate(np.column_stack([np.ones(len(u)), u]), complete, _collinear(target, fixed | (blur > UNCLEAR)))


def _collinear(moments: FloatArray, fixed: NDArray[np.bool_]) -> tuple[bool, ...]:
    """Which columns have a released correlation with another column that is nearly 1 or −1."""
    covariance = moments[1:, 1:] - np.outer(moments[0, 1:], moments[0, 1:])
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.1))
    high = np.abs(covariance / np.outer(spread, spread)) > COLLINEAR
    return tuple(map(bool, (high & ~fixed).any(axis=1)))


def _uncorrelated(m: int, p: int) -> FloatArray:
    """Normal scores of mean 0 that are exactly uncorrelated."""
    scores = generator(0).standard_normal((m, p))
    return np.asarray(np.linalg.qr(scores - scores.mean(axis=0))[0] * math.sqrt(m))


def _correlated(normal: FloatArray, latent: FloatArray, edge: float) -> FloatArray:
    """Scores with these correlations, their eigenvalues at least at the edge of the noise."""
    values, vectors = np.linalg.eigh(latent)
    root = vectors * np.sqrt(np.maximum(values, min(max(1e-6, edge), 0.5)))
    return np.asarray(normal @ root.T / np.sqrt(np.sum(root**2, axis=1)))


def _clipped_moments(z: FloatArray, radius: float) -> FloatArray:
    """The mean of vvᵀ as the query :class:`~dpem.models._glm.queries.Moments` clips it."""
    v = np.column_stack([np.ones(len(z)), z])
    v *= np.minimum(1.0, radius / np.linalg.norm(v, axis=1))[:, None]
    return np.asarray(v.T @ v / len(z))


def _factors(schema: Schema) -> list[IntArray]:
    """The coordinates of each factor."""
    levels = schema.level >= 0
    return [np.flatnonzero(levels & (schema.column == c)) for c in np.unique(schema.column[levels])]


def _rows(
    marginals: Marginals, factors: list[IntArray], scores: FloatArray, shift: FloatArray, scale: FloatArray
) -> FloatArray:
    """Coordinates of latent scores: numeric ones by quantiles, moved and stretched; of a factor's levels the winner."""
    u = quantiles(marginals, scores)
    u = np.clip(marginals.centre + (u - marginals.centre) * scale + shift * marginals.spread, -1.0, 1.0)
    rng = generator(3)
    for levels in factors:
        share = np.clip((marginals.centre[levels] + shift[levels] * marginals.spread[levels] + 1) / 2, 1e-4, 0.99)
        share *= min(1.0, 0.995 / share.sum())
        won = _winners(scores[:, levels], share, rng)
        u[:, levels] = np.where(won[:, None] == np.arange(1, len(levels) + 1), 1.0, -1.0)
    return u


def _winners(scores: FloatArray, share: FloatArray, rng: np.random.Generator) -> IntArray:
    """Which level wins in each row, 0 being the baseline: that with the largest sum of a Gumbel score and the logarithm
    of its share, so that each wins as often as it should (McFadden 1974). Normal scores are turned into Gumbel ones.
    """
    if len(share) == 1:
        return np.asarray(scores[:, 0] > threshold(float(share[0])), dtype=np.intp)
    baseline = rng.gumbel(size=len(scores)) + math.log(1 - share.sum())
    others = -np.log(-np.log(np.clip(ndtr(scores), 1e-15, 1 - 1e-15))) + np.log(share)
    return np.argmax(np.column_stack([baseline, others]), axis=1)


def whitening(rows: FloatArray, free: NDArray[np.intp], V: FloatArray) -> FloatArray:
    """Coordinates of (1, u) in which the information of surrogate rows, with variances V, is V̄·I; the first is the
    intercept.
    """
    X = rows[:, free]
    J = (X * V[:, None]).T @ X / len(X)
    root = np.linalg.cholesky(J + LEAST_INFORMATION * np.trace(J) / len(J) * np.eye(len(J)))
    turn = np.zeros((len(free), rows.shape[1]))
    turn[:, free] = np.linalg.inv(root) * math.sqrt(float(V.mean()))
    return turn


def corrected(
    surrogate: Surrogate, free: NDArray[np.intp], query: Information, released: FloatArray, noise: float
) -> Surrogate:
    """The surrogate with its weighted means and covariances moved to the released ones where they clearly differ."""
    v = query.vectors(np, surrogate.rows[:, 1:])
    spread = _parts(v.T @ v / len(v))[2]
    if not np.all(np.isfinite(spread)) or not np.trace(spread) > TINY:
        return surrogate
    values, vectors = np.linalg.eigh(spread)
    basis = vectors[:, values > LEAST_RESOLVED * np.mean(values)]
    moved = first = _moved(surrogate, free, query, released, noise, RESOLVED[0], basis)
    for limit in RESOLVED[1:]:
        moved = _moved(replace(moved, collinear=surrogate.collinear), free, query, released, noise, limit, basis)
    return replace(moved, collinear=first.collinear)


def _moved(
    surrogate: Surrogate,
    free: NDArray[np.intp],
    query: Information,
    released: FloatArray,
    noise: float,
    limit: float,
    basis: FloatArray,
) -> Surrogate:
    """One correction; the variances, and what is clipped, change with the rows."""
    v, turn = query.vectors(np, surrogate.rows[:, 1:]), query.turn
    (weight, mean, spread), (new_weight, new_mean, new_spread) = (_parts(each) for each in (v.T @ v / len(v), released))
    if new_weight < weight / 4 or not np.all(np.isfinite(spread)) or not np.trace(spread) > TINY:
        return surrogate
    p = len(mean)
    values, vectors = np.linalg.eigh(basis.T @ spread @ basis)
    scale, vectors = np.sqrt(np.maximum(values, 1e-3 * values[-1])), basis @ vectors
    root, back = vectors / scale @ vectors.T, vectors * scale @ vectors.T
    ratios, axes = np.linalg.eigh(np.eye(p) + root @ (new_spread - spread) @ root)
    mean_error = noise / math.sqrt(2) / max(new_weight, weight / 2)
    blur = mean_error * p / float(np.trace(spread))
    # the spectrum of noise reaches 2√p; where columns seemed collinear, a small ratio is expected and needs less proof
    edge = blur * ((1 if any(surrogate.collinear) else 2) * math.sqrt(p) + BEYOND)
    if edge > limit:
        return surrogate
    corrections = np.where(np.abs(ratios - 1) > edge, np.maximum(ratios, edge / 2), 1.0)
    shift = new_mean - mean
    size = float(np.linalg.norm(shift))
    shift = shift * (1 - p * (mean_error / size) ** 2) if size > mean_error * (math.sqrt(p) + BEYOND) else 0 * shift
    collinear = surrogate.collinear
    if edge < TELLING:  # otherwise much of the information that is no larger than its noise is not small
        collinear = _loading(axes[:, (ratios < edge) & (corrections != 1)], turn, free, surrogate)
    a = surrogate.rows @ turn[1:].T - mean
    moved = a @ root @ (axes * (np.sqrt(corrections) - 1)) @ axes.T @ back + shift
    rows = surrogate.rows.copy()
    rows[:, free[1:]] += moved @ np.linalg.inv(turn[1:, free[1:]]).T
    return replace(surrogate, rows=rows, collinear=collinear)


def _parts(second: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Of second moments with the intercept first: the weight, and weighted means and covariances."""
    weight = max(float(second[0, 0]), 1e-9)
    mean = second[0, 1:] / weight
    return weight, mean, second[1:, 1:] / weight - np.outer(mean, mean)


def _loading(
    directions: FloatArray, turn: FloatArray, free: NDArray[np.intp], surrogate: Surrogate
) -> tuple[bool, ...]:
    """Which columns make up these directions of whitened coordinates: those with at least half the largest part."""
    columns = np.zeros(surrogate.rows.shape[1] - 1, dtype=bool)
    part = np.abs(turn[1:, free[1:]].T @ directions) * surrogate.rows[:, free[1:]].std(axis=0)[:, None]
    columns[free[1:] - 1] = (part > 0.5 * part.max(axis=0, initial=0.0)).any(axis=1)
    return tuple(map(bool, columns))
