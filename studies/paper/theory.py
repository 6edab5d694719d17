"""The constants and rates of the paper's theorems, as functions; numbers are those of this version of the paper.

Rates are forms without constants: what a quantity is proportional to, not a bound to be relied on. Models are
"symmetric-mixture", "symmetric-regression" and "missing-regression"; ``s`` is s*, or None in low dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpem.paper.algorithms import MODELS

#: The neighbourhood B = {‖β − β*‖ ≤ L·‖β*‖} in which the lemmas hold: Lemmas 4.1 and A.1.
RADIUS = {"symmetric-mixture": 1 / 4, "symmetric-regression": 1 / 32}


def contraction(mu: float, nu: float, gamma: float) -> float:
    """κ = 1 − 2(ν − γ)/(ν + μ), Theorem 3.8 (and 5.4, where λ is printed for ν). All three models have μ = ν = 1, so
    that κ = γ.

    >>> contraction(1.0, 1.0, 0.25)
    0.25
    """
    return 1 - 2 * (nu - gamma) / (nu + mu)


def required_sparsity(s: int, kappa: float, L: float) -> float:
    """The ŝ that Theorem 3.8 asks for (up to c₀ > 1): max(16/(1/κ − 1)², 4(1 + L)²/(1 − L)²)·s*.

    For the Gaussian mixture, L = 1/4, that is at least 100/9 times s* (Theorem 4.2); the paper's simulations do not say
    which ŝ they use, and this package uses ŝ = s*.

    >>> round(required_sparsity(9, kappa=0.1, L=1 / 4), 6)
    100.0
    """
    return s * max(16 / (1 / kappa - 1) ** 2, 4 * (1 + L) ** 2 / (1 - L) ** 2)


def largest_missing_share(snr: float, L: float) -> float:
    """The share p of missing entries below which Lemma A.2 holds: 1/(1 + 2b + 2b²), b = (‖β*‖/σ)²(1 + L)².

    >>> round(largest_missing_share(snr=2.0, L=0.0), 4)  # ‖β*‖ = 1 and σ = 0.5, at best
    0.0244
    """
    b = snr**2 * (1 + L) ** 2
    return 1 / (1 + 2 * b + 2 * b**2)


def missing_contraction(p: float, snr: float, L: float) -> float:
    """γ of Lemma A.2: (b + p(1 + 2b + 2b²))/(1 + b)."""
    b = snr**2 * (1 + L) ** 2
    return (b + p * (1 + 2 * b + 2 * b**2)) / (1 + b)


def noise_floor(
    model: str, *, n: int, d: int, s: int | None, epsilon: float, delta: float, n_iter: int, T: float, step: float
) -> float:
    """Root mean square norm of the noise in the last release of the published algorithm: √(2ŝ)·b, in low dimension √d
    times the standard deviation.

    *Lemma.* E‖β^{N₀} − β*‖² is at least its square, whatever the data, the start and the weight. *Proof.* The noise on
    the released values is drawn last, has mean zero and is independent of the vector it is added to and of the chosen
    coordinates; so its second moment adds to that of the rest. A Laplace(b) variable has variance 2b², and ŝ of them
    are released. ∎

    >>> at = {"n": 4000, "d": 1000, "s": 10, "epsilon": 0.5, "delta": 1 / 8000, "n_iter": 8, "step": 0.5}
    >>> round(noise_floor("symmetric-mixture", T=math.sqrt(math.log(4000)), **at), 2)
    1.69
    """
    sensitivity = step * MODELS[model].sensitivity(T, np.zeros(1), True) * n_iter / n
    if s is None:
        return d * sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    return math.sqrt(2 * s) * sensitivity * 2 * math.sqrt(3 * s * math.log(1 / delta)) / epsilon


class Rate(NamedTuple):
    """The two terms of a bound, without constants."""

    statistical: float
    privacy: float


def upper_rate(
    model: str, *, n: int, d: int, s: int | None, epsilon: float, delta: float, as_printed: bool = True
) -> Rate:
    """The upper bounds: Theorems 4.2, 4.4 and 4.6 in high dimension, 5.5, A.3 and A.5 in low dimension.

    ``as_printed=False`` has the privacy term that the proofs give for the two regressions, (log n)² in place of
    (log n)^{3/2}: their sensitivity is of order T²N₀/n, not T·N₀/n (erratum E10).
    """
    log_n, mixture = math.log(n), model == "symmetric-mixture"
    power = 1.5 if mixture or as_printed else 2.0
    privacy = math.sqrt(math.log(1 / delta)) * log_n**power / (n * epsilon)
    if s is None:
        return Rate(math.sqrt(d / n) * log_n ** (1.0 if mixture else 1.5), d * privacy)
    return Rate(math.sqrt(s * math.log(d) / n) * log_n ** (0.5 if mixture else 1.0), s * math.log(d) * privacy)


def lower_rate(model: str, *, n: int, d: int, s: int | None, epsilon: float, delta: float) -> Rate:
    """The minimax lower bounds: Propositions 4.3, 4.5 and 4.7 in high dimension, Proposition 5.6 and Theorems A.4 and
    A.6 in low dimension. Those of the two mixtures hold for a loss up to sign only (erratum E12).
    """
    if s is not None:
        return Rate(math.sqrt(s * math.log(d) / n), s * math.log(d) / (n * epsilon))
    logs = math.sqrt(math.log(1 / delta)) if model == "symmetric-mixture" else 1.0
    return Rate(math.sqrt(d / n), d * logs / (n * epsilon))
