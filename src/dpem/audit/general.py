"""Audits of any registered model, a third party's included, and of the search: no list of models is kept here.

The estimator is made from its signature with unit bounds, or two levels a column where it takes levels alone. Its
tables are invented. Of the corners of the box that the bounds span, and a row without any entry, the audit takes the
pair that the releases distinguish best: the largest sum over the releases of (change/scale)², from a replay.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpem import registry
from dpem.audit.fits import Fit, fitted
from dpem.audit.neighbours import Table, neighbours, replaced
from dpem.audit.replay import Verdict, compare, in_memory, overspent
from dpem.audit.tape import Tape, record
from dpem.fitting.search import DPGridSearch
from dpem.query import FloatArray

#: What the search chooses between: fits of the same model with and without a fit check.
SEARCH = "search"
ROWS, COLUMNS = 200, 4


def subject(model: str, *, epsilon: float, delta: float, rows: int = ROWS, columns: int = COLUMNS) -> Fit:
    """The black-box audit of a model by its registered name, or of ``"search"``.

    >>> subject("linear-regression", epsilon=1.0, delta=1e-5, rows=50, columns=2).adversaries
    ('every release',)
    """
    estimator, table = estimator_of(model, epsilon, delta, columns), invented(model, rows, columns)
    corners = [replaced(table, name, row, y, np.array([0])) for name, row, y in _corners(model, columns)]
    best = max(itertools.combinations(corners, 2), key=lambda pair: _distance(estimator, *pair))
    return Fit(model, estimator, best, np.zeros(0), attribute=None)


def replay_model(model: str, *, epsilon: float, delta: float, rows: int = ROWS, columns: int = COLUMNS) -> Verdict:
    """Record a fit of a model to an invented table and play it again on every kind of neighbour."""
    estimator, table = estimator_of(model, epsilon, delta, columns), invented(model, rows, columns)
    first = fitted(record(estimator, *in_memory(table)))
    verdict = Verdict(list(overspent(first, epsilon, delta)))
    for kind in neighbours(table, np.ones(columns), missing=True, broken=True):
        verdict.merge(compare(first, record(estimator, *in_memory(kind), frozen=first)), kind.name)
    return verdict


def estimator_of(model: str, epsilon: float, delta: float, columns: int) -> Any:
    """The estimator at its defaults, with what its signature says that it must know."""
    if model == SEARCH:
        inner = estimator_of("gaussian-mixture", epsilon, delta, columns).set_params(epsilon=None, delta=None)
        return DPGridSearch(inner, {"check": [True, False]}, epsilon=epsilon, delta=delta)
    takes = inspect.signature(kind := registry.estimator(model)).parameters
    known: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    if "bounds" in takes:
        known["bounds"] = (-1.0, 1.0)
    elif "levels" in takes:
        known["levels"] = {f"x{j}": [0, 1] for j in range(columns)}
    if "y_bounds" in takes:
        known["y_bounds"] = (-1.0, 1.0)
    return kind(**known)


def invented(model: str, rows: int, columns: int) -> Table:
    """Rows within the bounds, with responses for a model that has them: the same at every call."""
    rng = np.random.default_rng(0)
    numbers, responses = _units(model)
    X = rng.uniform(-1, 1, size=(rows, columns)) if numbers else rng.integers(0, 2, size=(rows, columns)).astype(float)
    if responses is None:
        return Table("as drawn", X, None)
    noise = rng.uniform(-1, 1, size=rows)
    y = (X[:, 0] + noise) / 2
    return Table("as drawn", X, y if responses == "numbers" else (y > 0).astype(float))


def _units(model: str) -> tuple[bool, str | None]:
    """Whether columns hold numbers (or the levels 0 and 1), and what the responses are, if there are any."""
    if model == SEARCH:
        return True, None
    takes = inspect.signature(kind := registry.estimator(model)).parameters
    if not kind._needs_y:
        return "bounds" in takes, None
    return "bounds" in takes, "numbers" if "y_bounds" in takes else "classes"


def _corners(model: str, columns: int) -> Iterator[tuple[str, FloatArray, float]]:
    numbers, responses = _units(model)
    low, bottom = (-1.0 if numbers else 0.0), (0.0 if responses == "classes" else -1.0)
    alternating = np.resize([1.0, low], columns)
    for y in (1.0, bottom) if responses else (0.0,):
        yield f"upper corner, response {y:g}", np.ones(columns), y
        yield f"lower corner, response {y:g}", np.full(columns, low), y
        yield f"mixed corner, response {y:g}", alternating, y
    yield "nothing observed", np.full(columns, np.nan), bottom


def _distance(estimator: Any, one: Table, two: Table) -> float:
    first = fitted(record(estimator, *in_memory(one)))
    return distance(first, record(estimator, *in_memory(two), frozen=first))


def distance(first: Tape, second: Tape) -> float:
    """How well the releases distinguish two tables: for Gaussian noise alone, the squared distance in units of it."""
    total = 0.0
    for one, two in zip(first.answers, second.answers, strict=True):
        total += float(np.sum(((one.statistic - two.statistic) / one.scale) ** 2))
    return total
