r"""Weights of rows that agree with noisy means as far as their noise asks for.

Rows i have base weights w₀ and features f_i; a noisy mean a of the features is known, everything in units of its
noise. The tilted weights are w ∝ w₀·exp(Fλ) with λ the minimiser of

    log Σ w₀ exp(Fλ) − λ·a + (κ/2)‖λ‖².

*Lemma.* They minimise κ·KL(w‖w₀) + ½‖E_w f − a‖². *Proof.* Setting the derivative of the former to 0 gives
E_w f − a + κλ = 0. The latter is convex in w; its Lagrange condition is κ·log(w/w₀) + f·(E_w f − a) = constant, which
holds for w ∝ w₀·exp(Fλ) with λ = (a − E_w f)/κ: the same equation. ∎

So κ says how much the base weights count. With λ near 0 the prior that belongs to it is E_w f ~ N(E_0 f, Cov₀ f/κ),
and the answer is N(E_0 f, I + Cov₀ f/κ): κ is the one under which the answer is most probable.
"""

from __future__ import annotations

import numpy as np

from dpem.query import FloatArray


def principal(
    features: FloatArray, answer: FloatArray, weights: FloatArray, most: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Features and answer turned to the ``most`` principal components under the weights and centred there, and the
    components' variances. A rotation leaves independent unit noise what it is.
    """
    middle = weights @ features
    weighed = np.sqrt(weights)[:, None] * features
    if features.shape[1] > 4 * most:
        weighed -= np.outer(np.sqrt(weights), middle)
        axes = _leading(weighed, most + 20)
        variances, turn = np.linalg.eigh(_gram(weighed @ axes))
        axes = axes @ turn[:, max(len(variances) - most, 0) :]
    else:
        variances, turn = np.linalg.eigh(_gram(weighed) - np.outer(middle, middle))
        axes = turn[:, max(len(variances) - most, 0) :]
    return features @ axes - middle @ axes, (answer - middle) @ axes, np.maximum(variances[-most:], 0.0)


def _gram(matrix: FloatArray) -> FloatArray:
    return np.asarray(matrix.T @ matrix)


def _leading(matrix: FloatArray, count: int, turns: int = 3) -> FloatArray:
    """An orthonormal basis that nearly holds the leading right singular vectors: subspace iteration on every third row,
    from fixed directions.
    """
    part = matrix[::3]
    basis = np.cos(np.outer(np.arange(1, matrix.shape[1] + 1), np.arange(1, count + 1)) * 0.7548776662466927)
    for _ in range(turns):
        basis, _ = np.linalg.qr(part.T @ (part @ basis))
    return np.asarray(basis)


def evidence_kappa(answer: FloatArray, variances: FloatArray, low: float, high: float) -> float:
    """The κ in [low, high] that makes centred answers with unit noise most probable, on a grid."""
    return float(max(np.geomspace(low, high, 13), key=lambda kappa: log_evidence(answer, variances, kappa)))


def log_evidence(answer: FloatArray, variances: FloatArray, kappa: float) -> float:
    """The log-density of centred answers with unit noise, up to a constant, if the base weights count κ."""
    spread = 1 + variances / kappa
    return -0.5 * float(np.sum(np.log(spread) + answer**2 / spread))


def tilt(
    base: FloatArray,
    features: FloatArray,
    answer: FloatArray,
    kappa: float,
    start: FloatArray | None = None,
    *,
    most: int = 40,
) -> tuple[FloatArray, FloatArray]:
    """The tilted weights and λ, by Newton steps that are halved until the objective falls."""
    log_base = np.log(np.maximum(base, 1e-300))

    def at(point: FloatArray) -> tuple[float, FloatArray]:
        logs = log_base + features @ point
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        value = top + np.log(total) - float(point @ answer) + 0.5 * kappa * float(point @ point)
        return value, weights / total

    point = np.zeros(len(answer)) if start is None else start
    value, weights = at(point)
    for _ in range(most):
        middle = weights @ features
        gradient = middle - answer + kappa * point
        if float(np.max(np.abs(gradient))) < 1e-3:  # a thousandth of the noise
            break
        weighed = np.sqrt(weights)[:, None] * features
        step = np.linalg.solve(_gram(weighed) - np.outer(middle, middle) + kappa * np.eye(len(point)), gradient)
        size, slope = 1.0, float(gradient @ step)
        while True:
            new, tilted = at(point - size * step)
            if new <= value - 1e-4 * size * slope or size < 1e-6:
                break
            size /= 2
        if size < 1e-6:
            break
        point, value, weights = point - size * step, new, tilted
    return weights, point
