"""Every engine computes the sums of the dense engine and keeps contributions within their bound for any row."""

from __future__ import annotations

import functools
import itertools
import math
import os
import subprocess
import sys
from importlib.util import find_spec

import array_api_strict
import numpy as np
import pytest
import wide_queries
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy import sparse
from together import together
from wide_queries import BETA, BRACKET, GMM, MISSING, C, T

from dpem.fitting.scaler import ColumnMoments
from dpem.paper.engine import engine_of
from dpem.paper.queries import Clip
from dpem.paper.sigma import CappedSquares, SizeHistogram
from dpem.query import BLOCK, Chunk
from dpem.tables import blocks

D = len(BETA)
DTYPES = together("dtype", [np.float32, np.float64])
#: A query of each kind, whether its rows have missing entries, and whether they have a response.
QUERIES = {
    **wide_queries.QUERIES,
    "gmm gradient at a dense beta": (GMM.gradient(np.full(D, 0.3), Clip(T)), False, False),
    "missing gradient at zero": (MISSING.gradient(np.zeros(D), Clip(T, C, BRACKET)), True, True),
    "sizes": (SizeHistogram(of_response=False), False, False),
    "sizes of responses": (SizeHistogram(of_response=True), False, True),
    "capped squares": (CappedSquares(of_response=False, cap=1.2), False, False),
    "column moments": (ColumnMoments(np.full(D, -2.0), np.full(D, 3.0)), True, False),
}
by_name = pytest.mark.parametrize("name", QUERIES)


def as_csr(X, y):
    return Chunk(sparse.csr_array(X), y)


def as_wide_csr(X, y):
    """The older class of sparse matrices, with int64 indices and read-only arrays."""
    rows = sparse.csr_matrix(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    for part in (rows.data, rows.indices, rows.indptr):
        part.flags.writeable = False
    return Chunk(rows, y)


def as_strict(X, y, device="CPU_DEVICE"):
    where = array_api_strict.Device(device)
    return Chunk(*(None if a is None else array_api_strict.asarray(a.copy(), device=where) for a in (X, y)))


def as_torch(X, y):
    import torch

    return Chunk(torch.from_numpy(X.copy()), None if y is None else torch.from_numpy(y.copy()))


KINDS = {
    "csr": as_csr,
    "csr, int64": as_wide_csr,
    "strict": as_strict,
    "strict, another device": functools.partial(as_strict, device="device1"),
}
if find_spec("torch") is not None:
    KINDS["torch"] = as_torch
by_kind = together("kind", KINDS)


def draw(name, n, dtype, zeros=0.6):
    """Rows with many zeros and some entries beyond the clips, and missing entries if the query has them."""
    _, has_missing, has_y = QUERIES[name]
    rng = np.random.default_rng(n)
    X = 1.3 * rng.standard_normal((n, D))
    X[rng.random(X.shape) < zeros] = 0.0
    if has_missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    return X.astype(dtype), 1.5 * rng.standard_normal(n) if has_y else None


@functools.cache
def dense_sums(name, n, dtype):
    """The sum of contributions and the sum of their sizes over the rows that ``draw`` gives, in float64."""
    query, (X, y) = QUERIES[name][0], draw(name, n, dtype)
    X = X.astype(float)
    each = [query.sum(Chunk(X[i : i + 1], None if y is None else y[i : i + 1])) for i in range(n)]
    return query.sum(Chunk(X, y)), np.sum(np.abs(each), axis=0)


def assert_same(name, total, X):
    """To 1e-12 of Σ|contribution| in float64; in float32, to (BLOCK + 3) roundings of it, and 20 of a ramp.

    The reference is the dense sum in float64 over the same rows: weights are computed in float64 by every engine here.
    """
    query = QUERIES[name][0]
    reference, size = dense_sums(name, len(X), X.dtype.type)
    u = float(np.finfo(np.float32).eps) / 2 if X.dtype == np.float32 and query.blocked else 0.0
    ramp = 20 * u * len(X) if name.endswith("screening") else 0.0
    assert total.dtype == np.float64
    assert total.shape == reference.shape
    assert isinstance(total, np.ndarray)
    assert np.all(np.abs(total - reference) <= 1e-12 * size + (BLOCK + 3) * u * size + ramp)


@by_kind
@by_name
@DTYPES
def test_sums_are_those_of_dense_rows(kind, name, dtype):
    for n in (1, 2 * BLOCK + 37):
        X, y = draw(name, n, dtype)
        assert_same(name, QUERIES[name][0].sum(KINDS[kind](X, y)), X)


@by_kind
@by_name
def test_no_rows_and_no_entries(kind, name):
    query, _, has_y = QUERIES[name]
    for X in (np.zeros((0, D)), np.zeros((5, D))):
        y = np.linspace(-2.0, 3.0, len(X)) if has_y else None
        np.testing.assert_allclose(query.sum(KINDS[kind](X, y)), query.sum(Chunk(X, y)), rtol=1e-12, atol=0)


@by_kind
@pytest.mark.parametrize("name", ["gmm gradient", "missing gradient", "mr on_support", "mr screening"])
def test_any_cut_gives_the_same_sum(kind, name):
    X, y = draw(name, 300, np.float64)
    query, convert = QUERIES[name][0], KINDS[kind]
    whole = query.sum(Chunk(X, y))

    @seed(1)
    @settings(max_examples=15, deadline=None, database=None)
    @given(st.lists(st.integers(0, 300), max_size=6))
    def holds(places):
        cuts = [0, *sorted(places), 300]
        parts = [query.sum(convert(X[a:b], None if y is None else y[a:b])) for a, b in itertools.pairwise(cuts)]
        np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-12, atol=1e-12 * 300)

    holds()


