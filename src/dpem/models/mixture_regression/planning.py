"""The prediction of a fit: whether the start finds the components, and how many rows privacy moves."""

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

#: The assumed distance between the slopes of two components, in residual spreads per spread of the columns.
APART = 2.5
EFFECT = Effect("distance between the slopes of two components, in residual spreads", APART, (1.5, 2.5, 4.0))
#: Simulated rows of which the prediction counts those that change component.
WATCHED = 8_000
#: The standard deviation of the log share of rows moved, over fits; the share after a failed start, over (1 − 1/K).
SCATTER, FAILED = 0.4, 0.6
#: The median share of rows that fits move over the share by the noise alone; the relative increase where the start has
#: a strength of 1; and the largest such factor (``python -m studies.mixture_regression plan`` with seeds 800 to 802).
REALISED, WEAK_START, LARGEST_FACTOR = 1.25, 0.4, 3.0
#: The strength is 1 for a direction at this multiple of half the largest eigenvalue of the noise, and for cells whose
#: squared signal is this multiple of the parameters. From 19 settings of 1,500 to 20,000 rows and 2 to 20 columns with
#: 24 to 32 fits each, as are the next three.
DIRECTION_NEEDED, CELLS_NEEDED = 1.4, 4.8
#: The strength at which half of the starts of two components fail, its increase for each further component, and the
#: exponent of the chance.
HALF_FAIL, HALF_FAIL_MORE, EXPONENT = 0.66, 0.07, 6
#: A plan is infeasible if the start fails more often than the first number, and warns beyond the second.
INFEASIBLE, RISKY = 1 / 3, 0.1

#: What plans say about real tables (``python -m studies.calibration.sweep lines``).
REAL = (
    "Few real tables hold components as clear as that: of public ones, two of them at epsilon=1, half had more than "
    "8 % of their rows in another one in a second private fit, and more than 12 % in another one than without privacy."
)


def assumed(K: int, p: int, apart: float = APART) -> Components:
    """K components of equal shares whose slopes are the corners of a simplex. With fewer than K − 1 columns these are
    projected, and the intercepts differ too.
    """
    corners = np.eye(K) - 1 / K
    q = min(K - 1, p - 1)
    slopes = np.linalg.svd(corners)[2][:q] @ corners
    slopes *= apart / max(float(np.linalg.norm(slopes[:, 0] - slopes[:, 1])), 1e-9)
    coefficients = np.zeros((K, p))
    coefficients[:, 1 : 1 + q] = slopes.T
    if q < K - 1:
        coefficients[:, 0] = apart * (np.arange(K) - (K - 1) / 2)
    return Components(np.full(K, 1 / K), coefficients, np.ones(K))


def error_after(
    model: Any, sizes: Sizes, steps: tuple[Step, ...], family: RegressionFamily, theta: Components
) -> FloatArray:
    """The covariance of the error by the noise of all scores, and by clipping, beyond the sampling error."""
    clipped, whole = (
        ExpectedScores.at(model.schema, family, theta, clipped=is_clipped) for is_clipped in (True, False)
    )
    sensitivity = sizes.rows_per_person * clipped.query.bound.l2 / sizes.n
    noise = combined_noise(
        sensitivity / math.sqrt(2 * step.rho) for step in steps if isinstance(step, ScoreStep | NewtonStep)
    )
    private = clipped.error(noise**2 * np.eye(family.count) + clipped.covariance / sizes.n)
    return np.asarray(private - whole.error(whole.covariance / sizes.n))


