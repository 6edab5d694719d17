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
from dpem.models.linear_regression.clipping import (
    LENGTHS,
    Lengths,
    length_distribution,
    optimal_clip,
    optimal_radius,
)
from dpem.models.linear_regression.posterior import Posterior, eigenvalues_from, weighted_average
from dpem.models.linear_regression.rows import RowQuery, Rows, gram_bound
from dpem.models.linear_regression.state import CurrentFit, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import into_ball, packed, unpacked, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace


@dataclass(frozen=True)
class Information(RowQuery):
    """Σ (σ²/v)·aaᵀ over rows with a response, (σ/√v)·a scaled into a ball: the curvature of the score below
    (:func:`gram_bound`).
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


def with_information(fit: CurrentFit, released: FloatArray, noise: float, lacking: float) -> CurrentFit:
    """The fit after a release of the information, with noise of that standard deviation, clipped so that the squared
    lengths of rows lack ``lacking`` in the mean. That part is taken to be spread evenly over the directions, and the
    entries are as unsure of it as they would be if one direction had it all.
    """
    k = len(fit.prior)
    lacking *= fit.present / k
    released = released + lacking * np.diag(np.append(0.0, np.where(fit.unused, 0.0, 1.0)))
    variance, twice = np.full((k, k), noise**2 / 2 + lacking**2), 1 + np.eye(k)
    sizes, vectors = _long_directions(fit, released, noise)
    if (sizes > 1).any():
        turn = (vectors / np.sqrt(sizes)).T
        fit, released, variance = _rotated(fit, turn, sizes), turn @ released @ turn.T, turn**2 @ variance @ turn.T**2
    expected, beside = fit.information, fit.information_variance
    other, least = np.ones((k, k)), 0.0
    if not fit.information_released:  # the frame leads to expect it; second moments within a factor are known
        expected, least = fit.present * fit.expected_information, TUNING.not_normal**2 / k
        other[1:, 1:] = np.minimum(fit.frame.whiten**2 @ ~fit.from_shares @ fit.frame.whiten.T**2, 1.0)
    beyond = ((released - expected) ** 2 - beside) / twice - variance
    apart = max(least, float(np.mean(beyond[np.triu_indices(k)])))
    information, variances = weighted_average(released, variance * twice, expected, beside + apart * twice * other)
    used = np.outer(*2 * (np.append(True, ~fit.unused),))
    information = eigenvalues_from(np.where(used, information, 0.0), TUNING.least_information * fit.present)
    return replace(
        fit,
        information=np.where(used, information, 0.0),
        information_variance=np.where(used, variances, 0.0),
        information_released=True,
    )


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
    back, squares, first = np.linalg.inv(turn).T, turn**2, fit.first
    expected = turn @ fit.expected_information @ turn.T
    np.fill_diagonal(expected, np.where(sizes > 1, 1.0, np.diag(expected)))
    return replace(
        fit,
        frame=replace(fit.frame, whiten=turn[1:, 1:] @ fit.frame.whiten),
        first=first._replace(
            answer=turn @ first.answer,
            slope=turn @ first.slope @ turn.T,
            noise=turn @ first.noise @ turn.T,
            variances=squares @ first.variances @ squares.T,
        ),
        posterior=Posterior(back @ fit.posterior.mean, back @ fit.posterior.covariance @ back.T),
        prior=fit.prior * sizes,
        information=turn @ fit.information @ turn.T,
        information_variance=squares @ fit.information_variance @ squares.T,
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
        fit, schema, n, rho = state.current(), model.schema_of(state), curator.n_rows, self.rho
        k, radius = len(fit.prior), math.inf
        if math.isfinite(rho):
            rho = (1 - TUNING.lengths_share) * self.rho
            lengths = _released_lengths(curator, fit, fit.query(LengthHistogram, schema, edges=LENGTHS), self.rho - rho)
            clips = optimal_clip(n, self.along, lengths, curator.rows_per_person)
            fit = replace(fit, lengths=lengths, clips=clips)
            radius = optimal_radius(n, rho, lengths, curator.rows_per_person)
        query = fit.query(Information, schema, radius=radius)
        noise = curator.noise_scale(query, rho)
        released = unpacked(curator.measure(query, rho), k)
        if noise:
            return replace(
                state, current_fit=with_information(fit, released, noise, float(fit.lengths.lacking(radius)))
            )
        exact = eigenvalues_from(released, 0.0)
        return replace(state, current_fit=replace(fit, information=exact, information_variance=np.zeros((k, k))))


def _released_lengths(curator: Curator, fit: CurrentFit, query: LengthHistogram, rho: float) -> Lengths:
    """The law of the rows' lengths."""
    noise, p = curator.noise_scale(query, rho) / fit.present, max(int(np.sum(~fit.unused)), 1)
    shares, k = curator.measure(query, rho) / fit.present, len(fit.prior)
    return length_distribution(shares, noise, p, curator.n_rows, k, fit.frame.farthest / math.sqrt(k))
