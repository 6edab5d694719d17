"""Queries about sizes: no row changes them by more than the bound, and some row reaches it."""

import math

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from dpem.fitting.scaler import ColumnMoments
from dpem.paper.sigma import EDGES, CappedSquares, SizeHistogram
from dpem.query import Chunk

NAN = math.nan
D = 4
BIG = {np.float32: float(np.float32(1e38)), np.float64: 1e300}
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
ROOM = 1 + 1e-12
MOMENTS = ColumnMoments(np.array([-1.0, 0.0, -50.0, 1e-3]), np.array([1.0, 7.0, 50.0, 2e-3]))
#: Query, and pairs of rows (row, response) of which one reaches each of its bounds.
CASES = {
    "histogram of rows": (SizeHistogram(False), [([0.0] * D, 0.0), ([1.0] * D, 0.0)]),
    "histogram of responses": (SizeHistogram(True), [([0.0] * D, 0.0), ([0.0] * D, 5.0)]),
    "squares of rows": (CappedSquares(False, 1.7), [([0.0] * D, 9.0), ([1e6] * D, 9.0)]),
    "squares of responses": (CappedSquares(True, 0.3), [([1.0] * D, 0.0), ([1.0] * D, -1e6)]),
    "column moments": (MOMENTS, [([1e6] * D, 0.0), ([-1e6] * D, 0.0), ([NAN] * D, 0.0)]),
}
for_each_query = pytest.mark.parametrize("name", CASES)


def contribution(query, row, response, dtype=np.float64):
    return query.sum(Chunk(np.array([row], dtype=dtype), np.array([response], dtype=dtype)))


def distance(a, b, norm):
    return float(np.max(np.abs(a - b))) if norm == "linf" else float(np.linalg.norm(a - b))


def check(query, contributions):
    bound = query.bound
    for i, a in enumerate(contributions):
        assert np.isfinite(a).all()
        for norm, size in (("linf", bound.size_linf), ("l2", bound.size_l2)):
            assert distance(a, 0.0, norm) <= size * ROOM
            for b in contributions[:i]:
                assert distance(a, b, norm) <= getattr(bound, norm) * ROOM


def pool(dtype):
    """Zeros, outliers, missing and infinite entries, alone and mixed, and random rows of all sizes."""
    rng, big = np.random.default_rng(5), BIG[dtype]
    special = [0.0, -0.0, 1.0, -1.0, 1e-3, 1e6, big, -big, 1 / big, NAN, math.inf, -math.inf]
    rows = [np.full(D, value) for value in special]
    rows += list(rng.choice(special, (20, D)))
    rows += list(rng.standard_normal((20, D)) * 10.0 ** rng.uniform(-6, 6, (20, 1)))
    return [(row, rng.choice(special)) for row in rows] + [(np.ones(D), value) for value in special]


@for_each_query
@DTYPES
def test_no_pair_of_the_pool_exceeds_the_bound(name, dtype):
    """Outliers cause no warning either, which would reveal them (warnings are errors here)."""
    query, extremes = CASES[name]
    check(query, [contribution(query, *record, dtype) for record in [*pool(dtype), *extremes]])


@for_each_query
@DTYPES
def test_no_record_exceeds_the_bound(name, dtype):
    query, _ = CASES[name]
    big, width = BIG[dtype], 32 if dtype is np.float32 else 64
    entry = st.sampled_from([0.0, 1.0, -1.0, 7.0, big, -big, NAN]) | st.floats(-big, big, width=width)
    record = st.tuples(st.lists(entry | st.floats(-4.0, 8.0), min_size=D, max_size=D), entry)

    @seed(20)
    @settings(max_examples=100, deadline=None, database=None)
    @given(record, record)
    def holds(one, other):
        check(query, [contribution(query, *one, dtype), contribution(query, *other, dtype)])

    holds()


@for_each_query
@DTYPES
def test_constructed_rows_reach_the_bounds(name, dtype):
    """At least 90 % of each of the four, so that none can be lowered by much."""
    query, extremes = CASES[name]
    sums = [contribution(query, *record, dtype) for record in extremes]
    for norm in ("linf", "l2"):
        assert max(distance(a, b, norm) for a in sums for b in sums) >= 0.9 * getattr(query.bound, norm)
        assert max(distance(a, 0.0, norm) for a in sums) >= 0.9 * getattr(query.bound, f"size_{norm}")


