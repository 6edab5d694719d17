"""A test of the theorems: how the privacy cost √(error² − non-private error²) grows with n, ε, s and d.

Theorem (Gaussian mixture, high dimension, equation ``gmmupp`` of the paper): the cost is at most of order
s·log d·√log(1/δ)·(log n)^{3/2}/(nε). Theorem (low dimension): d·(log n)^{3/2}·√log(1/δ)/(nε). The lower bounds of its
two propositions have the form √(s·log d/n) + s·log d/(nε) and √(d/n) + d·√log(1/δ)/(nε).

A power law is tested where a method is accurate. The paper's method needs a much larger n·ε than the improved one,
whose cost at that n·ε is too small to be measured. So each method has a base setting of its own, around which n, ε, s
and d vary in turn. δ = 1/(2n) varies with n, also in the theorem's form.

The base settings, the grids and the two precautions in :func:`slope` were chosen after trial runs of up to a dozen
repetitions, which include the first few of the final ones; the rule for which settings count was fixed before. Leaving
out costs that are not clearly positive biases small costs upwards, and so the slopes towards 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from studies.paper import theory
from studies.paper.reproduce.curves import (
    CORRECTED,
    DISTANCE,
    ETA,
    IMPROVED,
    IMPROVED_START,
    REFERENCE,
    REFERENCE_ITERATIONS,
    Plans,
    Table,
    plans,
)
from studies.paper.reproduce.store import Point, Results
from studies.paper.settings import Setting

NAME = "rates"
#: A setting counts towards a slope if its cost is below this, and above this number of its standard errors.
LARGEST_COST = 0.5
LEAST_STANDARD_ERRORS = 2.0
PROTOCOL = {"distance": DISTANCE, "eta": ETA, "reference": REFERENCE_ITERATIONS, "N0": "log n", "T": "sqrt log n"}


class Sweep(NamedTuple):
    """Settings that differ from a base setting in one variable."""

    variable: str
    methods: tuple[str, ...]
    settings: tuple[Setting, ...]

    @property
    def dense(self) -> bool:
        return self.settings[0].dense

    def x(self) -> list[float]:
        return [float(getattr(setting, FIELDS[self.variable])) for setting in self.settings]


FIELDS = {"n": "n", "ε": "epsilon", "s": "s", "d": "d"}


def sweeps_around(base: Setting, methods: tuple[str, ...], **values: Sequence[float]) -> list[Sweep]:
    out = []
    for variable, field in FIELDS.items():
        if field in values:
            changes: list[dict[str, Any]] = [{field: v} for v in values[field]]
            changed = [replace(base, **change) for change in changes]
            settings = tuple(replace(setting, s=setting.d) if setting.dense else setting for setting in changed)
            out.append(Sweep(variable, methods, settings))
    return out


_SPARSE = Setting("symmetric-mixture", n=64_000, d=50, s=4, epsilon=0.8)
_DENSE = Setting("symmetric-mixture", n=32_000, d=10, s=10, epsilon=0.8, dense=True)
PAPER_SWEEPS = [
    *sweeps_around(_SPARSE, (CORRECTED,), n=(32_000, 64_000, 128_000, 256_000), epsilon=(0.4, 0.8, 1.6, 3.2),
                   s=(2, 4, 6, 8), d=(25, 50, 100, 200)),
    *sweeps_around(_DENSE, (CORRECTED,), n=(16_000, 32_000, 64_000, 128_000), epsilon=(0.4, 0.8, 1.6, 3.2),
                   d=(5, 10, 15, 20)),
]  # fmt: skip
IMPROVED_SWEEPS = [
    *sweeps_around(replace(_SPARSE, n=8000, d=100, s=8, epsilon=0.2), (IMPROVED_START, IMPROVED),
                   n=(4000, 8000, 16_000, 32_000), epsilon=(0.1, 0.2, 0.4, 0.8), s=(2, 4, 8, 16),
                   d=(25, 100, 400, 1000)),
    *sweeps_around(replace(_DENSE, n=4000, epsilon=0.2), (IMPROVED_START, IMPROVED),
                   n=(2000, 4000, 8000, 16_000), epsilon=(0.1, 0.2, 0.4, 0.8), d=(5, 10, 20, 30)),
]  # fmt: skip
SWEEPS = PAPER_SWEEPS + IMPROVED_SWEEPS
WITH_IMPROVED = frozenset(setting for sweep in IMPROVED_SWEEPS for setting in sweep.settings)
SETTINGS = tuple(dict.fromkeys(setting for sweep in SWEEPS for setting in sweep.settings))


def prepare(setting: Setting) -> Plans | None:
    return plans(setting) if setting in WITH_IMPROVED else None


def repeat(setting: Setting, prepared: Plans | None, rep: int) -> list[Point]:
    """The last errors of non-private EM, the corrected paper and, where it is swept, the improved method."""
    table = Table(NAME, setting, rep)
    found = {REFERENCE: table.reference(), CORRECTED: table.paper(CORRECTED, False)}
    if prepared is not None:
        found[IMPROVED_START] = table.improved(IMPROVED_START, prepared.same_start, table.start)
        if prepared.no_start is not None:
            found[IMPROVED] = table.improved(IMPROVED, prepared.no_start, None)
    return [Point(method, len(trace) - 1, setting.error(trace[-1])) for method, trace in found.items()]


def theorem(setting: Setting) -> float:
    """The privacy term of the paper's upper bound, without its constant."""
    return theory.upper_rate(setting.model, **sizes(setting)).privacy


