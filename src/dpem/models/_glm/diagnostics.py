"""The diagnostics of a fit, from released numbers, and its calibration: observed and predicted mean responses."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.diagnostics import Diagnostic, column_diagnostics
from dpem.fitting.step import Step
from dpem.fitting.summary import LEVEL, Calibration, Extra
from dpem.models._glm.families import STEP, Family
from dpem.models._glm.queries import RowQuery
from dpem.models._glm.steps import GlmState
from dpem.privacy import Curator
from dpem.queries.narrow import rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.bounds import list_columns, list_names

if TYPE_CHECKING:
    from dpem.models._glm.model import GeneralisedLinearModel, Parameters

#: A coefficient is not determined by the rows if a larger fraction than this comes from the prior.
FROM_PRIOR = 0.5
#: The largest relative error that privacy noise may give the estimated events of a level, and the events that its rows
#: would have at the mean response: above, its interval may be too short (nycflights13, cancelled flights by carrier).
EVENT_ERROR, MEAN_EVENT_ERROR = 0.25, 0.5
#: Coordinates with at least this part of the variance that values at both bounds would have are treated as levels.
TWO_VALUED = 0.8
#: Two classes are called separated if the columns explain more than this share of the response's variance.
SEPARATED = 0.8
#: A share of complete rows below the first number is a note, below the second a warning, below the third the only
#: diagnostic.
MANY_INCOMPLETE, MOST_INCOMPLETE, NEARLY_ALL_INCOMPLETE = 0.95, 0.8, 0.05
#: The least and largest number of intervals, and the largest privacy noise of an interval's mean residual, relative to
#: the residual's limit.
FEWEST, MOST, NOISE = 4, 10, 0.02
#: An interval is miscalibrated if its difference exceeds this number of standard errors and this fraction of the
#: response's standard deviation: one of ten calibrated intervals exceeds 3.5 standard errors in 1 of 200 fits.
STANDARD_ERRORS, MATERIAL = 3.5, 0.1
#: Columns of the calibration table: share of rows, predicted mean, observed mean, standard error of the observed mean,
#: and standard error of the difference, which includes the privacy noise of the coefficients.
FIELDS = 5


def diagnose(
    theta: Parameters, model: GeneralisedLinearModel, epsilon: float, mostly_zero: Collection[str] = ()
) -> list[Diagnostic]:
    """The diagnostics of a fit; ``mostly_zero`` columns, such as products with levels, may lie at a bound."""
    names, free, private = model.schema.names, model.free[1:] - 1, math.isfinite(epsilon)
    indicator = (model.schema.middle == 0.5) & (model.schema.half == 0.5)  # of 0 and 1, mostly one of them
    indicator |= np.isin(names, list(mostly_zero))
    diagnostics: list[Diagnostic] = []
    add = diagnostics.append
    rare = [names[j] for j in free if theta.rare[j]]
    ends, crowded = (
        [names[j] for j in free if flags[j] and not indicator[j]] for flags in (theta.at_bound, theta.crowded)
    )
    if theta.complete < MANY_INCOMPLETE:
        many_missing = theta.complete < MOST_INCOMPLETE
        more = ", or more if columns have long tails" if ends or crowded else ""  # the moments are clipped in norm
        message = f"About {100 * theta.complete:.0f} % of the rows are complete{more}. The others contribute nothing."
        undeclared = f"A level that was not declared{model.family.also_missing} counts as missing"
        assumption = "Coefficients are right if whether a value is missing does not depend on the response."
        advice = f"{undeclared}: check the spelling. {assumption}" if many_missing else assumption
        add(Diagnostic("incomplete-rows", "warning" if many_missing else "note", message, advice))
        if theta.complete < NEARLY_ALL_INCOMPLETE:
            return diagnostics
    diagnostics += column_diagnostics(rare, ends, crowded if private else [], "1/16")
    collinear = [names[j] for j in free if theta.collinear[j]]
    if len(collinear) > 1 and private:
        message = (
            f"The {list_columns(collinear)} are nearly collinear: noise hides their separate effects, and the "
            "intervals of their coefficients may be too short."
        )
        advice = "Leave one of them out, or write a formula if one is computed from another, as in x + I(x**2)."
        add(Diagnostic("collinear", "warning", message, advice, tuple(collinear)))
    prior = zip(free, theta.prior_part[1:], strict=True)
    weak = [names[j] for j, part in prior if part > FROM_PRIOR and not theta.rare[j]]
    if weak:
        message = (
            f"The rows hardly determine the coefficients of {list_columns(weak)} at this epsilon: more than half of "
            "each comes from the prior, which pulls it towards 0. If an effect is large, its interval is too short, "
            "and other coefficients include part of it."
        )
        advice = "More rows, a larger epsilon or fewer columns would help."
        add(Diagnostic("few-rows", "warning", message, advice, tuple(weak)))
    event_flags = zip(("intercept", *(names[j] for j in free)), few_events(theta, model), strict=True)
    already_named = {*rare, *weak}
    if hidden := [name for name, few in event_flags if few and private and name not in already_named]:
        message = f"Few events determine the coefficients of {list_names(hidden)}: their intervals may be too short."
        advice = "Pool them with other levels, or use more rows or a larger epsilon."
        add(Diagnostic("few-events", "warning", message, advice, tuple(hidden)))
    if theta.explained > SEPARATED or not theta.converged:
        share = f"The columns explain {100 * theta.explained:.0f} % of the variance of the response"
        message = (
            f"{share if theta.converged else 'The likelihood has no maximum'}: the columns may separate the two "
            "classes, or one class may have next to no rows. Coefficients are then too small in size and their "
            "intervals too short."
        )
        advice = "Leave out the column that gives the response away, or pool rare classes."
        add(Diagnostic("separation", "warning", message, advice))
    return diagnostics


def few_events(theta: Parameters, model: GeneralisedLinearModel) -> NDArray[np.bool_]:
    """For each coefficient of (1, free u), whether it is that of a level with too few events for the noise.

    A number of events E with noise of standard deviation s gives log E, and so the coefficient, an error of s/E. If
    noise made E too large, that is too short. So s/E should be small, and so should s over the events that the rows of
    the level would have at the mean of the response. In general s/E is the error of the predictor η times
    |d log V/dη|, V the variance of the response.
    """
    schema, free, family = model.schema, model.free, model.family
    two_valued = np.diag(theta.covariance) > TWO_VALUED * (1 - theta.mean**2)  # values −1 and 1 have variance 1 − mean²
    indicators = 1 + np.flatnonzero((schema.level >= 0) | two_valued)
    predictor = model.predictor(np.concatenate([[theta.intercept], theta.coef]))
    baseline, few = np.concatenate([[1.0], theta.mean]), np.zeros(len(free), dtype=bool)
    baseline[indicators] = -1.0
    mean_variance = float(family.variance(np, np.array(family.link(theta.response))))
    for place, j in enumerate(free):
        if j > 0 and j not in indicators:
            continue
        row = np.where(np.arange(len(baseline)) == j, 1.0, baseline)
        contrast = baseline[free] if j == 0 else np.where(free == j, 2.0, 0.0)
        low, variance, high = family.variance(np, predictor(np, row[None, 1:]) + np.array([-STEP, 0.0, STEP]))
        slope = math.log(high / low) / (2 * STEP)
        error = math.sqrt(max(contrast @ theta.privacy @ contrast, 0.0)) * abs(slope)
        few[place] = error > EVENT_ERROR or error * variance > MEAN_EVENT_ERROR * mean_variance
    return few


def number_of_intervals(n: int, rho: float, rows_per_person: int) -> int:
    """The number of intervals of a calibration at this price.

    >>> number_of_intervals(2000, 4e-4, 1), number_of_intervals(20_000, 4e-4, 1), number_of_intervals(10**6, 4e-4, 1)
    (4, 5, 10)
    """
    if math.isinf(rho):
        return MOST
    return int(min(max(NOISE * n * math.sqrt(2 * rho) / (2 * rows_per_person), FEWEST), MOST))


@dataclass(frozen=True)
class IntervalResiduals(RowQuery):
    """Σ (1, t) over the complete rows of each interval of the linear predictor, t the clipped residual over its limit.

    *Lemma.* ℓ2 sensitivity 2. *Proof.* A row adds c = (1, t), |t| ≤ 1, at the two places of its interval and 0
    elsewhere. Two rows of one interval differ by |t − t′| ≤ 2, rows of two intervals by √(‖c‖² + ‖c′‖²) ≤ √(2 + 2), and
    a row and an incomplete one by ‖c‖ ≤ √2. So the count adds nothing to the sensitivity of the residuals. ∎
    """

    edges: FloatArray = field(repr=False)
    limits: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return f"calibration: rows and residuals in {len(self.limits)} intervals of the prediction"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=2.0, l2=2.0, size_linf=1.0, size_l2=math.sqrt(2.0)), 2)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        _, response, eta, weight = self.complete_rows(xp, x, y, shares)
        ends = [-math.inf, *map(float, self.edges), math.inf]
        counts, sums = [], []
        for low, high, limit in zip(ends, ends[1:], map(float, self.limits), strict=False):
            inside = weight * xp.astype((eta >= low) & (eta < high), xp.float64)
            counts.append(xp.sum(inside))
            residual = zero_nonfinite(xp, self.family.residual(xp, response, eta, limit))
            sums.append(xp.sum(inside * xp.clip(residual / limit, -1.0, 1.0)))
        return xp.stack(counts + sums)


@dataclass(frozen=True)
class Calibrate(Step["GeneralisedLinearModel", GlmState]):
    """Observed and predicted means of the response in intervals of the prediction with about equally many rows each.

    The table has a row for each interval and the columns that ``FIELDS`` lists.
    """

    intervals: int = MOST

    def describe(self) -> str:
        return f"calibration: observed and predicted means in {self.intervals} intervals"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        family, rows, free = state.family, state.surrogate.rows, model.restricted_to(state.chosen).free
        model = state.fitted_part(model)
        predictor = model.predictor(np.concatenate([[state.theta.intercept], state.theta.coef]))
        eta = predictor(np, rows[:, 1:])
        edges = np.unique(np.quantile(eta, np.linspace(0, 1, self.intervals + 1)[1:-1], method="lower"))
        edges = edges[edges > eta.min()]  # so that each interval holds surrogate rows
        place = np.searchsorted(edges, eta, side="right")
        groups = [rows[place == i] for i in range(len(edges) + 1)]
        etas = [predictor(np, group[:, 1:]) for group in groups]
        limits = np.array([np.max(family.residual_limit(np, eta), initial=1e-6) for eta in etas])
        query = IntervalResiduals(model.schema, family, predictor, edges, limits)
        shares, sums = np.split(curator.measure(query, self.rho), 2)
        noise = curator.noise_scale(query, self.rho)
        table = np.zeros((len(groups), FIELDS))
        for i, (group, eta) in enumerate(zip(groups, etas, strict=True)):
            share = max(float(shares[i]), 0.2 * len(group) / len(rows), 2 * noise, 1e-9)
            residual = family.clipped_residual(eta, eta, limits[i])
            gap = limits[i] * float(sums[i]) / share - float(np.mean(residual.mean))
            gap *= 1 / max(float(np.mean(residual.slope) / np.mean(family.variance(np, eta))), 0.5)
            sampling = float(np.mean(residual.square)) / (share * curator.effective_rows)
            variance = sampling + (limits[i] * noise / share) ** 2
            slope = (family.variance(np, eta)[:, None] * group[:, free]).mean(axis=0)
            predicted = float(np.mean(family.mean(np, eta)))
            prediction_variance = float(slope @ state.theta.privacy @ slope)
            error = math.sqrt(variance + prediction_variance)
            table[i] = share, predicted, predicted + gap, math.sqrt(variance), error
        return replace(state, theta=replace(state.theta, calibration=table))


def calibration_table(table: FloatArray, words: tuple[str, str]) -> Extra | None:
    """The report's section on calibration; ``words`` name the predicted and the observed means."""
    if not len(table):
        return None
    rows: tuple[tuple[str | float, ...], ...] = tuple((str(i + 1), *map(float, r[:4])) for i, r in enumerate(table))
    lead = (
        f"Rows are grouped by their {words[0]}. Where dots lie on the line, predictions are right on average. "
        f"Bars are {100 * LEVEL:.0f} % intervals for sampling error and the privacy noise of this check."
    )
    head = ("interval", "share of the rows", *words, "standard error")
    caption = f"The {words[0]} and the {words[1]} in each interval."
    return Extra("Calibration", lead, caption, head, rows, Calibration(words, *table.T[1:4]))


def miscalibration(table: FloatArray, family: Family, words: tuple[str, str]) -> list[Diagnostic]:
    """A warning if an observed mean clearly differs from the predicted one."""
    if not len(table):
        return []
    _, predicted, observed, _, error = table.T
    spread = np.sqrt(family.variance(np, np.array([family.link(max(float(mean), 1e-6)) for mean in predicted])))
    gap = np.abs(observed - predicted)
    off = np.flatnonzero((gap > STANDARD_ERRORS * error) & (gap > MATERIAL * spread))
    if not len(off):
        return []
    worst = off[np.argmax(gap[off] / error[off])]
    return [
        Diagnostic(
            "calibration",
            "warning",
            f"Predictions are off in {len(off)} of {len(table)} intervals: where the {words[0]} is "
            f"{predicted[worst]:.3g}, the {words[1]} is {observed[worst]:.3g} (standard error {error[worst]:.2g}).",
            "A square, an interaction or a further column may be missing from the model.",
        )
    ]
