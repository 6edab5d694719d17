"""The narrow loop gives the same sums for every kind of rows, however they lie and however many threads add them."""

from __future__ import annotations

import array_api_strict
import dask
import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info

from dpem._threads import single_blas, thread_limit
from dpem.fitting.surrogate import ScoreQuery
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.queries import block_loop as narrow
from dpem.query import Chunk
from dpem.tables.dask import DaskSource
from dpem.tables.schema import Schema

N, D, K = 5_000, 6, 3
READ = np.array([5, 1, 2])


def query_of(kind):
    names = [f"x{j}" for j in range(D)]
    schema = Schema.of(names, dict.fromkeys(names, (-3.0, 3.0)), {}).take(READ)
    shape = np.tile(0.1 * np.eye(3), (K, 1, 1)) if kind in ("full", "tied") else np.full((K, 3), 0.1)
    means = np.random.default_rng(1).uniform(-0.5, 0.5, (K, 3))
    family = GaussianFamily(K, TYPES[kind], np.full(3, 1e-9), np.ones(3))
    return ScoreQuery(schema, family, Gaussians(np.full(K, 1 / K), means, shape), np.eye(family.count), 2.0)


def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    X[rng.random(X.shape) < 0.1] = np.nan
    X[7], X[8, 1] = np.inf, 1e300
    return X


KIND_OF_ROWS = {
    "columns together": np.asfortranarray,
    "a slice": lambda X: np.concatenate([X, X], axis=1)[:, :D],
    "columns apart": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "sparse": sparse.csr_array,
    "array API": array_api_strict.asarray,
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("how", [*KIND_OF_ROWS, "Dask"])
def test_sums_are_those_of_rows_in_memory(kind, how):
    X, query = rows(), query_of(kind)
    expected = query.sum(Chunk(X, None))
    if how == "Dask":
        with dask.config.set(scheduler="threads", num_workers=2):
            found = DaskSource(da.from_array(X, chunks=(700, D))).total(query)
    else:
        found = query.sum(Chunk(KIND_OF_ROWS[how](X), None))
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_the_sum_does_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(narrow, "PIECE", 2**10)
    X, query = rows(), query_of("full")
    totals = []
    for threads in (1, 2, 4):
        with thread_limit(threads):
            totals.append(query.sum(Chunk(X, None)).tobytes())
    assert len(set(totals)) == 1


def test_a_column_outside_the_table_is_refused():
    """Compiled code does not look where a row ends."""
    with pytest.raises(IndexError, match="of a table of 3"):
        query_of("diag").sum(Chunk(np.ones((4, 3)), None))


def test_blas_threads_are_restored():
    def of_blas():
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before = of_blas()
    with single_blas():
        with single_blas():
            assert set(of_blas()) <= {1}
        assert set(of_blas()) <= {1}
    assert of_blas() == before
