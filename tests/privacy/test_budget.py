"""A budget shared by fits: never overdrawn, never copied, and it says what is left."""

import copy
import itertools
import math
import os
import pickle
import sys
import threading

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone

from dpem.privacy import Budget, BudgetExceeded, Charge, Price, largest_price
from dpem.privacy.accounting import gaussian_delta, zcdp_delta
from dpem.privacy.budget import Total

#: The zCDP price that converts to the total of most tests, (1, 1e-5).
WHOLE = largest_price(1.0, 1e-5, gaussian=False).rho
kinds = pytest.mark.parametrize("gaussian", [False, True], ids=["sparse", "dense"])


class Fit(BaseEstimator):
    def __init__(self, budget=None, epsilon=0.1):
        self.budget = budget
        self.epsilon = epsilon


def full(epsilon, delta, gaussian=False):
    """A charge with the largest price of its (ε, δ), as that of an estimator."""
    return epsilon, delta, largest_price(epsilon, delta, gaussian=gaussian)


def accepted(budget, charges):
    """The charges that the budget accepts, of those requested one after another."""
    taken = []
    for charge in charges:
        try:
            budget.charge(*charge)
        except BudgetExceeded:
            continue
        taken.append(charge)
    return taken


@kinds
def test_a_refusal_states_what_is_left_and_charges_nothing(gaussian):
    budget = Budget(epsilon=1.0, delta=1e-5)
    first, second = full(0.7, 5e-6, gaussian), full(0.6, 4e-6, gaussian)
    budget.charge(*first)
    with pytest.raises(BudgetExceeded) as refusal:
        budget.charge(*full(0.9, 2e-6))
    spent = min(0.7, Price(first[2].rho).epsilon(1e-5))
    left = Price(WHOLE - first[2].rho, gaussian=True).epsilon(1e-5)  # a dense fit is the dearer
    message = str(refusal.value)
    assert "needs epsilon=0.9 at delta=2e-06" in message
    assert "the budget (epsilon=1, delta=1e-05) allows" in message
    assert f"one fit has spent epsilon={spent:.6g}" in message
    assert f"allows one more fit up to epsilon={left:.6g}" in message
    assert isinstance(refusal.value, RuntimeError)
    assert budget.n_charges == 1
    assert budget.spent_epsilon == pytest.approx(spent, rel=1e-12)
    with pytest.raises(BudgetExceeded):
        budget.charge(*full(left * (1 + 1e-6), 1e-5, True))
    budget.charge(*second)  # the refused fits took nothing away
    assert budget.n_charges == 2
    assert budget.spent_epsilon == pytest.approx(Price(first[2].rho + second[2].rho).epsilon(1e-5), rel=1e-9)


@kinds
def test_a_larger_delta_is_refused_or_costs_more(gaussian):
    budget = Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        budget.charge(*full(1.0, 1.1e-5, gaussian))
    assert budget.n_charges == 0
    counts = []
    for delta in (1e-8, 1e-6, 9e-6):  # the same ε is dearer at a larger δ, which allows less noise
        charge = full(0.3, delta, gaussian)
        counts.append(len(accepted(Budget(1.0, 1e-5), [charge] * 30)))
        assert counts[-1] == math.floor(WHOLE / charge[2].rho)
    assert counts[0] > counts[1] > counts[2]


@kinds
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.3, 1e-7), (0.1, 3e-6), (7.0, 1e-3)])
@pytest.mark.parametrize("parts", [2, 3, 10])
def test_more_fits_are_accepted_than_shares_of_the_total(epsilon, delta, parts, gaussian):
    """As many fits at ε/k and δ/k as their prices allow: at least k, and exactly the quotient of the prices."""
    budget = Budget(epsilon, delta)
    charge = full(epsilon / parts, delta / parts, gaussian)
    quotient = largest_price(epsilon, delta, gaussian=False).rho / charge[2].rho
    assert 1e-6 < quotient % 1 < 1 - 1e-6  # no rounding decides
    assert quotient > parts
    fits = math.floor(quotient)
    for _ in range(fits):
        budget.charge(*charge)
    assert budget.spent_epsilon == pytest.approx(Price(fits * charge[2].rho).epsilon(delta), rel=1e-9)
    assert budget.spent_epsilon <= epsilon
    with pytest.raises(BudgetExceeded):
        budget.charge(*charge)
    assert budget.n_charges == fits


# --------------------------------------------------------------------------------------------------- one rule for all