def moved_share(family: RegressionFamily, theta: Components, error: FloatArray, repeats: int = 80) -> FloatArray:
    """The shares of rows whose likeliest component changes, for random errors with this covariance."""
    v, t, _ = simulated_rows(theta, WATCHED // (2 * family.K))
    values, vectors = np.linalg.eigh(error)
    root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T

    def log_weights(components: Components) -> FloatArray:
        residuals = components.residuals(numpy_api, v, t)
        return np.log(np.maximum(components.responsibilities(numpy_api, residuals), 1e-300))

    before = log_weights(theta)
    rows, weight = boundary_sample(before)
    before, v, t = before[rows], v[rows], t[rows]
    steps = (family.within_reach(root @ z) for z in normal(0, (repeats, len(error))))
    return np.array([moved(before, log_weights(family.moved(theta, step)), weight) for step in steps])


def strength(model: Any, sizes: Sizes, steps: tuple[Step, ...], theta: Components) -> float:
    """The signal of the components in the queries of the start, over the signal that the start needs.

    With several queries the inverse strengths add: a noisy direction blurs the cells.
    """
    v, t, weight = simulated_rows(theta, 1000)
    r = t / math.sqrt(float(weight @ t**2))
    strengths = []
    for step in steps:
        if isinstance(step, FindDirections):
            strengths.append(_strength_of_directions(v, r, weight, theta, sizes, step))
        if isinstance(step, CountCells):
            strengths.append(_strength_of_cells(v, r, weight, theta, sizes, step))
    return 1 / math.fsum(1 / strength for strength in strengths)


def _strength_of_directions(
    v: FloatArray, r: FloatArray, weight: FloatArray, theta: Components, sizes: Sizes, step: FindDirections
) -> float:
    """The weakest of the K − 1 directions, over half the largest eigenvalue of the noise."""
    d = v.shape[1] - 1
    uneven = np.minimum(r**2, MOST_SQUARE) - USUAL_SQUARE
    M = (v * (weight * uneven)[:, None]).T @ v
    signal = np.linalg.svd(M[1:, 1:] - M[0, 0] * np.eye(d))[1]
    size = (MOST_SQUARE - USUAL_SQUARE) * step.radius(d) ** 2
    noise = sizes.rows_per_person * size / (sizes.n * math.sqrt(2 * step.rho))  # √2·size, over √2 off the diagonal
    return max(float(signal[min(len(theta.weights) - 1, d) - 1]), 1e-12) / (DIRECTION_NEEDED * math.sqrt(d) * noise)


def _strength_of_cells(
    v: FloatArray, r: FloatArray, weight: FloatArray, theta: Components, sizes: Sizes, step: CountCells
) -> float:
    """The squared distance of the cells from those of one regression, in units of their variance, per parameter."""
    q = min(step.directions, v.shape[1] - 1)
    x, y = CELLS[step.directions]
    inner = (*[edges(x, DIRECTION_EDGE)] * q, edges(y, RESIDUAL_EDGE))
    bins = [np.concatenate([[-np.inf], cuts, [np.inf]]) for cuts in inner]
    points = np.column_stack([v[:, 1 : 1 + q], r])
    shares = np.histogramdd(points, bins, weights=weight)[0]
    of_one = shares.sum(axis=-1, keepdims=True) * np.diff(ndtr(bins[-1]))
    variance = (sizes.rows_per_person / sizes.n) ** 2 / step.rho + of_one / sizes.n
    signal = float(np.sum((shares - of_one) ** 2 / variance))
    return math.sqrt(signal / (CELLS_NEEDED * (len(theta.weights) - 1) * (q + 3)))


def predict_fit(model: Any, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
    """Predict the share of rows that privacy puts into another component, and the chance that the start fails."""
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
    factor = REALISED * min(1 + WEAK_START / power**4, LARGEST_FACTOR)
    typical = min(factor * float(np.mean(shares)), most)
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
    needed_factor = half_fail(K) * (1 / RISKY - 1) ** (1 / EXPONENT) / power
    more = f"about {_rounded(sizes.n * needed_factor):,} rows or epsilon={sizes.epsilon * needed_factor:.2g} would do"
    if chance > INFEASIBLE:
        return PredictedFit(
            prediction, (), False, f"the start misses components in about {100 * chance:.0f} fits of 100; {more}"
        )
    if chance > RISKY:
        return PredictedFit(
            prediction, (f"The start misses components in about {100 * chance:.0f} fits of 100; {more}.",)
        )
    return PredictedFit(prediction)


def half_fail(K: int) -> float:
    """The strength at which half of the starts of K components fail."""
    return HALF_FAIL + HALF_FAIL_MORE * (K - 2)


def failing(power: float, K: int) -> float:
    """The chance that the start misses one of K components of this strength.

    >>> round(failing(0.66, 2), 2), round(failing(1.1, 3), 2), failing(math.inf, 2)
    (0.5, 0.08, 0.0)
    """
    return 1 / (1 + (power / half_fail(K)) ** EXPONENT) if math.isfinite(power) else 0.0


def _rounded(rows: float) -> int:
    """The number rounded up to two leading digits.

    >>> _rounded(12_345)
    13000
    """
    size = 10 ** max(0, math.floor(math.log10(max(rows, 1))) - 1)
    return int(math.ceil(rows / size) * size)
