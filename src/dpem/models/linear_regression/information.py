"""The information of the rows: directions in which they are much longer than expected, and how releases of it combine.

The frame comes from second moments that are clipped near √k. Where few rows hold most of the leverage these see little
of it: on housing sales 5 % of the rows have four fifths of the information, and steps that divide the score by a number
eight times too small diverge once clips are wide. So the information is released twice. After the first release
directions along which it clearly exceeds 1 are scaled down, which shortens the long rows; the second release is then
clipped less. Everything here is post-processing of released numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpem.models.linear_regression.gaussian_posterior import Posterior, averaged, positive
from dpem.models.linear_regression.state import CurrentFit
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray


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
        fit, released, variance = _turned(fit, turn, sizes), turn @ released @ turn.T, turn**2 @ variance @ turn.T**2
    expected, beside = fit.information, fit.information_variance
    other, least = np.ones((k, k)), 0.0
    if not fit.information_released:  # the frame leads to expect it; second moments within a factor are known
        expected, least = fit.present * fit.expected_information, TUNING.not_normal**2 / k
        other[1:, 1:] = np.minimum(fit.frame.whiten**2 @ ~fit.known @ fit.frame.whiten.T**2, 1.0)
    beyond = ((released - expected) ** 2 - beside) / twice - variance
    apart = max(least, float(np.mean(beyond[np.triu_indices(k)])))
    information, variances = averaged(released, variance * twice, expected, beside + apart * twice * other)
    used = np.outer(*2 * (np.append(True, ~fit.unused),))
    information = positive(np.where(used, information, 0.0), TUNING.least_information * fit.present)
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


def _turned(fit: CurrentFit, turn: FloatArray, sizes: FloatArray) -> CurrentFit:
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
        stretch=fit.stretch * sizes[1:],
        information=turn @ fit.information @ turn.T,
        information_variance=squares @ fit.information_variance @ squares.T,
        expected_information=expected,
    )
