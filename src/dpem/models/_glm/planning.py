"""The steps of a fit at their prices, and what to expect of it before it is paid for.

A fit that is off by d loses ½·dᵀJd of log-likelihood on a new row, J the information of a row. The privacy noise of the
scores has a known covariance once the rows are supposed: normal uncorrelated columns that move the predictor by a known
standard deviation. So the expected loss is ½·tr(J·V), V from the same least squares that a fit makes, and the loss is
about a multiple of a chi square with as many degrees of freedom as there are coefficients.
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
from dpem.models._glm.diagnostics import Calibrate, intervals
from dpem.models._glm.posterior import PRIOR_INTERCEPT, PRIOR_SLOPES, Prior, ReleasedScore, best_clip, combined
from dpem.models._glm.queries import Score
from dpem.models._glm.selection import KeepBest, counts, missed
from dpem.models._glm.steps import FindInformation, FindMarginals, FindMoments, TakeStep
from dpem.models._glm.surrogate import Surrogate, whitening

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel

#: Parts of ρ: marginals, moments, and the scores together; and how the scores' prices grow.
MARGINALS, MOMENTS, SCORES, GROWTH = 0.10, 0.12, 0.73, (1.0, 1.6, 2.5, 4.0)
#: The information's price as a part of that of the scores.
INFORMATION = 0.07
#: Where columns are chosen: the response, the choice, marginals, moments, and the scores together.
WIDE = (0.02, 0.18, 0.10, 0.17, 0.48)
#: The part of ρ that calibration gets of the fit check's.
CALIBRATION_SHARE = 0.02
#: Rows are clipped at so many times their expected length in their second moments.
MOMENT_RADIUS = 1.0
NO_BETTER = "Its coefficients may be noise: more rows, a larger epsilon or fewer columns would help."
#: Spreads from the middle to the bounds, rows that are supposed, and the predictor's supposed standard deviation.
BOUNDS, ROWS, USUAL = 4.0, 512, 1.0


def steps(model: GeneralisedLinearModel, sizes: Sizes) -> tuple[Step, ...]:
    """The steps of a fit."""
    check = (CHECK_SHARE - CALIBRATION_SHARE, CALIBRATION_SHARE) if sizes.check else ()
    if model.sparsity is None:
        first, second, whole, *last = prices(sizes.rho, (MARGINALS, MOMENTS, SCORES, *check))
        early, late = model.score_steps(whole)
        fit: tuple[Step, ...] = (FindMarginals(first), moments_of(len(model.drawn), second), *early, *late)
    else:
        response, choice, first, second, whole, *last = prices(sizes.rho, (*WIDE, *check))
        fit = (
            FindMarginals(response, columns=False),
            *sparse_steps(model, model.sparsity, choice, first, second, whole),
        )
    if not last:
        return fit
    number = intervals(sizes.n, last[1], sizes.rows_per_person)
    return (*fit, Check(last[0], against=model.baseline, advice=NO_BETTER), Calibrate(last[1], number))


def sparse_steps(
    model: GeneralisedLinearModel, sparsity: int, choice: float, first: float, second: float, whole: float
) -> Iterator[Step]:
    """Rounds of choice, marginals and moments, scores between and after them, and which columns are kept."""
    rounds = counts(sparsity, model.schema.width - len(model.fixed))
    so_far = [len(model.fixed) + each for each in accumulate(rounds)]
    parts = zip(rounds, so_far, prices(choice, rounds), prices(first, rounds), prices(second, so_far), strict=True)
    early, late = model.score_steps(whole)
    for i, (columns, width, of_choice, of_marginals, of_moments) in enumerate(parts):
        yield ChooseColumns(of_choice, columns)
        yield FindMarginals(of_marginals, response=False)
        yield moments_of(width, of_moments)
        if i == 0:
            yield from early
    yield from late
    yield KeepBest(0.0, min(sparsity, sum(rounds)))


def moments_of(width: int, rho: float) -> FindMoments:
    """The second moments of so many columns at this price."""
    return FindMoments(rho, math.inf if math.isinf(rho) else MOMENT_RADIUS * math.sqrt(width + 1))


def score_steps(rho: float) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The first step along a score, and the others, at prices that grow."""
    first, second, third, last, information = prices(rho, (*GROWTH, INFORMATION * sum(GROWTH)))
    return (TakeStep(first),), (TakeStep(second), FindInformation(information), TakeStep(third), TakeStep(last, True))


