"""The steps of the improved method, which is not in the paper: screen, start, select, refine, trim.

Each sends one query about all rows, except trim, which sends none. Their prices add up to that of the fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpem.fitting.step import State, Step
from dpem.paper.models import Mixture, Model
from dpem.paper.queries import Clip, IntArray, unpack
from dpem.privacy import Curator
from dpem.query import FloatArray


@dataclass(frozen=True)
class PaperState(State):
    """The coefficients released so far, ``theta``, and their support, ``chosen``."""

    @classmethod
    def at(cls, start: FloatArray | None, d: int) -> PaperState:
        """The state before the first step: β is the start, or zero, and the support has all coordinates."""
        return cls(np.zeros(d) if start is None else start, np.arange(d))

    @property
    def beta(self) -> FloatArray:
        return np.asarray(self.theta)

    @property
    def support(self) -> IntArray:
        return np.asarray(self.chosen)


@dataclass(frozen=True)
class Screen(Step[Mixture, PaperState]):
    """Select k coordinates that seem to have a non-zero coefficient, before there is any β."""

    k: int
    signal: float
    s: int

    def describe(self) -> str:
        return f"screen: {self.k} coordinates"

    def run(self, curator: Curator, model: Mixture, state: PaperState) -> PaperState:
        query = model.screening(self.signal, self.s)
        return PaperState(state.beta, np.sort(curator.select(query, self.k, self.rho)))


@dataclass(frozen=True)
class Start(Step[Mixture, PaperState]):
    """Start at the top eigenvector of the noisy second moments on the support, scaled to the assumed length."""

    radius: float
    signal: float

    def describe(self) -> str:
        return f"start: second moments, norm clipped at {self.radius:.3g}"

    def run(self, curator: Curator, model: Mixture, state: PaperState) -> PaperState:
        moments = curator.measure(model.moments(state.support, self.radius, self.signal), self.rho)
        _, vectors = np.linalg.eigh(unpack(moments, len(state.support)))
        direction = vectors[:, -1]
        beta = np.zeros(curator.n_features)
        beta[state.support] = self.signal * direction * (1.0 if direction.sum() >= 0 else -1.0)
        return PaperState(beta, state.support)


@dataclass(frozen=True)
class Select(Step[Model, PaperState]):
    """One EM step over all d coordinates, of which only the positions of the s largest are released."""

    s: int
    clip: Clip
    step: float

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
class Refine(Step[Model, PaperState]):
    """One EM step on the support, with contributions clipped in ℓ2 (see each model's ``on_support``)."""

    radius: float
    step: float

    def describe(self) -> str:
        return f"refine: step {self.step:g}, norm clipped at {self.radius:.3g}"

    def run(self, curator: Curator, model: Model, state: PaperState) -> PaperState:
        query = model.on_support(state.beta, state.support, self.radius)
        beta = state.beta.copy()
        beta[state.support] += self.step * curator.measure(query, self.rho)
        return PaperState(beta, state.support)


@dataclass(frozen=True)
class Trim(Step[Model, PaperState]):
    """Set coefficients to zero that noise of the known level explains. It sends no query, so it is free."""

    threshold: float
    passes: ClassVar[int] = 0

    def describe(self) -> str:
        return f"trim: coefficients up to {self.threshold:.3g}, which noise explains; free"

    def run(self, curator: Curator, model: Model, state: PaperState) -> PaperState:
        beta = np.where(np.abs(state.beta) > self.threshold, state.beta, 0.0)
        return PaperState(beta, np.flatnonzero(beta))


ImprovedStep = Screen | Start | Select | Refine | Trim
