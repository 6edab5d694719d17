"""Formulas: ``"log(wage) ~ educ + I(exper**2) + C(region) * married"`` as columns with public bounds.

formulaic reads the text; the terms are computed here, block by block, with the array library of the rows. A term that
is a single factor remains a categorical column. Every other term becomes numeric columns, whose bounds follow from the
declared ones (:mod:`~dpem.fitting.formula_terms`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from dpem._validation import ArgumentError
from dpem.fitting.formula_columns import expansion, interval, values
from dpem.fitting.formula_terms import Arrays, Interval, Intervals, columns_of, logical, parsed, plain, refusal
from dpem.fitting.formula_text import columns_read, sides
from dpem.query import Array, Namespace
from dpem.tables.bounds import Pair, checked_pair, declared_entry, list_columns, read_bounds
from dpem.tables.entries import Levels, checked_levels


@dataclass(frozen=True)
class Piece:
    """A multiplier of a derived column: column ``part`` of an expression, or the indicator of a ``level``."""

    expression: str
    part: int = 0
    level: str | None = None


@dataclass(frozen=True)
class Derived:
    """A column of the design: a product of ``pieces`` with ``bounds``, or a categorical column with ``levels``.

    A ``carrier`` has no coefficient: a model only computes other columns from it.
    """

    name: str
    pieces: tuple[Piece, ...]
    bounds: Pair | None = None
    levels: Levels | None = None
    carrier: bool = False


@dataclass(frozen=True)
class CompiledFormula:
    """The design columns and the response of a formula, computed from the columns ``raw`` of the table.

    The columns that only the response reads come last in ``raw``.
    """

    text: str
    raw: tuple[str, ...]
    bounds: Mapping[str, Pair]
    levels: Mapping[str, Levels]
    columns: tuple[Derived, ...]
    response: str | None

    @property
    def covariates(self) -> tuple[str, ...]:
        """The columns of the table that the right side reads."""
        pieces = (piece for column in self.columns for piece in column.pieces)
        names = {name for piece in pieces for name in columns_of(piece.expression)}
        return tuple(name for name in self.raw if name in names)

    @property
    def covariate_levels(self) -> dict[str, Levels]:
        """The declared levels of the columns that the right side reads."""
        return {name: self.levels[name] for name in self.covariates if name in self.levels}

    @property
    def offset(self) -> str | None:
        """The name of the design column offset(…)."""
        return next((name for name in self.names if name.startswith("offset(")), None)

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
    def products_with_levels(self) -> tuple[str, ...]:
        """The design columns that are products with levels: they are 0 in all rows with other levels."""
        parts = ((column.name, column.pieces) for column in self.columns if len(column.pieces) > 1)
        return tuple(name for name, pieces in parts if any(piece.level is not None for piece in pieces))

    @property
    def terms(self) -> str:
        """The terms with their bounds or levels, in words."""
        numeric = [f"{name} from {low:g} to {high:g}" for name, (low, high) in self.column_bounds.items()]
        return "; ".join(
            (*numeric, *(f"{name}: {', '.join(levels.labels)}" for name, levels in self.column_levels.items()))
        )

    def response_bounds(self) -> Pair:
        """The bounds of the response, which follow from those of its columns."""
        assert self.response is not None
        ends = interval(self.response, self.bounds, levels=self.levels)
        return checked_pair("formula", ends, "has a response whose bounds ")

    def design(self, xp: Namespace, raw: Array) -> Array:
        """The design columns of raw ones, which are in the order of :attr:`covariates`."""
        raw_columns = self.clamped(xp, raw, self.covariates)
        return xp.stack([self.column(xp, column, raw_columns) for column in self.columns], axis=1)

    def responses(self, xp: Namespace, raw: Array) -> Array:
        """The response of raw columns in the order of :attr:`raw`."""
        assert self.response is not None
        return values(self.response, Arrays(self.bounds, self.levels, xp, self.clamped(xp, raw, self.raw)))

    def clamped(self, xp: Namespace, raw: Array, names: Sequence[str]) -> dict[str, Array]:
        """The columns by name, clipped to their bounds; an entry that is not finite or no declared level is missing."""
        columns = {}
        for j, name in enumerate(names):
            entries = raw[:, j]
            allowed = xp.isfinite(entries)
            if name in self.levels:
                allowed = xp.any(xp.stack([entries == value for value in self.levels[name].values]), axis=0)
            entries = xp.where(allowed, entries, xp.full_like(entries, xp.nan))
            columns[name] = xp.clip(entries, *self.bounds[name]) if name in self.bounds else entries
        return columns

    def column(self, xp: Namespace, column: Derived, raw_columns: Mapping[str, Array]) -> Array:
        """A design column, computed from raw columns by name."""
        if column.levels is not None:
            numbers = dict(zip(column.levels.labels, column.levels.values, strict=True))
            return self._numbers(xp, column.pieces[0].expression, raw_columns, numbers)
        product, domain = 1.0, Arrays(self.bounds, self.levels, xp, raw_columns)
        for piece in column.pieces:
            if piece.level is None:
                product = product * values(piece.expression, domain, piece.part)
            elif logical(parsed(piece.expression)):  # the level False
                product = product * (1.0 - values(piece.expression, domain))
            else:
                product = product * self._numbers(xp, piece.expression, raw_columns, {piece.level: 1.0})
        return product

    def _numbers(
        self, xp: Namespace, expression: str, raw_columns: Mapping[str, Array], numbers: Mapping[str, float]
    ) -> Array:
        """The entry of ``numbers`` for the label of each row's level, 0 without one; NaN where the level is missing."""
        (name,) = columns_of(expression)
        codes, levels = raw_columns[name], self.levels[name]
        result = xp.where(xp.isnan(codes), codes, xp.zeros_like(codes))
        for code, label in zip(levels.values, levels.labels, strict=True):
            result = xp.where(codes == code, xp.full_like(codes, numbers.get(label, 0.0)), result)
        return result


