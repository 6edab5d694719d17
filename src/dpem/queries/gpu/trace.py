"""The formula of a query for one row, obtained by tracing the query.

A narrow query computes the sum over a block of rows with functions of the array API. Called with a block of *one*
symbolic row, and a namespace that records each operation, it returns its own formula: the contribution of that row.
:mod:`dpem.queries.gpu.triton_sums` compiles the formula to a kernel. So the object that clips is still the one that
states the bound.

If a query branches on values (is any value missing?), one answer is assumed and recorded as a condition; the formula
holds for rows that meet its conditions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Numbers that are part of a formula. All others are parameters: queries that differ in them share a kernel.
LITERALS = frozenset((0.0, 1.0, -1.0, 0.5, 2.0))
#: The most operations of a formula; a longer one takes too long to compile.
LONGEST = 20_000
#: Operations whose result is true or false.
BOOLEAN = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "isnan", "isfinite"))

_ON_CONSTANTS: dict[str, Callable[..., Any]] = {
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
    """The query uses an operation that cannot be traced."""


class Formula:
    """A sequence of operations: ``steps[i]`` is the name of an operation and the indices of the steps it is applied to.

    The step ``("x", j)`` is the row's entry j, ``("y",)`` its response, ``("parameter", k)`` a number of the query,
    and ``("literal", value)`` a number of the formula. ``conditions`` are the steps that must be true of a row;
    ``results`` are those of its contribution. ``usual`` says which answer is assumed where the query branches.
    """

    def __init__(self, usual: bool) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self.parameters: list[float] = []
        self.conditions: list[int] = []
        self.results: list[int] = []
        self.usual = usual
        self._index_of: dict[tuple[Any, ...], int] = {}
        self._constants: dict[int, float] = {}

    def step(self, *step: Any) -> int:
        """The index of a step, which is recorded once."""
        index = self._index_of.get(step)
        if index is None:
            index = self._index_of[step] = len(self.steps)
            if index > LONGEST:
                raise Untraceable
            self.steps.append(step)
            if step[0] == "literal":
                self._constants[index] = step[1]
        return index

    def parameter(self, value: float) -> int:
        self.parameters.append(value)
        index = self.step("parameter", len(self.parameters) - 1)
        self._constants[index] = value
        return index

    def constant(self, index: int) -> float | None:
        """The value of a step that does not depend on the row."""
        return self._constants.get(index)

    def apply(self, name: str, *of: int) -> int:
        """The index of a step that applies an operation, or of an earlier step with the same value."""
        first, last = of[0], of[-1]
        if name in _ON_CONSTANTS and (first in self._constants or last in self._constants):
            simplified = self._apply_to_constants(name, first, last, len(of))
            if simplified is not None:
                return simplified
        if first > last and (name == "add" or name == "mul"):
            return self.step(name, last, first)
        return self.step(name, *of)

    def _apply_to_constants(self, name: str, first: int, last: int, count: int) -> int | None:
        """The simplified step of an operation with a constant; None if it cannot be simplified."""
        a, b = self.steps[first], self.steps[last]
        if first in self._constants and last in self._constants:
            with np.errstate(all="ignore"):
                value = float(
                    _ON_CONSTANTS[name](*(np.float64(self._constants[index]) for index in (first, last)[:count]))
                )
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
        """The sum of some steps, by fused multiply-add operations in several independent ``chains``."""
        if chains > 1 and len(items) > 2 * chains:
            return self.total([self.total(items[chain::chains]) for chain in range(chains)])
        index = items[0]
        for item in items[1:]:
            kind, *of = self.steps[item]
            index = self.step("fma", *of, index) if kind == "mul" else self.apply("add", index, item)
        return index


class TracedArray:
    """An array of steps of a formula, by their ``indices``. ``usual`` is the usual truth value of a Boolean array."""

    __array_ufunc__ = None  # NumPy then calls the operators of this class
    __hash__ = None  # type: ignore[assignment]
    device = None

    def __init__(self, formula: Formula, index: NDArray[np.intp], usual: bool | None = None) -> None:
        self.formula, self.indices, self.usual = formula, index, usual

    shape = property(lambda self: self.indices.shape)
    ndim = property(lambda self: self.indices.ndim)
    T = property(lambda self: TracedArray(self.formula, self.indices.T))

    def __getitem__(self, key: Any) -> TracedArray:
        return TracedArray(self.formula, np.asarray(self.indices[key]))

    def __bool__(self) -> bool:
        if self.usual is None:
            raise Untraceable
        answer = self.usual == self.formula.usual
        index = int(self.indices)
        self.formula.conditions.append(index if answer else self.formula.apply("not", index))
        return answer

    def __int__(self) -> int:
        """The number of rows for which a Boolean step is true, usually 0."""
        kind, *of = self.formula.steps[int(self.indices)]
        if kind != "number" or not self.formula.usual:
            raise Untraceable
        self.formula.conditions.append(self.formula.apply("not", *of))
        return 0

    def __pow__(self, power: Any) -> TracedArray:
        if power != 2:
            raise Untraceable
        return _elementwise("mul", self, self)

    def __matmul__(self, other: Any) -> TracedArray:
        return _matmul(self, other)


def _binary(name: str, swapped: bool = False) -> Any:
    if swapped:
        return lambda self, other: _elementwise(name, other, self)
    return lambda self, other: _elementwise(name, self, other)


for _method, _name in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "and": "and", "or": "or"}.items():
    setattr(TracedArray, f"__{_method}__", _binary(_name))
    setattr(TracedArray, f"__r{_method}__", _binary(_name, swapped=True))
for _method in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(TracedArray, f"__{_method}__", _binary(_method))
for _method, _name in {"neg": "neg", "invert": "not", "abs": "abs"}.items():
    setattr(TracedArray, f"__{_method}__", lambda self, name=_name: _elementwise(name, self))


def _steps(formula: Formula, value: Any) -> NDArray[np.intp]:
    """The indices of an array's steps. An array of numbers becomes literals if all are literals, else parameters."""
    if isinstance(value, TracedArray):
        return value.indices
    if isinstance(value, float):
        return np.array(formula.step("literal", value) if value in LITERALS else formula.parameter(float(value)))
    numbers = np.asarray(value, dtype=np.float64)
    flat = numbers.ravel().tolist()
    are_literals = all(number in LITERALS for number in flat)
    indices = [formula.step("literal", v) if are_literals else formula.parameter(v) for v in flat]
    return np.array(indices, dtype=np.intp).reshape(numbers.shape)


