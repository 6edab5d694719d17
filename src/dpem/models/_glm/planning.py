"""The steps of a fit at their prices, and the prediction of its accuracy before the charge.

An error d of the coefficients loses ½·dᵀJd of log-likelihood on a new row, J the information of a row. The prediction
assumes uncorrelated normal columns that give the predictor a known standard deviation. The privacy noise of the scores
then has a known covariance V of the coefficients, from the least squares of a fit: the expected loss is ½·tr(J·V), and
the loss is about a multiple of a chi square with one degree of freedom for each coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincinv

from dpem._validation import ArgumentError
from dpem.fitting.check import CHECK_SHARE, Check
from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.plan import Prediction
from dpem.fitting.rehearsal import generator
from dpem.fitting.selection import ChooseColumns
from dpem.fitting.step import Step, prices
from dpem.models._glm.diagnostics import Calibrate, number_of_intervals
from dpem.models._glm.posterior import PRIOR_INTERCEPT, PRIOR_SLOPES, Prior, ReleasedScore, best_clip, score_posterior
from dpem.models._glm.queries import Predictor, Score
from dpem.models._glm.selection import USUAL_EFFECT, KeepBest, columns_per_round, predicted_miss
from dpem.models._glm.steps import FindInformation, FindMarginals, FindMoments, TakeStep
from dpem.models._glm.surrogate import Surrogate, whitening_of

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel

#: Shares of ρ: marginals, moments, and the scores with the information; the relative prices of the four scores.
MARGINALS, MOMENTS, SCORES, GROWTH = 0.10, 0.12, 0.73, (1.0, 1.6, 2.5, 4.0)
#: The price of the information, relative to that of the scores together.
INFORMATION = 0.07
#: Shares of ρ where columns are chosen: response, choice, marginals, moments, and the scores with the information.
SPARSE_SHARES = (0.02, 0.18, 0.10, 0.17, 0.48)
#: The share of ρ for calibration; it is taken from that of the fit check.
CALIBRATION_SHARE = 0.02
#: The clip of the second moments, in root mean square lengths of a row.
MOMENT_RADIUS = 1.0
NO_BETTER = "Its coefficients may be noise: more rows, a larger epsilon or fewer columns would help."
#: The prediction's columns: standard deviations from the mean to the bounds, and the number of simulated rows.
BOUNDS, ROWS = 4.0, 512


def steps(model: GeneralisedLinearModel, sizes: Sizes) -> tuple[Step, ...]:
    """The steps of a fit."""
    check = (CHECK_SHARE - CALIBRATION_SHARE, CALIBRATION_SHARE) if sizes.check else ()
    if model.sparsity is None:
        marginals, moments, scores, *check_prices = prices(sizes.rho, (MARGINALS, MOMENTS, SCORES, *check))
        first, others = model.score_steps(scores)
        moments_of_columns = moments_step(len(model.released), moments)
        fit: tuple[Step, ...] = (FindMarginals(marginals), moments_of_columns, *first, *others)
    else:
        response, choice, marginals, moments, scores, *check_prices = prices(sizes.rho, (*SPARSE_SHARES, *check))
        rounds = sparse_steps(model, model.sparsity, choice, marginals, moments, scores)
        fit = (FindMarginals(response, columns=False), *rounds)
    if not check_prices:
        return fit
    number = number_of_intervals(sizes.n, check_prices[1], sizes.rows_per_person)
    check_step = Check(check_prices[0], against=model.baseline, advice=NO_BETTER)
    return (*fit, check_step, Calibrate(check_prices[1], number))


def sparse_steps(
    model: GeneralisedLinearModel, sparsity: int, choice: float, marginals: float, moments: float, scores: float
) -> Iterator[Step]:
    """Rounds of choice, marginals and moments, with scores after the first and the last; then the columns to keep."""
    rounds = columns_per_round(sparsity, model.schema.width - len(model.fixed))
    widths = [len(model.fixed) + columns for columns in accumulate(rounds)]
    round_prices = zip(prices(choice, rounds), prices(marginals, rounds), prices(moments, widths), strict=True)
    first, others = model.score_steps(scores)
    for i, (choice_price, marginal_price, moment_price) in enumerate(round_prices):
        yield ChooseColumns(choice_price, rounds[i])
        yield FindMarginals(marginal_price, response=False)
        yield moments_step(widths[i], moment_price)
        if i == 0:
            yield from first
    yield from others
    yield KeepBest(0.0, min(sparsity, sum(rounds)))


def moments_step(width: int, rho: float) -> FindMoments:
    """The step that releases the second moments of ``width`` columns at this price."""
    return FindMoments(rho, math.inf if math.isinf(rho) else MOMENT_RADIUS * math.sqrt(width + 1))


def score_steps(rho: float) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The first score step, and the others with the information, at growing prices."""
    first, second, third, last, information = prices(rho, (*GROWTH, INFORMATION * sum(GROWTH)))
    return (TakeStep(first),), (TakeStep(second), FindInformation(information), TakeStep(third), TakeStep(last, True))


