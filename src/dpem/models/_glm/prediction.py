"""What to expect of a generalised linear model before it is paid for.

A fit that is off by d loses ½·dᵀJd of log-likelihood on a new row, J the information of a row. The privacy noise of the
scores has a known covariance once the rows are supposed: normal uncorrelated columns that move the predictor by a known
standard deviation. So the expected loss is ½·tr(J·V), V from the same least squares that a fit makes, and the loss is
about a multiple of a chi square with as many degrees of freedom as there are coefficients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.plan import Prediction
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.models._glm.combine import Prior, ReleasedScore, combined
from dpem.models._glm.steps import PRIOR_INTERCEPT, PRIOR_SLOPES, FindMoments, TakeStep, clips
from dpem.models._glm.surrogate import Surrogate

#: Spreads from the middle to the bounds, rows that are supposed, and the predictor's supposed standard deviation.
BOUNDS, ROWS, USUAL = 4.0, 512, 1.0


def _unsure_moments(model: Any, sizes: Sizes, steps: tuple[Step, ...]) -> float:
    """By how much the loss grows because the moments of the columns are noisy, too: hardly while their noise is small
    beside the eigenvalues of the correlations, then fast.
    """
    moments = [step for step in steps if isinstance(step, FindMoments)][-1]
    noise = math.sqrt(2) * moments.radius**2 * sizes.rows_per_person / (sizes.n * math.sqrt(2 * moments.rho))
    return 1 + (3 * noise * math.sqrt(model.schema.width)) ** 4


def predicted_loss(model: Any, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
    """The log-likelihood per row that privacy is expected to cost."""
    k, effect = len(model.free), USUAL if sizes.effect is None else sizes.effect
    made = generator(1).standard_normal((max(ROWS, 20 * k), model.schema.width))
    rows = np.column_stack([np.ones(len(made)), np.clip(made / BOUNDS, -1.0, 1.0)])
    coef = np.zeros(model.schema.width + 1)
    coef[model.free[1:]] = BOUNDS * effect / math.sqrt(max(k - 1, 1))
    surrogate, predictor = Surrogate(rows, 1.0), model.predictor(coef)
    if predictor.exposure >= 0:
        predictor = type(predictor)(coef)
    precision = np.diag(np.concatenate([[1 / PRIOR_INTERCEPT], np.full(k - 1, (k - 1) / PRIOR_SLOPES / BOUNDS**2)]))
    scores = []
    for step in steps:
        if isinstance(step, TakeStep):
            turn, leverage, clip = clips(
                model.free, model.family, surrogate, predictor, sizes.n, step.rho, sizes.rows_per_person
            )
            noise = 2 * clip * sizes.rows_per_person / sizes.n / math.sqrt(2 * step.rho)
            scores.append(ReleasedScore(model.family, predictor, turn, leverage, clip, np.zeros(k), noise))
    prior = Prior(np.zeros(k), precision)
    found = combined(tuple(scores), surrogate, model.free, prior, coef[model.free], sizes.n)
    X = rows[:, model.free]
    J = (X * model.family.variance(np, predictor(np, rows[:, 1:]))[:, None]).T @ X / len(X)
    size = 0.5 * float(np.sum(J * found.privacy)) / k * _unsure_moments(model, sizes, steps)
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
    worth = 0.5 * effect**2 * float(np.mean(model.family.variance(np, predictor(np, rows[:, 1:]))))
    advice = "more rows, a larger epsilon or fewer columns would help"
    return PredictedFit(prediction, feasible=median < worth / 2, advice=advice)
