"""The mechanisms: how a bounded statistic becomes a release, what it costs, and why.

Each takes a statistic whose sensitivity is already known and a sampler, and returns the release; each price is a
function of its own, so that planning and the curator use the same formula. An infinite price means no noise (the
non-private reference).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpem.privacy.accounting import Price
from dpem.privacy.noise import Noise
from dpem.query import FloatArray

_ROUNDING = np.finfo(np.float64).eps


def top_k_scale(k: int, sensitivity: float, rho: float) -> float:
    """Gumbel scale b at which selecting k coordinates costs ρ: b = λ·√(k/(2ρ))."""
    return sensitivity * math.sqrt(k / (2 * rho))


def noisy_top_k(
    noise: Noise, v: FloatArray, k: int, sensitivity: float, price: Price, magnitude: float
) -> NDArray[np.intp]:
    """Indices of the k largest |v_j| + Gumbel(b), one noise vector, at price ρ = k·λ²/(2b²).

    *Lemma.* With λ the ℓ∞ sensitivity of v this is ρ-zCDP. *Proof.* By the Gumbel-max property the k largest of score
    + Gumbel(b) have the joint law of k rounds of the exponential mechanism with P(j) ∝ exp(score_j/b) on what is left
    (Durfee & Rogers 2019). |·| keeps the sensitivity at λ. When scores move by at most λ, log P(j) moves within an
    interval of length 2λ/b: the round is (2λ/b)-bounded-range, hence (2λ/b)²/8-zCDP (Cesar & Rogers 2021, Theorem 2);
    k rounds add. ∎

    The scores are divided by b and given to a sampler of scale 1 (exact arithmetic is fastest there). Each quotient
    is rounded by at most one part in 2⁵³ of its size, itself at most ``magnitude``/b, so that rounding adds to the
    sensitivity; b is enlarged to pay for it.
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

    OpenDP draws the noise from the discrete Gaussian on a grid far finer than τ and rounds the sum to a float. Its zCDP
    price is the same (and is checked when it is drawn); the μ-curve is the continuous one's, from which so fine a grid
    differs by less than a float can show.
    """
    if math.isinf(price.rho):
        return v
    return noise.gaussian(v, gaussian_scale(sensitivity, price.rho), sensitivity, price.rho)


def peeling_price(s: int, sensitivity: float, scale: float) -> Price:
    """Price of :func:`noisy_hard_thresholding` with Laplace scale b: ρ = 2.5·s·(λ/b)².

    *Lemma.* *Proof.* A round of report-noisy-max with Laplace(b) is 2λ/b-DP (Dwork & Roth 2014, Claim 3.9), hence
    2(λ/b)²-zCDP (Bun & Steinke 2016, Proposition 1.4); one released value is λ/b-DP, hence (λ/b)²/2-zCDP. There are s
    of each, and 2s + s/2 = 2.5s. ∎
    """
    return Price(2.5 * s * (sensitivity / scale) ** 2)


def printed_peeling_scale(s: int, sensitivity: float, epsilon: float, delta: float) -> float:
    """The Laplace scale the paper prints: 2λ√(3s·log(1/δ))/ε."""
    return sensitivity * 2 * math.sqrt(3 * s * math.log(1 / delta)) / epsilon


def noisy_hard_thresholding(noise: Noise, v: FloatArray, s: int, scale: float) -> FloatArray:
    """The paper's Algorithm 1, NoisyHT: s rounds of noisy arg-max with fresh Laplace noise, then Laplace noise on the
    chosen values.
    """
    S: list[int] = []
    for _ in range(s):
        noisy = noise.laplace(np.abs(v), scale)
        noisy[S] = -math.inf
        S.append(int(np.argmax(noisy)))
    out = np.zeros_like(v)
    out[S] = noise.laplace(v[S], scale)
    return out
