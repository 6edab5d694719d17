"""The bounds hold with the stated confidence, and are not too low to be useful."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dpem.audit import bounds
from dpem.audit.bounds import lower_bound, lower_confidence_limit, upper_confidence_limit
from dpem.privacy import largest_price
from dpem.privacy.accounting import gaussian_delta
from studies.audits.one_run import one_run_bound, one_run_p_value


class TestClopperPearson:
    @pytest.mark.parametrize("failure", [0.2, 0.01, 0.0005])
    @pytest.mark.parametrize("n", [1, 7, 60])
    def test_limits_fail_as_rarely_as_stated(self, n, failure):
        """Exact, by summing over the counts."""
        counts = np.arange(n + 1)
        low, high = lower_confidence_limit(counts, n, failure), upper_confidence_limit(counts, n, failure)
        for p in np.linspace(0.0, 1.0, 101):
            law = binom.pmf(counts, n, p)
            assert law[low > p + 1e-12].sum() <= failure + 1e-12
            assert law[high < p - 1e-12].sum() <= failure + 1e-12

    def test_limits_are_those_of_the_binomial_s_tails(self):
        assert binom.sf(29, 100, lower_confidence_limit(30, 100, 0.01)) == pytest.approx(0.01)
        assert binom.cdf(30, 100, upper_confidence_limit(30, 100, 0.01)) == pytest.approx(0.01)
        assert lower_confidence_limit(0, 100, 0.01) == 0.0
        assert upper_confidence_limit(100, 100, 0.01) == 1.0


def false_alarms(draw, epsilon, delta, confidence, trials):
    rng = np.random.default_rng(0)
    found = [lower_bound(*draw(rng), delta, confidence).epsilon for _ in range(trials)]
    return sum(bound > epsilon for bound in found), float(np.mean(found))


class TestLowerBound:
    def test_randomised_response(self):
        """Odds of three to one either way: ε = log 3 exactly. At 80 % confidence the bound may be too high in one
        trial of five; more than 150 of 500 have probability below 1e-7 then. Its mean shows that it is not idle.
        """

        def draw(rng):
            return (rng.random(300) < 0.75).astype(float), (rng.random(300) < 0.25).astype(float)

        wrong, mean = false_alarms(draw, math.log(3), 0.0, 0.8, 500)
        assert wrong <= 150
        assert 0.6 * math.log(3) < mean < math.log(3)

    def test_gaussian_noise(self):
        """ε and δ on the exact curve of a shift by 2: more than 90 of 300 at 80 % confidence: below 1e-4."""
        epsilon = 3.0
        delta = gaussian_delta(2.0, epsilon)

        def draw(rng):
            return rng.normal(2, 1, 400), rng.normal(0, 1, 400)

        wrong, mean = false_alarms(draw, epsilon, delta, 0.8, 300)
        assert wrong <= 90
        assert mean > 1.0

    def test_no_difference_no_bound(self):
        """At 99.9 % a bound above 0 has probability 0.001; more than 7 of 600 below 1e-5."""
        wrong, _ = false_alarms(lambda rng: (rng.normal(size=100), rng.normal(size=100)), 0.0, 0.0, 0.999, 600)
        assert wrong <= 7

    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("exchanged", [False, True])
    def test_scores_may_point_either_way(self, sign, exchanged):
        rng = np.random.default_rng(1)
        tables = sign * rng.normal(1.5, 1, 4000), sign * rng.normal(0, 1, 4000)
        assert lower_bound(*(tables[::-1] if exchanged else tables), 1e-5).epsilon > 1.5

    @pytest.mark.parametrize(("epsilon", "runs"), [(1.0, 150_000), (4.0, 60_000)])
    def test_half_the_noise_is_caught(self, epsilon, runs):
        rng = np.random.default_rng(2)
        mu = 2 * math.sqrt(2 * largest_price(epsilon, 1e-5, gaussian=True).rho)
        assert lower_bound(rng.normal(mu, 1, runs), rng.normal(0, 1, runs), 1e-5).epsilon > epsilon

    def test_a_rare_event_is_caught_by_counting(self):
        """One run of twenty reveals the table; normal distributions of the scores would be nearly equal."""
        rng = np.random.default_rng(3)
        first = np.where(rng.random(4000) < 0.05, 7.0, rng.normal(0, 3, 4000))
        found = lower_bound(first, rng.normal(0, 3, 4000).clip(max=6.9), 1e-5)
        assert found.epsilon > 2.0

    def test_delta_is_taken_off(self):
        """Scores that do not overlap: 900 runs are consistent with p = 1 and q = 0."""
        zero, one = np.zeros(1000), np.ones(1000)
        assert lower_bound(zero, one, 0.5).epsilon < lower_bound(zero, one, 0.0).epsilon - 0.6
        assert lower_bound(zero, one, 1.0).epsilon == 0.0

    def test_the_event_is_judged_on_other_runs(self):
        """Scores that differ only in the part on which the event is chosen."""
        rng = np.random.default_rng(4)
        first, second = rng.normal(size=2000), rng.normal(size=2000)
        first[: math.ceil(bounds.CHOOSING * 2000)] += 10
        assert lower_bound(first, second, 0.0).epsilon == 0.0

    def test_refusals(self):
        with pytest.raises(ValueError, match="at least 20 runs on each table, got 5 and 30"):
            lower_bound(np.zeros(5), np.zeros(30), 0.0)
        with pytest.raises(ValueError, match="confidence must lie strictly between 0 and 1"):
            lower_bound(np.zeros(30), np.zeros(30), 0.0, confidence=1.0)


def leaking(m, r, epsilon, delta):
    """The exact law of right guesses: each coin is shown with probability δ, else answered with odds e^ε; of the
    guesses, those that were shown come first.
    """
    right = 1 / (1 + math.exp(-epsilon))
    law = np.zeros(r + 1)
    for shown in range(m + 1):
        sure = min(shown, r)
        law[sure:] += binom.pmf(shown, m, delta) * binom.pmf(np.arange(r - sure + 1), r - sure, right)
    return law


class TestOneRun:
    @pytest.mark.parametrize(("m", "r"), [(40, 40), (200, 40), (400, 100)])
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
    @pytest.mark.parametrize("delta", [0.0, 1e-4, 1e-2])
    def test_the_p_value_covers_a_mechanism_that_uses_its_delta(self, m, r, epsilon, delta):
        """Exact, no simulation: P(W ≥ v) is at most the p-value of v, for every v."""
        tail = np.cumsum(leaking(m, r, epsilon, delta)[::-1])[::-1]
        for v in range(r + 1):
            assert tail[v] <= one_run_p_value(v, r, m, epsilon, delta) + 1e-12

    def test_without_the_term_for_delta_it_would_not(self):
        tail = np.cumsum(leaking(400, 40, 1.0, 0.02)[::-1])[::-1]
        assert any(tail[v] > 1.5 * one_run_p_value(v, 40, 400, 1.0, 0.0) for v in range(1, 41))

    def test_the_bound_is_where_the_p_value_crosses(self):
        found = one_run_bound(80, 100, 500, 1e-6)
        assert (
            one_run_p_value(80, 100, 500, found + 1e-4, 1e-6)
            > 0.001
            > one_run_p_value(80, 100, 500, found - 1e-4, 1e-6)
        )

    def test_exceeds_the_true_epsilon_as_rarely_as_stated(self):
        """Exact: the probability that the bound at 95 % is above the ε of randomised response."""
        epsilon, n = 1.0, 100
        law = binom.pmf(np.arange(n + 1), n, 1 / (1 + math.exp(-epsilon)))
        too_high = [one_run_bound(v, n, n, 0.0, confidence=0.95) > epsilon for v in range(n + 1)]
        wrong = law[np.array(too_high)].sum()
        assert 0.01 < wrong <= 0.05

    def test_grows_with_right_guesses_and_with_less_confidence(self):
        found = [one_run_bound(v, 100, 1000, 1e-7) for v in (50, 70, 85, 95, 100)]
        assert found[0] == 0.0
        assert found == sorted(found)
        assert found[-1] > 2.0
        assert one_run_bound(85, 100, 1000, 1e-7, confidence=0.95) > found[2]

    def test_refusal(self):
        with pytest.raises(ValueError, match="correct <= guesses <= canaries, got 11, 10, 20"):
            one_run_p_value(11, 10, 20, 1.0, 0.0)
