"""Wang, Ding, Hu, Xie, Pan and Xu (2020): gradient EM with a robust mean of each coordinate, on the full data.

for t = 0 … T−1:  β^{t+1} = β^t + η·(robust mean of ∇q_i(β^t; β^t) at scale s + N(0, τ²I))

The robust mean is :class:`~studies.paper.baselines.robust.RobustGradient`, whose lemma prices it. Every step reads all
rows, so the prices of the T steps add.

*Lemma.* At ρ/T a step, with ρ the largest price that the curator's account converts to (ε, δ), the fit is (ε, δ)-DP.
*Proof.* Each step is a Gaussian release at price ρ/T by the query's bound, and β^t was released before. Prices add to
ρ (μ²'s to 2ρ in an account opened for Gaussian noise only, whose curve is exact). ∎ (The publication converts by
ε̃ = √(log(1/δ) + ε) − √log(1/δ), which leaves part of the budget unused; either curve here is kinder to it.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpem.privacy import Curator
from dpem.privacy.accounting import largest_price
from dpem.privacy.mechanisms import gaussian_scale
from dpem.query import FloatArray
from studies.paper.baselines.robust import LARGEST, RobustGradient, RobustModel


def wang2020(
    curator: Curator,
    model: RobustModel,
    start: FloatArray,
    *,
    epsilon: float,
    delta: float,
    n_iter: int,
    step: float,
    scale: float,
    smoothing: float,
) -> FloatArray:
    """T = ``n_iter`` robust gradient steps that together cost exactly (ε, δ).

    >>> import numpy as np
    >>> from dpem.paper.models import SymmetricMixture
    >>> from dpem.privacy import Account, PrivateNoise
    >>> from dpem.tables import ArraySource
    >>> beta, rng = np.array([0.8, 0.6]), np.random.default_rng(0)
    >>> X, _ = SymmetricMixture(0.5).sample(beta, 20_000, rng)
    >>> curator = Curator(ArraySource(X), Account(1.0, 1e-5, gaussian=True), PrivateNoise())
    >>> chosen = prescribed(20_000, 2, epsilon=1.0, delta=1e-5, second_moment=1.25)._replace(n_iter=3)
    >>> found = wang2020(curator, SymmetricMixture(0.5), np.ones(2), epsilon=1.0, delta=1e-5, **chosen._asdict())
    >>> bool(np.linalg.norm(found - beta) < 0.5)
    True
    """
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}.")
    rho = largest_price(epsilon, delta, gaussian=curator.account.gaussian).rho / n_iter
    beta = start
    for _ in range(n_iter):
        beta = beta + step * curator.measure(RobustGradient(model, beta, scale, smoothing), rho)
    return beta


class Settings(NamedTuple):
    """What :func:`wang2020` needs besides a curator, a model, a start and a budget."""

    n_iter: int
    step: float
    scale: float
    smoothing: float


def prescribed(
    n: int, d: int, *, epsilon: float, delta: float, second_moment: float, failure: float = 0.05
) -> Settings:
    """The publication's choice in the reading kinder to it, from public numbers: the scale balances its error bound.

    T ≈ log n and η = 1. With probability 1 − ζ the error of a coordinate in every step is at most

        (1 + 1/β)·v/(2s)  +  s·(β/2 + L)/n  +  τ₁·s·√(2L),    L = log(2dT/ζ),

    bias, sampling and privacy noise: v bounds the second moment of a coordinate, τ₁ is the noise at scale 1 and β = L
    the smoothing. (First two terms: Catoni and Giulini 2017 with a factor 1 + η, whose divergence from that at mean 0
    is β/2. Third: a Gaussian tail.) The sum is smallest where the first term equals the others. Orders are the
    publication's, constants follow from this bound.

    >>> prescribed(10_000, 10, epsilon=0.5, delta=5e-5, second_moment=1.25).n_iter
    9
    """
    draft = sampling_only(n, d, second_moment=second_moment, failure=failure)
    rho = largest_price(epsilon, delta, gaussian=True).rho / draft.n_iter
    unit_noise = gaussian_scale(2 * LARGEST * math.sqrt(d) / n, rho)
    return draft._replace(scale=_best_scale(draft.smoothing, second_moment, n, unit_noise))


def sampling_only(n: int, d: int, *, second_moment: float, failure: float = 0.05) -> Settings:
    """The same without the noise in view: the scale of the robust mean itself, s ~ √(n/L).

    The noise then is of order s·√(dT)/(nε) in a coordinate and d/(√n·ε) in β, up to logarithms: the rate at which the
    publication is quoted, √(d²/n)·log(1/δ)/ε.
    """
    n_iter = max(1, round(math.log(n)))
    smoothing = math.log(2 * d * n_iter / failure)
    return Settings(n_iter, 1.0, _best_scale(smoothing, second_moment, n, 0.0), smoothing)


def _best_scale(smoothing: float, second_moment: float, n: int, unit_noise: float) -> float:
    bias = (1 + 1 / smoothing) * second_moment / 2
    growth = 1.5 * smoothing / n + unit_noise * math.sqrt(2 * smoothing)
    return math.sqrt(bias / growth)
