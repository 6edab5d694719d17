"""HTML representations for notebooks of plans, guarantees, budgets and fitted models (``templates/notebook.html``).

They have the content of ``str``: public or released facts only.
"""

from __future__ import annotations

import math
from typing import Any

from dpem._html import fill, measured, number

_MOST = 25


def guarantee_html(guarantee: Any) -> str:
    """The guarantee."""
    return fill("notebook.html", kind="guarantee", guarantee=guarantee)


def budget_html(budget: Any) -> str:
    """A bar that shows the spent part of a budget."""
    spent, total = budget.spent_epsilon, budget.epsilon
    words = (
        f"ε = {number(spent)} of {number(total)} spent in {budget.n_charges:,} "
        f"fit{'' if budget.n_charges == 1 else 's'}, at δ = {number(budget.delta)}"
    )
    return fill(
        "notebook.html", kind="budget", words=words, share=0.0 if math.isinf(total) else min(spent / total, 1.0)
    )


def plan_html(plan: Any) -> str:
    """The steps with their shares of the price, the prediction and the remarks."""
    privacy = f"ε = {number(plan.epsilon)}, δ = {number(plan.delta)}"
    head = f"{plan.model}: {plan.n:,} rows, {plan.d:,} columns, {privacy}"
    shares = [(words, None if math.isnan(share) else share) for words, share in plan.shares()]
    return fill("notebook.html", kind="plan", plan=plan, head=head, shares=shares)


def model_html(model: Any) -> str:
    """Fit check, diagnostics, parameters with intervals, guarantee; before the fit, the arguments."""
    if not model.__sklearn_is_fitted__():
        return fill("notebook.html", kind="unfitted", text=repr(model))
    estimates = model._fit_summary().estimates
    count = 0 if estimates is None else len(estimates.names)
    body = []
    for j in range(min(count, _MOST)):
        parts = (estimates.error, estimates.value, estimates.low, estimates.high)
        error, value, low, high = (float(part[j]) for part in parts)
        cells = (number(value, 4), "none")
        if error > 0:
            cells = (measured(value, error), f"{measured(low, error)} to {measured(high, error)}")
        body.append((estimates.names[j], *cells))
    return fill(
        "notebook.html",
        kind="model",
        name=type(model).__name__,
        n=f"{model.plan_.n:,}",
        check=getattr(model, "fit_check_", None),
        diagnostics=[d for d in getattr(model, "diagnostics_", ()) if d.code != "fit-check"],
        head=(estimates and estimates.what, "estimate", "95 % interval"),
        body=body,
        more=f"{count - _MOST:,}" if count > _MOST else "",
        guarantee=model.guarantee_,
    )
