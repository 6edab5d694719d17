"""The compiled loops agree with NumPy for every layout, both dtypes, any length and any number of threads."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import threading

import numpy as np
import pytest
from scipy import sparse
from together import together
from wide_queries import BETA, BRACKET, GMM, QUERIES, RADIUS, SIGMA, SUPPORT, C, T

from dpem._threads import run_in_parallel, thread_limit
from dpem.paper.engine import in_memory
from dpem.paper.queries import Clip
from dpem.query import BLOCK, Chunk
from dpem.tables.blocks import float_below
from dpem.tables.dense_rows import TASK

DTYPES = together("dtype", [np.float32, np.float64])


@np.errstate(all="ignore")
def contributions(name, X, y):
    """Each row's contribution by the models' formulas, in float64 and without a loop."""
    X = np.asarray(X, dtype=float)
    y = None if y is None else np.asarray(y, dtype=float)
    missing = np.isnan(X)
    seen = np.where(missing, 0.0, X)
    fitted = seen @ BETA
    model, form = name.split()
    if form == "screening":
        query = QUERIES[name][0]
        ramp = np.clip((X**2 - query.low**2) / (query.high**2 - query.low**2), 0.0, 1.0)
        if model == "gmm":
            return ramp
        return (np.clip(y**2 / (1.0 + SIGMA**2) - 1.0, -1.0, 1.0))[:, None] * (2 * ramp - 1.0)
    if form == "moments":
        rows = seen[:, SUPPORT]
        length = np.linalg.norm(rows, axis=1)
        rows = np.where(length < math.inf, 1.0, 0.0)[:, None] * rows * np.minimum(1.0, RADIUS / length)[:, None]
        g = 1.0 if model == "gmm" else np.clip(y**2 / (1.0 + SIGMA**2) - 1.0, -1.0, 1.0)[:, None, None]
        outer = g * rows[:, :, None] * rows[:, None, :]
        i, j = np.triu_indices(len(SUPPORT))
        return outer[:, i, j] * np.where(i == j, 1.0, math.sqrt(2.0))
    if form == "truncated" and model == "missing":
        return truncated_score(seen, missing, y)
    v = SIGMA**2 + missing @ BETA**2
    r = None if y is None else y - fitted
    if model == "gmm":
        a, c = np.tanh(fitted / SIGMA**2), np.zeros(len(X))
    elif model == "mr":
        sign = np.tanh(y * fitted / SIGMA**2)
        a = sign * np.clip(y, -T, T) - np.clip(fitted, -T, T) if form == "truncated" else sign * y - fitted
        c = np.zeros(len(X))
    else:
        a, c = SIGMA**2 * r / v, SIGMA**2 / v * (r**2 / v - 1.0)
    if form == "on_support":
        u = (a[:, None] * seen + c[:, None] * missing * BETA - (BETA if model == "gmm" else 0.0))[:, SUPPORT]
        length = np.sqrt(np.sum(u**2, axis=1))
        scaled = u * np.minimum(1.0, RADIUS / length)[:, None]
        return np.where((length < math.inf)[:, None], scaled, 0.0)
    limit = {"gmm": 1.0, "mr": C if form == "gradient" else T, "missing": C}[model]
    return np.clip(a, -limit, limit)[:, None] * np.clip(seen, -T, T) + np.clip(c, -1.0, BRACKET)[:, None] * (
        missing * BETA
    )


def truncated_score(seen, missing, y):
    """The paper's truncated score, record by record and entry by entry, with its d×d matrices."""
    out = np.zeros_like(seen)

    def clip(value):
        return np.clip(value, -T, T)

    for i, (x, hidden) in enumerate(zip(seen, missing, strict=True)):
        b = hidden * BETA
        v = SIGMA**2 + b @ b
        m = x + (y[i] - x @ BETA) / v * b
        h = hidden * m
        out[i] = clip(m) * (clip(y[i]) - clip(m @ BETA)) - b + clip(h) * clip(h @ BETA)
    return out


def draw(name, n, dtype, seed=1):
    """Rows and responses with some entries beyond the clips, and a third missing if the model has missing entries."""
    _, has_missing, has_y = QUERIES[name]
    rng = np.random.default_rng(seed)
    X = 1.3 * rng.standard_normal((n, len(BETA)))
    if has_missing:
        X[rng.random(X.shape) < 1 / 3] = np.nan
    return X.astype(dtype), 1.5 * rng.standard_normal(n).astype(dtype) if has_y else None


