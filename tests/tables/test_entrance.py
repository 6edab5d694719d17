"""What comes in at the entrance: no entry becomes a name, a level or a message, and none decides what others become."""

import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import dpem
from dpem import DPGaussianMixture, DPLinearRegression, load_model, save_model, write_report
from dpem.tables.bounds import column_bounds
from dpem.tables.entries import checked_levels, convert
from dpem.tables.frame import column_of
from dpem.tables.inputs import response_of
from dpem.tables.validation import numeric_array

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # what a fit of so few rows says of itself

N = 400
SALARY = 73219


def people(seed=0):
    rng = np.random.default_rng(seed)
    return {"salary": rng.integers(20_000, 90_000, N), "smoker": rng.integers(0, 2, N)}, rng.normal(size=N)


def regression(**more):
    known = {"bounds": {"salary": (0, 100_000)}, "levels": {"smoker": ["0", "1"]}, "y_bounds": (-5, 5)}
    return DPLinearRegression(epsilon=5.0, delta=1e-5, random_state=0, **{**known, **more})


KINDS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "Arrow": lambda columns: pa.table({name: pa.array(own) for name, own in columns.items()}),
    "a record batch": lambda columns: pa.RecordBatch.from_pydict({k: pa.array(own) for k, own in columns.items()}),
}


def numbers(text: str) -> set[float]:
    """The numbers in a text; digits within a longer number do not count."""
    return {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}


every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_names_of_columns_are_not_taken_from_entries(kind, tmp_path):
    columns, y = people()
    columns["salary"][0] = SALARY
    model = regression().fit(KINDS[kind](columns), y)
    assert model.feature_names_in_.tolist() == ["salary", "smoker"]
    save_model(model, tmp_path / "model.json")
    write_report(model, tmp_path / "report.html")
    for page in ("model.json", "report.html"):
        assert SALARY not in numbers((tmp_path / page).read_text("utf-8"))
    assert SALARY not in numbers(str(model.summary()))
    assert load_model(tmp_path / "model.json").levels_ == model.levels_


@every_kind
def test_a_refusal_quotes_no_column(kind):
    columns, y = people()
    with pytest.raises(ValueError, match=r"^bounds must name every numeric column, but lack column 'salary'; "):
        regression(bounds={"smoker": (0, 1)}).fit(KINDS[kind](columns), y)


def test_a_record_in_the_place_of_names_is_not_quoted(tmp_path):
    (tmp_path / "t.csv").write_text("Smith,diabetes\nJones,asthma\nMiller,diabetes\n")
    with pytest.raises(ValueError, match=r"^bounds must name every column of X \(2 in all\)"):
        DPGaussianMixture(2, epsilon=1.0, delta=1e-5, bounds={"age": (0, 1)}).fit(dpem.read_table(tmp_path / "t.csv"))


def coordinates(X, y=None, **more):
    """Unit coordinates of the rows that a fit reads."""
    from dpem.tables.inputs import open_table

    model = regression(**more)
    table = open_table(model, X, y, needs_y=y is not None, **model._declared())
    schema = model._schema(table.names, table.levels, table.y_name)
    rows = np.concatenate([np.array(chunk.X) for chunk in table.source.chunks()])
    return schema.coordinates(np, rows[:, schema.reads])


@pytest.mark.parametrize("kind", ["pandas", "polars", "Arrow"])
def test_categories_are_not_levels(kind):
    """They come from the rows: a category may have a single person."""
    columns, y = people()
    texts = ["recluse" if i == 7 else "city" for i in range(N)]
    tables = {
        "pandas": lambda: pd.DataFrame(columns).assign(home=pd.Categorical(texts)),
        "polars": lambda: pl.DataFrame(columns).with_columns(home=pl.Series(texts, dtype=pl.Categorical)),
        "Arrow": lambda: pa.table({**columns, "home": pa.array(texts).dictionary_encode()}),
    }
    with pytest.raises(ValueError, match=r"column 'home' is not numeric \(categories\).*levels") as refusal:
        regression().fit(tables[kind](), y)
    assert "recluse" not in str(refusal.value)
    model = regression(levels={"smoker": [0, 1], "home": ["city", "village", dpem.OTHER]}).fit(tables[kind](), y)
    assert model.levels_["home"].labels == ("city", "village", dpem.OTHER)
    assert "recluse" not in str(model.summary())


def test_entries_that_are_no_level_have_the_level_other():
    texts = ["a", "b", "c", None, "", "NA"]
    frame = pd.DataFrame({"home": pd.Series(texts, dtype=object)})
    found = coordinates(frame, bounds=None, levels={"home": ["a", "b", dpem.OTHER]})
    np.testing.assert_array_equal(found[:3], [[-1, -1], [1, -1], [-1, 1]])
    assert np.isnan(found[3:]).all()


def test_a_response_in_a_frame_with_a_column_called_name():
    columns, y = people()
    model = regression().fit(pd.DataFrame(columns), pd.DataFrame({"name": y}))
    assert model.y_name_ == "name"


