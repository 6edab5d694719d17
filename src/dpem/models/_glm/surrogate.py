"""Surrogate rows: simulated rows with the released marginals, correlations and information of the table.

The expectation of a score at coefficients β_t depends on the true β and on the distribution of the covariates. A mean
over the surrogate rows stands for the latter. The rows are post-processing of released numbers, drawn with public
random numbers; their error matters in proportion to the distance between β_t and β, which shrinks with every step.

Numeric columns follow a Gaussian copula with the released marginals. Of the levels of a factor, the one with the
largest latent score is drawn. The correlations of the latent scores are moved until the clipped moments of the
surrogate rows agree with the released ones, up to their noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpem.fitting.rehearsal import generator
from dpem.models._glm.marginals import Marginals, normal_threshold, quantiles
from dpem.models._glm.queries import Information
from dpem.queries.histograms import BINS
from dpem.query import FloatArray
from dpem.tables.schema import Schema

IntArray = NDArray[np.intp]

#: Surrogate rows: at least, for each coordinate, and at most.
LEAST_ROWS, ROWS_PER_COORDINATE, MOST_ROWS = 4096, 100, 20_000
#: How often correlations, means and spreads are corrected.
ROUNDS = 5
#: The least variance of the latent correlations in the prior that shrinks them.
LEAST_SIGNAL = 1e-4
#: Columns with a larger released correlation are collinear: the surrogate rows cannot follow it. Pairs whose
#: correlation has more noise than the second number are not judged.
COLLINEAR, UNCLEAR = 0.93, 0.15
#: The assumed error of the mean and variance of numeric marginals, in spreads, and the added error in bin widths.
MARGINAL_ERROR, BIN_ERROR = 0.1, 0.3
#: The least information along a direction, as a fraction of the mean, where coordinates are whitened.
LEAST_INFORMATION = 1e-6
#: The clip of the information, in root mean squared lengths of a row.
RADIUS = 1.2
#: Corrections exceed the largest eigenvalue of noise by this number of standard deviations.
MARGIN = 2.0
#: One correction each: above this relative noise, the released information is not used.
RESOLVED = (0.8, 0.2, 0.2)
#: Directions are not corrected if the noise may exceed this fraction of their clipped information, as for rare levels.
DIRECTION_LIMIT = 0.4
#: Below this relative noise, columns whose information is no larger than its noise are called collinear.
CLEAR = 0.4
#: Surrogate rows with a smaller total variance, in whitened coordinates, are all alike: nothing can be corrected.
#: Squared uncertainties are at least that.
TINY = 1e-9
#: The bounds of correlations, of the shares of levels, and of the share of complete rows.
MOST_CORRELATION, LEAST_SHARE, MOST_SHARE, LEAST_COMPLETE = 0.98, 1e-4, 0.99, 0.02


@dataclass(frozen=True)
class Surrogate:
    """Surrogate rows (1, u) in unit coordinates.

    ``complete`` is the released share of complete rows; ``collinear`` says which columns are so nearly collinear with
    another that noise hides their difference.
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


def fit_surrogate(marginals: Marginals, schema: Schema, released: FloatArray, noise: float, radius: float) -> Surrogate:
    """Rows whose moments, clipped at ``radius``, agree with the released ones.

    The noise of a released moment has standard deviation ``noise`` on the diagonal and noise/√2 off it.
    """
    p = schema.width
    normal = _uncorrelated_scores(min(max(LEAST_ROWS, ROWS_PER_COORDINATE * p), MOST_ROWS), p)
    weight = max(float(released[0, 0]), 0.05, 2 * noise)
    moment_noise, target = noise / weight, released / weight
    factors = _factors(schema)
    fixed = np.eye(p, dtype=bool)  # latent correlations that stay 0 or 1: between the levels of a factor, with itself
    for levels in factors:
        fixed[np.ix_(levels, levels)] = True
    numeric_error = MARGINAL_ERROR + BIN_ERROR * (2 / BINS) / marginals.spread
    uncertainty = np.where(marginals.level > 0, 2 * marginals.noise / marginals.spread, numeric_error) ** 2
    gain = np.maximum(uncertainty, TINY) / np.maximum(uncertainty + moment_noise**2, TINY)
    latent, shift, scale, shrink = np.eye(p), np.zeros(p), np.ones(p), np.ones((p, p))
    for i in range(ROUNDS):
        u = _rows(marginals, factors, _correlate(normal, latent, moment_noise * math.sqrt(p)), shift, scale)
        z = (u - marginals.centre) / marginals.spread
        mean, variance = z.mean(axis=0), np.maximum(z.var(axis=0), 0.1)
        simulated = _clipped_moments(z, radius)
        gap, clipped_variance = target - simulated / simulated[0, 0], np.diag(simulated)[1:] / simulated[0, 0]
        shift = shift + gain * gap[0, 1:]
        variance_gap = gain * (np.diag(gap)[1:] - 2 * gap[0, 1:] * mean)
        scale = scale * np.exp(np.clip(0.5 * variance_gap / variance, -0.5, 0.5))
        covariance_gap = gap[1:, 1:] - np.outer(gap[0, 1:], mean) - np.outer(mean, gap[0, 1:])
        spreads = np.sqrt(np.outer(np.maximum(clipped_variance, 0.05), np.maximum(clipped_variance, 0.05)))
        correlation = latent + covariance_gap / spreads
        if i == 0 and noise > 0 and not fixed.all():
            correlation_noise = moment_noise**2 / 2 / spreads**2
            signal = max(LEAST_SIGNAL, float(np.mean((correlation**2 - correlation_noise)[~fixed])))
            shrink = signal / (signal + correlation_noise)
        latent = np.where(fixed, np.eye(p), np.clip(shrink * correlation, -MOST_CORRELATION, MOST_CORRELATION))
    share = weight / float(simulated[0, 0])
    nearly_none = max(float(released[0, 0]), 0.0) + 2 * noise < 0.05  # no surrogate row then resembles a row
    complete = 1.0 if share + 2 * moment_noise > 1 else max(share, LEAST_COMPLETE)
    collinear = _collinear(target, fixed | (moment_noise > UNCLEAR))
    return Surrogate(np.column_stack([np.ones(len(u)), u]), LEAST_COMPLETE if nearly_none else complete, collinear)


