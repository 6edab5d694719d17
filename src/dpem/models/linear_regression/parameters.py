"""The fitted parameters of a linear regression, and how the parts of their errors come together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.models.linear_regression.columns import Columns, factors
from dpem.models.linear_regression.moments import ROUNDING
from dpem.models.linear_regression.posterior import Posterior, noise_edge
from dpem.models.linear_regression.state import CurrentFit
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray
from dpem.tables.schema import Schema


@dataclass(frozen=True)
class Parameters:
    """A fitted regression in unit coordinates, the ``chosen`` ones of ``width``.

    ``sampling``, ``privacy`` and ``misfit`` are covariances of (intercept, slopes), ``sigma_error`` the same three
    parts of σ's standard error. Each with its standard error, as far as released: ``r_squared``, ``shape`` (skew and
    tails of the errors; at its end the tails that the scores' lengths lead to expect), ``linearity`` (curvature, and
    whether errors grow with the fitted value). ``crowded`` says which columns, and whether the response, have nearly
    all rows in one bin; ``collinear`` and ``rare`` which slopes the rows leave undecided because columns are nearly
    collinear, or the level is too rare.
    """

    intercept: float
    coef: FloatArray
    sigma: float
    mean: FloatArray
    covariance: FloatArray
    y_mean: float
    y_spread: float
    sampling: FloatArray
    privacy: FloatArray
    misfit: FloatArray
    sigma_error: tuple[float, ...]
    r_squared: tuple[float, ...]
    shape: tuple[float, ...]
    linearity: tuple[float, ...]
    seen: FloatArray
    low_end: FloatArray
    high_end: FloatArray
    y_ends: tuple[float, ...]
    crowded: tuple[bool, ...]
    collinear: tuple[bool, ...]
    rare: tuple[bool, ...]
    converged: bool
    chosen: NDArray[np.intp]
    width: int


class Effects(NamedTuple):
    """What the sandwich is about: ``of_slopes`` turns (intercept, slopes) of unit coordinates into effects, ``back``
    turns effects into (intercept, slopes), and ``largest`` is about the largest square of a row's influence on each
    effect over its mean.
    """

    of_slopes: FloatArray
    back: FloatArray
    largest: FloatArray


def effect_contrasts(fit: CurrentFit, schema: Schema) -> Effects:
    """The fitted value at the centre, slopes of numeric columns, and the effect of every level of a factor, also of the
    baseline, against the mean of all levels. Rows of one level hardly influence the others' effects, whereas
    all differences from a baseline share its rows.
    """
    p, centre = schema.width, fit.frame.centre
    rows, backs, largest = [np.append(1.0, centre)], [np.zeros((p, 1))], [1.0]
    done = np.zeros(p, dtype=bool)
    for own in factors(schema):
        used = own[~fit.unused[own]]
        done[own] = True
        if not len(used):
            continue
        share = fit.columns.share[used]
        mean, back = np.zeros(p + 1), np.zeros((p, len(used) + 1))
        mean[1 + used] = share
        rows += [np.eye(p + 1)[1 + j] - mean for j in used] + [-mean]
        back[used, np.arange(len(used))] = 1.0
        back[used, len(used)] = -1.0
        backs.append(back)
        largest += list(1 / np.maximum(np.append(share, 1 - share.sum()), 1e-4))
    for j in np.flatnonzero(~done & ~fit.unused):
        rows.append(np.eye(p + 1)[1 + j])
        backs.append(np.eye(p)[:, [j]])
        one = float(np.nan_to_num(fit.columns.share[j], nan=0.5))
        largest.append(1 / max(min(one, 1 - one), 1e-4))
    slopes = np.concatenate(backs, axis=1)
    intercept = np.eye(1, slopes.shape[1]) - centre @ slopes
    return Effects(np.array(rows), np.vstack([intercept, slopes]), np.array(largest))


def influence_directions(fit: CurrentFit, contrasts: Effects) -> FloatArray:
    """A row q_j for each effect: its influence, scaled so that q_j·a has the mean square 1."""
    A, _ = fit.frame.in_unit_coordinates()
    q = contrasts.of_slopes @ A @ np.linalg.pinv(fit.information / fit.present, rcond=1e-12, hermitian=True)
    length = np.sqrt(np.maximum(np.sum((q @ fit.information) * q, axis=1) / fit.present, 1e-300))
    return np.asarray(np.where(length[:, None] > 1e-100, q / length[:, None], 0.0))


def classical_covariance(fit: CurrentFit, n: int) -> FloatArray:
    """The sampling covariance of (intercept, slopes) if errors are normal with one variance."""
    clips, private = fit.clips, bool(fit.information_variance.any())
    rows = n * fit.present
    inside = fit.variance * clips.sampling / n
    prior = np.diag(1 / fit.prior) * (1.0 if private else ROUNDING)
    base = np.linalg.inv(fit.information / inside + prior) * rows / max(rows - len(fit.prior), 1.0)
    if private:
        base[0, 0] = max(base[0, 0], fit.variance / rows)
    A, _ = fit.frame.in_unit_coordinates()
    return np.asarray(A @ base @ A.T)


def sampling_covariance(fit: CurrentFit, n: int, schema: Schema) -> FloatArray:
    """The covariance of (intercept, slopes) that the same estimate has without noise: the sandwich, whose outer part is
    the information and whose inner part is ``fit.inflation`` times what errors of one variance give.
    """
    base = classical_covariance(fit, n)
    if fit.inflation is None:
        return base
    contrasts = effect_contrasts(fit, schema)
    own = contrasts.of_slopes @ base @ contrasts.of_slopes.T
    if fit.inflation.ndim == 2:  # the whole matrix, without privacy
        root = np.sqrt(np.maximum(np.diag(own), 0.0))
        own = fit.inflation * np.outer(root, root)
    else:
        root = np.sqrt(fit.inflation)
        own = own * np.outer(root, root)
    return np.asarray(contrasts.back @ own @ contrasts.back.T)


def unidentified_covariance(fit: CurrentFit) -> tuple[FloatArray, NDArray[np.bool_]]:
    """How far coefficients θ may be off where columns are nearly collinear, and which slopes that concerns.

    Along an eigenvector of the information, with the eigenvalue s, the prior draws the truth t to t − r·t, r being the
    posterior's variance over the prior's; t² is at most what the residuals hold, variance/s. Besides, s is noisy: each
    of m steps leaves the part 1 − s_low/s of the error, s_low being s less its noise. Where s clearly exceeds its noise
    the scores themselves say more: t² is about (mean² + variance)/(1 − r)², and the last step should have been at most
    s/(s − 2·noise) times as long. Directions with as much information as the frame leads to expect are left as they
    are. A slope is concerned if it is among the few large ones of such a direction, in standard deviations of its
    column.
    """
    k, used = len(fit.prior), 1 + np.flatnonzero(~fit.unused)
    out, named = np.zeros((k, k)), np.zeros(k - 1, dtype=bool)
    if not len(used):
        return out, named
    own, whole = np.ix_(used, used), max(float(fit.information[0, 0]), 0.01)
    values, vectors = np.linalg.eigh(fit.information[own] / whole)
    edge = noise_edge(fit.information_variance[own]) / whole
    most = fit.variance / np.maximum(values, max(TUNING.least_information, edge / 2))
    usual = np.maximum(np.sum(vectors * (fit.expected_information[own] @ vectors), axis=0), 1e-12)
    missing = np.clip(1 - values / usual, 0.0, 1.0)
    squares = vectors**2
    noise = np.sqrt(2 * np.sum(squares * (fit.information_variance[own] @ squares), axis=0)) / whole
    longer = values / np.maximum(values - 2 * noise, 1e-9)
    spread = np.sum(vectors * (fit.posterior.covariance[own] @ vectors), axis=0)
    prior = 1 / np.sum(squares / fit.prior[used, None], axis=0)
    measured = np.maximum(1 - spread / prior, 1e-3) / longer
    square = ((fit.posterior.mean[used] @ vectors) ** 2 + spread) / measured**2
    drawn = fit.posterior.covariance[:, used] / fit.prior[used] @ vectors * missing
    size = np.maximum(np.minimum(most, square) - prior, 0.0)
    out = np.asarray(drawn * size @ drawn.T)
    low = np.maximum(values - TUNING.information_noise * noise, TUNING.least_information)
    left = np.clip(1 - low / values, 0.0, 1.0) ** len(fit.scores) * np.sqrt(fit.variance / np.maximum(low, noise / 4))
    step = (fit.posterior.mean - fit.scores[-1].at)[used] @ vectors if fit.scores else np.full(len(used), np.inf)
    left = missing * np.minimum(left, (longer - 1) * np.sqrt(step**2 + spread))
    out[own] += (vectors * left**2) @ vectors.T
    slopes = (fit.frame.whiten.T[:, used - 1] @ vectors) * np.sqrt(np.diag(fit.frame.covariance))[:, None]
    weight = np.sum(drawn**2, axis=0) * size + left**2
    for i in np.flatnonzero(weight > TUNING.undecided * fit.variance):
        loading = np.abs(slopes[:, i])
        named |= loading > TUNING.loading * max(float(loading.max()), 1e-12)
    return out, named


def final_parameters(
    fit: CurrentFit,
    schema: Schema,
    chosen: NDArray[np.intp] | None,
    width: int,
    n: int,
    kept: NDArray[np.intp],
    intercept: bool,
) -> tuple[Parameters, CurrentFit]:
    """The parameters, and the fit with what is known to be 0: an intercept that there is not, slopes of columns
    that are not kept.
    """
    private = bool(fit.information_variance.any())
    A, b = fit.frame.in_unit_coordinates()
    values = A @ fit.posterior.mean + b
    sampling = sampling_covariance(fit, n, schema)
    undecided, collinear = unidentified_covariance(fit) if private else (np.zeros_like(A), np.zeros(schema.width, bool))
    privacy, misfit = (A @ part @ A.T for part in (fit.posterior.covariance, fit.misfit + undecided))
    if private:
        misfit = misfit + _excluded_covariance(fit)
    rows = np.delete(np.eye(schema.width + 1), np.append(0, 1 + kept), axis=0)
    goals = np.zeros(len(rows))
    if not intercept:
        row = schema.y_half * np.concatenate([[1.0], -schema.middle / schema.half])
        rows, goals = np.vstack([rows, row]), np.append(goals, -schema.y_middle)
    if len(goals):
        across = (classical_covariance(fit, n) + privacy + misfit) @ rows.T
        gain = np.linalg.solve(rows @ across + 1e-14 * np.eye(len(rows)), across.T).T
        held = np.eye(len(gain)) - gain @ rows
        values = values + gain @ (goals - rows @ values)
        sampling, privacy, misfit = (held @ part @ held.T for part in (sampling, privacy, misfit))
        back = np.linalg.pinv(A)
        fit = replace(fit, posterior=Posterior(back @ (values - b), back @ privacy @ back.T))
    own = np.append(0, 1 + kept)
    block = np.ix_(own, own)
    sigma = math.sqrt(fit.variance) * fit.frame.y_spread
    relative = sigma / (2 * fit.variance)
    y_mean = fit.frame.y_centre + fit.posterior.mean[0] * fit.frame.y_spread
    columns: Columns = fit.columns
    theta = Parameters(
        intercept=float(values[0]),
        coef=values[1 + kept],
        sigma=sigma,
        mean=fit.frame.centre[kept],
        covariance=fit.frame.unit_covariance()[np.ix_(kept, kept)],
        y_mean=float(y_mean),
        y_spread=fit.frame.y_spread,
        sampling=sampling[block],
        privacy=privacy[block],
        misfit=misfit[block],
        sigma_error=(
            sigma / math.sqrt(2 * n * fit.present),
            relative * fit.variance_error if private else 0.0,
            relative * fit.variance_misfit if private else 0.0,
        ),
        r_squared=(),
        shape=fit.shape,
        linearity=(),
        seen=columns.seen[kept],
        low_end=columns.low_end[kept],
        high_end=columns.high_end[kept],
        y_ends=(float(columns.low_end[-1]), float(columns.high_end[-1])),
        crowded=tuple((private & columns.crowded[np.append(kept, -1)]).tolist()),
        collinear=tuple(collinear[kept].tolist()),
        rare=tuple(fit.unused[kept].tolist()),
        converged=fit.converged,
        chosen=kept if chosen is None else chosen[kept],
        width=width,
    )
    return theta, fit


def _excluded_covariance(fit: CurrentFit) -> FloatArray:
    """The covariance of (intercept, slopes) for coordinates that are left out: a spread of the response for each spread
    of a column; the effect of a level that is too rare may be as far as the bounds of the response. Fitted values
    without the level, or with the column in the middle of its bounds, do not depend on it.
    """
    p = len(fit.unused)
    level = ~np.isnan(fit.columns.share[:p])
    size = np.where(level, (1 + abs(fit.frame.y_centre)) / 4, fit.frame.y_spread / fit.columns.spread[:p])
    size = np.where(fit.unused, size, 0.0)
    rows = np.vstack([np.where(level, 1.0, 0.0), np.eye(p)]) * size
    return np.asarray(rows @ rows.T)
