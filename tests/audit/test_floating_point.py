"""Floating point: the low bits of released numbers reveal nothing, and rounding stays within the slack.

*Grids.* OpenDP documents that noise for floats is drawn on the multiples of 2^k, exactly, and that k is by default the
finest there is, 2^-1074; the sum with the statistic is then rounded once. So the grid of a release is all floats: near
0 an answer has all its fine bits, whatever the statistic was. A float sum of a statistic near 1 and float noise has
not: it is a multiple of 2^-53 wherever it lands. That is Mironov's attack (2012), and the test for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import array_api_strict
import numpy as np
import opendp.prelude as dp
import pytest
from scipy import sparse, stats
from together import together

from dpem._threads import thread_limit
from dpem.fitting.scaler import ColumnMoments
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.paper.sigma import CappedSquares, SizeHistogram
from dpem.privacy import Account, Curator, PrivateNoise, SeededNoise, gumbel
from dpem.query import BLOCK, Query
from dpem.tables import ArraySource, ChunkedSource
from dpem.tables.array import DeviceSource
from dpem.tables.sparse import SparseSource
from studies.paper.baselines.robust import RobustGradient

#: Chance that a test about random numbers fails although nothing is wrong, for each of its decisions.
FALSE_ALARM = 1e-8


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with thread_limit(1):
        yield


# --- Noise ------------------------------------------------------------------------------------------------------------


def finest_bit(value: float) -> int:
    """The largest k such that the number is a whole multiple of 2^k.

    >>> finest_bit(0.75), finest_bit(-12.0)
    (-2, 2)
    """
    numerator, denominator = value.as_integer_ratio()
    return (numerator & -numerator).bit_length() - denominator.bit_length()


def draws(noise: Any, kind: str, value: float, scale: float, count: int) -> Any:
    statistic = np.full(count, value)
    if kind == "laplace":
        return noise.laplace(statistic, scale)
    return noise.gaussian(statistic, scale, scale, rho=1.0)


KINDS = pytest.mark.parametrize("kind", ["gaussian", "laplace"])


@pytest.mark.real_noise
@pytest.mark.parametrize("k", [-30, -12, 3])
@KINDS
def test_a_grid_is_seen_where_there_is_one(kind, k):
    """With a given k, every answer is a whole multiple of 2^k, whatever the statistic.

    It fails by chance if no answer of 300 is an odd multiple, or if their spread is a tenth of what it should be: less
    than 2⁻²⁰⁰ each.
    """
    make, metric = {
        "gaussian": (dp.m.make_gaussian, dp.l2_distance(T=float)),
        "laplace": (dp.m.make_laplace, dp.l1_distance(T=float)),
    }[kind]
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=300), metric
    mechanism = make(*space, scale=100.0, k=k)
    answers = np.asarray(mechanism(np.full(300, math.pi)))
    assert min(finest_bit(float(answer)) for answer in answers if answer) == k
    assert answers.std() > 10


@pytest.mark.real_noise
@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e6, 1e300, 5e-324], ids=str)
@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e7, 1e-300], ids=str)
@KINDS
def test_private_answers_are_finite_and_on_the_grid(kind, scale, value):
    answers = draws(PrivateNoise(), kind, value, scale, 50)
    assert np.isfinite(answers).all()
    assert all(finest_bit(float(answer)) >= -1074 for answer in answers if answer)
    assert np.max(np.abs(answers - value)) <= 60 * scale + 1e-15 * abs(value)  # Laplace: 50·e^−60 < 1e-24


def odd_low_bits(noise: Any, kind: str, value: float, count: int = 4000) -> tuple[int, int]:
    """Of the answers in [1/4, 1/2), how many are odd multiples of 2^-54, the finest bit that a float has there."""
    answers = draws(noise, kind, value, 1.0, count)
    near = answers[(np.abs(answers) >= 0.25) & (np.abs(answers) < 0.5)]
    return int(np.sum(np.abs(np.ldexp(near, 54)) % 2 == 1)), len(near)


def distinguished(noise: Any, kind: str) -> bool:
    """Whether the low bits of the answers to the neighbouring statistics 0 and 1, at scale 1, are not coin tosses."""
    sides = [odd_low_bits(noise, kind, value) for value in (0.0, 1.0, -1.0)]
    assert all(n > 150 for _, n in sides)
    return any(stats.binomtest(odd, n, 0.5).pvalue < FALSE_ALARM for odd, n in sides)


@pytest.mark.real_noise
@KINDS
def test_low_bits_of_private_noise_reveal_nothing(kind):
    """False-alarm rate: three binomial tests at 1e-8 each."""
    assert not distinguished(PrivateNoise(), kind)


@KINDS
def test_low_bits_of_numpy_noise_give_the_statistic_away(kind):
    """The test can fail: with NumPy's noise an odd multiple of 2^-54 is impossible for 1, and half of the answers for
    0.
    """
    noise = SeededNoise(0)
    assert distinguished(noise, kind)
    assert odd_low_bits(noise, kind, 1.0)[0] == 0
    odd, near = odd_low_bits(noise, kind, 0.0)
    assert odd > 0.3 * near


@pytest.mark.real_noise
def test_answers_of_a_curator_have_all_their_bits():
    """As fits use it: the trailing four bits of the mantissa are uniform (chi-square, at 1e-8)."""
    source = ArraySource(np.ones((50, 1000)))
    query = SymmetricMixture(1.0).gradient(np.zeros(1000), Clip(1.0))
    answers = Curator(source, Account(1e6, 1e-5), PrivateNoise()).measure(query, rho=0.5)
    mantissas = np.ldexp(np.abs(np.frexp(answers)[0]), 53).astype(np.int64)
    counts = np.bincount(mantissas % 16, minlength=16)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


def exact_order(scores: Any, bits: Any, k: int) -> list[int]:
    """The first k positions by the middle of each coordinate's interval, in decimals of many digits."""
    middles = []
    for score, m in zip(scores, bits, strict=True):
        low, high = gumbel._decimal_interval(float(score), int(m), 64)
        middles.append((low + high) / 2 if high.is_finite() and low.is_finite() else Decimal("-Infinity"))
    return sorted(range(len(middles)), key=lambda j: middles[j], reverse=True)[:k]


