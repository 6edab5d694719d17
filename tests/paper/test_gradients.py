"""The gradients are the score: σ² times the derivative of the log-likelihood, and zero on average at the true β."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpem.paper import algorithms
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.query import Chunk

D = 5
HUGE = 1e100
MODELS = [SymmetricMixture(0.7), SymmetricRegression(0.7), MissingRegression(0.7)]
MIXTURES = MODELS[:2]


by_name = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)


def draw(model, beta, n, rng):
    """n rows from the model at ``beta``, a third of the entries missing where the model knows missing entries."""
    if isinstance(model, SymmetricMixture):
        return Chunk(model.sample(beta, n, rng)[0], None)
    X = rng.standard_normal((n, beta.shape[0]))
    if isinstance(model, SymmetricRegression):
        return Chunk(X, model.sample(beta, X, rng)[0])
    X[rng.random(X.shape) < 1 / 3] = np.nan
    return Chunk(X, model.sample(beta, X, rng))


def score(model, beta, chunk, h=1e-5):
    """σ² times the derivative of the mean log-likelihood, by central differences (error about h² = 1e-10)."""
    steps = h * np.eye(beta.shape[0])
    up, down = ([np.mean(model.log_likelihood(beta + t * e, *chunk)) for e in steps] for t in (1.0, -1.0))
    return model.sigma**2 * (np.array(up) - np.array(down)) / (2 * h)


def unclipped(model, beta, chunk):
    """The mean gradient through the public support query, with a ball of infinite radius."""
    return model.on_support(beta, np.arange(beta.shape[0]), math.inf).sum(chunk) / chunk.X.shape[0]


def in_standard_errors(contributions):
    """The largest |mean| of a column in standard errors."""
    return np.max(np.abs(contributions.mean(axis=0)) / (contributions.std(axis=0) / math.sqrt(len(contributions))))


def each_row(query, chunk, rows):
    """The contributions of the first ``rows`` rows, one at a time."""
    X, y = chunk
    return np.array([query.sum(Chunk(X[i : i + 1], None if y is None else y[i : i + 1])) for i in range(rows)])


def exact_rows(model, beta, chunk):
    """The contributions with the exact posterior covariance, of the plain algorithm."""
    rows = (
        algorithms.missing_gradient(beta, x[None], y[None], HUGE, model.sigma, as_printed=False)
        for x, y in zip(*chunk, strict=True)
    )
    return np.array(list(rows))


@by_name
@pytest.mark.parametrize("seed", range(5))
def test_unclipped_gradient_is_the_score(model, seed):
    rng = np.random.default_rng(seed)
    chunk = draw(model, rng.standard_normal(D), 300, rng)
    beta = rng.standard_normal(D)
    expected = score(model, beta, chunk)
    assert np.max(np.abs(expected)) > 0.01  # far from a fixed point, so the comparison says something
    np.testing.assert_allclose(unclipped(model, beta, chunk), expected, rtol=1e-6, atol=1e-8)


@by_name
@pytest.mark.parametrize("seed", range(5))
def test_coordinate_gradient_plus_shift_is_the_score(model, seed):
    rng = np.random.default_rng(100 + seed)
    chunk = draw(model, rng.standard_normal(D), 300, rng)
    beta = rng.standard_normal(D)
    query = model.gradient(beta, Clip(HUGE, HUGE, HUGE))
    gradient = query.sum(chunk) / 300 + model.shift(beta)
    np.testing.assert_allclose(gradient, score(model, beta, chunk), rtol=1e-6, atol=1e-8)


@by_name
def test_score_of_a_sparse_beta_on_its_support(model):
    """on_support gives the support's coordinates of the whole gradient, in the order of the support."""
    rng = np.random.default_rng(7)
    beta = np.array([0.0, 0.9, 0.0, -0.6, 0.0])
    chunk = draw(model, beta + 0.3, 300, rng)
    support = np.array([3, 0, 1])
    gradient = model.on_support(beta, support, math.inf).sum(chunk) / 300
    np.testing.assert_allclose(gradient, score(model, beta, chunk)[support], rtol=1e-6, atol=1e-8)


@by_name
def test_support_must_hold_every_coefficient(model):
    with pytest.raises(ValueError, match="support"):
        model.on_support(np.array([0.0, 0.5, 0.5]), np.array([1]), 1.0)


