"""The paper's private algorithms: its disjoint batches, truncations, mechanisms and noise formulas.

Three errata are corrected (docs/errata.md): E1 and E2 in the models' weights, and E4, a printed sensitivity that is too
small. Where the printed noise does not satisfy (ε, δ) (E5, E6), estimators refuse the fit before any data are read, and
the curator's account refuses the release. If a person has up to m rows, the printed sensitivity is multiplied by m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpem._validation import Argument, ArgumentError
from dpem.fitting.plan import Plan
from dpem.fitting.step import Step
from dpem.paper.models import LatentModel
from dpem.paper.planning.rehearsal import Problem
from dpem.paper.steps import PaperState
from dpem.privacy import Curator
from dpem.privacy.accounting import Price
from dpem.privacy.mechanisms import peeling_price, printed_peeling_scale
from dpem.query import FloatArray


def high_dimensional_em(
    curator: Curator, model: LatentModel, start: FloatArray, *, epsilon: float, delta: float, s: int, n_iter: int,
    step: float, T: float,
) -> FloatArray:  # fmt: skip
    """Algorithm 2 (3, 5 and 6 for the three models): high-dimensional DP EM by noisy hard thresholding.

    for t = 0 … N₀−1:  β^{t+0.5} = β^t + η·f_T(∇Q_{n/N₀}(β^t; β^t));   β^{t+1} = NoisyHT(β^{t+0.5}, ŝ, λ, ε, δ)
    """
    beta = start
    for batch in curator.split(n_iter):
        gradient = model.truncated(beta, T)
        offset = beta + step * model.shift(beta)
        printed = batch.rows_per_person * step * model.printed_sensitivity(T) / batch.n_rows
        exact = max(printed, step * batch.sensitivity(gradient, "linf"))  # E4
        # Rounding adds to the sensitivity, by an amount that depends on the noise scale: 1 % more than exact is enough.
        scale = 1.01 * printed_peeling_scale(s, exact, epsilon, delta)
        sensitivity = max(printed, batch.peeling_sensitivity(gradient, scale, offset=offset, step=step))
        scale = printed_peeling_scale(s, sensitivity, epsilon, delta)
        beta = batch.peel(gradient, s, scale, offset=offset, step=step)
    return beta


def low_dimensional_em(
    curator: Curator, model: LatentModel, start: FloatArray, *, epsilon: float, delta: float, n_iter: int,
    step: float, T: float,
) -> FloatArray:  # fmt: skip
    """Algorithm 4 (and 7, 8 for the regressions): low-dimensional DP EM by the Gaussian mechanism.

    for t = 0 … N₀−1:  β^{t+1} = β^t + η·f_T(∇Q_{n/N₀}(β^t; β^t)) + W_t,   W_t ~ N(0, 2η²d·λ²·log(1.25/δ)/ε²)
    """
    beta = start
    for batch in curator.split(n_iter):
        gradient = model.truncated(beta, T)
        sensitivity = batch.sensitivity(gradient, "l2")
        printed = batch.rows_per_person * math.sqrt(batch.n_features) * model.printed_sensitivity(T) / batch.n_rows
        sd = printed_gaussian_scale(max(printed, sensitivity), epsilon, delta)
        beta = beta + step * (batch.measure(gradient, rho=(sensitivity / sd) ** 2 / 2) + model.shift(beta))
    return beta


def printed_gaussian_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """The standard deviation the paper prints for the Gaussian mechanism: Δ₂·√(2·log(1.25/δ))/ε."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def printed_price(epsilon: float, delta: float, s: int | None) -> Price:
    """The price of one batch at the printed noise, for any sensitivity; of low-dimensional EM if ``s`` is None.

    The batches are disjoint, so it is also the price of the fit, however a person's rows are distributed over them
    (:func:`dpem.privacy.total_price`).

    >>> printed_price(0.5, 1e-4, s=10).delta(0.5) <= 1e-4     # satisfied
    True
    >>> printed_price(12.0, 1e-4, s=10).delta(12.0) <= 1e-4   # erratum E6
    False
    """
    if s is None:
        return Price(printed_gaussian_scale(1.0, epsilon, delta) ** -2 / 2, gaussian=True)
    return peeling_price(s, 1.0, printed_peeling_scale(s, 1.0, epsilon, delta))


@dataclass(frozen=True)
class PublishedEM(Step[LatentModel, PaperState]):
    """The paper's algorithm as the only step of a fit: high-dimensional if ``s`` is given, low-dimensional if None."""

    epsilon: float
    delta: float
    s: int | None
    n_iter: int
    step: float
    T: float

    def describe(self) -> str:
        return f"published: N0 = {self.n_iter} batches, T = {self.T:.3g}, step {self.step:g}"

    def run(self, curator: Curator, model: LatentModel, state: PaperState) -> PaperState:
        names = ("epsilon", "delta", "n_iter", "step", "T")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.s is None:
            return PaperState(low_dimensional_em(curator, model, state.beta, **settings), state.support)
        beta = high_dimensional_em(curator, model, state.beta, s=self.s, **settings)
        return PaperState(beta, np.flatnonzero(beta))


def published_plan(
    problem: Problem, epsilon: float, delta: float, sparsity: int | None, *, n_iter: int | None = None,
    step: float | None = None, T: float | None = None,
) -> Plan:  # fmt: skip
    """The plan of the paper's algorithm: N₀ ≈ log n, T ≈ √log n and η = 0.5 as in its experiments, unless given.

    >>> from dpem.paper.models import SymmetricMixture
    >>> published_plan(Problem(SymmetricMixture(0.5), 4000, 9, 3, 1.0), 0.5, 1e-4, 3).steps[0].n_iter
    8
    """
    p = problem
    price = printed_price(epsilon, delta, sparsity)
    if price.delta(epsilon) > delta:
        reason = f"must be smaller (the paper's noise is not private at epsilon={epsilon:g}, delta={delta:g}); or use "
        raise ArgumentError("epsilon", reason, Argument("method", "improved"), ".")
    n_iter = max(1, round(math.log(p.n))) if n_iter is None else n_iter
    if p.n < n_iter:
        raise ArgumentError("n_iter", f"must be at most the number of rows ({p.n}), got {n_iter} batches.")
    T = math.sqrt(math.log(p.n)) if T is None else T
    em = PublishedEM(price.rho, epsilon, delta, sparsity, n_iter, 0.5 if step is None else step, T)
    return Plan(p.model.name, p.n, p.d, epsilon, delta, p.rows_per_person, (em,), price)
