"""Private baselines: what Wang et al. 2020, clipped gradient EM and the noisy covariance release, and what it costs."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from stated_slack import with_slack

from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.reference import gradient_em
from dpem.privacy import Account, BudgetExceeded, Curator, Price, PrivateNoise, SeededNoise, largest_price, total_price
from dpem.query import Chunk
from dpem.tables import ArraySource
from studies.paper.baselines.robust import RobustGradient, record_gradients, smoothed_truncation
from studies.paper.baselines.simple import clipped_gradient_em, spectral
from studies.paper.baselines.wang2020 import wang2020

SIGMA = 0.5
MODELS = {
    "symmetric-mixture": SymmetricMixture(SIGMA),
    "symmetric-regression": SymmetricRegression(SIGMA),
    "missing-regression": MissingRegression(SIGMA),
}
every_model = pytest.mark.parametrize("name", MODELS)
ROOT2 = math.sqrt(2)


def phi(u):
    return u - u**3 / 6 if abs(u) <= ROOT2 else math.copysign(2 * ROOT2 / 3, u)


def by_quadrature(a, smoothing):
    """E φ(a·(1 + η)) integrated between the kinks."""
    root = math.sqrt(smoothing)
    kinks = [(t / a - 1) * root for t in (-ROOT2, ROOT2)] if a else []
    cuts = [-12.0, *sorted(k for k in kinks if -12 < k < 12), 12.0]
    density = 1 / math.sqrt(2 * math.pi)
    pieces = (
        quad(lambda e: phi(a * (1 + e / root)) * math.exp(-e * e / 2) * density, low, high, epsabs=1e-13)[0]
        for low, high in itertools.pairwise(cuts)
    )
    return sum(pieces)


def data(name, n, d=4, seed=0):
    rng = np.random.default_rng(seed)
    beta = np.full(d, 1 / math.sqrt(d))
    if name == "symmetric-mixture":
        return *MODELS[name].sample(beta, n, rng)[:1], None, beta
    X = rng.standard_normal((n, d))
    if name == "symmetric-regression":
        return X, MODELS[name].sample(beta, X, rng)[0], beta
    y = X @ beta + SIGMA * rng.standard_normal(n)
    X[rng.random(X.shape) < 0.15] = np.nan
    return X, y, beta


# ------------------------------------------------------------------------------------------------------- the truncation


@pytest.mark.parametrize("smoothing", [0.5, 3.0, 20.0])
def test_the_closed_form_is_the_average(smoothing):
    a = np.array([0.0, 1e-9, 0.01, -0.3, 0.9, -ROOT2, 2.0, 7.0, -40.0, 100.0])
    expected = [by_quadrature(v, smoothing) for v in a]
    np.testing.assert_allclose(smoothed_truncation(a, smoothing), expected, rtol=0, atol=1e-9)


# -------------------------------------------------------------------------------------------------------- the gradient


@every_model
def test_unclipped_gradients_are_the_models(name):
    """At a scale so large that nothing is cut, the query is the gradient that non-private EM uses."""
    X, y, truth = data(name, 500)
    beta = 0.7 * truth
    curator = Curator(ArraySource(X, y), Account(math.inf, 0.0), SeededNoise(0))
    exact = curator.measure(MODELS[name].on_support(beta, np.arange(4), math.inf), rho=math.inf)
    np.testing.assert_allclose(record_gradients(MODELS[name], beta, X, y).mean(axis=0), exact, atol=1e-12)
    robust = curator.measure(RobustGradient(MODELS[name], beta, 1e5, 1e4), rho=math.inf)
    np.testing.assert_allclose(robust, exact, atol=1e-6)


@every_model
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_record_moves_the_sum_further_than_the_bound(name, dtype):
    rng = np.random.default_rng(3)
    d, big = 3, 1e38 if dtype is np.float32 else 1e300
    query = RobustGradient(MODELS[name], np.array([0.9, -0.4, 0.0]), scale=1.3, smoothing=9.0)
    rows = [*(rng.standard_normal((20, d)) * 10.0 ** rng.uniform(-6, 9, (20, 1)))]
    rows += list(rng.choice([0.0, 1e4, -1e4, 1e8, -1e8, big, -big, np.nan, np.inf, -np.inf], (60, d)))
    # far out along ±β: every coordinate of the gradient saturates, the first two with opposite signs
    rows += [np.array([1.0, -1.0, t]) * 1e5 for t in (1.0, -1.0)]
    responses = rng.choice([0.0, 1.0, -3.0, 1e8, -1e8, big, -big], len(rows))
    with np.errstate(over="ignore"):
        table = np.array(rows, dtype=dtype), np.array(responses, dtype=dtype)
    one = [query.sum(Chunk(table[0][i : i + 1], table[1][i : i + 1])) for i in range(len(rows))]
    values = np.array(one)
    assert np.isfinite(values).all()
    gaps = values[:, None] - values[None]
    assert np.abs(gaps).max() <= query.bound.linf
    assert np.linalg.norm(gaps, axis=2).max() <= query.bound.l2
    assert np.abs(gaps).max() >= 0.99 * query.bound.linf  # the bound is no larger than it has to be


@pytest.mark.parametrize(
    ("scale", "smoothing"), [(0.0, 1.0), (-1.0, 1.0), (math.inf, 1.0), (1.0, 0.0), (1.0, math.nan)]
)
def test_settings_that_mean_nothing_are_refused(scale, smoothing):
    with pytest.raises(ValueError, match="must be a positive finite number"):
        RobustGradient(MODELS["symmetric-mixture"], np.ones(2), scale, smoothing)


# ------------------------------------------------------------------------------------------------------- the algorithm


@every_model
@pytest.mark.parametrize("noise", [SeededNoise(1), PrivateNoise()], ids=["seeded", "private"])
@pytest.mark.parametrize("gaussian", [True, False], ids=["exact", "zCDP"])
def test_releases_and_price(name, noise, gaussian):
    n, d, epsilon, delta = 600, 4, 0.7, 1e-4
    X, y, truth = data(name, n, d)
    curator = Curator(ArraySource(X, y), Account(epsilon, delta, gaussian=gaussian), noise)
    settings = dict(epsilon=epsilon, delta=delta, n_iter=5, step=1.0, scale=2.0, smoothing=8.0)
    wang2020(curator, MODELS[name], truth, **settings)
    releases = curator.account.releases
    assert [r.mechanism for r in releases] == ["Gaussian"] * 5
    for release in releases:
        size = 2 * ROOT2 / 3 * 2.0 * math.sqrt(d)  # clamped at ±(2√2/3)·s in each of d coordinates
        assert release.sensitivity == pytest.approx(with_slack(2 * size, size, n), rel=1e-12)
    price = Price(total_price(releases).rho, gaussian)
    assert 0.999 * delta <= price.delta(epsilon) <= delta * (1 + 1e-9)  # the whole budget, and no more
    with pytest.raises(BudgetExceeded, match="not run"):
        wang2020(curator, MODELS[name], truth, **settings)


@every_model
def test_without_noise_it_is_gradient_em(name):
    """ε = ∞ and a scale far above the gradients: Catoni's bias, of order 1/s, is all that is left."""
    X, y, truth = data(name, 4000)
    start = 0.8 * truth
    robust = wang2020(
        Curator(ArraySource(X, y), Account(math.inf, 0.0), SeededNoise(0)),
        *(MODELS[name], start),
        **dict(epsilon=math.inf, delta=0.0, n_iter=8, step=0.5, scale=300.0, smoothing=10.0),
    )
    plain = gradient_em(
        Curator(ArraySource(X, y), Account(math.inf, 0.0), SeededNoise(0)),
        MODELS[name],
        start,
        s=None,
        n_iter=8,
        step=0.5,
    )
    np.testing.assert_allclose(robust, plain, atol=1e-3)
    assert np.linalg.norm(plain - truth) < 0.1


# ------------------------------------------------------------------------------------------------- simple baselines


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
