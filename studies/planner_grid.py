"""Predictions of plans on a grid of public numbers: the table of the package that the planner's page shows.

    python -m studies.planner_grid [MODEL ...]

A plan depends on ε and δ only through its price ρ, so the grid is over rows, columns, ρ, the number of components and
the assumed strength of effects; a second table has ρ by ε and δ. The table has the price shares of the plan in its
middle: a test compares them with the current ones and fails if the table must be made again.

Predictions are made monotone in the rows and in ε: where a neighbouring point contradicts that slightly, the better
prediction is used.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpem import registry
from dpem._files import write_text
from dpem.fitting.model import Effect
from dpem.fitting.plan import Plan
from dpem.planner import GRID
from dpem.privacy import Price, largest_price
from dpem.query import FloatArray
from dpem.tables.entries import checked_levels

DELTA = 1e-6


class Axes(NamedTuple):
    """The public numbers for which plans are made, in increasing order."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    epsilons: tuple[float, ...]
    groups: tuple[int, ...]


FINE = Axes(
    (300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    (2, 5, 10, 20, 50, 100),
    (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    (2, 3, 5, 8),
)
#: Coarser grids for models whose plans take long, or longer.
SMALL = Axes(FINE.rows, (5, 10, 20), FINE.epsilons, (2, 3, 5))
COARSE = Axes((1000, 10_000, 100_000, 1_000_000), (5, 10, 20), (0.1, 0.3, 1.0, 3.0, 10.0), (2, 4))
#: Seconds that the plans of one model should take, and the most of them.
PATIENCE, MOST_NODES = 60.0, 2500

#: Where ρ is tabled.
EPSILON_TABLE = tuple(float(f"{value:.6g}") for value in np.geomspace(0.01, 30, 36))
DELTA_TABLE = tuple(10.0**-k for k in range(12, 1, -1))

_COMMON = (
    *("epsilon", "delta", "bounds", "y_bounds", "levels"),
    *("person", "rows_per_person", "budget", "check", "random_state"),
)


def counted(kind: type[Any]) -> str | None:
    """The argument of an estimator that counts groups: the whole number among its own, if there is one."""
    own = inspect.signature(kind.__init__).parameters.values()
    whole = [p.name for p in own if p.name not in _COMMON and type(p.default) is int]
    return whole[0] if whole else None


def estimator(kind: type[Any], d: int, epsilon: float, groups: int | None) -> Any:
    """An estimator for d bounded columns."""
    takes = inspect.signature(kind.__init__).parameters
    given: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA}
    if "bounds" in takes:
        given["bounds"] = (-1.0, 1.0)
    elif "levels" in takes:
        given["levels"] = {f"x{j}": [0, 1] for j in range(d)}
    count = counted(kind)
    return kind(**given, **({count: groups} if count else {}))


def assumed_effect(kind: type[Any]) -> Effect | None:
    """The strength of effects that the model's plans assume, where it can be chosen."""
    one = estimator(kind, 5, 1.0, 2)
    names = [f"x{j}" for j in range(5)]
    schema = one._schema(names, checked_levels(getattr(one, "levels", None)), None, plan=True)
    known: Effect | None = one._model(schema).effect
    return known


def tabled(kind: type[Any], say: Callable[[str], None] = lambda text: None) -> dict[str, Any] | None:
    """Predictions of a model on the grid, or None where it makes none.

    ``values`` has, for each (effect, groups, columns, rows, ε) in that order of nesting, a node (:func:`encoded`); null
    where the plan refuses. ``assumed`` has the words for each number of groups, "{groups}" and
    "{effect}" standing for the numbers.
    """
    count, effect = counted(kind), assumed_effect(kind)
    effects: Sequence[float | None] = (None,) if effect is None else effect.others
    axes = _axes(kind, len(effects))
    groups: Sequence[int | None] = axes.groups if count else (None,)
    every = (effects, groups, axes.columns, axes.rows, axes.epsilons)
    values, found, gaussian = np.full((*map(len, every), 4), np.nan), None, True
    assumed = ["" for _ in groups]
    for place in np.ndindex(*map(len, every)):
        strength, K, d, n, epsilon = (axis[i] for axis, i in zip(every, place, strict=True))
        if place[3:] == (0, 0):
            say(f"{kind.__name__}: effect {strength}, {K} groups, {d} columns")
        try:
            plan = estimator(kind, d, epsilon, K).plan(n, d, effect=strength)
        except ValueError:
            continue
        if plan.prediction is None:
            return None
        found, gaussian = plan.prediction, plan.price.gaussian
        values[place] = found.median, found.low, found.high, found.failure
        assumed[place[1]] = _worded(found.assumed, effect, strength, K)
    if found is None:
        return None
    own = {
        "estimator": kind.__name__,
        "quantity": found.quantity,
        "assumed": assumed,
        "count": count,
        "rows": axes.rows,
        "columns": axes.columns,
        "groups": axes.groups if count else (),
        "effect": None if effect is None else effect._asdict(),
        "gaussian": gaussian,
        "needs_y": bool(kind._needs_y),
        "bounds": "bounds" in inspect.signature(kind.__init__).parameters,
        "rho": [largest_price(epsilon, DELTA, gaussian=gaussian).rho for epsilon in axes.epsilons],
        "values": encoded(never_worse(values)),
    }
    return {**own, "shares": shares(middle_plan(kind, own)[0])}


def middle_plan(kind: type[Any], table: dict[str, Any]) -> tuple[Plan, list[float]]:
    """The plan in the middle of a model's grid, made now, and what the table has in its place."""
    effect = table["effect"] or {"others": [None], "usual": None}
    names = ("groups", "columns", "rows", "rho")
    axes = [table[name] or [None] for name in names]
    place = [len(axis) // 2 for axis in axes]
    K, d, n, rho = (axis[i] for axis, i in zip(axes, place, strict=True))
    index = np.ravel_multi_index(
        (effect["others"].index(effect["usual"]), *place), (len(effect["others"]), *map(len, axes))
    )
    plan = estimator(kind, d, Price(rho, table["gaussian"]).epsilon(DELTA), K).plan(n, d)
    return plan, decoded(table["values"][index])


def shares(plan: Plan) -> list[float]:
    """The shares of the price that the steps of a plan have."""
    return [float(f"{share:.4g}") for _, share in plan.shares()]


def _worded(words: str, effect: Effect | None, strength: float | None, groups: int | None = None) -> str:
    """The words with "{groups}" in the place of the number of components, which comes first, and "{effect}" in the
    place of the strength: numbers before it may be the same.

    >>> _worded("Assumed: 3 round components, 3 spreads apart.", Effect("", 3.0, (3.0,)), 3.0, 3)
    'Assumed: {groups} round components, {effect} spreads apart.'
    """
    if groups is not None:
        words = re.sub(rf"\b{groups}\b", "{groups}", words, count=1)
    if effect is None or strength is None:
        return words
    before, size, after = words.rpartition(f"{100 * strength:.0f}" if effect.percent else f"{strength:g}")
    return f"{before}{{effect}}{after}" if size else words


def _axes(kind: type[Any], effects: int) -> Axes:
    """The axes, with as many points as the time limit allows: a plan with the most columns is timed."""
    for axes in (FINE, SMALL):
        d = axes.columns[-1]
        times = []
        for n, epsilon in ((30_000, 1.0), (100_000, 0.3), (1000, 1.0)):  # plans remember what they rehearsed
            begun = time.process_time()
            estimator(kind, d, epsilon, 4).plan(n, d)
            times.append(time.process_time() - begun)
        took = sum(times[1:]) / 2
        plans = len(axes.rows) * len(axes.columns) * len(axes.epsilons) * (len(axes.groups) if counted(kind) else 1)
        if took * plans * effects < PATIENCE and plans * effects <= MOST_NODES:
            return axes
    return COARSE


def never_worse(values: FloatArray) -> FloatArray:
    """The same with medians, ends and failures that do not grow with rows or ε, and a median between its ends."""
    made = values.copy()
    for axis in (-3, -2):
        made = np.where(np.isnan(made), np.nan, np.fmin.accumulate(made, axis=axis))
    made[..., 1] = np.fmin(made[..., 1], made[..., 0])
    made[..., 2] = np.fmax(made[..., 2], made[..., 0])
    return made


def encoded(values: FloatArray) -> list[list[float] | None]:
    """The nodes in order, or null: median, low and high in hundredths of natural logarithms, and the failure where it
    is at least 0.0005. Logarithms have no 0, for which the least prediction above 0 stands.
    """
    nodes = values.reshape(-1, 4)
    least = np.min(nodes[:, :3], initial=np.inf, where=nodes[:, :3] > 0)
    logs = np.rint(100 * np.log(np.maximum(nodes[:, :3], least)))
    return [
        None if math.isnan(failure) else [*map(int, log), *([round(failure, 3)] if failure >= 5e-4 else [])]
        for log, failure in zip(logs, nodes[:, 3].tolist(), strict=True)
    ]


def decoded(node: Sequence[float]) -> list[float]:
    """Median, low, high and failure of a node.

    >>> [round(value, 3) for value in decoded([-100, -200, 0, 0.25])], decoded([0, 0, 0])[3]
    ([0.368, 0.135, 1.0, 0.25], 0.0)
    """
    return [*(math.exp(log / 100) for log in node[:3]), *(node[3:] or [0.0])]


def prices() -> dict[str, list[list[float]]]:
    """ρ for each (ε, δ), for Gaussian noise only and for any noise."""
    return {
        name: [[float(f"{largest_price(e, d, gaussian=gaussian).rho:.6g}") for d in DELTA_TABLE] for e in EPSILON_TABLE]
        for name, gaussian in (("gaussian", True), ("any", False))
    }


def made(names: Iterable[str], say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The whole grid, for these models."""
    found = {name: tabled(registry.estimator(name), say) for name in names}
    return {
        "delta": DELTA,
        "epsilon_table": EPSILON_TABLE,
        "delta_table": DELTA_TABLE,
        "prices": prices(),
        "models": {name: own for name, own in found.items() if own is not None},
    }


def stored() -> dict[str, Any]:
    """The grid that is kept."""
    grid: dict[str, Any] = json.loads(GRID.read_text(encoding="utf-8"))
    return grid


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="model", help="the models to plan again; all by default")
    some = parser.parse_args().models
    whole = made(some or registry.general(), print)
    if some:
        kept = {name: own for name, own in stored()["models"].items() if name not in some}
        whole["models"] = dict(sorted({**kept, **whole["models"]}.items()))
    write_text(GRID, json.dumps(whole, separators=(",", ":")) + "\n")
    print(f"wrote {GRID.name}")
