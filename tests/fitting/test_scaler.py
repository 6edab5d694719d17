"""The private scaler: accuracy, refusals, price, and the guarantee of a pipeline."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpem import Budget, BudgetExceeded, DPStandardScaler, Guarantee, pipeline_guarantee
from dpem.paper import DPMissingRegression, DPSymmetricMixture
from dpem.paper.published import printed_price
from dpem.privacy import Price, largest_price, together, total_price
from dpem.privacy.budget import Charge
from dpem.tables import ArraySource

CENTRE, SPREAD = np.array([-3.0, 0.0, 5.0]), np.array([0.5, 1.0, 1.5])


def scaler(**changes):
    seed = None if "budget" in changes else 0
    return DPStandardScaler(**{"epsilon": 1.0, "delta": 1e-5, "bounds": (-10, 10), "random_state": seed, **changes})


def table(n=20000, missing=0.0, seed=1):
    rng = np.random.default_rng(seed)
    X = CENTRE + SPREAD * rng.standard_normal((n, 3))
    X[rng.random(X.shape) < missing] = math.nan
    return X


@pytest.fixture(scope="module")
def X():
    return table(500)


def noise_sd(n, price, half, d=3):
    """Standard deviation of the noise on Σu/n, in the data's units: sensitivity 2√d/n at price ρ."""
    return half * 2 * math.sqrt(d) / n / math.sqrt(2 * price.rho)