def compiled(
    text: str, bounds: object, levels: object, *, needs_y: bool, y_bounds: object = None, offset: bool = False
) -> CompiledFormula:
    """The formula over columns with these bounds and levels, or a refusal; ``offset`` says whether it may have one."""
    left, right = sides(text, needs_y)
    raw, declared_levels = columns_read(left, right), checked_levels(levels)
    declared = read_bounds(bounds) if isinstance(bounds, str) else bounds
    column_limits: dict[str, Pair] = {}
    for column in raw:
        pair = declared_entry(declared, column) if isinstance(declared, Mapping) else declared
        if column not in declared_levels and pair is not None:
            column_limits[column] = checked_pair("bounds", pair, f"of {column!r} ")
    if left is not None and y_bounds is not None and isinstance(parsed(left), ast.Name):
        column_limits[columns_of(left)[0]] = checked_pair("y_bounds", y_bounds)
    offsets = [factor for term in right for factor in term if factor.startswith("offset(")]
    if offsets and not offset:
        raise refusal("cannot have offset(…) in this model: only logistic and Poisson regression have one.")
    if len(offsets) > 1 or any(len(term) > 1 for term in right if offsets and offsets[0] in term):
        raise refusal("must have one offset(…), and no interaction with it.")
    covered: dict[frozenset[str], set[frozenset[str]]] = {frozenset(): {frozenset()}}
    columns = tuple(
        column for term in right for column in _derived(term, covered, Intervals(column_limits, declared_levels))
    )
    return CompiledFormula(text, raw, column_limits, declared_levels, columns, left)


def _factor(expression: str, levels: Mapping[str, Levels]) -> str | None:
    """The column of an expression that is a factor: C(x), or x with declared levels; None if it is no factor."""
    node, inner = parsed(expression), plain(parsed(expression))
    if not isinstance(inner, ast.Name):
        return None
    called = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "C"
    if called and inner.id not in levels:
        raise ArgumentError("levels", f"must have an entry {inner.id!r}, which is a factor of the formula.")
    return inner.id if called or (inner is node and inner.id in levels) else None


def _baseline(expression: str, levels: Levels) -> Levels:
    """The levels with the baseline first, which C(x, Treatment("level")) may name."""
    labels = list(levels.labels)
    node = parsed(expression)
    if isinstance(node, ast.Call) and (len(node.args) > 1 or node.keywords):
        constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        label = str(constants[0]) if len(constants) == 1 else None
        if label not in labels:
            raise refusal(f": {expression!r} must name a declared level, as in C(x, Treatment('{labels[0]}')).")
        labels = [label, *(other for other in labels if other != label)]
    return checked_levels({expression: labels})[expression]