@for_each_query
@DTYPES
def test_a_sum_is_the_sum_of_its_rows(name, dtype):
    """Also across the pieces in which long tables are read; bounds are stated for single rows."""
    query, _ = CASES[name]
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((5000, D)) * 10.0 ** rng.uniform(-3, 3, (5000, 1))).astype(dtype)
    X[rng.random(X.shape) < 0.05] = NAN
    y = rng.standard_normal(5000).astype(dtype)
    rows = [query.sum(Chunk(X[i : i + 1], y[i : i + 1])) for i in range(5000)]
    np.testing.assert_allclose(query.sum(Chunk(X, y)), np.sum(rows, axis=0), rtol=1e-9, atol=1e-9)


class TestSizeHistogram:
    @pytest.mark.parametrize("of_response", [False, True])
    def test_a_row_is_counted_once_in_the_bin_of_its_size(self, of_response):
        query = SizeHistogram(of_response)
        for size in [0.0, 1e-20, 0.7, 1.0, 3.0, 1e6, 1e11, 1e12, 1e20, 1e300]:
            counts = contribution(query, [size, -size] * (D // 2), -size)
            assert counts.shape == (len(EDGES) + 1,)
            (place,) = np.flatnonzero(counts)
            assert counts[place] == 1
            assert place == len(EDGES) or size <= EDGES[place] * (1 + 1e-12)
            assert place == 0 or size > EDGES[place - 1] * (1 - 1e-12)

    def test_rows_and_responses_are_not_confused(self):
        rows, responses = (contribution(SizeHistogram(of), [1.5] * D, 100.0) for of in (False, True))
        assert np.argmax(rows) == np.searchsorted(EDGES, 1.5)
        assert np.argmax(responses) == np.searchsorted(EDGES, 100.0)


class TestColumnMoments:
    def test_what_is_summed(self):
        query = ColumnMoments(np.array([0.0, -1.0]), np.array([10.0, 1.0]))
        X = np.array([[7.5, NAN], [-99.0, 0.5], [5.0, 0.1]])
        expected = [0.5 - 1.0, 0.6, 1.5 * 1.25, 1.5 * (0.25 + 0.01), 0.85 * 3, 0.85 * 2]
        np.testing.assert_allclose(query.sum(Chunk(X, None)), expected, rtol=1e-12)

    def test_opposite_ends_in_all_columns_reach_the_l2_bound_exactly(self):
        a, b = (contribution(MOMENTS, end, 0.0) for end in (MOMENTS.low, MOMENTS.high))
        assert distance(a, b, "l2") == pytest.approx(MOMENTS.bound.l2, rel=1e-9)

    def widest(self, factor, points=801):
        """The largest squared distance of two entries of one column, over a grid and missing, with Σ factor·u²."""
        u = np.linspace(-1.0, 1.0, points)
        entries = np.column_stack([u, factor * u**2, np.full(points, 0.85)])
        entries = np.vstack([entries, np.zeros(3)])
        return max(float(np.max(np.sum((entries - one) ** 2, axis=1))) for one in entries)

    def test_no_pair_of_entries_is_further_apart_than_the_lemma_says(self):
        """The query itself, one column, on a grid with both ends, the middle and missing."""
        query = ColumnMoments(np.array([-1.0]), np.array([1.0]))
        grid = [*np.linspace(-1.0, 1.0, 401), NAN]
        sums = np.array([contribution(query, [u], 0.0) for u in grid])
        furthest = max(float(np.max(np.sum((sums - one) ** 2, axis=1))) for one in sums)
        assert furthest == pytest.approx(4.0, abs=1e-12)
        assert furthest == pytest.approx(self.widest(1.5, 401), rel=1e-12)

    def test_narrow_bounds_and_far_entries_cause_no_warning(self):
        """The quotient overflows; a warning would reveal the row."""
        query = ColumnMoments(np.array([1e-9, -1.7e308]), np.array([2e-9, -1.6e308]))
        for row in ([1.7e308, 1.7e308], [-1.7e308, -1.7e308]):
            got = contribution(query, row, 0.0)
            np.testing.assert_allclose(got[2:], [1.5, 1.5, 0.85, 0.85])
            assert abs(got[0]) == 1.0
