"""Terms of a formula that other terms determine, as x determines x², and two columns their interaction.

A raw column is *carried* by a term that is a factor of it, or a strictly monotone function of it alone (x, log(x),
poly(x, 2)[1]). A term whose raw columns are all carried by other terms is implied: its values are a public function of
theirs. Surrogate rows have exact implied terms, however collinear these are.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.formula import CompiledFormula, Derived, Piece
from dpem.fitting.formula_terms import columns_of, parsed
from dpem.query import FloatArray
from dpem.tables.blocks import numpy_api
from dpem.tables.schema import Schema

#: A raw column is added as a term if no term carries it and at least this number read it, as those of a spline do.
SEVERAL = 3
#: Points between the bounds of a raw column at which a term is inverted.
GRID = 4097


@dataclass(frozen=True, eq=False)
class ImpliedTerms:
    """The terms of a formula that its other terms determine."""

    formula: CompiledFormula

    @cached_property
    def carriers(self) -> Mapping[str, int]:
        """The index of the term that carries a raw column, for each that has one."""
        carriers: dict[str, int] = {}
        plain_first = sorted(range(len(self.formula.columns)), key=lambda j: not _is_plain(self.formula.columns[j]))
        for j in plain_first:
            names = self._reads(j)
            carries = self.formula.columns[j].levels is not None or j in self._inverse
            if len(names) == 1 and names[0] not in carriers and carries:
                carriers[names[0]] = j
        return carriers

    def with_carriers(self) -> CompiledFormula:
        """The formula with the raw columns added that several terms read and none carries."""
        formula = self.formula
        reads = [name for j in range(len(formula.columns)) for name in self._reads(j)]
        added = (name for name in formula.bounds if name not in self.carriers and reads.count(name) >= SEVERAL)
        carriers = (Derived(name, (Piece(f"`{name}`"),), bounds=formula.bounds[name], carrier=True) for name in added)
        return replace(formula, columns=(*formula.columns, *carriers))

    def mask(self, schema: Schema) -> NDArray[np.bool_]:
        """Which coordinates are implied by the other coordinates of this schema, whose columns are the terms."""
        width = np.bincount(schema.column, minlength=len(self.formula.columns))
        present = {j for j in self.carriers.values() if width[j] == self._width(j)}
        carried = {name for name, j in self.carriers.items() if j in present}
        implied = [j not in present and set(self._reads(j)) <= carried for j in range(len(self.formula.columns))]
        return np.array(implied)[schema.column]

    def fill(self, schema: Schema, u: FloatArray) -> FloatArray:
        """Rows in unit coordinates whose implied coordinates are computed from the others."""
        implied = self.mask(schema)
        raw = np.zeros((len(u), len(self.formula.covariates)))
        for place, name in enumerate(self.formula.covariates):
            j = self.carriers.get(name, -1)
            coordinates = np.flatnonzero(schema.column == j)
            if j < 0 or not len(coordinates):
                raw[:, place] = np.mean(self.formula.bounds.get(name, (0.0, 0.0)))
            elif name in self.formula.levels:
                values = self._level_values(j, name)
                is_level = u[:, coordinates] > 0
                levels = schema.level[coordinates[is_level.argmax(axis=1)]]
                raw[:, place] = np.where(is_level.any(axis=1), values[levels], values[0])
            else:
                term, column = self._inverse[j]
                first = coordinates[0]
                raw[:, place] = np.interp(schema.middle[first] + schema.half[first] * u[:, first], term, column)
        with np.errstate(all="ignore"):
            terms = self.formula.design(numpy_api, raw)[:, schema.column]
        return np.where(implied, np.clip((terms - schema.middle) / schema.half, -1.0, 1.0), u)

    def _reads(self, j: int) -> list[str]:
        """The raw columns that a term reads."""
        pieces = self.formula.columns[j].pieces
        return list(dict.fromkeys(name for piece in pieces for name in columns_of(piece.expression)))

    def _width(self, j: int) -> int:
        """The number of coordinates of a term."""
        levels = self.formula.columns[j].levels
        return 1 if levels is None else len(levels.values) - 1

    @cached_property
    def _inverse(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        """Increasing values of each term that is strictly monotone in one raw column, and the column's values."""
        inverses = {}
        for j, column in enumerate(self.formula.columns):
            names = self._reads(j)
            if column.levels is not None or len(names) != 1 or names[0] in self.formula.levels:
                continue
            grid = np.linspace(*self.formula.bounds[names[0]], GRID)
            term = np.asarray(self.formula.column(numpy_api, column, {names[0]: grid}))
            steps = np.diff(term)
            if (steps > 0).all():
                inverses[j] = term, grid
            elif (steps < 0).all():
                inverses[j] = term[::-1], grid[::-1]
        return inverses

    def _level_values(self, j: int, name: str) -> FloatArray:
        """The numbers of a factor's levels in the order of the term, the baseline first."""
        levels, ordered = self.formula.levels[name], self.formula.columns[j].levels
        assert ordered is not None
        numbers = dict(zip(levels.labels, levels.values, strict=True))
        return np.array([numbers[label] for label in ordered.labels])


def _is_plain(column: Derived) -> bool:
    """Whether a term is a column itself."""
    return len(column.pieces) == 1 and isinstance(parsed(column.pieces[0].expression), ast.Name)
