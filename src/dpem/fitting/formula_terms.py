"""Expressions of a formula: their values block by block, and the interval that public bounds of the columns imply.

An expression is a small part of Python: numbers, columns, + − * / **, comparisons and the functions below. It is never
run by the interpreter. Values come from raw columns that were clamped to their bounds first, so *a value lies in the
expression's interval*: by induction over the expression, as each operation's interval holds its values over the
intervals of its operands. What a function would have to learn from the rows (a mean, quantiles for knots) is refused.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import BSpline

from dpem._validation import ArgumentError
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.bounds import LARGEST, Pair


class Monotone(NamedTuple):
    """An increasing function: of an array, of a number, and what its argument must exceed (None: nothing)."""

    name: str
    number: Callable[[float], float]
    least: float | None = None
    open: bool = False


FUNCTIONS = {
    "log": Monotone("log", math.log, 0.0, True),
    "log2": Monotone("log2", math.log2, 0.0, True),
    "log10": Monotone("log10", math.log10, 0.0, True),
    "log1p": Monotone("log1p", math.log1p, -1.0, True),
    "exp": Monotone("exp", math.exp),
    "expm1": Monotone("expm1", math.expm1),
    "sqrt": Monotone("sqrt", math.sqrt, 0.0),
}
#: Functions that learn from the rows, and the public way to write the same.
FROM_DATA = {
    "center": "subtract a public number, as in I(x - 40)",
    "scale": "subtract and divide by public numbers, as in I((x - 40) / 10)",
    "standardize": "subtract and divide by public numbers, as in I((x - 40) / 10)",
    "cr": "use bs(x, knots=[…])",
    "cs": "use bs(x, knots=[…])",
    "cc": "use bs(x, knots=[…])",
    "ns": "use bs(x, knots=[…])",
    "lag": "make the column beforehand",
    "hashed": "declare levels",
    "offset": "give the argument offset= or exposure= of a model of counts",
}


@functools.lru_cache(maxsize=512)
def parsed(text: str) -> ast.expr:
    """The expression, or a refusal. What stands between backquotes is the name of a column."""
    *between, last = re.split("`([^`]*)`", text)  # other text and names by turns
    names = {f"_backquoted{j}_": name for j, name in enumerate(between[1::2])}
    plain = "".join(other + name for other, name in zip(between[::2], names, strict=True)) + last
    try:
        tree = ast.parse(plain, mode="eval").body
    except SyntaxError:
        raise ArgumentError("formula", f"has a term that cannot be read: {text!r}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return tree


def columns_of(text: str) -> list[str]:
    """The raw columns of an expression, in order."""
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            for part in (*node.args, *(keyword.value for keyword in node.keywords)):
                visit(part)
        elif isinstance(node, ast.Name):
            found.append(node.id)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(_plain(parsed(text)))
    return list(dict.fromkeys(found))


def _plain(node: ast.expr) -> ast.expr:
    """The node without I( ) around it; of a factor C(x, …) the column."""
    while isinstance(node, ast.Call) and _name(node) in ("I", "C") and node.args:
        node = node.args[0]
    return node


def _name(call: ast.Call) -> str:
    """The function's name: ``np.log`` is ``log``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "?")


def parts_of(text: str, bounds: Mapping[str, Pair]) -> int:
    """How many columns an expression stands for: 1, but for ``poly`` and ``bs``."""
    node = _plain(parsed(text))
    if isinstance(node, ast.Call) and _name(node) == "poly":
        return _poly(node)[0]
    if isinstance(node, ast.Call) and _name(node) == "bs":
        knots, degree, intercept = _spline(node, _interval(node.args[0], bounds))
        return len(knots) - degree - 1 - (not intercept)
    return 0


# --- intervals --------------------------------------------------------------------------------------------------------


def interval(text: str, bounds: Mapping[str, Pair], part: int = 0) -> Pair:
    """The interval of an expression over these bounds; of one with several columns, of that one.

    >>> interval("x**2", {"x": (-2.0, 1.0)}), interval("x * y", {"x": (-2.0, 1.0), "y": (0.0, 3.0)})
    ((0.0, 4.0), (-6.0, 3.0))
    """
    node = _plain(parsed(text))
    if isinstance(node, ast.Call) and _name(node) == "bs":
        return 0.0, 1.0
    if isinstance(node, ast.Call) and _name(node) == "poly":
        low, high = _interval(node.args[0], bounds)
        return _power((low, high), part + 1.0, text) if _poly(node)[1] else (-1.0, 1.0)
    low, high = _interval(node, bounds)
    if not (math.isfinite(low) and math.isfinite(high)) or max(abs(low), abs(high)) > LARGEST:
        raise ArgumentError("formula", f": {text!r} is not bounded over the bounds of its columns.")
    return low, high


