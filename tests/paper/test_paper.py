"""The private algorithms agree with :mod:`dpem.paper.algorithms`; errata; a fourth model."""

import math

import numpy as np
import pytest
from stated_slack import with_slack

from dpem import Budget
from dpem.fitting.step import run_steps
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression, algorithms
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.published import (
    PublishedEM,
    high_dimensional_em,
    low_dimensional_em,
    printed_gaussian_scale,
    printed_price,
)
from dpem.paper.queries import Clip
from dpem.paper.reference import gradient_em
from dpem.paper.steps import PaperState, Refine, Select
from dpem.privacy import Account, BudgetExceeded, Curator, PrivateNoise, SeededNoise, total_price
from dpem.privacy.mechanisms import printed_peeling_scale
from dpem.tables import ArraySource
from dpem.tables.base import slack

SIGMA = 0.5
MODELS = {
    "symmetric-mixture": SymmetricMixture(SIGMA),
    "symmetric-regression": SymmetricRegression(SIGMA),
    "missing-regression": MissingRegression(SIGMA),
}
#: The λ of the pseudo-code without η·N₀/n: Algorithms 3, 5 and 6.
PRINTED = {
    "symmetric-mixture": lambda T: 2 * T,
    "symmetric-regression": lambda T: 4 * T**2,
    "missing-regression": lambda T: 6 * T**2,
}
every_model = pytest.mark.parametrize("name", MODELS)


class Watched(ArraySource):
    """Records the labels of its queries."""

    def __init__(self, X, y=None, labels=None):
        super().__init__(X, y)
        self.labels = [] if labels is None else labels

    def total(self, query):
        self.labels.append(query.label)
        return super().total(query)

    def split(self, parts):
        return [Watched(p._X, p._y, self.labels) for p in super().split(parts)]


class Recorded:
    """A model that records the β of each query; everything else is the model's own."""

    def __init__(self, model):
        self._model, self.betas = model, []

    def __getattr__(self, name):
        return getattr(self._model, name)

    def truncated(self, beta, T):
        self.betas.append(beta.copy())
        return self._model.truncated(beta, T)


def sparse(d: int, s: int, length: float = 1.0) -> np.ndarray:
    beta = np.zeros(d)
    beta[:s] = length / math.sqrt(s)
    return beta


