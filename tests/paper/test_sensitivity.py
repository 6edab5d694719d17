"""No record changes a sum by more than the query's bound, and some records reach it; errata about sensitivities.

For each query a ``Case`` holds constructed records (the extremes that the lemmas name). The pool of records of a case
is those, outliers and random rows; every pair in the pool is a pair of neighbours of a table with that one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from together import together

from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip
from dpem.query import Chunk, Query
from studies.audits.hostile_rows import cancelling

NAN = math.nan
BIG = {np.float32: float(np.float32(1e38)), np.float64: 1e300}
DTYPES = together("dtype", [np.float32, np.float64])
#: Rounding of a single contribution in float32: far less than this, and covered by the slack of a sum.
ROOM = 1 + 1e-6


@dataclass(frozen=True)
class Case:
    """A query, the width of its rows, the records that reach its bound, and the norms in which they do.

    A record is a row and its response. ``missing`` says whether NaN marks a missing entry, ``responds`` whether the
    model has a response at all.
    """

    name: str
    query: Query
    d: int
    extremes: list[tuple[list[float], float]] = field(repr=False)
    norms: tuple[str, ...] = ("linf", "l2")
    responds: bool = True
    missing: bool = False

    def __str__(self):
        return self.name.replace(" ", "-")

    def contribution(self, x, y, dtype):
        X, Y = np.array([x], dtype=dtype), np.array([y], dtype=dtype)
        return self.query.sum(Chunk(X, Y if self.responds else None))

    def pool(self, dtype):
        """The constructed records, and 60 others: zeros, outliers, missing, mixed, random."""
        rng, big, d = np.random.default_rng(5), BIG[dtype], self.d
        rows = [np.zeros(d), np.full(d, big), np.full(d, -big), big * (-1.0) ** np.arange(d), np.full(d, 1 / big)]
        rows += list(rng.standard_normal((10, d)) * 10.0 ** rng.uniform(-6, 6, (10, 1)))
        rows += list(rng.choice([0.0, 1.0, -1.0, 1e-3, 1e6, big, -big], (10, d)))
        if self.missing:
            rows += [np.full(d, NAN)] * 3 + [np.where(rng.random(d) < 0.5, NAN, row) for row in rows]
        responses = [0.0, 1.0, -3.0, 1e-3, 1e6, -1e6, big, -big, 1 / big]
        return [*self.extremes, *((row, rng.choice(responses)) for row in rows for _ in range(2))]


def distance(a, b, norm):
    return float(np.max(np.abs(a - b))) if norm == "linf" else float(np.linalg.norm(a - b))


def basis(d, **entries):
    """A row of zeros except for the entries x0=…, x3=…"""
    row = [0.0] * d
    for name, value in entries.items():
        row[int(name[1:])] = value
    return row


def gaussian_mixture_cases():
    model, d = SymmetricMixture(0.8), 6
    T = 1.7
    # Along 1 the first coordinate outweighs the others, so its sign is that of ⟨β, y⟩: the others' signs are free.
    dense = 0.6 * np.ones(d)
    free = [([1e6] + [-T] * (d - 1), 0.0), ([-T] * (d - 1) + [1e6], 0.0), ([-T] + [1e6] * (d - 1), 0.0)]
    # Half of the signs + and half −, then the reverse: antipodal corners of the cube, both with ⟨β, y⟩ > 0.
    corners = [([1e6] * 3 + [-T] * 3, 0.0), ([-T] * 3 + [1e6] * 3, 0.0)]
    yield Case("gmm gradient", model.gradient(dense, Clip(T)), d, free + corners, responds=False)
    yield Case("gmm truncated", model.truncated(dense, T), d, free + corners, responds=False)
    # On a support: orthogonal to β, long, with a little of β in it to fix the sign of the weight.
    beta, support = np.array([0.0, 1.2, 0.0, 0.0, -0.5, 0.0]), np.array([1, 3, 4])
    sideways = [(basis(d, x1=5.0, x3=1e6), 0.0), (basis(d, x1=5.0, x3=-1e6), 0.0)]
    yield Case("gmm on_support", model.on_support(beta, support, 0.9), d, sideways, responds=False)
    screen = [([0.0] * d, 0.0), ([100.0] * d, 0.0)]
    yield Case("gmm screening", model.screening(1.0, 3), d, screen, norms=("linf",), responds=False)
    diagonals = [(basis(d, x1=50.0, x3=50.0), 0.0), (basis(d, x1=50.0, x3=-50.0), 0.0)]
    yield Case("gmm moments", model.moments(support, 1.3, 1.0), d, diagonals, responds=False)


def mixture_regression_cases():
    model, d = SymmetricRegression(0.8), 6
    T, C = 1.7, 0.7
    beta = 0.6 * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    # One row, two responses: 0, so that the weight is −⟨β, x⟩, and a huge one, so that it is as huge.
    rows = [([T] * d, 0.0), ([T] * d, 1e6)]
    yield Case("mr gradient", model.gradient(beta, Clip(T, C)), d, rows, responds=True)
    # Huge response and hardly any fitted value: +T. No response and a large fitted value: −T. Same signs of the row.
    nearly = [2.0, 2.0, 2.0, -2.0, -2.0, -2.0 + 1e-3]
    trunc = [(nearly, 1e7), ([50.0, *nearly[1:]], 0.0)]
    yield Case("mr truncated", model.truncated(beta, T), d, trunc)
    beta, support = np.array([0.0, 1.2, 0.0, 0.0, -0.5, 0.0]), np.array([1, 3, 4])
    sideways = [(basis(d, x1=1.0, x3=1e6), 50.0), (basis(d, x1=1.0, x3=-1e6), 50.0)]
    yield Case("mr on_support", model.on_support(beta, support, 0.9), d, sideways)
    screen = [([10.0] * d, 0.0), ([10.0] * d, 100.0)]
    yield Case("mr screening", model.screening(1.0, 3), d, screen, norms=("linf",))
    diagonal = [(basis(d, x3=50.0), 0.0), (basis(d, x3=50.0), 100.0)]
    yield Case("mr moments", model.moments(support, 1.3, 1.0), d, diagonal)


def missing_regression_cases():
    d = 6
    one = np.ones(d)
    # The three widths of the lemma in turn: two observed entries, one of each, two missing ones.
    rows = [([1e3] * d, 1e6), ([1e3] * d, -1e6), ([-1e3] * d, 1e6)]
    yield Case(
        "missing gradient, observed/observed",
        MissingRegression(0.8).gradient(0.3 * one, Clip(1.7, 0.7, 2.0)),
        d,
        rows,
        missing=True,
    )
    rows = [([-1e3] * d, 1e6), ([NAN] * d, 1e6)]
    yield Case(
        "missing gradient, observed/missing",
        MissingRegression(0.8).gradient(0.8 * one, Clip(1.0, 1.0, 2.0)),
        d,
        rows,
        missing=True,
    )
    rows = [([NAN] * d, 0.0), ([NAN] * d, 1e6)]
    yield Case(
        "missing gradient, missing/missing",
        MissingRegression(20.0).gradient(1.5 * one, Clip(1.0, 1.0, 2.0)),
        d,
        rows,
        missing=True,
    )
    model = MissingRegression(0.8)
    beta, support = np.array([0.0, 1.2, 0.0, 0.0, -0.5, 0.0]), np.array([1, 3, 4])
    sideways = [(basis(d, x3=1e6), 5.0), (basis(d, x3=1e6), -5.0)]
    yield Case("missing on_support", model.on_support(beta, support, 0.9), d, sideways, missing=True)

    # The truncated scores, T = 1, two coefficients of which one carries the fitted value and the other is free.
    d = 10
    beta = np.array([0.2, 0.3] + [0.0] * (d - 2))
    down_up = [  # Π(y) − Π(⟨β, x⟩) = 2T with ⟨β, x⟩ < 0, then −2T with ⟨β, x⟩ > 0; the rest of the row the same
        ([-1e4, 1.0] + [1.0] * (d - 2), 1e4),
        ([-1.0, 1e4] + [1.0] * (d - 2), -1e4),
    ]
    hidden = ([NAN, -1e4] + [0.0] * (d - 2), 5.0)  # all three products at their top: 3T² − β_j
    yield Case("missing truncated", model.truncated(beta, 1.0), d, [*down_up, hidden], missing=True)
    # Erratum E4: |β_j| beyond 4T², a missing entry with no residual (−β_j) against an observed +2T².
    beta = np.array([0.8, 0.5, 0.0, 0.0])
    pair = [([NAN, 0.0, 0.0, 0.0], 0.0), ([0.3, -1e4, 0.0, 0.0], 1e4)]
    query = MissingRegression(5.0).truncated(beta, 0.3)
    yield Case("missing truncated, small T", query, 4, pair, norms=("linf",), missing=True)


CASES = [*gaussian_mixture_cases(), *mixture_regression_cases(), *missing_regression_cases()]
for_each_case = pytest.mark.parametrize("case", CASES, ids=str)


def check(case, a, b):
    """Check that two contributions are within the query's bound."""
    bound = case.query.bound
    for norm, size in (("linf", bound.size_linf), ("l2", bound.size_l2)):
        for one in (a, b):
            assert np.all(np.isfinite(one))
            assert distance(one, 0.0, norm) <= size * ROOM
        assert distance(a, b, norm) <= getattr(bound, norm) * ROOM