def assert_is_the_sum(name, total, X, y):
    """To the error that adding in blocks may have: at most (BLOCK + 3) roundings of Σ|contribution|, and of a ramp."""
    each = contributions(name, X, y)
    blocked = QUERIES[name][0].blocked
    u = float(np.finfo(X.dtype if blocked else np.float64).eps) / 2
    sums = np.array([math.fsum(column) for column in each.T])
    room = (min(len(X), BLOCK) + 3) * u * np.abs(each).sum(axis=0)
    if name.endswith("screening"):
        room += 20 * u * len(X)  # x² and its place on the ramp are rounded too
    # Numpy's own tanh and norms are good to a few roundings of float64 of each term.
    room += 20 * float(np.finfo(np.float64).eps) * (np.abs(each).sum(axis=0) + len(X))
    assert total.dtype == np.float64
    assert total.shape == sums.shape
    assert np.all(np.abs(total - sums) <= room)


@pytest.mark.parametrize("name", QUERIES)
@together("n", [1, 2, BLOCK, BLOCK + 1, TASK, TASK + 1, 2 * TASK + BLOCK + 37])
@DTYPES
def test_sum_is_numpys_whatever_the_length(name, n, dtype):
    X, y = draw(name, n, dtype)
    assert_is_the_sum(name, QUERIES[name][0].sum(Chunk(X, y)), X, y)


WIDE = [name for name in QUERIES if name.endswith(("gradient", "screening"))]


@pytest.mark.parametrize("name", WIDE)
@together("n", [1, 7, 8, BLOCK + 9, TASK + 37])
@DTYPES
def test_a_projection_that_reads_few_columns_makes_the_same_sums(name, n, dtype, monkeypatch):
    monkeypatch.setattr(in_memory, "APART", 0)
    X, y = draw(name, n, dtype)
    assert_is_the_sum(name, QUERIES[name][0].sum(Chunk(X, y)), X, y)


