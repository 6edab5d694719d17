"""The source text of a Triton kernel that evaluates a formula for every row and adds the results."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import Any, NamedTuple

from dpem.queries.gpu.trace import BOOLEAN, Formula

#: The most sums of one kernel; more do not fit in a thread's registers.
SUMS = 112

#: Operations that cost tens of additions.
_COSTLY = frozenset(("div", "sqrt", "exp", "log", "sin", "cos", "tanh"))

_SYNTAX = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "over": "over({0}, {1}, {2})",
    "fma": "tl.fma({0}, {1}, {2})",
    "less": "tl.fma({0}, {1}, -{2})",
    "from": "tl.fma(-{0}, {1}, {2})",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "sqrt": "tl.sqrt({0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "tanh": "libdevice.tanh({0})",
    "floor": "tl.floor({0})",
    "isnan": "{0} != {0}",
    "isfinite": "tl.abs({0}) < infinite",
    "number": "tl.where({0}, one, zero)",
    "where": "tl.where({0}, {1}, {2})",
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "~{0}",
}

_KERNEL = """
def rows_kernel(
    X, stride: tl.int64, y, y_stride: tl.int64, n: tl.int64, good, out, unit: tl.float64,{arguments}
    ROWS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr
):
    program = tl.program_id(0).to(tl.int64)
    infinite = tl.full((), float("inf"), tl.float64)
{before}
    for step in tl.range(0, STEPS, num_stages=STAGES):
        row = (program * STEPS + step) * ROWS + tl.arange(0, ROWS)
        ok = row < n
{body}
{after}
"""


class Kernel(NamedTuple):
    """A kernel's text, the indices of the columns and parameters that it takes, and for each of its sums the constant
    steps by which it must still be multiplied.
    """

    text: str
    columns: list[int]
    parameters: list[int]
    factors: list[list[int]]

    def factor(self, formula: Formula, k: int) -> float:
        product = 1.0
        for index in self.factors[k]:
            value = formula.constant(index)
            assert value is not None
            product *= value
        return product


def parts(formula: Formula) -> list[list[int]]:
    """The indices of the results in parts of at most :data:`SUMS`; results of neighbouring steps share a part."""
    order = sorted(range(len(formula.results)), key=lambda k: formula.results[k])
    count = -(-len(order) // SUMS)
    cuts = [round(k * len(order) / count) for k in range(count + 1)]
    return [order[a:b] for a, b in itertools.pairwise(cuts)]


def summing(formula: Formula, part: list[int]) -> Kernel:
    """The kernel that adds some results of a formula over the rows, and counts the rows that meet its conditions.

    Its text depends on the formula's steps, not on the values of its parameters.
    """
    results = tuple(formula.results[k] for k in part)
    return _summing(tuple(formula.steps), results, tuple(dict.fromkeys(formula.conditions)))


@functools.lru_cache(maxsize=256)
def _summing(steps: tuple[Any, ...], results: tuple[int, ...], conditions: tuple[int, ...]) -> Kernel:
    factors, bare = zip(*(_without_factors(steps, index) for index in results), strict=True)
    writer, p = _Writer(steps, bare, conditions), len(results)
    writer.write_steps()
    if conditions:
        writer.body.append("tl.store(good + row, ok.to(tl.int8), mask=ok)")
    writer.body.append("met += tl.where(ok, 1, 0)")
    writer.write_sums()
    zeros = [*(f"s{k} = tl.zeros((ROWS,), tl.float64)" for k in range(p)), "met = tl.zeros((ROWS,), tl.int32)"]
    ends = [*(f"s{k}" for k in range(p)), "met"]
    stores = [f"tl.store(out + program * {p + 1} + {k}, tl.sum({end}, axis=0))" for k, end in enumerate(ends)]
    return Kernel(writer.text(zeros, stores), writer.columns, writer.parameters, list(factors))


def _without_factors(steps: tuple[Any, ...], index: int) -> tuple[list[int], int]:
    """The constant factors of a step, and the remaining step: the sum is multiplied by them once, not each row."""
    factors: list[int] = []
    while True:
        kind, *of = steps[index]
        constant = [i for i in of if steps[i][0] == "parameter"] if kind in ("mul", "over") else []
        if not constant:
            return factors, index
        factors.append(constant[-1])  # of a quotient, the reciprocal
        index = next(i for i in of if i not in constant)


def _operands(step: tuple[Any, ...]) -> tuple[int, ...]:
    return step[1:] if step[0] in _SYNTAX else ()


def _needed(steps: tuple[Any, ...], ends: set[int]) -> list[int]:
    """The steps that these outputs depend on."""
    needed = set(ends)
    for index in range(len(steps) - 1, -1, -1):
        if index in needed:
            needed.update(_operands(steps[index]))
    return sorted(needed)


def _fused(steps: tuple[Any, ...], ends: set[int], conditions: tuple[int, ...]) -> tuple[Any, ...]:
    """The steps with fused multiply-add operations for products that are used once, in a sum. Steps that conditions
    depend on stay as they are, so that every kernel of a query decides them alike, to the last bit.
    """
    exact = set(_needed(steps, set(conditions)))
    needed = [index for index in _needed(steps, ends) if index not in exact]
    uses = Counter(i for index in {*needed, *exact} for i in _operands(steps[index]))
    uses.update(ends)
    out = list(steps)
    for index in needed:
        kind, *of = steps[index]
        single = [i for i in of if steps[i][0] == "mul" and uses[i] == 1] if kind in ("add", "sub") else []
        if single:
            other = of[1] if single[0] == of[0] else of[0]
            name = "fma" if kind == "add" else "less" if single[0] == of[0] else "from"
            out[index] = (name, *steps[single[0]][1:], other)
    return tuple(out)


class _Writer:
    """Writes the steps of a formula that some results depend on.

    Values that cost little are not kept for the sums, where they would take registers. They are computed again from a
    few *kept* values times the argument ``unit``, which is 1: so the compiler cannot reuse the first computation.
    """

    def __init__(self, steps: tuple[Any, ...], results: tuple[int, ...], conditions: tuple[int, ...]) -> None:
        self.steps = _fused(steps, {*results, *conditions}, conditions)
        self.results, self.conditions = results, conditions
        self.needed = _needed(self.steps, {*results, *conditions})
        self.columns: list[int] = []
        self.parameters: list[int] = []
        self.body: list[str] = []
        self.literals = {"zero": 0.0, "one": 1.0}
        self._recomputed_names: dict[int, str] = {}
        self._choose_kept()

    def operands(self, index: int) -> tuple[int, ...]:
        return _operands(self.steps[index])

    def text(self, before: list[str], after: list[str]) -> str:
        """The text of the kernel, with the lines before the first row and after the last one."""
        before = [*(f"{name} = tl.full((), {value!r}, tl.float64)" for name, value in self.literals.items()), *before]
        return _KERNEL.format(
            arguments="".join(
                [f" c{j}: tl.int64," for j in range(len(self.columns))]
                + [f" p{k}: tl.float64," for k in self.parameters]
            ),
            before="\n".join("    " + line for line in before),
            body="\n".join("        " + line for line in self.body),
            after="\n".join("    " + line for line in after),
        )

    def _choose_kept(self) -> None:
        """Find the steps that depend on a costly one, and choose which of the others are kept."""
        uses = Counter(i for index in self.needed for i in self.operands(index))
        self.costly: set[int] = set()
        self.kept: set[int] = set()
        recomputed: dict[int, set[int]] = {}  # the steps that would have to be computed again
        for index in self.needed:
            kind, of = self.steps[index][0], self.operands(index)
            if kind in _COSTLY or any(i in self.costly for i in of):
                self.costly.add(index)
                continue
            recomputed[index] = {index}.union(*(recomputed[i] for i in of if i not in self.kept)) if of else set()
            many = len(recomputed[index])
            if kind in ("x", "y") or kind in BOOLEAN or (uses[index] > 2 and many > 3) or many > 12:
                self.kept.add(index)

    def name(self, index: int) -> str:
        kind, *of = self.steps[index]
        return f"p{of[0]}" if kind == "parameter" else f"v{index}"

    def write_steps(self) -> None:
        """Write every step, in order."""
        for index in self.needed:
            kind, *of = self.steps[index]
            if kind == "parameter":
                self.parameters.append(of[0])
            elif kind == "literal":
                self.literals[f"v{index}"] = of[0]
            elif kind in ("x", "y"):
                place = f"X + row * stride + c{len(self.columns)}" if kind == "x" else "y + row * y_stride"
                self.columns += of
                self.body.append(f"v{index} = tl.load({place}, mask=ok, other=0.0).to(tl.float64)")
            else:
                self.body.append(f"v{index} = {_SYNTAX[kind].format(*map(self.name, of))}")
        self.body += [f"ok = ok & v{index}" for index in self.conditions]

    def write_sums(self) -> None:
        """Write the addition of every result. A row beyond the table, or that does not meet the conditions, adds 0: at
        least one factor of a product is set to 0, and both if the other could be NaN.
        """
        products = [self.steps[index][1:] for index in self.results if self.steps[index][0] == "mul"]
        masked = _cover(products) | (
            {i for pair in products for i in pair if not self._is_always_number(i)} if self.conditions else set()
        )
        names: dict[int, str] = {}

        def factor(index: int) -> str:
            if index not in names:
                names[index] = self._name_in_sums(index)
                if index in masked:
                    self.body.append(f"z{index} = tl.where(ok, {names[index]}, zero)")
                    names[index] = f"z{index}"
            return names[index]

        for k, index in enumerate(self.results):
            kind, *of = self.steps[index]
            if kind == "mul":
                self.body.append(f"s{k} = tl.fma({factor(of[0])}, {factor(of[1])}, s{k})")
            else:
                masked.add(index)
                self.body.append(f"s{k} += {factor(index)}")

    def _is_always_number(self, index: int) -> bool:
        """Whether a step is a number even if entries of the row are NaN."""
        kind, *of = self.steps[index]
        if kind in ("parameter", "literal", "number"):
            return True
        if kind == "where" and self.steps[of[0]] == ("isfinite", of[1]):
            return self._is_always_number(of[2])
        return kind in ("add", "sub", "mul", "fma", "less", "from", "over") and all(map(self._is_always_number, of))

    def _name_in_sums(self, index: int) -> str:
        """A step's name among the sums."""
        kind, *of = self.steps[index]
        if index in self.costly or kind in ("parameter", "literal") or kind in BOOLEAN:
            return self.name(index)
        if index not in self._recomputed_names:
            value = f"v{index} * unit" if index in self.kept else _SYNTAX[kind].format(*map(self._name_in_sums, of))
            self.body.append(f"w{index} = {value}")
            self._recomputed_names[index] = f"w{index}"
        return self._recomputed_names[index]


def _cover(pairs: list[tuple[int, ...]]) -> set[int]:
    """A small set of numbers that contains one of every pair (greedy)."""
    uncovered, cover = list(pairs), set()
    while uncovered:
        cover.add(Counter(i for pair in uncovered for i in set(pair)).most_common(1)[0][0])
        uncovered = [pair for pair in uncovered if not cover.intersection(pair)]
    return cover
