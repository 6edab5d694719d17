"""Formulas: ``"log(wage) ~ educ + I(exper**2) + C(region) * married"`` as columns with public bounds.

The grammar is that of formulaic; terms are evaluated here, block by block, on whatever holds the rows. A term of a
single factor stays categorical, so a model codes it as it codes any other; every other term becomes numeric columns
whose bounds follow from the declared ones (:mod:`~dpem.fitting.formula_terms`).
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from typing import Any

from dpem._validation import ArgumentError
from dpem.fitting.formula_terms import columns_of, interval, parsed, parts_of, product, values
from dpem.query import Array, Namespace
from dpem.tables.bounds import Pair, checked_pair, listed, matching, read_bounds
from dpem.tables.entries import Levels, checked_levels


@dataclass(frozen=True)
class Piece:
    """A factor of a derived column: an expression (``part`` of it where it has several columns), or a level."""

    expression: str
    part: int = 0
    level: str | None = None


@dataclass(frozen=True)
class Derived:
    """A column of the design: a product of pieces within ``bounds``, or a categorical column with ``levels``."""

    name: str
    pieces: tuple[Piece, ...]
    bounds: Pair | None = None
    levels: Levels | None = None


@dataclass(frozen=True)
class CompiledFormula:
    """What a formula makes of raw columns. ``raw`` are the columns that it reads, those of the response last."""

    text: str
    raw: tuple[str, ...]
    bounds: Mapping[str, Pair]
    levels: Mapping[str, Levels]
    columns: tuple[Derived, ...]
    response: str | None

    @property
    def covariates(self) -> tuple[str, ...]:
        """The raw columns that the right side reads."""
        pieces = (piece for column in self.columns for piece in column.pieces)
        return tuple(dict.fromkeys(name for piece in pieces for name in columns_of(piece.expression)))

    @property
    def covariate_levels(self) -> dict[str, Levels]:
        """The declared levels of the raw columns that the right side reads."""
        return {name: self.levels[name] for name in self.covariates if name in self.levels}

    @property
    def column_bounds(self) -> dict[str, Pair]:
        return {column.name: column.bounds for column in self.columns if column.bounds is not None}

    @property
    def column_levels(self) -> dict[str, Levels]:
        return {column.name: column.levels for column in self.columns if column.levels is not None}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def terms(self) -> str:
        """The terms with their bounds or levels, in words."""
        numeric = [f"{name} from {low:g} to {high:g}" for name, (low, high) in self.column_bounds.items()]
        return "; ".join((*numeric, *(f"{name}: {', '.join(own.labels)}" for name, own in self.column_levels.items())))

    def response_bounds(self) -> Pair:
        """The bounds of the response, which follow from those of its columns."""
        assert self.response is not None
        return checked_pair("formula", interval(self.response, self.bounds), "has a response whose bounds ")

    def design(self, xp: Namespace, raw: Array) -> Array:
        """The derived columns of raw ones, which are in the order of :attr:`covariates`."""
        known = self.clamped(xp, raw, self.covariates)
        return xp.stack([self.column(xp, column, known) for column in self.columns], axis=1)

    def responses(self, xp: Namespace, raw: Array) -> Array:
        """The response of raw columns in the order of :attr:`raw`; a column without bounds is taken as it is."""
        assert self.response is not None
        return values(xp, self.response, self.clamped(xp, raw, self.raw), self.bounds)

    def clamped(self, xp: Namespace, raw: Array, names: Sequence[str]) -> dict[str, Any]:
        """Columns by name within their bounds; an entry that is not finite is missing."""
        found = {}
        for j, name in enumerate(names):
            own = raw[:, j]
            if name not in self.levels:
                own = xp.where(xp.isfinite(own), own, xp.full_like(own, xp.nan))
            found[name] = xp.clip(own, *self.bounds[name]) if name in self.bounds else own
        return found

    def column(self, xp: Namespace, column: Derived, known: Mapping[str, Any]) -> Array:
        """A derived column of raw ones by name."""
        if column.levels is not None:
            numbers = dict(zip(column.levels.labels, column.levels.values, strict=True))
            return self._numbers(xp, column.pieces[0], known, numbers)
        out = 1.0
        for piece in column.pieces:
            if piece.level is None:
                out = out * values(xp, piece.expression, known, self.bounds, piece.part)
            else:
                out = out * self._numbers(xp, piece, known, {piece.level: 1.0})
        return out

    def _numbers(self, xp: Namespace, piece: Piece, known: Mapping[str, Any], numbers: Mapping[str, float]) -> Array:
        """The number of each row's level, by its label, else 0; NaN where the entry is no declared level."""
        (name,) = columns_of(piece.expression)
        raw, own = known[name], self.levels[name]
        out = xp.full_like(raw, xp.nan)
        for value, label in zip(own.values, own.labels, strict=True):
            out = xp.where(raw == value, xp.full_like(raw, numbers.get(label, 0.0)), out)
        return out