class TestAccuracy:
    """At five standard deviations of the error; six numbers, so less than 1 false alarm in 10⁵ for a seed not tried."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(
        "bounds", [(-10, 10), (CENTRE - 8 * SPREAD, CENTRE + 9 * SPREAD)], ids=["numbers", "vectors"]
    )
    def test_mean_and_spread_of_a_large_table(self, bounds, dtype):
        n = 20000
        fitted = scaler(bounds=bounds).fit(table(n).astype(dtype))
        low, high = bounds
        half = np.broadcast_to((np.asarray(high) - low) / 2, 3)
        middle = (np.asarray(high) + low) / 2
        noise = noise_sd(n, largest_price(1.0, 1e-5, gaussian=True), half)
        # First order in the three noises (of Σu, Σ1.5u², Σ0.85), with m and v the mean and variance of u.
        m, v = (CENTRE - middle) / half, (SPREAD / half) ** 2
        mean_error = np.hypot(SPREAD / math.sqrt(n), noise * np.sqrt(1 + (m / 0.85) ** 2))
        square_noise = noise * half * np.sqrt(1 / 1.5**2 + 4 * m**2 + ((m**2 - v) / 0.85) ** 2)
        spread_error = np.hypot(SPREAD / math.sqrt(2 * n), square_noise / (2 * SPREAD))
        assert np.all(np.abs(fitted.mean_ - CENTRE) <= 5 * mean_error)
        assert np.all(np.abs(fitted.scale_ - SPREAD) <= 5 * spread_error)
        assert np.all(5 * mean_error < 0.1)  # and that is close
        assert np.all(5 * spread_error < 0.35)

    def test_missing_entries_are_left_out(self):
        """A third is missing; neither mean nor spread is biased towards the middle of the bounds."""
        X = table(90_000, missing=1 / 3)
        fitted = scaler(bounds=(-10, 10)).fit(X)
        np.testing.assert_allclose(fitted.mean_, CENTRE, atol=0.05)
        np.testing.assert_allclose(fitted.scale_, SPREAD, rtol=0.25)
        out = fitted.transform(X)
        np.testing.assert_array_equal(np.isnan(out), np.isnan(X))
        np.testing.assert_allclose(np.nanstd(out, axis=0), 1.0, atol=0.3)

    def test_columns_without_values_give_finite_numbers(self):
        X = table(500)
        X[:, 0], X[:, 1] = math.nan, 2.0
        fitted = scaler().fit(X)
        assert np.isfinite(fitted.mean_).all()
        assert np.all(fitted.scale_ > 0)
        assert np.all(np.abs(fitted.mean_) <= 10)

    def test_outliers_are_clipped_to_the_bounds(self):
        X = table()
        far = X.copy()
        far[:20] = 1e300
        clipped = np.where(np.abs(far) > 10, 10.0, far)
        for name in ("mean_", "scale_"):
            np.testing.assert_allclose(
                getattr(scaler().fit(far), name), getattr(scaler().fit(clipped), name), rtol=1e-12
            )
        assert scaler().fit(X).transform(far)[0, 0] > 1e299  # but transform leaves them outside

    def test_without_privacy_it_equals_scikit_learn_s_scaler(self):
        X = table(1000)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours = scaler(epsilon=math.inf, bounds=(-20, 20), random_state=None).fit(X)
        usual = StandardScaler().fit(X)
        np.testing.assert_allclose(ours.mean_, usual.mean_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours.scale_, usual.scale_, rtol=1e-9)
        assert ours.guarantee_.private is False


class Untouchable(ArraySource):
    def total(self, query):
        pytest.fail("the data were queried")


class TestRefusals:
    @pytest.fixture(autouse=True)
    def _data_may_not_be_queried(self, monkeypatch):
        monkeypatch.setattr("dpem.tables.inputs.ArraySource", Untouchable)

    def refused(self, X, **changes):
        budget = changes.pop("budget", Budget(epsilon=100.0, delta=0.5))
        model = scaler(budget=budget, **changes)
        with pytest.raises(ValueError) as refusal:  # noqa: PT011
            model.fit(X)
        message = str(refusal.value)
        assert message.endswith(".")
        assert ". " not in message
        assert "\n" not in message
        if isinstance(budget, Budget):
            assert budget.n_charges == 0
        with pytest.raises(NotFittedError):  # also where the columns had been counted
            model.transform(X)
        return message

    def test_the_valid_fit_is_not_refused(self, X):
        budget = Budget(epsilon=100.0, delta=0.5)
        with pytest.raises(pytest.fail.Exception, match="the data were queried"):
            scaler(budget=budget).fit(X)
        assert budget.n_charges == 1

    def test_bounds_have_no_default(self, X):
        assert "bounds must be given" in self.refused(X, bounds=None)

    @pytest.mark.parametrize(
        "bounds",
        [
            *(3, 3.0, (), (1,), (1, 2, 3), ([0, 0], [1, 1]), (0, [1, 1, 1, 1]), ([0], [1]), ([[0, 0, 0]], 1)),
            *("01", "ab", ("0", "10"), ("low", "high"), (0, None), (0, 1j), (["a", "b", "c"], 1), ([0, [1], 2], 1)),
        ],
        ids=repr,
    )
    def test_bounds_that_are_not_two_numbers_or_vectors(self, X, bounds):
        assert self.refused(X, bounds=bounds).endswith("two numbers or two vectors of length 3.")

    @pytest.mark.parametrize(
        "bounds",
        [(10, -10), (1, 1), (-math.inf, 1), (0, math.inf), (math.nan, 1), ([0, 0, 2], [1, 1, 1]), ([0, 0, 0], 0)],
        ids=repr,
    )
    def test_bounds_that_are_reversed_or_not_finite(self, X, bounds):
        assert "finite, with low below high" in self.refused(X, bounds=bounds)

    @pytest.mark.parametrize("bounds", [(-1.7e308, 1.7e308), (1.6e308, 1.7e308), (0.0, 5e-324)], ids=repr)
    def test_bounds_without_a_finite_width(self, X, bounds):
        """Their width or middle would be inf or 0, and a scaled entry not a number."""
        assert "a finite width" in self.refused(X, bounds=bounds)

    def test_text(self, X):
        assert "Ada" not in self.refused(pd.DataFrame(X).assign(name="Ada"))

    def test_a_budget_that_is_spent(self, X):
        budget = Budget(epsilon=0.5, delta=1e-5)
        with pytest.raises(BudgetExceeded, match="Nothing was computed"):
            scaler(budget=budget).fit(X)
        assert budget.n_charges == 0


class TestPrice:
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-3)])
    def test_the_price_of_the_releases_converts_to_the_guarantee(self, X, epsilon, delta):
        budget = Budget(epsilon=100.0, delta=0.5)
        fitted = scaler(epsilon=epsilon, delta=delta, budget=budget).fit(X)
        price = total_price(list(fitted.releases_))
        assert price.delta(epsilon) <= delta * (1 + 1e-9)
        assert price.delta(0.99 * epsilon) > delta  # nothing is left unused
        assert price.gaussian
        assert budget._charges == [Charge(epsilon, delta, price)]
        (release,) = fitted.releases_
        assert release.sensitivity == pytest.approx(2 * math.sqrt(3) / 500, rel=1e-6)
        assert release.scale == pytest.approx(release.sensitivity / math.sqrt(2 * price.rho), rel=1e-6)
        guarantee = fitted.guarantee_
        assert (guarantee.epsilon, guarantee.delta, guarantee.mechanisms) == (epsilon, delta, fitted.releases_)
        assert (guarantee.neighbours, guarantee.unit) == ("replace-one", "one row")

    def test_the_charge_comes_before_the_data(self, X, monkeypatch):
        budget = Budget(epsilon=1.0, delta=1e-5)

        class Broken(ArraySource):
            def total(self, query):
                assert budget.n_charges == 1
                raise OSError("the disk is gone")

        monkeypatch.setattr("dpem.tables.inputs.ArraySource", Broken)
        with pytest.raises(OSError, match="the disk is gone"):
            scaler(budget=budget).fit(X)
        assert budget.n_charges == 1  # and stays paid


class TestTransform:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_inverse_transform_undoes_transform(self, X, dtype):
        fitted = scaler().fit(X)
        out = fitted.transform(X.astype(dtype))
        assert out.dtype == dtype
        np.testing.assert_allclose(out, (X - fitted.mean_) / fitted.scale_, atol=1e-4)
        back = fitted.inverse_transform(out)
        assert back.dtype == dtype
        np.testing.assert_allclose(back, X, atol=1e-4 if dtype is np.float32 else 1e-12)

    def test_inverse_takes_lists_frames_and_missing_entries(self, X):
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        fitted = scaler().fit(frame)
        rows = [[0.0, 1.0, math.nan]]
        expected = [fitted.mean_[0], fitted.mean_[1] + fitted.scale_[1], math.nan]
        for given in (rows, pd.DataFrame(rows), np.array(rows)):
            np.testing.assert_allclose(fitted.inverse_transform(given)[0], expected)

    @pytest.mark.parametrize("bad", [[1.0, 2.0, 3.0], [[1.0, 2.0]], [[1.0, 2.0, 3.0, 4.0]]])
    def test_inverse_refuses_other_tables(self, X, bad):
        with pytest.raises(ValueError, match="X "):
            scaler().fit(X).inverse_transform(bad)


def mixture(**changes):
    """A fit that plans nothing."""
    given = {
        "epsilon": 0.5,
        "delta": 2e-5,
        "method": "published",
        "sparsity": 2,
        "sigma": 1.0,
        "start": "equal",
        "random_state": None if "budget" in changes else 1,
    }
    return DPSymmetricMixture(**{**given, **changes})


class TestPipelines:
    def test_one_guarantee_for_all_steps(self, X):
        budget = Budget(epsilon=2.0, delta=1e-3)
        pipeline = make_pipeline(scaler(budget=budget), "passthrough", mixture(budget=budget)).fit(X)
        first, _, last = (step for _, step in pipeline.steps)
        whole = pipeline_guarantee(pipeline)
        assert whole.epsilon <= first.guarantee_.epsilon + last.guarantee_.epsilon
        assert whole.epsilon > max(first.guarantee_.epsilon, last.guarantee_.epsilon)
        assert whole.delta == pytest.approx(3e-5, rel=1e-12)
        assert whole.mechanisms == first.releases_ + last.releases_
        assert len(whole.mechanisms) >= 2
        assert whole.private
        assert whole == together([first.guarantee_, last.guarantee_])
        assert budget.n_charges == 2

    @pytest.mark.parametrize("seeds", [(None, None), (None, 1), (0, None)])
    def test_a_pipeline_is_private_if_every_step_is(self, X, seeds):
        pipeline = make_pipeline(scaler(random_state=seeds[0]), mixture(random_state=seeds[1])).fit(X)
        assert pipeline_guarantee(pipeline).private is (seeds == (None, None))

    def test_a_step_that_states_no_guarantee_is_refused(self, X):
        pipeline = make_pipeline(StandardScaler(), mixture()).fit(X)
        with pytest.raises(ValueError, match="the pipeline's step 'standardscaler' states no guarantee"):
            pipeline_guarantee(pipeline)

    def test_a_pipeline_that_is_not_fitted_is_refused(self):
        with pytest.raises(NotFittedError):
            pipeline_guarantee(make_pipeline(scaler(), mixture()))

    def test_a_pipeline_that_released_nothing_is_refused(self):
        with pytest.raises(ValueError, match="nothing was released"):
            pipeline_guarantee(make_pipeline("passthrough"))


class TestTogether:
    def test_guarantees_without_a_price_add(self, X):
        alone = Guarantee(0.5, 1e-5, Price(math.inf), "replace-one", 1, (), True, "0")
        assert together([alone] * 3).epsilon == 1.5
        fitted = replace(scaler().fit(X).guarantee_, private=True)
        whole = together([alone, fitted])
        assert (whole.epsilon, whole.delta, whole.private) == (1.5, 2e-5, True)
        assert whole.mechanisms == fitted.mechanisms

    def test_gaussian_releases_compose_exactly(self, X):
        """Two scalers: μ²'s add; the ε is that of the summed price at the summed δ, well below the sum of the ε's."""
        first, second = (scaler(epsilon=e).fit(X).guarantee_ for e in (1.0, 0.5))
        rho = sum(largest_price(e, 1e-5, gaussian=True).rho for e in (1.0, 0.5))
        whole = together([first, second])
        assert whole.delta == 2e-5
        assert whole.epsilon == pytest.approx(Price(rho, gaussian=True).epsilon(2e-5), rel=1e-6)
        assert whole.epsilon < 0.85 * 1.5
        assert together([second, first]).epsilon == pytest.approx(whole.epsilon, rel=1e-9)

    def test_mixed_releases_compose_in_zcdp(self, X):
        """The paper's batches are disjoint: only the most expensive batch of a fit counts."""
        first, second = scaler().fit(X).guarantee_, mixture().fit(X).guarantee_
        batches = {r.batch for r in second.mechanisms}
        assert len(batches) > 1
        most_expensive = max(math.fsum(r.price.rho for r in second.mechanisms if r.batch == b) for b in batches)
        rho = first.mechanisms[0].price.rho + most_expensive
        hand = min(1.5, Price(rho).epsilon(3e-5))
        assert together([first, second]).epsilon == pytest.approx(hand, rel=1e-6)

    def test_batches_of_different_fits_overlap(self, X):
        """Batch 0 of one fit and batch 1 of another share rows: both prices count."""
        guarantee = mixture().fit(X).guarantee_
        total = total_price(list(guarantee.mechanisms))
        whole = together([guarantee] * 8)
        assert whole.epsilon == pytest.approx(min(4.0, Price(8 * total.rho).epsilon(1.6e-4)), rel=1e-6)

    def test_the_guarantee_follows_from_the_price_fixed_beforehand(self, X):
        """The part of its price that the paper's method spends depends on answers; the guarantee must not."""
        y = X @ [0.5, 0.5, 0.0]
        settings = {"epsilon": 0.8, "delta": 1e-5, "method": "published", "sparsity": 2, "sigma": 1.0, "clip": 2.0}
        models = [DPMissingRegression(**settings).fit(X, y) for _ in range(4)]
        spent = {total_price(list(model.releases_)).rho for model in models}
        charged = printed_price(0.8, 1e-5, 2)
        assert max(spent) - min(spent) > 1e-6 * charged.rho
        assert min(spent) < 0.9 * charged.rho
        first = scaler().fit(X).guarantee_
        whole = {together([first, model.guarantee_]).epsilon for model in models}
        assert {model.guarantee_.price for model in models} == {charged}
        assert whole == {Price(first.price.rho + charged.rho).epsilon(2e-5)}


def test_spreads_that_noise_explains_are_marked_and_others_have_errors():
    """The second column is constant, so its released spread is noise; the errors of the others cover the truth."""
    rng = np.random.default_rng(0)
    away, wide = [], []
    for seed in range(40):
        X = np.column_stack([rng.normal(5, 10, 4000), np.full(4000, 3.0)])
        fitted = DPStandardScaler(epsilon=1.0, delta=1e-6, bounds=(-60, 60), random_state=seed).fit(X)
        assert fitted.only_noise_.tolist() == [False, True]
        away.append((fitted.mean_[0] - 5) / fitted.mean_error_[0])
        wide.append((fitted.scale_[0] - 10) / fitted.scale_error_[0])
    assert 0.6 < np.sqrt(np.mean(np.square(away))) < 1.5
    assert 0.6 < np.sqrt(np.mean(np.square(wide))) < 1.5
