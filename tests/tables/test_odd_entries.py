"""Whatever one entry of a list, a response or a weight is: it becomes a number by the rule for entries, no other entry
changes, and nothing is refused, warned of or quoted on account of it.
"""

import datetime
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dpem import DPGridSearch, DPLinearRegression, DPLogisticRegression, DPStandardScaler
from dpem.audit.replay import differences
from dpem.audit.tape import record
from dpem.fitting.weights import _with_column
from dpem.paper import DPSymmetricMixture
from dpem.tables.entries import checked_levels, number
from dpem.tables.inputs import open_table, response_of, source_of

N, PLACE, SECRET = 30, 3, "secret-diagnosis"


def refuse(*_, **__):
    raise RuntimeError(SECRET)


class Number(float):
    __float__ = __eq__ = __hash__ = refuse


class Text(str):
    __eq__ = __hash__ = __str__ = strip = lower = encode = refuse


class Array:
    __array__ = __len__ = __getitem__ = __str__ = refuse


ODD = {
    "number of a class": Number(0.5), "text of a class": Text("1"), "array of a class": Array(),
    "masked": np.ma.masked, "array without dimensions": np.array(1.0),
    "digits": "1" * 50_000 + "x", "many digits": 10**5000, "long double": np.longdouble("1e4000"),
    "text": SECRET, "very long text": SECRET * 10_000, "text that is a number": " 1e0 ", "bytes": SECRET.encode(),
    "empty text": "", "none": None, "nan": math.nan, "infinity": -math.inf, "large": 1e308, "larger": 10**400,
    "Boolean": True, "complex": 1j, "Decimal": Decimal("0.25"), "signalling nan": Decimal("sNaN"),
    "fraction": Fraction(1, 3), "date": datetime.date(2020, 1, 1), "NumPy's date": np.datetime64("2020-01-01"),
    "pandas' date": pd.Timestamp(0), "NA": pd.NA, "list": [1.0], "two numbers": [1.0, 2.0], "empty list": [],
    "tuple": (1, 2), "array": np.zeros(2), "set": {1}, "dict": {"a": 1}, "object": object(),
}  # fmt: skip
RNG = np.random.default_rng(4)
ROWS, VECTOR = RNG.uniform(-1, 1, (N, 3)).tolist(), RNG.uniform(0, 1, N).tolist()
MODEL = DPLinearRegression(epsilon=4.0, delta=1e-3, bounds=(-1, 1), y_bounds=(0, 1), check=False)
every_entry = pytest.mark.parametrize("odd", ODD.values(), ids=ODD)


def objects(vector):
    found = np.empty(len(vector), dtype=object)
    for place, entry in enumerate(vector):
        found[place] = entry
    return found


def with_entry(odd):
    rows = [list(row) for row in ROWS]
    rows[PLACE][0] = odd
    return rows


def frame(rows):
    return pd.DataFrame({name: objects([row[j] for row in rows]) for j, name in enumerate("abc")})


WAYS_OF_ROWS = {
    "list": lambda rows: rows,
    "tuples": lambda rows: tuple(map(tuple, rows)),
    "list of arrays": lambda rows: list(map(objects, rows)),
    "array of objects": lambda rows: np.stack(list(map(objects, rows))),
    "frame": lambda rows: frame(rows).infer_objects(),
}
WAYS_OF_VECTORS = {
    "list": list,
    "tuple": tuple,
    "array of objects": objects,
    "Series": lambda vector: pd.Series(objects(vector)).infer_objects(),
    "frame": lambda vector: pd.DataFrame({"y": objects(vector)}).infer_objects(),
    "Index": lambda vector: pd.Index(objects(vector), dtype=object),
}


def rows_of(source):
    return np.concatenate([np.array(chunk.X, dtype=float) for chunk in source.chunks()])


def expected(odd):
    rows = np.array(ROWS)
    rows[PLACE, 0] = number(odd)
    return rows


@every_entry
def test_an_odd_entry_changes_its_own_row_only(odd):
    for way in WAYS_OF_ROWS.values():
        for estimator in (MODEL, DPStandardScaler(bounds=(-1, 1))):
            found = rows_of(source_of(clone(estimator), way(with_entry(odd)), needs_y=False))
            np.testing.assert_array_equal(found, expected(odd))


@every_entry
def test_an_odd_response_or_weight_changes_its_own_row_only(odd):
    vector = [*VECTOR[:PLACE], odd, *VECTOR[PLACE + 1 :]]
    numbers = [*VECTOR[:PLACE], number(odd), *VECTOR[PLACE + 1 :]]
    for way in WAYS_OF_VECTORS.values():
        np.testing.assert_array_equal(response_of(way(vector)), numbers)
        for X in (ROWS, np.array(ROWS), frame(ROWS)):
            weighted, _, name = _with_column(X, way(vector), VECTOR)
            table = open_table(clone(MODEL), weighted, None, needs_y=False, levels=None)
            np.testing.assert_array_equal(rows_of(table.source)[:, table.names.index(name)], numbers)


