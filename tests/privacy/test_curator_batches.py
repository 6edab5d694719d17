"""Batches of a table: a row pays in one of them, and prices of a mix are those of the dearest batch."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_curator import QUERIES, Sum, Watched, curator, rows

from dpem.privacy import BudgetExceeded, Price, Release, total_price
from dpem.privacy.accounting import gaussian_delta, largest_price, zcdp_delta


def test_disjoint_batches_cost_one_batch():
    source = Watched(rows())
    c = curator(source, gaussian=True)
    parts = c.split(4)
    assert [p.n_rows for p in parts] == [25, 25, 25, 25]
    assert all(p.account is c.account for p in parts)
    whole = largest_price(1.0, 1e-5, gaussian=True).rho
    for part in parts:
        part.measure(Sum(), 0.9 * whole)
    assert [r.batch for r in c.account.releases] == [0, 1, 2, 3]
    assert total_price(c.account.releases) == Price(0.9 * whole, gaussian=True)
    with pytest.raises(BudgetExceeded):  # the same batch again adds
        parts[2].measure(Sum(), 0.2 * whole)
    with pytest.raises(BudgetExceeded):  # and so does the whole table
        c.measure(Sum(), 0.2 * whole)
    assert len(source.queried) == 4
    # a batch's sensitivity is of its own mean
    assert parts[0].sensitivity(Sum(), "l2") == pytest.approx(4 * c.sensitivity(Sum(), "l2"), rel=1e-9)


def test_total_price_of_a_mix():
    def release(rho, batch=None, gaussian=False):
        return Release("q", "m", Price(rho, gaussian), 1.0, 1.0, 10, batch)

    assert total_price([]).rho == 0
    assert total_price([release(0.1), release(0.2)]).rho == pytest.approx(0.3)
    mix = [release(0.1), release(0.5, 0), release(0.2, 1), release(0.4, 1), release(0.05, 2)]
    assert total_price(mix).rho == pytest.approx(0.1 + 0.6)
    exact = [release(0.1, None, True), release(0.5, 0, True), release(0.6, 1, True)]
    assert total_price(exact) == Price(pytest.approx(0.7), gaussian=True)


def test_a_gaussian_batch_does_not_hide_a_slightly_cheaper_other_one():
    """ρ = 0.0499 without the exact curve is worth a larger δ than ρ = 0.05 with it."""
    gaussian = Release("q", "Gaussian", Price(0.05, gaussian=True), 1.0, 1.0, 10, 0)
    other = Release("q", "Gumbel", Price(0.0499), 1.0, 1.0, 10, 1)
    assert gaussian_delta(math.sqrt(0.1), 1.0) < zcdp_delta(0.0499, 1.0)
    assert total_price([gaussian, other]).delta(1.0) >= total_price([other]).delta(1.0)


def test_a_batch_cannot_be_split_again():
    part = curator().split(2)[0]
    with pytest.raises(ValueError, match="cannot be split again"):
        part.split(2)


def test_two_different_splits_of_a_table_are_not_disjoint():
    """Row 3 is in batch 1 of 2 and in batch 0 of 3: it pays twice, or the second split is refused."""
    c = curator(gaussian=True)
    rho = 0.9 * largest_price(1.0, 1e-5, gaussian=True).rho
    c.split(2)[1].measure(Sum(), rho)
    with pytest.raises((BudgetExceeded, ValueError)):
        c.split(3)[0].measure(Sum(), rho)


@settings(derandomize=True, deadline=None, database=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(QUERIES)), st.none() | st.integers(0, 2), st.floats(1e-4, 0.05)), max_size=12
    ),
    st.floats(0.1, 3.0),
    st.floats(1e-8, 1e-2),
    st.booleans(),
)
def test_whatever_is_queried_the_total_stays_within_epsilon_and_delta(queried, epsilon, delta, gaussian):
    """Recomputed by hand: per record, the whole table's releases and one batch's, on the curve that was declared."""
    source = Watched(rows())
    c = curator(source, epsilon=epsilon, delta=delta, gaussian=gaussian)
    parts = c.split(3)
    refused = 0
    for kind, batch, rho in queried:
        refusal = ValueError if gaussian and kind != "measure" else BudgetExceeded
        try:
            QUERIES[kind](c if batch is None else parts[batch], rho)
        except refusal:
            refused += 1
        else:
            assert refusal is BudgetExceeded
    releases = c.account.releases
    assert len(source.queried) == len(releases) == len(queried) - refused
    for batch in range(3):
        paid = math.fsum(r.price.rho for r in releases if r.batch in (None, batch))
        honest = gaussian_delta(math.sqrt(2 * paid), epsilon) if gaussian else zcdp_delta(paid, epsilon)
        assert honest <= delta * (1 + 2e-9)
