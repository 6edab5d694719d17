"""Batches of any length from anything that can be read again: the same rows on every pass, or one sentence."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpem.tables import BatchSource
from dpem.tables import batches as batches_module
from dpem.tables.entries import number

X = np.random.default_rng(0).standard_normal((101, 3))
Y = np.arange(101.0)


class Again:
    """A loader that opens the data anew on each pass, and counts the passes."""

    def __init__(self, *sizes, pairs=True):
        self.ends, self.pairs, self.passes = np.cumsum([0, *sizes]), pairs, 0

    def __iter__(self):
        self.passes += 1
        for first, last in zip(self.ends[:-1], self.ends[1:], strict=True):
            yield (X[first:last], Y[first:last]) if self.pairs else X[first:last]


def rows(source):
    chunks = list(source.chunks())
    return np.concatenate([chunk.X for chunk in chunks]), [
        y for chunk in chunks if chunk.y is not None for y in chunk.y
    ]


@pytest.mark.parametrize("sizes", [(101,), (0, 1, 0, 50, 50, 0), (1,) * 101, (100, 1)])
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_rows_and_splits(sizes, parts):
    source = BatchSource(Again(*sizes))
    assert (source.n_rows, source.n_features, source.has_response, source.feature_names) == (101, 3, True, None)
    for t, part in enumerate(source.split(parts)):
        for _ in range(2):
            read, y = rows(part)
            np.testing.assert_array_equal(read, X[t::parts])
            np.testing.assert_array_equal(y, Y[t::parts])
        assert part.n_rows == len(y)


def test_n_rows_saves_a_pass():
    loader = Again(50, 51)
    BatchSource(loader)
    counted, loader.passes = loader.passes, 0
    BatchSource(loader, n_rows=101)
    assert loader.passes == counted - 1  # what is left is a look at the first batch


def test_long_batches_are_cut(monkeypatch):
    monkeypatch.setattr(batches_module, "CHUNK_ROWS", 40)
    source = BatchSource([X], feature_names=["a", "b", "c"])
    assert [len(chunk.X) for chunk in source.chunks()] == [40, 40, 21]
    assert source.feature_names == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.bool_])
def test_dtypes(kind):
    source = BatchSource([np.ones((2, 1), kind), np.zeros((1, 1), kind)])
    assert source.dtype == (np.float32 if kind is np.float32 else np.float64)
    assert {chunk.X.dtype for chunk in source.chunks()} == {source.dtype}
    np.testing.assert_array_equal(rows(source)[0], [[1], [1], [0]])


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, pa.RecordBatch.from_pydict])
def test_tables(make):
    batches = [
        make({"a": X[:60, 0], "b": X[:60, 1], "c": X[:60, 2]}),
        make({"c": X[60:, 2], "b": X[60:, 1], "a": X[60:, 0]}),
    ]
    source = BatchSource(batches, columns=["c", "a"], target="b")
    assert source.feature_names == ["c", "a"]
    read, y = rows(source)
    np.testing.assert_array_equal(read, X[:, [2, 0]])
    np.testing.assert_array_equal(y, X[:, 1])


def test_missing_numbers_are_nan():
    source = BatchSource([pd.DataFrame({"a": pd.array([1, None], dtype="Int64")})])
    np.testing.assert_array_equal(rows(source)[0], [[1.0], [np.nan]])


SQUARE = np.ones((2, 2))


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ((batch for batch in [SQUARE]), {}, "an iterator or generator can be read once only"),
        (iter([SQUARE]), {}, "an iterator or generator can be read once only"),
        (SQUARE, {}, "batches must be an iterable of batches of rows, got ndarray"),
        (7, {}, "batches must be an iterable of batches of rows, got int"),
        ("t.parquet", {}, "batches must be an iterable of batches of rows, got str"),
        ([], {}, "batches hold no rows"),
        ([np.empty((0, 2))], {}, "batches hold no rows"),
        ([np.empty((2, 0))], {}, "at least one column"),
        ([SQUARE], {"n_rows": 0}, "n_rows must be a positive number of rows or None, got 0"),
        ([SQUARE], {"n_rows": 2.0}, "n_rows must be a positive number of rows or None, got 2.0"),
        ([SQUARE], {"target": "a"}, "columns and target name columns of tables"),
        ([SQUARE], {"feature_names": ["a"]}, "feature_names has 1 names for 2 columns"),
        ([SQUARE, np.ones((2, 3))], {}, "every batch must have the 2 columns of the first, got 3"),
        ([SQUARE, (SQUARE, np.ones(2))], {}, "either every batch must have a response"),
        ([(SQUARE, np.ones(3))], {}, "y of a batch must have one response for each row of X, got shape (3,)"),
        ([(SQUARE, np.ones(2), 1)], {}, "a batch must be an array X or a pair (X, y), got a tuple of 3"),
        ([np.ones(3)], {}, "got 1 dimension(s)"),
        ([[1.0, 2.0]], {}, "a table, got list"),
        ([np.array([[b"secret"]])], {}, "X must hold numbers, got bytes"),
        ([(SQUARE, np.array([b"secret", b"s"]))], {}, "y must hold numbers, got bytes"),
        ([np.array([[1j]])], {}, "X of a batch must be numeric, got complex128"),
        ([SQUARE, pd.DataFrame({"a": [1.0]})], {}, "batches must be of one kind"),
        ([pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})], {}, "must have the column 'a' of the first, once"),
        ([pd.DataFrame({"a": ["secret"]})], {}, "column 'a' is not numeric"),
    ],
)
def test_refusals(batches, options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refusal:
        BatchSource(batches, **options)
    assert "secret" not in str(refusal.value)
    assert str(refusal.value).count(". ") == 0


@pytest.mark.parametrize("odd", ["secret", " 2", "1_000", None, 10**400, [1.0], 1e300], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_entry_that_changes_the_type_of_a_batch_decides_nothing(odd, dtype):
    """Neither whether there is a fit nor what other entries are, in the first batch or in a later one."""
    batch = np.full((2, 2), 0.25, dtype=object)
    batch[0, 0] = odd
    for batches in ([SQUARE.astype(dtype), batch], [batch, SQUARE.astype(dtype)]):
        source = BatchSource([(X, X[:, 0].tolist()) for X in batches])
        (X, y), kind = rows(source), source.dtype.type
        with np.errstate(all="ignore"):
            expected = np.array([1, 1, kind(number(odd)), kind(0.25)])
        np.testing.assert_array_equal(np.sort(X[:, 0]), np.sort(expected))
        np.testing.assert_array_equal(np.sort(y), np.sort([1, 1, number(odd), 0.25]))


@pytest.mark.parametrize("sizes", [(100,), (102,), ()])
def test_a_pass_of_another_length_is_refused(sizes):
    source = BatchSource([np.ones((101, 3))])
    source._batches = [np.ones((size, 3)) for size in sizes]
    with pytest.raises(ValueError, match="batches must hold 101 rows on every pass, but this pass held another number"):
        rows(source)


def test_repr_hides_values():
    assert repr(BatchSource([np.full((2, 1), 7123.25)])) == "BatchSource(2 rows, 1 columns, float64)"
