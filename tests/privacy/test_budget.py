"""A budget shared by fits: never overdrawn, never copied, and it says what is left."""

import copy
import math
import pickle
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone

from dpem.privacy import Budget, BudgetExceeded, Price, largest_price
from dpem.privacy.accounting import total

#: A price that converts to nothing useful, so that only plain addition counts.
NO_PRICE = Price(math.inf)


class Fit(BaseEstimator):
    def __init__(self, budget=None, epsilon=0.1):
        self.budget = budget
        self.epsilon = epsilon


def test_refusal_says_asked_spent_and_left_and_charges_nothing():
    budget = Budget(epsilon=1.0, delta=1e-5)
    budget.debit(0.7, 5e-6, NO_PRICE)
    with pytest.raises(BudgetExceeded) as refusal:
        budget.debit(0.4, 2e-6, NO_PRICE)
    message = str(refusal.value)
    assert "asks for epsilon=0.4, delta=2e-06" in message
    assert "budget epsilon=1, delta=1e-05" in message
    assert "1 fit(s) have spent epsilon=0.7" in message
    assert "epsilon=0.3 is left" in message
    assert isinstance(refusal.value, RuntimeError)
    assert budget.n_charges == 1
    assert budget.spent_epsilon == pytest.approx(0.7)
    budget.debit(0.3, 2e-6, NO_PRICE)  # the refused fit took nothing away
    assert budget.n_charges == 2


def test_delta_is_spent_too():
    budget = Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        budget.debit(0.1, 1.1e-5, NO_PRICE)
    budget.debit(0.1, 6e-6, NO_PRICE)
    with pytest.raises(BudgetExceeded):
        budget.debit(0.1, 6e-6, NO_PRICE)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.3, 1e-7), (0.1, 3e-6), (7.0, 1e-3)])
@pytest.mark.parametrize("parts", [2, 3, 10])
def test_two_halves_fit_in_a_whole(epsilon, delta, parts):
    budget = Budget(epsilon, delta)
    for _ in range(parts):
        budget.debit(epsilon / parts, delta / parts, NO_PRICE)
    assert budget.spent_epsilon == pytest.approx(epsilon)
    with pytest.raises(BudgetExceeded):
        budget.debit(epsilon * 1e-3, delta * 1e-3, NO_PRICE)
    assert budget.n_charges == parts


def test_many_small_charges_beyond_plain_addition():
    """64 fits of a 64th of the price: their ε's add up to more than the budget, their zCDP prices do not."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    whole = largest_price(1.0, 1e-5, gaussian=False).rho
    price = Price(whole / 64 * (1 - 1e-9))
    epsilon = price.epsilon(1e-7)
    assert 64 * epsilon > 3.0
    for _ in range(64):
        budget.debit(epsilon, 1e-7, price)
    assert budget.spent_epsilon == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        budget.debit(epsilon, 1e-7, price)
    assert budget.n_charges == 64


def test_plain_addition_where_it_is_the_better():
    """A few expensive prices: conversion at the budget's δ would give more than the ε's added."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    price = largest_price(0.5, 5e-6, gaussian=False)
    budget.debit(0.5, 5e-6, price)
    assert budget.spent_epsilon <= 0.5
    dear = Price(10.0)  # a fit that states its ε by other means than zCDP
    budget.debit(0.5, 5e-6, dear)
    assert total([price, dear]).delta(1.0) > 1e-5
    assert budget.spent_epsilon == pytest.approx(1.0)


@settings(derandomize=True, deadline=None, database=None, max_examples=50)
@given(
    st.floats(0.1, 5.0),
    st.floats(1e-9, 1e-2),
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(1e-10, 1e-3)), max_size=15),
)
def test_never_overdrawn(epsilon, delta, asked):
    """Whatever is asked, what was accepted satisfies one of the two theorems, and no more than the budget is spent."""
    budget = Budget(epsilon, delta)
    accepted = []
    for e, d in asked:
        price = largest_price(e, d, gaussian=False)
        before = budget.spent_epsilon
        try:
            budget.debit(e, d, price)
        except BudgetExceeded:
            assert budget.spent_epsilon == before
        else:
            accepted.append((e, d, price))
            assert budget.spent_epsilon >= before * (1 - 1e-9)
    assert budget.n_charges == len(accepted)
    added = sum(e for e, _, _ in accepted) <= epsilon * (1 + 2e-9) and sum(d for _, d, _ in accepted) <= delta * (
        1 + 2e-9
    )
    assert added or total(p for _, _, p in accepted).delta(epsilon) <= delta * (1 + 1e-12)
    assert budget.spent_epsilon <= epsilon * (1 + 1e-8)


def test_identity_survives_copies_and_clones():
    budget = Budget(1.0, 1e-5)
    assert copy.copy(budget) is budget
    assert copy.deepcopy(budget) is budget
    assert copy.deepcopy({"nested": [budget]})["nested"][0] is budget
    fit = Fit(budget=budget)
    for other in (clone(fit), clone(clone(fit)), copy.copy(fit), copy.deepcopy(fit)):
        assert other is not fit
        assert other.budget is budget
    clone(fit).budget.debit(0.6, 1e-6, NO_PRICE)
    with pytest.raises(BudgetExceeded):
        fit.budget.debit(0.6, 1e-6, NO_PRICE)


@pytest.mark.parametrize("fits", [1, 7, 40])
@pytest.mark.parametrize("by", ["addition", "price"])
def test_threads_racing_for_the_last_charge(fits, by):
    """200 threads, room for exactly ``fits``; the interpreter switches between them as often as it can."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    if by == "addition":
        charge = (1.0 / fits, 1e-5 / fits, NO_PRICE)
    else:
        charge = (2.0, 1e-6, Price(largest_price(1.0, 1e-5, gaussian=False).rho / fits * (1 - 1e-9)))
    barrier = threading.Barrier(200)
    outcome: list[bool] = []

    def run():
        barrier.wait()
        try:
            budget.debit(*charge)
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
    budget.debit(0.5, 1e-6, NO_PRICE)
    assert repr(budget) == "Budget(epsilon=2, delta=1e-05, spent=0.5 in 1 fit(s))"


@pytest.mark.parametrize("charge", [(-0.5, 1e-6, Price(0.001)), (0.1, -1e-6, Price(0.001)), (0.1, 1e-6, Price(-1.0))])
def test_negative_charges_are_refused(charge):
    budget = Budget(1.0, 1e-5)
    with pytest.raises(ValueError, match=r"negative|positive"):
        budget.debit(*charge)