def test_a_dense_fit_of_the_whole_total_is_alone():
    """Accepted by its own (ε, δ), which the exact curve covers and zCDP does not. Nothing ever follows it."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    charge = full(1.0, 1e-5, gaussian=True)
    assert charge[2].rho > 1.05 * WHOLE
    budget.charge(*charge)
    assert budget.spent_epsilon == 1.0
    for tiny in ((1e-6, 1e-9, Price(1e-300)), full(1e-6, 1e-12, True)):
        with pytest.raises(BudgetExceeded, match="allows one more fit up to epsilon=0:"):
            budget.charge(*tiny)
    assert budget.n_charges == 1


@pytest.mark.parametrize("before", [(1e-6, 1e-9, Price(1e-300, gaussian=True)), full(1e-3, 1e-8)], ids=["no", "some"])
def test_a_dense_fit_after_another_is_priced_in_zcdp(before):
    """A fit of nearly the whole total: ε's and δ's add up to the total, and still it is refused."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    budget.charge(*before)
    dense = full(1.0 - before[0], 1e-5 - before[1], gaussian=True)
    assert dense[2].rho > WHOLE
    with pytest.raises(BudgetExceeded):
        budget.charge(*dense)
    room = WHOLE - before[2].rho
    with pytest.raises(BudgetExceeded):
        budget.charge(9.9, 1e-6, Price(room * (1 + 1e-6), gaussian=True))  # whatever ε it states
    budget.charge(9.9, 1e-6, Price(room * (1 - 1e-6), gaussian=True))
    assert budget.n_charges == 2
    assert 1 - 1e-5 < budget.spent_epsilon <= 1


def test_dense_fits_together_do_not_get_the_exact_curve():
    """Two dense fits that the exact curve would cover and zCDP does not: only one is accepted."""
    half = Price(largest_price(1.0, 1e-5, gaussian=True).rho / 2 * (1 - 1e-9), gaussian=True)
    assert gaussian_delta(math.sqrt(4 * half.rho), 1.0) <= 1e-5 < zcdp_delta(2 * half.rho, 1.0)
    assert len(accepted(Budget(1.0, 1e-5), [(half.epsilon(5e-6), 5e-6, half)] * 3)) == 1


charges = st.tuples(st.floats(0.01, 1.0), st.floats(1e-10, 1e-3), st.booleans()).map(lambda c: full(*c))


@settings(derandomize=True, deadline=None, database=None, max_examples=40)
@given(st.floats(0.1, 3.0), st.floats(1e-9, 1e-2), st.lists(charges, min_size=2, max_size=4))
def test_the_order_of_charges_does_not_matter(epsilon, delta, requested):
    """If two or more are accepted in one order, all of them are in every order."""
    taken = accepted(Budget(epsilon, delta), requested)
    if len(taken) < 2:
        return
    spent = set()
    for order in itertools.permutations(taken):
        budget = Budget(epsilon, delta)
        assert len(accepted(budget, order)) == len(taken)
        spent.add(budget.spent_epsilon)
    assert len(spent) == 1


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(st.floats(0.1, 5.0), st.floats(1e-9, 1e-2), st.lists(charges, max_size=15))
def test_accepted_charges_convert_to_the_total(epsilon, delta, requested):
    """The accepted charges are one fit within the total, or their prices together convert to it."""
    budget = Budget(epsilon, delta)
    taken = []
    for charge in requested:
        before = budget.spent_epsilon
        try:
            budget.charge(*charge)
        except BudgetExceeded:
            assert budget.spent_epsilon == before
        else:
            taken.append(charge)
            assert budget.spent_epsilon >= before * (1 - 1e-9)
    assert budget.n_charges == len(taken)
    alone = len(taken) == 1 and taken[0][0] <= epsilon * (1 + 1e-9) and taken[0][1] <= delta * (1 + 1e-9)
    assert alone or zcdp_delta(math.fsum(price.rho for _, _, price in taken), epsilon) <= delta
    assert budget.spent_epsilon <= epsilon * (1 + 1e-8)


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(st.floats(0.1, 5.0), st.floats(1e-9, 1e-2), st.floats(0.999, 1.0), st.floats(-300.0, 0.0))
def test_a_first_charge_beyond_the_zcdp_limit_is_never_followed(epsilon, delta, part, log_rho):
    """The step of the lemma that keeps the two ways of acceptance apart."""
    total, first = Total(epsilon, delta), Charge(*full(part * epsilon, delta, gaussian=True))
    assert zcdp_delta(first.price.rho, epsilon) > delta
    assert total.fits([first])
    small = Price(10**log_rho, gaussian=True)
    assert not total.fits([first, Charge(small.epsilon(1e-12) + 1e-9, 1e-12, small)])
    assert total.left([first], delta) == total.left([first], 1e-3 * delta) == 0


