"""Fitted attributes, the guarantee, repeatability, the limit without privacy, accuracy and robustness."""

import dataclasses
import gc
import math
import warnings
import weakref

import numpy as np
import pytest
from scipy.stats import norm

import dpem
from dpem.privacy import total_price
from studies.paper.settings import Setting

MODELS = ("symmetric-mixture", "symmetric-regression", "missing-regression")
MISSING = {"missing-regression": 0.2}
START = np.array([0.8, 0.4, 0.2, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def small(model, **changes):
    """One small setting for all tests, so that there is one plan."""
    return Setting(model, n=400, d=10, s=3, epsilon=1.0, missing=MISSING.get(model, 0.0), **changes)


def start_of(model):
    return None if model == "missing-regression" else START


def seeded(setting, **changes):
    return setting.estimator(**{"start": start_of(setting.model), "random_state": 0, **changes})


@pytest.fixture(scope="module")
def tables():
    return {model: small(model).draw(np.random.default_rng(0)) for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["improved", "published"])
@pytest.mark.parametrize("sparsity", [3, None])
class TestEveryKindOfFit:
    @pytest.fixture
    def fitted(self, model, method, sparsity, tables):
        return seeded(small(model), method=method, sparsity=sparsity).fit(*tables[model])

    def test_attributes(self, fitted, model, method, sparsity):
        assert fitted.coef_.shape == (10,)
        assert fitted.coef_.dtype == np.float64
        assert np.isfinite(fitted.coef_).all()
        assert fitted.n_features_in_ == 10
        assert fitted.n_iter_ >= 1
        assert fitted.plan_.settings["method"] == method
        assert (fitted.plan_.n, fitted.plan_.d, fitted.plan_.settings["sparsity"]) == (400, 10, sparsity)
        assert np.array_equal(fitted.support_, np.unique(fitted.support_))
        assert set(np.flatnonzero(fitted.coef_)) <= set(fitted.support_)
        assert len(fitted.support_) == (sparsity or 10)
        assert np.count_nonzero(fitted.coef_) == (sparsity or 10)

    def test_what_was_released_is_worth_no_more_than_was_promised(self, fitted, method):
        assert len(fitted.releases_) >= 1
        price = total_price(list(fitted.releases_))
        assert price.rho <= fitted.plan_.price.rho * (1 + 1e-9)
        assert price.delta(1.0) <= fitted.guarantee_.delta * (1 + 1e-9)
        assert (1.0, fitted.guarantee_.delta) == (fitted.guarantee_.epsilon, fitted.plan_.delta)
        if method == "improved":  # nothing is left unused
            assert price.rho >= fitted.plan_.price.rho * (1 - 1e-6)
            assert price.delta(0.99) > fitted.guarantee_.delta

    def test_every_answer_was_noisy(self, fitted, method):
        for release in fitted.releases_:
            assert release.scale > 0
            assert 0 < release.sensitivity < math.inf
            assert 0 < release.price.rho < math.inf
        rows = [release.n_rows for release in fitted.releases_]
        if method == "improved":
            assert rows == [400] * len(fitted.plan_.steps)
        else:
            assert sum(rows) == 400
            assert [release.batch for release in fitted.releases_] == list(range(len(rows)))

    def test_guarantee(self, fitted):
        guarantee = fitted.guarantee_
        assert (guarantee.neighbours, guarantee.unit) == ("replace-one", "one row")
        assert guarantee.mechanisms == fitted.releases_
        assert guarantee.version == dpem.__version__
        assert guarantee.private is False  # seeded
        assert str(guarantee).startswith("SIMULATION ONLY, NOT PRIVATE")
        assert "(1, 0.00125)-differentially private" in str(guarantee)

    def test_seeded_fits_repeat_bit_for_bit(self, fitted, model, method, sparsity, tables):
        again = seeded(small(model), method=method, sparsity=sparsity).fit(*tables[model])
        other = seeded(small(model), method=method, sparsity=sparsity, random_state=1).fit(*tables[model])
        assert again.coef_.tobytes() == fitted.coef_.tobytes()
        assert other.coef_.tobytes() != fitted.coef_.tobytes()

    def test_the_plan_does_not_depend_on_the_data(self, fitted, model, method, sparsity):
        X, y = small(model, heavy_tails=True, decay=True).draw(np.random.default_rng(7))
        other = seeded(small(model), method=method, sparsity=sparsity).fit(100 * X, y)
        assert other.plan_ == fitted.plan_
        assert other.guarantee_.epsilon == fitted.guarantee_.epsilon
        assert [r.query for r in other.releases_] == [r.query for r in fitted.releases_]

    def test_nothing_about_single_rows_is_kept(self, model, method, sparsity):
        X, y = small(model).draw(np.random.default_rng(3))
        rows = weakref.ref(X)
        fitted = seeded(small(model), method=method, sparsity=sparsity).fit(X, y)
        for size in sizes(vars(fitted)):
            assert size < 100  # 400 rows
        del X
        gc.collect()
        assert rows() is None  # nor does anything point at the table


def sizes(value):
    """Lengths of all arrays and sequences in a value, however deep."""
    if isinstance(value, np.ndarray):
        yield value.size
    elif isinstance(value, dict):
        yield len(value)
        for part in value.values():
            yield from sizes(part)
    elif isinstance(value, list | tuple | set):
        yield len(value)
        for part in value:
            yield from sizes(part)
    elif dataclasses.is_dataclass(value):
        yield from sizes(vars(value))
    else:  # nothing else is expected, so nothing can hide in it
        assert value is None or isinstance(value, int | float | str | np.generic), type(value)
        yield len(value) // 4 if isinstance(value, str) else 1


def test_sizes_are_found_however_deep():
    assert max(sizes({"a": (1, [np.zeros((20, 20))])})) == 400


class TestPrivateNoise:
    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("method", ["improved", "published"])
    def test_unseeded_fits_are_private_and_differ(self, model, method, tables):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first, second = (
                seeded(small(model), method=method, random_state=None).fit(*tables[model]) for _ in range(2)
            )
        assert first.guarantee_.private is True
        assert str(first.guarantee_).startswith("(1, 0.00125)-differentially private")
        # Three numbers with noise on a grid finer than 2^-40: equal with probability below 1e-12.
        assert first.coef_.tobytes() != second.coef_.tobytes()

    @pytest.mark.parametrize("model", MODELS)
    def test_a_seed_is_warned_about(self, model, tables):
        with pytest.warns(UserWarning, match="NOT private") as caught:
            seeded(small(model)).fit(*tables[model])
        assert len(caught) == 1
        assert caught[0].filename == __file__


class TestReference:
    """epsilon = inf is EM, written in NumPy with conditional means and covariances."""

    @staticmethod
    def gradient(model, X, y, beta, sigma):
        n = len(X)
        if model == "symmetric-mixture":
            return np.tanh(X @ beta / sigma**2) @ X / n - beta
        if model == "symmetric-regression":
            expected_sign = np.tanh(y * (X @ beta) / sigma**2)
            return X.T @ (expected_sign * y) / n - X.T @ X @ beta / n
        total = np.zeros_like(beta)
        for row, response in zip(X, y, strict=True):
            hidden = np.isnan(row)
            x = np.where(hidden, 0.0, row)
            b = np.where(hidden, beta, 0.0)
            v = sigma**2 + b @ b
            mean = x + b * (response - x @ beta) / v
            second = np.outer(mean, mean) + np.diag(hidden.astype(float)) - np.outer(b, b) / v
            total += response * mean - second @ beta
        return total / n

    def em(self, model, X, y, beta, sigma, s, n_iter=50, step=1.0):
        for _ in range(n_iter):
            beta = beta + step * self.gradient(model, X, y, beta, sigma)
            if s is not None:
                beta = np.where(np.abs(beta) >= np.sort(np.abs(beta))[-s], beta, 0.0)
        return beta

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("sparsity", [3, None])
    def test_is_plain_em(self, model, sparsity, tables):
        X, y = tables[model]
        reference = seeded(small(model), epsilon=math.inf, sparsity=sparsity, start=START).fit(X, y)
        np.testing.assert_allclose(reference.coef_, self.em(model, X, y, START, 0.5, sparsity), rtol=1e-9, atol=1e-12)
        assert len(reference.support_) == (sparsity or 10)
        assert reference.n_iter_ == 50
        few = seeded(small(model), epsilon=math.inf, sparsity=sparsity, start=START, n_iter=3, step_size=0.5).fit(X, y)
        expected = self.em(model, X, y, START, 0.5, sparsity, n_iter=3, step=0.5)
        np.testing.assert_allclose(few.coef_, expected, rtol=1e-9, atol=1e-12)
        assert not np.allclose(few.coef_, reference.coef_, atol=1e-3)

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("sparsity", [3, None])
    def test_finds_its_own_start(self, model, sparsity):
        setting = dataclasses.replace(small(model), n=2000)
        X, y = setting.draw(np.random.default_rng(0))
        own = seeded(setting, epsilon=math.inf, sparsity=sparsity, start=None).fit(X, y)
        given = seeded(setting, epsilon=math.inf, sparsity=sparsity, start=setting.truth()).fit(X, y)
        sign = np.sign(own.coef_ @ given.coef_)
        np.testing.assert_allclose(sign * own.coef_, given.coef_, atol=1e-6)

    @pytest.mark.parametrize("model", MODELS)
    def test_says_that_nothing_is_private_and_needs_no_warning(self, model, tables):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fits = [seeded(small(model), epsilon=math.inf, random_state=seed).fit(*tables[model]) for seed in (None, 0)]
        assert fits[0].coef_.tobytes() == fits[1].coef_.tobytes()
        for fit in fits:
            assert fit.guarantee_.private is False
            assert str(fit.guarantee_).startswith("No privacy guarantee")
            assert type(fit.plan_.steps[-1]).__name__ == "ReferenceEM"
            assert all(math.isinf(release.price.rho) for release in fit.releases_)


class TestAfterwards:
    """predict, predict_proba, impute, score_samples, score and sample against their formulas."""

    @pytest.fixture
    def mixture(self, tables):
        return seeded(small("symmetric-mixture")).fit(*tables["symmetric-mixture"])

    @pytest.fixture
    def regression(self, tables):
        return seeded(small("symmetric-regression")).fit(*tables["symmetric-regression"])

    @pytest.fixture
    def linear(self, tables):
        return seeded(small("missing-regression")).fit(*tables["missing-regression"])

    def test_gaussian_mixture(self, mixture, tables):
        X, _ = tables["symmetric-mixture"]
        b = mixture.coef_
        np.testing.assert_array_equal(mixture.means_, [-b, b])
        up, down = norm.logpdf(X, b, 0.5).sum(axis=1), norm.logpdf(X, -b, 0.5).sum(axis=1)
        density = np.logaddexp(up, down) - math.log(2)
        np.testing.assert_allclose(mixture.score_samples(X), density, rtol=1e-10)
        assert mixture.score(X) == pytest.approx(density.mean())
        p = mixture.predict_proba(X)
        assert p.shape == (400, 2)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
        np.testing.assert_allclose(p[:, 1], np.exp(up - math.log(2) - density), rtol=1e-8, atol=1e-300)
        labels = mixture.predict(X)
        np.testing.assert_array_equal(labels, X @ b > 0)
        assert labels.dtype.kind == "i"

    def test_gaussian_mixture_samples(self, mixture):
        rows, component = mixture.sample(20_000, random_state=0)
        assert rows.shape == (20_000, 10)
        assert set(component) == {0, 1}
        noise = rows - mixture.means_[component]
        # standard errors 0.0035 and 0.0025, the seed is fixed
        np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.02)
        np.testing.assert_allclose(noise.std(axis=0), 0.5, atol=0.02)
        assert 0.48 < component.mean() < 0.52
        np.testing.assert_array_equal(mixture.sample(5, random_state=1)[0], mixture.sample(5, random_state=1)[0])
        assert mixture.sample()[0].shape == (1, 10)
        assert not np.array_equal(mixture.sample(5)[0], mixture.sample(5)[0])  # equal with probability 0

    def test_mixture_regression(self, regression, tables):
        X, y = tables["symmetric-regression"]
        fitted = X @ regression.coef_
        np.testing.assert_allclose(regression.predict(X), fitted, rtol=1e-12)
        up, down = norm.logpdf(y, fitted, 0.5), norm.logpdf(y, -fitted, 0.5)
        density = np.logaddexp(up, down) - math.log(2)
        np.testing.assert_allclose(regression.score_samples(X, y), density, rtol=1e-10)
        assert regression.score(X, y) == pytest.approx(density.mean())
        p = regression.predict_proba(X, y)
        assert p.shape == (400, 2)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
        np.testing.assert_allclose(p[:, 0], np.exp(down - math.log(2) - density), rtol=1e-8, atol=1e-14)
        np.testing.assert_array_equal(regression.predict_proba(X, y), p)
        np.testing.assert_array_equal(regression.predict_proba(X), np.full((400, 2), 0.5))

    def test_missing_regression(self, linear, tables):
        X, y = tables["missing-regression"]
        hidden = np.isnan(X)
        x, b = np.where(hidden, 0.0, X), linear.coef_
        v = 0.25 + (hidden * b**2).sum(axis=1)
        np.testing.assert_allclose(linear.predict(X), x @ b, rtol=1e-12)
        np.testing.assert_allclose(linear.score_samples(X, y), norm.logpdf(y, x @ b, np.sqrt(v)), rtol=1e-10)
        assert linear.score(X, y) == pytest.approx(1 - np.sum((y - x @ b) ** 2) / np.sum((y - y.mean()) ** 2))
        filled = linear.impute(X, y)
        np.testing.assert_array_equal(filled[~hidden], X[~hidden])
        expected = np.outer((y - x @ b) / v, b)
        np.testing.assert_allclose(filled[hidden], expected[hidden], rtol=1e-10)
        # conditional on its mean, a filled row explains all but sigma²/v of the residual
        np.testing.assert_allclose(y - filled @ b, (y - x @ b) * 0.25 / v, rtol=1e-7, atol=1e-9)

    def test_missing_regression_samples(self, linear):
        X = np.random.default_rng(0).standard_normal((20_000, 10))
        X[:10_000, linear.support_] = np.nan
        noise = linear.sample(X, random_state=1) - linear.predict(X)
        assert noise.shape == (20_000,)
        spread = math.hypot(0.5, np.linalg.norm(linear.coef_))
        assert noise[:10_000].std() == pytest.approx(spread, rel=0.04)
        assert noise[10_000:].std() == pytest.approx(0.5, rel=0.04)


class TestAccuracy:
    def test_gaussian_mixture_in_200_columns(self):
        setting = Setting("symmetric-mixture", n=4000, d=200, s=5, epsilon=1.0)
        for seed in range(3):
            X, y = setting.draw(np.random.default_rng(seed))
            fit = setting.estimator(random_state=seed).fit(X, y)
            assert setting.error(fit.coef_) < 0.1  # about 0.03 is expected
            assert fit.support_.tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("model", MODELS)
    def test_small_fits_find_the_truth(self, model):
        setting = small(model)
        errors = []
        for seed in range(5):
            X, y = setting.draw(np.random.default_rng(seed))
            errors.append(setting.error(seeded(setting, random_state=seed).fit(X, y).coef_))
        assert np.median(errors) < 0.35  # nothing learnt is 1


def strange_tables(model):
    """Tables that follow none of the models, by name."""
    X, y = small(model).draw(np.random.default_rng(5))
    y = np.zeros(400) if y is None else y
    rng = np.random.default_rng(6)
    outliers, big_y = X.copy(), y.copy()
    outliers[::7] = 1e30
    outliers[::11, 3] = -1e30
    big_y[::5] = -1e30
    return {
        "zeros": (np.zeros((400, 10)), np.zeros(400)),
        "constant": (np.full((400, 10), 3.0), np.full(400, -2.0)),
        "one constant column": (np.column_stack([np.full(400, 1e6), X[:, 1:]]), y),
        "outliers": (outliers, big_y),
        "outliers in float32": (outliers.astype(np.float32), big_y),
        "tiny": (X * 1e-300, y * 1e-300),
        "Cauchy": (rng.standard_cauchy((400, 10)), rng.standard_cauchy(400)),
        "copies": (np.repeat(X[:1], 400, axis=0), np.repeat(y[:1], 400)),
    }


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sparsity", [3, None])
def test_strange_tables_give_finite_coefficients_and_the_same_guarantee(model, sparsity, tables):
    usual = seeded(small(model), sparsity=sparsity).fit(*tables[model])
    for what, (X, y) in strange_tables(model).items():
        strange = seeded(small(model), sparsity=sparsity).fit(X, y)
        assert np.isfinite(strange.coef_).all(), what
        assert np.abs(strange.coef_).max() < 100, what
        assert strange.guarantee_.epsilon == usual.guarantee_.epsilon
        assert total_price(list(strange.releases_)) == total_price(list(usual.releases_))
        if X.dtype == np.float64:
            assert strange.guarantee_ == usual.guarantee_
        paper = seeded(small(model), sparsity=sparsity, method="published").fit(X, y)
        assert np.isfinite(paper.coef_).all(), what
        assert (paper.guarantee_.epsilon, paper.guarantee_.delta) == (1.0, 1 / 800)


def test_a_column_or_a_row_may_be_missing_altogether():
    setting = small("missing-regression")
    X, y = setting.draw(np.random.default_rng(0))
    X[:, 9] = np.nan
    X[5] = np.nan
    assert np.isfinite(seeded(setting).fit(X, y).coef_).all()
    assert np.isfinite(seeded(setting, sparsity=None).fit(np.full_like(X, np.nan), y).coef_).all()


@pytest.mark.parametrize("model", MODELS)
def test_given_settings_are_used(model, tables):
    fit = seeded(small(model), n_iter=4, step_size=0.6, clip=0.7).fit(*tables[model])
    refines = [step for step in fit.plan_.steps if type(step).__name__ == "Refine"]
    assert len(refines) == 4
    assert {step.step for step in refines} == {0.6}
    (select,) = (step for step in fit.plan_.steps if type(step).__name__ == "Select")
    assert select.clip.entry == pytest.approx(0.7)
    assert fit.n_iter_ == 5  # the selecting step is one too
    paper = seeded(small(model), n_iter=4, step_size=0.6, clip=0.7, method="published").fit(*tables[model])
    (em,) = paper.plan_.steps
    assert (em.n_iter, em.step, em.T) == (4, 0.6, 0.7)
    assert paper.n_iter_ == len(paper.releases_) == 4
