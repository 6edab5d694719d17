"""What to expect of a linear regression before it is paid for: its own steps, rehearsed on invented rows.

Rows are typical ones: uncorrelated normal columns that explain a known part of the response. For each row its mirror
images are there too, (x, e) with (x, −e), (−x, e) and (−x, −e), so least squares and its clipped kin find the truth
exactly and what a rehearsal is off by is privacy's doing alone, however few rows are rehearsed on. What clipping adds
to the sampling error is known and added.

Let a be least squares on n rows and b the private fit. R² of new rows falls by (E|b − β|² − E|a − β|²)/var y, and since
no unbiased estimate has less variance than a, a − β and b − a are uncorrelated (Hausman 1978) and this is
E|b − a|²/var y: how far private predictions lie from those of least squares. That is what is reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaincinv, polygamma

from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.plan import Prediction
from dpem.fitting.rehearsal import SimulatedCurator, interpolated_prediction, normal
from dpem.fitting.step import run_steps
from dpem.models.linear_regression.clipping import Clips
from dpem.models.linear_regression.final_steps import CheckExplained
from dpem.models.linear_regression.tuning import TUNING
from dpem.query import FloatArray
from dpem.tables import ArraySource

#: The part of the response's variance that columns are supposed to explain, and how many spreads from the middle
#: bounds are supposed to lie.
ASSUMED, BOUNDS = TUNING.explained, 6.0
#: Rehearsals of one corner: so many coefficients and steps in all, and so many fits at least and at most.
WORK, FEWEST, MOST = 3200, 4, 40
#: Rows of each.
ROWS = 512
#: Where steps are sure the formula is off by this factor, give or take so much. That ends as the variance of a
#: coefficient grows: at this one the uncertainty has doubled. Below half of it nothing is rehearsed.
USUAL, UNCERTAINTY, SURE = 1.15, 0.08, 1e-4
#: Losses scatter more than a chi square, by this factor on the log scale: spreads and moments are chance, too.
WIDER = 1.15


class Typical(NamedTuple):
    """Rows in unit coordinates, their responses, and the slopes they come from."""

    x: FloatArray
    y: FloatArray
    slopes: FloatArray


def typical(p: int, rows: int, seed: int, explained: float = ASSUMED, idle: int = 0) -> Typical:
    """Mirrored rows: columns of mean 0 and variance 1, exactly uncorrelated with each other and with the errors; the
    last ``idle`` of p explain nothing.
    """
    count = max(rows // 4, 2 * (p + 2))
    made = normal(seed, (count, p + 1))
    x, e = np.split(np.linalg.qr(made)[0] * math.sqrt(count), [p], axis=1)
    x, e = np.vstack([x, x, -x, -x]), np.concatenate([e, -e, e, -e])[:, 0]
    slopes = np.append(np.full(p - idle, math.sqrt(explained / (p - idle))), np.zeros(idle))
    return Typical(x / BOUNDS, (x @ slopes + math.sqrt(1 - explained) * e) / BOUNDS, slopes)


def expected_loss(
    model: Any, sizes: Sizes, p: int, formula: Callable[[Sizes], float], clips: Clips, key: tuple[int, ...] = ()
) -> tuple[float, float, float]:
    """The part of the response's variance that is lost: its median, and the ends between which nine fits of ten lie.

    ``model`` is the regression on p unit coordinates, or on more of which p are kept; ``formula`` the loss, roughly. A
    loss is about a chi square of p + 1 degrees: rehearsals give its size, by the mean of logarithms, and that law its
    quantiles (a little further out: :data:`WIDER`).
    """
    explained = sizes.effect or ASSUMED
    width = model.schema.width
    rows = typical(width, ROWS, 0, explained, width - p)

    half = (p + 1) / 2

    def rehearse(there: Sizes, seed: int) -> FloatArray:
        """The mean of a loss."""
        roughly = formula(there)
        unsure = roughly / (p + 1) / SURE
        if unsure < 0.5:
            return np.array([USUAL * roughly])
        known = float(polygamma(1, half)) / (UNCERTAINTY * (1 + unsure**2)) ** 2  # worth so many rehearsals
        steps = tuple(step for step in model.steps(there) if not isinstance(step, CheckExplained))
        repeats = min(max(FEWEST, round(WORK / (p + 1) / len(steps))), MOST)
        losses = [_loss(model, steps, there, rows, seed + i) for i in range(repeats)]
        found = float(np.mean(np.log(losses))) + math.log(half) - float(digamma(half))
        return np.exp([(repeats * found + known * math.log(USUAL * roughly)) / (repeats + known)])

    size = float(interpolated_prediction(("linear", p, *key), sizes, rehearse, formula, power=2)[0]) / (p + 1)
    median, low, high = (2 * float(gammaincinv(half, part)) * size for part in (0.5, 0.05, 0.95))
    low, high = median * (low / median) ** WIDER, median * (high / median) ** WIDER
    clipped = (p + 1) * (1 - explained) * (clips.sampling - 1) / sizes.n
    return median + clipped, low + clipped, high + clipped


def _loss(model: Any, steps: Any, sizes: Sizes, rows: Typical, seed: int) -> float:
    curator = SimulatedCurator(ArraySource(rows.x, rows.y), sizes.n, seed, sizes.rows_per_person)
    state = run_steps(curator, model, steps, model.start())
    slopes = np.zeros(len(rows.slopes))
    slopes[state.theta.chosen] = state.theta.coef
    return float((BOUNDS * state.theta.intercept) ** 2 + np.sum((slopes - rows.slopes) ** 2))


def predicted_fit(lost: tuple[float, float, float], sizes: Sizes, failure: float = 0.0, more: str = "") -> PredictedFit:
    """The prediction of a loss of R²."""
    explained = sizes.effect or ASSUMED
    found = Prediction(
        quantity="R² lost to privacy",
        median=lost[0],
        low=lost[1],
        high=lost[2],
        failure=failure,
        meaning="The loss is the difference in R² on new rows from least squares on the same columns. Real columns "
        f"seldom follow the assumptions: most public tables lost up to {TUNING.real_tables * lost[0]:.2g}, and where "
        f"it was more the fit usually issued a warning. {more}".rstrip(),
        assumed=f"Assumed: bounds {BOUNDS:g} spreads from the middle, no missing values, normal errors, "
        f"and uncorrelated normal columns that explain {100 * explained:.0f} % of the variance.",
    )
    return PredictedFit(
        found, feasible=lost[0] < explained / 2, advice="more rows, a larger epsilon or fewer columns would help"
    )