@by_name
def test_true_beta_is_a_fixed_point_in_population(model):
    rng = np.random.default_rng(11)
    beta, n = np.array([0.6, -0.4, 0.3, 0.0, 0.0]), 200_000
    chunk = draw(model, beta, n, rng)
    gradient = unclipped(model, beta, chunk)
    spread = np.sqrt(np.mean(each_row(model.on_support(beta, np.arange(D), math.inf), chunk, 2000) ** 2, axis=0))
    # Five coordinates within 5 standard errors (the spread itself known to about 5 %): false alarm below 1e-5.
    assert np.max(np.abs(gradient) / (spread / math.sqrt(n))) < 5
    # ... and a β that is 5 % away from the truth is not a fixed point, so the test sees a bias of that size.
    away = unclipped(model, 1.05 * beta, chunk)
    assert np.max(np.abs(away) / (spread / math.sqrt(n))) > 7


@pytest.mark.parametrize("model", MIXTURES, ids=lambda m: m.name)
def test_printed_weight_has_another_fixed_point(model):
    """Erratum E1: with tanh(t/2), the paper's exponent, the true β is no fixed point; with tanh(t) it is one."""
    rng = np.random.default_rng(12)
    beta = np.array([0.6, -0.4, 0.3, 0.0, 0.0])
    X, y = draw(model, beta, 200_000, rng)
    fitted = X @ beta

    def contributions(factor):
        if y is None:
            return np.tanh(factor * fitted / model.sigma**2)[:, None] * X - beta
        return (np.tanh(factor * y * fitted / model.sigma**2) * y - fitted)[:, None] * X

    np.testing.assert_allclose(contributions(1.0).mean(axis=0), unclipped(model, beta, Chunk(X, y)), atol=1e-10)
    assert in_standard_errors(contributions(1.0)) < 5  # false alarm: five coordinates, below 3e-6
    assert in_standard_errors(contributions(0.5)) > 20


@pytest.mark.parametrize("model", MIXTURES, ids=lambda m: m.name)
@pytest.mark.parametrize("seed", range(3))
def test_truncated_at_a_huge_level_is_the_gradient(model, seed):
    rng = np.random.default_rng(200 + seed)
    chunk = draw(model, rng.standard_normal(D), 300, rng)
    beta = rng.standard_normal(D)
    gradient = model.truncated(beta, HUGE).sum(chunk) / 300 + model.shift(beta)
    np.testing.assert_allclose(gradient, unclipped(model, beta, chunk), rtol=1e-11, atol=1e-12)
    # A smaller level changes the result, so the kernel uses T.
    biting = model.truncated(beta, 0.5).sum(chunk) / 300 + model.shift(beta)
    assert np.max(np.abs(biting - gradient)) > 0.01


@pytest.mark.parametrize("seed", range(3))
def test_exact_covariance_truncated_at_a_huge_level_is_the_score(seed):
    """Erratum E3 corrected: equal for each record, not only on average."""
    model, rng = MissingRegression(0.7), np.random.default_rng(300 + seed)
    chunk = draw(model, rng.standard_normal(D), 300, rng)
    beta = rng.standard_normal(D)
    exact = exact_rows(model, beta, chunk)
    np.testing.assert_allclose(exact.mean(axis=0), score(model, beta, chunk), rtol=1e-6, atol=1e-8)
    everywhere = model.on_support(beta, np.arange(D), math.inf)
    np.testing.assert_allclose(exact[:50], each_row(everywhere, chunk, 50), rtol=1e-10, atol=1e-12)


def test_printed_covariance_is_the_score_at_the_truth_only():
    """Erratum E3, the printed form: unbiased at the true β, biased away from it."""
    model, rng = MissingRegression(0.7), np.random.default_rng(13)
    truth, n = np.array([0.6, -0.4, 0.3, 0.5, -0.5]), 5_000
    chunk = draw(model, truth, n, rng)

    def excess(beta):
        """Printed minus exact, record by record."""
        return model.truncated(beta, HUGE)._contributions(*chunk) - exact_rows(model, beta, chunk)

    assert in_standard_errors(excess(truth)) < 5  # false alarm: five coordinates, below 3e-6
    assert in_standard_errors(excess(0.5 * truth)) > 8
    assert in_standard_errors(excess(1.5 * truth)) > 8


@by_name
def test_log_likelihood_is_a_density(model):
    """exp(log_likelihood) integrates to 1: over the row for the Gaussian mixture, over the response for the others."""
    beta = np.array([0.8])
    grid = np.linspace(-12, 12, 4001)
    if isinstance(model, SymmetricMixture):
        density = np.exp(model.log_likelihood(beta, grid[:, None]))
    else:
        entry = np.nan if isinstance(model, MissingRegression) else 0.9
        density = np.exp(model.log_likelihood(beta, np.full((grid.size, 1), entry), grid))
    assert np.sum(density) * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-9)