@for_each_case
@DTYPES
def test_no_pair_of_the_pool_exceeds_the_bound(case, dtype):
    contributions = [case.contribution(x, y, dtype) for x, y in case.pool(dtype)]
    for i, a in enumerate(contributions):
        for b in contributions[:i]:
            check(case, a, b)


@for_each_case
@DTYPES
def test_constructed_neighbours_reach_the_bound(case, dtype):
    """Records reach at least 90 % of the bound, so that it cannot be much smaller."""
    contributions = [case.contribution(x, y, dtype) for x, y in case.extremes]
    for norm in case.norms:
        reached = max(distance(a, b, norm) for a in contributions for b in contributions)
        assert 0.9 * getattr(case.query.bound, norm) <= reached


def records(case, dtype):
    """Rows with any entries of the dtype, often close to the clips."""
    big, width = BIG[dtype], 32 if dtype is np.float32 else 64
    special = [0.0, -0.0, 1.0, -1.0, 0.3, 1.7, -1.7, 1e-3, 1e6, -1e6, big, -big, 1 / big]
    entry = st.sampled_from(special) | st.floats(-big, big, width=width) | st.floats(-4.0, 4.0)
    cell = entry | st.just(NAN) if case.missing else entry
    return st.tuples(st.lists(cell, min_size=case.d, max_size=case.d), entry)


