"""The public description of columns, and the unit coordinates that it defines.

A numeric column has bounds, a categorical one has levels. Each becomes one or more *coordinates* in [−1, 1]:

    numeric      u = clip((x − middle)/half, ±1)
    categorical  u = +1 if x is the level, −1 if it is another declared level; one coordinate for each level but the
                 first, the baseline (or for each level, if all are wanted)

An entry that is not finite, or not a declared level, is missing: NaN in every coordinate of its column. So every table
of numbers has unit coordinates, and whatever is computed from them is bounded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_

import numpy as np

from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import IntArray, indices, like


@dataclass(frozen=True)
class Schema:
    """The coordinates of a table's columns, and the bounds of the response.

    For each coordinate, ``column`` is the index of its column, ``names`` its name, and ``middle`` and ``half`` convert
    it back to the table's units, x = middle + half·u. ``level`` is the index of its level in ``levels[column]``, or −1
    if the column is numeric. Levels are numbers (:class:`~dpem.tables.entries.Levels`). ``weight`` is the index of the
    column of weights, −1 if there is none, and ``max_weight`` their public bound.

    >>> schema = Schema.of(["age", "region"], {"age": (0.0, 100.0)}, {"region": (0.0, 1.0, 2.0)})
    >>> schema.names
    ('age', 'region=1', 'region=2')
    >>> import array_api_compat.numpy as xp
    >>> schema.coordinates(xp, np.array([[75.0, 2.0], [np.inf, 7.0]])).tolist()
    [[0.5, -1.0, 1.0], [nan, nan, nan]]
    """

    names: tuple[str, ...]
    column: IntArray
    middle: FloatArray
    half: FloatArray
    level: IntArray
    levels: Mapping[int, tuple[float, ...]]
    y_middle: float = 0.0
    y_half: float = 1.0
    weight: int = -1
    max_weight: float = 1.0

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        bounds: Mapping[str, tuple[float, float]],
        levels: Mapping[str, Sequence[float]],
        *,
        labels: Mapping[str, Sequence[str]] | None = None,
        y_bounds: tuple[float, float] | None = None,
        every_level: bool = False,
        weight: str | None = None,
        max_weight: float = 1.0,
    ) -> Schema:
        """The schema of columns that have bounds or levels, or are the ``weight``; ``labels`` are names of levels."""
        names: list[str] = []
        coordinates: list[tuple[int, float, float, int]] = []
        levels_of: dict[int, tuple[float, ...]] = {}
        for j, name in enumerate(columns):
            if name == weight:
                continue
            if name not in levels:
                low, high = bounds[name]
                names.append(name)
                coordinates.append((j, low / 2 + high / 2, high / 2 - low / 2, -1))
                continue
            levels_of[j] = tuple(float(value) for value in levels[name])
            level_names = (labels or {}).get(name) or [f"{value:g}" for value in levels_of[j]]
            for k in range(0 if every_level else 1, len(levels_of[j])):
                names.append(f"{name}={level_names[k]}")
                coordinates.append((j, 0.5, 0.5, k))
        column, middle, half, level = (np.array(part) for part in zip(*coordinates, strict=True))
        response = (0.0, 1.0) if y_bounds is None else (sum(y_bounds) / 2, (y_bounds[1] - y_bounds[0]) / 2)
        arrays = (column.astype(np.intp), middle.astype(float), half.astype(float), level.astype(np.intp))
        weight_column = -1 if weight is None else list(columns).index(weight)
        return cls(tuple(names), *arrays, levels_of, *response, weight_column, max_weight)

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return len(self.names)

    @cached_property
    def reads(self) -> IntArray:
        """The indices of the columns that coordinates and weights are computed from, in order."""
        return np.unique(self.column if self.weight < 0 else np.append(self.column, self.weight))

    @cached_property
    def _read_index(self) -> IntArray | None:
        """The index of each coordinate's column in :attr:`reads`; None if coordinates and columns read are the same."""
        index = np.searchsorted(self.reads, self.column)
        return None if np.array_equal(index, np.arange(len(self.reads))) else index

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        """A key: schemas with the same key compute the same coordinates, responses and shares of weights."""
        arrays = (array.tobytes() for array in (self.column, self.middle, self.half, self.level))
        return (*arrays, *self.levels.items(), self.y_middle, self.y_half, self.weight, self.max_weight)

    def take(self, chosen: IntArray) -> Schema:
        """The schema of some of the coordinates."""
        chosen = np.asarray(chosen, dtype=np.intp)
        names = tuple(self.names[j] for j in chosen)
        arrays = {name: getattr(self, name)[chosen] for name in ("column", "middle", "half", "level")}
        return replace(self, names=names, **arrays)

    def unit(self) -> Schema:
        """The schema of a table that already holds unit coordinates and unit responses, such as a simulated one."""
        zero, one = np.zeros(self.width), np.ones(self.width)
        column = np.arange(self.width, dtype=np.intp)
        return Schema(self.names, column, zero, one, np.full(self.width, -1, dtype=np.intp), {})

    def coordinates(self, xp: Namespace, x: Array) -> Array:
        """Unit coordinates of rows whose entries are those of the columns :attr:`reads`, in that order."""
        raw = x if self._read_index is None else xp.take(x, indices(xp, self._read_index, x), axis=1)
        u = _unit(xp, raw, like(xp, self.middle, x), like(xp, self.half, x))
        if not self.levels or not (self.level >= 0).any():
            return u
        return self._with_levels(xp, raw, u)

    def _with_levels(self, xp: Namespace, raw: Array, u: Array) -> Array:
        """The numeric coordinates u, with those of categorical columns computed from the raw entries."""
        coordinates = []
        for j in range(self.width):
            if self.level[j] < 0:
                coordinates.append(u[:, j])
                continue
            levels, entry = self.levels[int(self.column[j])], raw[:, j]
            ones = xp.ones_like(entry)
            has_level = [entry == value for value in levels]
            if levels[-1] == np.inf:  # every other entry that is not missing
                has_level[-1] = ~(xp.isnan(entry) | reduce(or_, has_level[:-1]))
            sign = xp.where(has_level[int(self.level[j])], ones, -ones)
            coordinates.append(xp.where(reduce(or_, has_level), sign, xp.full_like(ones, xp.nan)))
        return xp.stack(coordinates, axis=1)

    def shares(self, xp: Namespace, x: Array) -> Array:
        """Weights of rows divided by their bound, in [0, 1]; a weight that is not finite counts as 0."""
        raw = x[:, int(np.searchsorted(self.reads, self.weight))]
        return xp.clip(xp.where(xp.isfinite(raw), raw, xp.zeros_like(raw)) / self.max_weight, 0.0, 1.0)

    def response(self, xp: Namespace, y: Array) -> Array:
        """Unit coordinates of responses, NaN where a response is not finite."""
        return _unit(xp, y, self.y_middle, self.y_half)


def _unit(xp: Namespace, raw: Array, middle: Array, half: Array) -> Array:
    """(raw − middle)/half in [−1, 1], NaN where not finite; by a compiled loop if columns are contiguous."""
    if isinstance(raw, np.ndarray) and raw.ndim == 2 and raw.dtype == np.float64:
        from dpem.tables.dense_rows import unit_coordinates

        u = unit_coordinates(raw, middle, half)
        if u is not None:
            return u
    u = raw - middle
    u /= half
    finite = xp.isfinite(raw)
    if not isinstance(u, np.ndarray):
        return xp.where(finite, xp.clip(u, -1.0, 1.0), xp.full_like(u, xp.nan))
    np.clip(u, -1.0, 1.0, out=u)
    if not finite.all():
        u[~finite] = np.nan
    return u
