"""Rows of another array library: the totals of the same rows in numpy, and nothing moved but sums."""

from __future__ import annotations

import functools
import itertools
from importlib.util import find_spec

import array_api_strict
import numpy as np
import pytest
from test_sparse import QUERIES, table

from dpem.paper.models import SymmetricMixture
from dpem.paper.queries import Clip
from dpem.query import BLOCK
from dpem.tables import ArraySource
from dpem.tables import array as device_module
from dpem.tables.array import DeviceSource
from dpem.tables.blocks import float_below


def strict(values, device="CPU_DEVICE"):
    return array_api_strict.asarray(np.array(values), device=array_api_strict.Device(device))


def torch_tensor(values):
    import torch

    return torch.from_numpy(np.array(values))


KINDS = {"strict": strict, "strict, another device": functools.partial(strict, device="device2")}
if find_spec("torch") is not None:
    KINDS["torch"] = torch_tensor
by_kind = pytest.mark.parametrize("kind", KINDS)


@by_kind
@pytest.mark.parametrize("name", QUERIES)
def test_totals_are_those_of_numpy_rows_however_they_are_cut(monkeypatch, kind, name):
    X, y = table(700, missing=name.startswith("missing"))
    expected = ArraySource(X, y).total(QUERIES[name])
    for length in (1_000, 256, 99):
        monkeypatch.setattr(device_module, "LONG_CHUNK_ROWS", length)
        monkeypatch.setattr(device_module, "SHORT_CHUNK_ROWS", length)
        total = DeviceSource(KINDS[kind](X), KINDS[kind](y)).total(QUERIES[name])
        assert isinstance(total, np.ndarray)
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12 * 700)


@by_kind
@pytest.mark.parametrize("name", QUERIES)
def test_float32_totals_are_within_the_stated_bound(kind, name):
    """(BLOCK + 3) roundings of Σ|contribution| ≤ n·size, and 20 of a ramp; nothing where the sum is in float64."""
    n, query = 700, QUERIES[name]
    X, y = table(n, np.float32, missing=name.startswith("missing"))
    total = DeviceSource(KINDS[kind](X), KINDS[kind](y)).total(query)
    exact = ArraySource(X.astype(float), y).total(query)
    u = float(np.finfo(np.float32).eps) / 2 if query.blocked else 0.0
    assert np.all(np.abs(total - exact) <= ((BLOCK + 3 + 20) * u + 1e-12) * n * query.bound.size_linf)


@by_kind
def test_batches_are_disjoint_and_cover_all_rows(monkeypatch, kind):
    monkeypatch.setattr(device_module, "CHUNK_ROWS", 4)
    n = 53
    X = np.column_stack([np.arange(n), np.zeros(n)]).astype(np.float32)
    source = DeviceSource(KINDS[kind](X), KINDS[kind](np.arange(n, dtype=float)))
    for parts in (1, 2, 7, n):
        seen = []
        for t, batch in enumerate(source.split(parts)):
            responses = list(itertools.chain(*(np.from_dlpack(c.y).tolist() for c in batch.chunks())))
            rows = list(itertools.chain(*(np.from_dlpack(c.X)[:, 0].tolist() for c in batch.chunks())))
            assert rows == responses == list(range(t, n, parts))
            assert batch.n_rows == len(rows)
            seen += rows
        assert sorted(seen) == list(range(n))


@by_kind
def test_a_response_on_the_host_is_moved_to_the_rows(kind):
    X, y = table(50)
    X32 = X.astype(np.float32)
    query = QUERIES["missing gradient"]
    y.flags.writeable = False
    for rows in (X, X32):
        there, here = DeviceSource(KINDS[kind](rows), KINDS[kind](y)), DeviceSource(KINDS[kind](rows), y)
        np.testing.assert_array_equal(there.total(query), here.total(query))
        assert here.has_response
    assert not DeviceSource(KINDS[kind](X)).has_response