def compiled(text: Any, bounds: Any, levels: Any, *, needs_y: bool, y_bounds: Any = None) -> CompiledFormula:
    """The formula over columns with these bounds and levels, or a refusal."""
    left, right = _sides(text, needs_y)
    raw, known = _raw_columns(left, right), checked_levels(levels)
    declared = read_bounds(bounds) if isinstance(bounds, str) else bounds
    limits: dict[str, Pair] = {}
    for column in raw:
        pair = matching(declared, column) if isinstance(declared, Mapping) else declared
        if column not in known and pair is not None:
            limits[column] = checked_pair("bounds", pair, f"of {column!r} ")
    if left is not None and y_bounds is not None and isinstance(parsed(left), ast.Name):
        limits[columns_of(left)[0]] = checked_pair("y_bounds", y_bounds)
    for factor in (factor for term in right for factor in term):
        name = _factor(factor, known)
        if name is not None and name not in known:
            raise ArgumentError("levels", f"must have an entry {name!r}: the formula takes it as a factor.")
    terms = {frozenset(term) for term in right}
    columns = tuple(column for term in right for column in _derived(term, terms, limits, known))
    if len({column.name for column in columns}) < len(columns):
        raise ArgumentError("formula", "must name each term once.")
    return CompiledFormula(text, raw, limits, known, columns, left)


def _sides(text: Any, needs_y: bool) -> tuple[str | None, list[tuple[str, ...]]]:
    """The response and the terms, each a tuple of factors."""
    if not isinstance(text, str):
        raise ArgumentError("formula", f"must be a text such as 'y ~ x + C(g)', got {type(text).__name__}.")
    from formulaic import Formula  # which loads pandas: only formulas need it
    from formulaic.errors import FormulaicError

    try:
        whole: Any = Formula(text)
    except (FormulaicError, SyntaxError):
        reserved = next(filter(keyword.iskeyword, re.findall(r"\w+", text)), None)
        advice = (
            f"Rename {reserved!r}, which is a word of Python."
            if reserved
            else "It must look like 'y ~ x + C(g)', with comparisons inside I( ), as in I(x > 3)."
        )
        raise ArgumentError("formula", f"is not valid: {text!r}. {advice}") from None
    sides = getattr(whole, "rhs", whole)
    left = [_expression(factor) for term in getattr(whole, "lhs", ()) for factor in term.factors]
    if not hasattr(sides, "__iter__") or any(not hasattr(term, "factors") for term in sides):
        raise ArgumentError("formula", "must have one right side, without '|'.")
    if needs_y and len(left) != 1:
        raise ArgumentError("formula", "must have one response left of '~', as in 'y ~ x'.")
    if not needs_y and left:
        raise ArgumentError("formula", "must begin with '~': this model has no response.")
    terms = [tuple(_expression(factor) for factor in term.factors) for term in sides]
    if ("1",) not in terms:
        raise ArgumentError("formula", "must keep its intercept: leave out '0 +' and '- 1'.")
    terms = [term for term in terms if term != ("1",)]
    if not terms:
        raise ArgumentError("formula", "must have a column right of '~'.")
    return (left[0] if needs_y else None), terms


