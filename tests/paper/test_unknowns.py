"""Unknown σ, whose estimate is paid for, and an unknown number of coefficients, which is free."""

import math
import warnings

import numpy as np
import pytest
from together import together

from dpem import Budget, BudgetExceeded
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.estimators.planning import SIGMA_SHARE
from dpem.paper.sigma import estimate_sigma
from dpem.paper.steps import Trim
from dpem.privacy import Account, Curator, SeededNoise, largest_price, total_price
from dpem.tables import ArraySource

ALL = (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression)
#: One size for all fits, so that there are few plans.
N, D = 600, 12
PAID = {"epsilon": 4.0, "delta": 1e-4}
SMALL = {**PAID, "random_state": 0}
BETA = np.array([0.6, -0.6, 0.6] + [0.0] * (D - 3))


def clouds(n=N, beta=BETA, sigma=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.choice([-1.0, 1.0], (n, 1)) * beta + sigma * rng.standard_normal((n, len(beta)))


def curator(X, y=None, seed=0):
    return Curator(ArraySource(X, y), Account(math.inf, 0.5), SeededNoise(seed))


@pytest.fixture(scope="module")
def budget():
    return Budget(epsilon=100.0, delta=0.5)


@pytest.fixture(scope="module")
def fitted(budget):
    """σ unknown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the seed
        return DPSymmetricMixture(**PAID, sparsity=3, sigma=None, budget=budget).fit(clouds())


def auto(most=6, **changes):
    return DPSymmetricMixture(**{**SMALL, "sparsity": "auto", "max_sparsity": most, "sigma": 0.5, **changes})


@pytest.fixture(scope="module")
def fits():
    """The number of coefficients unknown, 10 times."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the seed
        return [auto(random_state=seed).fit(clouds(seed=100 + seed)) for seed in range(10)]


class TestEstimateOfSigma:
    RHO = SIGMA_SHARE * largest_price(0.5, 1 / 8000, gaussian=False).rho

    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("sigma", [0.5, 30.0])
    def test_within_a_tenth_in_high_dimension(self, seed, sigma):
        """The histogram's noise is about 50 rows and a bin has thousands; the mean square's noise is about
        2 % of it, so 1 % of σ: a tenth is beyond five standard deviations, fewer than one false alarm in 10⁶.
        """
        beta = np.concatenate([np.full(10, 1 / math.sqrt(10)), np.zeros(490)])
        curator_ = curator(clouds(4000, beta, sigma, seed), seed=seed)
        got = estimate_sigma(curator_, signal=1.0, of_response=False, rho=self.RHO)
        assert got == pytest.approx(sigma, rel=0.1)
        assert math.fsum(r.price.rho for r in curator_.account.releases) == pytest.approx(self.RHO, rel=1e-9)
        assert len(curator_.account.releases) == 2

    @pytest.mark.parametrize("seed", range(2))
    def test_of_a_response(self, seed):
        """The response of a regression is σ² + ‖β‖²: within a tenth at n = 20 000, beyond five standard
        deviations (about 1.7 %, sampling): fewer than one false alarm in 10⁶.
        """
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20000, D))
        y = X @ (BETA / np.linalg.norm(BETA)) + 0.8 * rng.standard_normal(20000)
        got = estimate_sigma(curator(X, y, seed), signal=1.0, of_response=True, rho=0.01)
        assert got == pytest.approx(0.8, rel=0.1)

    def test_the_signal_is_taken_off(self):
        X = clouds(20000, BETA, 0.5)
        right, none = (
            estimate_sigma(curator(X), signal=s, of_response=False, rho=math.inf)
            for s in (float(np.linalg.norm(BETA)), 1e-9)
        )
        assert right == pytest.approx(0.5, rel=0.02)
        assert none**2 - right**2 == pytest.approx(np.sum(BETA**2) / D, rel=1e-6)

    @pytest.mark.parametrize("scale", [0.0, 1e-200, 1e20, 1e300])
    def test_it_is_a_positive_number_whatever_the_rows(self, scale):
        X = scale * clouds()
        for seed in range(3):
            got = estimate_sigma(curator(X, seed=seed), signal=1.0, of_response=False, rho=0.01)
            assert 0 < got < 1e14


