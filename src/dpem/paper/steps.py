"""The steps of a fit. The improved method, which is not in the paper, has four kinds: screen, start, select, refine.
Every step uses all rows, prices add, and everything between the steps is post-processing.

A fit is a short tuple of steps, each a frozen record of its settings and its price, chosen before the data are read.
``step.run(curator, model, state)`` sends one query and returns the new state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from dpem.fitting import step
from dpem.paper.queries import Clip, CoordinateQuery, ExceedanceQuery, IntArray, MomentQuery, SupportQuery, unpack
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

    @property
    def em_steps(self) -> int:
        return 0


class ImprovedModel(Protocol):
    """What the improved method needs of a model."""

    def gradient(self, beta: FloatArray, clip: Clip) -> CoordinateQuery: ...

    def on_support(self, beta: FloatArray, support: IntArray, radius: float) -> SupportQuery: ...

    def shift(self, beta: FloatArray) -> FloatArray: ...


class StartModel(ImprovedModel, Protocol):
    """What private starts need of a model: both mixtures have it."""

    def screening(self, signal: float, s: int) -> ExceedanceQuery: ...

    def moments(self, support: IntArray, radius: float, signal: float) -> MomentQuery: ...


@dataclass(frozen=True)
class Screen(PaperStep):
    """Select k coordinates with signal, before there is any β."""

    k: int
    signal: float
    s: int

    def describe(self) -> str:
        return f"screen: {self.k} coordinates"

    def run(self, curator: Curator, model: StartModel, state: PaperState) -> PaperState:
        query = model.screening(self.signal, self.s)
        return PaperState(state.beta, np.sort(curator.select(query, self.k, self.rho)))


@dataclass(frozen=True)
class Start(PaperStep):
    """Point β along the top eigenvector of the noisy second moments, with the assumed length."""

    radius: float
    signal: float

    def describe(self) -> str:
        return f"start: second moments, norm clipped at {self.radius:.3g}"

    def run(self, curator: Curator, model: StartModel, state: PaperState) -> PaperState:
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

    def run(self, curator: Curator, model: ImprovedModel, state: PaperState) -> PaperState:
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

    def run(self, curator: Curator, model: ImprovedModel, state: PaperState) -> PaperState:
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

    def run(self, curator: Curator, model: ImprovedModel, state: PaperState) -> PaperState:
        beta = np.where(np.abs(state.beta) > self.threshold, state.beta, 0.0)
        return PaperState(beta, np.flatnonzero(beta))


Step = Screen | Start | Select | Refine | Trim