def predicted_fit(model: GeneralisedLinearModel, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
    """The prediction of a fit; a fit with fewer rows than coefficients is refused."""
    others = np.delete(np.arange(model.schema.width), model.fixed)
    used = model
    if model.sparsity is not None:
        used = model.on(np.concatenate([model.fixed, others[: sum(counts(model.sparsity, len(others)))]]))
    k = len(used.free)
    if sizes.n <= k:
        raise ArgumentError("X", f"must have more rows than coefficients ({k}), got {sizes.n}.")
    if math.isinf(sizes.rho):
        return PredictedFit()
    fit = predicted_loss(used, sizes, steps)
    if model.sparsity is None or fit.prediction is None:
        return fit
    chance = missed(model.family, sizes, [step for step in steps if isinstance(step, ChooseColumns)], len(others))
    prediction = replace(fit.prediction, failure=chance)
    return fit._replace(prediction=prediction, feasible=fit.feasible and chance < 0.5)


def _unsure_moments(model: GeneralisedLinearModel, sizes: Sizes, steps: tuple[Step, ...]) -> float:
    """By how much the loss grows because the moments of the columns are noisy, too: hardly while their noise is small
    beside the eigenvalues of the correlations, then fast.
    """
    moments = [step for step in steps if isinstance(step, FindMoments)][-1]
    noise = math.sqrt(2) * moments.radius**2 * sizes.rows_per_person / (sizes.n * math.sqrt(2 * moments.rho))
    return 1 + (3 * noise * math.sqrt(model.schema.width)) ** 4


def predicted_loss(model: GeneralisedLinearModel, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
    """The log-likelihood per row that privacy is expected to cost."""
    k, effect = len(model.free), USUAL if sizes.effect is None else sizes.effect
    normal = generator(1).standard_normal((max(ROWS, 20 * k), model.schema.width))
    rows = np.column_stack([np.ones(len(normal)), np.clip(normal / BOUNDS, -1.0, 1.0)])
    coef = np.zeros(model.schema.width + 1)
    coef[model.free[1:]] = BOUNDS * effect / math.sqrt(max(k - 1, 1))
    surrogate, predictor = Surrogate(rows, 1.0), model.predictor(coef)
    if predictor.exposure >= 0:
        predictor = type(predictor)(coef)
    precision = np.diag(np.concatenate([[1 / PRIOR_INTERCEPT], np.full(k - 1, (k - 1) / PRIOR_SLOPES / BOUNDS**2)]))
    V = model.family.variance(np, predictor(np, rows[:, 1:]))
    turn, scores = whitening(rows, model.free, V), []
    for step in steps:
        if isinstance(step, TakeStep):
            unit = 2 * sizes.rows_per_person / sizes.n / math.sqrt(2 * step.rho)
            query = Score(model.schema, model.family, predictor, turn, 1.0)
            clip, _ = best_clip(query, surrogate, sizes.n, unit)
            scores.append(ReleasedScore(replace(query, clip=clip), np.zeros(k), clip * unit, 0.0))
    prior = Prior(np.zeros(k), precision)
    posterior = combined(tuple(scores), surrogate, model.free, prior, coef[model.free], sizes.n)
    X = rows[:, model.free]
    J = (X * V[:, None]).T @ X / len(X)
    size = 0.5 * float(np.sum(J * posterior.privacy)) / k * _unsure_moments(model, sizes, steps)
    median, low, high = (2 * float(gammaincinv(k / 2, part)) * size for part in (0.5, 0.05, 0.95))
    prediction = Prediction(
        quantity="log-likelihood per row lost to privacy",
        median=median,
        low=low,
        high=high,
        meaning="The mean log-likelihood of new rows is lower by this much than that of the non-private fit.",
        assumed=f"Assumed: bounds {BOUNDS:g} standard deviations from the mean, complete rows, and uncorrelated normal "
        f"columns that move the linear predictor, around 0, by a standard deviation of {effect:g}.",
    )
    worth = 0.5 * effect**2 * float(V.mean())
    advice = "more rows, a larger epsilon or fewer columns would help"
    return PredictedFit(prediction, feasible=median < worth / 2, advice=advice)