class TestSigmaUnknown:
    def test_what_is_fitted(self, fitted):
        """The noise on σ is about 4 % here: a third is beyond five standard deviations."""
        assert fitted.sigma_ == pytest.approx(0.5, rel=1 / 3)
        assert fitted.sigma_ != 0.5
        assert fitted.sigma is None
        assert fitted.plan_.settings["sigma"] == fitted.sigma_
        np.testing.assert_array_equal(fitted.support_, [0, 1, 2])
        errors = [np.linalg.norm(fitted.coef_ - sign * BETA) for sign in (-1, 1)]
        assert min(errors) < 0.3 < max(errors)

    def test_two_more_queries_are_listed(self, fitted):
        first, second, *rest = fitted.releases_
        assert first.query == "histogram of the rows' size"
        assert first.mechanism == "Gumbel top-1"
        assert second.query.startswith("mean square of a row, capped at ")
        assert second.mechanism == "Gaussian"
        assert len(rest) == len(fitted.plan_.steps)
        paid = first.price.rho + second.price.rho
        assert paid == pytest.approx(SIGMA_SHARE * largest_price(4.0, 1e-4, gaussian=False).rho, rel=1e-9)
        assert fitted.guarantee_.mechanisms == fitted.releases_

    def test_all_of_it_together_is_what_was_promised(self, fitted):
        price = total_price(list(fitted.releases_))
        assert price.delta(4.0) <= 1e-4 * (1 + 1e-9)
        assert price.delta(3.9) > 1e-4  # nothing is left unused
        assert price.rho == pytest.approx(fitted.plan_.price.rho, rel=1e-9)

    def test_the_budget_is_charged_once_and_for_all_of_it(self, fitted, budget):
        (charge,) = budget._charges
        epsilon, delta, price = charge.epsilon, charge.delta, charge.price
        assert (epsilon, delta) == (4.0, 1e-4)
        assert price.rho >= total_price(list(fitted.releases_)).rho * (1 - 1e-9)

    def test_all_coefficients(self):
        """Without a selection the fit would be Gaussian alone; the histogram is not, so its price is the zCDP one."""
        fitted = DPSymmetricMixture(**SMALL, sigma=None).fit(clouds())
        price = total_price(list(fitted.releases_))
        assert not price.gaussian
        assert price.delta(4.0) <= 1e-4 * (1 + 1e-9)
        assert len(fitted.support_) == D

    def test_a_given_sigma_is_not_asked_for(self):
        fitted = auto().fit(clouds())
        assert fitted.sigma_ == 0.5
        assert not any("size" in r.query or "mean square" in r.query for r in fitted.releases_)

    @pytest.mark.parametrize("estimator", ALL)
    def test_the_paper_needs_it(self, estimator):
        budget = Budget(epsilon=100.0, delta=0.5)
        model = estimator(**PAID, sparsity=3, sigma=None, method="published", start="equal", budget=budget)
        with pytest.raises(ValueError, match="method='published' needs sigma"):
            model.fit(clouds(), np.ones(N))
        assert budget.n_charges == 0

    def test_the_charge_comes_before_the_first_query(self, monkeypatch):
        budget = Budget(epsilon=100.0, delta=0.5)
        plain = ArraySource.total

        def total(source, query):
            if query.label == "histogram of the rows' size":
                assert budget.n_charges == 1
                raise OSError("the disk is gone")
            return plain(source, query)

        monkeypatch.setattr(ArraySource, "total", total)
        with pytest.raises(OSError, match="the disk is gone"):
            DPSymmetricMixture(**PAID, sparsity=3, sigma=None, budget=budget).fit(clouds())
        assert budget.n_charges == 1
        poor = Budget(epsilon=3.9, delta=1e-4)
        with pytest.raises(BudgetExceeded):
            DPSymmetricMixture(**PAID, sparsity=3, sigma=None, budget=poor).fit(clouds())

    def outcome(self, model, X, y=None):
        """Refused before any charge, or charged and fitted: never charged and refused."""
        budget = Budget(epsilon=100.0, delta=0.5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model.set_params(budget=budget).fit(X, y)
                refused = False
            except ValueError:
                refused = True
        assert budget.n_charges == (0 if refused else 1)
        if refused:
            return "refused"
        assert np.isfinite(model.coef_).all()
        assert total_price(list(model.releases_)).delta(model.epsilon) <= model.delta * (1 + 1e-9)
        return "warned" if any("expect little more than noise" in str(w.message) for w in caught) else "fitted"

    def test_a_sigma_that_turns_out_large_is_not_refused_after_it_was_paid_for(self):
        """At half the signal a private start works at this size; at the σ that is found it would be refused.

        About one histogram in sixty names a bin by its noise alone; where that bin is tiny there is nothing to warn of.
        """
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((2000, 20)), 3 * rng.standard_normal(2000)
        model = DPSymmetricRegression(epsilon=1.0, delta=1e-5, sparsity=3, sigma=None)
        outcome = self.outcome(model, X, y)
        assert outcome in ("refused", "warned") or model.sigma_ < 1

    @pytest.mark.parametrize("scale", [0.0, 1e8])
    def test_nor_are_rows_of_an_unlikely_size(self, scale):
        model = DPSymmetricMixture(epsilon=4.0, delta=1e-4, sparsity=3, sigma=None)
        assert self.outcome(model, scale * clouds()) == "warned"


class TestSparsityUnknown:
    def test_strong_coefficients_are_found_and_empty_ones_dropped(self, fits):
        """Coefficients are 0.6 and the threshold is near 0.05, so all three are kept in every fit. The three others
        of the six are all dropped more often than not: fewer than 6 of 20 has probability 2 % at one half.
        """
        assert all({0, 1, 2} <= set(fitted.support_) for fitted in fits)
        assert sum(len(fitted.support_) == 3 for fitted in fits) >= 3
        assert np.mean([len(fitted.support_) for fitted in fits]) < 4.5

    def test_trimming_costs_nothing_and_changes_nothing_else(self, fits):
        trimmed, full = fits[0], DPSymmetricMixture(**SMALL, sparsity=6, sigma=0.5).fit(clouds(seed=100))
        *steps, last = trimmed.plan_.steps
        assert isinstance(last, Trim)
        assert last.rho == 0
        assert tuple(steps) == full.plan_.steps
        assert trimmed.plan_.price == full.plan_.price
        assert trimmed.releases_ == full.releases_
        assert trimmed.n_iter_ == full.n_iter_
        assert np.count_nonzero(full.coef_) == 6
        kept = np.abs(full.coef_) > last.threshold
        np.testing.assert_array_equal(trimmed.coef_, np.where(kept, full.coef_, 0.0))
        assert kept.sum() < 6

    @pytest.mark.parametrize("estimator", ALL)
    @together(
        ("sparsity", "most", "message"),
        [
            ("auto", None, "sparsity='auto' needs max_sparsity"),
            (None, 3, "max_sparsity goes with sparsity='auto' only"),
            (3, 3, "max_sparsity goes with sparsity='auto' only"),
            ("Auto", 3, 'sparsity must be a positive whole number, "auto" or None'),
            *(("auto", most, "max_sparsity must be between 1 and") for most in (0, -1, D + 1, 2.0, True, "3")),
        ],
    )
    def test_refusals(self, estimator, sparsity, most, message, monkeypatch):
        monkeypatch.setattr(ArraySource, "total", lambda *_: pytest.fail("the data were queried"))
        budget = Budget(epsilon=100.0, delta=0.5)
        model = estimator(**PAID, sparsity=sparsity, max_sparsity=most, start="equal", budget=budget)
        with pytest.raises(ValueError, match=message) as refusal:
            model.fit(clouds(), np.ones(N))
        assert str(refusal.value).endswith(".")
        assert ". " not in str(refusal.value)
        assert budget.n_charges == 0


class TestRefusedBeforePaying:
    """Arguments that cannot work are refused before the budget is charged."""

    @pytest.mark.parametrize("changes", [{"epsilon": float("inf")}, {"method": "published", "start": "equal"}])
    def test_auto_is_for_the_tight_method(self, changes):
        arguments = {"epsilon": 0.5, "delta": 1e-4, "sparsity": "auto", "max_sparsity": 3, "sigma": 1.0, **changes}
        with pytest.raises(ValueError, match="sparsity='auto' goes with a finite epsilon"):
            DPSymmetricMixture(**arguments).fit(np.random.default_rng(0).standard_normal((600, 12)))
