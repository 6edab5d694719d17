"""The expressions of a formula, evaluated over the rows or over the public bounds of their columns.

An expression is a small part of Python: numbers, columns, arithmetic, comparisons and the functions below. Python
never runs it: :func:`walk` evaluates its syntax tree with arrays or with intervals. Functions that depend on other rows
(a mean, quantiles as knots) are refused.

*Lemma.* A value lies in the expression's interval. *Proof.* Columns are clipped to their bounds first. By induction,
the interval of each operation contains its values over the intervals of its operands. ∎
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpem._validation import ArgumentError
from dpem.query import Array, Namespace
from dpem.tables.bounds import Pair
from dpem.tables.entries import Levels

#: Increasing functions, under their names in ``math`` and in the array API: the lower limit of the argument, and
#: whether the argument must exceed it.
FUNCTIONS: dict[str, tuple[float, bool]] = {
    **dict.fromkeys(("log", "log2", "log10"), (0.0, True)),
    **{"log1p": (-1.0, True), "sqrt": (0.0, False)},
    **dict.fromkeys(("exp", "expm1"), (-math.inf, False)),
}
#: Functions that depend on other rows, and what to write instead.
FROM_DATA = {
    "center": "subtract a public number, as in I(x - 40)",
    "scale": "subtract and divide by public numbers, as in I((x - 40) / 10)",
    "standardize": "subtract and divide by public numbers, as in I((x - 40) / 10)",
    **dict.fromkeys(("cr", "cs", "cc", "ns"), "use bs(x, knots=[…])"),
    "lag": "make the column beforehand",
    "hashed": "declare levels",
}
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_QUOTED = re.compile("`([^`]*)`")


def refusal(sentence: str) -> ArgumentError:
    return ArgumentError("formula", sentence)


@functools.lru_cache(maxsize=512)
def parsed(text: str) -> ast.expr:
    """The syntax tree of an expression, or a refusal; a name in backquotes is that of a column."""
    names = {f"_{name.encode().hex()}": name for name in _QUOTED.findall(text)}
    try:
        tree = ast.parse(_QUOTED.sub(lambda match: f"_{match[1].encode().hex()}", text).strip(), mode="eval")
    except SyntaxError:
        raise refusal(f"has the invalid term {text!r}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return tree.body


def columns_of(text: str) -> list[str]:
    """The columns that an expression reads, in order."""
    names: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            names.append(node.id)
        children = (*node.args, *node.keywords) if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
        for child in children:
            visit(child)

    visit(plain(parsed(text)))
    return list(dict.fromkeys(names))


def plain(node: ast.expr) -> ast.expr:
    """The node inside of I( ), C( ) and offset( )."""
    while isinstance(node, ast.Call) and function_name(node) in ("I", "C", "offset") and node.args:
        node = node.args[0]
    return node


def logical(node: ast.expr) -> bool:
    """Whether the values are 0 and 1: a comparison, or comparisons joined by & or |."""
    node = plain(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return logical(node.left) and logical(node.right)
    return isinstance(node, ast.Compare)


def function_name(call: ast.Call) -> str:
    """The function's name: ``np.log`` is ``log``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "?")


def _function_names() -> str:
    return ", ".join((*FUNCTIONS, "abs", "I", "C", "poly", "bs"))


# --- evaluation over intervals or arrays ------------------------------------------------------------------------------


