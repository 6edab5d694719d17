"""The columns that an estimator's arguments declare, with bounds, levels or a formula, and the schema they define."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.fitting.derived import open_derived
from dpem.fitting.formula import CompiledFormula, compiled
from dpem.fitting.sequence import PrivateFit
from dpem.tables.bounds import Pair, column_bounds, listed, response_bounds
from dpem.tables.entries import Levels
from dpem.tables.inputs import Table, open_table
from dpem.tables.schema import Schema

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


class DeclaredColumns(PrivateFit):
    """What reads ``bounds``, ``y_bounds``, ``levels``, ``formula`` and ``max_weight``, where there are any."""

    _every_level: ClassVar[bool] = False  # whether a categorical column has a coordinate for its first level too

    def _schema(
        self, names: Sequence[str], levels: dict[str, Levels], y_name: str | None, *, plan: bool = False
    ) -> Schema:
        """The schema of these columns at their declared bounds; ``plan`` as in :meth:`_limits`."""
        return self._coordinates(names, levels, *self._limits(names, levels, y_name, plan=plan))

    def _limits(
        self, names: Sequence[str], levels: dict[str, Levels], y_name: str | None, *, plan: bool = False
    ) -> tuple[dict[str, Pair], Pair | None]:
        """The public bounds of every column without levels, and of the response. A plan needs no bounds."""
        if (formula := self._compiled()) is not None:
            return formula.column_bounds, self._response_limits(formula.response) if self._needs_y else None
        if not hasattr(self, "bounds") and (lacking := [name for name in names if name not in levels]):
            raise ArgumentError("levels", f"must name every column, but lack {listed(lacking)}.")
        declared = self._given("bounds")
        if plan and declared is None:
            declared = (-1.0, 1.0)  # a plan is made in unit coordinates, whatever the bounds are
        bounds = column_bounds(declared, names, levels)
        if not self._needs_y or (plan and self._given("y_bounds") is None):
            return bounds, None
        return bounds, self._response_limits(y_name)

    def _response_limits(self, y_name: str | None) -> Pair:
        if (formula := self._compiled()) is not None:
            return formula.response_bounds()
        return response_bounds(self._given("y_bounds"), self._given("bounds"), y_name)

    def _open(self, probe: BaseEstimator, X: Any, y: Any, weight: str | None) -> Table:
        """The table, opened but not read; sets ``n_features_in_`` and ``feature_names_in_`` of ``probe``."""
        if (formula := self._compiled()) is not None:
            probe._formula_ = formula
            return open_derived(probe, formula, X, y, weight, **self._who())
        return open_table(probe, X, y, needs_y=self._needs_y, **self._declared(weight))

    def _coordinates(
        self,
        names: Sequence[str],
        levels: dict[str, Levels],
        bounds: dict[str, Pair],
        y_bounds: Pair | None,
        weight: str | None = None,
    ) -> Schema:
        """The schema of these columns, of their weight too if there is one."""
        return Schema.of(
            names,
            bounds,
            {name: column.values for name, column in levels.items()},
            labels={name: column.labels for name, column in levels.items()},
            y_bounds=y_bounds,
            every_level=self._every_level,
            weight=weight,
            max_weight=self._given("max_weight") or 1.0,
        )

    def _column_names(self, columns: Sequence[str] | None, d: int | None, target: str | None) -> tuple[str, ...]:
        """The names of a plan's columns: ``columns``, or those that bounds and levels name, or x0, x1, …"""
        if columns is not None:
            return tuple(columns)
        bounds = self._given("bounds")
        declared = [*(self._given("levels") or ()), *(bounds if isinstance(bounds, dict) else ())]
        named = [name for name in dict.fromkeys(declared) if name != target]
        if d is None and not named:
            raise ArgumentError("d", "must be given, the number of columns, unless bounds or levels name the columns.")
        if d is None:
            return tuple(named)
        if named and arguments.count("d", d) > len(named):
            raise ArgumentError(
                "d", f"must be the number of columns that bounds and levels name ({len(named)}), got {d}."
            )
        return tuple(named[:d] if named else (f"x{j}" for j in range(arguments.count("d", d))))

    def _declared(self, weight: str | None = None) -> dict[str, Any]:
        """What opening a table needs: levels, columns that are numeric by name, and the privacy unit."""
        bounds = self._given("bounds")
        numeric = (*(bounds if isinstance(bounds, Mapping) else ()), *([] if weight is None else [weight]))
        return {"levels": self._given("levels"), "spelled": numeric, **self._who()}

    def _compiled(self) -> CompiledFormula | None:
        if self._given("formula") is None:
            return None
        return compiled(
            self._given("formula"),
            self._given("bounds"),
            self._given("levels"),
            needs_y=self._needs_y,
            y_bounds=self._given("y_bounds"),
        )

    @classmethod
    def from_formula(cls, formula: str, /, *others: Any, **settings: Any) -> Self:
        """An estimator whose covariates are the terms of a formula; ``fit`` and ``predict`` take the raw table.

        Parameters
        ----------
        formula : str
            Such as ``"log(wage) ~ educ + I(exper**2) + C(region) * married"``; ``"~ x + log(y)"`` without a response.
        *others, **settings
            Arguments of the constructor. ``bounds`` and ``levels`` are those of the raw columns, which are clamped to
            them before terms are computed; the bounds of the terms follow.
        """
        return cls(*others, formula=formula, **settings)

    def _given(self, name: str) -> Any:
        """A constructor argument; None where this estimator has no such argument."""
        return getattr(self, name, None)