def test_against_an_accountant():
    """Sparse and dense fits until nothing more fits, composed by dp-accounting as zCDP and as Gaussian noise.

    Gaussian noise of price ρ is as bad as ρ-zCDP allows at every order, so its exact composition is a lower bound.
    """
    budget = Budget(epsilon=1.0, delta=1e-5)
    requested = [full(e, 1e-6, g) for e in (0.5, 0.4, 0.3, 0.2, 0.1, 0.05) for g in (True, False)]
    taken = accepted(budget, requested)
    assert 3 <= len(taken) < len(requested)
    accountant = rdp.RdpAccountant(orders=1 + np.exp(np.linspace(math.log(1e-4), math.log(1e6), 20_000)))
    exact = pld.PLDAccountant(value_discretization_interval=1e-4)
    for _, _, price in taken:
        accountant.compose(dp_accounting.ZCDpEvent(price.rho))
        exact.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * price.rho)))
    assert budget.spent_epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-5)
    assert 0.85 * budget.spent_epsilon < exact.get_epsilon(1e-5) <= budget.spent_epsilon
    assert exact.get_delta(1.0) <= accountant.get_delta(1.0) <= 1e-5


def test_an_infinite_total_refuses_nothing():
    budget = Budget(math.inf, 1e-5)
    for charge in ((math.inf, 1e-5, Price(math.inf)), full(1.0, 1e-5), (math.inf, 1e-5, Price(math.inf, True))):
        budget.charge(*charge)
    assert budget.n_charges == 3
    assert budget.spent_epsilon == math.inf


# ------------------------------------------------------------------------------------------------ one object, one count


def test_identity_survives_copies_and_clones():
    budget = Budget(1.0, 1e-5)
    assert copy.copy(budget) is budget
    assert copy.deepcopy(budget) is budget
    assert copy.deepcopy({"nested": [budget]})["nested"][0] is budget
    fit = Fit(budget=budget)
    for other in (clone(fit), clone(clone(fit)), copy.copy(fit), copy.deepcopy(fit)):
        assert other is not fit
        assert other.budget is budget
    clone(fit).budget.charge(*full(0.8, 1e-6))
    with pytest.raises(BudgetExceeded):
        fit.budget.charge(*full(0.8, 1e-6))
    assert budget.n_charges == 1


