"""Rows in memory: the total is the sum, however it is cut, and rounding moves it by no more than the slack."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpem.paper.models import SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.query import BLOCK, Bound, Chunk
from dpem.tables import ArraySource
from dpem.tables import array as array_module
from dpem.tables.blocks import float_below

BETA = np.array([0.7, -0.4, 0.0])


class PlainSum:
    """A query that adds unclipped rows in float64 and in order, so that only the source's arithmetic is tested."""

    label = "plain sum"
    bound = Bound.symmetric(linf=1.0)
    blocked = False

    def __init__(self):
        self.lengths = []

    def sum(self, chunk):
        self.lengths.append(len(chunk.X))
        return np.array([math.fsum(column) for column in np.asarray(chunk.X, dtype=float).T])


def exact(contributions):
    """The correctly rounded sum of each column."""
    return np.array([math.fsum(column) for column in contributions.T])


def weighted_rows(n, rng):
    """Rows near the centre of one component, so that contributions do not cancel, and these contributions."""
    X = BETA + 0.3 * rng.standard_normal((n, 3))
    T = 1.2
    return X, SymmetricMixture(0.8).gradient(BETA, Clip(T)), np.tanh(X @ BETA / 0.64)[:, None] * np.clip(X, -T, T)


@pytest.mark.parametrize("n", [1, 255, 10_001, array_module.CHUNK_ROWS + 1, 150_000])
def test_total_is_the_exact_sum(n):
    X, query, contributions = weighted_rows(n, np.random.default_rng(1))
    total = ArraySource(X).total(query)
    # The third column has no coefficient and cancels; relative to Σ|·|, then, as are all sums that cancel.
    np.testing.assert_allclose(total[:2], exact(contributions)[:2], rtol=1e-12)
    assert np.all(np.abs(total - exact(contributions)) <= 1e-12 * np.abs(contributions).sum(axis=0))


def test_total_of_regressions_pairs_rows_with_their_responses(monkeypatch):
    """Rows and responses have the same chunk boundaries."""
    monkeypatch.setattr(array_module, "CHUNK_ROWS", 100)
    rng = np.random.default_rng(2)
    X = rng.standard_normal((1_234, 3))
    y = 2.0 * np.abs(X @ BETA) + 0.1 * rng.standard_normal(1_234)
    fitted = X @ BETA
    contributions = np.clip(np.tanh(y * fitted / 0.64) * y - fitted, -0.5, 0.5)[:, None] * np.clip(X, -1.0, 1.0)
    total = ArraySource(X, y).total(SymmetricRegression(0.8).gradient(BETA, Clip(1.0, 0.5)))
    assert np.all(np.abs(total - exact(contributions)) <= 1e-12 * np.abs(contributions).sum(axis=0))
    shuffled = ArraySource(X, y[::-1].copy()).total(SymmetricRegression(0.8).gradient(BETA, Clip(1.0, 0.5)))
    assert np.max(np.abs(shuffled - total)) > 1.0


@pytest.mark.parametrize("rows", [7, 100, 256, 4096, 10_000, 10_001])
def test_a_total_does_not_depend_on_the_chunks(monkeypatch, rows):
    X, query, contributions = weighted_rows(10_001, np.random.default_rng(3))
    whole = ArraySource(X).total(query)
    monkeypatch.setattr(array_module, "CHUNK_ROWS", rows)
    cut = ArraySource(X).total(query)
    assert np.all(np.abs(cut - whole) <= 1e-12 * np.abs(contributions).sum(axis=0))
    plain = PlainSum()
    ArraySource(X).total(plain)
    expected = [min(rows, 10_001 - first) for first in range(0, 10_001, rows)]
    assert sorted(plain.lengths) == sorted(expected)  # threads share the chunks


def test_chunks_are_added_with_compensation(monkeypatch):
    """Partial sums of 1e16 that cancel: plain float64 loses the ones, compensation keeps them."""
    monkeypatch.setattr(array_module, "CHUNK_ROWS", 1)
    X = np.array([[1.0, 1e16], [1e16, 1.0], [1.0, 1.0], [-1e16, 1.0], [1.0, -1e16]])
    naive = np.zeros(2)
    for row in X:
        naive = naive + row
    assert not np.any(naive == 3.0)
    np.testing.assert_array_equal(ArraySource(X).total(PlainSum()), [3.0, 3.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "parts"), [(10, 1), (10, 3), (100, 7), (7, 7), (5_000, 16)])
def test_split_is_disjoint_and_covers_all_rows_without_a_copy(n, parts, dtype):
    X = np.arange(2 * n, dtype=dtype).reshape(n, 2)
    y = np.arange(n, dtype=dtype)
    batches = ArraySource(X, y).split(parts)
    assert len(batches) == parts
    rows, responses = [], []
    for batch in batches:
        for chunk in batch.chunks():
            assert np.shares_memory(chunk.X, X)
            assert np.shares_memory(chunk.y, y)
            assert chunk.X.dtype == dtype
            np.testing.assert_array_equal(chunk.X[:, 0], 2 * chunk.y)  # a row keeps its response
            rows += chunk.X[:, 0].tolist()
            responses += chunk.y.tolist()
    assert sorted(rows) == X[:, 0].tolist()  # each row once: no row twice, none lost
    assert sorted(responses) == y.tolist()
    for one, other in itertools.combinations(batches, 2):
        for a, b in itertools.product(one.chunks(), other.chunks()):
            assert not np.shares_memory(a.X, b.X)
    sizes = [batch.n_rows for batch in batches]
    assert sum(sizes) == n
    assert max(sizes) - min(sizes) <= 1
    assert {batch.n_features for batch in batches} == {2}


