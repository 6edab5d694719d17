"""The columns of an expression, several for ``poly`` and ``bs``: their intervals and their values."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import BSpline

from dpem.fitting.formula_terms import Arrays, Interval, Intervals, function_name, parsed, plain, refusal, walk
from dpem.query import Array
from dpem.tables.bounds import LARGEST, Pair
from dpem.tables.entries import Levels


@dataclass(frozen=True)
class Polynomial:
    """``poly(x, degree)``: the Legendre polynomials on the bounds of x, or with ``raw`` the powers of x."""

    inner: ast.expr
    ends: Interval
    parts: int
    raw: bool

    def interval(self, part: int) -> Interval:
        return self.ends ** Interval(part + 1.0, part + 1.0) if self.raw else Interval(-1.0, 1.0)

    def values(self, x: Array, part: int) -> Array:
        if self.raw:
            return x ** (part + 1.0)
        t = (2 * x - self.ends.low - self.ends.high) / (self.ends.high - self.ends.low)
        previous, current = t * 0.0 + 1.0, t
        for k in range(1, part + 1):  # (k + 1)·P_{k+1} = (2k + 1)·t·P_k − k·P_{k−1}
            previous, current = current, ((2 * k + 1) * t * current - k * previous) / (k + 1)
        return current


@dataclass(frozen=True)
class Spline:
    """``bs(x, knots=[…])``: B-splines between the bounds of x."""

    inner: ast.expr
    ends: Interval
    bases: tuple[BSpline, ...]

    @property
    def parts(self) -> int:
        return len(self.bases)

    def interval(self, part: int) -> Interval:
        return Interval(0.0, 1.0)

    def values(self, x: Array, part: int) -> Array:
        host = np.asarray(x, dtype=float)
        points = np.where(np.isnan(host), self.ends.low, host)
        # SciPy's bases are 0 at the upper bound, where the last one has the limit 1
        points = np.where(points >= self.ends.high, np.nextafter(self.ends.high, self.ends.low), points)
        basis = np.nan_to_num(self.bases[part](points), nan=0.0)
        return np.where(np.isnan(host), np.nan, np.clip(basis, 0.0, 1.0))


def expansion(text: str, domain: Intervals) -> Polynomial | Spline | None:
    """The columns of ``poly`` or ``bs``, or a refusal; None for any other expression."""
    node = plain(parsed(text))
    if not isinstance(node, ast.Call) or function_name(node) not in ("poly", "bs"):
        return None
    if not node.args:
        raise refusal(f"cannot have {ast.unparse(node)!r}: it needs a column, as in {function_name(node)}(x, …).")
    ends, shown = walk(node.args[0], domain), ast.unparse(node)
    if function_name(node) == "poly":
        options = _options(node, ("degree", "raw"))
        degree = options.get("degree", 1)
        if not isinstance(degree, int) or not 1 <= degree <= 9 or not set(options) <= {"degree", "raw"}:
            raise refusal(f"cannot have {shown!r}: write poly(x, degree) with a degree from 1 to 9.")
        return Polynomial(node.args[0], ends, degree, bool(options.get("raw", False)))
    options = _options(node, ("df", "knots", "degree", "include_intercept"))
    listed, degree = options.get("knots"), options.get("degree", 3)
    knots = sorted(listed) if isinstance(listed, list) and all(type(k) in (int, float) for k in listed) else []
    if not knots or not all(ends.low < k < ends.high for k in knots):
        example = f"bs(x, knots=[{(ends.low + ends.high) / 2:g}])"
        raise refusal(f"cannot have {shown!r}: give public knots inside the bounds, as in {example}.")
    known = set(options) <= {"knots", "degree", "include_intercept"}
    if not known or not isinstance(degree, int) or not 1 <= degree <= 5:
        raise refusal(f"cannot have {shown!r}: bs takes knots, a degree from 1 to 5 and include_intercept.")
    extended = np.array([ends.low] * (degree + 1) + knots + [ends.high] * (degree + 1), dtype=float)
    places = range(int(not options.get("include_intercept", False)), len(knots) + degree + 1)
    bases = (BSpline.basis_element(extended[place : place + degree + 2], extrapolate=False) for place in places)
    return Spline(node.args[0], ends, tuple(bases))


def _options(node: ast.Call, names: tuple[str, ...]) -> dict[str, object]:
    """The constant arguments after the first, by name."""
    named = dict(zip(names, node.args[1:], strict=False))
    named |= {keyword.arg or "**": keyword.value for keyword in node.keywords}
    return {name: _constant(value) for name, value in named.items()}


def _constant(node: ast.expr) -> object:
    """The number, Boolean, text or list (in R: c(…)) that a node stands for; None for anything else."""
    if isinstance(node, ast.Call) and function_name(node) == "c":
        node = ast.List(node.args)
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return list(value) if isinstance(value, tuple) else value


def interval(text: str, bounds: Mapping[str, Pair], part: int = 0, levels: Mapping[str, Levels] | None = None) -> Pair:
    """The interval of column ``part`` of an expression over these bounds.

    >>> interval("x**2", {"x": (-2.0, 1.0)}), interval("x * y", {"x": (-2.0, 1.0), "y": (0.0, 3.0)})
    ((0.0, 4.0), (-6.0, 3.0))
    """
    domain = Intervals(bounds, levels or {})
    columns = expansion(text, domain)
    ends = walk(parsed(text), domain) if columns is None else columns.interval(part)
    if not max(abs(ends.low), abs(ends.high)) <= LARGEST:
        raise refusal(f"cannot have {text!r}, which is not bounded over the bounds of its columns.")
    return ends.low, ends.high


def values(text: str, domain: Arrays, part: int = 0) -> Array:
    """The values of column ``part`` of an expression over clipped columns; NaN where one of them is missing."""
    node, columns = plain(parsed(text)), expansion(text, Intervals(domain.bounds, domain.levels))
    if isinstance(node, ast.Name):
        return domain.columns[node.id]
    return walk(node, domain) if columns is None else columns.values(walk(columns.inner, domain), part)