@pytest.mark.parametrize(("fits", "gaussian"), [("alone", True), (1, False), (7, True), (40, False)])
def test_threads_racing_for_the_last_charge(fits, gaussian):
    """200 threads, room for exactly ``fits``; the interpreter switches between them as often as it can."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    if fits == "alone":
        charge, fits = full(1.0, 1e-5, gaussian), 1
    else:
        price = Price(WHOLE / fits * (1 - 1e-9), gaussian)
        charge = (price.epsilon(1e-6), 1e-6, price)
    barrier = threading.Barrier(200)
    outcome: list[bool] = []

    def run():
        barrier.wait()
        try:
            budget.charge(*charge)
        except BudgetExceeded:
            outcome.append(False)
        else:
            outcome.append(True)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(outcome) == 200
    assert sum(outcome) == budget.n_charges == fits


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_is_refused_and_points_to_a_ledger(protocol):
    budget = Budget(1.0, 1e-5)
    for thing in (budget, Fit(budget=budget), [budget]):
        with pytest.raises(TypeError, match="ledger"):
            pickle.dumps(thing, protocol=protocol)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_copy_cannot_be_spent():
    """Each child could spend the whole budget, unseen by the parent."""
    budget = Budget(1.0, 1e-5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        message = "spent"
        try:
            budget.charge(*full(0.8, 1e-6))
        except RuntimeError as error:
            message = str(error)
        os.write(writing, message.encode())
        os._exit(0)
    os.close(writing)
    message = os.read(reading, 10_000).decode()
    os.close(reading)
    os.waitpid(child, 0)
    assert "belongs to another process" in message
    assert "dpem.Ledger" in message
    assert budget.n_charges == 0
    budget.charge(*full(0.8, 1e-6))  # here it is whole


@pytest.mark.parametrize("gaussian", [True, False])
def test_a_price_above_its_epsilon_and_delta_is_refused(gaussian):
    price = largest_price(0.5, 1e-5, gaussian=gaussian)
    assert Charge(0.5, 1e-5, price).price == price
    for epsilon, delta in ((0.499, 1e-5), (0.5, 9.9e-6)):
        with pytest.raises(ValueError, match="must convert to its epsilon and delta"):
            Charge(epsilon, delta, price)
        with pytest.raises(ValueError, match="must convert to its epsilon and delta"):
            Budget(9.0, 1e-3).charge(epsilon, delta, price)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan])
def test_bad_epsilon(epsilon):
    with pytest.raises(ValueError, match=f"epsilon of a Budget must be positive, got {epsilon}"):
        Budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 1.5, math.nan])
def test_bad_delta(delta):
    with pytest.raises(ValueError, match=f"delta of a Budget must lie strictly between 0 and 1, got {delta}"):
        Budget(1.0, delta)


def test_a_fresh_budget_and_its_repr():
    budget = Budget(2.0, 1e-5)
    assert budget.spent_epsilon == 0
    assert budget.n_charges == 0
    assert repr(budget) == "Budget(epsilon=2, delta=1e-05, spent=0 in 0 fit(s))"
    budget.charge(*full(0.5, 1e-5, gaussian=True))
    assert repr(budget) == "Budget(epsilon=2, delta=1e-05, spent=0.5 in 1 fit(s))"


@pytest.mark.parametrize("charge", [(-0.5, 1e-6, Price(0.001)), (0.1, -1e-6, Price(0.001)), (0.1, 1e-6, Price(-1.0))])
def test_negative_charges_are_refused(charge):
    budget = Budget(1.0, 1e-5)
    with pytest.raises(ValueError, match=r"negative|positive"):
        budget.charge(*charge)


@pytest.mark.parametrize("given", [{"epsilon": [73.5]}, {"delta": [73.5]}, {"rows_per_person": [73.5]}])
def test_a_table_given_by_mistake_is_not_quoted(given):
    with pytest.raises(ValueError, match="got a list") as refusal:
        Budget(**{"epsilon": 1.0, "delta": 1e-5} | given)
    assert "73.5" not in str(refusal.value)


@pytest.mark.parametrize("given", [{"epsilon": 10**5000}, {"rows_per_person": -(10**5000)}])
def test_an_integer_that_no_float_holds_is_refused(given):
    with pytest.raises(ValueError, match="got a int"):
        Budget(**{"epsilon": 1.0, "delta": 1e-5} | given)


def test_a_charge_alone_is_spent_at_its_own_epsilon_only_within_the_totals_delta():
    total = Total(1.0, 1e-5)
    alone = Charge(*full(0.5, 1e-5, gaussian=True))
    assert total.spent([alone]) == 0.5
    assert total.spent([alone, alone]) > 2**0.5 * 0.5
    loose = Charge(*full(0.5, 1e-3, gaussian=True))
    assert total.spent([loose]) > 0.5


def test_numbers_that_floating_point_lacks_are_refused():
    assert Total.checked("budget", 2**53, 1e-5, 1).epsilon == 2.0**53
    with pytest.raises(ValueError, match="epsilon of a budget must be positive"):
        Total.checked("budget", 2**53 + 1, 1e-5, 1)


def test_a_charge_protects_one_row_unless_it_says_more():
    assert Charge(0.5, 1e-6, Price(1e-3)).rows_per_person == 1
    with pytest.raises(BudgetExceeded, match="protects one row"):
        Budget(1.0, 1e-5, rows_per_person=2).charge(0.5, 1e-6, Price(1e-3))


@pytest.mark.parametrize("share", [0.9999, 1 - 1e-7])
def test_what_is_left_is_small_but_exact_when_nearly_all_is_spent(share):
    """And one more fit of that size is accepted, with either kind of noise."""
    total = Total(1.0, 1e-5)
    charges = [Charge(1.0, 1e-5, Price(share * WHOLE))]
    left = total.left(charges, 1e-5)
    assert 1e-6 < left < 0.05
    for gaussian in (False, True):
        assert total.fits([*charges, Charge(*full(left, 1e-5, gaussian))])
    assert not total.fits([*charges, Charge(*full(1.01 * left, 1e-5, True)), Charge(*full(0.01 * left, 1e-5))])
