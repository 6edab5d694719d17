"""The declared columns of a fit."""

from __future__ import annotations

from dataclasses import dataclass

from dpem.privacy import digest
from dpem.tables.bounds import Pair
from dpem.tables.entries import Levels
from dpem.tables.schema import Schema


@dataclass(frozen=True)
class Columns:
    """The columns in order, the levels or bounds of each, and the name and bounds of the response, if there is one."""

    names: tuple[str, ...]
    levels: dict[str, Levels]
    bounds: dict[str, Pair]
    y_name: str | None = None
    y_bounds: Pair | None = None

    def schema(self, every_level: bool, weight: str | None = None, max_weight: float = 1.0) -> Schema:
        """The schema of these columns; ``weight`` names the column of weights, if there is one."""
        return Schema.of(
            self.names,
            self.bounds,
            {name: column.values for name, column in self.levels.items()},
            labels={name: column.labels for name, column in self.levels.items()},
            y_bounds=self.y_bounds,
            every_level=every_level,
            weight=weight,
            max_weight=max_weight,
        )

    def digests(self) -> dict[str, str]:
        """The first digits of the digest of each column's bounds or levels, by which a ledger recognises the table."""
        bounds = {name: digest({"bounds": list(pair)})[:8] for name, pair in self.bounds.items()}
        return bounds | {name: digest({"levels": list(column.labels)})[:8] for name, column in self.levels.items()}