def data(name: str, beta: np.ndarray, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
    rng = np.random.default_rng(seed)
    if name == "symmetric-mixture":
        return MODELS[name].sample(beta, n, rng)[0], None
    X = rng.standard_normal((n, len(beta)))
    if name == "symmetric-regression":
        return X, MODELS[name].sample(beta, X, rng)[0]
    y = X @ beta + SIGMA * rng.standard_normal(n)
    X[rng.random(X.shape) < 0.15] = np.nan
    return X, y


def curator(source, *, epsilon, delta, gaussian=False, seed=1, noise=None) -> Curator:
    return Curator(source, Account(epsilon, delta, gaussian=gaussian), noise or SeededNoise(seed))


# ------------------------------------------------------------------------------------- beside the algorithms in NumPy


def as_published(name: str) -> dict:
    """E1 and E2 are corrected in the published method; the printed covariance (E3) is kept."""
    return {"sigma": SIGMA, "as_printed": name == "missing-regression", "random_state": 1}


@every_model
def test_high_dimensional_em_is_algorithm_2(name):
    d, s = 12, 3
    X, y = data(name, sparse(d, s), 1200)
    settings = dict(epsilon=0.9, delta=1e-4, s=s, n_iter=4, step=0.4, T=1.5)
    path = algorithms.high_dimensional_em(name, X, y, sparse(d, s, 0.7), **settings, **as_published(name))
    c = curator(ArraySource(X, y), epsilon=0.9, delta=1e-4)
    found = high_dimensional_em(c, MODELS[name], sparse(d, s, 0.7), **settings)
    np.testing.assert_allclose(found, path[-1], rtol=1e-7, atol=1e-9)
    assert len(path) == 5
    assert np.count_nonzero(found) == s


@every_model
def test_low_dimensional_em_is_algorithm_4(name):
    truth = np.full(5, 0.4)
    X, y = data(name, truth, 1200)
    settings = dict(epsilon=0.8, delta=1e-4, n_iter=3, step=0.4, T=1.5)
    path = algorithms.low_dimensional_em(name, X, y, 0.8 * truth, **settings, **as_published(name))
    c = curator(ArraySource(X, y), epsilon=0.8, delta=1e-4, gaussian=True)
    found = low_dimensional_em(c, MODELS[name], 0.8 * truth, **settings)
    np.testing.assert_allclose(found, path[-1], rtol=1e-7, atol=1e-9)


@every_model
@pytest.mark.parametrize("noise", [None, PrivateNoise()], ids=["seeded", "private"])
def test_high_dimensional_releases(name, noise):
    n, d, s, n_iter, step, T, epsilon, delta = 1003, 10, 3, 5, 0.5, 2.0, 0.7, 1e-5
    X, y = data(name, sparse(d, s), n)
    source = Watched(X, y)
    c = curator(source, epsilon=epsilon, delta=delta, noise=noise)
    model = Recorded(MODELS[name])
    found = high_dimensional_em(
        c, model, sparse(d, s, 0.5), epsilon=epsilon, delta=delta, s=s, n_iter=n_iter, step=step, T=T
    )
    assert np.count_nonzero(found) == s
    releases = c.account.releases
    assert len(releases) == len(model.betas) == len(source.labels) == n_iter
    assert [r.batch for r in releases] == list(range(n_iter))
    assert [r.n_rows for r in releases] == [201, 201, 201, 200, 200]
    assert all(np.count_nonzero(beta) == s for beta in model.betas)

    batches = curator(ArraySource(X, y), epsilon=1, delta=0.1).split(n_iter)
    for release, beta, batch in zip(releases, model.betas, batches, strict=True):
        printed = step * PRINTED[name](T) / release.n_rows
        true = step * batch.sensitivity(MODELS[name].truncated(beta, T), "linf")
        assert true <= release.sensitivity <= true * (1 + 1e-9)  # rounding of offset + step·mean is added
        assert release.scale == pytest.approx(printed_peeling_scale(s, max(printed, true), epsilon, delta), rel=1e-9)
        assert release.scale == pytest.approx(2 * printed * math.sqrt(3 * s * math.log(1 / delta)) / epsilon, rel=1e-9)
    price = total_price(releases)
    assert price.rho == max(r.price.rho for r in releases)
    assert price.rho <= printed_price(epsilon, delta, s).rho * (1 + 1e-9)
    assert price.delta(epsilon) <= delta


@every_model
@pytest.mark.parametrize("noise", [None, PrivateNoise()], ids=["seeded", "private"])
def test_low_dimensional_releases(name, noise):
    n, d, n_iter, step, T, epsilon, delta = 1000, 6, 4, 0.5, 2.0, 0.9, 1e-5
    X, y = data(name, np.full(d, 0.4), n)
    source = Watched(X, y)
    c = curator(source, epsilon=epsilon, delta=delta, gaussian=True, noise=noise)
    low_dimensional_em(c, MODELS[name], np.full(d, 0.3), epsilon=epsilon, delta=delta, n_iter=n_iter, step=step, T=T)
    releases = c.account.releases
    assert len(releases) == len(source.labels) == n_iter
    for release in releases:
        printed = math.sqrt(d) * PRINTED[name](T) / release.n_rows
        assert release.mechanism == "Gaussian"
        assert release.scale == pytest.approx(printed_gaussian_scale(printed, epsilon, delta), rel=1e-9)
    price = total_price(releases)
    assert price.gaussian
    assert price.rho <= printed_price(epsilon, delta, None).rho * (1 + 1e-9)
    assert price.delta(epsilon) <= delta


# --------------------------------------------------------------------------------------------------------------- errata


@pytest.mark.parametrize("delta", [1e-3, 1e-4, 1e-6])
def test_e6_up_to_which_epsilon_the_printed_peeling_noise_is_valid(delta):
    """Valid up to ε = 0.418·log(1/δ) by the textbook conversion, and never beyond 1.1·log(1/δ) by the optimal one."""
    log = math.log(1 / delta)
    for epsilon in np.linspace(0.01, 0.418, 6) * log:
        price = printed_price(epsilon, delta, s=10)
        assert price.rho + 2 * math.sqrt(price.rho * log) <= epsilon
        assert price.delta(epsilon) <= delta
    for epsilon in np.array([1.1, 2.0, 4.0]) * log:
        assert printed_price(epsilon, delta, s=10).delta(epsilon) > delta
    assert printed_price(1.0, delta, s=1).rho == pytest.approx(printed_price(1.0, delta, s=50).rho)


def test_e6_the_curator_refuses_before_the_source_is_asked():
    name, d, s, delta = "symmetric-mixture", 10, 2, 1e-4
    X, y = data(name, sparse(d, s), 400)
    source = Watched(X, y)
    c = curator(source, epsilon=12.0, delta=delta)
    settings = dict(delta=delta, s=s, n_iter=2, step=0.5, T=2.0)
    with pytest.raises(BudgetExceeded, match="not run"):
        high_dimensional_em(c, MODELS[name], sparse(d, s), epsilon=12.0, **settings)
    assert source.labels == []
    assert c.account.releases == []
    honest = curator(source, epsilon=2.0, delta=delta)
    high_dimensional_em(honest, MODELS[name], sparse(d, s), epsilon=2.0, **settings)
    assert len(source.labels) == 2


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_e5_where_the_printed_gaussian_noise_is_honest(delta):
    for epsilon in (0.01, 0.5, 1.0):  # the theorem's range
        assert printed_price(epsilon, delta, None).delta(epsilon) <= delta
    assert printed_price(1.2 * math.log(1 / delta), delta, None).delta(1.2 * math.log(1 / delta)) > delta


def test_e5_the_curator_refuses_before_the_source_is_asked():
    name, d, delta, epsilon = "symmetric-mixture", 4, 1e-5, 15.0
    X, y = data(name, np.full(d, 0.5), 400)
    source = Watched(X, y)
    c = curator(source, epsilon=epsilon, delta=delta, gaussian=True)
    settings = dict(delta=delta, n_iter=2, step=0.5, T=2.0)
    with pytest.raises(BudgetExceeded, match="not run"):
        low_dimensional_em(c, MODELS[name], np.full(d, 0.4), epsilon=epsilon, **settings)
    assert source.labels == []
    assert c.account.releases == []
    honest = curator(source, epsilon=1.0, delta=delta, gaussian=True)
    low_dimensional_em(honest, MODELS[name], np.full(d, 0.4), epsilon=1.0, **settings)
    assert len(source.labels) == 2


@pytest.mark.parametrize("dense", [False, True])
def test_e4_a_large_coefficient_and_a_small_clip_get_more_noise_than_printed(dense):
    """|β_j| > 4T²: the printed 6T² is too small, and the noise is scaled up to the true change 2T² + |β_j|."""
    name, n, d, s, T, epsilon, delta = "missing-regression", 600, 6, 2, 0.3, 0.8, 1e-4
    start = sparse(d, s, 2.0 * math.sqrt(s))  # ‖β‖∞ = 2
    X, y = data(name, start, n)
    c = curator(ArraySource(X, y), epsilon=epsilon, delta=delta, gaussian=dense)
    settings = dict(epsilon=epsilon, delta=delta, n_iter=1, step=0.5, T=T)
    printed = PRINTED[name](T) / n
    if dense:
        low_dimensional_em(c, MODELS[name], start, **settings)
        (release,) = c.account.releases
        width = np.full(d, 4 * T**2)
        width[:s] = 2 * T**2 + 2.0
        size = np.full(d, 2 * T**2)
        size[:s] = 2.0
        true = with_slack(np.linalg.norm(width), np.linalg.norm(size), n)
        assert true > math.sqrt(d) * printed
        assert release.scale == pytest.approx(printed_gaussian_scale(true, epsilon, delta), rel=1e-12)
        assert release.scale > 2 * printed_gaussian_scale(math.sqrt(d) * printed, epsilon, delta)
    else:
        high_dimensional_em(c, MODELS[name], start, s=s, **settings)
        (release,) = c.account.releases
        true = 0.5 * with_slack(2 * T**2 + 2.0, 2.0, n)
        assert release.scale == pytest.approx(printed_peeling_scale(s, true, epsilon, delta), rel=1e-11)
        assert release.scale > 4 * printed_peeling_scale(s, 0.5 * printed, epsilon, delta)
    assert total_price(c.account.releases).delta(epsilon) <= delta


# ------------------------------------------------------------------------------------------------------- a fourth model


# -------------------------------------------------------------------------------- the reference and the improved method


def test_gradient_em_is_refused_by_a_finite_account():
    X, y = data("symmetric-mixture", sparse(6, 2), 100)
    source = Watched(X, y)
    with pytest.raises(BudgetExceeded):
        gradient_em(
            curator(source, epsilon=5.0, delta=1e-5), MODELS["symmetric-mixture"], sparse(6, 2), s=2, n_iter=3, step=0.5
        )
    assert source.labels == []


@every_model
@pytest.mark.parametrize("s", [None, 3])
def test_run_steps_with_next_to_no_noise_is_gradient_em(name, s):
    n, d, step, n_iter, rho = 5_000, 12, 0.3, 5, 1e9
    truth = sparse(d, 3)
    X, y = data(name, truth, n)
    start = 0.6 * truth
    reference = gradient_em(
        curator(ArraySource(X, y), epsilon=math.inf, delta=0.0), MODELS[name], start, s=s, n_iter=n_iter, step=step
    )
    one = [Refine(radius=1e3, step=step, rho=rho)]
    if s is not None:
        one.insert(0, Select(rho, s, Clip(entry=1e2, residual=1e2, bracket=1e3), step))
    steps = one * n_iter
    c = curator(ArraySource(X, y), epsilon=math.inf, delta=0.0)
    state = run_steps(c, MODELS[name], steps, PaperState.at(start, d))
    np.testing.assert_allclose(state.beta, reference, atol=1e-3)
    assert np.linalg.norm(reference - start) > 0.1  # something happened
    assert [r.price.rho for r in c.account.releases] == [step.rho for step in steps]
    assert len(state.support) == (d if s is None else s)


# ---------------------------------------------------------------------------------------------- several rows per person


class Generous(SymmetricMixture):
    """A model whose printed sensitivity is larger than the true one."""

    def printed_sensitivity(self, T: float) -> float:
        return 50 * T


@pytest.mark.parametrize("model", [SymmetricMixture(SIGMA), Generous(SIGMA)], ids=["true", "printed"])
@pytest.mark.parametrize("s", [2, None])
def test_the_printed_noise_is_multiplied_and_stays_within_the_account(model, s):
    """With either sensitivity: m times the noise at the same price, without refusal."""
    X, _ = data("symmetric-mixture", sparse(5, 2), 400)
    scales, prices = [], []
    for m in (1, 6):
        account = Account(0.5, 1e-4, gaussian=s is None, rho=printed_price(0.5, 1e-4, s).rho)
        batches = Curator(ArraySource(X), account, SeededNoise(0), rows_per_person=m)
        PublishedEM(printed_price(0.5, 1e-4, s).rho, 0.5, 1e-4, s, n_iter=4, step=0.5, T=1.0).run(
            batches, model, PaperState(sparse(5, 2), np.arange(5))
        )
        scales.append([release.scale for release in account.releases])
        prices.append([release.price.rho for release in account.releases])
    np.testing.assert_allclose(scales[1], 6 * np.array(scales[0]), rtol=1e-9)
    np.testing.assert_allclose(prices[1], prices[0], rtol=1e-8)  # the offset, and with it its rounding, is noisy


class Tall:
    """A table of any number of zero rows."""

    n_features, has_response, order_may_depend_on_values = 4, True, False

    def __init__(self, n_rows):
        self.n_rows = n_rows

    def total(self, query):
        return np.zeros(self.n_features)

    def slack(self, query):
        return slack(query, self.n_rows, np.dtype(float))

    def split(self, parts):
        return [Tall(self.n_rows // parts) for _ in range(parts)]


@pytest.mark.parametrize("sparsity", [2, None])
@pytest.mark.parametrize("n", [10**8, 10**11])
@pytest.mark.parametrize("estimator", [DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression])
def test_a_fit_to_a_tall_table_is_not_charged_and_then_refused(estimator, n, sparsity):
    """The rounding of β + η·mean exceeds the account's tolerance there, so the noise scale must include it."""
    budget = Budget(1.0, 1e-6)
    settings = {"epsilon": 0.5, "delta": 1e-12, "sparsity": sparsity, "sigma": 1.0, "start": "equal", "signal": 100.0}
    model = estimator(**settings, method="published", budget=budget).fit(Tall(n))
    assert budget.n_charges == 1
    assert total_price(list(model.releases_)).rho <= printed_price(0.5, 1e-12, sparsity).rho * (1 + 1e-9)
