"""The plain algorithms agree with the definitions in the paper."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpem.paper import algorithms
from dpem.paper.models import MissingRegression

SIGMA = 0.6


def table(seed=0, n=40, d=4, missing=0.0):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    X[rng.random(X.shape) < missing] = np.nan
    return X, y


def slope(function, beta, h=1e-5):
    """The derivative by central differences."""
    steps = h * np.eye(len(beta))
    return np.array([(function(beta + e) - function(beta - e)) / (2 * h) for e in steps])


BETA = np.array([0.7, -0.4, 0.2, 0.0])


@pytest.mark.parametrize("as_printed", [True, False])
def test_mixture_gradient_is_that_of_q(as_printed):
    """The derivative of Q_n(β′; β) of Section 4.1 in β′, with the weight of Bayes’ rule or the printed one."""
    Y, _ = table()
    near, far = (np.exp(-((Y + side * BETA) ** 2).sum(axis=1) / (2 * SIGMA**2)) for side in (-1, 1))
    w = 1 / (1 + np.exp(-Y @ BETA / SIGMA**2)) if as_printed else near / (near + far)

    def q(b):
        return -np.mean(w * ((Y - b) ** 2).sum(axis=1) + (1 - w) * ((Y + b) ** 2).sum(axis=1)) / 2

    found = algorithms.mixture_gradient(BETA, Y, None, math.inf, SIGMA, as_printed)
    np.testing.assert_allclose(found, slope(q, BETA), atol=1e-8)


def test_regressions_gradient_is_that_of_q_once_corrected():
    """E2: the printed gradient is larger by the mean of y·x."""
    X, y = table(1)
    fitted = X @ BETA
    near, far = (np.exp(-((y + side * fitted) ** 2) / (2 * SIGMA**2)) for side in (-1, 1))
    w = near / (near + far)

    def q(b):
        return -np.mean(w * (y - X @ b) ** 2 + (1 - w) * (y + X @ b) ** 2) / 2

    found = algorithms.regressions_gradient(BETA, X, y, math.inf, SIGMA, as_printed=False)
    np.testing.assert_allclose(found, slope(q, BETA), atol=1e-8)
    printed = algorithms.regressions_gradient(BETA, X, y, math.inf, SIGMA * math.sqrt(2), as_printed=False)
    again = algorithms.regressions_gradient(BETA, X, y, math.inf, SIGMA, as_printed=True)
    np.testing.assert_allclose(again - printed, (y[:, None] * X).mean(axis=0), atol=1e-12)


def test_missing_gradient_is_the_score_once_corrected():
    """σ² times the gradient of the observed-data log-likelihood (Fisher's identity); the printed one is not (E3)."""
    X, y = table(2, missing=0.3)
    model = MissingRegression(SIGMA)
    score = SIGMA**2 * slope(lambda b: float(model.log_likelihood(b, X, y).mean()), BETA)
    exact, printed = (algorithms.missing_gradient(BETA, X, y, math.inf, SIGMA, way) for way in (False, True))
    np.testing.assert_allclose(exact, score, atol=1e-8)
    assert np.abs(printed - score).max() > 0.01


@pytest.mark.parametrize("as_printed", [True, False])
@pytest.mark.parametrize("name", algorithms.MODELS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), T=st.floats(0.3, 3.0), size=st.floats(0.1, 3.0))
def test_no_record_moves_an_entry_by_more_than_the_sensitivity(name, as_printed, seed, T, size):
    """For missing covariates as printed only where ‖β‖∞ ≤ 4T²: beyond, the printed 6T² is too small (E4)."""
    rng = np.random.default_rng(seed)
    beta = size * rng.standard_normal(3)
    if as_printed and name == "missing-regression":
        beta = np.clip(beta, -4 * T**2, 4 * T**2)
    X, y = 5 * rng.standard_normal((2, 3)), 5 * rng.standard_normal(2)
    if name == "missing-regression":
        X[rng.random(X.shape) < 0.4] = np.nan
    model = algorithms.MODELS[name]
    one, other = (model.gradient(beta, X[[i]], y[[i]], T, SIGMA, as_printed) for i in (0, 1))
    assert np.abs(one - other).max() <= model.sensitivity(T, beta, as_printed) * (1 + 1e-9)


