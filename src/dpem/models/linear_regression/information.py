"""The information of the rows: directions in which they are much longer than expected, and how releases of it combine.

The frame comes from second moments that are clipped near √k. Where few rows hold most of the leverage these see little
of it: on housing sales 5 % of the rows have four fifths of the information, and steps that divide the score by a number
eight times too small diverge once clips are wide. So the information is released twice. After the first release
directions along which it clearly exceeds 1 are scaled down, which shortens the long rows; the second release is then
clipped less. Everything here is post-processing of released numbers.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import ROW_EDGES, Lengths, optimal_clip, optimal_radius, row_lengths
from dpem.models.linear_regression.posterior import Gaussian, NoisyMatrix, eigenvalues_from
from dpem.models.linear_regression.rows import RowQuery, Rows
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import gram_bound, into_ball, packed, unpacked, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.schema import Schema


@dataclass(frozen=True)
class Information(RowQuery):
    """Σ (σ²/v)·aaᵀ over rows with a response, (σ/√v)·a scaled into a ball: the curvature of the score below
    (:func:`~dpem.queries.narrow.gram_bound`).
    """

    radius: float

    @property
    def label(self) -> str:
        return f"information of the rows, norm clipped at {self.radius:.4g}"

    @property
    def bound(self) -> Bound:
        return gram_bound(self.radius, len(self.theta))

    def added(self, xp: Namespace, rows: Rows) -> Array:
        factor = xp.where(rows.seen, self.sigma / xp.sqrt(rows.v), xp.zeros_like(rows.z))
        f = into_ball(xp, rows.a, self.radius, factor, rows.size)
        return packed(xp, over_rows(xp, weighted(f, rows.shares), f))


@dataclass(frozen=True)
class LengthHistogram(RowQuery):
    """How many rows that count have a length ‖a‖/√k in each bin, or, ``of_scores``, a score of the length |e|·‖a‖/√k, e
    a residual in standard deviations; ``edges`` are the bins' upper ends, the last bin has none.

    *Lemma.* ℓ∞ sensitivity 1, ℓ2 sensitivity √2. *Proof.* A row is counted in one bin or in none; replacing it takes
    one from a bin and adds one to another. Counts are whole numbers, so nothing is rounded. ∎
    """

    edges: tuple[float, ...]
    of_scores: bool = False

    @property
    def label(self) -> str:
        return "histogram of the scores' lengths" if self.of_scores else "histogram of the rows' leverage"

    @property
    def bound(self) -> Bound:
        return Bound(linf=1.0, l2=math.sqrt(2.0), size_linf=1.0, size_l2=1.0)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        size = rows.size / math.sqrt(len(self.theta))
        if self.of_scores:
            size = size * xp.abs(rows.r) * self.sigma / rows.v
        size = xp.where(rows.seen, zero_nonfinite(xp, size), xp.full_like(size, -1.0))
        above = [_count(xp, size >= edge, rows.shares) for edge in (0.0, *self.edges)]
        return xp.stack([a - b for a, b in itertools.pairwise(above)] + [above[-1]])


def _count(xp: Namespace, which: Array, shares: Array) -> Array:
    if isinstance(which, np.ndarray) and shares is None:
        return np.float64(np.count_nonzero(which))
    return xp.sum(weighted(xp.astype(which, xp.float64), shares))


def with_information(fit: CurrentFit, released: FloatArray, noise: float, shortfall: float) -> CurrentFit:
    """The fit after a release of the information, with noise of that standard deviation, clipped so that the mean
    squared length of rows falls short by ``shortfall``. That part is taken to be spread evenly over the directions; as
    an error of an entry it counts as if one direction had it all.
    """
    k, used = len(fit.prior), np.append(True, ~fit.unused)
    shortfall *= fit.present / k
    released = released + shortfall * np.diag(np.append(0.0, used[1:]))
    measured = NoisyMatrix(released, np.full((k, k), noise**2 / 2 + shortfall**2))
    sizes, vectors = _long_directions(fit, released, noise)
    if (sizes > 1).any():
        turn = (vectors / np.sqrt(sizes)).T
        fit, measured = _rotated(fit, turn, sizes), measured.congruent(turn)
    before, unknown, least = fit.information, np.ones((k, k)), 0.0
    if not fit.information_released:  # the frame leads to expect it; second moments within a factor are known
        before, least = before._replace(value=fit.present * fit.expected_information), TUNING.not_normal**2 / k
        unknown[1:, 1:] = np.minimum(fit.frame.whiten**2 @ ~fit.from_shares @ fit.frame.whiten.T**2, 1.0)
    twice = 1 + np.eye(k)  # errors of entries on the diagonal have twice the variance
    square = ((measured.value - before.value) ** 2 - before.variance) / twice - measured.variance
    between = max(least, float(np.mean(square[np.triu_indices(k)])))
    prior = NoisyMatrix(before.value, before.variance + between * twice * unknown)
    value, variance = NoisyMatrix(measured.value, measured.variance * twice).averaged(prior)
    both = np.outer(used, used)
    value = eigenvalues_from(np.where(both, value, 0.0), TUNING.least_information * fit.present)
    information = NoisyMatrix(np.where(both, value, 0.0), np.where(both, variance, 0.0))
    return replace(fit, information=information, information_released=True)


def _long_directions(fit: CurrentFit, information: FloatArray, noise: float) -> tuple[FloatArray, FloatArray]:
    """Orthonormal directions, the columns of a matrix, and the information along them: 1 unless it clearly exceeds 1.

    Noise of standard deviation s in each entry of a p×p matrix has eigenvalues up to 2s√p, and adds s²p/x to an
    eigenvalue x beyond them, which is taken off.
    """
    used = 1 + np.flatnonzero(~fit.unused)
    sizes, out = np.ones(len(information)), np.eye(len(information))
    values, vectors = np.linalg.eigh(information[np.ix_(used, used)] / fit.present)
    edge, beyond = noise / math.sqrt(2) / fit.present * math.sqrt(len(used)), values - 1
    long = beyond > max(TUNING.long_direction * edge, TUNING.least_long)
    if long.any():
        sizes[used] = np.where(long, 1 + (beyond + np.sqrt(np.maximum(beyond**2 - 4 * edge**2, 0.0))) / 2, 1.0)
        out[np.ix_(used, used)] = vectors
    return sizes, out


def _rotated(fit: CurrentFit, turn: FloatArray, sizes: FloatArray) -> CurrentFit:
    """The fit with rows turn·a in place of a; θ becomes turn⁻ᵀ·θ, and its prior stays what it was."""
    back = np.linalg.inv(turn).T
    expected = turn @ fit.expected_information @ turn.T
    np.fill_diagonal(expected, np.where(sizes > 1, 1.0, np.diag(expected)))
    return replace(
        fit,
        frame=replace(fit.frame, whiten=turn[1:, 1:] @ fit.frame.whiten),
        posterior=Gaussian(back @ fit.posterior.mean, back @ fit.posterior.covariance @ back.T),
        prior=fit.prior * sizes,
        information=fit.information.congruent(turn),
        expected_information=expected,
    )


@dataclass(frozen=True)
class FindInformation(Step):
    """How long rows are in the frame, which says where to clip them, and the curvature of the score, as the rows have
    it: it need not be that of normal rows. ``along`` is the price of the steps that follow.
    """

    along: float = math.inf
    passes = 2

    def describe(self) -> str:
        return "histogram of the rows' leverage, and their information, clipped where their leverage is large"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        fit, schema, rho = state.fit, model.schema_of(state), (1 - TUNING.lengths_share) * self.rho
        crowd = curator.n_rows, curator.rows_per_person
        lengths = _released_lengths(curator, fit, schema, self.rho - rho)
        clips = optimal_clip(crowd[0], self.along, lengths, crowd[1])
        radius = optimal_radius(crowd[0], rho, lengths, crowd[1])
        query = fit.query(Information, schema, radius=radius)
        released = unpacked(curator.measure(query, rho), len(fit.prior))
        fit = replace(fit, lengths=lengths, clips=clips)
        shortfall = float(lengths.square_excess(radius))
        return replace(state, current_fit=with_information(fit, released, curator.noise_scale(query, rho), shortfall))


def _released_lengths(curator: Curator, fit: CurrentFit, schema: Schema, rho: float) -> Lengths:
    """The law of the rows' lengths, after a histogram of them."""
    query, k = fit.query(LengthHistogram, schema, edges=ROW_EDGES), len(fit.prior)
    shares, noise = curator.measure(query, rho) / fit.present, curator.noise_scale(query, rho) / fit.present
    used, farthest = max(int(np.sum(~fit.unused)), 1), fit.frame.farthest / math.sqrt(k)
    return row_lengths(shares, noise, used, curator.n_rows, k, farthest)
