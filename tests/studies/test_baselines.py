"""Clipped gradient EM and the noisy covariance alone: what they release, what it costs, and that they work."""

import math

import numpy as np
import pytest
from stated_slack import with_slack

from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.reference import gradient_em
from dpem.privacy import Account, BudgetExceeded, Curator, PrivateNoise, SeededNoise, largest_price, total_price
from dpem.tables import ArraySource
from studies.paper.baselines.simple import clipped_gradient_em, spectral

SIGMA = 0.5
MODELS = {
    "symmetric-mixture": SymmetricMixture(SIGMA),
    "symmetric-regression": SymmetricRegression(SIGMA),
    "missing-regression": MissingRegression(SIGMA),
}
every_model = pytest.mark.parametrize("name", MODELS)


def data(name, n, d=4, seed=0):
    rng = np.random.default_rng(seed)
    beta = np.full(d, 1 / math.sqrt(d))
    if name == "symmetric-mixture":
        return MODELS[name].sample(beta, n, rng)[0], None, beta
    X = rng.standard_normal((n, d))
    if name == "symmetric-regression":
        return X, MODELS[name].sample(beta, X, rng)[0], beta
    y = X @ beta + SIGMA * rng.standard_normal(n)
    X[rng.random(X.shape) < 0.15] = np.nan
    return X, y, beta


def curator_of(X, y, epsilon, delta, noise=None):
    return Curator(ArraySource(X, y), Account(epsilon, delta, gaussian=True), noise or SeededNoise(1))


@every_model
@pytest.mark.parametrize("noise", [SeededNoise(1), PrivateNoise()], ids=["seeded", "private"])
def test_clipped_gradient_em_releases_and_price(name, noise):
    n, epsilon, delta = 800, 0.6, 1e-4
    X, y, truth = data(name, n)
    rho = largest_price(epsilon, delta, gaussian=True).rho
    curator = curator_of(X, y, epsilon, delta, noise)
    clipped_gradient_em(curator, MODELS[name], truth, rho=rho, n_iter=4, step=0.5, radius=1.5)
    releases = curator.account.releases
    assert [r.mechanism for r in releases] == ["Gaussian"] * 4
    for release in releases:
        assert release.sensitivity == pytest.approx(with_slack(2 * 1.5, 1.5, n), rel=1e-12)
        assert release.scale == pytest.approx(release.sensitivity / math.sqrt(2 * rho / 4), rel=1e-9)
    price = total_price(releases)
    assert price.gaussian
    assert 0.999 * delta <= price.delta(epsilon) <= delta * (1 + 1e-9)
    with pytest.raises(BudgetExceeded, match="not run"):
        clipped_gradient_em(curator, MODELS[name], truth, rho=rho, n_iter=1, step=0.5, radius=1.5)


@every_model
@pytest.mark.parametrize("s", [None, 2])
def test_clipped_gradient_em_without_noise_is_gradient_em(name, s):
    X, y, truth = data(name, 1000)
    start = np.where(np.arange(4) < 2, truth, 0.0) if s else 0.8 * truth
    settings = dict(n_iter=5, step=0.5)
    clipped = clipped_gradient_em(
        curator_of(X, y, math.inf, 0.0), MODELS[name], start, rho=math.inf, radius=math.inf, s=s, **settings
    )
    plain = gradient_em(curator_of(X, y, math.inf, 0.0), MODELS[name], start, s=s, **settings)
    np.testing.assert_allclose(clipped, plain, rtol=1e-12)
    assert np.count_nonzero(clipped) == (s or 4)


@every_model
def test_clipped_gradient_em_is_a_working_baseline(name):
    """d = 4, n = 20,000, ε = 1: the noise of a step has length about 0.01, the sampling error too; 0.15 is far out."""
    X, y, truth = data(name, 20_000)
    rho = largest_price(1.0, 1e-5, gaussian=True).rho
    found = clipped_gradient_em(
        curator_of(X, y, 1.0, 1e-5), MODELS[name], 0.6 * truth, rho=rho, n_iter=6, step=0.7, radius=3.0
    )
    assert np.linalg.norm(found - truth) < 0.15


@pytest.mark.parametrize("name", ["symmetric-mixture", "symmetric-regression"])
def test_spectral_needs_no_start(name):
    X, y, truth = data(name, 20_000)
    epsilon, delta = 1.0, 1e-5
    rho = largest_price(epsilon, delta, gaussian=True).rho
    curator = curator_of(X, y, epsilon, delta)
    radius = 2.0 if name == "symmetric-mixture" else 3.0
    found = spectral(curator, MODELS[name], rho=rho, radius=radius, signal=1.0)
    assert np.linalg.norm(found) == pytest.approx(1.0)
    assert min(np.linalg.norm(found - truth), np.linalg.norm(found + truth)) < 0.25
    (release,) = curator.account.releases
    sensitivity = (math.sqrt(2) if name == "symmetric-mixture" else 2.0) * radius**2 / 20_000
    assert release.sensitivity == pytest.approx(sensitivity, rel=1e-6)  # and slack for rounding
    assert total_price(curator.account.releases).delta(epsilon) <= delta * (1 + 1e-9)


def test_spectral_refuses_a_model_without_such_moments():
    X, y, _ = data("missing-regression", 100)
    curator = curator_of(X, y, 1.0, 1e-5)
    with pytest.raises(ValueError, match="MissingRegression has none"):
        spectral(curator, MODELS["missing-regression"], rho=0.01, radius=2.0, signal=1.0)
    assert curator.account.releases == []


def test_no_iterations_are_refused_before_anything_is_paid():
    X, y, truth = data("symmetric-mixture", 100)
    curator = curator_of(X, y, 1.0, 1e-5)
    with pytest.raises(ValueError, match="n_iter must be at least 1"):
        clipped_gradient_em(curator, MODELS["symmetric-mixture"], truth, rho=0.01, n_iter=0, step=1.0, radius=1.0)
    assert curator.account.releases == []
