"""The information matrix of the rows: its releases, and how they combine.

The frame comes from second moments that are clipped near √k. Where few rows hold most of the leverage the moments miss
most of it: in housing sales 5 % of the rows have four fifths of the information, and steps with an information eight
times too small diverge once clips are wide. So the information is released twice. After the first release directions in
which it clearly exceeds 1 are scaled down; that shortens the long rows, and the second release clips less.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from dpem.models.linear_regression.model import LinearRegression


@dataclass(frozen=True)
class Information(RowQuery):
    """Σ (σ²/v)·aaᵀ over rows with a response, (σ/√v)·a scaled into a ball (:func:`~dpem.queries.narrow.gram_bound`):
    minus the derivative of the score by θ.
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
    """The histogram of the lengths ‖a‖/√k of rows, or, with ``of_scores``, of the lengths |e|·‖a‖/√k of their scores,
    with e the residual in standard deviations. ``edges`` are the bins' upper ends; the last bin has none.

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
    """The fit after a release of the information with noise of this standard deviation.

    Clipping has reduced the mean squared length of rows by ``shortfall``. Its expectation is spread evenly over the
    directions, and its error is as large as if one direction had all of it.
    """
    k, used = len(fit.prior), np.append(True, ~fit.unused)
    shortfall *= fit.present / k
    released = released + shortfall * np.diag(np.append(0.0, used[1:]))
    measured = NoisyMatrix(released, np.full((k, k), noise**2 / 2 + shortfall**2))
    sizes, vectors = _long_directions(fit, released, noise)
    if (sizes > 1).any():
        transform = (vectors / np.sqrt(sizes)).T
        fit, measured = _transformed(fit, transform, sizes), measured.congruent(transform)
    previous, unknown, least = fit.information, np.ones((k, k)), 0.0
    if not fit.information_released:  # expected from the frame; second moments within a factor are known
        previous, least = previous._replace(value=fit.present * fit.expected_information), TUNING.not_normal**2 / k
        unknown[1:, 1:] = np.minimum(fit.frame.whiten**2 @ ~fit.from_shares @ fit.frame.whiten.T**2, 1.0)
    twice = 1 + np.eye(k)  # errors of entries on the diagonal have twice the variance
    square = ((measured.value - previous.value) ** 2 - previous.variance) / twice - measured.variance
    between = max(least, float(np.mean(square[np.triu_indices(k)])))
    prior = NoisyMatrix(previous.value, previous.variance + between * twice * unknown)
    value, variance = NoisyMatrix(measured.value, measured.variance * twice).averaged(prior)
    block = np.outer(used, used)
    value = eigenvalues_from(np.where(block, value, 0.0), TUNING.least_information * fit.present)
    information = NoisyMatrix(np.where(block, value, 0.0), np.where(block, variance, 0.0))
    return replace(fit, information=information, information_released=True)


def _long_directions(fit: CurrentFit, information: FloatArray, noise: float) -> tuple[FloatArray, FloatArray]:
    """The information along orthonormal directions, set to 1 unless it clearly exceeds 1, and these directions as
    columns.

    Noise of standard deviation s in each entry of a p×p matrix has eigenvalues up to 2s√p, and adds s²p/x to a larger
    eigenvalue x, which is subtracted.
    """
    used = 1 + np.flatnonzero(~fit.unused)
    sizes, directions = np.ones(len(information)), np.eye(len(information))
    values, vectors = np.linalg.eigh(information[np.ix_(used, used)] / fit.present)
    edge, excess = noise / math.sqrt(2) / fit.present * math.sqrt(len(used)), values - 1  # edge: s√p
    long = excess > max(TUNING.long_direction * edge, TUNING.least_long)
    if long.any():
        sizes[used] = np.where(long, 1 + (excess + np.sqrt(np.maximum(excess**2 - 4 * edge**2, 0.0))) / 2, 1.0)
        directions[np.ix_(used, used)] = vectors
    return sizes, directions


def _transformed(fit: CurrentFit, transform: FloatArray, sizes: FloatArray) -> CurrentFit:
    """The fit with rows transform·a in place of a, so that θ becomes transform⁻ᵀ·θ."""
    inverse = np.linalg.inv(transform).T
    expected = transform @ fit.expected_information @ transform.T
    np.fill_diagonal(expected, np.where(sizes > 1, 1.0, np.diag(expected)))
    return replace(
        fit,
        frame=replace(fit.frame, whiten=transform[1:, 1:] @ fit.frame.whiten),
        posterior=Gaussian(inverse @ fit.posterior.mean, inverse @ fit.posterior.covariance @ inverse.T),
        prior=fit.prior * sizes,
        information=fit.information.congruent(transform),
        expected_information=expected,
    )


@dataclass(frozen=True)
class FindInformation(Step):
    """Release the histogram of the rows' lengths, which sets the clips, and the information matrix. ``score_price`` is
    the price of the score steps.
    """

    score_price: float = math.inf
    passes = 2

    def describe(self) -> str:
        return "histogram of the rows' leverage, and their information, clipped where their leverage is large"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        fit, schema, rho = state.fit, model.schema_of(state), (1 - TUNING.lengths_share) * self.rho
        n, rows_per_person = curator.n_rows, curator.rows_per_person
        lengths = _released_lengths(curator, fit, schema, self.rho - rho)
        clips = optimal_clip(n, self.score_price, lengths, rows_per_person)
        radius = optimal_radius(n, rho, lengths, rows_per_person)
        query = fit.query(Information, schema, radius=radius)
        released = unpacked(curator.measure(query, rho), len(fit.prior))
        fit = replace(fit, lengths=lengths, clips=clips)
        shortfall = float(lengths.square_excess(radius))
        return replace(state, current_fit=with_information(fit, released, curator.noise_scale(query, rho), shortfall))


def _released_lengths(curator: Curator, fit: CurrentFit, schema: Schema, rho: float) -> Lengths:
    """The distribution of the rows' lengths, from a histogram of them."""
    query, k = fit.query(LengthHistogram, schema, edges=ROW_EDGES), len(fit.prior)
    shares, noise = curator.measure(query, rho) / fit.present, curator.noise_scale(query, rho) / fit.present
    used, farthest = max(int(np.sum(~fit.unused)), 1), fit.frame.longest / math.sqrt(k)
    return row_lengths(shares, noise, used, curator.n_rows, k, farthest)