def lower_bound(setting: Setting) -> float:
    """The form of the paper's minimax lower bound, without its constant."""
    return sum(theory.lower_rate(setting.model, **sizes(setting)))


def sizes(setting: Setting) -> dict[str, Any]:
    return {
        "n": setting.n,
        "d": setting.d,
        "s": None if setting.dense else setting.s,
        "epsilon": setting.epsilon,
        "delta": setting.delta,
    }


class Cost(NamedTuple):
    """The privacy cost of a method in a setting, with the standard error of its logarithm; NaN if not above zero."""

    value: float
    log_error: float

    @property
    def counts(self) -> bool:
        return self.value < LARGEST_COST and self.log_error < 1 / (2 * LEAST_STANDARD_ERRORS)


def cost(results: Results, setting: Setting, method: str) -> Cost:
    """√(mean error² − mean non-private error²), both of the same tables.

    With m that difference and e its standard error, log √m = ½·log m has the standard error ½·e/m, to first order. A
    squared error has the standard deviation 2·mean·sd, to first order. The two are positively correlated; treating them
    as independent overstates e.
    """
    if not results.has(setting, method):
        return Cost(math.nan, math.inf)
    own, reference = results.last(setting, method), results.last(setting, REFERENCE)
    excess = own.mean**2 + own.sd**2 - reference.mean**2 - reference.sd**2
    error = 2 * math.hypot(own.mean * own.sd, reference.mean * reference.sd) / math.sqrt(max(own.reps - 1, 1))
    return Cost(math.sqrt(excess), error / excess / 2) if excess > 0 else Cost(math.nan, math.inf)


class Slope(NamedTuple):
    """An exponent, its standard error, the exponent of the theorem's form on the same grid, and how many settings
    counted.
    """

    value: float
    error: float
    theorem: float
    used: int
    intercept: float


def slope(results: Results, sweep: Sweep, method: str) -> Slope:
    """Weighted least squares of log cost on log x over the settings that count.

    Standard errors from few repetitions are uncertain, so each is taken as at least half of their median. If the points
    scatter about the line more than their standard errors explain, the slope's standard error is increased accordingly.
    """
    costs = [cost(results, setting, method) for setting in sweep.settings]
    keep = [i for i, c in enumerate(costs) if c.counts]
    if len(keep) < 2:
        return Slope(math.nan, math.nan, math.nan, len(keep), math.nan)
    x = np.log([sweep.x()[i] for i in keep])
    y = np.log([costs[i].value for i in keep])
    errors = np.array([costs[i].log_error for i in keep])
    weights = np.maximum(errors, np.median(errors) / 2) ** -2
    value, error, intercept = weighted_line(x, y, weights)
    if len(keep) > 2:
        scatter = float(np.sum(weights * (y - intercept - value * x) ** 2)) / (len(keep) - 2)
        error *= math.sqrt(max(1.0, scatter))
    form = np.log([theorem(sweep.settings[i]) for i in keep])
    return Slope(value, error, weighted_line(x, form, weights)[0], len(keep), intercept)


def weighted_line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """Slope, its standard error (the weights are 1/variance) and intercept.

    >>> found = weighted_line(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]), np.ones(3))
    >>> [round(v, 3) for v in found]
    [2.0, 0.707, 1.0]
    """
    centre = np.average(x, weights=weights)
    spread = float(np.sum(weights * (x - centre) ** 2))
    value = float(np.sum(weights * (x - centre) * y)) / spread
    return value, 1 / math.sqrt(spread), float(np.average(y, weights=weights) - value * centre)
