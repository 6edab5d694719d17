"""The methods of every figure, as functions that return β after each step on one simulated table.

The paper's algorithms are those of :mod:`dpem.paper.algorithms`; the improved method's steps are run one by one.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.paper.algorithms import MODELS, high_dimensional_em, low_dimensional_em
from dpem.paper.estimators.planning import ASSUMED_MISSING, START_DISTANCE
from dpem.paper.models import MODELS as PRIVATE_MODELS
from dpem.paper.planning.plans import needs_start
from dpem.paper.reference import hard_threshold
from dpem.paper.steps import PaperState
from dpem.privacy import Account, Curator
from dpem.privacy.noise import SeededNoise
from dpem.query import FloatArray
from dpem.tables import ArraySource
from studies.paper.settings import Setting

PRINTED, CORRECTED = "paper, as printed", "paper, corrected"
IMPROVED_START, IMPROVED = "improved, same start", "improved, no start"
REFERENCE, PRINTED_REFERENCE = "non-private", "non-private, printed weight"
WANG, WANG_OWN = "Wang et al. 2020, balanced", "Wang et al. 2020, its own scale"
SMALLER = "paper, corrected, N₀ = 3, T = 1.5"

SEED = 20_260_101
#: ‖β⁰ − β*‖. The theorem for the Gaussian mixture requires R/2 with R = ‖β*‖/4.
DISTANCE = 1 / 8
#: The step size of the paper's experiments; that of non-private EM is 1.
ETA = 0.5
REFERENCE_ITERATIONS = 12

Trace = list[FloatArray]


def seed(*what: object) -> int:
    """A seed that depends on the arguments only."""
    text = "|".join(map(str, what)).encode()
    return int(np.random.SeedSequence([SEED, zlib.crc32(text)]).generate_state(1)[0])


def prescribed(n: int) -> tuple[int, float]:
    """The N₀ and T of the theorems with constants 1: log n (rounded) and √log n."""
    return max(1, round(math.log(n))), math.sqrt(math.log(n))


@dataclass(frozen=True)
class Plans:
    """The improved method's steps with the estimator's settings, from a start and (None if it refuses) without one."""

    same_start: tuple[Any, ...]
    no_start: tuple[Any, ...] | None


def plans(setting: Setting) -> Plans:
    """The steps for a setting, planned with the estimators' assumptions."""

    def chosen(start_distance: float | None) -> tuple[Any, ...] | None:
        assumed: dict[str, Any] = {"assumed_sparsity": None, "assumed_sigma": None, "assumed_signal": 1.0}
        found = replace(setting, **assumed, missing=ASSUMED_MISSING, start_distance=start_distance).plan()
        return None if needs_start(found) else found.steps

    same_start = chosen(START_DISTANCE)
    assert same_start is not None
    return Plans(same_start, chosen(None))


#: The names from which the seeds of the committed results were drawn, by today's names.
SEED_NAMES = {
    "symmetric-mixture": "gaussian-mixture",
    "symmetric-regression": "mixture-regression",
    IMPROVED_START: "tight, same start",
    IMPROVED: "tight, no start",
    WANG: "Wang et al. 2020",
}


class Table:
    """One simulated table and fits to it, each with its own account and its own seeded noise."""

    def __init__(self, figure: str, setting: Setting, rep: int) -> None:
        self.setting = setting
        model, *sizes = key(setting)
        self._key = (figure, SEED_NAMES.get(model, model), *sizes, rep)
        rng = np.random.default_rng(seed(*self._key))
        self.X, self.y = setting.draw(rng)
        self.start = setting.start_near(rng, DISTANCE)

    def seed(self, method: str) -> int:
        return seed(*self._key, SEED_NAMES.get(method, method))

    def curator(self, method: str, epsilon: float) -> Curator:
        account = Account(epsilon, self.setting.delta, gaussian=self.setting.dense)
        return Curator(ArraySource(self.X, self.y), account, SeededNoise(self.seed(method)))

    def paper(
        self, method: str, as_printed: bool, *, n_iter: int | None = None, T: float | None = None, noise: float = 1.0
    ) -> Trace:
        """The paper's algorithm, with ``noise`` times its stated noise; below 1 it is not private."""
        setting = self.setting
        batches, level = prescribed(setting.n)
        settings: dict[str, Any] = {
            "epsilon": setting.epsilon / noise,
            "delta": setting.delta,
            "n_iter": n_iter or batches,
            "T": T or level,
            "sigma": setting.sigma,
            "step": ETA,
            "as_printed": as_printed,
            "random_state": self.seed(method),
        }
        if setting.dense:
            return list(low_dimensional_em(setting.model, self.X, self.y, self.start, **settings))
        return list(high_dimensional_em(setting.model, self.X, self.y, self.start, s=setting.s, **settings))

    def reference(self, as_printed: bool = False) -> Trace:
        """Non-private EM with hard thresholding: step size 1, all rows, no truncation."""
        setting, trace = self.setting, [self.start]
        gradient = MODELS[setting.model].gradient
        for _ in range(REFERENCE_ITERATIONS):
            whole = trace[-1] + gradient(trace[-1], self.X, self.y, math.inf, setting.sigma, as_printed)
            trace.append(hard_threshold(whole, None if setting.dense else setting.s))
        return trace

    def improved(self, method: str, steps: tuple[Any, ...], start: FloatArray | None) -> Trace:
        model: Any = PRIVATE_MODELS[self.setting.model](self.setting.sigma)
        curator = self.curator(method, self.setting.epsilon)
        states = [PaperState.at(start, self.setting.d)]
        for step in steps:
            states.append(step.run(curator, model, states[-1]))
        return [state.beta for state in states]


def traces(table: Table, prepared: Plans) -> dict[str, Trace | None]:
    """The methods of the high-dimensional figures on one table; None if the estimator refuses the fit."""
    setting = table.setting
    out: dict[str, Trace | None] = {
        PRINTED: table.paper(PRINTED, True),
        CORRECTED: table.paper(CORRECTED, False),
        IMPROVED_START: table.improved(IMPROVED_START, prepared.same_start, table.start),
        IMPROVED: None if prepared.no_start is None else table.improved(IMPROVED, prepared.no_start, None),
        REFERENCE: table.reference(),
    }
    if setting.model != "missing-regression":
        out[PRINTED_REFERENCE] = table.reference(as_printed=True)
    return out


def key(setting: Setting) -> tuple[str, int, int, int, float, float]:
    """The key of a setting in a table of results."""
    return setting.model, setting.n, setting.d, setting.s, setting.epsilon, setting.missing
