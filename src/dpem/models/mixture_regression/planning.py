"""What to expect of a mixture of regressions before it is paid for: will the start find it, and how far off."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.special import ndtr

from dpem.fitting.model import Effect, PredictedFit, Sizes
from dpem.fitting.plan import Prediction
from dpem.fitting.rehearsal import boundary_sample, moved, normal, with_failures
from dpem.fitting.step import Step
from dpem.fitting.surrogate import ScoreStep, combined_noise
from dpem.models.mixture_regression.cells import edges
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.family import RegressionFamily, simulated_rows
from dpem.models.mixture_regression.queries import MOST_SQUARE, USUAL_SQUARE
from dpem.models.mixture_regression.scores import ExpectedScores
from dpem.models.mixture_regression.start import (
    CELLS,
    DIRECTION_EDGE,
    RESIDUAL_EDGE,
    CountCells,
    FindDirections,
)
from dpem.models.mixture_regression.steps import NewtonStep
from dpem.query import FloatArray

#: How far apart the slopes of two components are assumed to lie, in residual spreads for one spread of the columns.
APART = 2.5
EFFECT = Effect("distance between the slopes of two components, in residual spreads", APART, (1.5, 2.5, 4.0))
#: Rows that are invented to see how many change component.
WATCHED = 8_000
#: How shares of rows scatter over fits, on the log scale, and the part of most that a failed start moves.
SCATTER, FAILED = 0.4, 0.6
#: The median of what fits move over the mean of what the steps' noise would, and by how much a start that is just clear
#: enough adds to it: both set against simulated fits of other seeds than those of the tables.
KEPT, START = 1.25, 0.4
#: What the start needs, set by trying (19 settings of 1,500 to 20,000 rows, 2 to 20 columns, 24 to 32 fits each):
#: directions of so many times half the noise's edge, a squared trace in the cells of so many times the parameters; the
#: strength at which every other start of two components fails, by how much it is more for every further one, and how
#: fast the chance changes.
EDGE, TRACE = 1.4, 4.8
EVEN, MORE, STEEP = 0.66, 0.07, 6
#: A start that fails more often than the first is called infeasible, more often than the second a risk.
HOPELESS, RISKY = 1 / 3, 0.1

#: What plans say of tables that hold no such components (``python -m studies.calibration.sweep lines``).
REAL = (
    "Few real tables hold components as clear as that: of public ones, two of them at epsilon=1, half had more than "
    "8 % of their rows in another one in a second private fit, and more than 12 % in another one than without privacy."
)


def assumed(K: int, p: int, apart: float = APART) -> Components:
    """K equal components at equal distances, as far as there are columns for it."""
    corners = np.eye(K) - 1 / K
    q = min(K - 1, p - 1)
    place = np.linalg.svd(corners)[2][:q] @ corners
    place *= apart / max(float(np.linalg.norm(place[:, 0] - place[:, 1])), 1e-9)
    components = np.zeros((K, p))
    components[:, 1 : 1 + q] = place.T
    if q < K - 1:
        components[:, 0] = apart * (np.arange(K) - (K - 1) / 2)
    return Components(np.full(K, 1 / K), components, np.ones(K))


def error_after(
    model: Any, sizes: Sizes, steps: tuple[Step, ...], family: RegressionFamily, theta: Components
) -> FloatArray:
    """The covariance of the error that the noise of all scores leaves, and of what clipping adds to the sampling
    error.
    """
    clipped, whole = (
        ExpectedScores.at(model.schema, family, theta, clipped=is_clipped) for is_clipped in (True, False)
    )
    change = sizes.rows_per_person * clipped.query.bound.l2 / sizes.n
    noise = combined_noise(
        change / math.sqrt(2 * step.rho) for step in steps if isinstance(step, ScoreStep | NewtonStep)
    )
    private = clipped.error(noise**2 * np.eye(family.count) + clipped.covariance / sizes.n)
    return np.asarray(private - whole.error(whole.covariance / sizes.n))


def moved_share(family: RegressionFamily, theta: Components, error: FloatArray, repeats: int = 80) -> FloatArray:
    """Share of rows whose likeliest component changes when the components are off by errors of that covariance."""
    v, t, _ = simulated_rows(theta, WATCHED // (2 * family.K))
    values, vectors = np.linalg.eigh(error)
    root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T

    def log_weights(own: Components) -> FloatArray:
        return np.log(np.maximum(own.responsibilities(numpy_api, own.residuals(numpy_api, v, t)), 1e-300))

    before = log_weights(theta)
    rows, weight = boundary_sample(before)
    before, v, t = before[rows], v[rows], t[rows]
    steps = (family.within_reach(root @ z) for z in normal(0, (repeats, len(error))))
    return np.array([moved(before, log_weights(family.moved(theta, step)), weight) for step in steps])


def strength(model: Any, sizes: Sizes, steps: tuple[Step, ...], theta: Components) -> float:
    """How clearly such components stand out of the noise in what the start is made of; 1 is about the least.

    That is their trace in the cells, over what chance leaves there, as far as the directions blur it: the weakest of
    the K − 1 directions along which they spread residuals, over the edge of the noise. Inverses add.
    """
    v, t, weight = simulated_rows(theta, 1000)
    r = t / math.sqrt(float(weight @ t**2))
    parts = []
    for step in steps:
        if isinstance(step, FindDirections) and math.isfinite(step.rho):
            parts.append(_of_directions(v, r, weight, theta, sizes, step))
        if isinstance(step, CountCells) and math.isfinite(step.rho):
            parts.append(_of_cells(v, r, weight, theta, sizes, step))
    return 1 / math.fsum(1 / part for part in parts) if parts else math.inf


def _of_directions(
    v: FloatArray, r: FloatArray, weight: FloatArray, theta: Components, sizes: Sizes, step: FindDirections
) -> float:
    d = v.shape[1] - 1
    uneven = np.minimum(r**2, MOST_SQUARE) - USUAL_SQUARE
    M = (v * (weight * uneven)[:, None]).T @ v
    signal = np.linalg.svd(M[1:, 1:] - M[0, 0] * np.eye(d))[1]
    size = (MOST_SQUARE - USUAL_SQUARE) * step.radius(d) ** 2
    noise = sizes.rows_per_person * size / (sizes.n * math.sqrt(2 * step.rho))  # √2·size, over √2 off the diagonal
    return max(float(signal[min(len(theta.weights) - 1, d) - 1]), 1e-12) / (EDGE * math.sqrt(d) * noise)


def _of_cells(
    v: FloatArray, r: FloatArray, weight: FloatArray, theta: Components, sizes: Sizes, step: CountCells
) -> float:
    q = min(step.directions, v.shape[1] - 1)
    x, y = CELLS[step.directions]
    inner = (*[edges(x, DIRECTION_EDGE)] * q, edges(y, RESIDUAL_EDGE))
    bins = [np.concatenate([[-np.inf], own, [np.inf]]) for own in inner]
    points = np.column_stack([v[:, 1 : 1 + q], r])
    seen = np.histogramdd(points, bins, weights=weight)[0]
    plain = seen.sum(axis=-1, keepdims=True) * np.diff(ndtr(bins[-1]))
    noise2 = (sizes.rows_per_person / sizes.n) ** 2 / step.rho + plain / sizes.n
    gain = float(np.sum((seen - plain) ** 2 / noise2))
    return math.sqrt(gain / (TRACE * (len(theta.weights) - 1) * (q + 3)))


def predict_fit(model: Any, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
    """The plan's words: share of rows in another component than without privacy, and whether the start can be found."""
    K, d = model.n_components, model.schema.width
    needed = K * (d + 3)
    if sizes.n < needed:
        raise ValueError(
            f"{K} components of {d} columns have {needed} parameters; n must be at least that, got {sizes.n}."
        )
    if math.isinf(sizes.rho):
        return PredictedFit()
    apart = sizes.effect or APART
    theta = assumed(K, d + 1, apart)
    power = strength(model, sizes, steps, theta)
    frame = Frame(np.zeros(d), np.eye(d), 0.0, 1.0)
    family = RegressionFamily(K, frame, np.eye(d + 1), np.zeros(d + 1))
    shares = moved_share(family, theta, error_after(model, sizes, steps, family, theta))
    most = FAILED * (1 - 1 / K)
    typical = min(KEPT * float(np.mean(shares)) * min(1 + START / power**4, 3.0), most)
    chance = failing(power, K)
    median, low, high = with_failures(typical, SCATTER, chance, most)
    prediction = Prediction(
        "share of rows put into another component than without privacy",
        median,
        low,
        high,
        failure=chance,
        meaning=f"Of 1,000 rows, privacy puts about {1000 * median:.0f} into another component. {REAL}",
        assumed=f"Assumed: {K} equal components whose slopes lie {apart:g} residual spreads apart.",
    )
    factor = even(K) * (1 / RISKY - 1) ** (1 / STEEP) / power
    more = f"about {_rounded(sizes.n * factor):,} rows or epsilon={sizes.epsilon * factor:.2g} would do"
    if chance > HOPELESS:
        return PredictedFit(
            prediction, (), False, f"the start misses components in about {100 * chance:.0f} fits of 100; {more}"
        )
    if chance > RISKY:
        return PredictedFit(
            prediction, (f"The start misses components in about {100 * chance:.0f} fits of 100; {more}.",)
        )
    return PredictedFit(prediction)


def even(K: int) -> float:
    """The strength at which every other start of K components fails."""
    return EVEN + MORE * (K - 2)


def failing(power: float, K: int) -> float:
    """Chance that the start misses some of K components of that strength.

    >>> round(failing(0.66, 2), 2), round(failing(1.1, 3), 2), failing(math.inf, 2)
    (0.5, 0.08, 0.0)
    """
    return 1 / (1 + (power / even(K)) ** STEEP) if math.isfinite(power) else 0.0


def _rounded(rows: float) -> int:
    """Two leading digits, upwards.

    >>> _rounded(12_345)
    13000
    """
    size = 10 ** max(0, math.floor(math.log10(max(rows, 1))) - 1)
    return int(math.ceil(rows / size) * size)