def _derived(
    term: tuple[str, ...], covered: dict[frozenset[str], set[frozenset[str]]], domain: Intervals
) -> Iterator[Derived]:
    """The design columns of a term, with factors coded as in R and patsy.

    ``covered`` has, for each set of numeric expressions, the sets of factors whose products with them the columns so
    far span. A term gets only the columns that add to their span.
    """
    factors = {name: piece for piece in term if (name := _key(piece, domain.levels)) is not None}
    numeric = [piece for piece in term if piece not in factors.values()]
    expressed = covered.setdefault(frozenset(numeric), set())
    subsets = [frozenset(subset) for k in range(len(factors) + 1) for subset in combinations(factors, k)]
    parts = [frozenset((name, False) for name in subset) for subset in subsets if subset not in expressed]
    expressed.update(subsets)
    if not parts:
        raise refusal(f"must have each term once: {':'.join(term)!r} adds nothing to the terms before it.")
    for coding in _merged(parts):
        full = dict(coding)
        pieces = [piece for piece in term if piece in numeric or _key(piece, domain.levels) in full]
        yield from _products(pieces, {factors[name] for name in full if full[name]}, domain)


def _key(expression: str, levels: Mapping[str, Levels]) -> str | None:
    """The identity of a factor: its column, or the text of a comparison; None for a numeric expression."""
    return expression if logical(parsed(expression)) else _factor(expression, levels)


def _merged(parts: list[frozenset[tuple[str, bool]]]) -> list[frozenset[tuple[str, bool]]]:
    """Merge sets of factors, each with whether it has all its levels: a set and the same set with one more factor
    become one set in which that factor has all its levels.

    >>> [sorted(part) for part in _merged([frozenset(), frozenset({("g", False)})])]
    [[('g', True)]]
    """
    for short, long in combinations(parts, 2):
        more = [name for name, full in long - short if not full]
        if len(long) == len(short) + 1 and short < long and more:
            combined = short | {(more[0], True)}
            return _merged([combined if part is long else part for part in parts if part is not short])
    return parts


def _products(term: Sequence[str], full: set[str], domain: Intervals) -> Iterator[Derived]:
    """The design columns of a product of expressions; only factors in ``full`` keep their baseline."""
    if len(term) == 1 and (name := _factor(term[0], domain.levels)) is not None and not full:
        yield Derived(term[0].strip("`"), (Piece(term[0]),), levels=_baseline(term[0], domain.levels[name]))
        return
    choices: list[list[tuple[str, Piece, Interval]]] = []
    for expression in term:
        name = _factor(expression, domain.levels)
        if name is None:
            columns = expansion(expression, domain)
            names = [expression] if columns is None else [f"{expression}[{i + 1}]" for i in range(columns.parts)]
            ends = (interval(expression, domain.bounds, i, domain.levels) for i in range(len(names)))
            choices.append(
                [(n, Piece(expression, i), Interval(*e)) for i, (n, e) in enumerate(zip(names, ends, strict=True))]
            )
            if expression in full:
                choices[-1].insert(0, (f"{expression}=False", Piece(expression, 0, "False"), Interval(0.0, 1.0)))
        else:
            labels = _baseline(expression, domain.levels[name]).labels[expression not in full :]
            choices.append(
                [(f"{expression}={label}", Piece(expression, 0, label), Interval(0.0, 1.0)) for label in labels]
            )
    for combination in product(*choices):
        bounds = Interval(1.0, 1.0)
        for _, _, factor_bounds in combination:
            bounds = bounds * factor_bounds
        name = ":".join(part.strip("`") for part, _, _ in combination)
        if not bounds.low < bounds.high:
            raise refusal(f"must have terms that vary: {name!r} is the same in every row.")
        limits = checked_pair("formula", (bounds.low, bounds.high), f"has the term {name!r}, whose bounds ")
        yield Derived(name, tuple(piece for _, piece, _ in combination), bounds=limits)


def missing_columns(formula: CompiledFormula, names: Sequence[str]) -> None:
    """Refuse a table that lacks columns of the formula."""
    if missing := [name for name in formula.raw if name not in names]:
        raise ValueError(f"the formula needs {list_columns(missing)}, which the table lacks.")
