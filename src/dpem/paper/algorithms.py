"""The paper's numbered algorithms in plain NumPy, for reading beside the paper and for simulations; not private.

Zhe Zhang and Linjun Zhang, *High-Dimensional Differentially-Private EM Algorithm: Methods and Near-Optimal Statistical
Guarantees*. Symbols and numbers are the paper's: rows y_i (or x_i, y_i), coefficients β, the model's noise level σ,
truncation level T, number of iterations N₀ = ``n_iter``, step size η = ``step``, sparsity ŝ = ``s``, sensitivity λ.

``as_printed=True`` uses the formulas of the paper. ``as_printed=False`` corrects its errata (docs/errata.md), marked
where they apply: E1, the posterior weight of both mixtures; E2, the gradient of the mixture of regressions; E3, the
posterior covariance of missing covariates; E4, their sensitivity.

NumPy's floating-point noise is not private, and no budget is charged. For private fits use the estimators of
:mod:`dpem.paper`: with ``method="published"`` they run the same algorithms through a curator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
Seed = int | np.random.Generator | None


def noisy_hard_thresholding(
    v: Array, s: int, sensitivity: float, epsilon: float, delta: float, random_state: Seed = None
) -> Array:
    """Algorithm 1, NoisyHT: select s coordinates one at a time by noisy absolute value, and release them with noise.

    ``sensitivity`` is λ, the largest change of an entry of v between neighbouring data sets.

    >>> noisy_hard_thresholding(np.array([5.0, 0.1, -7.0]), 2, 1e-6, 1.0, 1e-5, random_state=0).round(2)
    array([ 5.,  0., -7.])
    """
    if not 1 <= s <= len(v):
        raise ValueError(f"s must be between 1 and {len(v)}, the length of v, got {s!r}.")
    rng = np.random.default_rng(random_state)
    scale = sensitivity * 2 * math.sqrt(3 * s * math.log(1 / delta)) / epsilon
    S: list[int] = []
    for _ in range(s):
        noisy = np.abs(v) + rng.laplace(scale=scale, size=len(v))
        noisy[S] = -math.inf
        S.append(int(np.argmax(noisy)))
    released = np.zeros(len(v))
    released[S] = v[S] + rng.laplace(scale=scale, size=s)  # the paper draws d numbers and drops those outside S
    return released


def _clip(v: Array, T: float) -> Array:
    """Π_T: each coordinate clipped to [−T, T]."""
    return np.clip(v, -T, T)


def mixture_gradient(beta: Array, Y: Array, y: None, T: float, sigma: float, as_printed: bool = True) -> Array:
    """f_T(∇Q) of the Gaussian mixture, Section 4.1: mean of (2w − 1)·Π_T(y_i), minus β."""
    factor = 1 if as_printed else 2  # E1
    w = expit(factor * (Y @ beta) / sigma**2)
    return np.asarray(((2 * w - 1)[:, None] * _clip(Y, T)).mean(axis=0) - beta)


def regressions_gradient(beta: Array, X: Array, y: Array, T: float, sigma: float, as_printed: bool = True) -> Array:
    """f_T(∇Q) of the mixture of regressions, Section 4.2: mean of 2w·Π_T(y)·Π_T(x) − Π_T(x)·Π_T(⟨x, β⟩)."""
    factor = 1 if as_printed else 2  # E1
    w = expit(factor * y * (X @ beta) / sigma**2)
    weight = 2 * w if as_printed else 2 * w - 1  # E2
    return np.asarray(((weight * _clip(y, T) - _clip(X @ beta, T))[:, None] * _clip(X, T)).mean(axis=0))


def missing_gradient(beta: Array, X: Array, y: Array, T: float, sigma: float, as_printed: bool = True) -> Array:
    """f_T(∇Q) with missing covariates (NaN), Section 4.3: mean of y_i·m_i − K_i·β, truncated, where m_i and K_i are the
    conditional means of x_i and of x_i·x_iᵀ given the row.
    """
    missing = np.isnan(X)
    x_observed, beta_missing = np.where(missing, 0.0, X), missing * beta  # z⊙x and (1 − z)⊙β
    v = sigma**2 + (beta_missing**2).sum(axis=1)
    m = x_observed + ((y - x_observed @ beta) / v)[:, None] * beta_missing
    terms = _clip(y, T)[:, None] * _clip(m, T) - beta_missing - _clip(m, T) * _clip(m @ beta, T)[:, None]
    if as_printed:
        terms += _clip(missing * m, T) * _clip((missing * m) @ beta, T)[:, None]
    else:
        terms += beta_missing * ((v - sigma**2) / v)[:, None]  # E3
    return np.asarray(terms.mean(axis=0))


class Model(NamedTuple):
    """A truncated gradient, and its ℓ∞ sensitivity: the largest change of an entry of its sum if one record changes."""

    gradient: Callable[..., Array]
    sensitivity: Callable[[float, Array, bool], float]  # of T, β and ``as_printed``


def _missing_sensitivity(T: float, beta: Array, as_printed: bool) -> float:
    return 6 * T**2 if as_printed else max(6 * T**2, 2 * T**2 + float(np.abs(beta).max()))  # E4


MODELS = {
    "symmetric-mixture": Model(mixture_gradient, lambda T, beta, as_printed: 2 * T),
    "symmetric-regression": Model(regressions_gradient, lambda T, beta, as_printed: 4 * T**2),
    "missing-regression": Model(missing_gradient, _missing_sensitivity),
}


def _model(name: str) -> Model:
    if name not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}.")
    return MODELS[name]


def _batches(X: Array, y: Array | None, n_iter: int) -> list[tuple[Array, Array | None]]:
    """N₀ disjoint batches of about n/N₀ records: batch t has the records t, t + N₀, t + 2N₀, …"""
    if not 1 <= n_iter <= len(X):
        raise ValueError(f"n_iter must be between 1 and {len(X)}, the number of rows, got {n_iter!r}.")
    return [(X[t::n_iter], None if y is None else y[t::n_iter]) for t in range(n_iter)]


def high_dimensional_em(
    model: str, X: Array, y: Array | None, start: Array, *, epsilon: float, delta: float, s: int, n_iter: int,
    T: float, sigma: float, step: float = 0.5, as_printed: bool = True, random_state: Seed = None,
) -> Array:  # fmt: skip
    """Algorithm 2: a truncated gradient step on a fresh batch, then NoisyHT. Returns β⁰, …, β^{N₀} as rows.

    ``model`` is "symmetric-mixture" (no y), "symmetric-regression" or "missing-regression".

    >>> rng = np.random.default_rng(0)
    >>> truth = np.array([0.8, 0.6, 0.0, 0.0])
    >>> Y = rng.choice([-1.0, 1.0], size=(20_000, 1)) * truth + 0.5 * rng.standard_normal((20_000, 4))
    >>> settings = {"epsilon": 0.5, "delta": 1e-5, "s": 2, "n_iter": 5, "T": 2.0, "sigma": 0.5, "random_state": 1}
    >>> path = high_dimensional_em("symmetric-mixture", Y, None, np.array([0.7, 0.7, 0.0, 0.0]), **settings)
    >>> path.shape, bool(np.linalg.norm(path[-1] - truth) < 0.3)
    ((6, 4), True)
    """
    gradient, gradient_sensitivity = _model(model)
    rng, path = np.random.default_rng(random_state), [np.asarray(start, dtype=float)]
    for batch in _batches(X, y, n_iter):
        beta = path[-1]
        beta_half = beta + step * gradient(beta, *batch, T, sigma, as_printed)
        sensitivity = step * gradient_sensitivity(T, beta, as_printed) / len(batch[0])
        path.append(noisy_hard_thresholding(beta_half, s, sensitivity, epsilon, delta, rng))
    return np.array(path)


def low_dimensional_em(
    model: str, X: Array, y: Array | None, start: Array, *, epsilon: float, delta: float, n_iter: int,
    T: float, sigma: float, step: float = 0.5, as_printed: bool = True, random_state: Seed = None,
) -> Array:  # fmt: skip
    """Algorithm 4: a truncated gradient step on a fresh batch, plus Gaussian noise of variance
    2η²d·λ²·log(1.25/δ)/ε² in each coordinate. Returns β⁰, …, β^{N₀} as rows.
    """
    gradient, gradient_sensitivity = _model(model)
    rng, path = np.random.default_rng(random_state), [np.asarray(start, dtype=float)]
    for batch in _batches(X, y, n_iter):
        beta = path[-1]
        sensitivity = step * math.sqrt(len(beta)) * gradient_sensitivity(T, beta, as_printed) / len(batch[0])
        noise = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon * rng.standard_normal(len(beta))
        path.append(beta + step * gradient(beta, *batch, T, sigma, as_printed) + noise)
    return np.array(path)


def algorithm_3(Y: Array, start: Array, **settings: Any) -> Array:
    """Algorithm 3: Gaussian mixture in high dimension; settings as for :func:`high_dimensional_em`."""
    return high_dimensional_em("symmetric-mixture", Y, None, start, **settings)


def algorithm_5(X: Array, y: Array, start: Array, **settings: Any) -> Array:
    """Algorithm 5: mixture of regressions in high dimension."""
    return high_dimensional_em("symmetric-regression", X, y, start, **settings)


def algorithm_6(X: Array, y: Array, start: Array, **settings: Any) -> Array:
    """Algorithm 6: regression with missing covariates in high dimension."""
    return high_dimensional_em("missing-regression", X, y, start, **settings)


def algorithm_7(X: Array, y: Array, start: Array, **settings: Any) -> Array:
    """Algorithm 7: mixture of regressions in low dimension; settings as for :func:`low_dimensional_em`."""
    return low_dimensional_em("symmetric-regression", X, y, start, **settings)


def algorithm_8(X: Array, y: Array, start: Array, **settings: Any) -> Array:
    """Algorithm 8: regression with missing covariates in low dimension."""
    return low_dimensional_em("missing-regression", X, y, start, **settings)


algorithm_1, algorithm_2, algorithm_4 = noisy_hard_thresholding, high_dimensional_em, low_dimensional_em
