"""The problems, and their tables written to a folder for programs that know nothing of dpem.

A job is a dictionary that can be written as JSON: the public facts of a problem, the paths of its tables, and those of
*practice* tables, drawn from the same model with other seeds. Settings may be tuned on practice tables, whose truth is
given; the tables of the comparison come without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpem.query import FloatArray
from studies.paper.settings import Setting

#: Length of the true coefficients, known to every method.
SIGNAL = 1.0
#: How far the starts of mixtures are from the truth.
START_DISTANCE = 0.5
#: The first seed of practice tables.
PRACTICE_SEED = 10_000


@dataclass(frozen=True)
class Problem:
    """A row group of the table."""

    key: str
    title: str
    setting: Setting

    @property
    def sparsity(self) -> int | None:
        return None if self.setting.dense else self.setting.s

    @property
    def practice(self) -> int:
        """Practice tables: with fewer, the winner of a grid is luck; wide ones take too long for more."""
        return 10 if self.setting.dense else 4

    def table(self, seed: int) -> Table:
        """Rows, response and start drawn with one seed. Regression with missing covariates starts at zero."""
        setting = self.setting
        X, y = setting.draw(np.random.default_rng(seed))
        if setting.model == "missing-regression":
            return Table(X, y, np.zeros(setting.d))
        return Table(X, y, setting.start_near(np.random.default_rng((seed, 1)), START_DISTANCE))

    def facts(self) -> dict[str, Any]:
        """What every method is given."""
        setting = self.setting
        names = ("model", "n", "d", "s", "epsilon", "delta", "sigma", "missing")
        return {
            "problem": self.key,
            **{name: getattr(setting, name) for name in names},
            "sparsity": self.sparsity,
            "signal": SIGNAL,
        }


@dataclass(frozen=True)
class Table:
    """What a method is given of one repetition."""

    X: FloatArray
    y: FloatArray | None
    start: FloatArray

    def save(self, folder: Path) -> dict[str, str | None]:
        """Write .npy files and say where."""
        folder.mkdir(parents=True)
        paths: dict[str, str | None] = {}
        for name in ("X", "y", "start"):
            values, path = getattr(self, name), folder / f"{name}.npy"
            paths[name] = None if values is None else str(path)
            if values is not None:
                np.save(path, values)
        return paths


PROBLEMS = (
    Problem(
        "mixture-low",
        "Gaussian mixture, n = 10,000, d = 10, ε = 0.5",
        Setting("symmetric-mixture", 10_000, 10, 10, 0.5, dense=True),
    ),
    Problem(
        "mixture-high",
        "Gaussian mixture, n = 4,000, d = 1,000, s = 10, ε = 0.5",
        Setting("symmetric-mixture", 4000, 1000, 10, 0.5),
    ),
    Problem(
        "missing-low",
        "Regression, 10 % of covariates missing, n = 5,000, d = 10, ε = 0.6",
        Setting("missing-regression", 5000, 10, 10, 0.6, missing=0.1, dense=True),
    ),
    Problem(
        "missing-high",
        "Regression, 10 % of covariates missing, n = 5,000, d = 1,000, s = 10, ε = 0.6",
        Setting("missing-regression", 5000, 1000, 10, 0.6, missing=0.1),
    ),
    Problem(
        "regressions-low",
        "Mixture of regressions, n = 50,000, d = 10, ε = 0.6",
        Setting("symmetric-regression", 50_000, 10, 10, 0.6, dense=True),
    ),
    Problem(
        "regressions-high",
        "Mixture of regressions, n = 5,000, d = 1,000, s = 10, ε = 0.6",
        Setting("symmetric-regression", 5000, 1000, 10, 0.6, start_distance=START_DISTANCE),
    ),
)


def write(problem: Problem, reps: int, folder: Path) -> dict[str, Any]:
    """Write a problem's tables below ``folder`` and return its job."""
    truth = folder / "truth.npy"
    practice = [
        problem.table(PRACTICE_SEED + i).save(folder / f"practice-{i}") | {"truth": str(truth)}
        for i in range(problem.practice)
    ]
    np.save(truth, problem.setting.truth())
    return {
        **problem.facts(),
        "tables": [problem.table(rep).save(folder / f"table-{rep}") for rep in range(reps)],
        "practice": practice,
    }