@pytest.mark.parametrize("shift", [0.0, 1e15, -1e15, 1e-300], ids=str)
def test_selection_depends_on_the_scores_through_the_exact_sampler_alone(shift, monkeypatch):
    """With known random bits, the positions are those of exact arithmetic, also if scores differ in the last bit.

    At 1e15 a float sum of score and noise keeps three bits of the noise; exact arithmetic keeps them all.
    """
    rng = np.random.default_rng(3)
    differs = 0
    for _ in range(60):
        scores = shift + rng.standard_normal(12)
        scores[1::2] = np.nextafter(scores[::2], math.inf)
        bits = rng.integers(0, 2**64, size=12, dtype=np.uint64)
        monkeypatch.setattr(gumbel, "_random_bits", lambda count, bits=bits: bits)
        chosen = gumbel.top_k(scores, 4).tolist()
        assert chosen == exact_order(scores, bits, 4)
        rounded = scores - np.log(-np.log1p(-(bits.astype(float) * 2.0**-64)))
        differs += chosen != np.argsort(-rounded, kind="stable")[:4].tolist()
    if abs(shift) == 1e15:
        assert differs >= 5  # teeth: rounded sums would have chosen others


# --- Sums -------------------------------------------------------------------------------------------------------------

BETA = np.array([0.7, -0.4, 0.0])
T = 0.9
SUPPORT = np.arange(3)
LOW, HIGH = np.full(3, -2.0), np.full(3, 3.0)

