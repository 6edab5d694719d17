"""Prices and conversions against dp_accounting, numerical integrals and each other."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dpem.privacy.accounting import Price, gaussian_delta, largest_price, log_normal, total, zcdp_delta

#: Dense enough that the oracle's best order is within 1e-6 of the continuous minimum.
ORDERS = 1 + np.exp(np.linspace(math.log(1e-4), math.log(1e9), 20_000))
repeatable = settings(derandomize=True, deadline=None, database=None, max_examples=60)

rhos = st.floats(math.log(1e-8), math.log(200.0)).map(math.exp)
epsilons = st.floats(math.log(1e-3), math.log(100.0)).map(math.exp)
deltas = st.floats(math.log(1e-12), math.log(0.5)).map(math.exp)
factors = st.floats(1.0, 3.0)


def rdp_oracle(*events: dp_accounting.DpEvent) -> rdp.RdpAccountant:
    accountant = rdp.RdpAccountant(orders=ORDERS)
    for event in events:
        accountant.compose(event)
    return accountant


def sigma(rho: float) -> float:
    """Noise multiplier of a Gaussian mechanism of price ρ."""
    return math.sqrt(1 / (2 * rho))


@pytest.mark.parametrize(
    ("rho", "delta"),
    [(rho, delta) for rho in (1e-8, 1e-4, 0.01, 0.3, 2.0, 50.0) for delta in (1e-12, 1e-6)]
    + [(1e-4, 1e-3), (0.01, 1e-3), (2.0, 1e-3), (0.3, 0.1), (2.0, 0.1), (50.0, 0.5)],
)
def test_zcdp_epsilon_equals_that_of_dp_accounting(rho, delta):
    epsilon = Price(rho).epsilon(delta)
    oracle = rdp_oracle(dp_accounting.ZCDpEvent(rho)).get_epsilon(delta)
    assert epsilon == pytest.approx(oracle, rel=1e-5)
    assert epsilon <= oracle * (1 + 1e-9)  # a grid of orders cannot beat the continuous minimum


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.3, 2.0, 50.0])
@pytest.mark.parametrize("ratio", [1.5, 3.0, 10.0])
def test_zcdp_delta_is_the_minimum_over_orders(rho, ratio):
    """Proposition 12 of Canonne, Kamath & Steinke, written out on a grid."""
    epsilon = ratio * rho + 3 * math.sqrt(rho)
    a = ORDERS
    on_grid = np.min((a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a))
    assert zcdp_delta(rho, epsilon) == pytest.approx(math.exp(on_grid), rel=1e-5)
    assert zcdp_delta(rho, epsilon) <= math.exp(on_grid) * (1 + 1e-9)


@pytest.mark.parametrize(("rho", "epsilon"), [(1e-4, 1e-4), (1e-6, 0.0), (1e-8, 2e-8), (0.01, 0.001)])
def test_zcdp_conversion_is_optimal_below_rho(rho, epsilon):
    a = ORDERS
    on_grid = np.min((a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a))
    assert zcdp_delta(rho, epsilon) <= math.exp(on_grid) * (1 + 1e-6)


@pytest.mark.parametrize("rho", [0.002, 0.05, 0.5, 5.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.05])
def test_exact_gaussian_lies_between_renyi_and_pld(rho, delta):
    price = Price(rho, gaussian=True)
    event = dp_accounting.GaussianDpEvent(sigma(rho))
    exact = dp_accounting.get_epsilon_gaussian(sigma(rho), delta)
    assert price.epsilon(delta) == pytest.approx(exact, rel=1e-6)
    assert price.epsilon(delta) <= rdp_oracle(event).get_epsilon(delta) + 1e-9
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(event)
    oracle = accountant.get_epsilon(delta)  # pessimistic, by at most one interval
    assert oracle - 1e-4 - 1e-9 <= price.epsilon(delta) <= oracle + 1e-9


@pytest.mark.parametrize("count", [1, 7, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_composed_gaussians_never_claim_less_than_the_pld_oracle(count, epsilon):
    """The oracle brackets the truth: rounding losses down and up gives a lower and an upper δ."""
    rho = 0.2 / count
    claimed = total([Price(rho, gaussian=True)] * count).delta(epsilon)
    low, high = (
        privacy_loss_distribution.from_gaussian_mechanism(
            sigma(rho), pessimistic_estimate=pessimistic, value_discretization_interval=1e-4, use_connect_dots=False
        )
        .self_compose(count)
        .get_delta_for_epsilon(epsilon)
        for pessimistic in (False, True)
    )
    assert low - 1e-12 <= claimed <= high + 1e-12
    assert high - low < 0.15 * high  # the bracket is narrow, so the line above says something


@pytest.mark.parametrize(
    ("mu", "epsilon", "exact"),  # computed with 420 digits
    [
        (2.756e-11, 1e-9, 1.07841336432e-300),
        (5.8e-11, 1e-10, 9.99867727007e-13),
        (1e-6, 5e-6, 5.34617889926e-14),
        (2.0, 9.0, 7.87550606265e-5),
        (4.472135955e8, 1e17, 0.500016778907),
        (1.41421356e10, 1e20, 8.64208673388e-125),
    ],
)
def test_rounding_never_lowers_delta(mu, epsilon, exact):
    """The terms of the exact curve nearly cancel for a tiny μ, and the parts of their arguments for a huge ε."""
    assert exact * (1 - 1e-11) <= gaussian_delta(mu, epsilon) <= exact * (1.001 if exact > 1e-290 else 10)


EXTREME = (5e-324, 1e-300, 1e-20, 1e-9, 1.0, 1e9, 1e100, 1e300, 1.7e308, math.inf)


def test_delta_is_a_probability_for_every_price_and_epsilon():
    """NaN would pass every comparison with a limit."""
    assert log_normal(-math.inf) == -math.inf
    assert gaussian_delta(1e200, 1.0) == zcdp_delta(1e200, 1.0) == 1
    for size, epsilon in itertools.product(EXTREME, (0.0, *EXTREME)):
        for curve in (gaussian_delta, zcdp_delta):
            assert 0 <= curve(size, epsilon) <= 1, (curve, size, epsilon)


def test_every_finite_price_has_an_epsilon():
    for rho, gaussian, delta in itertools.product(EXTREME[:-1], (True, False), (1e-300, 0.5)):
        price = Price(rho, gaussian)
        assert price.delta(price.epsilon(delta)) <= delta


@pytest.mark.parametrize("epsilon", [1e17, 1e30, 1e300, 1.7e308])
def test_a_huge_epsilon_has_a_price_below_it(epsilon):
    for gaussian in (False, True):
        price = largest_price(epsilon, 1e-6, gaussian=gaussian)
        assert 0.5 * min(epsilon, 1e300) < price.rho < epsilon


def test_composition_of_gaussian_and_other_uses_the_zcdp_curve():
    gaussian, other = Price(0.05, gaussian=True), Price(0.05)
    for mixed in (total([gaussian, other]), total([other, gaussian, gaussian])):
        assert not mixed.gaussian
        assert mixed.delta(1.0) == zcdp_delta(mixed.rho, 1.0)
        assert mixed.delta(1.0) > gaussian_delta(math.sqrt(2 * mixed.rho), 1.0)
    pure = total([gaussian, gaussian])
    assert pure.gaussian
    assert pure.delta(1.0) == gaussian_delta(math.sqrt(0.2), 1.0)
    # a mixed composition against the oracle
    oracle = rdp_oracle(dp_accounting.GaussianDpEvent(sigma(0.05)), dp_accounting.ZCDpEvent(0.05))
    assert total([gaussian, other]).epsilon(1e-5) == pytest.approx(oracle.get_epsilon(1e-5), rel=1e-5)


def test_a_price_of_zero_keeps_the_exact_curve():
    gaussian, other = Price(0.05, gaussian=True), Price(0.05)
    assert total([]).rho == 0
    assert total([]).epsilon(1e-9) == 0
    for nothing in (total([]), Price(0.0), Price(0.0, gaussian=True)):
        for price in (gaussian, other):
            assert total([nothing, price]) == total([price, nothing]) == price


@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0, 5.0, 14.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.001, 0.5, 3.0, 30.0, 100.0])
def test_exact_gaussian_curve_is_the_integral(mu, epsilon):
    """δ(ε) = ∫ (p − e^ε·q)₊ for p = N(μ, 1), q = N(0, 1); the integrand is positive beyond ε/μ + μ/2."""
    first = epsilon / mu + mu / 2

    def integrand(x):
        return stats.norm.pdf(x, loc=mu) - math.exp(epsilon) * stats.norm.pdf(x)

    value, _ = integrate.quad(integrand, first, max(first, mu) + 40, points=[max(first, mu)], limit=500, epsabs=1e-14)
    assert gaussian_delta(mu, epsilon) == pytest.approx(value, rel=1e-7, abs=1e-13)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.5])
def test_largest_price_is_safe_and_tight(epsilon, delta, gaussian):
    price = largest_price(epsilon, delta, gaussian=gaussian)
    assert price.gaussian is gaussian
    assert 0 < price.rho < math.inf
    assert price.delta(epsilon) <= delta
    assert Price(price.rho * (1 + 1e-6), gaussian).delta(epsilon) > delta
    assert price.epsilon(delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
def test_largest_price_against_calibrated_oracle(epsilon, delta):
    exact = largest_price(epsilon, delta, gaussian=True)
    oracle_sigma = dp_accounting.get_sigma_gaussian(epsilon, delta, tol=1e-12)
    assert exact.rho == pytest.approx(1 / (2 * oracle_sigma**2), rel=1e-5)
    zcdp = largest_price(epsilon, delta, gaussian=False)
    assert zcdp.rho < exact.rho
    assert rdp_oracle(dp_accounting.ZCDpEvent(zcdp.rho)).get_epsilon(delta) == pytest.approx(epsilon, rel=1e-5)


def test_infinite_arguments():
    assert largest_price(math.inf, 1e-5, gaussian=True) == Price(math.inf, gaussian=True)
    for gaussian in (False, True):
        assert Price(math.inf, gaussian).delta(100.0) == 1.0
        assert Price(math.inf, gaussian).epsilon(1e-5) == math.inf
        assert Price(1.0, gaussian).delta(math.inf) == 0.0
        assert Price(0.0, gaussian).delta(0.0) == 0.0


@repeatable
@given(rhos, epsilons)
def test_exact_curve_never_exceeds_the_zcdp_curve(rho, epsilon):
    assert gaussian_delta(math.sqrt(2 * rho), epsilon) <= zcdp_delta(rho, epsilon) * (1 + 1e-9)


@repeatable
@given(rhos, epsilons, factors, st.booleans())
def test_delta_is_monotone(rho, epsilon, factor, gaussian):
    here = Price(rho, gaussian).delta(epsilon)
    assert 0 <= here <= 1
    assert Price(rho * factor, gaussian).delta(epsilon) >= here * (1 - 1e-9)
    assert Price(rho, gaussian).delta(epsilon * factor) <= here * (1 + 1e-9)


@repeatable
@given(rhos, deltas, factors, st.booleans())
def test_epsilon_is_monotone(rho, delta, factor, gaussian):
    here = Price(rho, gaussian).epsilon(delta)
    assert Price(rho * factor, gaussian).epsilon(delta) >= here * (1 - 1e-8)
    assert Price(rho, gaussian).epsilon(min(0.999, delta * factor)) <= here * (1 + 1e-8)


@repeatable
@given(epsilons, deltas, factors, st.booleans())
def test_largest_price_is_monotone_and_safe(epsilon, delta, factor, gaussian):
    here = largest_price(epsilon, delta, gaussian=gaussian)
    assert here.delta(epsilon) <= delta
    assert largest_price(epsilon * factor, delta, gaussian=gaussian).rho >= here.rho * (1 - 1e-8)
    assert largest_price(epsilon, min(0.999, delta * factor), gaussian=gaussian).rho >= here.rho * (1 - 1e-8)


@repeatable
@given(st.lists(st.tuples(rhos, st.booleans()), min_size=1, max_size=6), epsilons)
def test_more_releases_never_cost_less(parts, epsilon):
    prices = [Price(rho, gaussian) for rho, gaussian in parts]
    whole = total(prices)
    assert whole.rho == pytest.approx(math.fsum(p.rho for p in prices), rel=1e-15)
    for price in prices:
        assert whole.delta(epsilon) >= price.delta(epsilon) * (1 - 1e-9)


@pytest.mark.parametrize("rho", [5e-324, 1e-300, 1e300])
@pytest.mark.parametrize("epsilon", [1e-300, 1.0, 1e300])
def test_prices_at_the_ends_of_the_floats_convert(rho, epsilon):
    assert 0 <= Price(rho).delta(epsilon) <= 1


@example(-35.5)  # where the series in the tail has the most to do
@given(st.floats(-1e6, 40.0))
def test_the_logarithm_of_the_normal_distribution(x):
    from scipy.special import log_ndtr

    assert log_normal(x) == pytest.approx(float(log_ndtr(x)), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("gaussian", [False, True])
def test_a_price_below_every_mechanism_is_refused(gaussian):
    with pytest.raises(ValueError, match="too small for any mechanism"):
        largest_price(1e-30, 1e-40, gaussian=gaussian)
