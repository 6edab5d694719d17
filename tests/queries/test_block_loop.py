"""The narrow loop gives the same sum wherever rows live, and no row moves it by more than its bound."""

import array_api_strict
import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from dpem.fitting.check import LogRatio
from dpem.queries.narrow import into_ball
from dpem.query import Chunk
from dpem.tables import ArraySource, DatasetSource
from dpem.tables.array import DeviceSource
from dpem.tables.dask import DaskSource
from dpem.tables.schema import Schema
from dpem.tables.sparse import SparseSource

NAMES = ("age", "region", "dose", "unused")
SCHEMA = Schema.of(
    NAMES, {"age": (0, 100), "dose": (-2, 2), "unused": (0, 1)}, {"region": (0.0, 1.0, 2.0)}, y_bounds=(0, 10)
).take(np.array([0, 1, 2, 3]))
N = 3000


class Line:
    """A density that is simple to compute."""

    def log_density(self, xp, theta, x, y):
        seen = xp.where(xp.isnan(x), xp.zeros_like(x), x)
        return theta * (xp.sum(seen, axis=1) + y)


QUERY = LogRatio(SCHEMA, Line(), 0.7, -0.4, 2.0)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    columns = [rng.normal(50, 20, N), rng.integers(0, 4, N), rng.normal(0, 1, N), rng.normal(size=N)]
    X = np.column_stack(columns).astype(float)
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    X[:3, 0] = [np.inf, 1e308, -1e308]
    return X, rng.normal(5, 2, N)


def by_hand(X, y):
    u = np.clip((X - [50, 0, 0, 0]) / [50, 1, 2, 1], -1, 1)
    age = np.where(np.isfinite(X[:, 0]), u[:, 0], 0)
    declared = np.isin(X[:, 1], [0, 1, 2])
    regions = [np.where(declared, np.where(X[:, 1] == level, 1, -1), 0) for level in (1, 2)]
    dose = np.where(np.isfinite(X[:, 2]), u[:, 2], 0)
    t = np.clip(1.1 * (age + regions[0] + regions[1] + dose + np.clip((y - 5) / 5, -1, 1)), -2, 2)
    return np.array([t.sum(), (t**2).sum() / 2])


def held(kind, X, y, folder):
    if kind == "dask":
        return DaskSource(da.from_array(X, chunks=(700, 4)), da.from_array(y, chunks=700))
    if kind == "parquet":
        pq.write_table(pa.table({**dict(zip(NAMES, X.T, strict=True)), "y": y}), folder / "t.parquet")
        return DatasetSource(folder / "t.parquet", target="y")
    if kind == "csr":
        return SparseSource(sparse.csr_array(X), y)
    if kind == "array API":
        return DeviceSource(array_api_strict.asarray(X), array_api_strict.asarray(y))
    return ArraySource(np.asfortranarray(X) if kind == "columns" else X, y)


@pytest.mark.parametrize("kind", ["dense", "columns", "csr", "parquet", "dask", "array API"])
def test_the_sum_is_the_same_everywhere(kind, table, tmp_path):
    source = held(kind, *table, tmp_path)
    np.testing.assert_allclose(source.total(QUERY), by_hand(*table), rtol=1e-10, atol=1e-9)
    assert source.slack(QUERY) < 1e-3


def test_only_the_columns_of_the_schema_are_read(table):
    assert QUERY.reads.tolist() == [0, 1, 2]
    changed = table[0].copy()
    changed[:, 3] = np.inf
    same = [ArraySource(X, table[1]).total(QUERY) for X in (table[0], changed)]
    np.testing.assert_array_equal(*same)


HOSTILE = [0.0, 1e308, -1e308, np.inf, -np.inf, np.nan, 5e-324, 3.0]


def test_no_pair_of_rows_exceeds_the_bound_and_some_reach_it():
    rows = np.array([[a, b, c, 0] for a in HOSTILE for b in (0, 1, 7.0, np.nan) for c in HOSTILE])
    sums = [QUERY.sum(Chunk(rows[i : i + 1], np.array([y]))) for i in range(len(rows)) for y in (0.0, np.inf, 1e308)]
    sums = np.array(sums)
    assert np.isfinite(sums).all()
    distance = np.linalg.norm(sums[:, None] - sums[None], axis=2).max()
    assert 0.99 * QUERY.bound.l2 < distance <= QUERY.bound.l2
    assert np.linalg.norm(sums, axis=1).max() <= QUERY.bound.size_l2


def test_clipped_rows_lie_in_the_ball():
    import array_api_compat.numpy as xp

    rng = np.random.default_rng(1)
    rows = rng.standard_normal((400, 3)) * 10.0 ** rng.uniform(-300, 300, (400, 1))
    rows[:3] = [[np.nan, 0, 0], [np.inf, 1, 1], [1e308, -1e308, 1e308]]
    with np.errstate(all="ignore"):
        inside = into_ball(xp, rows, 1.5)
    assert np.isfinite(inside).all()
    assert np.linalg.norm(inside, axis=1).max() <= 1.5 * (1 + 11 * 2**-52)
    assert not inside[:3].any()