def _collinear(moments: FloatArray, fixed: NDArray[np.bool_]) -> tuple[bool, ...]:
    """Which columns have a released correlation with another column that is nearly 1 or −1."""
    covariance = moments[1:, 1:] - np.outer(moments[0, 1:], moments[0, 1:])
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.1))
    high = np.abs(covariance / np.outer(spread, spread)) > COLLINEAR
    return tuple(map(bool, (high & ~fixed).any(axis=1)))


def _uncorrelated_scores(m: int, p: int) -> FloatArray:
    """Normal scores of mean 0 that are exactly uncorrelated."""
    scores = generator(0).standard_normal((m, p))
    return np.asarray(np.linalg.qr(scores - scores.mean(axis=0))[0] * math.sqrt(m))


def _correlate(normal: FloatArray, latent: FloatArray, noise: float) -> FloatArray:
    """Scores with these correlations, whose eigenvalues are raised to the size of the noise."""
    values, vectors = np.linalg.eigh(latent)
    root = vectors * np.sqrt(np.maximum(values, min(max(1e-6, noise), 0.5)))
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
    """Unit coordinates of latent scores: quantiles of numeric columns, shifted and scaled, and the drawn levels."""
    u = quantiles(marginals, scores)
    u = np.clip(marginals.centre + (u - marginals.centre) * scale + shift * marginals.spread, -1.0, 1.0)
    rng = generator(3)
    for levels in factors:
        share = (marginals.centre[levels] + shift[levels] * marginals.spread[levels] + 1) / 2
        share = np.clip(share, LEAST_SHARE, MOST_SHARE)
        share *= min(1.0, 0.995 / share.sum())
        drawn = _draw_levels(scores[:, levels], share, rng)
        u[:, levels] = np.where(drawn[:, None] == np.arange(1, len(levels) + 1), 1.0, -1.0)
    return u


def _draw_levels(scores: FloatArray, share: FloatArray, rng: np.random.Generator) -> IntArray:
    """The level of each row, 0 being the baseline.

    It is the level with the largest sum of a Gumbel score and the logarithm of its share, so that each is drawn with
    the probability of its share (McFadden 1974). Normal scores become Gumbel scores by their quantiles.
    """
    if len(share) == 1:
        return np.asarray(scores[:, 0] > normal_threshold(float(share[0])), dtype=np.intp)
    baseline = rng.gumbel(size=len(scores)) + math.log(1 - share.sum())
    others = -np.log(-np.log(np.clip(ndtr(scores), 1e-15, 1 - 1e-15))) + np.log(share)
    return np.argmax(np.column_stack([baseline, others]), axis=1)


def whitening_of(rows: FloatArray, free: NDArray[np.intp], V: FloatArray) -> FloatArray:
    """The matrix W for which the rows W·(1, u) with variances V have information V̄·I; the first is the intercept."""
    X = rows[:, free]
    J = (X * V[:, None]).T @ X / len(X)
    root = np.linalg.cholesky(J + LEAST_INFORMATION * np.trace(J) / len(J) * np.eye(len(J)))
    whitening = np.zeros((len(free), rows.shape[1]))
    whitening[:, free] = np.linalg.inv(root) * math.sqrt(float(V.mean()))
    return whitening


