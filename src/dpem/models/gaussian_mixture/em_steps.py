"""EM steps of a Gaussian mixture on lifted moments: one question a step, and what follows from its answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import chdtr, chdtrc, gammaincinv

from dpem.fitting.step import State, Step
from dpem.models.gaussian_mixture.em_moments import LiftedMoments
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.start_steps import normal_points
from dpem.privacy import Curator
from dpem.query import FloatArray

#: Variances below this, in unit coordinates, count as this.
FLOOR = 1e-9
#: By how much, on the log scale, variances may well have to change from one step to the next.
APART = 0.3


@dataclass(frozen=True)
class EMStep(Step):
    """One EM step, or without noise as many as it takes.

    ``level`` is the part of a Gaussian component's rows that is not clipped (1: none is); ``averaged`` is over how many
    of the last steps, by their prices, the result is averaged; ``most`` is how many iterations are made at
    most, more than one only where nothing is paid for.
    """

    level: float = 0.9
    averaged: int = 1
    most: int = 1

    def describe(self) -> str:
        return "EM step" if self.most == 1 else f"EM until it converges, at most {self.most} steps"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        mixture = model.mixture_of(state.theta)
        converged = True
        for _ in range(self.most):
            C, Q = radii(self.level, mixture.means.shape[1], model.kind)
            question = LiftedMoments(model.schema_of(state), model.kind, mixture, C, Q)
            answer = curator.measure(question, self.rho)
            noise = curator.noise_scale(question, self.rho)
            new = updated(question, answer, noise, exact=self.level >= 1)
            change = _distance(mixture, new)
            mixture, converged = new, self.most == 1 or change < 1e-10
            if converged:
                break
        trail = (*state.notes.get("trail", ()), (self.rho, mixture))
        mixture = _average(trail[-self.averaged :])
        theta = model.parameters(mixture, state.notes["start"], state.theta.path, state.theta.seen, converged)
        return replace(state, theta=theta, notes={**state.notes, "trail": trail})


def radii(level: float, d: int, kind: str) -> tuple[float, float]:
    """The radius C that a part ``level`` of N(0, I_d) keeps to, and that of second moments."""
    if level >= 1:
        return 1e6, 1e12
    C2 = 2 * float(gammaincinv(d / 2, level))
    if kind != "diag":
        return math.sqrt(C2), C2
    usual = 2 * float(gammaincinv(d / 2, 0.9))
    return math.sqrt(C2), min(C2, 1.25 * math.sqrt(3 * d) * C2 / usual)


def updated(question: LiftedMoments, answer: FloatArray, noise: float, *, exact: bool) -> Gaussians:
    """The M-step: new shares, means and covariances from the noisy mean of what rows contribute.

    The clip shrinks moments of a Gaussian component by known factors, which are undone; so at the truth the step stays
    where it is. What noise makes of covariances is drawn together by as much as it is noise, and kept in a range.
    """
    old, kind = question.mixture, question.kind
    K, d = old.means.shape
    counts, first, second = question.parts(answer)
    least = 1e-12 if exact else max(3 * noise / question.A, 0.03 / K)
    counts = np.maximum(counts, least)
    by_first, by_second = (1.0, 1.0) if exact else shrinkage(question.C, question.Q, d, kind)
    move = first / counts[:, None] / by_first
    if not exact:
        move = move * np.minimum(1.0, 3.0 / np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-12))
    error = noise / (question.B * counts) / by_second
    if kind == "spherical":
        seen = second[:, 0] / counts / d
        ratio = seen if exact else np.array([_unclipped(part, question.C, d) for part in seen])
        ratio = ratio - np.mean(move**2, axis=1)
        factor = ratio if exact else _drawn(np.clip(ratio, 0.2, 4.0), 1.3 * error / d)
        covariances = old.covariances * factor[:, None]
    elif kind == "diag":
        ratio = second / counts[:, None] / by_second - move**2
        factor = ratio if exact else _drawn(np.clip(ratio, 0.15, 5.0), error[:, None] * np.ones(d))
        covariances = old.covariances * factor
    elif kind == "full":
        ratio = second / counts[:, None, None] / by_second - move[:, :, None] * move[:, None, :]
        if not exact:
            ratio = np.array([_rounder(own, error[k] / math.sqrt(2)) for k, own in enumerate(ratio)])
        covariances = old.roots @ ratio @ np.swapaxes(old.roots, 1, 2)
    else:
        shares = counts / counts.sum()
        ratio = second[0] / counts.sum() / by_second - (shares[:, None] * move).T @ move
        ratio = ratio if exact else _in_range(ratio)
        covariances = np.broadcast_to(old.roots[0] @ ratio @ old.roots[0].T, old.covariances.shape)
    shift = np.einsum("kij,kj->ki", old.roots, move) if old.full else old.roots * move
    return Gaussians(counts / counts.sum(), np.clip(old.means + shift, -1.0, 1.0), _at_least(covariances))


@lru_cache(maxsize=64)
def shrinkage(C: float, Q: float, d: int, kind: str) -> tuple[float, float]:
    """By how much the clip shrinks a small shift of the mean, and a variance, of a component that is N(0, I_d)."""
    C2 = C * C
    if kind != "diag":
        second = float(chdtr(d + 2, C2) + C2 / d * chdtrc(d, C2))
        v2 = np.sum(normal_points(20_000, d) ** 2, axis=1)
        return float(np.mean(v2 * np.minimum(1.0, C / np.sqrt(v2)))) / d, second
    v2 = normal_points(20_000, d) ** 2
    size = v2.sum(axis=1)
    s2 = np.minimum(1.0, np.minimum(C2 / size, Q / np.sqrt(np.sum(v2**2, axis=1))))
    return float(np.mean(np.sqrt(s2) * size)) / d, float(np.mean(s2 * size)) / d


def _unclipped(seen: float, C: float, d: int) -> float:
    """The q for which E min(q·χ²_d, C²)/d is what was seen."""
    low, high = math.log(0.05), math.log(20.0)
    for _ in range(50):
        middle = (low + high) / 2
        q, c2 = math.exp(middle), C * C / math.exp(middle)
        below = q * (chdtr(d + 2, c2) + c2 / d * chdtrc(d, c2)) < seen
        low, high = (middle, high) if below else (low, middle)
    return math.exp((low + high) / 2)


def _drawn(ratio: FloatArray, error: FloatArray) -> FloatArray:
    """Ratios drawn to their common mean, on the log scale, by as much of their scatter as is noise; what is known to
    within much less than :data:`APART` stays where it is.
    """
    logs = np.log(ratio)
    mean = float(np.mean(logs))
    scatter = max(float(np.var(logs)) - float(np.mean(error**2)), 0.0) + APART**2
    return np.asarray(np.exp(mean + scatter / (scatter + error**2) * (logs - mean)))


def _rounder(ratio: FloatArray, error: float) -> FloatArray:
    """A noisy covariance in whitened units drawn to a round one by as much of its scatter as is noise."""
    d = len(ratio)
    size = float(np.clip(np.trace(ratio) / d, 0.2, 4.0))
    away = ratio - np.trace(ratio) / d * np.eye(d)
    kept = max(0.0, 1 - error**2 * (d + 2) * (d - 1) / max(float(np.sum(away**2)), 1e-12))
    return _in_range(size * np.eye(d) + kept * away)


def _in_range(ratio: FloatArray) -> FloatArray:
    """The same with eigenvalues in [0.15, 5]: no step changes a variance by more."""
    values, axes = np.linalg.eigh(ratio)
    return np.asarray((axes * np.clip(values, 0.15, 5.0)) @ axes.T)


def _at_least(covariances: FloatArray) -> FloatArray:
    if covariances.ndim == 2:
        return np.clip(covariances, FLOOR, 4.0)
    values, axes = np.linalg.eigh((covariances + np.swapaxes(covariances, 1, 2)) / 2)
    if values.min() > FLOOR and values.max() < 4.0:
        return np.array(covariances)
    return np.asarray((axes * np.clip(values, FLOOR, 4.0)[:, None, :]) @ np.swapaxes(axes, 1, 2))


def _average(trail: tuple[tuple[float, Gaussians], ...]) -> Gaussians:
    """The mean of the last steps' results, by their prices."""
    if len(trail) == 1:
        return trail[0][1]
    price = np.array([1.0 if math.isinf(rho) else rho for rho, _ in trail])
    price = price / price.sum()
    parts = [(own.weights, own.means, own.covariances) for _, own in trail]
    return Gaussians(*(np.tensordot(price, np.array(part), 1) for part in zip(*parts, strict=True)))


def _distance(old: Gaussians, new: Gaussians) -> float:
    pairs = ((old.weights, new.weights), (old.means, new.means), (old.covariances, new.covariances))
    return max(float(np.max(np.abs(a - b))) for a, b in pairs)