@every_entry
def test_classes_of_a_response(odd):
    texts = ["yes" if number > 0.5 else "no" for number in VECTOR]
    own = checked_levels({"y": ["no", "yes"]})["y"]
    usual = np.array([own.value(text) for text in texts])
    texts[PLACE] = odd
    usual[PLACE] = own.value(odd)
    for way in WAYS_OF_VECTORS.values():
        np.testing.assert_array_equal(response_of(way(texts), own), usual)


FITS = {
    "weights": (clone(MODEL).set_params(max_weight=1.0, weights="c"), lambda rows: (frame(rows), VECTOR)),
    "formula": (
        DPLinearRegression.from_formula(
            "log(c) ~ a + I(a**2) + exp(b):a", epsilon=4.0, delta=1e-3, check=False,
            bounds={"a": (-1, 1), "b": (-1, 1), "c": (0.1, 1)},
        ),
        lambda rows: (frame(rows),),
    ),
    "classes": (
        DPLogisticRegression(epsilon=4.0, delta=1e-3, bounds=(-1, 1), check=False),
        lambda rows: (np.array(ROWS)[:, 1:].tolist(), [row[0] for row in rows]),
    ),
    "search": (
        DPGridSearch(DPSymmetricMixture(start="equal", n_iter=1), {"sigma": [0.5, 2.0]}, epsilon=4.0, delta=1e-3),
        lambda rows: (rows,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_an_odd_entry_changes_no_public_output(name):
    """Warnings, errors and everything public are equal if the answers are."""
    estimator, opened = FITS[name]
    rows = [list(row) for row in ROWS]
    if name == "classes":
        rows = [[float(row[0] > 0), *row[1:]] for row in rows]
    first = record(estimator, *opened(rows))
    assert "refused" not in first.outcome
    for odd in ("very long text", "bytes", "two numbers", "complex", "larger", "none"):
        changed = [list(row) for row in rows]
        changed[PLACE][0] = ODD[odd]
        assert list(differences(first, record(estimator, *opened(changed), frozen=first))) == []


def test_refusals_depend_on_shape_and_type():
    for rows, words in (
        ([[1.0, 2.0], [3.0]], "X must be an array of numbers whose rows have equally many entries"),
        (np.array([[b"1", b"a longer one"]]), r"X must hold numbers, got bytes\.$"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), r"X must hold numbers, got dates\.$"),
        ({"a": [1.0], "b": [2.0]}, r"^X must hold rows, as an array, a DataFrame or a CSR matrix does; got a dict\.$"),
        (np.array([[7123.25j]]), r"^Complex data not supported: X and y must be real\.$"),
        (np.array(7123.25), r"^X must be a table of rows and columns: Reshape"),
        (iter(ROWS), r"^X must hold rows, .*; got a list_iterator\.$"),
        (None, r"^X must hold rows, .*; got None\.$"),
    ):
        with pytest.raises(ValueError, match=words) as refusal:
            source_of(clone(MODEL), rows, needs_y=False)
        assert refusal.value.__context__ is None  # scikit-learn's message quotes entries


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_a_date_in_a_list_of_rows_is_no_number(unit):
    rows = [np.array(["2020-01-01", "2020-01-02"], dtype=f"datetime64[{unit}]")] * 2
    source = source_of(clone(MODEL), rows, needs_y=False)
    assert np.isnan(next(source.chunks()).X).all()


@pytest.mark.parametrize("kind", ["string", "string[pyarrow]", "category", "object"])
def test_a_text_in_an_array_of_pandas_is_neither_quoted_nor_refused(kind):
    """``Series.values`` of a column of texts is such an array."""
    vector = pd.Series([*map(str, VECTOR[:PLACE]), SECRET, *map(str, VECTOR[PLACE + 1 :])]).astype(kind).array
    source = source_of(clone(MODEL), ROWS, vector, needs_y=True)
    found = np.concatenate([chunk.y for chunk in source.chunks()])
    np.testing.assert_array_equal(found, [*VECTOR[:PLACE], np.nan, *VECTOR[PLACE + 1 :]])


def test_a_time_zone_is_not_quoted():
    """pandas infers the time zone from entries."""
    table = pd.DataFrame({"a": [1.0, 2.0], "when": pd.to_datetime(["2020-01-01"] * 2).tz_localize("Asia/Tokyo")})
    with pytest.raises(ValueError, match=r"column 'when' is not numeric \(dates or times\); leave it out\.$"):
        source_of(clone(MODEL), table, needs_y=False)