@pytest.mark.parametrize("name", WIDE)
@DTYPES
def test_both_projections_ignore_what_is_not_finite_where_beta_is_0(name, dtype, monkeypatch):
    X, y = draw(name, 300, dtype)
    X[::7, 0], X[1::7, 2], X[2::7, 5], X[3::7, 6] = np.nan, np.inf, -np.inf, np.finfo(dtype).max
    X[::11, 1] = np.inf
    through = QUERIES[name][0].sum(Chunk(X, y))
    monkeypatch.setattr(in_memory, "APART", 0)
    np.testing.assert_allclose(through, QUERIES[name][0].sum(Chunk(X, y)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WIDE)
@together("bad", [np.nan, np.inf, -np.inf, 1e300])
@together("apart", [0, 28])
@DTYPES
def test_hostile_rows_stay_within_the_bound(name, bad, dtype, apart, monkeypatch):
    monkeypatch.setattr(in_memory, "APART", apart)
    query = QUERIES[name][0]
    with np.errstate(over="ignore"):
        X = np.full((1, len(BETA)), bad).astype(dtype)
    X[0, ::2] = 0.5
    for response in (0.5, 1e300, np.nan):
        total = query.sum(Chunk(X, None if name.startswith("gmm") else np.array([response])))
        assert np.max(np.abs(total)) <= query.bound.size_linf


@pytest.mark.parametrize("name", QUERIES)
def test_reference_notices_a_lost_row(name):
    """The comparison above can fail: one missing row of 8500, in float32, is beyond its tolerance."""
    X, y = draw(name, 2 * TASK + BLOCK + 37, np.float32)
    total = QUERIES[name][0].sum(Chunk(X[:-1], None if y is None else y[:-1]))
    with pytest.raises(AssertionError):
        assert_is_the_sum(name, total, X, y)


#: One query per compiled loop.
LOOPS = ["mr gradient", "missing gradient", "missing on_support", "gmm screening"]


@pytest.mark.parametrize("name", QUERIES)
@DTYPES
def test_rows_with_huge_values_give_finite_sums(name, dtype):
    """Among ordinary rows, every 20th row or response is an outlier; the ordinary ones still count."""
    big = 1e300 if dtype is np.float64 else 1e38
    X, y = draw(name, 600, dtype, seed=3)
    rng = np.random.default_rng(4)
    X[::20] *= dtype(big) * rng.choice([-1, 0, 1], size=X[::20].shape).astype(dtype) / 10
    if y is not None:
        y[::30] *= dtype(big) / 10
    total = QUERIES[name][0].sum(Chunk(X, y))
    assert np.all(np.isfinite(total))
    assert_is_the_sum(name, total, X, y)


@pytest.mark.parametrize("name", LOOPS)
@DTYPES
def test_sum_does_not_depend_on_the_number_of_threads(name, dtype):
    """Bit for bit: tasks depend on the length only and are added in order."""
    query = QUERIES[name][0]
    X, y = draw(name, 5 * TASK + 17, dtype, seed=5)
    X *= 10.0 ** np.linspace(-3, 1, len(X), dtype=dtype)[:, None]  # so that the order of the additions shows
    totals = []
    for threads in (1, 2, 3, 1):
        with thread_limit(threads):
            totals += [query.sum(Chunk(X, y)).tobytes() for _ in range(3)]
    assert len(set(totals)) == 1
    backwards = query.sum(Chunk(X[::-1].copy(), None if y is None else y[::-1].copy()))
    assert backwards.tobytes() != totals[0]


@together("value", [0.1, 1.7, 1 / 3, 1e-50, 1e30, 123456789.0, 2.0, math.inf])
def test_clip_levels_never_round_up(value):
    """The largest float32 at most ``value``: a level that rounded up would exceed its bound."""
    level = float_below(value, np.dtype(np.float32))
    assert level.dtype == np.float32
    assert float(level) <= value
    if math.isfinite(value):
        assert float(np.nextafter(level, np.float32(math.inf))) > value
    assert float_below(value, np.dtype(np.float64)) == value


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


LAYOUTS = {
    "columns together": np.asfortranarray,
    "every third row": lambda X: np.repeat(X, 3, axis=0)[::3],
    "a slice of columns together": lambda X: np.asfortranarray(np.concatenate([X, X]))[: len(X)],
    "a slice of columns": lambda X: np.concatenate([X, X], axis=1)[:, : X.shape[1]],
    "backwards": lambda X: np.ascontiguousarray(X[::-1])[::-1],
    "columns apart": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "rows backwards, columns together": lambda X: np.asfortranarray(X[::-1])[::-1],
    "read-only": read_only,
}


@together("layout", LAYOUTS)
@DTYPES
@pytest.mark.parametrize("name", QUERIES)
def test_sum_is_numpys_whatever_the_layout(name, dtype, layout):
    plain, y = draw(name, 700, dtype, seed=2)
    X = LAYOUTS[layout](plain)
    if y is not None:
        y = LAYOUTS["every third row"](y)
        y.flags.writeable = False
    np.testing.assert_array_equal(X, plain)
    assert X.flags.c_contiguous == (layout == "read-only")
    assert_is_the_sum(name, QUERIES[name][0].sum(Chunk(X, y)), plain, y)
    np.testing.assert_array_equal(X, plain)  # nothing is clipped in place


def test_several_threads_may_sum_at_once():
    """Each of four threads asks for sums that use three threads themselves: the same bits every time."""
    X, y = draw("mr gradient", 3 * TASK, np.float32)
    query, totals = QUERIES["mr gradient"][0], []

    def ask():
        with thread_limit(3):
            totals.extend(query.sum(Chunk(X, y)).tobytes() for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(totals), len(set(totals))) == (20, 1)


@pytest.mark.parametrize("name", ["gmm gradient", "mr gradient", "mr truncated", "missing gradient"])
def test_a_row_cannot_touch_the_weight_of_another(name):
    """Bit for bit: weights are computed for many rows at once, but each is a function of its own row."""
    query, has_missing, has_y = QUERIES[name]
    rng = np.random.default_rng(11)
    fitted, hidden, y = rng.standard_normal(1000), rng.random(1000), rng.standard_normal(1000)
    args = (hidden if has_missing else None, y if has_y else None)
    before = query.weight(np, fitted, *args)[0]
    with np.errstate(all="ignore"):
        for bad in (math.inf, -math.inf, math.nan, 1e308, 1e-310):
            other = fitted.copy()
            other[::7] = bad
            after = query.weight(np, other, *args)[0]
            keep = np.arange(1000) % 7 != 0
            assert after[keep].tobytes() == before[keep].tobytes()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_weight_of_another_shape_is_refused(kind):
    """Compiled loops do not check the lengths of arrays."""
    query = dataclasses.replace(GMM.gradient(BETA, Clip(T)), weight=lambda xp, fitted, hidden, y: (fitted[:2], None))
    X = np.ones((5, len(BETA)))
    with pytest.raises(ValueError, match="one number for each row"):
        query.sum(Chunk(X if kind == "dense" else sparse.csr_array(X), None))
    with pytest.raises(ValueError, match="one number for each of the 3 columns"):
        query.sum(Chunk(X[:, :3].copy() if kind == "dense" else sparse.csr_array(X[:, :3]), None))


def test_an_error_in_a_thread_is_an_error_of_the_sum():
    def work(task):
        if task == 7:
            raise MemoryError("no room")

    for threads in (1, 3):
        with thread_limit(threads), pytest.raises(MemoryError):
            run_in_parallel(work, 20)


def test_a_forked_process_has_threads_of_its_own():
    with thread_limit(2):
        run_in_parallel(lambda task: None, 4)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply_async(_forked).get(timeout=1800) == 10


def _forked():
    found = []
    with thread_limit(2):
        run_in_parallel(found.append, 5)
    return sum(found)