@for_each_case
@DTYPES
def test_no_record_exceeds_the_bound(case, dtype):
    @seed(20)
    @settings(max_examples=60, deadline=None, database=None)
    @given(records(case, dtype), records(case, dtype))
    def holds(record, neighbour):
        check(case, case.contribution(*record, dtype), case.contribution(*neighbour, dtype))

    holds()


@for_each_case
@DTYPES
@together("value", [math.inf, -math.inf])
def test_infinite_entries_obey_the_bound(case, dtype, value):
    """One infinite entry in each position, then the response, then all entries."""
    check_bad_values(case, dtype, value)


@for_each_case
@DTYPES
def test_entries_that_are_not_numbers_obey_the_bound(case, dtype):
    """The contract of Query: whatever a row contains, its contribution is finite and within the bound."""
    check_bad_values(case, dtype, NAN)


def check_bad_values(case, dtype, value):
    zero = case.contribution([0.0] * case.d, 0.0, dtype)
    rows = [[value if k == j else 1.0 for k in range(case.d)] for j in range(case.d)] + [[value] * case.d]
    for row in rows:
        check(case, case.contribution(row, 1.0, dtype), zero)
        check(case, case.contribution(row, value, dtype), zero)
    check(case, case.contribution([1.0] * case.d, value, dtype), zero)


@pytest.mark.parametrize("case", [c for c in CASES if "screening" not in c.name and "moments" not in c.name], ids=str)
@DTYPES
def test_a_weight_that_is_no_number_counts_as_zero(case, dtype):
    """∞ − ∞ in the fitted value, or a response that is NaN: the record adds nothing, not the clip level."""
    if case.responds:
        np.testing.assert_array_equal(case.contribution([1.0] * case.d, NAN, dtype), 0.0)
    beta = case.query.beta if hasattr(case.query, "beta") else np.ones(case.d)
    row = np.ones(case.d)
    row[np.flatnonzero(beta)[:2]] = np.array([math.inf, -math.inf]) * np.sign(beta[np.flatnonzero(beta)[:2]])
    np.testing.assert_array_equal(case.contribution(row, 1.0, dtype), 0.0)