class Undefined(ValueError):
    """The reason why an expression is not defined over an interval."""


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high``, with interval arithmetic."""

    low: float
    high: float

    @classmethod
    def of(cls, *values: float) -> Interval:
        return cls(min(values), max(values))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        return Interval.of(*(x * y for x in (self.low, self.high) for y in (other.low, other.high)))

    def __truediv__(self, other: Interval) -> Interval:
        if other.low <= 0 <= other.high:
            raise Undefined("divides by a term whose bounds contain 0")
        return self * Interval(1 / other.high, 1 / other.low)

    def __pow__(self, other: Interval) -> Interval:
        exponent, zero = other.low, self.low <= 0 <= self.high
        if other.low != other.high:
            raise Undefined("has an exponent that is not a number")
        if (exponent < 0 and zero) or (self.low < 0 and not exponent.is_integer()):
            raise Undefined("is not defined everywhere between the bounds of its columns")
        ends = (self.low**exponent, self.high**exponent)
        return Interval.of(*ends, 0.0) if exponent > 0 and exponent % 2 == 0 and zero else Interval.of(*ends)

    def __abs__(self) -> Interval:
        ends = (abs(self.low), abs(self.high))
        return Interval.of(*ends, 0.0) if self.low <= 0 <= self.high else Interval.of(*ends)


@dataclass(frozen=True)
class Intervals:
    """The domain of a walk that computes intervals from the bounds of columns."""

    bounds: Mapping[str, Pair]
    levels: Mapping[str, Levels]

    def number(self, value: float) -> Any:
        return Interval(value, value)

    def column(self, name: str) -> Any:
        if name in self.levels:
            return Interval(0.0, 1.0)  # comparisons do not use it
        if name not in self.bounds:
            raise ArgumentError("bounds", f"must have an entry {name!r}, which the formula reads.")
        return Interval(*self.bounds[name])

    def function(self, name: str, value: Any) -> Any:
        if name == "abs":
            return abs(value)
        least, more = FUNCTIONS[name]
        if value.low < least or (more and value.low == least):
            raise Undefined(
                f"needs values {'above' if more else 'of at least'} {least:g}, but they begin at {value.low:g}"
            )
        return Interval(getattr(math, name)(value.low), getattr(math, name)(value.high))

    def compared(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        return Interval(0.0, 1.0)


@dataclass(frozen=True)
class Arrays(Intervals):
    """The domain of a walk that computes arrays from the columns of a block of rows, NaN where a value is missing."""

    xp: Namespace
    columns: Mapping[str, Array]

    def number(self, value: float) -> float:
        return value

    def column(self, name: str) -> Array:
        return self.columns[name]

    def function(self, name: str, value: Array) -> Array:
        return getattr(self.xp, name)(value)

    def compared(self, op: ast.cmpop, a: Array, b: Array) -> Array:
        total = a + b  # NaN where a side is missing
        one = self.xp.ones_like(total)
        return self.xp.where(self.xp.isnan(total), total, self.xp.where(COMPARISONS[type(op)](a, b), one, 0.0 * one))


def walk(node: ast.expr, domain: Intervals) -> Any:
    """The value of an expression in the domain: an interval or an array; or a refusal."""
    node = plain(node)
    try:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return domain.number(float(node.value))  # type: ignore[arg-type]
        if isinstance(node, ast.Name) and node.id not in domain.levels:
            return domain.column(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = walk(node.operand, domain)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.Compare) and all(type(op) in COMPARISONS for op in node.ops):
            return _compared(node, domain)
        if isinstance(node, ast.BinOp) and (logical(node) or type(node.op) in ARITHMETIC):
            return _binary(node, domain)
        if isinstance(node, ast.Call):
            return domain.function(*_argument(node, domain))
    except Undefined as error:
        raise refusal(f"cannot have {ast.unparse(node)!r}, which {error}.") from None
    except OverflowError:
        raise refusal(
            f"cannot have {ast.unparse(node)!r}, which is not bounded over the bounds of its columns."
        ) from None
    advice = f"use numbers, columns, + - * / **, comparisons joined by & and |, or {_function_names()}"
    if isinstance(node, ast.Attribute):
        advice = "write a name with a dot in backquotes"
    elif isinstance(node, ast.Name):
        advice = f"it has levels; write C({node.id}), or compare it with a level"
    raise refusal(f"cannot have {ast.unparse(node)!r} here: {advice}.")


def _binary(node: ast.BinOp, domain: Intervals) -> Any:
    a, b, one = walk(node.left, domain), walk(node.right, domain), domain.number(1.0)
    if isinstance(node.op, ast.BitAnd):
        return a * b
    if isinstance(node.op, ast.BitOr):
        return one - (one - a) * (one - b)
    if isinstance(node.op, ast.Mult) and ast.dump(plain(node.left)) == ast.dump(plain(node.right)):
        return a ** domain.number(2.0)
    return ARITHMETIC[type(node.op)](a, b)


def _compared(node: ast.Compare, domain: Intervals) -> Any:
    """Whether all comparisons of a chain hold, as 0 or 1; a column with levels is compared with one of them."""
    sides, product = [plain(side) for side in (node.left, *node.comparators)], domain.number(1.0)
    for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
        names = [side.id for side in (left, right) if isinstance(side, ast.Name) and side.id in domain.levels]
        entries = [side.value for side in (left, right) if isinstance(side, ast.Constant)]
        if names and entries and isinstance(op, ast.Eq | ast.NotEq):
            code = domain.levels[names[0]].value(entries[0])
            if code != code:
                raise Undefined(f"compares {names[0]!r} with {entries[0]!r}, which is not one of its levels")
            a, b = domain.column(names[0]), domain.number(code)
        elif any(isinstance(entry, str) for entry in entries):
            raise Undefined("compares with a text: use == or != and a column with declared levels")
        else:
            a, b = walk(left, domain), walk(right, domain)
        product = product * domain.compared(op, a, b)
    return product


def _argument(node: ast.Call, domain: Intervals) -> tuple[str, Any]:
    """The name and the value of the argument of a known function."""
    name, text = function_name(node), ast.unparse(node)
    if name in FROM_DATA:
        raise refusal(f"cannot have {name}(…), which depends on other rows: {FROM_DATA[name]}.")
    if name in ("poly", "bs"):
        raise refusal(f"cannot have {text!r} inside of another expression; it must be a term of its own.")
    if name not in FUNCTIONS and name != "abs":
        raise refusal(f"cannot have {text!r}: known functions are {_function_names()}.")
    if len(node.args) != 1 or node.keywords:
        raise refusal(f"cannot have {text!r}: {name} takes one argument, as in {name}(x).")
    return name, walk(node.args[0], domain)