def test_a_response_that_is_called_as_a_column_is():
    columns, y = people()
    with pytest.raises(ValueError, match=r"y has the name of a column of X, 'salary'"):
        regression().fit(pd.DataFrame(columns), pd.Series(y, name="salary"))


@pytest.mark.parametrize("line", ["Ada;73219", "Ada|73,5", "Ada,1987-03-04", "Ada\t12:30", "ada@example.org;x", "x;-7"])
def test_init_refuses_a_record_in_place_of_names(tmp_path, line):
    from click.testing import CliRunner

    from dpem.cli import cli

    data, out = tmp_path / "people.csv", tmp_path / "dpem.toml"
    data.write_text(f"{line}\n{line}\n")
    done = CliRunner().invoke(cli, ["init", str(data), "--out", str(out)])
    assert done.exit_code != 0
    assert not out.exists()
    assert "Ada" not in done.output


def test_bounds_of_a_misspelt_column_are_named():
    with pytest.raises(ValueError, match=r"lack column 'weight' \(is 'wieght' misspelt\?\)"):
        column_bounds({"age": (0, 100), "wieght": (30, 200)}, ["age", "weight"], {})


def test_rows_of_unequal_length_are_refused_in_one_sentence():
    model = dpem.DPGaussianMixture(2, epsilon=1.0, delta=1e-6, bounds=(0, 1))
    with pytest.raises(ValueError, match=r"^X must be an array of numbers whose rows have equally many entries\.$"):
        model.fit([[0.1, 0.2], [0.3]])


# --- One entry decides neither rows nor refusals ----------------------------------------------------------------------


def numbers_of(source):
    return np.concatenate([np.array(chunk.X) for chunk in source.chunks()]).T.tolist()


def test_an_empty_line_is_a_row_of_a_table_with_one_column(tmp_path):
    path = tmp_path / "ages.csv"
    path.write_text("age\n31\n\n60\n")
    source = dpem.read_table(path)
    assert source.n_rows == 3
    np.testing.assert_array_equal(numbers_of(source), [[31, np.nan, 60]])