QUERIES: dict[str, Query] = {
    "gmm gradient": SymmetricMixture(0.8).gradient(BETA, Clip(T)),
    "gmm on_support": SymmetricMixture(0.8).on_support(BETA, SUPPORT, 0.7),
    "gmm screening": SymmetricMixture(0.8).screening(1.0, 2),
    "gmm moments": SymmetricMixture(0.8).moments(SUPPORT, 0.9, 1.0),
    "mr gradient": SymmetricRegression(0.8).gradient(BETA, Clip(T, 0.7)),
    "mr truncated": SymmetricRegression(0.8).truncated(BETA, T),
    "mr on_support": SymmetricRegression(0.8).on_support(BETA, SUPPORT, 0.7),
    "mr screening": SymmetricRegression(0.8).screening(1.0, 2),
    "mr moments": SymmetricRegression(0.8).moments(SUPPORT, 0.9, 1.0),
    "missing gradient": MissingRegression(0.8).gradient(BETA, Clip(T, 0.7, 1.1)),
    "missing on_support": MissingRegression(0.8).on_support(BETA, SUPPORT, 0.7),
    "missing truncated": MissingRegression(0.8).truncated(BETA, T),
    "robust gradient": RobustGradient(SymmetricRegression(0.8), BETA, scale=1.5, smoothing=2.0),
    "scaler": ColumnMoments(LOW, HIGH),
    "sigma, histogram": SizeHistogram(of_response=False),
    "sigma of y, histogram": SizeHistogram(of_response=True),
    "sigma": CappedSquares(of_response=False, cap=1.3),
    "sigma of y": CappedSquares(of_response=True, cap=1.3),
}
DTYPES = together("dtype", [np.float32, np.float64])

Values = Callable[[Any, tuple[int, int], np.dtype], Any]


def _cancelling(rng: Any, shape: tuple[int, int], dtype: Any) -> Any:
    values = rng.uniform(0.5, 1.0, shape)
    values[1::2] = -values[: 2 * (shape[0] // 2) : 2]
    return values


#: Entries that are hard on sums: sizes at the ends of the type, pairs that cancel, values at a clip's edge.
HARD: dict[str, Values] = {
    "ordinary": lambda rng, shape, dtype: rng.standard_normal(shape),
    "huge": lambda rng, shape, dtype: (
        rng.choice([-1, 1], shape) * float(np.finfo(dtype).max) * rng.uniform(0.3, 1, shape)
    ),
    "tiny": lambda rng, shape, dtype: float(np.finfo(dtype).tiny) * rng.standard_normal(shape),
    "subnormal": lambda rng, shape, dtype: float(np.finfo(dtype).smallest_subnormal) * rng.integers(-9, 9, shape),
    "cancelling": _cancelling,
    "alternating": lambda rng, shape, dtype: T * (-1.0) ** np.arange(shape[0])[:, None] * rng.uniform(0.9, 1.1, shape),
    "at the clip": lambda rng, shape, dtype: np.nextafter(dtype(T), rng.choice([-9, 9], shape).astype(dtype)),
    "one sign": lambda rng, shape, dtype: T * rng.uniform(0.5, 1.0, shape),
    "all sizes": lambda rng, shape, dtype: rng.choice([-1, 1], shape) * 10.0 ** rng.uniform(-35, 35, shape),
}


def table(kind: str, n: int, dtype: Any, rng: Any) -> tuple[Any, Any]:
    return HARD[kind](rng, (n, 3), dtype).astype(dtype), HARD[kind](rng, (n, 1), dtype)[:, 0].astype(dtype)


def worst_rows(dtype: Any) -> Iterator[tuple[Any, float]]:
    """Rows that replace one: at the ends of every clip in both directions, and empty."""
    big = float(np.finfo(dtype).max)
    for y in (5.0, -5.0, big, 0.0):
        yield np.zeros(3, dtype=dtype), y
        for size, signs in itertools.product((5.0, big), ((1, 1, 1), (-1, -1, -1), (1, -1, 1), (1, -1, -1))):
            yield size * np.array(signs, dtype=dtype), y


def changes(query: Query, X: Any, y: Any, i: int) -> Iterator[Any]:
    """Totals of the table with row i replaced."""
    before = X[i].copy(), y[i]
    for row, response in worst_rows(X.dtype.type):
        X[i], y[i] = row, response
        yield ArraySource(X, y).total(query)
    X[i], y[i] = before


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, Any], dict[str, float]]:
    """For each query and dtype, over all hard tables: the largest change of a total between neighbours and the largest
    rounding error of one block, each in units of what is allowed, and the largest change in units of the bare bound.
    """
    rng, found = np.random.default_rng(11), {}
    for (name, query), dtype in itertools.product(QUERIES.items(), (np.float32, np.float64)):
        worst = {"change": 0.0, "rounding": 0.0, "bare": 0.0}
        for kind in HARD:
            X, y = table(kind, 2 * BLOCK + 41, dtype, rng)
            totals = np.array(list(changes(query, X, y, i=int(rng.integers(BLOCK)))))
            slack, bound = ArraySource(X, y).slack(query), query.bound
            gaps = np.abs(totals[:, None] - totals[None])
            worst["change"] = max(worst["change"], gaps.max() / (bound.linf + slack * bound.size_linf))
            worst["bare"] = max(worst["bare"], gaps.max() / bound.linf)
            if math.isfinite(bound.l2):
                longest = np.sqrt(np.square(gaps).sum(axis=2)).max()
                worst["change"] = max(worst["change"], longest / (bound.l2 + slack * bound.size_l2))
            if kind in ("huge", "cancelling", "at the clip", "one sign"):
                worst["rounding"] = max(worst["rounding"], rounding(query, X[:BLOCK], y[:BLOCK]))
        found[name, dtype] = worst
    return found


