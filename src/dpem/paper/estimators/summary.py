"""What reports show of the paper's models: the coefficients, their privacy noise and the two components."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpem.fitting.summary import Estimates, Extra
from dpem.paper.published import PublishedEM
from dpem.paper.steps import Refine, Select, Trim

if TYPE_CHECKING:
    from dpem.paper.estimators.base import PrivateEM

#: Rows of the table of components.
_SHOWN = 12


def estimates(model: PrivateEM) -> Estimates | None:
    """The coefficients with intervals for their privacy noise."""
    order, plan, noise = largest_first(model), model.plan_, coefficient_noise(model)
    if not len(order):
        return None
    note = "No noise was added, so there are no intervals."
    if noise:
        note = (
            "An interval covers 95 % of the privacy noise of the last step, whose scale is public and the same for "
            "every coefficient. It does not cover sampling error, which would have to be released and paid for."
        )
    if model.sparsity is not None:
        note += " Coefficients not listed are zero in the model; that does not show that they are zero in truth."
    selects = any(isinstance(step, Select) for step in plan.steps)
    detectable = None if plan.prediction is None else plan.prediction.detectable
    limit = detectable if detectable is not None and math.isfinite(detectable) else None
    missed = "smaller coefficients are mostly missed by the selection"
    return Estimates.noisy(
        *(tuple(column_name(model, j) for j in order), model.coef_[order], noise or 0.0),
        note=note,
        scale=np.ones(len(order)),
        scaled="the units of the columns",
        limit=limit,
        limit_is=missed if selects else "what that noise may explain",
    )


def components(model: PrivateEM) -> Extra | None:
    """The table of the two components; None for the regression with missing covariates."""
    if model._missing:
        return None
    gaussian, order = not model._needs_y, largest_first(model)
    parameter = "centre" if gaussian else "coefficient"
    assumed = "scatter around +β, half around −β" if gaussian else "follow the response +⟨x, β⟩, half −⟨x, β⟩"
    zero = "Outside the columns listed both centres are" if gaussian else "Coefficients of columns not listed are"
    lead = (
        f"The model assumes that half of the rows {assumed}. Which of the two is called component 1 is arbitrary. "
        f"{zero} zero."
    )
    caption = f"The two {parameter}s on the support."
    if len(order) > _SHOWN:
        caption += f" The {_SHOWN} largest of {len(order):,}; the table of coefficients has all of component 1."
    head = ("column", f"{parameter}, component 1 (+β)", f"{parameter}, component 0 (−β)")
    rows = tuple((column_name(model, j), float(model.coef_[j]), -float(model.coef_[j])) for j in order[:_SHOWN])
    return Extra("The two components", lead, caption, head, rows)


def coefficient_noise(model: PrivateEM) -> float | None:
    """The standard deviation of the noise that the last step added to each coefficient; None without noise.

    *Lemma.* Given earlier releases, a coefficient on the support is a function of the data plus noise of this standard
    deviation. *Proof.* The last refining step is β + η·(mean + N(0, τ²)), where β was released before and τ is the
    scale of the release, so it is η·τ. The paper's low-dimensional step differs by a public shift only. NoisyHT adds
    Laplace(b) noise to the values, of standard deviation √2·b. Trimming keeps a value or sets it to zero. ∎ The noise
    of earlier steps, which EM contracts, is part of the predicted error but not counted here.
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
    """The name of column j, or "column j" without names."""
    names = getattr(model, "feature_names_in_", None)
    return f"column {j}" if names is None else str(names[j])


def largest_first(model: PrivateEM) -> np.ndarray:
    """The support, the largest coefficients first."""
    return model.support_[np.argsort(-np.abs(model.coef_[model.support_]), kind="stable")]
