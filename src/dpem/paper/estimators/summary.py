"""The summary of a fit by the paper's estimators: coefficients, their known noise, settings and their origin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.summary import (
    DEFAULT,
    GIVEN,
    PAID,
    PLANNED,
    PLANNED_LATER,
    PUBLIC,
    UNPAID,
    Estimates,
    Extra,
    FitSummary,
    Predicted,
    Setting,
)
from dpem.paper.improved.steps import Refine, Screen, Select, Start, Trim
from dpem.paper.published import PublishedEM

if TYPE_CHECKING:
    from dpem.paper.estimators.base import PrivateEM

NAMES = {
    "symmetric-mixture": "Gaussian mixture",
    "symmetric-regression": "mixture of two regressions",
    "missing-regression": "regression with missing covariates",
}
#: Rows of the table of components.
_SHOWN = 12


def fit_summary(model: PrivateEM) -> FitSummary:
    """The fit of one of the paper's estimators."""
    plan, kept = model.plan_, len(model.support_)
    predicted = None
    if plan.predicted_error is not None and plan.interval is not None:
        known = planned(model) == PLANNED
        predicted = Predicted(
            "the distance ‖β̂ − β‖ between the released and the true coefficients",
            plan.predicted_error,
            *plan.interval,
            "8 of 10 cases",
            "before the data were read" if known else "from public numbers and the released σ",
            f"That is {plan.predicted_error / plan.signal:.1%} of the assumed length of β.",
            f"β is assumed to have length {plan.signal:.3g}. It counts privacy noise and sampling error, by rehearsing "
            "the fit on simulated rows that follow the model and the assumptions in the settings.",
        )
    return FitSummary(
        name=NAMES[plan.model],
        released=f"{kept:,} of {plan.d:,} coefficients" if kept < plan.d else f"all {plan.d:,} coefficients",
        estimates=_estimates(model) if kept else None,
        profile=None,
        predicted=predicted,
        no_prediction=f"the method “{plan.method}” makes no prediction",
        settings=tuple(settings(model)),
        useful=plan.feasible is not False,
        advice=plan.advice,
        extra=_components(model),
    )


def _estimates(model: PrivateEM) -> Estimates:
    order, plan, noise = largest_first(model), model.plan_, coefficient_noise(model)
    note = "No noise was added, so there are no intervals."
    if noise:
        note = (
            "An interval holds 19 of 20 draws of the privacy noise of the last step, which is the same for every "
            "coefficient and known because the noise is. Sampling error is not in it: it would have to be released and "
            "paid for."
        )
    if plan.sparsity is not None:
        note += " Coefficients not listed are zero in the model; that does not show that they are zero in truth."
    selects = any(isinstance(step, Select) for step in plan.steps)
    limit = plan.detectable if plan.detectable is not None and math.isfinite(plan.detectable) else None
    meaning = "a coefficient of that size is selected as often as not" if selects else "what that noise may explain"
    names = tuple(column_name(model, j) for j in order)
    ones = np.ones(len(order))
    more = {"note": note, "scale": ones, "scaled": "the units of the columns", "limit": limit, "limit_is": meaning}
    return Estimates.noisy(names, model.coef_[order], noise or 0.0, **more)


def _components(model: PrivateEM) -> Extra | None:
    """The two components of a mixture; nothing for the other model."""
    if model._missing:
        return None
    clouds, order = not model._needs_y, largest_first(model)
    what = "centre" if clouds else "coefficient"
    lead = (
        "Half of the rows are taken to scatter around +β, half around −β. Which of the two is called component 1 is "
        "arbitrary. Outside the columns listed both centres are zero."
        if clouds
        else "Half of the rows are taken to follow the response +⟨x, β⟩, half −⟨x, β⟩. Which of the two is called "
        "component 1 is arbitrary. Columns not listed have coefficient zero in both."
    )
    caption = f"The two {what}s on the support."
    if len(order) > _SHOWN:
        caption += f" The {_SHOWN} largest of {len(order):,}; the table of coefficients has all of component 1."
    head = ("column", f"{what}, component 1 (+β)", f"{what}, component 0 (−β)")
    rows = tuple((column_name(model, j), float(model.coef_[j]), -float(model.coef_[j])) for j in order[:_SHOWN])
    return Extra("The two components", lead, caption, head, rows)