def _elementwise(name: str, *arrays: Any) -> TracedArray:
    """An operation on the entries of arrays, with broadcasting."""
    formula = next(array.formula for array in arrays if isinstance(array, TracedArray))
    steps = [_steps(formula, array) for array in arrays]
    shape = steps[0].shape if len(steps) == 1 else np.broadcast(*steps).shape
    if name == "div" and formula.constant(int(steps[1].flat[0])) is None:
        divisors = steps[1].ravel().tolist()
        if 2 * len(set(divisors)) <= math.prod(shape):  # several numbers share a divisor
            name, one = "over", formula.step("literal", 1.0)
            inverse = [formula.apply("div", one, index) for index in divisors]
            steps.append(np.array(inverse, dtype=np.intp).reshape(steps[1].shape))
    wide = (part if part.shape == shape else np.broadcast_to(part, shape) for part in steps)
    flat = zip(*(part.ravel().tolist() for part in wide), strict=True)
    return TracedArray(formula, np.array([formula.apply(name, *index) for index in flat], dtype=np.intp).reshape(shape))


def _reduce(x: TracedArray, axis: Any, fold: Callable[[list[int]], int], keepdims: bool) -> TracedArray:
    """An array reduced along one axis, or along all axes."""
    if isinstance(axis, tuple):
        raise Untraceable
    lines = x.indices.reshape(1, -1) if axis is None else np.moveaxis(x.indices, axis, -1).reshape(-1, x.shape[axis])
    shape = () if axis is None else tuple(np.delete(x.shape, axis))
    out = np.array([fold(line) for line in lines.tolist()], dtype=np.intp).reshape(shape)
    return TracedArray(x.formula, np.expand_dims(out, axis) if keepdims else out)


def _matmul(a: Any, b: Any) -> TracedArray:
    formula = (a if isinstance(a, TracedArray) else b).formula
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
    return TracedArray(formula, whole if right.ndim == 2 else whole[..., 0])