def test_e4_the_printed_sensitivity_is_exceeded():
    beta, T, y = np.array([0.8, -0.6]), 0.4, np.array([5.0, -0.6])
    X = np.array([[1.0, 10.0], [np.nan, 1.0]])
    one, other = (algorithms.missing_gradient(beta, X[[i]], y[[i]], T, 0.5) for i in (0, 1))
    model = algorithms.MODELS["missing-regression"]
    change = np.abs(one - other).max()
    assert model.sensitivity(T, beta, True) < change <= model.sensitivity(T, beta, False)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), s=st.integers(1, 6), c=st.floats(0.05, 20.0), scale=st.floats(0.01, 3.0))
def test_accuracy_lemma_of_noisy_hard_thresholding(seed, s, c, scale):
    """Lemma 3.2: ‖v_R2‖² ≤ (1 + c)‖v_R1‖² + 4(1 + 1/c)·Σ‖w_i‖²∞ for all R1 ⊂ S, R2 ⊂ Sᶜ of one size. The worst pair
    has the smallest chosen and the largest rejected entries. The noise is the algorithm's own: the same seed.
    """
    rng = np.random.default_rng(seed)
    v = rng.standard_normal(12) * rng.choice([0.1, 1.0, 3.0], size=12)
    epsilon, delta = 1.0, 1e-3
    sensitivity = scale / (2 * math.sqrt(3 * s * math.log(1 / delta)))
    released = algorithms.noisy_hard_thresholding(v, s, sensitivity, epsilon, delta, random_state=seed)
    again = np.random.default_rng(seed)
    noise = [again.laplace(scale=scale, size=12) for _ in range(s)]
    chosen = np.flatnonzero(released)
    assert len(chosen) == s
    kept, dropped = np.sort(v[chosen] ** 2), np.sort(np.delete(v, chosen) ** 2)[::-1]
    allowance = 4 * (1 + 1 / c) * sum(np.abs(w).max() ** 2 for w in noise)
    for size in range(1, s + 1):
        assert dropped[:size].sum() <= (1 + c) * kept[:size].sum() + allowance + 1e-12


def test_every_numbered_algorithm_runs_and_returns_every_iterate():
    X, y = table(3, n=200, d=6)
    gaps = np.where(np.arange(6) == 2, np.nan, X)
    start, common = np.full(6, 0.3), dict(epsilon=0.5, delta=1e-4, n_iter=4, T=1.5, sigma=SIGMA, random_state=0)
    paths = [
        algorithms.algorithm_3(X, start, s=2, **common),
        algorithms.algorithm_5(X, y, start, s=2, **common),
        algorithms.algorithm_6(gaps, y, start, s=2, **common),
    ]
    assert all((np.count_nonzero(path[1:], axis=1) == 2).all() for path in paths)
    paths += [algorithms.algorithm_4("symmetric-mixture", X, None, start, **common)]
    paths += [algorithms.algorithm_7(X, y, start, **common), algorithms.algorithm_8(gaps, y, start, **common)]
    assert all(path.shape == (5, 6) and np.isfinite(path).all() for path in paths)
    assert all((path[0] == start).all() for path in paths)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_iter": 0}, r"n_iter must be between 1 and 200, the number of rows, got 0\."),
        ({"n_iter": 201}, "n_iter must be between 1 and 200"),
        ({"s": 7}, r"s must be between 1 and 6, the length of v, got 7\."),
    ],
)
def test_refusals(change, message):
    X, _ = table(3, n=200, d=6)
    common = dict(epsilon=0.5, delta=1e-4, n_iter=4, T=1.5, sigma=SIGMA, random_state=0, s=2)
    with pytest.raises(ValueError, match=message):
        algorithms.algorithm_3(X, np.full(6, 0.3), **{**common, **change})
    with pytest.raises(ValueError, match="model must be one of symmetric-mixture"):
        algorithms.high_dimensional_em("mixture", X, None, np.full(6, 0.3), **common)