def _interval(node: ast.expr, bounds: Mapping[str, Pair]) -> Pair:
    node = _plain(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value), float(node.value)
    if isinstance(node, ast.Name):
        if node.id not in bounds:
            raise ArgumentError("bounds", f"must have an entry {node.id!r}: the formula computes with it.")
        return bounds[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        low, high = _interval(node.operand, bounds)
        return (-high, -low) if isinstance(node.op, ast.USub) else (low, high)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        _interval(node.left, bounds), _interval(node.comparators[0], bounds)
        return 0.0, 1.0
    if isinstance(node, ast.BinOp):
        return _binary(node, bounds)
    if isinstance(node, ast.Call):
        return _call(node, bounds)
    allowed = f"use numbers, columns (`my column` if the name is no word), + - * / **, comparisons or {_known()}"
    raise ArgumentError("formula", f"cannot have {ast.unparse(node)!r}: {allowed}.")


def _binary(node: ast.BinOp, bounds: Mapping[str, Pair]) -> Pair:
    a, b = _interval(node.left, bounds), _interval(node.right, bounds)
    if isinstance(node.op, ast.Add):
        return a[0] + b[0], a[1] + b[1]
    if isinstance(node.op, ast.Sub):
        return a[0] - b[1], a[1] - b[0]
    if isinstance(node.op, ast.Mult):
        if ast.dump(_plain(node.left)) == ast.dump(_plain(node.right)):
            return _power(a, 2.0)
        return product(a, b)
    if isinstance(node.op, ast.Div):
        if b[0] <= 0 <= b[1]:
            raise ArgumentError("formula", f": {ast.unparse(node)!r} divides by a term whose bounds hold 0.")
        return product(a, (1 / b[1], 1 / b[0]))
    if isinstance(node.op, ast.Pow) and b[0] == b[1]:
        return _power(a, b[0], ast.unparse(node))
    raise ArgumentError("formula", f"cannot have {ast.unparse(node)!r}: a power needs a number as its exponent.")


def product(a: Pair, b: Pair) -> Pair:
    """The interval of a product of two values."""
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _power(a: Pair, exponent: float, text: str = "a power") -> Pair:
    whole = exponent == int(exponent)
    if (exponent < 0 and a[0] <= 0 <= a[1]) or (not whole and a[0] < 0):
        raise ArgumentError("formula", f": {text!r} is not defined over the whole bounds of its columns.")
    try:
        ends = sorted(float(end**exponent) for end in a)
    except OverflowError:
        return -math.inf, math.inf
    even = whole and int(exponent) % 2 == 0
    return (0.0 if even and exponent > 0 and a[0] <= 0 <= a[1] else ends[0]), ends[1]


def _call(node: ast.Call, bounds: Mapping[str, Pair]) -> Pair:
    name = _name(node)
    if name in FROM_DATA:
        raise ArgumentError("formula", f"cannot have {name}(…), which would learn from the rows: {FROM_DATA[name]}.")
    if len(node.args) != 1 or node.keywords or (name not in FUNCTIONS and name != "abs"):
        raise ArgumentError("formula", f"cannot have {ast.unparse(node)!r}: known functions are {_known()}.")
    low, high = _interval(node.args[0], bounds)
    if name == "abs":
        return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    known = FUNCTIONS[name]
    if known.least is not None and (low < known.least or (known.open and low == known.least)):
        raise ArgumentError(
            "formula", f": {ast.unparse(node)!r} needs bounds above {known.least:g}; they begin at {low:g}."
        )
    try:
        return known.number(low), known.number(high)
    except OverflowError:
        return -math.inf, math.inf


def _known() -> str:
    return ", ".join((*FUNCTIONS, "abs", "I", "C", "poly", "bs"))


# --- values -----------------------------------------------------------------------------------------------------------


def values(xp: Namespace, text: str, columns: Mapping[str, Any], bounds: Mapping[str, Pair], part: int = 0) -> Array:
    """The expression's value in each row of clamped columns; NaN where one of them is missing."""
    node = _plain(parsed(text))
    if isinstance(node, ast.Call) and _name(node) in ("bs", "poly"):
        return _expanded(xp, node, columns, bounds, part)
    return _values(xp, node, columns)


def _values(xp: Namespace, node: ast.expr, columns: Mapping[str, Any]) -> Array:
    node = _plain(node)
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return columns[node.id]
    if isinstance(node, ast.UnaryOp):
        inner = _values(xp, node.operand, columns)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.Compare):
        a, b = _values(xp, node.left, columns), _values(xp, node.comparators[0], columns)
        known = 0.0 * (a + b)  # NaN where a side is missing
        return xp.where(_compared(node.ops[0], a, b), known + 1.0, known)
    if isinstance(node, ast.BinOp):
        a, b = _values(xp, node.left, columns), _values(xp, node.right, columns)
        return _ARITHMETIC[type(node.op)](a, b)
    assert isinstance(node, ast.Call)
    inner = _values(xp, node.args[0], columns)
    return (xp.abs if _name(node) == "abs" else getattr(xp, FUNCTIONS[_name(node)].name))(inner)


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}