def test_batches_of_a_sorted_table_cover_its_whole_range():
    """Not only a part of it."""
    X = np.sort(np.random.default_rng(6).standard_normal((1_000, 1)), axis=0)
    means = [float(next(iter(batch.chunks())).X.mean()) for batch in ArraySource(X).split(10)]
    assert max(means) - min(means) < 0.1


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (2_000, 3)])
def test_repr_hides_values(shape):
    source = ArraySource(np.full(shape, 7123.25), np.full(shape[0], -918273.5))
    for text in (repr(source), str(source), f"{source}", repr(source.split(2))):
        assert "7123" not in text
        assert "918273" not in text
    assert f"{shape[0]} rows" in repr(source)


# --- Slack: what rounding may add to a record's influence -------------------------------------------------------------

#: One coefficient on the first column: a row (10, v) has weight 1, so that v is added as it is, clipped to ±T.
FIRST = np.array([1.0, 0.0])
LEVEL = 0.9


def as_rows(values, dtype):
    """Rows of the Gaussian mixture that contribute exactly ``values`` in their second coordinate."""
    return np.column_stack([np.full(len(values), 10.0), values]).astype(dtype)


def signed(n, rng, kind):
    """n values within the clip level whose partial sums are large, and mostly cancel."""
    values = float(float_below(LEVEL, np.dtype(np.float32))) * rng.uniform(0.5, 1.0, n)
    if kind == "block":  # up for half of a block, down for the other half
        values *= np.where(np.arange(n) % BLOCK < BLOCK // 2, 1, -1)
    elif kind == "halves":  # up for half of the rows
        values *= np.where(np.arange(n) < n // 2, 1, -1)
    return values


def test_naive_float32_addition_would_break_the_slack():
    """The test above can fail: the same rows added one after the other in float32, without blocks, exceed the bound.

    A sum of 6·10⁵ is a multiple of 1/16 in float32, and so is every change of it.
    """
    rng = np.random.default_rng(8)
    query = SymmetricMixture(1.0).gradient(FIRST, Clip(LEVEL))
    worst_naive = worst = 0.0
    for _ in range(8):
        X = as_rows(signed(1_000_000, rng, "same sign"), np.float32)
        source = ArraySource(X)
        naive, ours = [], []
        for sign in (1, -1):
            X[0, 1] = sign * float_below(LEVEL, X.dtype)  # the first row: all additions after it round differently
            naive.append(float(np.cumsum(X[:, 1], dtype=np.float32)[-1]))
            ours.append(float(source.total(query)[1]))
        worst_naive = max(worst_naive, abs(naive[0] - naive[1]))
        worst = max(worst, abs(ours[0] - ours[1]))
    allowed = query.bound.linf + source.slack(query) * query.bound.size_linf
    assert worst_naive > allowed
    assert worst <= allowed
    # The error of the whole sum: each block of ours may err by half a slack (it is stated for two tables), the naive
    # one errs by more than all blocks together.
    truth = math.fsum(X[:, 1].astype(float))
    blocks = source.n_rows / BLOCK
    assert abs(float(np.cumsum(X[:, 1], dtype=np.float32)[-1]) - truth) > source.slack(query) / 2 * blocks
    assert abs(float(source.total(query)[1]) - truth) <= source.slack(query) / 2 * blocks


def test_slack_grows_with_the_rounding_unit_and_the_rows():
    model = SymmetricMixture(1.0)
    blocked, unblocked = model.gradient(FIRST, Clip(1.0)), model.on_support(FIRST, np.arange(2), 1.0)
    short, long = np.zeros((1_000, 2)), np.zeros((200_000, 2))
    single, double = (ArraySource(short.astype(kind)) for kind in (np.float32, np.float64))
    assert 0 < double.slack(blocked) < double.slack(unblocked) < single.slack(blocked) < 0.02
    assert single.slack(unblocked) == double.slack(unblocked)  # added in float64 whatever the rows are
    assert double.slack(blocked) < ArraySource(long).slack(blocked) < 1e-6
    # At least the first-order error of one block: 2·(m − 1)·u·m for two neighbours.
    assert single.slack(blocked) >= 2 * (BLOCK - 1) * BLOCK * float(np.finfo(np.float32).eps) / 2


def test_a_source_neither_copies_nor_converts_its_array():
    """A change of the array is a change of the source, and float32 stays float32."""
    X = np.zeros((4, 2), dtype=np.float32)
    source = ArraySource(X)
    (chunk,) = source.chunks()
    assert isinstance(chunk, Chunk)
    assert np.shares_memory(chunk.X, X)
    assert chunk.X.dtype == np.float32
    assert chunk.y is None
    X[2, 1] = 3.0
    np.testing.assert_array_equal(source.total(PlainSum()), [0.0, 3.0])
    assert (source.n_rows, source.n_features) == (4, 2)
