"""What a notebook shows of a plan, a guarantee, a budget or a fitted model: small pieces of HTML, styled in place.

They say what ``str`` says, and nothing that is not public or released.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dpem._html import number, percent, text

_BOX = "border-left:4px solid #0b5cad;padding:.4em .9em;margin:.3em 0;max-width:60em"
_ALARM = "border-left:4px solid #a3123a;padding:.4em .9em;margin:.3em 0;max-width:60em"
_MOST = 25


def guarantee_html(guarantee: Any) -> str:
    """The statement."""
    return f'<div style="{_BOX if guarantee.private else _ALARM}">{text(guarantee)}</div>'


def budget_html(budget: Any) -> str:
    """A bar of what is spent."""
    spent, total = budget.spent_epsilon, budget.epsilon
    share = 0.0 if math.isinf(total) else min(spent / total, 1.0)
    words = (
        f"ε = {number(spent)} of {number(total)} spent in {budget.n_charges:,} "
        f"fit{'' if budget.n_charges == 1 else 's'}, at δ = {number(budget.delta)}"
    )
    return f'<div style="{_BOX}">{words}{_bar(share, "20em")}</div>'


def plan_html(plan: Any) -> str:
    """The steps with their shares of the price, what is predicted, and what is remarked."""
    rows = [(text(words), "" if math.isnan(share) else _share(share)) for words, share in plan.shares()]
    privacy = f"ε = {number(plan.epsilon)}, δ = {number(plan.delta)}"
    head = f"{text(plan.model)}: {plan.n:,} rows, {plan.d:,} columns, {privacy}"
    parts = [f"<strong>Plan for {head}</strong>", _table(("step", "share of the price"), rows)]
    p = plan.prediction
    if p is not None:
        parts.append(
            f"<div>Expected: {text(p.quantity)} <strong>{number(p.median)}</strong> (nine fits of ten: "
            f"{number(p.low)} to {number(p.high)}). {text(p.meaning)} {text(p.assumed)}</div>"
        )
    parts += [f"<div>{text(remark)}</div>" for remark in plan.remarks]
    if not plan.feasible:
        parts.append(f"<div><strong>Not feasible as it is:</strong> {text(plan.advice)}.</div>")
    return f'<div style="{_BOX if plan.feasible else _ALARM}">{"".join(parts)}</div>'


def model_html(model: Any) -> str:
    """The fit check, the parameters with their intervals, the statement."""
    summary, check = model._fit_summary(), getattr(model, "fit_check_", None)
    parts = [f"<strong>{text(type(model).__name__)}</strong>, fitted to {model.plan_.n:,} rows"]
    if check is not None:
        parts.append(f'<div style="{_BOX if check.better else _ALARM}">{text(check)}</div>')
    found = summary.estimates
    if found is not None:
        many = len(found.names)
        rows = [
            (text(found.names[j]), number(found.value[j], 4), f"{number(found.low[j])} to {number(found.high[j])}")
            for j in range(min(many, _MOST))
        ]
        parts.append(_table((found.what, "estimate", "95 % interval"), rows))
        if many > _MOST:
            parts.append(f"<div>and {many - _MOST:,} more; summary() has all of them.</div>")
    return "<div>" + "".join(parts) + guarantee_html(model.guarantee_) + "</div>"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f'<th style="text-align:left">{cell}</th>' for cell in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _share(share: float) -> str:
    return f"{percent(share)}{_bar(share, '10em')}"


def _bar(share: float, width: str) -> str:
    inner = f"background:#0b5cad;height:.5em;width:{100 * share:.1f}%"
    return f'<div style="background:#8884;width:{width}"><div style="{inner}"></div></div>'