def coefficient_noise(model: PrivateEM) -> float | None:
    """Standard deviation of the privacy noise that the last step put on each coefficient; None if there was none.

    *Lemma.* Given what was released before, a coefficient on the support is a function of the data plus noise of this
    standard deviation. *Proof.* The last refining step is β + η·(mean + N(0, τ²)) with β released before and τ the
    release's scale: η·τ. The paper's low-dimensional step is the same, with a public shift. Its NoisyHT adds Laplace(b)
    to the values themselves, of standard deviation √2·b. Trimming keeps a value or drops it. ∎ The noise of earlier
    steps enters through the mean, damped by EM's contraction; it is not counted here, but in the predicted error.
    """
    last = next(step for step in reversed(model.plan_.steps) if not isinstance(step, Trim))
    if math.isinf(last.rho):
        return None
    scale = model.releases_[-1].scale
    if isinstance(last, PublishedEM) and last.s is not None:
        return math.sqrt(2) * scale
    assert isinstance(last, Refine | PublishedEM)
    return last.step * scale


def column_name(model: PrivateEM, j: int) -> str:
    """The name of column j, or "column j" where columns have none."""
    names = getattr(model, "feature_names_in_", None)
    return f"column {j}" if names is None else str(names[j])


def largest_first(model: PrivateEM) -> np.ndarray:
    """The support, the largest coefficients first."""
    return model.support_[np.argsort(-np.abs(model.coef_[model.support_]), kind="stable")]


def settings(model: PrivateEM) -> list[Setting]:
    """Every setting, and who chose it when."""
    plan = model.plan_
    auto = model.sparsity == "auto"
    size = f"at most {plan.sparsity}, then trimmed" if auto else "all" if plan.sparsity is None else str(plan.sparsity)
    found = [
        Setting("rows n", plan.n, PUBLIC),
        Setting("columns d", plan.d, PUBLIC),
        Setting("ε", plan.epsilon, GIVEN),
        Setting("δ", plan.delta, GIVEN),
        Setting("rows that one person may have", plan.rows_per_person, DEFAULT if plan.rows_per_person == 1 else GIVEN),
        Setting("coefficients that may be non-zero", size, DEFAULT if model.sparsity is None else GIVEN),
        Setting("noise level σ of the model", model.sigma_, GIVEN if model.sigma is not None else _asked(model)),
        Setting("assumed length of β", plan.signal, DEFAULT if plan.signal == 1.0 else GIVEN),
        Setting("method", model.method, DEFAULT if model.method == "improved" else GIVEN),
        Setting("start", *_start(model)),
    ]
    if model._missing and plan.missing:
        found.append(Setting("part of the entries assumed missing", plan.missing, DEFAULT))
    return found + _steps(model)


def _asked(model: PrivateEM) -> str:
    return PAID if math.isfinite(model.guarantee_.epsilon) else UNPAID


def planned(model: PrivateEM) -> str:
    """What the plan was made from."""
    return PLANNED if model.sigma is not None else PLANNED_LATER


def _start(model: PrivateEM) -> tuple[str, str]:
    if model.start is not None:
        return ("equal entries" if isinstance(model.start, str) else "a vector"), GIVEN
    if any(isinstance(step, Screen | Start) and math.isfinite(step.rho) for step in model.plan_.steps):
        return "found in the data", PAID
    return ("zero", DEFAULT) if model._missing else ("found in the data", UNPAID)


def _steps(model: PrivateEM) -> list[Setting]:
    """The settings of the plan's steps, and which of them the user pinned."""

    by_plan = planned(model)

    def origin(argument: object) -> str:
        return by_plan if argument is None else GIVEN

    found = []
    refine = [step for step in model.plan_.steps if isinstance(step, Refine)]
    for step in model.plan_.steps:
        if isinstance(step, Screen):
            found.append(Setting("columns screened for a start", step.k, by_plan))
        elif isinstance(step, Start):
            found.append(Setting("clip of a row’s length, start", step.radius, by_plan))
        elif isinstance(step, Select):
            found.append(Setting("clip T of an entry, selection", step.clip.entry, origin(model.clip)))
            if math.isfinite(step.clip.residual):
                found.append(Setting("clip of a residual, selection", step.clip.residual, by_plan))
        elif isinstance(step, Trim):
            found.append(Setting("coefficients dropped up to", step.threshold, by_plan))
        elif not isinstance(step, Refine):
            found.append(Setting("steps N₀", step.n_iter, origin(model.n_iter)))
            found.append(Setting("step size η", step.step, origin(model.step_size)))
            if isinstance(step, PublishedEM):
                found.append(Setting("clip T", step.T, origin(model.clip)))
    if refine:
        found.append(Setting("refining steps", len(refine), origin(model.n_iter)))
        found.append(Setting("step size η", refine[0].step, origin(model.step_size)))
        found.append(Setting("clip of a contribution’s length, last step", refine[-1].radius, by_plan))
    return found
