"""The steps of the improved method, which is not in the paper: screen, start, select, refine, trim.

Each sends one query about all rows (trim: none); their prices add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpem.fitting import step
from dpem.paper.models import Mixture, Model
from dpem.paper.queries import Clip, IntArray, unpack
from dpem.privacy import Curator
from dpem.query import FloatArray


@dataclass(frozen=True)
class PaperState(step.State):
    """The coefficients released so far, ``theta``, and their support, ``chosen``."""

    @classmethod
    def at(cls, start: FloatArray | None, d: int) -> PaperState:
        """The state before the first step: the start, or zero, on all coordinates."""
        return cls(np.zeros(d) if start is None else start, np.arange(d))

    @property
    def beta(self) -> FloatArray:
        return np.asarray(self.theta)

    @property
    def support(self) -> IntArray:
        return np.asarray(self.chosen)


@dataclass(frozen=True)
class PaperStep(step.Step):
    """A step of a fit that contains ``em_steps`` EM steps."""

    em_steps: ClassVar[int] = 0


@dataclass(frozen=True)
class Screen(PaperStep):
    """Select k coordinates with signal, before there is any β."""

    k: int
    signal: float
    s: int

    def describe(self) -> str:
        return f"screen: {self.k} coordinates"

    def run(self, curator: Curator, model: Mixture, state: PaperState) -> PaperState:
        query = model.screening(self.signal, self.s)
        return PaperState(state.beta, np.sort(curator.select(query, self.k, self.rho)))


@dataclass(frozen=True)
class Start(PaperStep):
    """Point β along the top eigenvector of the noisy second moments, with the assumed length."""

    radius: float
    signal: float

    def describe(self) -> str:
        return f"start: second moments, norm clipped at {self.radius:.3g}"

    def run(self, curator: Curator, model: Mixture, state: PaperState) -> PaperState:
        moments = curator.measure(model.moments(state.support, self.radius, self.signal), self.rho)
        _, vectors = np.linalg.eigh(unpack(moments, len(state.support)))
        top = vectors[:, -1]
        beta = np.zeros(curator.n_features)
        beta[state.support] = self.signal * top * (1.0 if top.sum() >= 0 else -1.0)
        return PaperState(beta, state.support)


@dataclass(frozen=True)
class Select(PaperStep):
    """One EM step over all d coordinates, of which only the *positions* of the s largest are released."""

    s: int
    clip: Clip
    step: float
    em_steps: ClassVar[int] = 1

    def describe(self) -> str:
        clips = f"entries clipped at {self.clip.entry:.3g}"
        if math.isfinite(self.clip.residual):
            clips += f", residuals at {self.clip.residual:.3g}"
        return f"select: {self.s} coordinates, {clips}"

    def run(self, curator: Curator, model: Model, state: PaperState) -> PaperState:
        beta = state.beta
        query = model.gradient(beta, self.clip)
        chosen = curator.select(query, self.s, self.rho, offset=beta + self.step * model.shift(beta), step=self.step)
        support = np.sort(chosen)
        restricted = np.zeros_like(beta)
        restricted[support] = beta[support]
        return PaperState(restricted, support)


@dataclass(frozen=True)
class Refine(PaperStep):
    """One EM step on the support alone, contributions clipped in ℓ2 around the last released β."""

    radius: float
    step: float
    em_steps: ClassVar[int] = 1

    def describe(self) -> str:
        return f"refine: step {self.step:g}, norm clipped at {self.radius:.3g}"

    def run(self, curator: Curator, model: Model, state: PaperState) -> PaperState:
        query = model.on_support(state.beta, state.support, self.radius)
        beta = state.beta.copy()
        beta[state.support] += self.step * curator.measure(query, self.rho)
        return PaperState(beta, state.support)


@dataclass(frozen=True)
class Trim(PaperStep):
    """Drop coefficients that the known noise level alone explains. It sends no query, so it is free."""

    threshold: float
    passes: ClassVar[int] = 0

    def describe(self) -> str:
        return f"trim: coefficients up to {self.threshold:.3g}, which noise explains; free"

    def run(self, curator: Curator, model: Model, state: PaperState) -> PaperState:
        beta = np.where(np.abs(state.beta) > self.threshold, state.beta, 0.0)
        return PaperState(beta, np.flatnonzero(beta))


Step = Screen | Start | Select | Refine | Trim