class TracingNamespace:
    """The functions of the array API that queries use, each of which records its operation."""

    float64, int64, nan = np.float64, np.int64, np.nan
    matmul = staticmethod(_matmul)

    def __init__(self, formula: Formula) -> None:
        self._formula = formula

    def _traced(self, index: Any, usual: bool | None = None) -> TracedArray:
        return TracedArray(self._formula, np.asarray(index, dtype=np.intp), usual)

    def _repeated(self, name: str, items: list[int]) -> int:
        index = items[0]
        for item in items[1:]:
            index = self._formula.apply(name, index, item)
        return index

    def sum(self, x: TracedArray, axis: Any = None, keepdims: bool = False) -> TracedArray:
        return _reduce(x, axis, partial(self._formula.total, chains=3), keepdims)

    def max(self, x: TracedArray, axis: Any = None, keepdims: bool = False) -> TracedArray:
        return _reduce(x, axis, partial(self._repeated, "maximum"), keepdims)

    def all(self, x: TracedArray, axis: Any = None) -> TracedArray:
        return self._traced(
            _reduce(x, axis, partial(self._repeated, "and"), False).indices, True if axis is None else None
        )

    def any(self, x: TracedArray, axis: Any = None) -> TracedArray:
        return self._traced(
            _reduce(x, axis, partial(self._repeated, "or"), False).indices, False if axis is None else None
        )

    def clip(self, x: TracedArray, low: Any = None, high: Any = None) -> TracedArray:
        for limit, beyond in ((low, "lt"), (high, "gt")):
            if limit is not None:
                level = self._traced(_steps(self._formula, limit))
                x = _elementwise("where", _elementwise(beyond, x, level), level, x)
        return x

    def nonzero(self, x: TracedArray) -> tuple[NDArray[np.intp]]:
        """The indices of the rows for which a Boolean step is true, usually none."""
        formula = self._formula
        if not formula.usual:
            raise Untraceable
        formula.conditions.extend(formula.apply("not", index) for index in x.indices.ravel().tolist())
        return (np.empty(0, dtype=np.intp),)

    def full_like(self, x: TracedArray, value: float) -> TracedArray:
        return self._traced(np.full(x.shape, int(_steps(self._formula, value))))

    zeros_like = partialmethod(full_like, value=0.0)
    ones_like = partialmethod(full_like, value=1.0)

    def astype(self, x: TracedArray, dtype: Any, copy: bool = True) -> TracedArray:
        steps = self._formula.steps
        return (
            _elementwise("number", x) if all(steps[index][0] in BOOLEAN for index in x.indices.ravel().tolist()) else x
        )

    def asarray(self, values: NDArray[Any], dtype: Any = None, device: Any = None) -> Any:
        return self._traced(_steps(self._formula, values)) if values.dtype == np.float64 else values

    def take(self, x: TracedArray, places: NDArray[np.intp], axis: int) -> TracedArray:
        return self._traced(np.take(x.indices, places, axis=axis))

    def concat(self, arrays: Any, axis: int = 0) -> TracedArray:
        return self._traced(np.concatenate([_steps(self._formula, array) for array in arrays], axis=axis))

    def stack(self, arrays: Any, axis: int = 0) -> TracedArray:
        return self._traced(np.stack([_steps(self._formula, array) for array in arrays], axis=axis))

    def reshape(self, x: TracedArray, shape: Any) -> TracedArray:
        return self._traced(np.reshape(x.indices, shape))

    def matrix_transpose(self, x: TracedArray) -> TracedArray:
        return self._traced(np.swapaxes(x.indices, -1, -2))


_ELEMENTWISE = ("sqrt", "exp", "log", "tanh", "sin", "cos", "floor", "abs", "isnan", "isfinite")
for _name in (*_ELEMENTWISE, "where", "maximum", "minimum"):
    setattr(TracingNamespace, _name, staticmethod(partial(_elementwise, _name)))


def formula_of(query: Any, *, response: bool, usual: bool = True) -> Formula | None:
    """The formula of the contribution of one row; None if the query cannot be traced.

    With ``usual`` False, it is the formula for rows at which the query's branches have the other answer.
    """
    formula = Formula(usual)
    x = TracedArray(formula, np.array([[formula.step("x", j) for j in range(len(query.reads))]], dtype=np.intp))
    y = TracedArray(formula, np.array([formula.step("y")], dtype=np.intp)) if response else None
    try:
        formula.results = query.block(TracingNamespace(formula), x, y).indices.ravel().tolist()
    except (Untraceable, AttributeError, TypeError):
        return None
    return formula if usual or formula.conditions else None
