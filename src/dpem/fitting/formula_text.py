"""The text of a formula: its response and its terms, read by formulaic after R's and patsy's spellings are replaced."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from dpem._validation import ArgumentError
from dpem.fitting.formula_terms import columns_of, parsed, plain, refusal

#: Quoted names and texts, and R's and patsy's spellings of powers, factors, Booleans and quoted names.
_FOREIGN = re.compile(
    r"""`[^`]*`|\bQ\(\s*(["'])(.*?)\1\s*\)|"[^"]*"|'[^']*'|\^|\b(?:as\.)?factor\(|\b(?:TRUE|FALSE)\b"""
)


def sides(text: object, needs_y: bool) -> tuple[str | None, list[tuple[str, ...]]]:
    """The response and the terms, each term a tuple of expressions."""
    if not isinstance(text, str):
        raise ArgumentError("formula", f"must be a text such as 'y ~ x + C(g)', got {type(text).__name__}.")
    from formulaic import Formula  # here, since it imports pandas
    from formulaic.errors import FormulaicError

    try:
        formula: Any = Formula(_FOREIGN.sub(_translated, text))
    except (FormulaicError, SyntaxError):
        reserved = next(filter(keyword.iskeyword, re.findall(r"\w+", text)), None)
        advice = (
            f"Rename {reserved!r}, which is a keyword of Python."
            if reserved
            else "Write it like 'y ~ x + C(g)', with columns by name and comparisons inside I( ), as in I(x > 3)."
        )
        raise refusal(f"is not valid: {text!r}. {advice}") from None
    right = getattr(formula, "rhs", formula)
    left = [_expression(factor) for term in getattr(formula, "lhs", ()) for factor in term.factors]
    if not hasattr(right, "__iter__") or any(not hasattr(term, "factors") for term in right):
        raise refusal("must have one right side, without '|'.")
    if needs_y and len(left) != 1:
        raise refusal("must have one response left of '~', as in 'y ~ x'.")
    if not needs_y and left:
        raise refusal("must begin with '~': this model has no response.")
    terms = [tuple(_expression(factor) for factor in term.factors) for term in right]
    if ("1",) not in terms:
        raise refusal("must keep its intercept: leave out '0 +' and '- 1'.")
    terms = [term for term in terms if term != ("1",)]
    if not terms:
        raise refusal("must have a term right of '~'.")
    if needs_y and isinstance(node := plain(parsed(left[0])), ast.Name):
        left = [f"`{node.id}`" if not node.id.isidentifier() else node.id]  # C(y) is y
    return (left[0] if needs_y else None), terms


def _translated(match: re.Match[str]) -> str:
    """The spelling here of what R or patsy writes."""
    if match[2] is not None:
        return f"`{match[2]}`"
    return {"^": "**", "factor(": "C(", "as.factor(": "C(", "TRUE": "True", "FALSE": "False"}.get(match[0], match[0])


def _expression(factor: Any) -> str:
    """A factor of formulaic as an expression, with a name that is no identifier in backquotes."""
    text = str(factor.expr)
    is_identifier = text.isidentifier() and not keyword.iskeyword(text)
    return text if factor.eval_method.value != "lookup" or is_identifier else f"`{text}`"


def raw_columns(text: object, *, needs_y: bool) -> tuple[str, ...]:
    """The columns of the table that a formula reads, with those that only the response reads last."""
    return columns_read(*sides(text, needs_y))


def columns_read(left: str | None, right: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The same for a response and terms."""
    expressions = chain(*right, () if left is None else (left,))
    return tuple(dict.fromkeys(name for expression in expressions for name in columns_of(expression)))