@by_kind
def test_any_pattern_of_zeros_gives_the_same_sum(kind):
    names = ["gmm gradient", "missing gradient", "missing on_support", "mr screening"]
    cell = st.sampled_from([0.0, 0.0, 0.0, -0.0, 1.0, -3.0, 0.25, math.nan])

    @seed(2)
    @settings(max_examples=25, deadline=None, database=None)
    @given(st.lists(st.lists(cell, min_size=D, max_size=D), min_size=1, max_size=6), st.sampled_from(names))
    def holds(rows, name):
        query, has_missing, has_y = QUERIES[name]
        X = np.array(rows)
        X = X if has_missing else np.nan_to_num(X)
        y = np.linspace(-1.0, 2.0, len(X)) if has_y else None
        np.testing.assert_allclose(query.sum(KINDS[kind](X, y)), query.sum(Chunk(X, y)), rtol=1e-12, atol=1e-14)

    holds()


@together("kind", [k for k in KINDS if "csr" not in k])
@DTYPES
def test_the_size_of_pieces_does_not_matter(monkeypatch, kind, dtype):
    """Pieces of one block each, with a remainder."""
    monkeypatch.setattr(blocks, "DEVICE_PIECE", 1)
    for name in QUERIES:
        X, y = draw(name, BLOCK + 3, dtype)
        assert_same(name, QUERIES[name][0].sum(KINDS[kind](X, y)), X)


# --- Bounds ---------------------------------------------------------------------------------------------------------

#: Rounding of a single contribution in float32: covered by the slack of a sum.
ROOM = 1 + 1e-6


def outliers(dtype, count=40):
    """Rows and responses of extreme numbers."""
    rng, tiny = np.random.default_rng(3), float(np.finfo(dtype).smallest_subnormal)
    big = 1e38 if dtype is np.float32 else 1e300
    values = [0.0, 1.0, -1.0, 0.3, 1e6, -1e6, big, -big, math.inf, -math.inf, math.nan, tiny, -tiny]
    X = rng.choice(values, (count, D))
    X[:13] = np.array(values)[:, None]
    return X.astype(dtype), rng.choice(values, count).astype(dtype)


