"""What queries prepare of rows in memory is kept from pass to pass: it changes no answer and has a limit."""

import numpy as np
import pandas as pd
import pytest

from dpem import (
    DPGaussianMixture,
    DPLatentClass,
    DPLinearRegression,
    DPLogisticRegression,
    DPMixtureRegression,
    DPPoissonRegression,
)
from dpem.models.linear_regression.rows import Frame, RowQuery
from dpem.models.linear_regression.scores import Score
from dpem.queries.histograms import ColumnHistograms
from dpem.queries.narrow import NarrowQuery
from dpem.tables import ArraySource
from dpem.tables.base import PreparedRows
from dpem.tables.persons import PersonSource
from dpem.tables.schema import Schema

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
N = 3000
X = RNG.normal(0.0, 1.0, (N, 3))
X[::50, 1], X[7, 0] = np.nan, np.inf
Y = np.nan_to_num(X, posinf=0.0) @ [0.5, -0.4, 0.2] + 0.3 * RNG.standard_normal(N)
TABLE = pd.DataFrame(X, columns=["a", "b", "c"]).assign(d=RNG.integers(0, 3, N))
SCHEMA = Schema.of(["a", "b", "c"], dict.fromkeys("abc", (-3.0, 3.0)), {}, y_bounds=(-3.0, 3.0))

KNOWN = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0}
BOUNDS = {name: (-3.0, 3.0) for name in "abc"}
NUMBERS, FACTOR = TABLE[["a", "b", "c"]], {"levels": {"d": [0, 1, 2]}}
ITEMS = pd.DataFrame({"d": TABLE["d"], "e": Y > 0, "f": Y > 0.5}).astype(int)
FITS = {
    "linear": (DPLinearRegression(**KNOWN, bounds=BOUNDS, **FACTOR, y_bounds=(-3, 3)), TABLE, Y),
    "logistic": (DPLogisticRegression(**KNOWN, bounds=BOUNDS, **FACTOR), TABLE, (Y > 0).astype(float)),
    "Poisson": (DPPoissonRegression(**KNOWN, bounds=BOUNDS, y_bounds=(0, 9)), NUMBERS, np.round(Y**2)),
    "mixture": (DPGaussianMixture(2, **KNOWN, bounds=BOUNDS), NUMBERS, None),
    "regressions": (DPMixtureRegression(2, **KNOWN, bounds=BOUNDS, y_bounds=(-3, 3)), NUMBERS, Y),
    "persons": (
        DPLinearRegression(**KNOWN, bounds=BOUNDS, y_bounds=(-3, 3), person="who", rows_per_person=2),
        NUMBERS.assign(who=np.arange(N) // 3),
        Y,
    ),
    "classes": (DPLatentClass(2, **KNOWN, levels={"d": [0, 1, 2], "e": [0, 1], "f": [0, 1]}), ITEMS, None),
}


def numbers(model):
    values = {
        name: value for name, value in vars(model).items() if name.endswith("_") and isinstance(value, np.ndarray)
    }
    return {name: value for name, value in values.items() if value.dtype.kind == "f"}


def read_only(prepare):
    def prepared(self, xp, x, y):
        rows = prepare(self, xp, x, y)
        for array in (part for row in rows for part in (row if isinstance(row, tuple) else (row,))):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return rows

    return prepared


@pytest.mark.parametrize("name", FITS)
def test_a_fit_is_the_same_with_and_without_kept_rows_and_writes_into_none(name, monkeypatch):
    model, table, y = FITS[name]
    for query in (NarrowQuery, RowQuery):
        monkeypatch.setattr(query, "prepare", read_only(query.prepare))
    kept = numbers(model.fit(table, y))
    monkeypatch.setattr(PreparedRows, "blocks", lambda self, query, count: None)
    assert kept
    for attribute, value in numbers(model.fit(table, y)).items():
        np.testing.assert_allclose(kept[attribute], value, rtol=1e-6, atol=1e-9, err_msg=attribute)


def test_the_second_query_of_the_same_coordinates_reads_no_row():
    rows = X.copy()
    source = ArraySource(rows, Y, keep=True)
    first = source.total(ColumnHistograms(SCHEMA))
    rows[:] = np.nan
    assert np.array_equal(source.total(ColumnHistograms(SCHEMA)), first)
    assert not np.array_equal(source.total(ColumnHistograms(SCHEMA.take(np.array([0, 1])))), first[: 3 * 33])
    assert not np.array_equal(ArraySource(rows, Y).total(ColumnHistograms(SCHEMA)), first)


def test_rows_in_a_frame_are_not_those_of_another_frame():
    source, alone = ArraySource(X, Y, keep=True), ArraySource(X, Y)
    for centre in (0.0, 0.5):
        frame = Frame(np.full(3, centre), np.eye(3), 0.0, 1.0, np.eye(3), np.eye(3))
        for theta in (np.zeros(4), np.array([0.1, 0.2, -0.3, 0.4])):
            query = Score(SCHEMA, frame, theta, 0.5, radius=1.5)
            np.testing.assert_allclose(source.total(query), alone.total(query), rtol=1e-11, atol=1e-11)


def test_rows_of_persons_are_kept_apart_in_every_batch():
    people = np.arange(N) // 3
    source, alone = (PersonSource(ArraySource(X, Y, keep=keep), most=2, people=[people]) for keep in (True, False))
    for _ in range(2):
        for own, other in zip([source, *source.split(2)], [alone, *alone.split(2)], strict=True):
            assert np.array_equal(own.total(ColumnHistograms(SCHEMA)), other.total(ColumnHistograms(SCHEMA)))


def test_prepared_rows_stay_within_the_memory_limit(monkeypatch):
    for limit, stays in ((8 * 8 * N, True), (8 * 8 * N - 8, False)):
        monkeypatch.setattr("dpem.tables.array.CACHE_BYTES", limit)
        rows = X.copy()
        source = ArraySource(rows, Y, keep=True)
        first = source.total(ColumnHistograms(SCHEMA))
        rows[:] = np.nan
        assert np.array_equal(source.total(ColumnHistograms(SCHEMA)), first) is stays
