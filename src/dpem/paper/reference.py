"""Gradient EM without privacy, dense or with hard thresholding: the fit with an infinite epsilon, for comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpem.fitting.plan import Plan
from dpem.fitting.step import Step
from dpem.paper.models import Model
from dpem.paper.planning.rehearsal import Problem
from dpem.paper.planning.settings import Pipeline, Settings
from dpem.paper.steps import PaperState, Screen, Start
from dpem.privacy import Curator, Price
from dpem.query import FloatArray


def gradient_em(
    curator: Curator, model: Model, start: FloatArray, *, s: int | None, n_iter: int, step: float
) -> FloatArray:
    """``n_iter`` steps β ← H_s(β + η·∇Q_n(β; β)) on all rows (Balakrishnan et al. 2017; Wang et al. 2015)."""
    beta = start
    all_columns = np.arange(curator.n_features)
    for _ in range(n_iter):
        gradient = curator.measure(model.on_support(beta, all_columns, math.inf), rho=math.inf)
        beta = hard_threshold(beta + step * gradient, s)
    return beta


def hard_threshold(v: FloatArray, s: int | None) -> FloatArray:
    """H_s: the vector with all but its s largest entries set to zero; unchanged if s is None.

    >>> hard_threshold(np.array([1.0, -3.0, 2.0]), 2)
    array([ 0., -3.,  2.])
    """
    if s is None:
        return v
    largest = np.argsort(-np.abs(v), kind="stable")[:s]
    out = np.zeros_like(v)
    out[largest] = v[largest]
    return out


@dataclass(frozen=True)
class ReferenceEM(Step[Model, PaperState]):
    """Gradient EM without privacy as the only step of a fit, at an infinite price."""

    s: int | None
    n_iter: int
    step: float

    @property
    def passes(self) -> int:  # type: ignore[override]
        return self.n_iter

    def describe(self) -> str:
        return f"reference: {self.n_iter} steps without noise: not private"

    def run(self, curator: Curator, model: Model, state: PaperState) -> PaperState:
        beta = gradient_em(curator, model, state.beta, s=self.s, n_iter=self.n_iter, step=self.step)
        return PaperState(beta, np.flatnonzero(beta) if self.s else state.support)


def reference_plan(
    problem: Problem, delta: float, sparsity: int | None, *, n_iter: int | None = None, step: float | None = None
) -> Plan:
    """The plan of EM without privacy: the starting steps of a private fit without noise, then 50 exact EM steps."""
    p, private = problem, Pipeline(problem).steps(Settings(start_radius=4.0), rho=1.0)
    start = [replace(step, rho=math.inf) for step in private if isinstance(step, Screen | Start)]
    em = ReferenceEM(math.inf, sparsity, 50 if n_iter is None else n_iter, 1.0 if step is None else step)
    return Plan(p.model.name, p.n, p.d, math.inf, delta, p.rows_per_person, (*start, em), Price(math.inf))