@by_kind
@by_name
@DTYPES
def test_no_row_exceeds_the_bound(kind, name, dtype):
    query, _, has_y = QUERIES[name]
    bound = query.bound
    if math.isinf(bound.size_linf):
        return  # it promises nothing, and is never released
    X, y = outliers(dtype)
    one_by_one = [
        query.sum(KINDS[kind](X[i : i + 1], y[i : i + 1] if has_y else None)) for i in range(len(X) if has_y else 25)
    ]
    each = np.array(one_by_one)
    assert np.isfinite(each).all()
    assert np.max(np.abs(each)) <= bound.size_linf * ROOM
    assert np.max(np.linalg.norm(each, axis=1)) <= bound.size_l2 * ROOM
    gaps = each[:, None] - each[None]
    assert np.max(np.abs(gaps)) <= bound.linf * ROOM
    assert np.max(np.linalg.norm(gaps, axis=2)) <= bound.l2 * ROOM


def corrupt(data, indices, indptr, d=D):
    """A CSR matrix with invalid arrays, without SciPy's checks."""
    rows = sparse.csr_array((len(indptr) - 1, d))
    rows.data, rows.indices, rows.indptr = np.array(data), np.array(indices, np.int32), np.array(indptr, np.int32)
    return rows


@by_name
@pytest.mark.parametrize(
    "rows",
    [
        corrupt([9.0] * 6, [1, 1, 1, 1, 1, 1], [0, 6]),  # one column six times: six clipped products
        corrupt([9.0] * 4, [3, 1, 3, 1], [0, 4]),
        corrupt([9.0, 9.0], [3, 1], [0, 2]),
    ],
    ids=["a column again and again", "two columns twice", "out of order"],
)
def test_a_column_stored_twice_does_not_count_twice(name, rows):
    query, _, has_y = QUERIES[name]
    total = query.sum(Chunk(rows, np.array([5.0]) if has_y else None))
    if math.isfinite(query.bound.size_linf):
        assert np.max(np.abs(total)) <= query.bound.size_linf * ROOM
        assert np.linalg.norm(total) <= query.bound.size_l2 * ROOM


@pytest.mark.parametrize("name", ["gmm gradient", "missing gradient", "mr on_support", "mr screening"])
@pytest.mark.parametrize(
    ("indices", "indptr"), [([0, 10**6], [0, 2]), ([-5, 1], [0, 2]), ([0, 1], [0, 10**6]), ([0, 1], [2, 0])]
)
def test_a_row_that_points_outside_adds_nothing(name, indices, indptr):
    query, _, has_y = QUERIES[name]
    total = query.sum(Chunk(corrupt([9.0, 9.0], indices, indptr), np.array([5.0]) if has_y else None))
    np.testing.assert_array_equal(total, 0.0)


@together("rows", [[[1.0, 2.0]], "rows", None])
def test_other_kinds_of_rows_are_refused(rows):
    with pytest.raises(ValueError, match="X must be a numpy array, a SciPy CSR matrix or an array with the array API"):
        engine_of(rows)


# --- Fused kernels, interpreted ---------------------------------------------------------------------------------------

FUSED = """
import numpy as np, torch, sys
sys.path[:0] = {folders!r}
import test_engines as t
from array_api_compat import array_namespace
from dpem.paper.engine import triton_columns as fused

for dtype in (np.float32, np.float64):
    for name, (query, _, has_y) in t.QUERIES.items():
        if not query.blocked:
            continue
        for n in (1, t.BLOCK + 5)[dtype is np.float64 :]:
            X, y = t.draw(name, n, dtype)
            chunk = t.as_torch(X, y)
            padded = torch.zeros((2 * n, t.D + 3), dtype=chunk.X.dtype)[::2, : t.D]  # a stride that is no width
            padded.copy_(chunk.X)
            engine = fused.FusedEngine(array_namespace(padded), fused.Tile(columns=16, rows=64, blocks=2))
            t.assert_same(name, engine.total(query, t.Chunk(padded, chunk.y)), X)
        X, y = t.outliers(dtype, 13)
        for i in (6, 8, 10):  # a huge number, infinity, not a number
            chunk = t.as_torch(X[i : i + 1], y[i : i + 1] if has_y else None)
            total = engine.total(query, chunk)
            assert np.isfinite(total).all() and np.abs(total).max() <= query.bound.size_linf * t.ROOM, (name, i)
"""


if find_spec("torch") is not None and find_spec("triton") is not None:  # make test-torch

    def test_fused_kernels_give_the_same_sums():
        code = FUSED.format(folders=[os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))])
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
