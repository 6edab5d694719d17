"""The CSV of an experiment's repetitions, one row per setting, repetition, method and iteration, and its summary.

The first line is a comment with the seed, the version and a digest of everything else that determines the numbers. A
file with another digest is refused. A repetition is appended in one write, and each of its rows has their number, so
that an incomplete repetition is detected, dropped and computed again. A run continues an existing file.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpem._version import __version__
from studies.paper.reproduce.curves import SEED, key
from studies.paper.settings import Setting

COLUMNS = ("model", "n", "d", "s", "epsilon", "missing", "rep", "method", "iteration", "error", "rows")

#: A setting in the rows: model, n, d, s, ε, missing.
Key = tuple[str, int, int, int, float, float]


class Point(NamedTuple):
    """One number of one repetition. A method that refused has the error NaN at iteration 0."""

    method: str
    iteration: int
    error: float


def digest(name: str, protocol: dict[str, Any]) -> str:
    """A short name for everything that decides the numbers besides the settings, the version of the code included.

    >>> digest("fig1", {"eta": 0.5}) == digest("fig1", {"eta": 0.5}) != digest("fig1", {"eta": 1.0})
    True
    """
    text = json.dumps([name, SEED, COLUMNS, __version__, protocol], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Cell(NamedTuple):
    """The summary of one method's errors at one iteration in one setting."""

    reps: int
    mean: float
    sd: float
    median: float


class Results:
    """The summary of an experiment: a :class:`Cell` for every setting, method and iteration."""

    def __init__(self, cells: dict[tuple[Key, str, int], Cell]) -> None:
        self._cells = cells

    @classmethod
    def of(cls, repetitions: dict[tuple[Key, int], list[Point]]) -> Results:
        """What the repetitions amount to."""
        errors: dict[tuple[Key, str, int], list[float]] = {}
        for (setting, _), points in sorted(repetitions.items()):
            for point in points:
                errors.setdefault((setting, point.method, point.iteration), []).append(point.error)
        summed = {at: np.array(values) for at, values in errors.items()}
        return cls({at: Cell(len(v), float(v.mean()), float(v.std()), float(np.median(v))) for at, v in summed.items()})

    @classmethod
    def read(cls, path: Path) -> Results:
        """What :meth:`summary` wrote."""
        cells = {}
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                sizes = int(row["n"]), int(row["d"]), int(row["s"]), float(row["epsilon"]), float(row["missing"])
                numbers = int(row["reps"]), float(row["mean"]), float(row["sd"]), float(row["median"])
                cells[(row["model"], *sizes), row["method"], int(row["iteration"])] = Cell(*numbers)
        return cls(cells)

    def summary(self) -> str:
        """A CSV with one row per setting, method and iteration: repetitions, mean, standard deviation, median."""
        lines = ["model,n,d,s,epsilon,missing,method,iteration,reps,mean,sd,median"]
        for (setting, method, iteration), cell in sorted(self._cells.items()):
            numbers = f"{cell.reps},{cell.mean:.6g},{cell.sd:.6g},{cell.median:.6g}"
            lines.append(f'{",".join(map(str, setting))},"{method}",{iteration},{numbers}')
        return "\n".join(lines) + "\n"

    def reps(self, settings: Iterable[Setting]) -> str:
        """How many repetitions each of these settings has: "50", or "3 to 50"."""
        wanted = {key(setting) for setting in settings}
        counts = sorted({cell.reps for (setting, _, _), cell in self._cells.items() if setting in wanted})
        return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    def trace(self, setting: Setting, method: str) -> tuple[list[int], list[Cell]]:
        """The iterations, and what is known at each."""
        found = {i: cell for (at, m, i), cell in self._cells.items() if (at, m) == (key(setting), method)}
        return sorted(found), [found[i] for i in sorted(found)]

    def tried(self, setting: Setting, method: str) -> bool:
        return bool(self.trace(setting, method)[0])

    def has(self, setting: Setting, method: str) -> bool:
        """Whether the method ran there and did not refuse."""
        return self.tried(setting, method) and math.isfinite(self.last(setting, method).mean)

    def last(self, setting: Setting, method: str) -> Cell:
        """At the method's last iteration."""
        return self.trace(setting, method)[1][-1]

    def at(self, setting: Setting, method: str, iteration: int) -> Cell:
        return self._cells[key(setting), method, iteration]


class Store:
    """The file of one experiment."""

    def __init__(self, path: Path, name: str, protocol: dict[str, Any]) -> None:
        self.path = path
        self._first = f"# reproduce {name}, dpem {__version__}, seed {SEED}, digest {digest(name, protocol)}\n"
        self._repetitions: dict[tuple[Key, int], list[Point]] = {}
        if path.exists():
            self._load()

    def _load(self) -> None:
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        if not lines or lines[0] != self._first:
            raise ValueError(
                f"{self.path} was made with other settings or another version; move it away or use another folder."
            )
        expected: dict[tuple[Key, int], int] = {}
        for line in lines[2:]:
            row = _parsed(line)
            if row is not None:
                setting, rep, point, rows = row
                self._repetitions.setdefault((setting, rep), []).append(point)
                expected[setting, rep] = rows
        for task, rows in expected.items():
            if len(self._repetitions[task]) != rows:
                del self._repetitions[task]

    def has(self, setting: Setting, rep: int) -> bool:
        return (key(setting), rep) in self._repetitions

    def open(self) -> None:
        """Bring the file to a state that can be appended to: what is kept, and nothing after it."""
        self._write()

    def add(self, setting: Setting, rep: int, points: Sequence[Point]) -> None:
        """Append a repetition in one write."""
        self._repetitions[key(setting), rep] = list(points)
        with self.path.open("ab") as file:
            file.write(_block(key(setting), rep, points).encode())

    def close(self) -> None:
        """Sort the rows, so that the file does not depend on who finished first."""
        self._write()

    def results(self) -> Results:
        return Results.of(self._repetitions)

    def _write(self) -> None:
        text = self._first + ",".join(COLUMNS) + "\n"
        text += "".join(_block(*task, points) for task, points in sorted(self._repetitions.items()))
        beside = self.path.with_suffix(".csv.part")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, self.path)


def _block(setting: Key, rep: int, points: Sequence[Point]) -> str:
    first = ",".join(map(str, (*setting, rep)))
    return "".join(f'{first},"{p.method}",{p.iteration},{float(p.error):.6g},{len(points)}\n' for p in points)


def _parsed(line: str) -> tuple[Key, int, Point, int] | None:
    """A row, or None for what is left of one."""
    fields = next(csv.reader([line]))
    if len(fields) != len(COLUMNS) or not line.endswith("\n"):
        return None
    try:
        model, n, d, s, epsilon, missing, rep, method, iteration, error, rows = fields
        setting = model, int(n), int(d), int(s), float(epsilon), float(missing)
        return setting, int(rep), Point(method, int(iteration), float(error)), int(rows)
    except ValueError:
        return None
