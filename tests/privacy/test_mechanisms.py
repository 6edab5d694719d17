"""The mechanisms add the noise their prices say, and the prices are not too low.

The real samplers are tested here, so every statistical check rejects at p < FALSE_ALARM. One run of this file makes 14
such checks of private noise: a false alarm has probability 1.4e-7.
"""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from dpem.privacy import mechanisms
from dpem.privacy.accounting import Price
from dpem.privacy.noise import PrivateNoise, SeededNoise

FALSE_ALARM = 1e-8
N = 20_000  # distinguishes scales 3% apart: 5 standard errors of the log-variance are 5·√(2/N) = 5%


@pytest.fixture(params=[pytest.param("private", marks=pytest.mark.real_noise), "seeded"])
def noise(request):
    return PrivateNoise() if request.param == "private" else SeededNoise(11)


def two_sided(statistic: float, law) -> float:
    return 2 * min(law.cdf(statistic), law.sf(statistic))


# ---------------------------------------------------------------------------------------------------- the noise drawn


@pytest.mark.parametrize(("sensitivity", "rho"), [(1.0, 0.5), (2e-5, 0.01)])
def test_gaussian_standard_deviation(noise, sensitivity, rho):
    tau = sensitivity / math.sqrt(2 * rho)
    values = np.linspace(-3, 3, N) * tau
    draws = mechanisms.gaussian(noise, values, sensitivity, Price(rho, gaussian=True)) - values
    assert draws.shape == (N,)
    assert two_sided(np.sum((draws / tau) ** 2), stats.chi2(N)) > FALSE_ALARM
    assert stats.kstest(draws / tau, stats.norm.cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize("scale", [1.0, 3e-4])
def test_laplace_scale(noise, scale):
    values = np.linspace(-3, 3, N) * scale
    draws = noise.laplace(values, scale) - values
    assert two_sided(np.sum(np.abs(draws) / scale), stats.gamma(N)) > FALSE_ALARM
    assert stats.kstest(draws / scale, stats.laplace.cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("k", "sensitivity", "rho"), [(1, 1.0, 0.5), (1, 2e-4, 0.02)])
def test_gumbel_scale_through_odds_of_two(noise, k, sensitivity, rho):
    """Of two scores b apart the larger wins with odds e: P = 1/(1 + e⁻¹)."""
    b = sensitivity * math.sqrt(k / (2 * rho))
    v = np.array([3 * b, -4 * b])  # sizes count, not signs
    draws = 4_000
    wins = sum(
        int(mechanisms.noisy_top_k(noise, v, k, sensitivity, Price(rho), magnitude=4 * b)[0]) for _ in range(draws)
    )
    assert stats.binomtest(wins, draws, 1 / (1 + math.exp(-1))).pvalue > FALSE_ALARM


def test_peeling_adds_the_stated_laplace_noise_to_the_chosen_values(noise):
    scale = 0.5
    v = np.zeros(12)
    v[:3] = 100.0, -200.0, 300.0  # 200 scales above the rest: always chosen
    draws = 1_500  # 4,500 values: a scale 8% off is found
    out = np.array([mechanisms.noisy_hard_thresholding(noise, v, 3, scale, 300.0) for _ in range(draws)])
    assert not out[:, 3:].any()
    errors = (out[:, :3] - v[:3]).ravel()
    assert two_sided(np.sum(np.abs(errors) / scale), stats.gamma(errors.size)) > FALSE_ALARM
    assert stats.kstest(errors / scale, stats.laplace.cdf).pvalue > FALSE_ALARM


def test_peeling_odds_are_those_of_laplace_noise(noise):
    """Two scores g scales apart, Laplace noise on each: the smaller wins with probability e^{-g}(2 + g)/4.

    (The difference of two Laplace(1) variables has density (1 + |x|)e^{-|x|}/4.) One round with s = 1; with s = 2
    of three and a sure winner, round 2 gives the same odds between the two that are left.
    """
    g, scale, draws = 1.0, 0.25, 1_500
    smaller = math.exp(-g) * (2 + g) / 4
    v = np.array([-g * scale, 0.0])
    lost = sum(mechanisms.noisy_hard_thresholding(noise, v, 1, scale, 1e3)[1] != 0 for _ in range(draws))
    assert stats.binomtest(int(lost), draws, smaller).pvalue > FALSE_ALARM
    v = np.array([1e3, g * scale, 0.0])
    lost = sum(mechanisms.noisy_hard_thresholding(noise, v, 2, scale, 1e3)[2] != 0 for _ in range(draws))
    assert stats.binomtest(int(lost), draws, smaller).pvalue > FALSE_ALARM


def test_peeling_draws_a_new_vector_each_round():
    """Algorithm 1: s vectors of d, none used twice, then s for the values."""

    class Spy(SeededNoise):
        def laplace(self, values, scale, grid=None):
            out = super().laplace(values, scale, grid)
            drawn.append((out - values, scale))
            grids.append(grid)
            return out

    drawn: list = []
    grids: list = []
    out = mechanisms.noisy_hard_thresholding(Spy(0), np.array([0.0, 1.0, 9.0, -9.0, 2.0]), 3, 0.5, 9.0)
    assert grids == [2.0**-43] * 3 + [None]  # 9 + 700·0.5 is below 2⁹, and a float has 53 bits
    assert [len(noise) for noise, _ in drawn] == [5, 5, 5, 3]
    assert {scale for _, scale in drawn} == {0.5}
    assert len(np.unique(np.concatenate([noise for noise, _ in drawn]))) == 18
    assert np.count_nonzero(out) == 3


@pytest.mark.real_noise
def test_sums_that_are_compared_are_exact():
    """On a grid nothing is rounded after the noise was added, so that ties are the same for a neighbour.

    It fails by chance if one of 6,000 Laplace draws is beyond 700 scales: 6000·e⁻⁷⁰⁰.
    """
    values = np.random.default_rng(0).uniform(0, 3, 2000)
    for scale in (1e-6, 0.1, 40.0):
        grid = mechanisms.peeling_grid(3.0, scale)
        sums = PrivateNoise().laplace(values, scale, grid) / grid
        assert np.all(sums == np.rint(sums))
        assert np.abs(sums).max() < 2**53
        ends = (3.0 + 700 * scale) / grid
        assert 2**51 < ends <= 2**52


def test_peeling_selects_s_different_coordinates(noise):
    for s in (1, 4, 6):
        out = mechanisms.noisy_hard_thresholding(noise, np.zeros(6), s, 1.0, 1.0)
        assert np.count_nonzero(out) == s


def test_seeded_noise_repeats_and_says_it_is_not_private():
    def draw(seed):
        noise = SeededNoise(seed)
        return np.concatenate(
            [
                noise.gaussian(np.zeros(5), 1.0, 1.0, 1.0),
                noise.laplace(np.zeros(5), 1.0),
                noise.top_k(np.zeros(50), 5, 1.0, 1.0),
            ]
        )

    np.testing.assert_array_equal(draw(3), draw(3))
    assert not np.array_equal(draw(3), draw(4))
    old_style = [draw(np.random.RandomState(7)) for _ in range(2)]
    np.testing.assert_array_equal(*old_style)
    assert not SeededNoise(0).private
    assert PrivateNoise().private


def test_seeded_selection_takes_the_largest_sums_best_first():
    scores = np.linspace(0, 3, 1000)
    sums = scores + np.random.default_rng(5).gumbel(size=1000)
    for k in (1, 20):
        assert SeededNoise(5).top_k(scores, k, 1.0, 1.0).tolist() == np.argsort(-sums)[:k].tolist()


# ------------------------------------------------------------------------------------------------ prices and refusals


def test_price_formulas():
    assert mechanisms.gaussian_scale(3.0, 0.5) == pytest.approx(3.0)
    assert mechanisms.gaussian_scale(3.0, 0.02) == pytest.approx(15.0)
    assert mechanisms.top_k_scale(8, 3.0, 1.0) == pytest.approx(6.0)
    assert mechanisms.top_k_scale(1, 0.1, 0.5) == pytest.approx(0.1)
    assert mechanisms.peeling_price(4, 0.1, 2.0) == Price(pytest.approx(0.025))
    assert not mechanisms.peeling_price(4, 0.1, 2.0).gaussian
    # the paper's Algorithm 1: λ·2√(3s·log(1/δ))/ε
    assert mechanisms.printed_peeling_scale(5, 0.3, 0.5, math.exp(-15.0)) == pytest.approx(0.3 * 2 * 15 / 0.5)


@pytest.mark.parametrize("rho", [0.001, 0.1, 10.0])
def test_private_noise_accepts_its_price_and_refuses_less(rho):
    noise = PrivateNoise()
    sensitivity = 0.7
    sd = mechanisms.gaussian_scale(sensitivity, rho)
    noise.gaussian(np.zeros(2), sd, sensitivity, rho)
    with pytest.raises(RuntimeError, match="cost more than was charged"):
        noise.gaussian(np.zeros(2), sd * (1 - 1e-6), sensitivity, rho)
    with pytest.raises(RuntimeError, match="cost more than was charged"):
        noise.gaussian(np.zeros(2), sd, sensitivity * (1 + 1e-6), rho)

    k = 3
    at_unit_scale = math.sqrt(2 * rho / k)  # λ/b when the scores are divided by b
    noise.top_k(np.zeros(5), k, at_unit_scale, rho)
    with pytest.raises(RuntimeError, match="cost more than was charged"):
        noise.top_k(np.zeros(5), k, at_unit_scale * (1 + 1e-6), rho)
    with pytest.raises(RuntimeError, match="cost more than was charged"):
        noise.top_k(np.zeros(5), k + 1, at_unit_scale, rho)


def test_mechanisms_pass_a_dear_enough_price_on():
    """The mechanism's own scale, sensitivity and price are consistent: OpenDP's privacy map accepts them."""
    rng = np.random.default_rng(0)
    noise = PrivateNoise()
    for _ in range(50):
        sensitivity, rho = np.exp(rng.uniform(-12, 3, size=2))
        k = int(rng.integers(1, 6))
        mechanisms.gaussian(noise, np.ones(2), sensitivity, Price(rho, gaussian=True))
        chosen = mechanisms.noisy_top_k(noise, np.ones(6), k, sensitivity, Price(rho), magnitude=1.0)
        assert len(set(chosen.tolist())) == k


def test_rounding_of_the_scores_is_paid_for():
    """b grows with the scores' magnitude, so that a huge public offset cannot hide in the rounding."""

    class Spy(SeededNoise):
        def top_k(self, scores, k, sensitivity, rho):
            self.seen = scores, sensitivity
            return super().top_k(scores, k, sensitivity, rho)

    spy = Spy(0)
    v, sensitivity, rho = np.array([1.0, -2.0]), 1e-3, 0.5
    mechanisms.noisy_top_k(spy, v, 1, sensitivity, Price(rho), magnitude=0.0)
    np.testing.assert_allclose(spy.seen[0], np.abs(v) / 1e-3, rtol=1e-12)
    for magnitude in (2.0, 1e9):
        mechanisms.noisy_top_k(spy, v, 1, sensitivity, Price(rho), magnitude=magnitude)
        b = np.abs(v[0]) / spy.seen[0][0]
        assert b >= sensitivity + np.finfo(float).eps * magnitude
        assert spy.seen[1] ** 2 / 2 <= rho * (1 + 1e-12)


class NoNoise:
    """Fails the test if anything is drawn."""

    private = True

    def _refuse(self, *args):
        raise AssertionError("noise was drawn at an infinite price")

    top_k = gaussian = laplace = _refuse


def test_infinite_price_gives_exact_values():
    v = np.array([0.5, -3.0, 2.0, 1e-9])
    np.testing.assert_array_equal(mechanisms.gaussian(NoNoise(), v, 1.0, Price(math.inf, gaussian=True)), v)
    chosen = mechanisms.noisy_top_k(NoNoise(), v, 2, 1.0, Price(math.inf), magnitude=math.inf)
    np.testing.assert_array_equal(chosen, [1, 2])


# --------------------------------------------------------------------------- the peeling price against an exact oracle


@pytest.mark.parametrize("s", [1, 5, 20])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-4), (1.0, 1e-6), (3.0, 1e-5)])
def test_peeling_price_covers_the_composition_of_its_rounds(s, epsilon, delta):
    """s rounds of 2λ/b-DP and s Laplace values of λ/b, composed exactly, satisfy no less than the price claims.

    A round is taken as the worst mechanism of its ε (randomised response) and as a Laplace mechanism of that ε. The
    oracle rounds losses up, so it over-states δ: passing is stricter than need be.
    """
    b = mechanisms.printed_peeling_scale(s, 1.0, epsilon, delta)
    price = mechanisms.peeling_price(s, 1.0, b)
    interval = min(1e-3, 0.02 / b)
    values = pld.from_laplace_mechanism(b, value_discretization_interval=interval).self_compose(s)
    flip = 2 / (1 + math.exp(2 / b))
    worst = pld.from_randomized_response(flip, 2, value_discretization_interval=interval).self_compose(s)
    laplace = pld.from_laplace_mechanism(b / 2, value_discretization_interval=interval).self_compose(s)
    at = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.9]) * 3 * s / b  # 3s/b is where pure composition ends
    at = np.sort(np.append(at, epsilon))
    claimed = np.array([price.delta(e) for e in at])
    exact = worst.compose(values).get_delta_for_epsilon(at)
    assert np.all(exact <= claimed)
    assert np.all(laplace.compose(values).get_delta_for_epsilon(at) <= claimed)
    # the test can fail: with a price a quarter as large it would
    assert np.any(exact > [Price(price.rho / 4).delta(e) for e in at])