def match_information(
    surrogate: Surrogate, free: NDArray[np.intp], query: Information, released: FloatArray, noise: float
) -> Surrogate:
    """The surrogate with its weighted means and covariances moved to the released ones where they clearly differ.

    Variances, and what is clipped, change with the rows, so the correction is repeated.
    """
    weight, _, spread = _weighted_moments(query, surrogate)
    if not np.all(np.isfinite(spread)) or not np.trace(spread) > TINY:
        return surrogate
    values, vectors = np.linalg.eigh(spread)
    largest_noise = noise / math.sqrt(2) / weight * (2 * math.sqrt(len(spread)) + MARGIN)
    basis = vectors[:, values * DIRECTION_LIMIT > largest_noise]
    if not basis.size:
        return surrogate
    matched = first = _match_once(surrogate, free, query, released, noise, RESOLVED[0], basis)
    for limit in RESOLVED[1:]:
        matched = replace(matched, collinear=surrogate.collinear)
        matched = _match_once(matched, free, query, released, noise, limit, basis)
    return replace(matched, collinear=first.collinear)


def _match_once(
    surrogate: Surrogate,
    free: NDArray[np.intp],
    query: Information,
    released: FloatArray,
    noise: float,
    limit: float,
    basis: FloatArray,
) -> Surrogate:
    """One correction, along the directions of ``basis``, if the relative noise is below ``limit``."""
    whitening = query.whitening
    weight, mean, spread = _weighted_moments(query, surrogate)
    new_weight, new_mean, new_spread = _mean_and_covariance(released)
    if new_weight < weight / 4 or not np.all(np.isfinite(spread)) or not np.trace(spread) > TINY:
        return surrogate
    p = len(mean)
    values, vectors = np.linalg.eigh(basis.T @ spread @ basis)
    scale, vectors = np.sqrt(np.maximum(values, 1e-3 * values[-1])), basis @ vectors
    inverse_root, root = vectors / scale @ vectors.T, vectors * scale @ vectors.T
    ratios, axes = np.linalg.eigh(np.eye(p) + inverse_root @ (new_spread - spread) @ inverse_root)
    mean_error = noise / math.sqrt(2) / max(new_weight, weight / 2)
    relative_noise = mean_error * p / float(np.trace(spread))
    # Eigenvalues of noise reach 2√p. Where columns seemed collinear, a small ratio is expected and needs less evidence.
    edge = relative_noise * ((1 if any(surrogate.collinear) else 2) * math.sqrt(p) + MARGIN)
    if edge > limit:
        return surrogate
    corrections = np.where(np.abs(ratios - 1) > edge, np.maximum(ratios, edge / 2), 1.0)
    shift = new_mean - mean
    size = float(np.linalg.norm(shift))
    clear_shift = size > mean_error * (math.sqrt(p) + MARGIN)
    shift = shift * (1 - p * (mean_error / size) ** 2) if clear_shift else 0 * shift
    collinear = surrogate.collinear
    if edge < CLEAR:  # otherwise information below its noise need not be small
        collinear = _columns_of(axes[:, (ratios < edge) & (corrections != 1)], whitening, free, surrogate)
    a = surrogate.rows @ whitening[1:].T - mean
    change = a @ inverse_root @ (axes * (np.sqrt(corrections) - 1)) @ axes.T @ root + shift
    rows = surrogate.rows.copy()
    rows[:, free[1:]] += change @ np.linalg.inv(whitening[1:, free[1:]]).T
    return replace(surrogate, rows=rows, collinear=collinear)


def _weighted_moments(query: Information, surrogate: Surrogate) -> tuple[float, FloatArray, FloatArray]:
    """The weight, weighted means and covariances of the surrogate, clipped as the query clips."""
    v = query.vectors(np, surrogate.rows[:, 1:])
    return _mean_and_covariance(v.T @ v / len(v))


def _mean_and_covariance(moments: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """The weight, weighted means and covariances of second moments whose first coordinate is the intercept."""
    weight = max(float(moments[0, 0]), 1e-9)
    mean = moments[0, 1:] / weight
    return weight, mean, moments[1:, 1:] / weight - np.outer(mean, mean)


def _columns_of(
    directions: FloatArray, whitening: FloatArray, free: NDArray[np.intp], surrogate: Surrogate
) -> tuple[bool, ...]:
    """Which columns make up these whitened directions: those with at least half of the largest loading."""
    columns = np.zeros(surrogate.rows.shape[1] - 1, dtype=bool)
    spread = surrogate.rows[:, free[1:]].std(axis=0)
    loading = np.abs(whitening[1:, free[1:]].T @ directions) * spread[:, None]
    columns[free[1:] - 1] = (loading > 0.5 * loading.max(axis=0, initial=0.0)).any(axis=1)
    return tuple(map(bool, columns))
