"""What the choice of columns gets of the price, and how many of those that carry groups it will miss."""

from __future__ import annotations

import math
from dataclasses import replace

from dpem.fitting.model import PredictedFit, Sizes

#: Part of ρ for centres of all columns, and for the choice.
CENTRES, CHOICE = 0.05, 0.22
#: The most columns that are chosen from: pairs of more do not fit into memory.
MOST_COLUMNS = 2000


def after_choice(sizes: Sizes) -> Sizes:
    """The sizes that the fit on the chosen columns is planned with."""
    return sizes._replace(rho=sizes.rho * (1 - CENTRES - CHOICE))


def missed(sizes: Sizes, d: int, s: int, separation: float) -> float:
    """The share of columns that carry groups and are not chosen: two groups, apart alike in each of s columns.

    Two such columns have correlation r, so their sides' covariance is asin(r)/2π; noise is Gumbel's, and a column loses
    to the best of d − s others with the logistic probability of the difference.

    >>> missed(Sizes(10_000, 1.0, 1e-6, 0.024), 200, 5, 4.0) < 0.01
    True
    """
    if math.isinf(sizes.rho) or d <= s:
        return 0.0
    between = separation**2 / (4 * s)
    score = math.asin(between / (1 + between)) / (2 * math.pi)
    chance = 0.25 * math.sqrt(2 * math.log(d) / sizes.n)
    noise = sizes.rows_per_person * math.sqrt(s / (2 * CHOICE * sizes.rho)) / sizes.n
    return 1 / (1 + math.exp(min(max((score - chance) / noise - math.log(d - s), -700.0), 700.0)))


def with_choice(told: PredictedFit, share: float) -> PredictedFit:
    """The outlook of a fit whose columns were chosen, a share of them wrongly."""
    if told.prediction is None:
        return told
    p = told.prediction
    words = f" About {100 * share:.0f} % of the columns that carry groups will be missed." if share > 0.005 else ""
    failure = 1 - (1 - p.failure) * (1 - share)
    prediction = replace(p, failure=failure, meaning=f"{p.meaning}{words}")
    if share < 0.5:
        return told._replace(prediction=prediction)
    advice = (
        "most columns that carry groups will be missed; more rows, a larger epsilon or a larger sparsity would help"
    )
    return told._replace(prediction=prediction, feasible=False, advice=advice)
