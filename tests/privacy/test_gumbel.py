"""The sampler of selection: intervals hold their number, ties are refined, the law is the exponential mechanism's."""

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from dpem.privacy import gumbel

FALSE_ALARM = 1e-6  # of each chi-square test; the bits are injected, so the outcome is the same in every run
SCORES = np.array([0.0, 0.5, 1.5, 2.0])


def softmax(u):
    e = np.exp(u - np.max(u))
    return e / e.sum()


@pytest.mark.parametrize("score", [0.0, -3.25, 1e-300, 17.0, 1e17, -1e200])
def test_float_intervals_hold_the_exact_ones(score):
    """Ends of the line, powers of two, neighbours of both, and random bit strings."""
    rng = np.random.default_rng(0)
    edges = [0, 1, 2, 3, 2**11, 2**52, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2**11, 2**64 - 2, 2**64 - 1]
    bits = np.array([*edges, *rng.integers(0, 2**64, size=200, dtype=np.uint64).tolist()], dtype=np.uint64)
    low, high = gumbel._intervals(np.full(len(bits), score), bits)
    for m, left, right in zip(bits.tolist(), low.tolist(), high.tolist(), strict=True):
        exact_left, exact_right = gumbel._decimal_interval(score, m, 64)
        assert Decimal(left) <= exact_left <= exact_right <= Decimal(right)


def test_float_intervals_are_narrow_where_winners_are():
    """The winner of d coordinates has V near 1/d, where intervals are a few roundings wide, so ties are rare."""
    bits = (np.arange(1, 1000, dtype=np.float64) * 2.0**64 / 1e6).astype(np.uint64)
    low, high = gumbel._intervals(np.zeros(len(bits)), bits)
    assert np.max(high - low) < 1e-12


@pytest.mark.parametrize(("m", "length"), [(1, 64), (2**63 + 12345, 64), (2**128 - 2, 128)])
def test_the_ends_of_an_interval_are_moved_outwards(m, length):
    low, high = gumbel._decimal_interval(0.25, m, length)
    with localcontext() as context:
        context.prec = 600
        ends = [Decimal("0.25") - (-((1 - Decimal(at) / 2**length).ln())).ln() for at in (m + 1, m)]
        assert low < ends[0]
        assert ends[1] < high


@pytest.mark.parametrize(("first", "k", "draws"), [(2, 2, 1500), (8, 2, 2500), (64, 2, 5000)])
def test_selection_has_the_right_distribution_with_few_and_many_bits(first, k, draws, monkeypatch):
    """With two bits at first, most draws are refined; the distribution of the winners must be the same."""
    monkeypatch.setattr(gumbel, "FIRST_BITS", first)
    monkeypatch.setattr(gumbel, "MORE_BITS", 8)
    refined = []
    plain = gumbel._refine
    monkeypatch.setattr(gumbel, "_refine", lambda *a: refined.append(1) or plain(*a))
    seen = [tuple(gumbel.top_k(SCORES, k).tolist()) for _ in range(draws)]
    law = {}
    for order in itertools.permutations(range(4), k):
        left = [[j for j in range(4) if j not in order[:place]] for place in range(k)]
        law[order] = math.prod(softmax(SCORES[rest])[rest.index(j)] for j, rest in zip(order, left, strict=True))
    expected = np.array(list(law.values())) * draws
    assert expected.min() > 10
    assert stats.chisquare([seen.count(order) for order in law], expected).pvalue > FALSE_ALARM
    assert (len(refined) / draws > 0.5) if first == 2 else True
    assert (len(refined) / draws < 0.01) if first == 64 else True


def test_equal_huge_scores_are_still_distinguished():
    """At 1e18 a float cannot hold the noise: only refinement can order them, and evenly."""
    seen = [int(gumbel.top_k(np.full(2, 1e18), 1)[0]) for _ in range(400)]
    assert stats.binomtest(sum(seen), 400).pvalue > FALSE_ALARM


def test_ties_behind_a_clear_winner_are_broken_too(monkeypatch):
    """One order in all of 60 draws has probability 2⁻⁵⁹."""
    monkeypatch.setattr(gumbel, "FIRST_BITS", 2)
    monkeypatch.setattr(gumbel, "_random_bits", lambda count: np.ones(count, dtype=np.uint64))
    seen = {tuple(gumbel.top_k(np.array([50.0, 0.0, 0.0]), 3).tolist()) for _ in range(60)}
    assert seen == {(0, 1, 2), (0, 2, 1)}


def test_selecting_all_returns_them_in_order():
    order = gumbel.top_k(np.array([0.0, 200.0, 100.0]), 3)  # gaps of 100: another order has probability e^-100
    assert order.tolist() == [1, 2, 0]
    assert order.dtype == np.intp


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_must_be_finite(bad):
    with pytest.raises(ValueError, match="finite"):
        gumbel.top_k(np.array([0.0, bad]), 1)


@pytest.mark.real_noise
def test_bits_come_from_the_operating_system(monkeypatch):
    """Two strings of 64 × 64 bits are equal with probability 2⁻⁴⁰⁹⁶."""
    assert not np.array_equal(gumbel._random_bits(64), gumbel._random_bits(64))
    sizes = []
    monkeypatch.setattr(gumbel.os, "urandom", lambda count: sizes.append(count) or bytes(count))
    gumbel._random_bits(64)
    assert sizes == [8 * 64]