def _compared(op: ast.cmpop, a: Any, b: Any) -> Any:
    return _COMPARISONS[type(op)](a, b)


def _expanded(
    xp: Namespace, node: ast.Call, columns: Mapping[str, Any], bounds: Mapping[str, Pair], part: int
) -> Array:
    """One column of a polynomial or a spline."""
    inner = _values(xp, node.args[0], columns)
    low, high = _interval(node.args[0], bounds)
    if _name(node) == "poly":
        if _poly(node)[1]:
            return inner ** (part + 1.0)
        t = (2 * inner - low - high) / (high - low)
        before, now = t * 0.0 + 1.0, t  # Legendre's polynomials on the bounds, by their recurrence
        for k in range(1, part + 1):
            before, now = now, ((2 * k + 1) * t * now - k * before) / (k + 1)
        return now
    knots, degree, intercept = _spline(node, (low, high))
    host = np.asarray(inner, dtype=float)
    place = part + (not intercept)
    basis = BSpline.basis_element(knots[place : place + degree + 2], extrapolate=False)
    at = np.where(np.isnan(host), low, host)
    # the last basis function counts at the upper bound, where all others are 0
    at = np.where(at >= high, np.nextafter(high, low), at)
    inside = np.nan_to_num(basis(at), nan=0.0)
    return np.where(np.isnan(host), np.nan, np.clip(inside, 0.0, 1.0))


def _poly(node: ast.Call) -> tuple[int, bool]:
    """The degree of poly(x, degree, raw=False), and whether it is of raw powers."""
    known = {keyword.arg: _constant(keyword.value) for keyword in node.keywords}
    degree = _constant(node.args[1]) if len(node.args) > 1 else known.get("degree", 1)
    if not isinstance(degree, int) or not 1 <= degree <= 9 or not set(known) <= {"degree", "raw"}:
        raise ArgumentError("formula", f": {ast.unparse(node)!r} must be poly(x, degree) with a degree from 1 to 9.")
    return degree, bool(known.get("raw", False))


def _spline(node: ast.Call, ends: Pair) -> tuple[FloatArray, int, bool]:
    """The knots of bs(x, knots=[…], degree=3, include_intercept=False) between the bounds, and its degree."""
    known = {keyword.arg: _constant(keyword.value) for keyword in node.keywords}
    knots, degree = known.get("knots"), known.get("degree", 3)
    right = isinstance(knots, list) and all(isinstance(k, int | float) and ends[0] < k < ends[1] for k in knots)
    if not right or not isinstance(degree, int) or not 1 <= degree <= 5 or len(node.args) != 1:
        raise ArgumentError(
            "formula",
            f": {ast.unparse(node)!r} would place knots by the rows: give public ones inside the bounds, "
            f"as in bs(x, knots=[{(ends[0] + ends[1]) / 2:g}]).",
        )
    assert isinstance(knots, list)
    low, high = ends
    inner = sorted(map(float, knots))
    return np.array([low] * (degree + 1) + inner + [high] * (degree + 1)), degree, bool(known.get("include_intercept"))


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