def _expression(factor: Any) -> str:
    """A factor of formulaic as an expression; a column whose name is no word stands between backquotes."""
    found = str(factor.expr)
    is_word = found.isidentifier() and not keyword.iskeyword(found)
    return found if factor.eval_method.value != "lookup" or is_word else f"`{found}`"


def _factor(expression: str, levels: Mapping[str, Levels]) -> str | None:
    """The column that an expression takes as a factor: C(x), or x where levels are declared."""
    node = parsed(expression)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "C":
        found = columns_of(expression)
        return found[0] if found else None
    return node.id if isinstance(node, ast.Name) and node.id in levels else None


def _baseline(expression: str, own: Levels) -> Levels:
    """The levels, that of C(x, Treatment("level")) first."""
    labels = list(own.labels)
    node = parsed(expression)
    if isinstance(node, ast.Call) and (len(node.args) > 1 or node.keywords):
        found = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        label = str(found[0]) if len(found) == 1 else None
        if label not in labels:
            raise ArgumentError(
                "formula", f": {expression!r} must name a declared level, as in C(x, Treatment('{labels[0]}'))."
            )
        labels = [label, *(other for other in labels if other != label)]
    return checked_levels({expression: labels})[expression]


def _derived(
    term: tuple[str, ...], terms: set[frozenset[str]], bounds: Mapping[str, Pair], levels: Mapping[str, Levels]
) -> Iterator[Derived]:
    """The columns of a term. A factor loses its baseline where the term without it is in the model, as in R."""
    if len(term) == 1 and (name := _factor(term[0], levels)) is not None:
        yield Derived(term[0].strip("`"), (Piece(term[0]),), levels=_baseline(term[0], levels[name]))
        return
    choices: list[list[tuple[str, Piece, Pair]]] = []
    for expression in term:
        name = _factor(expression, levels)
        if name is None:
            count = parts_of(expression, bounds)
            names = [f"{expression}[{i + 1}]" for i in range(count)] if count else [expression]
            own = [(n, Piece(expression, i), interval(expression, bounds, i)) for i, n in enumerate(names)]
            choices.append(own)
            continue
        rest = frozenset(term) - {expression}
        ordered = _baseline(expression, levels[name]).labels
        kept = ordered[1:] if not rest or rest in terms else ordered
        choices.append([(f"{expression}={label}", Piece(expression, 0, label), (0.0, 1.0)) for label in kept])
    for combination in combinations(*choices):
        whole: Pair = (1.0, 1.0)
        for _, _, own_bounds in combination:
            whole = product(whole, own_bounds)
        name = ":".join(part.strip("`") for part, _, _ in combination)
        if not whole[0] < whole[1]:
            raise ArgumentError("formula", f": {name!r} is the same in every row.")
        yield Derived(
            name,
            tuple(piece for _, piece, _ in combination),
            bounds=checked_pair("formula", whole, f"has the term {name!r}, whose bounds "),
        )


def missing_columns(formula: CompiledFormula, known: Sequence[str]) -> None:
    """Refuse a table that lacks columns of the formula."""
    lacking = [name for name in formula.raw if name not in known]
    if lacking:
        raise ValueError(f"the formula needs {listed(lacking)}, which the table lacks.")


def raw_columns(text: Any, *, needs_y: bool) -> tuple[str, ...]:
    """The raw columns of a formula, the response's last."""
    return _raw_columns(*_sides(text, needs_y))


def _raw_columns(left: str | None, right: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    expressions = [factor for term in right for factor in term] + ([] if left is None else [left])
    return tuple(dict.fromkeys(name for expression in expressions for name in columns_of(expression)))
