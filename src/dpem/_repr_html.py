"""What a notebook shows of a plan, a guarantee, a budget or a fitted model: ``templates/notebook.html``.

It says what ``str`` says, and nothing that is not public or released.
"""

from __future__ import annotations

import math
from typing import Any

from dpem._html import fill, measured, number

_MOST = 25


def guarantee_html(guarantee: Any) -> str:
    """The statement."""
    return fill("notebook.html", kind="guarantee", guarantee=guarantee)


def budget_html(budget: Any) -> str:
    """A bar of what is spent."""
    spent, total = budget.spent_epsilon, budget.epsilon
    words = (
        f"ε = {number(spent)} of {number(total)} spent in {budget.n_charges:,} "
        f"fit{'' if budget.n_charges == 1 else 's'}, at δ = {number(budget.delta)}"
    )
    return fill(
        "notebook.html", kind="budget", words=words, share=0.0 if math.isinf(total) else min(spent / total, 1.0)
    )


def plan_html(plan: Any) -> str:
    """The steps with their shares of the price, what is predicted, and what is remarked."""
    privacy = f"ε = {number(plan.epsilon)}, δ = {number(plan.delta)}"
    head = f"{plan.model}: {plan.n:,} rows, {plan.d:,} columns, {privacy}"
    shares = [(words, None if math.isnan(share) else share) for words, share in plan.shares()]
    return fill("notebook.html", kind="plan", plan=plan, head=head, shares=shares)


def model_html(model: Any) -> str:
    """The fit check, what the fit warns of, the parameters with their intervals, the statement; before a fit, the
    constructor's arguments.
    """
    if not model.__sklearn_is_fitted__():
        return fill("notebook.html", kind="unfitted", text=repr(model))
    found = model._fit_summary().estimates
    many = 0 if found is None else len(found.names)
    body = []
    for j in range(min(many, _MOST)):
        error, value, low, high = (float(part[j]) for part in (found.error, found.value, found.low, found.high))
        shown = (measured(value, error), f"{measured(low, error)} to {measured(high, error)}")
        body.append((found.names[j], *(shown if error > 0 else (number(value, 4), "none"))))
    return fill(
        "notebook.html",
        kind="model",
        name=type(model).__name__,
        n=f"{model.plan_.n:,}",
        check=getattr(model, "fit_check_", None),
        diagnostics=[one for one in getattr(model, "diagnostics_", ()) if one.code != "fit-check"],
        head=(found and found.what, "estimate", "95 % interval"),
        body=body,
        more=f"{many - _MOST:,}" if many > _MOST else "",
        guarantee=model.guarantee_,
    )