def rounding(query: Query, X: Any, y: Any) -> float:
    """The error of a block's total against the exact sum of its rows' contributions, in units of half the slack (which
    is stated for two tables).
    """
    source = ArraySource(X, y)
    each = np.array([ArraySource(X[i : i + 1], y[i : i + 1]).total(query) for i in range(len(X))])
    exact = np.array([math.fsum(column) for column in each.T])
    assert np.isfinite(each).all()
    error = float(np.max(np.abs(source.total(query) - exact)))
    return error / (source.slack(query) / 2 * query.bound.size_linf)


@DTYPES
@pytest.mark.parametrize("name", QUERIES)
def test_no_neighbour_moves_a_total_beyond_bound_and_slack(name, dtype, measured):
    assert 0.05 < measured[name, dtype]["change"] <= 1.0


@DTYPES
@pytest.mark.parametrize("name", QUERIES)
def test_rounding_of_a_block_is_within_the_slack(name, dtype, measured):
    assert measured[name, dtype]["rounding"] <= 1.0


def test_without_slack_float32_breaks_the_bound(measured):
    """Teeth: were nothing added for rounding, some of these tables would move a total beyond its bound."""
    broken = [name for name in QUERIES if measured[name, np.float32]["bare"] > 1.0]
    assert "gmm gradient" in broken
    assert all(measured[name, np.float32]["bare"] < 1.001 for name in QUERIES)  # and the slack's price is small


# --- Every engine -----------------------------------------------------------------------------------------------------

ENGINES: dict[str, Callable[[Any, Any], ChunkedSource]] = {
    "rows": ArraySource,
    "columns": lambda X, y: ArraySource(np.asfortranarray(X), y),
    "CSR": lambda X, y: SparseSource(sparse.csr_array(X), y),
    "array API": lambda X, y: DeviceSource(array_api_strict.asarray(X), array_api_strict.asarray(y)),
}


def test_robust_gradient_does_not_warn_about_a_row():
    """A warning that depends on a row reveals it. (The other queries are seen not to warn above.)"""
    query = RobustGradient(SymmetricRegression(0.8), BETA, scale=0.7, smoothing=2.0)
    X = np.full((2, 3), np.finfo(float).max)
    ArraySource(X, np.full(2, -np.finfo(float).max)).total(query)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "CSR"])
def test_a_clip_beyond_float32_does_not_overflow(engine):
    """|a| ≤ 1e25 and |x| ≤ 1e25 promise 1e50, which float32 has not: the sum must be finite, or refused beforehand."""
    query = SymmetricRegression(1.0).truncated(np.array([1.0, 0.0, 0.0]), 1e25)
    X, y = np.full((20, 3), 1e25, dtype=np.float32), np.full(20, -1e30)
    source = ENGINES[engine](X, y)
    assert math.isinf(source.slack(query)) or np.isfinite(source.total(query)).all()
