"""The same answer everywhere: how rows are cut, stored and read does not change a total.

Float64: to 1e-12 of Σ|contribution|. Float32: to the slack, which bounds what rounding may add for a block, times the
number of blocks. Hypothesis draws the chunkings, with empty, single-row and uneven ones among them.
"""

from __future__ import annotations

import itertools
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpem._threads import thread_limit
from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.query import BLOCK, Chunk
from dpem.tables import ArraySource, DatasetSource, read_table
from dpem.tables import parquet as parquet_module

N, D = 1_500, 4
BETA = np.array([0.7, -0.4, 0.0, 0.2])
SUPPORT = np.array([0, 1, 3])
MIXTURE, REGRESSIONS, MISSING = SymmetricMixture(0.8), SymmetricRegression(0.8), MissingRegression(0.8)
QUERIES = {
    "mixture gradient": MIXTURE.gradient(BETA, Clip(1.2)),
    "mixture on support": MIXTURE.on_support(BETA, SUPPORT, 0.9),
    "mixture screening": MIXTURE.screening(1.0, 2),
    "mixture moments": MIXTURE.moments(SUPPORT, 1.5, 1.0),
    "regressions gradient": REGRESSIONS.gradient(BETA, Clip(1.2, 0.8)),
    "regressions truncated": REGRESSIONS.truncated(BETA, 0.9),
    "regressions screening": REGRESSIONS.screening(1.0, 2),
    "missing gradient": MISSING.gradient(BETA, Clip(1.2, 0.8, 1.1)),
    "missing truncated": MISSING.truncated(BETA, 0.9),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with thread_limit(1):
        yield


def data(dtype, missing):
    rng = np.random.default_rng(0)
    X = (0.5 * BETA + rng.standard_normal((N, D))).astype(dtype)
    if missing:
        X[rng.uniform(size=X.shape) < 0.2] = np.nan
    return X, rng.standard_normal(N)


def cut(sizes):
    """Ends of batches whose sizes go round in a circle until all rows are dealt out; at least one must be positive."""
    ends, turn = [0], 0
    while ends[-1] < N:
        ends.append(min(N, ends[-1] + sizes[turn % len(sizes)]))
        turn += 1
    return [*ends, N]  # and an empty one at the end


#: Sizes of chunks: empty, single rows, blocks and off by one, anything.
SIZES = st.lists(
    st.sampled_from([0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, N]) | st.integers(0, 700), min_size=1, max_size=5
)
CHUNKINGS = SIZES.filter(lambda sizes: max(sizes) > 20).map(cut)


def table(X, y):
    return pa.table({**{f"x{j}": pa.array(X[:, j], from_pandas=True) for j in range(D)}, "y": y})


def as_row_groups(X, y, ends, folder):
    whole = table(X, y)
    with pq.ParquetWriter(folder / "t.parquet", whole.schema) as writer:
        for a, b in pairwise(ends):
            writer.write_table(whole.slice(a, b - a))
    return DatasetSource(folder / "t.parquet", target="y")


def as_folder(X, y, ends, folder):
    for part, (a, b) in enumerate(pairwise(ends)):
        pq.write_table(table(X[a:b], y[a:b]), folder / f"{part:05}.parquet")
    return DatasetSource(folder, target="y")


def as_feather(X, y, ends, folder):
    pa.feather.write_feather(table(X, y), folder / "t.feather", chunksize=max(1, ends[1]))
    return read_table(folder / "t.feather", target="y")


def as_memory(X, y, ends, folder):
    return DatasetSource(ds.dataset([table(X[a:b], y[a:b]) for a, b in pairwise(ends)]), target="y")


def as_csv(X, y, ends, folder):
    rows = ["x0,x1,x2,x3,y", *(",".join(map(repr, [*x, z])) for x, z in zip(X.tolist(), y.tolist(), strict=True))]
    (folder / "t.csv").write_text("\n".join(rows))
    return read_table(folder / "t.csv", target="y")


CUT = [as_row_groups, as_folder, as_memory, as_feather]
WHOLE = [as_csv]


def distance(query, source, X, y):
    """The difference from the total of an array in memory, as a fraction of the allowed rounding."""
    reference = ArraySource(X, y)
    difference = np.abs(source.total(query) - reference.total(query))
    if source.dtype == np.float64:
        few = sum(np.abs(query.sum(Chunk(X[i : i + 1], y[i : i + 1]))) for i in range(60))  # part of Σ|contribution|
        return np.max(difference / (1e-12 * np.maximum(few, 1e-300)))
    return np.max(difference) / (query.bound.size_linf * source.slack(query) * (1 + N / BLOCK))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(
    ("form", "dtype"), [*itertools.product(CUT, (np.float64, np.float32)), *((form, np.float64) for form in WHOLE)]
)
def test_every_storage_gives_the_same_total(form, dtype, name, tmp_path):
    X, y = data(dtype, "missing" in name)
    source = form(X, y, cut([0, 1, 700, 3]), tmp_path)
    assert (source.n_rows, source.dtype) == (N, dtype)
    assert distance(QUERIES[name], source, X, y) <= 1


@pytest.mark.parametrize("form", CUT)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    ends=CHUNKINGS,
    name=st.sampled_from(sorted(QUERIES)),
    single=st.booleans(),
    small=st.sampled_from([0, 2_000, 64 << 20]),
)
def test_any_chunking_gives_the_same_total(form, ends, name, single, small):
    if form is as_folder and len(ends) > 60:
        ends = [*ends[:60], N]
    X, y = data(np.float32 if single else np.float64, "missing" in name)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(parquet_module, "SMALL", small)
        patch.setattr(parquet_module, "LARGEST", max(small, 9_000))  # long row groups come in several stretches
        source = form(X, y, ends, Path(folder))
        assert source.n_rows == N
        assert distance(QUERIES[name], source, X, y) <= 1


@pytest.mark.parametrize("form", [*CUT, *WHOLE])
@pytest.mark.parametrize("parts", [2, 7])
def test_batches_have_the_same_rows_in_every_storage(form, parts, tmp_path):
    """A batch has the same rows wherever they are stored."""
    X, y = data(np.float64, missing=False)
    query = QUERIES["regressions gradient"]
    for t, part in enumerate(form(X, y, cut([300, 0, 1, 199]), tmp_path).split(parts)):
        assert distance(query, part, X[t::parts], y[t::parts]) <= 1


@pytest.mark.parametrize(("dtype", "rows"), [(np.float64, 1), (np.float32, 100)], ids=["float64", "float32"])
def test_a_lost_row_changes_a_total_by_more_than_rounding(dtype, rows):
    """The tests above can fail: a row left out or read twice exceeds rounding in float64, a hundred rows in float32."""
    X, y = data(dtype, missing=False)
    for name in ("regressions gradient", "mixture gradient"):
        lost = ArraySource(X[:-rows], y[:-rows])
        twice = ArraySource(np.concatenate([X, X[:rows]]), np.concatenate([y, y[:rows]]))
        assert distance(QUERIES[name], lost, X, y) > 2
        assert distance(QUERIES[name], twice, X, y) > 2
