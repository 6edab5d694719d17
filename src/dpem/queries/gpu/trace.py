"""A query's formula for one row, written down by asking the query.

A narrow query says in functions of the array API what a block of rows adds. Given a block of *one* row whose entries
are names, and a namespace that writes down what is done to them, it returns its own formula: what that row contributes.
:mod:`dpem.queries.gpu.triton_sums` makes a kernel of it. So the object that clips is still the one that states the
bound.

Where a query decides by what rows hold (is any value missing?), one answer is assumed and written down as a condition;
rows that do not meet it are not this formula's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Numbers that are part of a formula. All others are its parameters: a step with new ones has the same formula.
LITERALS = frozenset((0.0, 1.0, -1.0, 0.5, 2.0))
#: Longer formulas are not worth a compiler's time.
LONGEST = 20_000
#: Operations whose result is true or false.
BOOLEAN = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "isnan", "isfinite"))

_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "abs": abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
}


class Untraceable(Exception):
    """The query does something with a row that cannot be written down here."""


class Formula:
    """Operations in the order in which they are carried out: ``steps[i]`` is a name and the numbers of earlier steps.

    A step ``("x", j)`` is the row's entry j, ``("y",)`` its response, ``("parameter", k)`` a number that is given
    with the query and ``("literal", value)`` one that belongs to the formula. ``conditions`` must hold of a row;
    ``results`` are the steps that its contribution is made of.
    """

    def __init__(self, usual: bool) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self.parameters: list[float] = []
        self.conditions: list[int] = []
        self.results: list[int] = []
        self.usual = usual
        self._known: dict[tuple[Any, ...], int] = {}
        self._fixed: dict[int, float] = {}

    def step(self, *step: Any) -> int:
        """The number of a step, which is written down once."""
        at = self._known.get(step)
        if at is None:
            at = self._known[step] = len(self.steps)
            if at > LONGEST:
                raise Untraceable
            self.steps.append(step)
            if step[0] == "literal":
                self._fixed[at] = step[1]
        return at

    def parameter(self, value: float) -> int:
        self.parameters.append(value)
        at = self.step("parameter", len(self.parameters) - 1)
        self._fixed[at] = value
        return at

    def constant(self, at: int) -> float | None:
        """The value of a step that does not depend on the row."""
        return self._fixed.get(at)

    def apply(self, name: str, *of: int) -> int:
        """A step that applies an operation, or an earlier one where nothing is to be done."""
        first, last = of[0], of[-1]
        if name in _OF_NUMBERS and (first in self._fixed or last in self._fixed):
            known = self._of_constants(name, first, last, len(of))
            if known is not None:
                return known
        if first > last and (name == "add" or name == "mul"):
            return self.step(name, last, first)
        return self.step(name, *of)

    def _of_constants(self, name: str, first: int, last: int, count: int) -> int | None:
        """An operation of which a constant takes part, where it is not a step of its own."""
        a, b = self.steps[first], self.steps[last]
        if first in self._fixed and last in self._fixed:
            with np.errstate(all="ignore"):
                value = float(_OF_NUMBERS[name](*(np.float64(self._fixed[at]) for at in (first, last)[:count])))
            literal = a[0] == b[0] == "literal" and value in LITERALS
            return self.step("literal", value) if literal else self.parameter(value)
        if name == "div" and b[0] == "parameter":
            return self.step("over", first, last, self.apply("div", self.step("literal", 1.0), last))
        if name == "mul" and ("literal", 0.0) in (a, b) and "number" in (a[0], b[0]):
            return self.step("literal", 0.0)  # 0 times what is 0 or 1
        neutral = ("literal", 1.0 if name in ("mul", "div") else 0.0)
        if b == neutral and count == 2:
            return first
        return last if a == neutral and name in ("add", "mul") else None

    def total(self, items: list[int], chains: int = 1) -> int:
        """The sum of some steps, by fused multiplications and additions in several independent ``chains``."""
        if chains > 1 and len(items) > 2 * chains:
            return self.total([self.total(items[chain::chains]) for chain in range(chains)])
        at = items[0]
        for item in items[1:]:
            kind, *of = self.steps[item]
            at = self.step("fma", *of, at) if kind == "mul" else self.apply("add", at, item)
        return at


class Traced:
    """An array of steps: ``at`` holds their numbers. ``usual`` says what a query may assume of a yes or no."""

    __array_ufunc__ = None  # numpy leaves its operators to this class
    __hash__ = None  # type: ignore[assignment]
    device = None

    def __init__(self, formula: Formula, at: NDArray[np.intp], usual: bool | None = None) -> None:
        self.formula, self.at, self.usual = formula, at, usual

    shape = property(lambda self: self.at.shape)
    ndim = property(lambda self: self.at.ndim)
    T = property(lambda self: Traced(self.formula, self.at.T))

    def __getitem__(self, key: Any) -> Traced:
        return Traced(self.formula, np.asarray(self.at[key]))

    def __bool__(self) -> bool:
        if self.usual is None:
            raise Untraceable
        answer = self.usual == self.formula.usual
        at = int(self.at)
        self.formula.conditions.append(at if answer else self.formula.apply("not", at))
        return answer

    def __int__(self) -> int:
        """How many rows are something: none, usually."""
        kind, *of = self.formula.steps[int(self.at)]
        if kind != "number" or not self.formula.usual:
            raise Untraceable
        self.formula.conditions.append(self.formula.apply("not", *of))
        return 0

    def __pow__(self, power: Any) -> Traced:
        if power != 2:
            raise Untraceable
        return _each("mul", self, self)

    def __matmul__(self, other: Any) -> Traced:
        return _matmul(self, other)


def _binary(name: str, swapped: bool = False) -> Any:
    if swapped:
        return lambda self, other: _each(name, other, self)
    return lambda self, other: _each(name, self, other)


for _method, _name in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "and": "and", "or": "or"}.items():
    setattr(Traced, f"__{_method}__", _binary(_name))
    setattr(Traced, f"__r{_method}__", _binary(_name, swapped=True))
for _method in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Traced, f"__{_method}__", _binary(_method))
for _method, _name in {"neg": "neg", "invert": "not", "abs": "abs"}.items():
    setattr(Traced, f"__{_method}__", lambda self, name=_name: _each(name, self))


def _steps(formula: Formula, value: Any) -> NDArray[np.intp]:
    """The steps of an array; of numbers all literals, or all parameters."""
    if isinstance(value, Traced):
        return value.at
    if isinstance(value, float):
        return np.array(formula.step("literal", value) if value in LITERALS else formula.parameter(float(value)))
    numbers = np.asarray(value, dtype=np.float64)
    flat = numbers.ravel().tolist()
    known = all(number in LITERALS for number in flat)
    found = [formula.step("literal", v) if known else formula.parameter(v) for v in flat]
    return np.array(found, dtype=np.intp).reshape(numbers.shape)


def _each(name: str, *arrays: Any) -> Traced:
    """An operation on every entry of arrays, broadcast."""
    formula = next(array.formula for array in arrays if isinstance(array, Traced))
    steps = [_steps(formula, array) for array in arrays]
    shape = steps[0].shape if len(steps) == 1 else np.broadcast(*steps).shape
    if name == "div" and formula.constant(int(steps[1].flat[0])) is None:
        under = steps[1].ravel().tolist()
        if 2 * len(set(under)) <= math.prod(shape):  # several numbers over one
            name, one = "over", formula.step("literal", 1.0)
            inverse = [formula.apply("div", one, at) for at in under]
            steps.append(np.array(inverse, dtype=np.intp).reshape(steps[1].shape))
    wide = (part if part.shape == shape else np.broadcast_to(part, shape) for part in steps)
    flat = zip(*(part.ravel().tolist() for part in wide), strict=True)
    return Traced(formula, np.array([formula.apply(name, *at) for at in flat], dtype=np.intp).reshape(shape))


def _folded(x: Traced, axis: Any, fold: Callable[[list[int]], int], keepdims: bool) -> Traced:
    """An array folded along one axis, or along all of them."""
    if isinstance(axis, tuple):
        raise Untraceable
    lines = x.at.reshape(1, -1) if axis is None else np.moveaxis(x.at, axis, -1).reshape(-1, x.shape[axis])
    shape = () if axis is None else tuple(np.delete(x.shape, axis))
    out = np.array([fold(line) for line in lines.tolist()], dtype=np.intp).reshape(shape)
    return Traced(x.formula, np.expand_dims(out, axis) if keepdims else out)


def _matmul(a: Any, b: Any) -> Traced:
    formula = (a if isinstance(a, Traced) else b).formula
    left, right = _steps(formula, a), _steps(formula, b)
    if max(left.ndim, right.ndim) > 2:
        raise Untraceable
    rows = (left if left.ndim == 2 else left[None, :]).tolist()
    columns = (right.T if right.ndim == 2 else right[None, :]).tolist()
    chains = 3 if len(rows) * len(columns) == 1 else 1
    pairs = [[list(zip(row, column, strict=True)) for column in columns] for row in rows]
    out = [[formula.total([formula.apply("mul", i, j) for i, j in each], chains) for each in line] for line in pairs]
    whole = np.array(out, dtype=np.intp)
    whole = whole if left.ndim == 2 else whole[0]
    return Traced(formula, whole if right.ndim == 2 else whole[..., 0])


class Writing:
    """The functions of the array API that queries use, writing down what they do."""

    float64, int64, nan = np.float64, np.int64, np.nan
    matmul = staticmethod(_matmul)

    def __init__(self, formula: Formula) -> None:
        self._formula = formula

    def _traced(self, at: Any, usual: bool | None = None) -> Traced:
        return Traced(self._formula, np.asarray(at, dtype=np.intp), usual)

    def _repeated(self, name: str, items: list[int]) -> int:
        at = items[0]
        for item in items[1:]:
            at = self._formula.apply(name, at, item)
        return at

    def sum(self, x: Traced, axis: Any = None, keepdims: bool = False) -> Traced:
        return _folded(x, axis, partial(self._formula.total, chains=3), keepdims)

    def max(self, x: Traced, axis: Any = None, keepdims: bool = False) -> Traced:
        return _folded(x, axis, partial(self._repeated, "maximum"), keepdims)

    def all(self, x: Traced, axis: Any = None) -> Traced:
        return self._traced(_folded(x, axis, partial(self._repeated, "and"), False).at, True if axis is None else None)

    def any(self, x: Traced, axis: Any = None) -> Traced:
        return self._traced(_folded(x, axis, partial(self._repeated, "or"), False).at, False if axis is None else None)

    def clip(self, x: Traced, low: Any = None, high: Any = None) -> Traced:
        for limit, beyond in ((low, "lt"), (high, "gt")):
            if limit is not None:
                level = self._traced(_steps(self._formula, limit))
                x = _each("where", _each(beyond, x, level), level, x)
        return x

    def nonzero(self, x: Traced) -> tuple[NDArray[np.intp]]:
        """The places of the rows that are something: none, usually."""
        formula = self._formula
        if not formula.usual:
            raise Untraceable
        formula.conditions.extend(formula.apply("not", at) for at in x.at.ravel().tolist())
        return (np.empty(0, dtype=np.intp),)

    def full_like(self, x: Traced, value: float) -> Traced:
        return self._traced(np.full(x.shape, int(_steps(self._formula, value))))

    def zeros_like(self, x: Traced) -> Traced:
        return self.full_like(x, 0.0)

    def ones_like(self, x: Traced) -> Traced:
        return self.full_like(x, 1.0)

    def astype(self, x: Traced, dtype: Any, copy: bool = True) -> Traced:
        steps = self._formula.steps
        return _each("number", x) if all(steps[at][0] in BOOLEAN for at in x.at.ravel().tolist()) else x

    def asarray(self, values: NDArray[Any], dtype: Any = None, device: Any = None) -> Any:
        return self._traced(_steps(self._formula, values)) if values.dtype == np.float64 else values

    def take(self, x: Traced, places: NDArray[np.intp], axis: int) -> Traced:
        return self._traced(np.take(x.at, places, axis=axis))

    def concat(self, arrays: Any, axis: int = 0) -> Traced:
        return self._traced(np.concatenate([_steps(self._formula, array) for array in arrays], axis=axis))

    def stack(self, arrays: Any, axis: int = 0) -> Traced:
        return self._traced(np.stack([_steps(self._formula, array) for array in arrays], axis=axis))

    def reshape(self, x: Traced, shape: Any) -> Traced:
        return self._traced(np.reshape(x.at, shape))

    def matrix_transpose(self, x: Traced) -> Traced:
        return self._traced(np.swapaxes(x.at, -1, -2))


_ELEMENTWISE = ("sqrt", "exp", "log", "tanh", "sin", "cos", "floor", "abs", "isnan", "isfinite")
for _name in (*_ELEMENTWISE, "where", "maximum", "minimum"):
    setattr(Writing, _name, staticmethod(partial(_each, _name)))


def formula_of(query: Any, *, response: bool, usual: bool = True) -> Formula | None:
    """The formula of what one row adds to a query's sum; None where it cannot be written down.

    With ``usual`` False it is the formula of rows for which the query's decisions are answered the other way.
    """
    formula = Formula(usual)
    x = Traced(formula, np.array([[formula.step("x", j) for j in range(len(query.reads))]], dtype=np.intp))
    y = Traced(formula, np.array([formula.step("y")], dtype=np.intp)) if response else None
    try:
        formula.results = query.block(Writing(formula), x, y).at.ravel().tolist()
    except (Untraceable, AttributeError, TypeError):
        return None
    return formula if usual or formula.conditions else None