def predicted_fit(model: GeneralisedLinearModel, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
    """The prediction of a fit; a fit with fewer rows than coefficients is refused."""
    candidates = np.delete(np.arange(model.schema.width), model.fixed)
    submodel = model
    if model.sparsity is not None:
        chosen = candidates[: sum(columns_per_round(model.sparsity, len(candidates)))]
        submodel = model.restricted_to(np.concatenate([model.fixed, chosen]))
    k = len(submodel.free)
    if sizes.n <= k:
        raise ArgumentError("X", f"must have more rows than coefficients ({k}), got {sizes.n}.")
    if math.isinf(sizes.rho):
        return PredictedFit()
    fit = predicted_loss(submodel, sizes, steps)
    if model.sparsity is None or fit.prediction is None:
        return fit
    choices = [step for step in steps if isinstance(step, ChooseColumns)]
    miss = predicted_miss(model.family, sizes, choices, len(candidates))
    prediction = replace(fit.prediction, failure=miss)
    return fit._replace(prediction=prediction, feasible=fit.feasible and miss < 0.5)


def _moment_noise_factor(model: GeneralisedLinearModel, sizes: Sizes, steps: tuple[Step, ...]) -> float:
    """The factor by which the noise of the moments increases the loss.

    It is near 1 while the noise is small beside the eigenvalues of the correlations, then grows fast.
    """
    moments = [step for step in steps if isinstance(step, FindMoments)][-1]
    noise = math.sqrt(2) * moments.radius**2 * sizes.rows_per_person / (sizes.n * math.sqrt(2 * moments.rho))
    return 1 + (3 * noise * math.sqrt(model.schema.width)) ** 4


def predicted_loss(model: GeneralisedLinearModel, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
    """The log-likelihood per row that privacy is expected to cost."""
    k, effect = len(model.free), USUAL_EFFECT if sizes.effect is None else sizes.effect
    normal = generator(1).standard_normal((max(ROWS, 20 * k), model.schema.width))
    rows = np.column_stack([np.ones(len(normal)), np.clip(normal / BOUNDS, -1.0, 1.0)])
    coef = np.zeros(model.schema.width + 1)
    coef[model.free[1:]] = BOUNDS * effect / math.sqrt(max(k - 1, 1))
    surrogate, predictor = Surrogate(rows, 1.0), model.predictor(coef)
    if predictor.exposure >= 0:
        predictor = Predictor(coef)
    precision = np.diag(np.concatenate([[1 / PRIOR_INTERCEPT], np.full(k - 1, (k - 1) / PRIOR_SLOPES / BOUNDS**2)]))
    V = model.family.variance(np, predictor(np, rows[:, 1:]))
    whitening, scores = whitening_of(rows, model.free, V), []
    for step in steps:
        if isinstance(step, TakeStep):
            unit_noise = 2 * sizes.rows_per_person / sizes.n / math.sqrt(2 * step.rho)
            query = Score(model.schema, model.family, predictor, whitening, 1.0)
            clip, _ = best_clip(query, surrogate, sizes.n, unit_noise)
            scores.append(ReleasedScore(replace(query, clip=clip), np.zeros(k), clip * unit_noise, 0.0))
    prior = Prior(np.zeros(k), precision)
    posterior = score_posterior(tuple(scores), surrogate, model.free, prior, coef[model.free], sizes.n)
    X = rows[:, model.free]
    J = (X * V[:, None]).T @ X / len(X)
    loss_per_coefficient = 0.5 * float(np.sum(J * posterior.privacy)) / k * _moment_noise_factor(model, sizes, steps)
    median, low, high = (2 * float(gammaincinv(k / 2, q)) * loss_per_coefficient for q in (0.5, 0.05, 0.95))
    prediction = Prediction(
        quantity="log-likelihood per row lost to privacy",
        median=median,
        low=low,
        high=high,
        meaning="The mean log-likelihood of new rows is lower by this much than that of the non-private fit.",
        assumed=f"Assumed: bounds {BOUNDS:g} standard deviations from the mean, complete rows, and uncorrelated normal "
        f"columns that move the linear predictor, around 0, by a standard deviation of {effect:g}.",
    )
    explained = 0.5 * effect**2 * float(V.mean())  # the log-likelihood that the columns explain
    advice = "more rows, a larger epsilon or fewer columns would help"
    return PredictedFit(prediction, feasible=median < explained / 2, advice=advice)
