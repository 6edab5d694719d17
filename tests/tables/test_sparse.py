"""Sparse rows: the totals of the same table stored dense, without copies, whatever the order of the entries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy import sparse

from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.query import BLOCK
from dpem.tables import ArraySource
from dpem.tables import sparse as sparse_module
from dpem.tables.base import slack
from dpem.tables.sparse import SparseSource

BETA = np.array([0.7, -0.4, 0.0, 0.0, 0.5])  # clip levels are exact in float32
SUPPORT = np.array([0, 1, 4])
QUERIES = {
    "gmm gradient": SymmetricMixture(0.8).gradient(BETA, Clip(0.75)),
    "gmm support": SymmetricMixture(0.8).on_support(BETA, SUPPORT, 0.7),
    "mr screening": SymmetricRegression(0.8).screening(1.0, 2),
    "mr moments": SymmetricRegression(0.8).moments(SUPPORT, 0.9, 1.0),
    "missing gradient": MissingRegression(0.8).gradient(BETA, Clip(0.75, 0.5, 1.25)),
}


def table(n, dtype=np.float64, zeros=0.6, missing=False):
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, 5))
    X[rng.random(X.shape) < zeros] = 0.0
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    return X.astype(dtype), rng.standard_normal(n)


@pytest.mark.parametrize("name", QUERIES)
def test_totals_are_those_of_dense_rows_however_they_are_cut(monkeypatch, name):
    X, y = table(700, missing=name.startswith("missing"))
    expected = ArraySource(X, y).total(QUERIES[name])
    rows = sparse.csr_array(X)
    for length in (1_000, 256, 99, 1):
        monkeypatch.setattr(sparse_module, "LONG_CHUNK_ROWS", length)
        monkeypatch.setattr(sparse_module, "CHUNK_ROWS", length)
        np.testing.assert_allclose(SparseSource(rows, y).total(QUERIES[name]), expected, rtol=1e-12, atol=1e-12 * 700)


@pytest.mark.parametrize("name", QUERIES)
def test_float32_rows_are_added_in_float64(name):
    X, y = table(700, np.float32, missing=name.startswith("missing"))
    source = SparseSource(sparse.csr_array(X), y)
    exact = ArraySource(X.astype(float), y).total(QUERIES[name])
    np.testing.assert_allclose(source.total(QUERIES[name]), exact, rtol=1e-12, atol=1e-12 * 700)
    assert source.dtype == np.float32


def test_batches_are_disjoint_cover_all_rows_and_can_be_split_again(monkeypatch):
    monkeypatch.setattr(sparse_module, "CHUNK_ROWS", 4)
    n = 53
    X = sparse.csr_array(np.column_stack([np.arange(1.0, n + 1), np.zeros(n)]))
    source = SparseSource(X, np.arange(1.0, n + 1))

    def rows(batch):
        found = []
        for chunk in batch.chunks():
            assert chunk.X.shape[0] <= 4
            np.testing.assert_array_equal(chunk.X.toarray()[:, 0], chunk.y)  # a row keeps its response
            found += chunk.y.tolist()
        assert len(found) == batch.n_rows
        return found

    for parts in (1, 2, 7, n):
        batches = source.split(parts)
        assert [rows(b) for b in batches] == [list(np.arange(1.0, n + 1)[t::parts]) for t in range(parts)]
    twice = [rows(inner) for outer in source.split(3) for inner in outer.split(2)]
    assert sorted(itertools.chain(*twice)) == list(np.arange(1.0, n + 1))


def test_chunks_share_the_entries(monkeypatch):
    monkeypatch.setattr(sparse_module, "CHUNK_ROWS", 7)
    X = sparse.csr_array(table(40)[0])
    chunks = list(SparseSource(X).chunks())
    assert [c.X.shape[0] for c in chunks] == [7] * 5 + [5]
    assert all(np.shares_memory(c.X.data, X.data) and np.shares_memory(c.X.indices, X.indices) for c in chunks)
    np.testing.assert_array_equal(np.concatenate([c.X.toarray() for c in chunks]), X.toarray())


def shuffled(X, twice, rng):
    """The table as CSR with entries out of order; with ``twice``, each entry is stored as two that add up to it."""
    coordinates = sparse.coo_array(X)
    order = rng.permutation(coordinates.nnz)
    i, j, v = coordinates.coords[0][order], coordinates.coords[1][order], coordinates.data[order]
    if twice:
        i, j, v = np.tile(i, 2), np.tile(j, 2), np.concatenate([v - 0.5, np.full(len(v), 0.5)])
    by_row = np.argsort(i, kind="stable")
    pointers = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=X.shape[0]))]).astype(np.int32)
    return sparse.csr_array((v[by_row], j[by_row].astype(np.int32), pointers), shape=X.shape)


@pytest.mark.parametrize("twice", [False, True], ids=["out of order", "stored twice"])
@pytest.mark.parametrize("lie", [False, True], ids=["honest flags", "lying flags"])
def test_entries_out_of_order_or_stored_twice_are_put_right_on_a_copy(twice, lie):
    X, y = table(60)
    X = np.round(4 * X) / 4  # so that adding the halves is exact
    rows = shuffled(X, twice, np.random.default_rng(7))
    if lie:
        rows.has_sorted_indices = rows.has_canonical_format = True
    before = rows.indices.copy()
    source = SparseSource(rows, y)
    np.testing.assert_array_equal(rows.indices, before)
    for query in QUERIES.values():
        np.testing.assert_allclose(source.total(query), ArraySource(X, y).total(query), rtol=1e-12, atol=1e-12 * 60)


def test_a_table_in_order_is_not_copied_and_may_be_read_only():
    rows = sparse.csr_array(table(20)[0])
    for part in (rows.data, rows.indices, rows.indptr):
        part.flags.writeable = False
    source = SparseSource(rows)
    (chunk,) = source.chunks()
    assert np.shares_memory(chunk.X.data, rows.data)
    source.total(QUERIES["gmm gradient"])


def test_unordered_indices_are_detected_in_random_patterns():
    """Random index arrays with empty rows: an ordered one is not copied, another becomes an ordered copy."""

    def in_order(rows):
        return all(a < b for row in rows for a, b in itertools.pairwise(row))

    @seed(8)
    @settings(max_examples=200, deadline=None, database=None)
    @given(st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=5))
    def holds(rows):
        indices = np.array(list(itertools.chain(*rows)), dtype=np.int32)
        pointers = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int32)
        X = sparse.csr_array((np.ones(len(indices)), indices, pointers), shape=(len(rows), 5))
        found = sparse_module._canonical(X)
        assert not len(indices) or np.shares_memory(found.data, X.data) == in_order(rows)
        assert in_order(np.split(found.indices, found.indptr[1:-1]))
        assert (found.toarray() == X.toarray()).all()

    holds()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (sparse.csc_array(np.eye(3)), "X must be a SciPy matrix in CSR format .* got csc format"),
        (np.eye(3), "X must be a SciPy matrix in CSR format .* got ndarray"),
        (sparse.csr_array(np.eye(3, dtype=int)), "X must hold float32 or float64, got int64"),
        (sparse.csr_array(np.eye(3, dtype=np.complex128)), "X must hold float32 or float64, got complex128"),
    ],
    ids=["csc", "dense", "whole numbers", "complex"],
)
def test_other_tables_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        SparseSource(X)


@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_a_table_that_points_outside_is_refused(part):
    X = sparse.csr_array(np.eye(3))
    setattr(X, part, getattr(X, part) + 9)
    with pytest.raises(ValueError, match="X must be a valid CSR matrix"):
        SparseSource(X)


def test_repr_hides_values():
    source = SparseSource(sparse.csr_array(np.full((4, 2), 7123.25)), np.full(4, -918273.5))
    for text in (repr(source), str(source.split(2))):
        assert "7123" not in text
        assert "918273" not in text
    assert "4 rows" in repr(source)


# --- Slack ----------------------------------------------------------------------------------------------------------


def test_slack_is_that_of_sums_in_float64():
    X = sparse.csr_array(table(3_000)[0])
    narrow, wide = SparseSource(X.astype(np.float32)), SparseSource(X)
    n, roundoff = 3_000, 2.0**-53
    for query in QUERIES.values():
        regrouped = 0 if query.blocked else 2 * 2**16 * n
        lemma = (6 * ((n + 3 + 2 * (n / 256 + 1)) * n + 3 * n) + regrouped) * roundoff
        assert narrow.slack(query) == wide.slack(query) == pytest.approx(lemma, rel=1e-12)
        assert wide.slack(query) >= slack(query, 3_000, np.dtype(np.float64))


def test_change_between_neighbours_is_within_bound_and_slack():
    """Neighbours that store different numbers of entries, hence are divided into different tasks."""
    rng = np.random.default_rng(9)
    X = 5.0 * rng.standard_normal((10 * BLOCK, 5))
    y = 5.0 * rng.standard_normal(len(X))
    for query in QUERIES.values():
        totals = []
        for value in (0.0, 1e5, -1e5, 0.3):
            X[BLOCK - 1] = value
            source = SparseSource(sparse.csr_array(X), y)
            totals.append(source.total(query))
        allowed = source.slack(query)
        for a, b in itertools.combinations(totals, 2):
            assert np.max(np.abs(a - b)) <= query.bound.linf + allowed * query.bound.size_linf
            if math.isfinite(query.bound.l2):
                assert np.linalg.norm(a - b) <= query.bound.l2 + allowed * query.bound.size_l2
