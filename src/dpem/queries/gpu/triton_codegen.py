"""The text of a kernel that carries out a formula for every row, in Triton's language."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import Any, NamedTuple

from dpem.queries.gpu.trace import BOOLEAN, Formula

#: Sums of one kernel: more do not fit a thread's registers.
SUMS = 112

#: Operations that cost tens of others.
_COSTLY = frozenset(("div", "sqrt", "exp", "log", "sin", "cos", "tanh"))

_TEXT = {
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
    """A kernel's text; the columns it reads and the parameters it takes, as places among those of the formula; and of
    each of its sums the constant step by which it is to be multiplied, if there are some.
    """

    text: str
    columns: list[int]
    parameters: list[int]
    factors: list[list[int]]

    def factor(self, formula: Formula, k: int) -> float:
        product = 1.0
        for at in self.factors[k]:
            value = formula.constant(at)
            assert value is not None
            product *= value
        return product


def parts(formula: Formula) -> list[list[int]]:
    """The places of the results in parts of at most :data:`SUMS`, those that are computed together in one."""
    order = sorted(range(len(formula.results)), key=lambda k: formula.results[k])
    count = -(-len(order) // SUMS)
    cuts = [round(k * len(order) / count) for k in range(count + 1)]
    return [order[a:b] for a, b in itertools.pairwise(cuts)]


def summing(formula: Formula, part: list[int]) -> Kernel:
    """The kernel that adds some results of a formula over the rows, and last counts the rows that meet its conditions.

    Its text depends on the formula's steps alone and not on its parameters.
    """
    results = tuple(formula.results[k] for k in part)
    return _summing(tuple(formula.steps), results, tuple(dict.fromkeys(formula.conditions)))


@functools.lru_cache(maxsize=256)
def _summing(steps: tuple[Any, ...], results: tuple[int, ...], conditions: tuple[int, ...]) -> Kernel:
    factors, bare = zip(*(_without_factors(steps, at) for at in results), strict=True)
    writer, p = _Writer(steps, bare, conditions), len(results)
    writer.early()
    if conditions:
        writer.body.append("tl.store(good + row, ok.to(tl.int8), mask=ok)")
    writer.body.append("met += tl.where(ok, 1, 0)")
    writer.sums()
    zeros = [*(f"s{k} = tl.zeros((ROWS,), tl.float64)" for k in range(p)), "met = tl.zeros((ROWS,), tl.int32)"]
    ends = [*(f"s{k}" for k in range(p)), "met"]
    stores = [f"tl.store(out + program * {p + 1} + {k}, tl.sum({end}, axis=0))" for k, end in enumerate(ends)]
    return Kernel(writer.text(zeros, stores), writer.columns, writer.parameters, list(factors))


def _without_factors(steps: tuple[Any, ...], at: int) -> tuple[list[int], int]:
    """The constants by which a step multiplies another one, and that one: a sum is multiplied once, not each row."""
    factors: list[int] = []
    while True:
        kind, *of = steps[at]
        constant = [i for i in of if steps[i][0] == "parameter"] if kind in ("mul", "over") else []
        if not constant:
            return factors, at
        factors.append(constant[-1])  # of a quotient, the reciprocal
        at = next(i for i in of if i not in constant)


def _operands(step: tuple[Any, ...]) -> tuple[int, ...]:
    return step[1:] if step[0] in _TEXT else ()


def _needed(steps: tuple[Any, ...], ends: set[int]) -> list[int]:
    """The steps that lead to some of them."""
    needed = set(ends)
    for at in range(len(steps) - 1, -1, -1):
        if at in needed:
            needed.update(_operands(steps[at]))
    return sorted(needed)


def _fused(steps: tuple[Any, ...], ends: set[int], conditions: tuple[int, ...]) -> tuple[Any, ...]:
    """The same steps, with products that are only added to something multiplied and added at once; but those that lead
    to conditions as they are, so that every kernel of a query says the same of a row, to the last bit.
    """
    exact = set(_needed(steps, set(conditions)))
    needed = [at for at in _needed(steps, ends) if at not in exact]
    uses = Counter(i for at in {*needed, *exact} for i in _operands(steps[at]))
    uses.update(ends)
    out = list(steps)
    for at in needed:
        kind, *of = steps[at]
        single = [i for i in of if steps[i][0] == "mul" and uses[i] == 1] if kind in ("add", "sub") else []
        if single:
            other = of[1] if single[0] == of[0] else of[0]
            name = "fma" if kind == "add" else "less" if single[0] == of[0] else "from"
            out[at] = (name, *steps[single[0]][1:], other)
    return tuple(out)


class _Writer:
    """Writes the steps of a formula that some results need.

    What costs little is not kept for the sums, where it would take registers: it is computed again from a few *kept*
    values, times the argument ``unit``, which is 1, so that no compiler takes it for what was computed before.
    """

    def __init__(self, steps: tuple[Any, ...], results: tuple[int, ...], conditions: tuple[int, ...]) -> None:
        self.steps = _fused(steps, {*results, *conditions}, conditions)
        self.results, self.conditions = results, conditions
        self.needed = _needed(self.steps, {*results, *conditions})
        self.columns: list[int] = []
        self.parameters: list[int] = []
        self.body: list[str] = []
        self.literals = {"zero": 0.0, "one": 1.0}
        self._again: dict[int, str] = {}
        self._weigh()

    def operands(self, at: int) -> tuple[int, ...]:
        return _operands(self.steps[at])

    def text(self, before: list[str], after: list[str]) -> str:
        """The kernel, with what is done before the first row and after the last one."""
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

    def _weigh(self) -> None:
        """Which steps depend on a costly one, and which of the others are kept."""
        uses = Counter(i for at in self.needed for i in self.operands(at))
        self.costly: set[int] = set()
        self.kept: set[int] = set()
        behind: dict[int, set[int]] = {}  # what would have to be carried out again
        for at in self.needed:
            kind, of = self.steps[at][0], self.operands(at)
            if kind in _COSTLY or any(i in self.costly for i in of):
                self.costly.add(at)
                continue
            behind[at] = {at}.union(*(behind[i] for i in of if i not in self.kept)) if of else set()
            many = len(behind[at])
            if kind in ("x", "y") or kind in BOOLEAN or (uses[at] > 2 and many > 3) or many > 12:
                self.kept.add(at)

    def name(self, at: int) -> str:
        kind, *of = self.steps[at]
        return f"p{of[0]}" if kind == "parameter" else f"v{at}"

    def early(self) -> None:
        """Every step, in order."""
        for at in self.needed:
            kind, *of = self.steps[at]
            if kind == "parameter":
                self.parameters.append(of[0])
            elif kind == "literal":
                self.literals[f"v{at}"] = of[0]
            elif kind in ("x", "y"):
                place = f"X + row * stride + c{len(self.columns)}" if kind == "x" else "y + row * y_stride"
                self.columns += of
                self.body.append(f"v{at} = tl.load({place}, mask=ok, other=0.0).to(tl.float64)")
            else:
                self.body.append(f"v{at} = {_TEXT[kind].format(*map(self.name, of))}")
        self.body += [f"ok = ok & v{at}" for at in self.conditions]

    def sums(self) -> None:
        """Adds every result. A row that is out of the table, or does not meet the conditions, adds 0: of a product at
        least one factor becomes 0, and both where the other might not be a number.
        """
        products = [self.steps[at][1:] for at in self.results if self.steps[at][0] == "mul"]
        zeroed = _cover(products) | (
            {i for pair in products for i in pair if not self._tame(i)} if self.conditions else set()
        )
        names: dict[int, str] = {}

        def factor(at: int) -> str:
            if at not in names:
                names[at] = self._late(at)
                if at in zeroed:
                    self.body.append(f"z{at} = tl.where(ok, {names[at]}, zero)")
                    names[at] = f"z{at}"
            return names[at]

        for k, at in enumerate(self.results):
            kind, *of = self.steps[at]
            if kind == "mul":
                self.body.append(f"s{k} = tl.fma({factor(of[0])}, {factor(of[1])}, s{k})")
            else:
                zeroed.add(at)
                self.body.append(f"s{k} += {factor(at)}")

    def _tame(self, at: int) -> bool:
        """Whether a step is a number even where the row's entries are none."""
        kind, *of = self.steps[at]
        if kind in ("parameter", "literal", "number"):
            return True
        if kind == "where" and self.steps[of[0]] == ("isfinite", of[1]):
            return self._tame(of[2])
        return kind in ("add", "sub", "mul", "fma", "less", "from", "over") and all(map(self._tame, of))

    def _late(self, at: int) -> str:
        """A step's name among the sums."""
        kind, *of = self.steps[at]
        if at in self.costly or kind in ("parameter", "literal") or kind in BOOLEAN:
            return self.name(at)
        if at not in self._again:
            value = f"v{at} * unit" if at in self.kept else _TEXT[kind].format(*map(self._late, of))
            self.body.append(f"w{at} = {value}")
            self._again[at] = f"w{at}"
        return self._again[at]


def _cover(pairs: list[tuple[int, ...]]) -> set[int]:
    """Few numbers of which every pair has one."""
    left, cover = list(pairs), set()
    while left:
        cover.add(Counter(i for pair in left for i in set(pair)).most_common(1)[0][0])
        left = [pair for pair in left if not cover.intersection(pair)]
    return cover
