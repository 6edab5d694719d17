"""The mechanisms that turn a bounded statistic into a release, with their prices and proofs.

Each takes a statistic of known sensitivity and a sampler, and returns the release. Scales and prices are separate
functions, so that planning and the curator use the same formulas. An infinite price means no noise (the non-private
reference).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpem.privacy.accounting import Price
from dpem.privacy.noise import Noise
from dpem.query import FloatArray

_ROUNDING = np.finfo(np.float64).eps
#: Laplace noise exceeds this many scales with probability e^−700.
_LARGEST_NOISE = 700.0


def top_k_scale(k: int, sensitivity: float, rho: float) -> float:
    """Gumbel scale b at which selecting k coordinates costs ρ: b = λ·√(k/(2ρ))."""
    return sensitivity * math.sqrt(k / (2 * rho))


def noisy_top_k(
    noise: Noise, v: FloatArray, k: int, sensitivity: float, price: Price, magnitude: float
) -> NDArray[np.intp]:
    """Indices of the k largest |v_j| + Gumbel(b), one noise vector, at price ρ = k·λ²/(2b²).

    *Lemma.* With λ the ℓ∞ sensitivity of v this is ρ-zCDP. *Proof.* By the Gumbel-max property the k largest of score
    + Gumbel(b) have the joint distribution of k rounds of the exponential mechanism, P(j) ∝ exp(score_j/b) among the
    coordinates not yet chosen (Durfee & Rogers 2019). |·| keeps the sensitivity at λ. If scores change by at most λ,
    log P(j) stays within an interval of length 2λ/b: the round is (2λ/b)-bounded-range, hence (2λ/b)²/8-zCDP (Cesar &
    Rogers 2021, Theorem 2); k rounds add. ∎

    The scores are divided by b and passed to a sampler of scale 1, for which exact arithmetic is fastest. Each quotient
    is rounded by at most one part in 2⁵³ of its size, which is at most ``magnitude``/b. This rounding adds to the
    sensitivity, and b is computed from the sum.
    """
    if math.isinf(price.rho):
        return np.argsort(-np.abs(v), kind="stable")[:k]
    sensitivity = sensitivity + 3 * _ROUNDING * magnitude
    b = top_k_scale(k, sensitivity, price.rho)
    return noise.top_k(np.abs(v) / b, k, sensitivity / b, price.rho)


def gaussian_scale(sensitivity: float, rho: float) -> float:
    """Standard deviation at which releasing a vector of ℓ2 sensitivity Δ costs ρ: τ = Δ/√(2ρ)."""
    return sensitivity / math.sqrt(2 * rho)


def gaussian(noise: Noise, v: FloatArray, sensitivity: float, price: Price) -> FloatArray:
    """v + N(0, τ²I) at price ρ = Δ₂²/(2τ²).

    *Lemma.* ρ-zCDP, and exactly μ-Gaussian private with μ = Δ₂/τ. *Proof.* The Rényi divergence of order α between
    N(v, τ²) and N(v′, τ²) is α‖v − v′‖²/(2τ²) (Bun & Steinke 2016, Proposition 1.6). ∎

    OpenDP draws the noise from the discrete Gaussian on a grid of about 2⁻¹⁰⁰τ and rounds the sum to a float. Its zCDP
    price is the same, and is checked before the draw. The μ-curve is that of the continuous Gaussian, from which the
    curve on so fine a grid differs by less than the precision of a float.
    """
    if math.isinf(price.rho):
        return v
    return noise.gaussian(v, gaussian_scale(sensitivity, price.rho), sensitivity, price.rho)


def peeling_price(s: int, sensitivity: float, scale: float) -> Price:
    """Price of :func:`noisy_hard_thresholding` with Laplace scale b: ρ = 2.5·s·(λ/b)².

    *Lemma.* *Proof.* A round of report-noisy-max with Laplace(b) is 2λ/b-DP (Dwork & Roth 2014, Claim 3.9; on a grid,
    :func:`noisy_hard_thresholding`), hence 2(λ/b)²-zCDP (Bun & Steinke 2016, Proposition 1.4); one released value is
    λ/b-DP, hence (λ/b)²/2-zCDP. There are s of each, and 2s + s/2 = 2.5s. ∎
    """
    return Price(2.5 * s * (sensitivity / scale) ** 2)


def printed_peeling_scale(s: int, sensitivity: float, epsilon: float, delta: float) -> float:
    """The Laplace scale printed in the paper: 2λ√(3s·log(1/δ))/ε."""
    return sensitivity * 2 * math.sqrt(3 * s * math.log(1 / delta)) / epsilon


def peeling_grid(magnitude: float, scale: float) -> float:
    """The finest power of two whose multiples are floats, up to a score of ``magnitude`` and noise of this scale.

    >>> peeling_grid(1.0, 0.01) == 2.0**-49
    True
    """
    return 2.0 ** math.ceil(math.log2((magnitude + _LARGEST_NOISE * scale) * _ROUNDING))


def noisy_hard_thresholding(noise: Noise, v: FloatArray, s: int, scale: float, magnitude: float) -> FloatArray:
    """The paper's Algorithm 1, NoisyHT: s rounds of noisy arg-max with fresh Laplace noise, then Laplace noise on the
    chosen values. ``magnitude`` is a public bound on |v|.

    *Lemma.* A round is 2λ/b-DP if every |v_j|, rounded to the grid g, changes by at most λ; the rounding adds at most g
    to the change of v. *Proof.* Sums of scores and noise are whole multiples of g and exact floats, so i wins against j
    if its sum is larger, or equal and i < j. Fix the noise of all others, and let r be the least multiple of g with
    which i wins on D. On D′ its own score is at most λ lower and every other at most λ higher, so i wins on D′ with
    r + 2λ (or the multiple of g below it): sums that are shifted alike keep their order *and their ties*. Discrete
    Laplace noise of scale b reaches r + 2λ with at least e^(−2λ/b) times the probability of r. ∎ (If the sums were
    rounded to floats, either coordinate could win a tie.)
    """
    selected: list[int] = []
    grid = peeling_grid(magnitude, scale)
    for _ in range(s):
        noisy = noise.laplace(np.abs(v), scale, grid)
        noisy[selected] = -math.inf
        selected.append(int(np.argmax(noisy)))
    out = np.zeros_like(v)
    out[selected] = noise.laplace(v[selected], scale)
    return out