@by_kind
def test_sizes_and_dtype(kind):
    for dtype in (np.float32, np.float64):
        source = DeviceSource(KINDS[kind](table(9, dtype)[0]))
        assert (source.n_rows, source.n_features, source.dtype) == (9, 5, np.dtype(dtype))


def test_devices_without_float64_are_refused():
    device = array_api_strict.Device("no_float64")
    X = array_api_strict.ones((3, 2), dtype=array_api_strict.float32, device=device)
    with pytest.raises(ValueError, match="X must be on a device that has float64"):
        DeviceSource(X)


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match="X must hold float32 or float64, got int64"):
        DeviceSource(strict(np.ones((3, 2), dtype=np.int64)))


def test_half_precision_is_refused():
    halves = [np.ones((3, 2), dtype=np.float16)]
    if find_spec("torch") is not None:
        halves += [torch_tensor(halves[0]), torch_tensor(halves[0]).bfloat16()]
    for half in halves:
        with pytest.raises(ValueError, match=r"X must hold float32 or float64, got b?float16"):
            DeviceSource(half)


@by_kind
def test_repr_hides_values(kind):
    source = DeviceSource(KINDS[kind](np.full((4, 2), 7123.25)), KINDS[kind](np.full(4, -918273.5)))
    for text in (repr(source), str(source.split(2))):
        assert "7123" not in text
        assert "918273" not in text
    assert "4 rows" in repr(source)


# --- Slack ----------------------------------------------------------------------------------------------------------


def test_slack_follows_the_longer_chunks():
    rows = DeviceSource(strict(np.zeros((3, 2), dtype=np.float32)))
    query, unblocked = QUERIES["gmm gradient"], QUERIES["gmm support"]
    assert 0 < rows.slack(query) < 1e-5

    class Long(DeviceSource):
        n_rows = 50_000_000

    long = Long(strict(np.zeros((3, 2), dtype=np.float32)))
    assert rows.slack(query) < long.slack(query) < 0.009  # one block in float32, and little else
    assert long.slack(unblocked) < 1e-4


@by_kind
def test_change_between_neighbours_is_within_bound_and_slack(kind):
    """Contributions of one sign near the clip level: rounding does add to a record's influence."""
    rng = np.random.default_rng(7)
    first, level = np.array([1.0, 0.0]), 0.9
    query = SymmetricMixture(1.0).gradient(first, Clip(level))
    n, beyond = 2 * BLOCK + 41, 0
    for _ in range(40):
        values = float(float_below(level, np.dtype(np.float32))) * rng.uniform(0.5, 1.0, n)
        X = np.column_stack([np.full(n, 10.0), values]).astype(np.float32)
        i, totals = rng.integers(0, n), []
        for value in (5.0, -5.0):  # clipped to ±T: the largest change there is
            X[i, 1] = value
            source = DeviceSource(KINDS[kind](X))
            totals.append(float(source.total(query)[1]))
        change = abs(totals[0] - totals[1])
        assert change <= query.bound.linf + source.slack(query) * query.bound.size_linf
        beyond += change > query.bound.linf
    assert beyond > 3


@pytest.mark.parametrize("chunks", [1, 2, 7])
def test_sums_of_all_chunks_at_once_are_added_with_compensation(chunks):
    class AtOnce:
        blocked = False

        def sums(self, chunk, rows):
            assert chunk.X.shape == (5, 2)
            found = np.ones((chunks, 2))
            found[0] = 1e16
            return found

    expected = 1e16 + (chunks - 1)
    assert DeviceSource(strict(np.zeros((5, 2)))).total(AtOnce()).tolist() == [expected, expected]


def test_a_query_without_sums_is_summed_chunk_by_chunk():
    class OneByOne:
        blocked = False

        def sums(self, chunk, rows):
            return None

        def sum(self, chunk):
            return np.array([float(chunk.X.shape[0])])

    assert DeviceSource(strict(np.zeros((5, 2)))).total(OneByOne()).tolist() == [5.0]
