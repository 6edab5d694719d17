"""From dimensionless settings, the knobs, to the steps of a fit.

A knob is a multiple of a scale of the model (σ√s for a contribution on a support, the residual's standard deviation,
…), so that one starting point and one small grid serve problems of every size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpem.paper.improved.planning.simulate import Problem
from dpem.paper.improved.steps import Refine, Screen, Select, Start, Step
from dpem.paper.models import MissingRegression, SymmetricMixture
from dpem.paper.models.base import Clip


@dataclass(frozen=True)
class Knobs:
    """Dimensionless settings of the improved method; ``share_*`` are relative shares of ρ."""

    screened: float = 1.0  # coordinates screened, as a multiple of s
    share_screen: float = 4.0
    share_start: float = 0.7
    share_select: float = 2.0
    share_refine: float = 4.0
    entry: float = 0.6  # clip of an entry, in units of its standard deviation
    residual: float = 0.7  # clip of a residual, in units of its standard deviation
    select_step: float = 1.5  # η of the selecting step: undoes the shrinking by its clips
    radius: float = 1.0  # ℓ2 clip of a contribution on the support, in units of its typical norm
    start_radius: float = 1.0
    n_refine: int = 2
    growth: float = 2.0  # price of a refining step over that of the one before
    step: float = 1.0


#: The values that the search tries. No share is 0, since every query must have a price.
GRID: dict[str, tuple[float, ...]] = {
    "share_refine": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0),
    "share_screen": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0),
    "share_select": (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0),
    "select_step": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
    "share_start": (0.2, 0.4, 0.7, 1.0, 1.5, 2.0),
    "radius": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.8),
    "n_refine": (1, 2, 3, 4, 5, 6, 8),
    "growth": (1.0, 1.4, 2.0, 3.0, 5.0, 8.0),
    "step": (0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5, 1.8),
    "entry": (0.3, 0.6, 1.0, 1.4, 1.8, 2.5),
    "residual": (0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0),
    "screened": (0.6, 0.8, 1.0, 1.25, 1.6),
    "start_radius": (0.8, 1.0, 1.2, 1.5),
}

#: The largest ratio of the last refining step's price to that of the first; it limits plans with many fixed steps.
MOST_GROWTH = 1e9


@dataclass(frozen=True)
class Pipeline:
    """Which steps a fit needs: a private start or a given one, a selection or none."""

    problem: Problem
    private_start: bool
    sparse: bool
    fixed: tuple[tuple[str, float], ...] = ()

    def first(self) -> Knobs:
        """Where the search starts: the defaults, and the values that the user fixed."""
        fixed: dict[str, Any] = dict(self.fixed)
        return Knobs(**fixed)

    def knobs(self) -> list[str]:
        """The knobs that matter to this pipeline, the most influential first."""
        unused = {knob for knob, _ in self.fixed}
        if not (self.private_start and self.sparse):
            unused |= {"share_screen", "screened"}
        if not self.private_start:
            unused |= {"share_start", "start_radius"}
        if not self.sparse:
            unused |= {"share_select", "entry", "residual", "select_step"}
        if isinstance(self.problem.model, SymmetricMixture):
            unused |= {"residual", "select_step"}
        if isinstance(self.problem.model, MissingRegression):
            unused |= {"select_step"}  # from β = 0 the step size does not change the order of the scores
        return [knob for knob in GRID if knob not in unused]

    def steps(self, knobs: Knobs, rho: float) -> tuple[Step, ...]:
        """The steps at these knobs, their prices adding up to ρ."""
        p, knobs_used = self.problem, self.knobs()
        shares = {k: getattr(knobs, k) for k in knobs_used if k.startswith("share_")}
        unit = rho / math.fsum(shares.values())
        steps: list[Step] = []
        k = p.s
        if "share_screen" in shares:
            k = max(2, min(p.d, round(knobs.screened * p.s)))
            steps.append(Screen(shares["share_screen"] * unit, k, p.signal, p.s))
        if "share_start" in shares:
            steps.append(Start(shares["share_start"] * unit, knobs.start_radius * self._row_norm(k), p.signal))
        if "share_select" in shares:
            step = knobs.select_step if "select_step" in knobs_used else 1.0
            steps.append(Select(shares["share_select"] * unit, p.s, self._clip(knobs), step))
        ratio = min(float(knobs.growth), MOST_GROWTH ** (1 / knobs.n_refine))
        growth = np.power(ratio, np.arange(knobs.n_refine))
        for price, norm in zip(growth / growth.sum(), self._norms(knobs.n_refine), strict=True):
            steps.append(Refine(float(price) * shares["share_refine"] * unit, knobs.radius * float(norm), knobs.step))
        return tuple(steps)

    def _row_norm(self, k: int) -> float:
        """Typical norm of a row on k screened coordinates."""
        p = self.problem
        if isinstance(p.model, SymmetricMixture):
            return math.sqrt(min(1.0, k / p.s) * p.signal**2 + k * p.model.sigma**2)
        return math.sqrt(k)

    def _clip(self, knobs: Knobs) -> Clip:
        p = self.problem
        if isinstance(p.model, SymmetricMixture):
            return Clip(knobs.entry * p.model.sigma)
        return Clip(knobs.entry, knobs.residual * math.hypot(p.model.sigma, self._distance()))

    def _norms(self, count: int) -> np.ndarray:
        """Typical norm of a contribution at each refining step: the residual shrinks as β improves."""
        p = self.problem
        sigma, root = p.model.sigma, math.sqrt(p.s)
        if isinstance(p.model, SymmetricMixture):
            return np.full(count, sigma * root)
        last = sigma
        if isinstance(p.model, MissingRegression):
            last = sigma**2 / math.sqrt(sigma**2 + p.missing * p.signal**2)
        return np.geomspace(math.hypot(sigma, self._distance()), last, count + 1)[:count] * root

    def _distance(self) -> float:
        """How far the start of the gradient steps is assumed to be from the truth."""
        p = self.problem
        if isinstance(p.model, MissingRegression):
            return p.signal
        return 0.3 * p.signal if self.private_start else (p.start_distance or 0.0)
