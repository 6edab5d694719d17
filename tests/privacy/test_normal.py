"""The sampler of Gaussian noise: intervals hold their number, doubt is refined, sums are rounded once."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpem.privacy import normal

FALSE_ALARM = 1e-6  # of each test of a law; the bits are injected, so the outcome is the same in every run
EDGES = [0, 1, 2, 3, 2**11, 2**52, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2**11, 2**64 - 2, 2**64 - 1]


def strings(seed: int, count: int) -> np.ndarray:
    """Ends of the line, powers of two, neighbours of both, and random strings."""
    rng = np.random.default_rng(seed)
    return np.array([*EDGES, *rng.integers(0, 2**64, count, dtype=np.uint64).tolist()], dtype=np.uint64)


def decided(V, W, X):
    """Of the unit interval's point of each string: k, and whether it is kept, in decimals."""
    with localcontext() as context:
        context.prec = 60
        k = int(-2 * (Decimal(V) / 2**64).ln())
        x = Decimal(X) / 2**64
        return k, -2 * (Decimal(W) / 2**64).ln() > k * (k - 1) + x * (2 * k + x)


def test_float_intervals_hold_the_exact_ones():
    bits = strings(0, 200)
    low, high = normal._exponential(bits)
    with localcontext() as context:
        context.prec = 60
        for m, left, right in zip(bits.tolist(), low.tolist(), high.tolist(), strict=True):
            least, most = (-2 * (Decimal(end) / 2**64).ln() for end in (m + 1, m))
            assert Decimal(left) <= least
            assert most <= Decimal(right)


def test_what_is_decided_in_floats_is_so_at_both_ends():
    """Neighbouring strings that are sure agree with decimals, and next to nothing is unsure."""
    rng = np.random.default_rng(1)
    V, W, X = (rng.permutation(strings(seed, 3000)) for seed in (2, 3, 4))
    k, kept, unsure = normal._decided(V, W, X)
    sure = np.flatnonzero(~unsure)
    assert len(sure) > len(V) - 2 * len(EDGES)
    for i in sure[:400]:
        for more in (0, 1):
            v, w, x = (min(max(int(m[i]) + more, 1), 2**64 - 1) for m in (V, W, X))
            assert decided(v, w, x) == (k[i], kept[i])


def test_strings_that_leave_it_open_are_refined(monkeypatch):
    """−2 ln V = 1 and −2 ln W = k(k − 1) + X(2k + X) lie between the ends: the bits that follow decide."""
    half = math.floor(Decimal("-0.5").exp() * 2**64)
    _, _, unsure = normal._decided(*(np.array([m], dtype=np.uint64) for m in (half, 2**62, 2**62)))
    assert unsure[0]
    outcomes = set()
    for follow in (0, 2**64 - 1):
        monkeypatch.setattr(normal, "_more_bits", lambda follow=follow: follow)
        k, _, length = normal._refined(half, 2**20, 2**62)
        outcomes.add((k, length))
    assert outcomes == {(0, 128), (1, 128)}  # the larger V has the smaller k
    assert normal._refined(half, 2**63, 2**63) is not None  # X² = .25 < −2 ln ½


def test_a_string_of_zeros_is_refined(monkeypatch):
    """The end 0 has no logarithm; the next bits decide."""
    monkeypatch.setattr(normal, "_more_bits", lambda: 2**63)
    assert normal._refined(0, 0, 2**63) is None  # k = 90
    assert normal._refined(2**63, 0, 2**63) == (1, 2**63, 64)


@pytest.mark.parametrize(("bits", "draws"), [(3, 3000), (6, 4000), (64, 20_000)])
def test_the_law_with_few_bits_and_many(bits, draws, monkeypatch):
    """With three bits at first nearly every draw is refined; the law must not notice."""
    monkeypatch.setattr(normal, "BITS", bits)
    refined = []
    plain = normal._refined
    monkeypatch.setattr(normal, "_refined", lambda *strings: refined.append(1) or plain(*strings))
    drawn = normal.with_noise(np.zeros(draws), 0.7) / 0.7
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > FALSE_ALARM
    assert stats.kstest(drawn**2, stats.chi2(1).cdf).pvalue > FALSE_ALARM
    assert abs(np.mean(drawn[1:] * drawn[:-1])) < 5 / math.sqrt(draws)
    assert (len(refined) > draws / 2) if bits == 3 else True
    assert (len(refined) == 0) if bits == 64 else True


def test_the_law_would_be_noticed_if_wrong():
    drawn = normal.with_noise(np.zeros(20_000), 1.1)
    assert stats.kstest(drawn, stats.norm.cdf).pvalue < FALSE_ALARM


@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e6, 1e300, 5e-324, -math.pi], ids=str)
@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e7, 1e-300, math.e * 1e-5], ids=str)
def test_a_release_is_the_nearest_float(value, scale, monkeypatch):
    """No float is nearer to the exact sum, which further bits of the noise would not change."""
    monkeypatch.setattr(normal, "_more_bits", lambda: 2**63)
    rng = np.random.default_rng(7)
    numerator, denominator = scale.as_integer_ratio()
    for sign in (1, -1):
        for _ in range(50):
            k, x = int(rng.integers(4)), int(rng.integers(2**62))
            answer = normal._nearest(value, sign * numerator, denominator, k, x, 64)
            size = k + Fraction(x, 2**64) + Fraction(1, 2**65)  # zeros follow one further bit
            exact = Fraction(value) + sign * Fraction(scale) * size
            off = abs(Fraction(answer) - exact)
            for other in (math.nextafter(answer, way) for way in (math.inf, -math.inf)):
                assert off <= abs(Fraction(other) - exact) + Fraction(scale) / 2**63


def test_ends_that_round_apart_draw_more_bits(monkeypatch):
    """1 + 2⁻⁵³·X with X next to one half of the gap between two floats: the next bits decide."""
    answers = []
    for follow in (2**63 - 1, 2**63 + 1):
        monkeypatch.setattr(normal, "_more_bits", lambda follow=follow: follow)
        answers.append(normal._nearest(1.0, 1, 2**52, 0, 2**63 - (follow < 2**63), 64))
    assert answers == [1.0, 1.0 + 2.0**-52]


@pytest.mark.real_noise
def test_bits_come_from_the_operating_system(monkeypatch):
    """Two strings of 64 × 64 bits are equal with probability 2⁻⁴⁰⁹⁶."""
    assert not np.array_equal(normal._random_bits(64), normal._random_bits(64))
    sizes = []
    monkeypatch.setattr(normal.os, "urandom", lambda count: sizes.append(count) or bytes(count))
    normal._random_bits(64)
    assert sizes == [8 * 64]