def test_a_long_entry_refuses_no_table(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(f"age,remark\n{'x' * 3_000_000},1\n2,2\n")
    np.testing.assert_array_equal(numbers_of(dpem.read_table(path)), [[np.nan, 2], [1, 2]])


def test_a_header_in_another_encoding_says_so(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes("größe,age\n1,2\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"^encoding must be another one than utf-8 .*, such as cp1252 or utf-16\.$"):
        dpem.read_table(path)
    assert dpem.read_table(path, encoding="cp1252").feature_names == ["größe", "age"]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_of_every_storage_are_texts(kind):
    plain = pa.array(["1", " 2.5", "x", None])
    column = plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain.cast(kind)
    for stored in (column, pa.chunked_array([column, column[:1]])):
        found = convert(stored, None, np.dtype(float))
        np.testing.assert_array_equal(found[:4], [1, 2.5, np.nan, np.nan])
        levels = checked_levels({"home": ["x", "1", dpem.OTHER]})["home"]
        np.testing.assert_array_equal(convert(stored, levels, np.dtype(float))[:4], [1, np.inf, 0, np.nan])


@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal256(40, 20)], ids=str)
def test_decimals_are_the_nearest_numbers(kind):
    """Arrow's own conversion turns 0.3 into 0.30000000000000004, which is no level."""
    entries = [Decimal(each) for each in ("0.3", "0.7", "56834724.12", "-0.1")]
    found = convert(pa.array(entries, kind), None, np.dtype(float))
    assert found.tolist() == list(map(float, entries))
    frame = pa.table({"dose": pa.array([Decimal("0.3"), None], kind)})
    levels = {"dose": [0.3, 0.7, dpem.OTHER]}
    found = convert(frame["dose"], checked_levels(levels)["dose"], np.dtype(float))
    np.testing.assert_array_equal(found, [0.3, np.nan])


@pytest.mark.parametrize("missing", [np.nan, complex("nan"), np.datetime64("NaT"), pd.NaT, pd.NA, None], ids=repr)
def test_a_missing_entry_does_not_have_the_level_other(missing):
    """Also in a complex column, which pandas makes for one complex entry."""
    levels = checked_levels({"home": [1, 2, dpem.OTHER]})["home"]
    for column in (pd.Series([1, missing, 3j], dtype=object), pd.Series([1, missing, 3j]).infer_objects()):
        found = convert(column_of(column), levels, np.dtype(float))
        np.testing.assert_array_equal(found, [1, np.nan, np.inf])


@pytest.mark.parametrize("odd", [2**64, 2**100, pd.NA, "x", [1.0], {"a": 1}, 1j, b"2"], ids=str)
def test_types_inferred_by_polars_do_not_change_entries(odd):
    """One large number makes a column Int128; an entry of no type of polars makes it a column of Python objects."""
    columns = [pl.Series("age", [1, odd, 60], dtype=pl.Object)]
    if isinstance(odd, int):
        columns.append(pl.Series("age", [1, min(odd, 2**100), 60], dtype=pl.Int128))
    for column in columns:
        rows = coordinates(column.to_frame(), bounds={"age": (0, 100)}, levels=None)
        np.testing.assert_array_equal(rows[:, 0], [-0.98, 1.0 if isinstance(odd, int) else np.nan, 0.2])


def test_masked_entries_are_missing():
    masked = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(numeric_array(masked, "X"), [[1, np.nan], [3, 4]])
    np.testing.assert_array_equal(numeric_array(masked[0], "y"), [1, np.nan])
    found = numeric_array(list(masked), "X")
    np.testing.assert_array_equal(found, [[1, np.nan], [3, 4]])


def test_half_a_surrogate_pair_is_a_text_like_others():
    """pandas stores it; Arrow refuses it with a message that quotes it."""
    frame = pd.DataFrame({"age": pd.Series(["31", "\ud800", "60"], dtype=pd.StringDtype("python"))})
    np.testing.assert_array_equal(coordinates(frame, bounds={"age": (0, 100)}, levels=None)[:, 0], [-0.38, np.nan, 0.2])
    levels = checked_levels({"y": ["31", "sixty"]})["y"]
    np.testing.assert_array_equal(response_of(frame["age"], levels), [0, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"^y must hold numbers\.$"):
        response_of(frame["age"])


@pytest.mark.parametrize("label", ["columns", "collect_schema", "collect", "is_frame", "name", "type", "cat", "sparse"])
def test_row_labels_do_not_change_entries(label):
    """A label is an attribute of a pandas Series."""
    y = pd.Series([1.0, True, 3.0], index=["a", label, "c"], dtype=object)
    np.testing.assert_array_equal(response_of(y), [1, 1, 3])
    assert coordinates(y.to_frame("age"), bounds={"age": (0, 100)}, levels=None).shape == (3, 1)


@pytest.mark.parametrize("name", ["text_levels", "columns", "name", "index", "values", "is_frame", "n_rows"])
def test_a_column_may_have_any_name(name):
    frame = pd.DataFrame({name: [1.0, 2.0, 3.0]})
    np.testing.assert_allclose(coordinates(frame, bounds={name: (0, 4)}, levels=None)[:, 0], [-0.5, 0, 0.5])


def test_a_response_of_polars_without_a_name_has_none():
    from dpem.tables.inputs import response_name

    assert response_name(np.ones((2, 1)), pl.Series([1.0, 2.0])) is None


@pytest.mark.parametrize(
    "kind", [pl.DataFrame, lambda columns: pl.DataFrame(columns).to_arrow()], ids=["polars", "Arrow"]
)
def test_keys_of_a_nested_column_are_not_quoted(kind):
    """Keys may come from entries, such as dates or names."""
    frame = kind({"visits": [{"Ada": 1}, {"Ada": 2}], "age": [1.0, 2.0]})
    for model in (regression(levels=None), regression(levels=None, person="visits")):
        with pytest.raises(ValueError, match="nested") as refusal:
            model.fit(frame, [1.0, 2.0])
        assert "Ada" not in str(refusal.value)


def test_texts_of_numpy_are_entries():
    texts = np.array([["1"], ["secret"], ["3"]], dtype=np.dtypes.StringDType())
    np.testing.assert_array_equal(numeric_array(texts, "X"), [[1], [np.nan], [3]])
    np.testing.assert_array_equal(response_of(texts[:, 0]), [1, np.nan, 3])


def test_objects_in_a_sparse_matrix_are_refused_by_their_type():
    X = sparse.csr_matrix(np.eye(3))
    X.data = np.array([1.0, "secret", 3.0], dtype=object)
    with pytest.raises(ValueError, match=r"^X must hold numbers, got objects\.$"):
        regression().fit(X, [1.0, 2.0, 3.0])


def test_long_doubles_are_numbers():
    frame = pd.DataFrame({"age": np.array(["1", "1e4000"], dtype=np.longdouble)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = coordinates(frame, bounds={"age": (0, 2)}, levels=None)
    np.testing.assert_array_equal(rows[:, 0], [0, np.nan])


@pytest.mark.parametrize("levels", [["a", "b", dpem.OTHER], [1, 2, dpem.OTHER]], ids=["texts", "numbers"])
def test_every_other_level_is_predicted_the_same_from_a_file(levels, tmp_path):
    """The level "other" is infinite in the rows of a file, and must stay so in new rows."""
    columns, y = people()
    known = [level for level in levels if level != dpem.OTHER]
    homes = np.random.default_rng(1).choice([*known, 9], N)
    frame = pd.DataFrame({"salary": columns["salary"], "home": homes})
    model = regression(levels={"home": levels}).fit(frame, y + 3 * (homes.astype(str) == "9"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = model.predict(dpem.read_table(tmp_path / "t.csv", levels={"home": levels}))
    np.testing.assert_allclose(found, model.predict(frame), rtol=1e-12)
    assert np.ptp(found) > 2
