"""Where a row's place may depend on what rows hold: such sources say so, are not split, and have room for rounding."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from dpem import Budget, DPStandardScaler, read_table
from dpem.audit.neighbours import Table
from dpem.audit.replay import replay
from dpem.paper import DPMissingRegression, DPSymmetricMixture
from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.privacy import Account, Curator, SeededNoise
from dpem.query import BLOCK, Chunk
from dpem.tables import ArraySource, ChunkedSource
from dpem.tables.base import ScaledSource
from dpem.tables.dask import DaskSource
from dpem.tables.sparse import SparseSource

N, D = 400, 3
X = np.random.default_rng(0).standard_normal((N, D)) + np.outer(np.random.default_rng(1).choice([-1, 1], N), [2, 0, 0])


class Loader(ChunkedSource):
    """A source of another package, which states nothing about the order of its rows."""

    has_response, dtype = False, np.dtype(np.float64)

    def __init__(self, rows, size=100):
        self.rows, self.size, self.n_features = rows, size, rows.shape[1]

    @property
    def n_rows(self):
        return len(self.rows)

    def chunks(self):
        for first in range(0, len(self.rows), self.size):
            yield Chunk(self.rows[first : first + self.size].astype(float), None)

    def split(self, parts):
        return [Loader(self.rows[t::parts], self.size) for t in range(parts)]


class FixedLoader(Loader):
    """The same source, which states that a replaced row stays at its position."""

    order_may_depend_on_values, dtype = False, np.dtype(np.float32)


def partitioned(rows, folder):
    """The rows in folders by the sign of their first entry: a row that changes it moves."""
    table = pa.table({f"x{j}": rows[:, j] for j in range(rows.shape[1])}).append_column(
        "side", pa.array((rows[:, 0] > 0).astype(int))
    )
    pq.write_to_dataset(table, folder, partition_cols=["side"], basename_template="part-{i}.parquet")
    return read_table(folder, columns=[f"x{j}" for j in range(rows.shape[1])])


def single(rows, folder, **how):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({f"x{j}": rows[:, j] for j in range(rows.shape[1])}), folder / "rows.parquet", **how)
    return read_table(folder / "rows.parquet")


def frame(rows):
    return dd.from_pandas(pd.DataFrame(rows, columns=list("abc")), npartitions=4)


FIXED = {
    "array": lambda rows, folder: ArraySource(rows),
    "sparse": lambda rows, folder: SparseSource(sparse.csr_array(rows)),
    "scaled": lambda rows, folder: ScaledSource(ArraySource(rows), np.zeros(D), np.ones(D)),
    "one file": single,
    "loader that says so": lambda rows, folder: FixedLoader(rows),
    "Dask array": lambda rows, folder: DaskSource(da.from_array(rows, chunks=(90, D)).rechunk((50, D))),
    "persisted Dask array": lambda rows, folder: DaskSource(da.from_array(rows, chunks=(90, D)).persist()),
    "Dask frame that says so": lambda rows, folder: DaskSource(frame(rows), fixed_order=True),
}
MOVING = {
    "partitions": partitioned,
    "sorted file": lambda rows, folder: single(rows, folder, sorting_columns=[pq.SortingColumn(0)]),
    "loader": lambda rows, folder: Loader(rows),
    "scaled loader": lambda rows, folder: ScaledSource(Loader(rows), np.zeros(D), np.ones(D)),
    "Dask frame": lambda rows, folder: DaskSource(frame(rows)),
    "Dask array of a sorted frame": lambda rows, folder: DaskSource(frame(rows).sort_values("a").values),
    "Dask array in another order": lambda rows, folder: DaskSource(
        da.from_array(rows, chunks=(90, D))[da.random.default_rng(0).permutation(N)]
    ),
}


@pytest.mark.parametrize("kind", FIXED)
def test_a_fixed_order_is_read_unchanged_and_can_be_split(kind, tmp_path):
    source = FIXED[kind](X.astype(np.float32), tmp_path)
    assert source.order_may_depend_on_values is False
    assert source.dtype == np.float32
    assert len(Curator(source, Account(1.0, 1e-5), SeededNoise(0)).split(3)) == 3


@pytest.mark.parametrize("kind", MOVING)
def test_rows_that_may_move_are_read_in_float64_and_not_split(kind, tmp_path):
    """Else one row could change every batch, while the batches cost the price of one."""
    source = MOVING[kind](X.astype(np.float32), tmp_path)
    assert source.order_may_depend_on_values is True
    assert source.dtype == np.float64
    sentence = r"^the rows of this table cannot be split into batches: their order may depend on their values .*\.$"
    with pytest.raises(ValueError, match=sentence):
        Curator(source, Account(1.0, 1e-5), SeededNoise(0)).split(3)
    budget = Budget(1.0, 1e-4)
    paper = DPSymmetricMixture(
        epsilon=0.5, delta=1e-5, sigma=1.0, start="equal", sparsity=2, method="published", budget=budget
    )
    with pytest.raises(ValueError, match=sentence):
        paper.fit(source)
    assert budget.n_charges == 0
    DPStandardScaler(epsilon=0.5, delta=1e-5, bounds=(-5, 5), budget=budget).fit(source)
    assert budget.n_charges == 1


def test_a_source_that_states_no_order_is_not_split():
    class Other:
        n_rows, n_features = 10, 2
        total = slack = split = None

    with pytest.raises(ValueError, match="cannot be split"):
        Curator(Other(), Account(1.0, 1e-5), SeededNoise(0)).split(2)


def test_a_row_that_moves_is_covered_where_rows_may_move():
    """Contrived content: the last row moves to the front, and every block's sum in float32 loses 120 small entries.

    In memory that is beyond the slack, which is about tables that differ at one position. A source whose rows may move
    is read in float64 and has room.
    """
    small = 2.0**-20  # eight of them are lost beside 128, and kept beside 127
    block = np.concatenate([np.ones(127), np.full(128, small), np.ones(1)]).astype(np.float32)
    assert len(block) == BLOCK
    rows = np.tile(block, 65_536)[:, None]
    moved = np.roll(rows, 1, axis=0)
    query = SymmetricMixture(1.0).gradient(np.array([1e9]), Clip(1.0))
    totals = [ArraySource(table).total(query) for table in (rows, moved)]
    allowed = query.bound.linf + ArraySource(rows).slack(query) * query.bound.size_linf
    assert abs(totals[0] - totals[1]) > 3 * allowed
    loaders = [Loader(table, 10_000) for table in (rows, moved)]
    one, two = (source.total(query) for source in loaders)
    assert abs(one - two) <= loaders[0].slack(query) * query.bound.size_linf < 1e-3


@pytest.mark.parametrize(
    "estimator",
    [
        DPSymmetricMixture(epsilon=1.0, delta=1e-4, sigma=1.0, start=[1.0, 0.0, 0.0], n_iter=2),
        DPStandardScaler(epsilon=1.0, delta=1e-4, bounds=(-3, 3)),
        DPSymmetricMixture(epsilon=1.0, delta=1e-4, sigma=1.0, start="equal", sparsity=2, method="published"),
    ],
    ids=["mixture", "scaler", "paper"],
)
def test_neighbours_that_move_are_replayed(estimator):
    """The loader keeps rows sorted by a private column, so that a changed row moves."""

    def hold(table):
        return (Loader(table.X[np.argsort(table.X[:, 0], kind="stable")]),)

    verdict = replay(estimator, Table("as drawn", X, None), hold=hold)
    assert verdict.faults == []
    assert verdict.neighbours >= 60


def test_batches_of_a_sorted_table_reveal_a_row():
    """A sorted table in memory cannot be recognised, so this is left to the user: all of its batches change."""
    paper = DPMissingRegression(epsilon=1.0, delta=1e-4, sigma=1.0, sparsity=2, method="published")
    y = X[:, 0] + 0.5 * X[:, 1]

    def hold(table):
        order = np.argsort(table.X[:, 0], kind="stable")
        return table.X[order], table.y[order]

    verdict = replay(paper, Table("as drawn", X, y), hold=hold)
    assert any("batches moved" in fault for fault in verdict.faults)