@pytest.mark.parametrize("form", ["gradient", "truncated"])
def test_missing_model_holds_its_bound_at_any_beta(form):
    """The lemmas depend on signs and sizes of β, T and σ, so these are drawn, too: 100 settings, 30 records each."""
    rng, d = np.random.default_rng(6), 4
    for _ in range(100):
        sigma, T = 10.0 ** rng.uniform(-1, 1, 2)
        beta = rng.standard_normal(d) * 10.0 ** rng.uniform(-1.5, 1, d) * (rng.random(d) < 0.7)
        level = Clip(T, *10.0 ** rng.uniform(-1, 1, 2)) if form == "gradient" else T
        case = Case(form, getattr(MissingRegression(sigma), form)(beta, level), d, [], missing=True)
        X = rng.standard_normal((30, d)) * 10.0 ** rng.uniform(-2, 4, (30, d))
        X[rng.random(X.shape) < 0.4] = NAN
        y = rng.standard_normal(30) * 10.0 ** rng.uniform(-2, 4, 30)
        sums = np.array([case.contribution(*record, np.float64) for record in zip(X, y, strict=True)])
        bound = case.query.bound
        assert np.max(np.abs(sums)) <= bound.size_linf * ROOM
        assert np.max(np.linalg.norm(sums, axis=1)) <= bound.size_l2 * ROOM
        gaps = sums[:, None] - sums[None]
        assert np.max(np.abs(gaps)) <= bound.linf * ROOM
        assert np.max(np.linalg.norm(gaps, axis=2)) <= bound.l2 * ROOM


# --- The errata about sensitivities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.5, 5.0])
def test_printed_sensitivity_of_the_missing_model_is_exceeded(sigma):
    """Erratum E4: with T = 0.3 and β_j = 0.8 an actual pair of records moves the sum by more than the printed 6T²."""
    model, beta, T = MissingRegression(sigma), np.array([0.8, 0.5, 0.0]), 0.3
    query = model.truncated(beta, T)
    case = Case("truncated", query, 3, [([NAN, 0.0, 0.0], 0.0), ([0.3, -1e4, 0.0], 1e4)], missing=True)
    a, b = (case.contribution(x, y, np.float64) for x, y in case.extremes)
    assert distance(a, b, "linf") > 1.5 * model.printed_sensitivity(T)
    assert distance(a, b, "linf") <= query.bound.linf * ROOM


def printed_weight_contribution(x, y, beta, sigma, T, doubled: Callable[[float], float]):
    """The paper's truncated gradient of a mixture of regressions with ``doubled(w)`` in place of 2w − 1."""
    w = 1 / (1 + math.exp(-2 * y * (x @ beta) / sigma**2))
    return np.clip(x, -T, T) * (doubled(w) * np.clip(y, -T, T) - np.clip(x @ beta, -T, T))


def test_printed_weight_of_the_regressions_doubles_the_sensitivity():
    """Erratum E2: the same pair of records moves the sum by 4T² with the printed 2w, by 2T² with 2w − 1."""
    model, T = SymmetricRegression(0.8), 1.7
    beta = np.array([0.6, 0.6, 0.6, -0.6])
    row = np.array([2.0, 2.0, 2.0, 6.0 - 1e-3])
    response = 1e5  # 2y⟨β, x⟩/σ² = 188: the sign is certain, w = 1
    pair = [(row, response), (np.array([2.0, 2.0, 2.0, 6.0 + 1e-3]), -response)]  # ⟨β, x⟩ = ±6e-4
    query = model.truncated(beta, T)

    def moved(contribution):
        a, b = (contribution(x, y) for x, y in pair)
        return distance(a, b, "linf")

    printed = moved(lambda x, y: printed_weight_contribution(x, y, beta, model.sigma, T, lambda w: 2 * w))
    corrected = moved(lambda x, y: printed_weight_contribution(x, y, beta, model.sigma, T, lambda w: 2 * w - 1))
    ours = moved(lambda x, y: query.sum(Chunk(x[None], np.array([y]))))
    assert query.bound.linf == pytest.approx(2 * T**2)
    assert printed > 1.9 * query.bound.linf
    assert corrected <= query.bound.linf * ROOM
    assert ours == pytest.approx(corrected, rel=1e-9)
    assert ours > 0.99 * query.bound.linf


def test_rows_built_to_cancel_obey_the_bound():
    """The lemma's signs hold in exact arithmetic only. Before contributions were clamped these rows reached 1.15 of the
    bound.
    """
    d, T = 6, 1.0
    query = MissingRegression(0.5).truncated(np.full(d, 1.6), T)
    X, y = cancelling(d, 20_000, seed=0)
    found = query._contributions(X, y)
    observed = query._contributions(np.array([[-1e4, 1e3, 1e3, 1.0, 1.0, 1.0], [1e4, 1e3, 1e3, 1.0, 1.0, 1.0]]), y[:2])
    assert np.abs(observed).max() == 2 * T * T
    ends = np.concatenate([found, observed, -observed])
    width = ends.max(axis=0) - ends.min(axis=0)
    assert width.max() > 0.9 * query.bound.linf
    assert width.max() <= query.bound.linf
    assert np.linalg.norm(width) <= query.bound.l2
